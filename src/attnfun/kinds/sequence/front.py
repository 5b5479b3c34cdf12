"""`attnfun sequence`: maps that are typed, and maps that ship, one of them or all as a table."""

import time
from typing import Any

from attnfun.cli.arguments import read_domain
from attnfun.cli.derive import Answer
from attnfun.cli.records import model_record
from attnfun.cli.render import failure
from attnfun.errors import AttnfunError, InvalidRequest, require
from attnfun.kinds.sequence.build import METHODS
from attnfun.kinds.sequence.examples import EXAMPLES
from attnfun.kinds.sequence.examples import example as named
from attnfun.kinds.sequence.prove import probes
from attnfun.kinds.sequence.verb import sequence


def mapped(
    expressions: list[str] | None = None,
    tokens: int | None = None,
    domain: list[str] | None = None,
    eps: float | None = None,
    rows: bool = False,
    example: str | None = None,
    small: bool = False,
    examples: bool = False,
    progress: Any = None,
    **rest: Any,
) -> Any:
    """The network of the expressions or of an example, or the table of all examples."""
    texts = expressions or []
    if examples:
        require(not (texts or example), "--examples takes no expression and no --example: it makes them all")
        return _table(progress)

    if example is not None:
        if texts or rows or domain or tokens is not None:
            raise InvalidRequest(f"--example {example} has its own expressions, tokens and domain")
        own = {} if eps is None else {"eps": eps}
        return sequence(**named(example).request(small) | own, **rest, progress=progress)
    require(not small, "--small goes with --example")
    require(texts, 'no expression: write for instance attnfun sequence "x-max(x)" --tokens 6 --domain x=-1:1')
    if tokens is None or eps is None:
        raise InvalidRequest(f"--{'tokens' if tokens is None else 'eps'} is missing")
    target: Any = [[part.strip() for part in text.split(";")] for text in texts] if rows else texts
    return sequence(target, tokens, domain or read_domain(()), eps, **rest, progress=progress)


def _table(progress: Any) -> Answer:
    """Every example by every construction, at its own size and at its small one."""

    cases = [(one, small, method) for one in EXAMPLES for small in (False, True) for method in METHODS]
    rows = []
    for done, (one, small, method) in enumerate(cases):
        progress(f"{one.name}, {method}", done / len(cases))
        rows.append(_case(one, small, method))
    return Answer({"rows": rows})


def _case(one: Any, small: bool, method: str) -> dict[str, Any]:
    import numpy as np

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
