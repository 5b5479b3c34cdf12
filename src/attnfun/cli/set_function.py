"""attnfun set-function: symmetric functions of a set of points. Heavy imports stay inside."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, read_domain, read_eps, unshield
from attnfun.cli.records import certificate_record, cost_rows, proof_rows
from attnfun.cli.render import EXIT, clean, console, facts, literal, print_json, progress_bar
from attnfun.errors import InvalidRequest


def set_function_command(
    expressions: Annotated[
        list[str] | None, typer.Argument(metavar="EXPR...", help="One expression an output.", show_default=False)
    ] = None,
    points: Annotated[int | None, typer.Option("--points", metavar="N", help="How many points a set has.")] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            "--domain", metavar="x=LOW:HIGH", help="One interval a coordinate of a point.", show_default=False
        ),
    ] = None,
    eps: Annotated[str | None, typer.Option("--eps", metavar="NUMBER", help="The tolerance, absolute.")] = None,
    method: Annotated[str, typer.Option("--method", help="auto, elements, power-sums, pairs.")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="float64 or float32.")] = "float64",
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same weights.")] = 0,
    max_keys: Annotated[int, typer.Option("--max-keys", metavar="N", help="At most so many keys.")] = 1_000_000,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Save the network here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Build an attention network for a function of a set, prove it, and say whether DeepSets is enough.

    Points occur inside sums only: sum, mean, max, min of an expression in x (over elements) or in x_i and x_j (over
    all ordered pairs); pairs(e) and distinct(e) sum over pairs, the second over i different from j. x\\[i] is x_i.

    \b
    [bold]Examples[/bold]
      attnfun set-function 'sum(x**2) + sum(x_i*x_j)' --points 6 --domain x=-1:1 --eps 1e-4
      attnfun set-function 'sum(exp(-(x_i - x_j)**2))' --points 8 --domain x=-1:1 --eps 1e-3 --json
    """
    texts = [unshield(text) for text in expressions or ()]
    if not texts:
        raise InvalidRequest("no expression: write for instance attnfun set-function 'sum(x**2)' --points 6 …")
    if points is None or eps is None:
        raise InvalidRequest(f"--{'points' if points is None else 'eps'} is missing")
    tolerance, box = read_eps(eps), read_domain(domain or ())
    check_writable(output)
    from attnfun.set_functions import set_function

    start = time.perf_counter()
    options: dict[str, Any] = {"method": method, "dtype": dtype, "seed": seed, "max_keys": max_keys}
    with progress_bar("set-function") as progress:
        net = set_function(texts, points, box, tolerance, **options, progress=progress)
    record = set_record(net, time.perf_counter() - start)
    if output:
        net.save(output)
        record["file"] = output
    if as_json:
        print_json(record)
        return EXIT[str(record["status"])]
    analysis = net.analysis
    rows = [
        ("DeepSets", literal(analysis.verdict)),
        ("because", literal(analysis.note)),
        ("built", literal(f"{net.method}, {record['tokens']:,} tokens")),
        ("saved", literal(output) if output else None),
    ]
    console().print(facts("", [*proof_rows(record), *cost_rows(record), *rows]))
    return EXIT[str(record["status"])]


def set_record(net: Any, seconds: float) -> dict[str, Any]:
    """What `set-function --json` carries."""
    cost = net.cost
    record = {"name": net.target.text, **certificate_record(net.certificate), "points": net.target.points}
    record |= {"tokens": net.network.tokens, "layers": cost.layers, "heads": cost.heads}
    record |= {"rank": cost.rank, "keys": cost.keys, "parameters": cost.parameters, "query_dim": cost.query_dim}
    record |= {"max_value": cost.max_value, "slack": net.certificate.slack, "analysis": net.analysis.record()}
    return dict(clean(record | {"seconds": round(seconds, 3)}))
