from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.network import (
    Axis,
    Head,
    Layer,
    Network,
    attention,
    evaluate,
    evaluate_head,
    local_plan,
    rounded,
    routes,
    stream,
)
from attnfun.network.evaluate import chosen_routes
from network.networks import grid_axis, partition, points, random_network

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}


def exact(network: Network, X: np.ndarray) -> np.ndarray:
    """The network in long double, from its definition."""
    S = X.astype(network.dtype).astype(np.longdouble)
    for layer in network.layers:
        new = {name: np.zeros(len(S), np.longdouble) for name in layer.writes}
        for head in layer.heads:
            K, b = (array.astype(np.longdouble) for array in head.dense_keys())
            b = np.zeros(1, np.longdouble)
            for axis in head.axes:
                b = np.add.outer(b, axis.biases.astype(np.longdouble)).ravel()
            Q, c = head.query_map
            logits = (S @ Q.T.astype(np.longdouble) + c) @ K.T + b
            w = np.exp(logits - logits.max(axis=1, keepdims=True))
            out = (w / w.sum(axis=1, keepdims=True)) @ head.values.reshape(-1, head.outputs)
            for i, name in enumerate(head.writes):
                new[name] = new[name] + out[:, i]
        S = np.column_stack([S, *new.values()])
    return S @ network.readout.T.astype(np.longdouble) + network.readout_bias


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(6))
def test_every_route_agrees_on_deep_networks(seed: int, dtype: str) -> None:
    network = random_network(seed, dtype)
    X = points(network, 200)
    truth = exact(network, X)
    for route in ("auto", *routes(network)):
        found = evaluate(network, X, route)
        assert found.dtype == np.dtype(dtype) and found.shape == (200, 2)
        assert np.abs(found - truth).max() <= 2000 * UNIT[dtype]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("sharpness", [0.5, 3.0, 200.0])
def test_every_route_agrees_on_partitions(dims: int, dtype: str, sharpness: float) -> None:
    network = partition({1: 60, 2: 16, 3: 9}[dims], dims, sharpness, dtype)
    assert "dense" in routes(network)
    assert ("factorised" in routes(network)) == (dims > 1)
    X = np.concatenate([points(network, 300), [network.low, network.high]])
    truth = exact(network, X)
    head = network.heads[0]
    size = sum(float(np.abs(axis.slopes).max() + np.abs(axis.biases).max()) for axis in head.axes)
    tolerance = 4 * UNIT[dtype] * (size + head.keys) * float(head.spread.max())
    for route in routes(network):
        assert np.abs(evaluate(network, X, route) - truth).max() <= tolerance, route


def test_local_is_the_most_accurate_route_on_a_fine_partition() -> None:
    network = partition(500, 1, 40.0)
    X = points(network, 4000)
    truth = exact(network, X)
    errors = {route: float(np.abs(evaluate(network, X, route) - truth).max()) for route in routes(network)}
    assert errors["local"] <= errors["dense"] / 4


def test_dropped_mass_is_never_above_its_bound() -> None:
    rng = np.random.default_rng(0)
    for trial in range(40):
        keys = int(rng.integers(3, 80))
        slopes = np.cumsum(rng.exponential(size=keys) * 10 ** rng.uniform(-1, 2))
        breaks = np.cumsum(rng.exponential(size=keys - 1) * 10 ** rng.uniform(-1, 1))
        biases = np.concatenate([[0.0], -np.cumsum(np.diff(slopes) * breaks)])
        axis = Axis(np.ones((1, 1)), np.zeros(1), slopes[:, None], biases)
        head = Head("h", (axis,), rng.normal(size=(keys, 1)), ("f",))
        plan = local_plan(head)
        if plan is None:
            continue
        local = plan.axes[0]
        assert 0.0 < local.dropped <= 2.0**-60
        q = np.concatenate(
            [local.breakpoints, np.nextafter(local.breakpoints, 1e9), rng.uniform(-5, breaks[-1] + 5, 500)]
        )
        logits = q.astype(np.longdouble)[:, None] * slopes + biases
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        nearest = np.searchsorted(local.breakpoints, q)
        start = np.clip(nearest - local.radius, 0, keys - local.window)
        inside = (np.arange(keys) >= start[:, None]) & (np.arange(keys) < start[:, None] + local.window)
        dropped = np.where(inside, 0, weights).sum(axis=1) / weights.sum(axis=1)
        assert (dropped <= local.dropped * (1 + 1e-6)).all(), trial


