"""Finite relations: embed-dim, the dimension a relevance relation needs, and rank-of, the rank a matrix needs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, read_eps, whole_numbers
from attnfun.cli.render import console, facts, grid, literal, number, print_json, progress_bar

PANEL = "Relations"
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")]


def register(app: typer.Typer) -> None:
    """Hang the commands on the app."""
    app.command("embed-dim", rich_help_panel=PANEL)(embed_dim_command)
    app.command("rank-of", rich_help_panel=PANEL)(rank_of_command)


def embed_dim_command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="TSV of query, document[, grade]; TREC qrels; CSV or .npy matrix of queries × documents.",
            show_default=False,
        ),
    ],
    dim: Annotated[
        int | None, typer.Option("--dim", metavar="D", help="The best margin at this dimension.", show_default=False)
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(
            "--documents",
            metavar="N|FILE",
            help="The collection: a number, or a file with an id a line. Documents that no query wants count.",
            show_default=False,
        ),
    ] = None,
    bits: Annotated[
        int | None, typer.Option("--bits", metavar="B", help="Bits a coordinate; else as few as keep the margin.")
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="D,D,...", help="More dimensions to find margins for.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same vectors.")] = 0,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="OUT", help="Write the integer vectors: .safetensors, .npz or .npy."),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="VECTORS", help="Only check the vectors of a .safetensors written earlier."),
    ] = None,
    as_json: Json = False,
) -> int:
    """How many dimensions embeddings need to rank every query's relevant documents first.

    From below an obstruction that excludes fewer, from above integer vectors that were ranked exactly, and a table of
    dimension, margin and bits. Margins are of unit queries and of documents in the unit ball. Grades above 0 are
    relevant. Queries for which no document is relevant, or every one, ask for nothing and get the vector 0.

    \b
    [bold]Examples[/bold]
      attnfun embed-dim qrels.txt --documents 50000 -o vectors.safetensors
      attnfun embed-dim pairs.tsv --dim 12 --json
      attnfun embed-dim relevance.csv --table 6,8,16 --bits 8
      attnfun embed-dim qrels.txt --documents 50000 --check vectors.safetensors
    """
    if check is not None:
        return _check(file, documents, check, as_json)
    check_writable(output)
    from attnfun.limits.embedding import embed_dim
    from attnfun.limits.embedding.files import check_ending

    if output:
        check_ending(output)
    wanted = None if table is None else whole_numbers("--table", table)
    with progress_bar("embed-dim") as progress:
        answer = embed_dim(file, dim=dim, documents=documents, bits=bits, table=wanted, seed=seed, progress=progress)
    record = {"file": file, **answer.record()}
    if output:
        record["output"] = answer.save(output)
    if as_json:
        print_json(record)
    else:
        _print(record)
    return 0


def rank_of_command(
    matrix: Annotated[
        str, typer.Argument(metavar="MATRIX", help="CSV or .npy of numbers, a row a query.", show_default=False)
    ],
    eps: Annotated[
        str, typer.Option("--eps", metavar="NUMBER", help="Largest error of any score.", show_default=False)
    ],
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Save the factors (.safetensors).")
    ] = None,
    as_json: Json = False,
) -> int:
    """The rank of an attention head whose scores are within eps of a matrix, entry by entry.

    The factors are proved to be within eps, rounding counted; `rank_lower` is a rank below which no factors are.

    \b
    [bold]Examples[/bold]
      attnfun rank-of scores.csv --eps 0.01
      attnfun rank-of scores.npy --eps 1e-3 -o factors.safetensors --json
    """
    check_writable(output)
    tolerance = read_eps(eps)
    from attnfun.limits.score_rank import rank_of

    with progress_bar("rank-of") as progress:
        answer = rank_of(matrix, tolerance, progress=progress)
    record: dict[str, Any] = {"file": matrix, **answer.record()}
    if output:
        answer.save(output)
        record["output"] = output
    if as_json:
        print_json(record)
        return 0
    rows = [
        ("matrix", literal(f"{matrix}, {answer.shape[0]:,} × {answer.shape[1]:,}")),
        ("rank", _interval(answer.lower, answer.rank)),
        ("error", f"≤ [bold]{number(answer.error, 4)}[/] in every entry  proved, eps {number(answer.eps)}"),
        ("seconds", number(record["seconds"])),
        ("written", literal(output) if output else None),
    ]
    console().print(facts("", rows))
    return 0


def _check(file: str, documents: str | None, vectors: str, as_json: bool) -> int:
    """Exit code 0 if the stored integers rank the relation exactly, 4 with the query that fails."""
    from attnfun.limits.embedding.files import check_file, read_any

    with progress_bar("check"):
        ranking, dimension = check_file(vectors, read_any(file, documents))
    record = {"file": file, "vectors": vectors, "status": "proved", "dimension": dimension, "gap": ranking.gap}
    record["margin"] = ranking.margin if ranking.margin < float("inf") else None
    if as_json:
        print_json(record)
    else:
        what = f"integer vectors of {dimension} dimensions rank exactly: margin ≥ {number(record['margin'], 4)}"
        console().print(facts("", [("relation", literal(file)), ("proved", literal(what))]))
    return 0


def _print(record: dict[str, Any]) -> None:
    screen = console()
    obstruction = record["obstruction"]
    shown = ", ".join(obstruction["documents"][:8]) + (" …" if len(obstruction["documents"]) > 8 else "")
    trivial = f", {record['trivial_queries']:,} of which ask for nothing" if record["trivial_queries"] else ""
    size = f"{record['queries']:,} queries{trivial}, {record['documents']:,} documents, {record['relevant']:,} relevant"
    at = record["dimension"]
    proof = f"margin ≥ {number(record['margin'], 4)}, {record['bits']} bits a coordinate, {record['method']}"
    rows = [
        ("relation", literal(f"{record['file']}: {size}")),
        ("dimension", _interval(record["lower"], record["upper"])),
        ("at least", literal(obstruction["reason"])),
        ("", literal(shown) if shown else None),
        ("at most", literal(f"integer vectors of {at} dimensions, ranked exactly: {proof}")),
        ("no margin above", number(record["ceiling"], 4) if record["ceiling"] else None),
        ("seconds", number(record["seconds"])),
        ("written", literal(", ".join(record["output"])) if "output" in record else None),
    ]
    screen.print(facts("", rows))
    columns = [("dimension", "right"), ("margin", "right"), ("bits", "right"), ("fewest bits", "right"), ("by", "left")]
    body = [
        [number(r["dimension"]), number(r["margin"], 4), number(r["bits"]), number(r["least_bits"]), r["method"]]
        for r in record["table"]
    ]
    if body:
        screen.print(grid(None, columns, body))


def _interval(low: int, high: int) -> str:
    return f"[bold]{low}[/]" if low == high else f"between [bold]{low}[/] and [bold]{high}[/]"
