"""attnfun sequence: maps of n tokens, and what show and eval do with their files. Heavy imports stay inside."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, picture_path, read_domain, read_eps, unshield
from attnfun.cli.records import kept, model_record, print_model
from attnfun.cli.render import EXIT, console, failure, grid, literal, number, print_json, progress_bar
from attnfun.errors import AttnfunError, InvalidRequest


def sequence_command(
    expressions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPR...]", help="One expression an output; with --rows one a token.", show_default=False
        ),
    ] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", metavar="N", help="How many tokens a sequence has.")] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            "--domain", metavar="x=LOW:HIGH", help="One interval a coordinate of a token.", show_default=False
        ),
    ] = None,
    eps: Annotated[str | None, typer.Option("--eps", metavar="NUMBER", help="The tolerance, absolute.")] = None,
    method: Annotated[
        str, typer.Option("--method", help="auto, two-layer, deep, one-layer-softmax, partition.")
    ] = "auto",
    rows: Annotated[
        bool, typer.Option("--rows", help="One EXPR a token; outputs of a token are separated by ';'.")
    ] = False,
    dtype: Annotated[str, typer.Option("--dtype", help="float64 or float32.")] = "float64",
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same weights.")] = 0,
    max_keys: Annotated[int, typer.Option("--max-keys", metavar="N", help="At most so many keys.")] = 1_000_000,
    example: Annotated[str | None, typer.Option("--example", metavar="NAME", help="One of the maps that ship.")] = None,
    small: Annotated[bool, typer.Option("--small", help="The example at its small size.")] = False,
    examples: Annotated[
        bool, typer.Option("--examples", help="All maps that ship by every construction, as a table.")
    ] = False,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Save the network here.")] = None,
    png: Annotated[str | None, typer.Option("--png", metavar="[FILE]", help="Draw it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Build an attention network for a map of sequences, and prove it.

    Names: a token's own coordinates (x), entries of given tokens (x_3), and mean, sum, max, min of one expression or
    softmax_mean(score, value) over all tokens.

    \b
    [bold]Examples[/bold]
      attnfun sequence 'sin(x*mean(x))' --tokens 6 --domain x=-1:1 --eps 1e-4
      attnfun sequence 'x-max(x)' --tokens 6 --domain x=-1:1 --eps 1e-4 -o s.safetensors --png
      attnfun sequence 'x_2' 'x_1' --rows --tokens 2 --domain x=-1:1 --eps 1e-9
      attnfun sequence --example relu-net
      attnfun sequence --examples
    """
    if examples:
        if expressions or example:
            raise InvalidRequest("--examples takes no expression and no --example: it makes them all")
        return _table(as_json)
    request = _request(expressions, tokens, domain, eps, rows, example, small)
    picture = picture_path(png, output)
    check_writable(output, picture)
    from attnfun.kinds.sequence.verb import sequence

    start = time.perf_counter()
    with progress_bar("sequence") as progress:
        net = sequence(**request, method=method, dtype=dtype, seed=seed, max_keys=max_keys, progress=progress)
    record = model_record(net, seconds=time.perf_counter() - start)
    print_model(kept(net, record, output, picture), as_json)
    return EXIT[str(record["status"])]


def _request(
    expressions: list[str] | None,
    tokens: int | None,
    domain: list[str] | None,
    eps: str | None,
    rows: bool,
    example: str | None,
    small: bool,
) -> dict[str, Any]:
    texts = [unshield(text) for text in expressions or ()]
    if example is not None:
        from attnfun.kinds.sequence.examples import example as named

        if texts or rows or domain or tokens is not None:
            raise InvalidRequest(f"--example {example} has its own expressions, tokens and domain")
        request = named(example).request(small)
        return request | ({"eps": read_eps(eps)} if eps is not None else {})
    if small:
        raise InvalidRequest("--small goes with --example")
    if not texts:
        raise InvalidRequest("no expression: write for instance attnfun sequence 'x-max(x)' --tokens 6 --domain x=-1:1")
    if tokens is None or eps is None:
        raise InvalidRequest(f"--{'tokens' if tokens is None else 'eps'} is missing")
    target: Any = [[part.strip() for part in text.split(";")] for text in texts] if rows else texts
    return {"target": target, "tokens": tokens, "domain": read_domain(domain or ()), "eps": read_eps(eps)}


def _table(as_json: bool) -> int:
    """Every example by every construction, at its own size and at its small one."""
    from attnfun.kinds.sequence.build import METHODS
    from attnfun.kinds.sequence.examples import EXAMPLES

    cases = [(one, small, method) for one in EXAMPLES for small in (False, True) for method in METHODS]
    rows = []
    with progress_bar("examples", total=len(cases)) as progress:
        for one, small, method in cases:
            progress(f"{one.name}, {method}")
            rows.append(_case(one, small, method))
            progress(step=True)
    if as_json:
        print_json({"rows": rows})
        return 0
    columns = [
        ("example", "left"),
        ("tokens", "right"),
        ("eps", "right"),
        ("construction", "left"),
        ("layers", "right"),
    ]
    columns += [("heads", "right"), ("keys", "right"), ("proved", "right"), ("measured", "right"), ("", "left")]
    body = [
        [
            row["example"],
            number(row["tokens"]),
            number(row["eps"]),
            row["method"],
            *(number(row.get(key)) for key in ("layers", "heads", "keys", "error", "measured")),
            literal(str(row.get("reason") or "")[:70]),
        ]
        for row in rows
    ]
    console().print(grid("sequence maps, by construction", columns, body))
    return 0


def _case(one: Any, small: bool, method: str) -> dict[str, Any]:
    import numpy as np

    from attnfun.kinds.sequence.prove import probes
    from attnfun.kinds.sequence.verb import sequence

    request = one.request(small)
    row = {"example": one.name, "tokens": request["tokens"], "eps": request["eps"], "method": method}
    start = time.perf_counter()
    try:
        net = sequence(**request, method=method)
    except AttnfunError as error:
        return {**row, **failure(error), "seconds": round(time.perf_counter() - start, 3)}
    X = probes(net.target, 1500, np.random.default_rng(1))
    measured = float(np.nanmax(np.abs(net(X) - net.target.values(X))))
    return {**row, **model_record(net, seconds=time.perf_counter() - start), "method": method, "measured": measured}
