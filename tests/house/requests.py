"""Random requests of every kind, small enough to build in a moment: what the conformance suite is run on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import attnfun as af
from attnfun.kinds import NAMES

Rng = np.random.Generator


def _number(rng: Rng, low: float, high: float) -> float:
    return float(np.round(rng.uniform(low, high), 2))


def function(rng: Rng) -> Any:
    names = rng.choice(["sin", "exp", "tanh", "abs"], 2)
    terms = [f"{_number(rng, 0.2, 2)}*{f}({_number(rng, 0.5, 2)}*x)" for f in names]
    target: Any = [f"{terms[0]}+y*x", f"{terms[1]}-y"] if rng.random() < 0.5 else f"{terms[0]}+{terms[1]}*y"
    dtype = str(rng.choice(["float64", "float32"]))
    return af.compile(target, "x=-1:1;y=0:1", _number(rng, 0.5, 2) * 1e-2, dtype=dtype)


def sequence(rng: Rng) -> Any:
    a = _number(rng, 0.5, 2)
    target = str(rng.choice([f"sin({a}*mean(x))+x", f"x-{a}*max(x)", f"{a}*sum(x**2)", f"x_1+{a}*x"]))
    dtype = str(rng.choice(["float64", "float32"]))
    return af.sequence(target, int(rng.integers(2, 4)), {"x": (-1, 1)}, 1e-2, dtype=dtype)


def set(rng: Rng) -> Any:
    a = _number(rng, 0.5, 2)
    target = str(rng.choice([f"sum({a}*x**2)", f"sum(x)+sum({a}*x[i]*x[j])", f"exp({a}*sum(x)/4)"]))
    return af.set_function(target, int(rng.integers(2, 4)), {"x": (-1, 1)}, 1e-2)


def relation(rng: Rng) -> Any:
    a = _number(rng, 0.5, 2)
    target, options = [
        (f"exp({a}*x*y)", {}),
        (f"exp(-{a}*(x-y)**2)", {"symmetric": True}),
        (f"{a}*x*y+sin(x)", {}),
        (f"abs(x-{a}*y)", {"method": "voronoi"}),
        (f"tanh({a}*(x-y))", {"realise": "mlp"}),
    ][int(rng.integers(5))]
    return af.relation(target, {"x": (0, 1)}, {"y": (0, 1)}, 0.1 if "voronoi" in options.values() else 1e-2, **options)


def ternary(rng: Rng) -> Any:
    return af.ternary(f"x*y+{_number(rng, 0.5, 2)}*y*z", "x=0:1;y=0:1;z=0:1", 1e-4)


def retrieval(rng: Rng) -> Any:
    keys = np.sort(rng.uniform(0, 1, (int(rng.integers(3, 6)), 1)), axis=0)
    return af.retrieve(f"exp({_number(rng, 0.5, 2)}*x*y)", {"x": (0.2, 1)}, {"y": (0, 1)}, keys, 1e-3, beta=20.0)


def in_context(rng: Rng) -> Any:
    task = str(rng.choice(["ridge", "linear", "lasso"]))
    return af.in_context(task, 2, 12, spectrum=(8, 16), eps=1e-2)


def neighbours(rng: Rng) -> Any:
    method = str(rng.choice(["full_rank", "scores", "tally", "biased", "random_heads"]))
    points = {"biased": 2, "full_rank": 4, "scores": 4}.get(method, 3)
    which = str(rng.choice(["furthest", "nearest"])) if points > 2 else "furthest"
    return af.neighbours(4, points, method, which=which)


def matching(rng: Rng) -> Any:
    return af.matching(int(rng.integers(3, 6)), int(rng.integers(5, 12)), int(rng.choice([2, 3])))


def average(rng: Rng) -> Any:
    return af.sparse_average(int(rng.integers(5, 8)), 2, seed=int(rng.integers(100)), keys="random", width=60)


def lexicographic(rng: Rng) -> Any:
    return af.lexicographic(int(rng.integers(3, 30)), 2, dtype=str(rng.choice(["float32", "float64"])))


def sampled(rng: Rng) -> Any:
    a = _number(rng, 0.5, 2)

    def sampler(own: Rng, count: int) -> tuple[Any, Any]:
        tokens = own.uniform(-1, 1, (count, 3, 2))
        return tokens, a * tokens.sum(axis=2, keepdims=True)

    task = af.learn.SampledTask("sum", sampler, ("x", "y"))
    shape = af.TokenArchitecture.plain(task.coordinates, task.outputs, heads=1, layers=1, rank=1)
    return af.train(shape, task, steps=2)


ASIDE: dict[str, Callable[[], Any]] = {
    "function": lambda: af.compile(["x*y", "x-y/3"], "x=-1:1;y=0:1", 1e-2, dtype="float32"),
    "sequence": lambda: af.sequence(["x*mean(x)", "x"], 2, {"x": (-1, 1)}, 5e-2, dtype="float32"),
    "set": lambda: af.set_function(["sum(x)", "sum(x**2)"], 2, {"x": (-1, 1)}, 1e-2, dtype="float32"),
    "average": lambda: af.sparse_average(5, 2, dim=2, keys="random", width=40),
    "matching": lambda: af.matching(4, 6, dtype="float32"),
    "in_context": lambda: af.in_context("ridge", 2, 12, spectrum=(8, 16), eps=0.1, dtype="float32"),
    "lexicographic": lambda: af.lexicographic(9, 3, dtype="float32"),
}
"""Several outputs, float32, or both, of every kind that has them."""


@cache
def model(kind: str, seed: int) -> Any:
    """A model of a kind, built once per process: the function above that has the kind's name draws its request."""
    drawn: Callable[[Rng], Any] = globals()[kind]
    return drawn(np.random.default_rng([NAMES.index(kind), seed]))
