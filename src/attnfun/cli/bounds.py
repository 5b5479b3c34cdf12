"""`attnfun bounds`: what rank, heads, pairs and bits cannot do; one command a question."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from attnfun.cli import bounds_sets
from attnfun.cli.arguments import check_writable, picture_path, read_eps
from attnfun.cli.bounds_matching import matching_command
from attnfun.cli.bounds_neighbours import cube_command, neighbours_command
from attnfun.cli.render import console, facts, grid, literal, number, print_json

PANEL = "Limits"
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")]
group = typer.Typer(
    help="What is impossible: bounds on the error of attention, with hypotheses and sources.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Hang the group on the app."""
    group.command("rank")(rank_command)
    group.command("neighbours")(neighbours_command)
    group.command("cube")(cube_command)
    group.command("energies")(energies_command)
    bounds_sets.register(group)
    group.command("matching")(matching_command)
    app.add_typer(group, name="bounds", rich_help_panel=PANEL)


def rank_command(
    dim: Annotated[int, typer.Option("--dim", metavar="D", help="Dimension of the points.", show_default=False)],
    rank: Annotated[int, typer.Option("--rank", metavar="R", help="Rank of a head's W_K^T W_Q.", show_default=False)],
    heads: Annotated[int, typer.Option("--heads", metavar="H", help="Number of heads.", show_default=False)],
    eps: Annotated[
        str | None, typer.Option("--eps", metavar="NUMBER", help="Also: how many heads does this error need?")
    ] = None,
    setting: Annotated[
        str,
        typer.Option(
            "--setting", help="scalar, layer-scalar-v, layer-any-v, softmax-scalar-v or softmax-any-v (see below)."
        ),
    ] = "scalar",
    bias: Annotated[float, typer.Option("--bias", help="Threshold b of the scalar target sign(<z,y> - b).")] = 0.0,
    attends_self: Annotated[
        bool, typer.Option("--self", help="Layer settings: the query is attended to as well.")
    ] = False,
    png: Annotated[
        str | None, typer.Option("--png", metavar="FILE", help="Draw the error against rank and heads.")
    ] = None,
    as_json: Json = False,
) -> int:
    """The error that heads of low rank cannot avoid on the furthest (or nearest) of two points.

    [bold]scalar[/bold]: sign(<z, y>) by sums of functions of K_h^T z and y. [bold]layer-scalar-v, layer-any-v[/bold]: a
    real layer whose weights are any functions of K_h^T x1, K_h^T x2 and y, with values c_h x or V_h x.
    [bold]softmax-scalar-v, softmax-any-v[/bold]: weights that depend on K_h^T (x1 - x2) and y, as a softmax's do.

    \b
    [bold]Examples[/bold]
      attnfun bounds rank --dim 64 --rank 8 --heads 16
      attnfun bounds rank --dim 64 --rank 8 --heads 16 --eps 0.1 --setting layer-any-v --json
      attnfun bounds rank --dim 64 --rank 8 --heads 16 --png map.png
    """
    path = picture_path(png, "bounds-rank.safetensors")
    check_writable(path)
    tolerance = None if eps is None else read_eps(eps)
    from attnfun import bounds

    found = bounds.rank(dim, rank, heads, tolerance, setting, bias=bias, attends_self=attends_self)
    record = found.record()
    if path:
        from attnfun.plots.bounds import draw_rank_map

        draw_rank_map(found, path)
        record["png"] = path
    if as_json:
        print_json(record)
    else:
        _print(record)
    return 0


def energies_command(
    dim: Annotated[int, typer.Option("--dim", metavar="D", help="Dimension of the sphere.", show_default=False)],
    rank: Annotated[int, typer.Option("--rank", metavar="R", help="Rank of a projection.")] = 1,
    bias: Annotated[float, typer.Option("--bias", help="Threshold b of sign(t - b).")] = 0.0,
    degrees: Annotated[int, typer.Option("--degrees", metavar="N", help="How many degrees to list.")] = 10,
    as_json: Json = False,
) -> int:
    """How much of sign(<z, y> - b) lies in each degree, and how many harmonics a projection of rank r sees there.

    \b
    [bold]Examples[/bold]
      attnfun bounds energies --dim 64
      attnfun bounds energies --dim 16 --rank 4 --bias 0.3 --degrees 20 --json
    """
    from attnfun import bounds
    from attnfun.errors import InvalidRequest

    if rank < 1 or degrees < 1 or dim > 4096:
        raise InvalidRequest(f"dim={dim}, rank={rank}, degrees={degrees}: dim up to 4,096, the others at least 1")
    found = bounds.energies(dim, bias)
    rows: list[dict[str, Any]] = []
    for degree, low, high, n in list(zip(found.degrees, found.low, found.high, found.counts, strict=True))[:degrees]:
        seen = bounds.seen_harmonics(dim, rank, int(degree))
        energy = {"energy": float(high), "energy_low": float(low)}
        rows.append({"degree": int(degree), **energy, "harmonics": n, "seen": seen})
    listed = sum(row["energy_low"] for row in rows)
    record = {"dim": dim, "rank": rank, "bias": bias, "rows": rows, "rest": max(0.0, 1 - listed)}
    if as_json:
        print_json(record)
        return 0
    columns = [("degree", "right"), ("energy", "right"), ("harmonics", "right"), (f"seen by rank {rank}", "right")]
    body = [
        [number(r["degree"]), f"{r['energy']:.6f}", _count(r["harmonics"]), _count(r["seen"])]
        for r in rows
    ]
    console().print(grid(f"energies of sign(t - {bias:g}) in dimension {dim:,}", columns, body))
    console().print(literal(f"all other degrees together: {record['rest']:.6f}"))
    return 0


def _count(value: int) -> str:
    return count(value, math.log10(value))


def count(value: int | None, log10: float | None) -> str:
    """A number of heads for people: exact while it is short."""
    if value is not None and value < 10**9:
        return f"{value:,}"
    return "–" if log10 is None else f"{10 ** (log10 % 1):.2f}e{int(log10)}"


def _print(record: dict[str, Any]) -> None:
    problem = f"{record['heads']:,} heads of rank {record['rank']:,} in dimension {record['dim']:,}"
    problem += f": {record['setting']}"
    needed = None
    if record["eps"] is not None:
        needed = f"[bold]{count(record['heads_needed'], record['heads_needed_log10'])}[/] at least"
        if record["setting"] == "scalar":
            enough = count(record["heads_sufficient"], record["heads_sufficient_log10"])
            needed += f", {enough} are proved to do"
    quoted = [f"{q['name']}: {q['statement']} → {_value(q)} ({q['caveat']})" for q in record["published"]]
    rows = [
        ("problem", literal(problem)),
        ("error", f"≥ [bold]{number(record['lower'], 4)}[/]  proved, of at most {number(record['largest'])}"),
        ("attained", f"≤ {number(record['upper'], 4)} by some heads" if record["upper"] is not None else None),
        (f"heads for {number(record['eps'])}", needed),
        ("hypotheses", literal("\n".join(record["hypotheses"]))),
        ("source", literal(record["source"])),
        ("quoted, no bounds", literal("\n".join(quoted))),
        ("picture", literal(record["png"]) if "png" in record else None),
    ]
    console().print(facts("", rows))


def _value(quoted: dict[str, Any]) -> str:
    return number(quoted["value"]) if quoted["value"] is not None else f"2^{quoted['log2']:.0f}"
