"""The retrieve command: a utility and a table of keys in, an attention head that picks the best key out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, read_domain, read_eps, unshield
from attnfun.cli.records import AS_STORED, error_text, parts_text
from attnfun.cli.render import console, facts, grid, literal, number, print_json, progress_bar, status_text
from attnfun.errors import InvalidRequest

PANEL = "Relations"


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("retrieve", rich_help_panel=PANEL)(retrieve_command)


def retrieve_command(
    utility: Annotated[
        str, typer.Argument(metavar="UTILITY", help="A utility of query (left) and key (right).", show_default=False)
    ],
    left: Annotated[
        list[str],
        typer.Option("--left", metavar="x=LOW:HIGH", help="One interval a query variable.", show_default=False),
    ],
    right: Annotated[
        list[str],
        typer.Option("--right", metavar="y=LOW:HIGH", help="One interval a key variable.", show_default=False),
    ],
    keys: Annotated[
        str,
        typer.Option(
            "--keys",
            metavar="CSV",
            help="Keys: a header with the right variables in any order; a column 'id' names keys, others are ignored.",
            show_default=False,
        ),
    ],
    eps: Annotated[str, typer.Option("--eps", metavar="NUMBER", help="How far scores may be off.", show_default=False)],
    values: Annotated[
        str | None,
        typer.Option(
            "--values",
            metavar="CSV",
            help="What the head hands out, a row a key: all columns but 'id' and the right variables. Else the keys.",
        ),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option("--queries", metavar="CSV|N", help="Queries to find margins at, or how many uniform ones."),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option("--beta", metavar="B", help="Inverse temperature; else what the median margin needs."),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="The winner shall have a weight of 1 − delta.")] = 1e-3,
    confidence: Annotated[float, typer.Option("--confidence", help="Of the failure probability's interval.")] = 0.95,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="One tower for queries and keys.")] = False,
    signed: Annotated[bool, typer.Option("--signed", help="With --symmetric: allow signs.")] = False,
    method: Annotated[str, typer.Option("--method", help="auto, chebyshev, tensor or cholesky.")] = "auto",
    features_only: Annotated[
        bool, typer.Option("--features-only", help="Polynomial features in place of a tower; the result says so.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the uniform queries.")] = 0,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Save the head here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """An attention head that picks the best key of a table, with what is proved for every query of the box.

    For every query: how far its weights may be from the softmax of the exact utilities (total variation), its output
    from that softmax's, and how much utility its pick may lose. For queries whose best key leads by a margin: the
    weight of that key. On a sample of queries: margins, and how probable a failure is, with confidence.

    \b
    [bold]Examples[/bold]
      attnfun retrieve 'exp(-2*((x1-y1)**2+(x2-y2)**2))' --left 'x1=0:1;x2=0:1' --right 'y1=0:1;y2=0:1' --keys docs.csv --eps 1e-4
      attnfun retrieve 'x*y - y**2/2' --left x=0:1 --right y=0:1 --keys docs.csv --values docs.csv --eps 1e-6 -o head.safetensors
      attnfun retrieve 'exp(x*y)' --left x=0:1 --right y=0:1 --keys docs.csv --eps 1e-6 --queries 5000 --beta 200 --json
    """  # noqa: E501
    check_writable(output)
    tolerance = read_eps(eps)
    from attnfun import retrieval

    sample: Any = queries
    if queries is not None and queries.strip().lstrip("+-").isdigit():
        sample = int(queries)
    with progress_bar("retrieve") as progress:
        found = retrieval.retrieve(
            unshield(utility),
            read_domain(left),
            read_domain(right),
            keys,
            tolerance,
            values=values,
            queries=sample,
            beta=beta,
            delta=delta,
            confidence=confidence,
            symmetric=symmetric,
            signed=signed,
            method=method,
            features_only=features_only,
            seed=seed,
            progress=progress,
        )
    record = found.record()
    if output:
        found.save(output)
        record["file"] = output
    if as_json:
        print_json(record)
    else:
        _print(record)
    return 0


def show_retrieval(found: Any, path: str, png: str | None, as_json: bool) -> int:
    """What `attnfun show` prints of a retrieval head's file: the stored certificate and study."""
    if png is not None:
        raise InvalidRequest(f"{path} holds a retrieval head; --png draws networks of functions")
    record = {**found.record(), "file": path}
    if as_json:
        print_json(record)
    else:
        _print(record)
    return 0


def promise_rows(record: dict[str, Any]) -> list[tuple[str, Any]]:
    """What the proof of a retrieval head says of every query; nothing for other certificates."""
    found = record["details"] if record.get("proof") == "retrieval" else record
    if "softmax_regret" not in found:
        return []
    return [
        ("every query", f"weights within {number(found['tv'])} of the exact softmax (total variation)"),
        ("", f"output within {number(found['output_error'])} of its output"),
        ("", f"its pick loses at most {number(found['regret'])} of utility"),
        ("", f"its average loses at most {number(found['softmax_regret'])} of utility"),
    ]


def _print(record: dict[str, Any]) -> None:
    study = record.get("study")
    size = f"{number(record['keys'])} keys, rank {number(record['rank'])}, β = {number(record['beta'], 4)}; "
    size += "features only: no network" if record["features_only"] else f"{record['layers']} layers of attention"
    twice = f"{number(record['duplicates'])} keys stand where another does" if record["duplicates"] else None
    rows = [
        ("utility", literal(str(record["target"]))),
        ("domain", literal(str(record["domain"]))),
        ("status", status_text(str(record["status"]))),
        ("score error", f"{error_text(record)}, for every query and key"),
        ("head", size),
        ("duplicates", twice),
        *promise_rows(record),
    ]
    if study:
        low, high = record["failure_probability"]
        margin = f"a margin of {number(record['margin'])} or more"
        measured = study["measured"]
        rows += [
            ("half the sample", f"{margin}: the best key has weight ≥ {number(record['winner_weight'], 5)}"),
            ("failure", f"probability in {number(low)} … {number(high)} at confidence {number(record['confidence'])}:"),
            ("", f"margin not above twice the error at {study['failures']:,} of {study['queries']:,} queries"),
            ("", literal(str(study["drawn"]))),
            ("measured", f"wrong pick at {measured['wrong_top1']:.3%} of them, regret {number(measured['regret'])}"),
        ]
    rows += [
        ("note", literal(record["note"]) if "note" in record else None),
        ("parts", parts_text(record)),
        ("hypotheses", literal("\n".join(record["hypotheses"])) if record["hypotheses"] else None),
        ("seconds", number(record["seconds"])),
        ("file", literal(record["file"]) if "file" in record else None),
    ]
    screen = console()
    screen.print(facts("" if record["verified"] else AS_STORED, rows))
    if study:
        table = [(q, number(m), number(study["betas"][q])) for q, m in study["margins"].items()]
        heads = ("quantile of the sample", "margin", f"β for weight {1 - study['delta']:g}")
        screen.print(grid(None, [(head, "right") for head in heads], table))
