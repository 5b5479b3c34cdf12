"""af.sequence: the maps that ship by every construction that fits, refusals with their numbers, bad input."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.kinds.sequence.build import METHODS, partition_size
from attnfun.kinds.sequence.examples import EXAMPLES, example, relu_network
from attnfun.kinds.sequence.prove import probes
from attnfun.kinds.sequence.target import SequenceMap
from products import few

LINE = {"x": (-1.0, 1.0)}
SLOW = pytest.mark.slow
# What does not fit at the example's own size, and the words of the refusal; at the small size everything fits.
REFUSED = {
    **{(one.name, "partition"): "cells as published" for one in EXAMPLES},
    ("relu-net", "one-layer-softmax"): "cells",
}
FITS = [
    pytest.param(
        one.name,
        method,
        small,
        marks=SLOW
        if (one.name == "relu-net" and (method, small) != ("partition", True)) or (one.name == "smooth" and not small)
        else (),
    )
    for one in EXAMPLES
    for small in (False, True)
    for method in METHODS
    if small or (one.name, method) not in REFUSED
]


@functools.cache
def built(name: str, method: str, small: bool) -> Any:
    return af.sequence(**example(name).request(small), method=method)


@pytest.mark.parametrize(("name", "method", "small"), few(FITS, 13))
def test_the_maps_that_ship_are_proved_by_every_construction_that_fits(name: str, method: str, small: bool) -> None:
    net = built(name, method, small)
    eps = example(name).request(small)["eps"]
    assert net.certificate.status is Status.PROVED
    assert net.certificate.error[1] <= eps
    assert net.certificate.construction == method
    X = probes(net.target, 800, np.random.default_rng(7))
    assert np.abs(net(X) - net.target.values(X)).max() <= net.certificate.error[1] + 4e-15
    assert net.cost.layers <= {"two-layer": 2, "one-layer-softmax": 2, "partition": 1}.get(method, 9)
    if method in ("one-layer-softmax", "partition"):  # one softmax over constant keys, nothing beside it
        last = net.network.stages[-1]
        assert all(len(one.heads) == 1 and not one.readout[:, : len(one.inputs)].any() for one in last.networks)


@pytest.mark.parametrize(("name", "method"), REFUSED)
def test_what_does_not_fit_is_refused_with_its_number(name: str, method: str) -> None:
    with pytest.raises(af.Infeasible, match=REFUSED[name, method]):
        built(name, method, False)


@pytest.mark.parametrize("name", ["sine", "maximum"])
@pytest.mark.parametrize("method", METHODS)
def test_equivariant_maps_give_equivariant_networks(name: str, method: str) -> None:
    small = method == "partition"
    net = built(name, method, small)
    assert net.target.equivariant and net.network.stages[-1].shared
    assert net.network.equivariant == (method != "partition") == ("equivariant: no positions" in net.explain())
    rng = np.random.default_rng(8)
    X = probes(net.target, 300, rng)
    order = rng.permutation(net.target.tokens)
    if method == "partition":  # its keys hold another value in every cell: equivariant up to twice the bound
        allowed = 2 * net.certificate.error[1]
    else:
        allowed = 2 * net.certificate.parts["rounding"] + 64 * np.finfo(np.float64).eps
    assert np.abs(net(X[:, order]) - net(X)[:, order]).max() <= allowed


def test_a_relu_net_is_two_layers_with_one_head_a_hidden_unit() -> None:
    """Gather, then one layer of relu heads, the affine parts beside them."""
    rows = relu_network(tokens=3, dim=2, hidden=3, outputs=2, seed=4)
    net = af.sequence(rows, tokens=3, domain={"x": (0, 1), "y": (0, 1)}, eps=1e-2, method="two-layer")
    assert net.certificate.status is Status.PROVED
    assert net.cost.layers == 2
    X = probes(net.target, 500, np.random.default_rng(9))
    assert np.abs(net(X) - net.target.values(X)).max() <= net.certificate.error[1]


def test_a_relu_net_is_the_formula_with_its_weights() -> None:
    rows = relu_network(tokens=2, dim=1, hidden=3, outputs=1, seed=5)
    target = SequenceMap.read(rows, LINE, 2)
    rng = np.random.default_rng(5)
    first, second = np.round(rng.normal(size=(3, 3)), 3), np.round(rng.normal(size=(2, 1, 3)), 3)
    X = np.random.default_rng(0).uniform(-1, 1, (50, 2, 1))
    hidden = np.maximum(X[:, :, 0] @ first[:, :2].T + first[:, 2], 0)
    assert np.abs(target.values(X)[:, :, 0] - hidden @ second[:, 0].T).max() < 1e-12


def test_the_published_size_of_a_partition() -> None:
    """d n = 6, B = 1, L = 1, eps = 0.1: P = 25, N = 2.4e8; refused before anything is built."""
    target = SequenceMap.read("x", LINE, 6)
    size = partition_size([target.rows[0]], target.box, 6, 0.1)
    assert size.per_axis == 25
    assert size.cells == pytest.approx(2.4e8, rel=0.02)
    with pytest.raises(af.Infeasible, match=r"25\^6 = 2\.4e\+08"):
        af.sequence("x", tokens=6, domain=LINE, eps=0.1, method="partition")


def test_auto_goes_deep_where_one_layer_cannot() -> None:
    net = af.sequence("sin(x + x_1*x_2 + x_3*x_4)", tokens=4, domain=LINE, eps=0.05)
    assert net.certificate.construction == "deep" and net.cost.layers > 2
    assert net.certificate.status is Status.PROVED
    assert "two-layer" in net.explain()


def test_the_same_request_gives_the_same_weights() -> None:
    one, two = (af.sequence("x*mean(x)", tokens=3, domain=LINE, eps=1e-3) for _ in range(2))
    pairs = zip(one.network.stages[-1].networks[0].arrays(), two.network.stages[-1].networks[0].arrays(), strict=True)
    assert all(np.array_equal(a, b) for (_, a), (_, b) in pairs)


def test_calls_take_one_sequence_or_many() -> None:
    net = built("sine", "two-layer", False)
    x = np.linspace(-1, 1, 6)
    assert net(x[:, None]).shape == (6, 1) and net(x).shape == (6, 1) and net(x[None, :, None]).shape == (1, 6, 1)
    assert np.array_equal(net(x * 1.5, outside="clamp"), net(np.clip(x * 1.5, -1, 1)))


@pytest.mark.parametrize(
    ("X", "says"),
    [
        (np.zeros((5, 1)), "6 tokens"),
        (np.zeros((6, 2)), "6 tokens"),
        (np.zeros((2, 2, 6, 1)), "6 tokens"),
        (np.full((6, 1), np.nan), "NaN"),
        (np.full((6, 1), 1.5), "outside the domain"),
        (np.full((6, 1), np.inf), "outside the domain"),
        ("text", "array of numbers"),
    ],
)
def test_bad_sequences_are_one_line(X: Any, says: str) -> None:
    with pytest.raises(af.InvalidRequest, match=says) as found:
        built("sine", "two-layer", False)(X)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eps": 0}, "positive"),
        ({"eps": float("nan")}, "positive"),
        ({"eps": "small"}, "a positive number"),
        ({"method": "three-layer"}, "the methods are"),
        ({"dtype": "float16"}, "float64 or float32"),
        ({"max_keys": 0}, "whole number"),
        ({"seed": -1}, "at least 0"),
        ({"tokens": 100}, "at most 64"),
        ({"domain": {"x": (1, 1)}}, "empty"),
        ({"target": "log(mean(x))"}, "log"),
    ],
)
def test_bad_requests_are_one_line(options: dict[str, Any], says: str) -> None:
    request: dict[str, Any] = {"target": "x*mean(x)", "tokens": 3, "domain": LINE, "eps": 1e-3} | options
    with pytest.raises(af.AttnfunError, match=says) as found:
        af.sequence(**request)
    assert "\n" not in str(found.value)


def test_an_apply_before_the_gather_does_not_fit_one_layer_and_a_softmax() -> None:
    with pytest.raises(af.Infeasible, match="before it is gathered"):
        af.sequence("x*mean(x**2)", tokens=3, domain=LINE, eps=1e-2, method="one-layer-softmax")


@pytest.mark.parametrize(
    ("target", "tokens", "domain", "eps"),
    [
        ("x*mean(x) + max(x)", 1, LINE, 1e-3),  # one token is its own mean
        ("x - max(x)", 64, LINE, 1e-3),
        ("max(max(x) - x)", 4, LINE, 1e-2),
        ("max(x) - max(x_2*x)", 3, LINE, 1e-2),  # an entry inside an aggregate
        ("softmax_mean(50*x, x)", 4, LINE, 1e-6),
        ("sqrt(mean(x)) + sqrt(x_2) + max(x)*x", 3, {"x": (0, 1)}, 1e-3),  # roots of what is not exact, at 0
        ("sin(x - mean(x))/(x - mean(x))", 3, LINE, 1e-3),  # removable
        ("max(x)", 6, {"x": (1e6, 1e6 + 1)}, 1e-3),
        ("max(x)", 4, {"x": (-1e-200, 1e-200)}, 1e-3),
        ("max(x)", 6, LINE, 1e-10),
        ("3", 3, LINE, 1e-6),
        ([["1"], ["x"]], 2, LINE, 1e-6),
        ([["x*x_2"], ["x*x_3"], ["x*x_1"]], 3, LINE, 1e-3),
    ],
)
def test_odd_but_answerable(target: Any, tokens: int, domain: dict[str, Any], eps: float) -> None:
    net = af.sequence(target, tokens=tokens, domain=domain, eps=eps)
    assert net.certificate.status is Status.PROVED
    X = probes(net.target, 600, np.random.default_rng(10))
    worst = np.nanmax(np.abs(net(X) - net.target.values(X)))
    assert worst <= net.certificate.error[1] * (1 + 1e-9) + 4e-15 * np.abs(net.target.box.high_array).max()


def test_rows_that_are_one_function_of_what_they_fetch_share_a_network() -> None:
    net = af.sequence([["x_1*x_2"], ["x_2*x_3"], ["x_1*x_3"]], tokens=3, domain=LINE, eps=1e-3)
    assert net.network.stages[-1].shared and len(net.network.stages[0].heads) == 2


def test_more_numbers_than_a_function_may_have_are_refused_with_the_number() -> None:
    target = " + ".join(f"x_{i + 1}*y_{i + 1}" for i in range(33))
    with pytest.raises(af.Infeasible, match="66 numbers"):
        af.sequence(target, tokens=33, domain={"x": (0, 1), "y": (0, 1)}, eps=1e-2)
