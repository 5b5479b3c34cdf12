"""A sequence network has the layers it is said to have: its cost, its token form and its torch module count alike."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.kinds.sequence.build import METHODS
from attnfun.kinds.sequence.network import Apply, Spread

LINE = {"x": (-1.0, 1.0)}
MOST = {"two-layer": 2, "one-layer-softmax": 2, "partition": 1}
INNER = ("x", "2*x + 1", "x**2", "sin(x)", "x - mean(x)")
OUTER = ("{s}", "3*{s} - x", "sin({s} + x)", "x*{s}", "{s}*{t}", "{s} + x_1", "exp({s})*x_2/2", "abs(x - {t})")
KINDS = ("mean", "sum", "max", "softmax_mean")


def drawn(seed: int) -> tuple[Any, int]:
    """A random sequence map on two or three tokens: one row for all tokens, or one a token."""
    rng = np.random.default_rng(seed)
    tokens = int(rng.integers(2, 4))

    def aggregate() -> str:
        kind, inner = str(rng.choice(KINDS)), str(rng.choice(INNER))
        return f"softmax_mean(x, {inner})" if kind == "softmax_mean" else f"{kind}({inner})"

    def row() -> str:
        return str(rng.choice(OUTER)).format(s=aggregate(), t=aggregate())

    return ([[row()] for _ in range(tokens)] if rng.random() < 0.25 else row()), tokens


def calls(module: Any, tokens: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the torch module attends."""
    torch = pytest.importorskip("torch")
    real, seen = torch.nn.functional.scaled_dot_product_attention, []

    def counted(*args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    with torch.no_grad():
        module(torch.zeros(1, tokens, 1, dtype=torch.float64))
    monkeypatch.undo()
    return len(seen)


QUICK = (4, 8, 12)


@pytest.mark.parametrize(
    "seed", [seed if seed in QUICK else pytest.param(seed, marks=pytest.mark.slow) for seed in range(30)]
)
def test_layers_are_counted_as_they_run(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target, tokens = drawn(seed)
    rng = np.random.default_rng(seed)
    for method in ("two-layer", str(rng.choice(("auto", "deep", "one-layer-softmax", "partition")))):
        request: dict[str, Any] = {"tokens": tokens, "domain": LINE, "eps": 0.5, "max_keys": 3000}
        try:
            net = af.sequence(target, method=method, **request)
        except af.Infeasible as why:
            if "method" not in (why.nearest or {}):
                continue
            assert why.nearest is not None and why.nearest["method"] in METHODS
            needs = re.search(r"needs (\w+): (.*)", str(why))
            net = af.sequence(target, **request | dict(why.nearest))
            if needs:
                assert net.cost.layers > 2 and {"three": 3, "four": 4, "five": 5}[needs[1]] == len(needs[2].split(", "))
        layers, name = net.cost.layers, net.certificate.construction
        assert layers <= MOST.get(name, 99)
        assert net.certificate.details["layers"] == layers
        assert len(net.literal().network.layers) == layers == calls(net.to_torch(), tokens, monkeypatch)
        mixed = any(isinstance(stage, Spread) for stage in net.network.stages)
        assert mixed == (net.certificate.details["linear map of tokens"] is not None)


def test_an_inner_function_an_aggregate_and_an_outer_function_are_three() -> None:
    with pytest.raises(af.Infeasible, match="needs three: inner function, aggregate, outer function") as why:
        af.sequence("sin(mean(x**2)+x)", 3, LINE, 1e-2, method="two-layer")
    assert why.value.nearest == {"method": "deep"}
    for method in ("deep", "auto"):
        net = af.sequence("sin(mean(x**2)+x)", 3, LINE, 1e-2, method=method)
        assert net.cost.layers == 3 and net.certificate.construction == "deep"
    assert all(stage.depth == 1 for stage in net.network.stages if isinstance(stage, Apply))
    assert af.sequence("mean(x**2) + x", 3, LINE, 1e-2, method="two-layer").cost.layers == 2


@pytest.mark.parametrize("method", ["two-layer", pytest.param("one-layer-softmax", marks=pytest.mark.slow)])
def test_a_part_that_does_not_fit_names_a_method_for_the_whole(method: str) -> None:
    """One layer cannot hold a function of five numbers with few keys: the refusal is about the request."""
    request: dict[str, Any] = {"tokens": 4, "domain": LINE, "eps": 0.05, "max_keys": 2000}
    with pytest.raises(af.Infeasible) as why:
        af.sequence("sin(x + x_1*x_2 + x_3*x_4)", method=method, **request)
    assert why.value.nearest == {"method": "deep"}
    assert af.sequence("sin(x + x_1*x_2 + x_3*x_4)", **request | why.value.nearest).cost.layers > 2
