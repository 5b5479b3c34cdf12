"""The relation command: an expression in left and right variables in, two proved towers out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, read_domain, read_eps, unshield
from attnfun.cli.records import AS_STORED, error_text, parts_text
from attnfun.cli.render import console, facts, literal, number, print_json, progress_bar, status_text
from attnfun.errors import InvalidRequest

PANEL = "Relations"


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("relation", rich_help_panel=PANEL)(relation_command)


def relation_command(
    expression: Annotated[
        str, typer.Argument(metavar="EXPR", help="A relation of left and right variables.", show_default=False)
    ],
    left: Annotated[
        list[str],
        typer.Option("--left", metavar="x=LOW:HIGH", help="One interval a left variable.", show_default=False),
    ],
    right: Annotated[
        list[str],
        typer.Option("--right", metavar="y=LOW:HIGH", help="One interval a right variable.", show_default=False),
    ],
    eps: Annotated[str, typer.Option("--eps", metavar="NUMBER", help="The sup-norm tolerance.", show_default=False)],
    symmetric: Annotated[
        bool, typer.Option("--symmetric", help="One tower: left and right variables correspond in order.")
    ] = False,
    signed: Annotated[
        bool, typer.Option("--signed", help="With --symmetric: allow signs, the inner product of φ and Jφ.")
    ] = False,
    method: Annotated[
        str,
        typer.Option("--method", help="auto, expand, polynomial, chebyshev, tensor, cholesky, voronoi, hats or cross."),
    ] = "auto",
    realise: Annotated[str, typer.Option("--realise", help="attention, or mlp: towers of ReLU units.")] = "attention",
    features_only: Annotated[
        bool, typer.Option("--features-only", help="Polynomial features without towers; the result says so.")
    ] = False,
    band: Annotated[
        float | None,
        typer.Option(
            "--band", metavar="WIDTH", help="For jumps: leave out where a sign's argument is smaller than this."
        ),
    ] = None,
    accept: Annotated[
        str | None, typer.Option("--accept", help="proved, or sampled: measured is enough where nothing is proved.")
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Save it here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Features φ, ψ with |relation(x, y) − φ(x)·ψ(y)| ≤ eps everywhere, proved, and the least rank that could do.

    \b
    [bold]Examples[/bold]
      attnfun relation 'exp(-2*(x-y)**2)' --left x=0:1 --right y=0:1 --eps 1e-4 --symmetric
      attnfun relation 'exp(x1*y1 + x2*y2)' --left 'x1=0:1;x2=0:1' --right 'y1=0:1;y2=0:1' --eps 1e-6 -o r.safetensors
      attnfun relation 'tanh(5*(x-y))' --left x=0:1 --right y=0:1 --eps 1e-2 --realise mlp --json
      attnfun relation 'exp(-2*abs(x-y))' --left x=0:1 --right y=0:1 --eps 1e-2 --symmetric --method voronoi
    """
    check_writable(output)
    tolerance = read_eps(eps)
    from attnfun import relations

    with progress_bar("relation") as progress:
        found = relations.relation(
            unshield(expression),
            read_domain(left),
            read_domain(right),
            tolerance,
            symmetric=symmetric,
            signed=signed,
            method=method,
            realise=realise,
            features_only=features_only,
            band=band,
            accept=accept,
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


def _band(band: dict[str, Any] | None) -> Any:
    if band is None:
        return None
    return literal(
        f"within {number(band['eps'])} of {band['of']} where its signs see {number(band['delta'])} or more:"
        f" all but {band['measure']:.3g} of the box"
    )


def show_relation(found: Any, path: str, png: str | None, as_json: bool) -> int:
    """What `attnfun show` prints of a relation's file: the stored certificate and the sizes of its towers."""
    if png is not None:
        raise InvalidRequest(f"{path} holds two towers; --png draws networks of functions")
    record = {**found.record(), "file": path}
    if as_json:
        print_json(record)
    else:
        _print(record)
    return 0


def _print(record: dict[str, Any]) -> None:
    towers = "none: features only" if record["features_only"] else f"{record['realise']}"
    word = "neurons" if "neurons" in record else "keys"
    least = f"(any method needs at least {number(record['rank_lower'])}{'' if record['verified'] else ', as stored'})"
    rows = [
        ("relation", literal(str(record["target"]))),
        ("domain", literal(str(record["domain"]))),
        ("status", status_text(str(record["status"]))),
        ("error", error_text(record) if record["error"] is not None else None),
        ("reason", literal(str(record["reason"])) if record["reason"] else None),
        ("rank", f"[bold]{number(record['rank'])}[/]  {least}"),
        ("method", literal(f"{record['method']}{', signed' if record['signed'] else ''}")),
        ("towers", towers),
        (word, number(record[word]) if word in record else None),
        ("neurons by Barron norm 1", number(record["neurons_paper"]) if "neurons_paper" in record else None),
        ("band", _band(record.get("band"))),
        ("cells", " and ".join(number(c) for c in record["cells"]) if "cells" in record else None),
        ("published cells", " and ".join(number(c) for c in record["voronoi_cells"])),
        ("parts", parts_text(record)),
        ("proof", literal(str(record["proof"]))),
        ("hypotheses", literal("\n".join(record["hypotheses"])) if record["hypotheses"] else None),
        ("seconds", number(record["seconds"])),
        ("file", literal(record["file"]) if "file" in record else None),
    ]
    console().print(facts("" if record["verified"] else AS_STORED, rows))