def test_the_window_is_the_least_that_is_proved() -> None:
    assert [axis.window for axis in local_plan(partition(50, 2, 200.0).heads[0]).axes] == [3, 3]  # type: ignore[union-attr]
    soft = local_plan(partition(200, 1, 2.0).heads[0])
    assert soft is not None and 7 <= soft.axes[0].window <= 15


def test_local_does_not_apply_where_its_proof_does_not() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 1))
    falling = Axis(np.ones((1, 1)), np.zeros(1), -np.arange(50.0)[:, None], -(np.arange(50.0) ** 2))
    convex = Axis(np.ones((1, 1)), np.zeros(1), 100 * np.arange(50.0)[:, None], np.arange(50.0) ** 2)
    flat = Axis(np.ones((1, 1)), np.zeros(1), np.arange(50.0)[:, None] / 1e6, -(np.arange(50.0) ** 2) / 1e6)
    plane = Axis(np.ones((2, 1)), np.zeros(2), rng.normal(size=(50, 2)), np.zeros(50))
    huge = Axis(np.ones((1, 1)), np.zeros(1), np.linspace(0, 1e308, 50)[:, None], np.linspace(0, -1e308, 50))
    for axis in (falling, convex, flat, plane, huge):
        head = Head("h", (axis,), values, ("f",))
        assert local_plan(head) is None
        network = Network(("x",), (Layer((head,)),), np.ones((1, 2)), np.zeros(1), ("f",), (np.zeros(1), np.ones(1)))
        with pytest.raises(InvalidRequest, match="local"):
            evaluate(network, np.zeros((1, 1)), "local")
    close = grid_axis(rounded(1000 + np.arange(50) * 1e-4, "float64"), 1e10, 0, 1)
    in_single = Axis(close.query, close.offset, rounded(close.slopes, "float32"), rounded(close.biases, "float32"))
    assert local_plan(Head("h", (in_single,), values, ("f",)), "float32") is None


def test_a_million_cells_are_small() -> None:
    network = partition(1000, 2, 400.0)
    X = points(network, 100_000)
    assert chosen_routes(network) == (("local",),)
    evaluate(network, X[:10])
    tracemalloc.start()
    found = evaluate(network, X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    few = evaluate(network, X[:300], "factorised")
    assert np.abs(few - found[:300]).max() < 1e-9
    assert np.abs(evaluate(network, X[:5], "dense") - found[:5]).max() < 1e-9


def test_a_network_of_mixed_heads_takes_a_route_for_each() -> None:
    fine, width = partition(300, 2, 300.0), 2
    other = random_network(0, inputs=2, layers=1).heads[0]
    head = Head("r", other.axes, other.values, tuple(f"r.{name}" for name in other.writes))
    heads = (fine.heads[0], head)
    new = width + 1 + head.outputs
    network = Network(("x", "y"), (Layer(heads),), np.ones((1, new)), np.zeros(1), ("f",), fine.box)
    assert chosen_routes(network)[0][0] == "local" and chosen_routes(network)[0][1] != "local"
    X = points(network, 100)
    for route in routes(network):
        assert np.abs(evaluate(network, X, route) - evaluate(network, X)).max() < 1e-8


def test_tokens_may_have_any_leading_shape() -> None:
    network = random_network(1)
    X = points(network, 24)
    flat = evaluate(network, X)
    np.testing.assert_array_equal(evaluate(network, X.reshape(2, 3, 4, 2)), flat.reshape(2, 3, 4, 2))
    assert evaluate(network, X[0]).shape == (2,) and evaluate(network, X[:0]).shape == (0, 2)
    assert stream(network, X).shape == (24, len(network.coordinates))


def test_bad_points_and_routes_are_refused() -> None:
    network = random_network(1)
    for X in (np.zeros((3, 1)), np.zeros((3, 3)), np.full((1, 2), np.nan), np.full((1, 2), np.inf), np.array("x"), 1.0):
        with pytest.raises(InvalidRequest):
            evaluate(network, X)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="sideways"):
        evaluate(network, np.zeros((1, 2)), "sideways")
    head = partition(4000, 2).heads[0]
    with pytest.raises(Infeasible):
        attention(head, np.zeros((10, 2)))
    assert evaluate_head(head, np.zeros((3, 2))).shape == (3, 1)


def test_a_network_without_layers_is_linear() -> None:
    network = Network(("x",), (), np.array([[2.0]]), np.array([1.0]), ("f",), (np.zeros(1), np.ones(1)))
    np.testing.assert_array_equal(evaluate(network, np.array([[3.0]])), [[7.0]])
    assert network.cost.layers == 0 and network.cost.rank == 0
