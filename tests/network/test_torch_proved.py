"""Torch modules of every kind warn once when their arithmetic becomes coarser than the one that was proved."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attnfun as af
from network.networks import points, random_network
from network.test_relu import random_mlp
from network.test_tokens import random_tokens

torch = pytest.importorskip("torch")

LINE = {"x": (-1.0, 1.0)}
ORDER = ("float64", "float32", "float16", "bfloat16")  # each coarser than the ones before
MADE: dict[str, Callable[[int, str], Any]] = {
    "cross": lambda seed, dtype: random_network(seed, dtype).to_torch(),
    "self": lambda seed, dtype: random_network(seed, dtype).to_torch(form="self"),
    "joint": lambda seed, dtype: random_network(seed, dtype).to_torch(form="joint", second=("x1",)),
    "mlp": lambda seed, dtype: random_mlp(seed, dtype).to_torch(),
    "tokens": lambda seed, dtype: random_tokens(seed, dtype).to_torch(),
    "sequence": lambda seed, dtype: built(af.sequence, "x*mean(x)/2", 2 + seed % 2, LINE, 0.1, dtype=dtype),
    "pairs": lambda seed, dtype: built(
        af.set_function, "sum(x_i*x_j)", 2 + seed % 2, LINE, 0.1, dtype=dtype, method="pairs"
    ),
    "elements": lambda seed, dtype: built(af.set_function, "sum(x**2)", 2 + seed % 2, LINE, 0.1, dtype=dtype),
    "lexicographic": lambda seed, dtype: built(af.lexicographic, 3 + seed, 2, dtype=dtype),
    "matching": lambda seed, dtype: built(af.matching, 4, 11 + seed, dtype=dtype),
    "ridge": lambda seed, dtype: built(
        af.in_context, "ridge", 2, 8, spectrum=(3, 9), layers=2 + seed, dtype=dtype, accept="sampled"
    ),
    "neighbours": lambda seed, _: built(af.neighbours, 4, 3, seed=seed, heads=2, method="random_heads"),
    "average": lambda seed, _: built(af.sparse_average, 4 + seed, 2, width=20),
    "tower": lambda seed, _: built(af.relation, "x*y", "x=0:1", "y=0:1", 10.0 ** -(1 + seed)),
    "relation": lambda seed, _: af.relation("exp(x*y)", "x=0:1", "y=0:1", 10.0 ** -(1 + seed)).to_torch(),
}
ONE_DTYPE = ("neighbours", "average", "tower", "relation")
CASTS: list[Callable[[Any, Any], Any]] = [
    lambda module, kind: module.to(kind),
    lambda module, kind: module.type(kind),
    lambda module, kind: torch.nn.Sequential(module).to(dtype=kind)[0],
    lambda module, kind: module.to(torch.zeros(1, dtype=kind)),
]


def built(verb: Callable[..., Any], *request: Any, **options: Any) -> Any:
    found = verb(*request, **options)
    return (found.left if isinstance(found, af.RelationApproximant) else found).to_torch()


def said(action: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        action()
    assert all(item.filename == __file__ for item in seen)  # where the user's line is, not a line of torch
    return [str(item.message) for item in seen if "certificate" in str(item.message)]


@pytest.mark.parametrize("kind", MADE)
def test_a_coarser_dtype_is_said_once_and_a_finer_one_never(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    for asked in ("float64", "float32"):
        made = MADE[kind](int(rng.integers(5)), asked)
        proved = str(made.proved).removeprefix("torch.")
        assert made.proved == next(made.buffers()).dtype and (proved == asked or kind in ONE_DTYPE)
        for coarse in ORDER:
            module = copy.deepcopy(made)
            same = said(lambda: module.to("cpu").to(made.proved).eval().double())  # noqa: B023
            assert not same
            cast = CASTS[int(rng.integers(len(CASTS)))]
            found = said(lambda: cast(module, getattr(torch, coarse)))  # noqa: B023
            if ORDER.index(coarse) <= ORDER.index(proved):
                assert not found
                continue
            assert len(found) == 1 and proved in found[0] and f"in {coarse} it holds no more" in found[0]
            assert not said(lambda: module.bfloat16())  # noqa: B023


def test_half_and_bfloat16_and_float_are_casts() -> None:
    for seed, name in enumerate(("half", "bfloat16", "float")):
        module = random_network(seed).to_torch()
        assert len(said(getattr(module, name))) == 1
    assert len(said(lambda: random_network(3).to_torch().type(torch.int32))) == 1


def test_a_module_asked_for_in_a_coarser_dtype_says_so() -> None:
    assert len(said(lambda: random_network(0).to_torch("float32"))) == 1
    assert len(said(lambda: random_tokens(0).to_torch(torch.float32))) == 1
    assert not said(lambda: random_network(0, "float32").to_torch("float64"))
    for net in (
        af.sequence("x*mean(x)/2", 2, LINE, 1e-2),
        af.set_function("sum(x_i*x_j)", 2, LINE, 0.1, method="pairs"),
    ):
        modules: list[Any] = []
        assert len(said(lambda: modules.append(net.to_torch("float32")))) == 1  # noqa: B023
        assert not said(modules[0].half)


def test_autocast_is_said_where_it_changes_the_arithmetic() -> None:
    network = random_network(1, "float32")
    X = torch.tensor(points(network, 5), dtype=torch.float32)

    def run(module: Any, given: Any) -> None:
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                module(given)

    module = network.to_torch()
    plain = module(X)
    found = said(lambda: run(module, X))
    assert len(found) == 1 and "in bfloat16 it holds no more" in found[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (module(X).float() != plain).any()
    wide = random_network(1).to_torch()  # autocast leaves float64 alone, and so there is nothing to say
    assert not said(lambda: run(wide, X.double()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = wide(X.double())
    assert torch.equal(inside, wide(X.double()))


def test_what_is_warned_of_happens() -> None:
    net = af.compile("sin(3*x)", LINE, eps=1e-6)
    X = np.linspace(-1, 1, 301)[:, None]
    for name in ("half", "bfloat16"):
        module = net.to_torch()
        assert np.abs(module(X).numpy() - np.sin(3 * X[:, 0])).max() <= 1e-6
        assert len(said(getattr(module, name))) == 1
        assert np.abs(module(X).double().numpy() - np.sin(3 * X[:, 0])).max() > 1e-4


def test_every_module_of_the_package_tells() -> None:
    from attnfun.network import torch_modules
    from attnfun.network.torch_modules import Proved

    for made in MADE.values():
        module = made(0, "float64")
        parts = [c for c in vars(torch_modules).values() if isinstance(c, type) and issubclass(c, Proved)]
        assert isinstance(module, Proved) and type(module) in parts
