"""`attnfun bounds neighbours` and `cube`: what heads of low rank miss of any number of candidates, or on the cube."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import read_eps
from attnfun.cli.render import console, facts, literal, number, print_json, progress_bar

Heads = Annotated[int, typer.Option("--heads", metavar="H", help="Number of heads.", show_default=False)]
Eps = Annotated[str | None, typer.Option("--eps", metavar="NUMBER", help="Also: how many heads does this error need?")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")]


def neighbours_command(
    dim: Annotated[int, typer.Option("--dim", metavar="D", help="Dimension of the points.", show_default=False)],
    candidates: Annotated[
        int, typer.Option("--candidates", metavar="N", help="Points to choose from, the query not among them.")
    ],
    rank: Annotated[int, typer.Option("--rank", metavar="R", help="Rank of a head's W_K^T W_Q.", show_default=False)],
    heads: Heads,
    value_rank: Annotated[
        int | None, typer.Option("--value-rank", metavar="V", help="Rank of a head's values; any if not given.")
    ] = None,
    eps: Eps = None,
    as_json: Json = False,
) -> int:
    """The error that one layer of low rank cannot avoid on the furthest (or nearest) of any number of points.

    The weights may be any functions of K_h^T x_1, ..., K_h^T x_n and the query, the values V_h x; no MLP.

    \b
    [bold]Examples[/bold]
      attnfun bounds neighbours --dim 64 --candidates 15 --rank 8 --heads 8
      attnfun bounds neighbours --dim 16 --candidates 31 --rank 1 --heads 16 --value-rank 1 --eps 0.1 --json
    """
    tolerance = None if eps is None else read_eps(eps)
    from attnfun import bounds

    with progress_bar("bounds neighbours") as progress:
        progress("enclosing energies")
        found = bounds.neighbours(dim, candidates, rank, heads, tolerance, value_rank=value_rank)
    record = found.record()
    problem = f"{record['heads']:,} heads of rank {record['rank']:,}, values of rank {record['value_rank']:,}, for "
    problem += f"{record['candidates']:,} candidates in dimension {record['dim']:,}"
    return _answer(record, problem, as_json)


def cube_command(
    dim: Annotated[int, typer.Option("--dim", metavar="D", help="Dimension of the cube.", show_default=False)],
    heads: Heads,
    rank: Annotated[int | None, typer.Option("--rank", metavar="R", help="Coordinates that a head reads.")] = None,
    values: Annotated[
        int | None, typer.Option("--values", metavar="V", help="Or: values that what a head knows can take.")
    ] = None,
    candidates: Annotated[
        int, typer.Option("--candidates", metavar="N", help="1: sign(<z, y>); 2: the nearer of two points.")
    ] = 1,
    eps: Eps = None,
    as_json: Json = False,
) -> int:
    """The error that heads cannot avoid on the nearer point of the Hamming cube, as an exact fraction.

    \b
    [bold]Examples[/bold]
      attnfun bounds cube --dim 64 --rank 8 --heads 16
      attnfun bounds cube --dim 64 --rank 8 --heads 16 --candidates 2 --json
      attnfun bounds cube --dim 32 --values 1000 --heads 4 --eps 0.1
    """
    tolerance = None if eps is None else read_eps(eps)
    from attnfun import bounds

    with progress_bar("bounds cube") as progress:
        progress("summing fractions")
        found = bounds.cube(dim, rank, heads, tolerance, values=values, candidates=candidates)
    record = found.record()
    each = f"that read {rank:,} coordinates each" if rank is not None else f"that know one of {values:,} values each"
    return _answer(record, f"{record['heads']:,} heads {each}, on the cube of dimension {record['dim']:,}", as_json)


def _answer(record: dict[str, Any], problem: str, as_json: bool) -> int:
    if as_json:
        print_json(record)
        return 0
    needed = None
    if record["eps"] is not None:
        count = record["heads_needed"]
        if count is not None:
            needed = f"[bold]{number(count if count < 10**15 else float(count))}[/] at least"
        else:
            needed = f"[bold]no number[/]: all of them err by {number(record['floor'], 4)} at least"
    upper = record.get("upper")
    rows = [
        ("problem", literal(problem)),
        ("error", f"≥ [bold]{number(record['lower'], 4)}[/]  proved, of at most {number(record['largest'], 4)}"),
        ("attained", None if upper is None else f"≤ {number(upper, 4)} by some heads"),
        (f"heads for {number(record['eps'])}", needed),
        ("hypotheses", literal("\n".join(record["hypotheses"]))),
        ("source", literal(record["source"])),
    ]
    console().print(facts("", rows))
    return 0
