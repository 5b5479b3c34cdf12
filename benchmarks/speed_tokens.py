"""Networks on tokens, in-context solvers, sets, towers and tables by the compiled kernels: ratios of one run.

As in speed.py: one thread, the best of interleaved rounds. NumPy's route, torch with the same weights (SDPA), and for
a table the plain product of its keys with the queries are the other ways. The roofline of attention counts its pairs
of tokens at the rate of a vectorised exp, and its products at the rate of a matrix product on one core.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import attnfun as af
from attnfun import fast
from attnfun.kinds.in_context.exact import example_prompts
from attnfun.kinds.retrieval.weights import RetrievalWeights, key_vectors
from attnfun.network import TokenLayer, TokenNetwork, rounded
from bench import Row, asked, table
from speed import best, rates, unit_times

KEYS = 1_000_000
BUMP = ("exp(-2*((x1 - y1)**2 + (x2 - y2)**2))", "x1=0:1;x2=0:1", "y1=0:1;y2=0:1")
Array = Any
Made = tuple[Any, tuple[Any, ...]]
"""Weights, and what their `run` takes."""


@dataclass(frozen=True)
class Case:
    """`build(dtype)` makes it; `module`: torch runs it too; `units`: what one of the printed nanoseconds is about."""

    name: str
    build: Callable[[str], Made]
    unit: str = "token"
    module: bool = True
    dtypes: tuple[str, ...] = ("float64", "float32")


def narrowed(network: TokenNetwork, dtype: str) -> TokenNetwork:
    """The same weights, rounded: what speed needs."""
    layers = []
    for layer in network.layers:
        heads = (replace(h, **{name: rounded(a, dtype) for name, a in h.arrays.items()}) for h in layer.heads)
        layers.append(TokenLayer(tuple(heads), None if layer.carry is None else rounded(layer.carry, dtype)))
    ends = {"constants": rounded(network.constants, dtype), "readout": rounded(network.readout, dtype)}
    return replace(network, layers=tuple(layers), dtype=dtype, **ends)


def on_tokens(model: Callable[[], Any], inputs: Callable[[Any, Any], tuple[Any, ...]]) -> Callable[[str], Made]:
    def build(dtype: str) -> Made:
        net = model()
        arrays, _ = net.target.encode(net.weights, *inputs(net, np.random.default_rng(0)))
        return narrowed(net.weights, dtype), tuple(np.asarray(a, dtype=dtype) for a in arrays)

    return build


def on_sequences(model: Callable[[], Any], count: int) -> Callable[[str], Made]:
    def build(_dtype: str) -> Made:
        net = model()
        return net.weights, net.target.encode(net.weights, *net.target.draw(np.random.default_rng(0), count))[0]

    return build


def one_prompt(net: Any, _rng: Any) -> tuple[Any, ...]:
    return example_prompts(net.target, 1)[0]


def drawn(count: int) -> Callable[[Any, Any], tuple[Any, ...]]:
    return lambda net, rng: net.target.draw(rng, count)


def retrieval(queries: int) -> Callable[[str], Made]:
    """A head over random keys; nobody proves it, which would take longer than all the rest."""

    def build(_dtype: str) -> Made:
        rng, own = np.random.default_rng(0), af.relation(*BUMP, 1e-2, symmetric=True, method="polynomial")
        keys, values = rng.random((KEYS, 2)), rng.random((KEYS, 2))
        vectors = key_vectors(own.weights.at(own.target, 1, keys), 100.0)
        return RetrievalWeights(keys, values, 100.0, None, own.weights, vectors, ("a", "b")), (
            rng.random((queries, 2)),
        )

    return build


def towers(_dtype: str) -> Made:
    net, rng = af.relation(*BUMP, 1e-4, symmetric=True), np.random.default_rng(0)
    return net.weights, (rng.random((20_000, 2)), rng.random((20_000, 2)), True)


CASES = (
    Case("in context, 512 examples", on_tokens(lambda: af.in_context("ridge", 8, 512, eps=1e-3), one_prompt)),
    Case("in context, 64 prompts of 8", on_tokens(lambda: af.in_context("ridge", 2, 8, eps=0.1), drawn(64))),
    Case("matching, 1,024 tokens", on_tokens(lambda: af.matching(1024, 97), drawn(4))),
    Case("best of 8 keys, 4,000 sets", on_tokens(lambda: af.lexicographic(6, 4), drawn(4000))),
    Case("furthest of 4 points, 10⁴ sets", on_tokens(lambda: af.neighbours(8, 4, eps=0.05), drawn(10_000))),
    Case(
        "sequences of 6, sin(x mean(x))",
        on_sequences(lambda: af.sequence("sin(x*mean(x))", 6, "x=-1:1", 1e-4), 20_000),
        "sequence",
        dtypes=("float64",),
    ),
    Case(
        "sequences of 64, softmax_mean",
        on_sequences(lambda: af.sequence("softmax_mean(x, x)", 64, "x=-1:1", 1e-3), 2_000),
        "sequence",
        dtypes=("float64",),
    ),
    Case(
        "sets of 6, pairs",
        on_sequences(lambda: af.set_function("sum(sin(x[i]*x[j]))", 6, "x=-1:1", 1e-3), 4_000),
        "set",
        dtypes=("float64",),
    ),
    Case("towers, 20,000 pairs", towers, "pair", module=False, dtypes=("float64",)),
    Case("table of 10⁶ keys, one query", retrieval(1), "query", module=False, dtypes=("float64",)),
    Case("table of 10⁶ keys, 16 queries", retrieval(16), "query", module=False, dtypes=("float64",)),
)


def rows() -> Iterator[Row]:
    for case in CASES:
        for dtype in case.dtypes:
            yield row(case, dtype)


def row(case: Case, dtype: str) -> Row:
    weights, arrays = case.build(dtype)
    ways: dict[str, Callable[[], Any]] = {"kernel": lambda: fast.run(weights, arrays)}
    ways["numpy"] = lambda: weights.run(*arrays)
    if case.module:
        module, given = weights.to_torch(getattr(torch, dtype), outside="allow"), torch.tensor(arrays[0])
        ways["sdpa"] = lambda: module(given)
    vectors = getattr(weights, "vectors", None)
    if vectors is not None:
        asked_by = np.ascontiguousarray(weights.relation.values(0, arrays[0]).T)
        asked_by = asked_by[:, 0] if asked_by.shape[1] == 1 else asked_by
        ways["product"] = lambda: vectors @ asked_by
    limits = rates(dtype)
    with torch.inference_mode():
        calls = (*ways.values(), *(call for _, call in limits.values()))
        seconds = dict(zip((*ways, *limits), best(*calls), strict=True))
    count = arrays[0].size // arrays[0].shape[-1] if case.unit == "token" else len(arrays[0])
    result: Row = {"case": case.name, "dtype": dtype, "ns": 1e9 * seconds["kernel"] / count, "a": case.unit}
    result["× NumPy's routes"] = seconds["numpy"] / seconds["kernel"]
    result["× torch SDPA"] = seconds["sdpa"] / seconds["kernel"] if case.module else None
    result["× product with the keys"] = seconds["product"] / seconds["kernel"] if vectors is not None else None
    roofline = None
    if isinstance(weights, TokenNetwork):
        unit = unit_times(limits, seconds)
        n = arrays[0].shape[-2]
        pairs = count * (n + len(weights.constants))
        roofline = sum(pairs * (unit["exps"] + 2 * (h.query_dim + h.outputs) * unit["flops"]) for h in weights.heads)
    result["of the roofline"] = None if roofline is None else roofline / seconds["kernel"]
    return result


def main() -> int:
    options = asked(__doc__)
    os.environ["ATTNFUN_FAST"] = "1"
    torch.set_num_threads(1)
    with threadpool_limits(1):
        return table(options, rows())


if __name__ == "__main__":
    sys.exit(main())
