"""`attnfun neighbours`: a network for the furthest or nearest of points, its accuracy predicted and measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from attnfun.cli.arguments import check_writable, read_eps
from attnfun.cli.records import kept, model_record, print_model
from attnfun.cli.render import progress_bar

PANEL = "Limits"


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("neighbours", rich_help_panel=PANEL)(neighbours_command)


def neighbours_command(
    dim: Annotated[int, typer.Option("--dim", metavar="D", help="Dimension of the points.", show_default=False)],
    points: Annotated[
        int | None,
        typer.Option("--points", metavar="N", help="Number of points, the query included (3; biased: 2)."),
    ] = None,
    method: Annotated[
        str,
        typer.Option("--method", help="full-rank, scores, tally, majority-vote, random-heads or biased."),
    ] = "full-rank",
    eps: Annotated[
        str | None, typer.Option("--eps", metavar="NUMBER", help="Mean squared error, the points having norm 1.")
    ] = None,
    heads: Annotated[
        int | None, typer.Option("--heads", metavar="H", help="For majority-vote (odd) and random-heads.")
    ] = None,
    rank: Annotated[int, typer.Option("--rank", metavar="R", help="Rank of random heads.")] = 1,
    which: Annotated[str, typer.Option("--which", help="furthest or nearest.")] = "furthest",
    beta: Annotated[
        float | None, typer.Option("--beta", metavar="NUMBER", help="Inverse temperature, instead of --eps.")
    ] = None,
    sampler: Annotated[
        str, typer.Option("--sampler", help="Directions of random heads: same, independent or compromise.")
    ] = "same",
    bias: Annotated[float, typer.Option("--bias", help="Threshold b of biased: the sign of <z,y> - b.")] = 0.0,
    queries: Annotated[
        int, typer.Option("--queries", metavar="N", help="Measure on so many random queries; 0: do not measure.")
    ] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Of drawn directions and of the measurement.")] = 0,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Save it here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """A network that finds the furthest (or nearest) of points on a sphere; its error, predicted and measured.

    [bold]full-rank[/bold]: one head; every point asks. [bold]scores[/bold]: two layers of rank-1 heads, any number of
    points, the last one asks. [bold]tally, majority-vote[/bold]: two layers of rank-1 heads, two candidates, one query;
    of a vote the mean over draws of its directions is predicted, and the drawn network measured.
    [bold]random-heads[/bold]: one layer of low rank, with what no such layer gets below. [bold]biased[/bold]: the sign
    of <z, y> - b.

    \b
    [bold]Examples[/bold]
      attnfun neighbours --dim 64 --points 16 --method full-rank --eps 1e-3
      attnfun neighbours --dim 16 --points 8 --method scores --eps 1e-2 -o scores.safetensors --json
      attnfun neighbours --dim 16 --method majority-vote --heads 257
    """
    check_writable(output)
    tolerance = None if eps is None else read_eps(eps)
    from attnfun import neighbours as make

    count = points if points is not None else 2 if method == "biased" else 3
    with progress_bar("neighbours") as progress:
        found = make(
            dim,
            count,
            method,
            eps=tolerance,
            heads=heads,
            rank=rank,
            which=which,
            beta=beta,
            sampler=sampler,
            bias=bias,
            seed=seed,
        )
        record = model_record(found)
        record["measured"] = asdict(found.measured(queries, seed, progress)) if queries else None
    print_model(kept(found, record, output, None), as_json)
    return 0
