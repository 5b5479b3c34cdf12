"""The interpolation command: a table of truncated linear heads by size and variant, and its picture."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, picture_path, whole_numbers
from attnfun.cli.render import console, facts, grid, literal, number, print_json, progress_bar
from attnfun.errors import InvalidRequest

PANEL = "Networks"
VARIANTS = ("published", "inclusive", "optimal")


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("interpolation", rich_help_panel=PANEL)(interpolation_command)


def interpolation_command(
    low: Annotated[float, typer.Option("--low", help="a, the lower end of the truncated linear function.")] = -2.0,
    high: Annotated[float, typer.Option("--high", help="b, the upper end.")] = 3.0,
    points: Annotated[
        str, typer.Option("--points", metavar="P,P,...", help="Points of a single head, or of each of --heads.")
    ] = "8,16,32,64,128",
    heads: Annotated[
        str | None, typer.Option("--heads", metavar="H,H,...", help="Several heads of so many points each.")
    ] = None,
    variant: Annotated[str, typer.Option("--variant", help="published, inclusive, optimal, or all.")] = "all",
    dtype: Annotated[str, typer.Option("--dtype", help="float64 or float32.")] = "float64",
    png: Annotated[str | None, typer.Option("--png", metavar="[FILE]", help="Draw the rates and the heads.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """The truncated linear function clip(x, a, b) by softmax over interpolation points, for given sizes.

    Each row is a network: the bound as published, the bound proved from its weights, the error measured on a fine grid,
    and the last two in units of the spacing of its points. A weights file comes from
    `attnfun compile 'clip(2*x + y, -1, 1)' --method interpolation`, which starts from eps instead.

    \b
    [bold]Examples[/bold]
      attnfun interpolation --low -2 --high 3 --points 8,16,32,64,128
      attnfun interpolation --points 6 --heads 1,2,4,8 --variant published --json
      attnfun interpolation --points 4,8,16,32 --heads 4 --png rates.png
    """
    sizes = whole_numbers("--points", points)
    counts = None if heads is None else whole_numbers("--heads", heads)
    if variant not in (*VARIANTS, "all"):
        raise InvalidRequest(f"--variant {variant!r}: write {', '.join(VARIANTS)} or all")
    variants = VARIANTS if variant == "all" else (variant,)
    picture = picture_path(png, "interpolation")
    check_writable(picture)
    from attnfun.kinds.function import interpolation as truncated_linear

    start = time.perf_counter()
    total = len(variants) * len(sizes) * len(counts or (1,))
    with progress_bar("interpolation", total=total) as progress:

        def news(row: truncated_linear.Row) -> None:
            progress(f"{row.variant}, {row.keys} keys", step=True)

        rows = truncated_linear.interpolation_table(
            low, high, sizes, heads=counts, variants=variants, dtype=dtype, progress=news
        )
    record: dict[str, Any] = {"status": "proved", "low": low, "high": high, "dtype": dtype}
    record |= {"rows": [row.record() for row in rows], "seconds": round(time.perf_counter() - start, 3)}
    if picture:
        from attnfun.kinds.function.rates import draw_rates

        with progress_bar(f"draw {picture}"):
            draw_rates(rows, low, high, picture)
        record["png"] = picture
    if as_json:
        print_json(record)
        return 0
    _print(rows, low, high, picture)
    return 0


def _print(rows: list[Any], low: float, high: float, picture: str | None) -> None:
    many, screen = rows[0].heads is not None, console()
    wide = screen.width >= 100
    shown: dict[str, Callable[[Any], str]] = {"variant": lambda row: str(row.variant)}
    shown |= {"n": lambda row: number(row.points), "H": lambda row: number(row.heads)} if many else {}
    shown |= {"keys" if many else "p": lambda row: number(row.keys)}
    shown |= {"Δ": lambda row: number(row.spacing), "βΔ²": lambda row: number(row.sharpness)} if wide else {}
    digits = 4 if wide else 3
    shown |= {
        "published": lambda row: number(row.published, digits),
        "proved": lambda row: number(row.proved, digits),
        "measured": lambda row: number(row.measured, digits),
        "proved/Δ": lambda row: number(row.proved_in_spacings),
        "measured/Δ": lambda row: number(row.measured_in_spacings),
    }
    body = [[literal(cell(row)) for cell in shown.values()] for row in rows]
    columns = [(name, "left" if name == "variant" else "right") for name in shown]
    what = f"clip(x, {low:g}, {high:g}): the bound as published, the bound proved from the weights, the error measured"
    screen.print(literal(what))
    screen.print(grid(None, columns, body))
    if picture:
        screen.print(facts("", [("drawn", literal(picture))]))
