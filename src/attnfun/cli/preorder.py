"""The preorder command: a utility, or the lexicographic order of a grid, and what attention needs for it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import read_domain, read_eps
from attnfun.cli.records import model_record
from attnfun.cli.render import console, facts, literal, number, print_json, progress_bar, status_text
from attnfun.errors import Infeasible, InvalidRequest

PANEL = "Relations"


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("preorder", rich_help_panel=PANEL)(preorder_command)


def preorder_command(
    utility: Annotated[
        str | None,
        typer.Option("--utility", metavar="EXPR", help="Keys are better the larger this is.", show_default=False),
    ] = None,
    left: Annotated[
        list[str] | None,
        typer.Option("--left", metavar="q=LOW:HIGH", help="One interval a query variable.", show_default=False),
    ] = None,
    right: Annotated[
        list[str] | None,
        typer.Option("--right", metavar="k=LOW:HIGH", help="One interval a key variable.", show_default=False),
    ] = None,
    eps: Annotated[
        str | None,
        typer.Option("--eps", metavar="NUMBER", help="Also build towers within this, and their rank."),
    ] = None,
    lexicographic: Annotated[
        str | None,
        typer.Option(
            "--lexicographic",
            metavar="P",
            help="Instead of a utility: keys of numbers 0 to P-1, the first that differs decides; or 'continuum'.",
            show_default=False,
        ),
    ] = None,
    coordinates: Annotated[int, typer.Option("--coordinates", metavar="K", help="Numbers of such a key.")] = 2,
    dtype: Annotated[
        str, typer.Option("--dtype", help="float32 or float64; limits also of bfloat16, float16.")
    ] = "float32",
    method: Annotated[str, typer.Option("--method", help="auto, 'one head' or cascade.")] = "auto",
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same probes.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Is a preference of keys, given a query, one that scores can follow? With a witness where it is not.

    Of a utility, completeness and transitivity are automatic and continuity is proved; where it jumps, a jump that
    every utility has is looked for. Lexicographic order has no utility on the continuum; on a grid heads pick the best
    key exactly.

    \b
    [bold]Examples[/bold]
      attnfun preorder --utility 'exp(-2*(q-k)**2)' --left q=0:1 --right k=0:1 --eps 1e-4
      attnfun preorder --utility 'sign(x-0.5) + y/2' --right 'x=0:1;y=0:1' --json
      attnfun preorder --lexicographic 100000 --coordinates 2 --dtype float32
      attnfun preorder --lexicographic continuum
    """
    if (utility is None) == (lexicographic is None):
        raise InvalidRequest("give --utility EXPR or --lexicographic P, one of them")
    if lexicographic is not None:
        if left or right or eps:
            raise InvalidRequest("--left, --right and --eps belong to --utility")
        return _grid(lexicographic, coordinates, dtype, method, seed, as_json)
    if not right:
        raise InvalidRequest("no keys: give every key variable its interval, as in --right k=0:1")
    tolerance = None if eps is None else read_eps(eps)
    from attnfun.limits.preorders.verb import preorder

    with progress_bar("preorder") as progress:
        report = preorder(
            utility=utility,
            right=read_domain(right),
            left=read_domain(left) if left else None,
            seed=seed,
            progress=progress,
        )
        report.require()
        built = None if tolerance is None else report.relation(tolerance, progress=progress)
    record = report.record()
    if built is not None:
        record["relation"] = model_record(built)
    if as_json:
        print_json(record)
        return 0
    rows = [
        ("utility", literal(str(record["preorder"]))),
        ("domain", literal(str(record["domain"]))),
        ("status", status_text(report.status)),
        *((name.replace("_", "-"), literal(finding.text)) for name, finding in report.findings.items()),
        ("note", literal(report.note) if report.note else None),
        ("rank", None if built is None else _rank(built, tolerance)),
        ("seconds", number(record["seconds"])),
    ]
    console().print(facts("", rows))
    return 0


def _rank(built: Any, eps: float | None) -> str:
    return f"[bold]{number(built.rank)}[/] within {number(eps)}, {built.certificate.status.value}"


def _grid(text: str, coordinates: int, dtype: str, method: str, seed: int, as_json: bool) -> int:
    if text.strip().lower() == "continuum":
        return _continuum(coordinates, seed)
    try:
        levels = int(text)
    except ValueError:
        raise InvalidRequest(f"--lexicographic {text!r}: a whole number of levels, or continuum") from None
    from attnfun.kinds.lexicographic.verb import lexicographic
    from attnfun.limits.grids import grid_limits
    from attnfun.network.network import DTYPES

    limits = grid_limits(dtype, coordinates, levels)
    head = lexicographic(levels, coordinates, dtype=dtype, method=method) if dtype in DTYPES else None
    if not any((limits.fits or {}).values()):
        raise Infeasible(
            f"{levels:,} levels in {coordinates} coordinates: {dtype} holds {limits.one_number:,} in one number",
            {"levels": limits.one_number},
        )
    record = {"status": "proved", "method": None, **limits.record()} if head is None else head.record()
    if as_json:
        print_json(record)
        return 0
    best = limits.largest
    gap = f"{limits.gap:.3g} of the range, the best of all utilities" if limits.gap else None
    tie = record["tied_pair"]
    rows = [
        ("grid", f"{number(levels)} levels, {number(coordinates)} coordinates, {dtype}: {limits.bits} bits"),
        ("network", f"{head.method}, {number(record['layers'])} layers, rank {record['rank']}" if head else None),
        ("one number", f"up to {number(best['one_number'])} levels ({number(best['centred'])} if it may be negative)"),
        ("cascade", f"up to {number(best['cascade'])} levels" if best["cascade"] else None),
        ("gap", gap),
        ("tie", literal(f"in one number {tie[0]} and {tie[1]} are equal") if tie else None),
    ]
    console().print(facts("", rows))
    return 0


def _continuum(coordinates: int, seed: int) -> int:
    """The order of the unit cube: no utility, with the witness."""
    if not 2 <= coordinates <= 8:
        raise InvalidRequest(f"--coordinates {coordinates}: from 2 to 8 on the continuum; one coordinate is a utility")
    from attnfun.limits.preorders.verb import preorder

    def lexicographic_order(a: Any, b: Any) -> bool:
        return tuple(a) >= tuple(b)

    with progress_bar("preorder") as progress:
        box = {f"x{i + 1}": (0, 1) for i in range(coordinates)}
        report = preorder(lexicographic_order, right=box, seed=seed, net=False, progress=progress)
    report.require()
    raise AssertionError("the lexicographic order of a cube passed as continuous")
