"""`attnfun bounds sets`: what sums over elements cannot do and sums over pairs can."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import read_eps
from attnfun.cli.render import console, facts, literal, number, print_json, progress_bar


def register(group: typer.Typer) -> None:
    """Hang the command on the group `bounds`."""
    group.command("sets")(sets_command)


def sets_command(
    points: Annotated[int, typer.Option("--points", metavar="N", help="Elements of a set.", show_default=False)],
    dim: Annotated[int, typer.Option("--dim", metavar="D", help="Dimension of an element.", show_default=False)],
    features: Annotated[
        int, typer.Option("--features", metavar="H", help="Features of the DeepSets.", show_default=False)
    ],
    eps: Annotated[
        str | None, typer.Option("--eps", metavar="NUMBER", help="Also: how many features does this error need?")
    ] = None,
    degree: Annotated[
        int | None, typer.Option("--degree", metavar="K", help="Torus: power sums of this degree only.")
    ] = None,
    setting: Annotated[
        str | None, typer.Option("--setting", help="unitary (dim 1) or torus; chosen by the dimension if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """The error that DeepSets of H features cannot avoid where one feature of pairs has none.

    [bold]unitary[/bold]: eigenvalues of random unitary matrices, exact. [bold]torus[/bold]: independent points with
    coordinates on the unit circle, up to a proved constant c.

    \b
    [bold]Examples[/bold]
      attnfun bounds sets --points 16 --dim 3 --features 2
      attnfun bounds sets --points 8 --dim 1 --features 2 --eps 0.1 --json
      attnfun bounds sets --points 12 --dim 40 --degree 3 --features 500
    """
    tolerance = None if eps is None else read_eps(eps)
    from attnfun import bounds

    with progress_bar("bounds sets") as progress:
        progress("counting vector partitions")
        found = bounds.sets(points, dim, features, tolerance, degree=degree, setting=setting)
    record = found.record()
    if as_json:
        print_json(record)
    else:
        _print(record)
    return 0


def _print(record: dict[str, Any]) -> None:
    exact = record["setting"] == "unitary"
    problem = f"{record['features']:,} features on sets of {record['points']:,} points in dimension {record['dim']:,}"
    quoted = [
        f"{q['name']}: {q['statement']} → {number(q['value']) if q['value'] is not None else 'huge'} ({q['caveat']})"
        for q in record["published"]
    ]
    sharper = f"≥ {number(record['sharper_lower'], 4)}  with c = {number(record['sharper_constant'], 4)}, proved too"
    needed = None
    if record["eps"] is not None:
        needed = f"[bold]{record['features_needed']:,}[/] at least, {record['features_sufficient']:,} do"
    rows = [
        ("problem", literal(f"{problem}: {record['setting']}")),
        ("target", literal(f"{record['target']}; {record['terms']:,} terms")),
        ("error", f"≥ [bold]{number(record['lower'], 4)}[/]  proved, c = {number(record['constant'], 4)}"),
        ("sharper", None if exact else sharper),
        ("attained", f"{number(record['upper'], 4)} by {record['features']:,} features; 0 by one feature of pairs"),
        (f"features for {number(record['eps'])}", needed),
        ("hypotheses", literal("\n".join(record["hypotheses"]))),
        ("source", literal(record["source"])),
        ("quoted, no bounds", literal("\n".join(quoted))),
    ]
    console().print(facts("", rows))
