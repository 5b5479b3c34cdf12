from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.network import Axis, Head, Layer, Network, attention, identical, stream
from network.networks import grid_axis, partition, points, random_network


def one_axis(slopes: object, biases: object, width: int = 1, column: int = 0) -> Axis:
    query = np.zeros((1, width))
    query[0, column] = 1.0
    return Axis(query, np.zeros(1), np.asarray(slopes, float)[:, None], np.asarray(biases, float))


def test_rank_counts_the_bias() -> None:
    rng = np.random.default_rng(0)
    head = Head("h", (one_axis(rng.normal(size=9), rng.normal(size=9)),), rng.normal(size=(9, 1)), ("f",))
    assert head.rank == 2
    two = (
        one_axis(rng.normal(size=5), rng.normal(size=5), 2, 0),
        one_axis(rng.normal(size=4), rng.normal(size=4), 2, 1),
    )
    assert Head("h", two, rng.normal(size=(5, 4, 1)), ("f",)).rank == 3
    bare = tuple(one_axis(axis.slopes[:, 0], np.zeros(axis.keys), 2, k) for k, axis in enumerate(two))
    assert Head("h", bare, rng.normal(size=(5, 4, 1)), ("f",)).rank == 2
    assert Head("h", (one_axis([1.0, 2.0, 3.0], [0, 0, 0]),), np.zeros((3, 1)), ("f",)).rank == 1
    assert Head("h", (one_axis([0.0, 0.0], [0, 0]),), np.zeros((2, 1)), ("f",)).rank == 0
    assert Head("h", (one_axis([1.0, 2.0], [3.0, 6.0]),), np.zeros((2, 1)), ("f",)).rank == 1


def test_rank_of_the_star_is_the_rank_of_all_keys() -> None:
    for seed in range(10):
        for head in random_network(seed).heads:
            K, b = head.dense_keys()
            Q, c = head.query_map
            full = np.column_stack([K, b]) @ np.block([[Q, c[:, None]], [np.zeros((1, head.width)), np.ones((1, 1))]])
            assert head.rank == np.linalg.matrix_rank(full)


def test_rank_sees_through_the_query_map() -> None:
    """Two axes that read the same variable make a head of one variable."""
    rng = np.random.default_rng(1)
    axes = tuple(one_axis(rng.normal(size=4), rng.normal(size=4)) for _ in range(2))
    assert Head("h", axes, rng.normal(size=(4, 4, 1)), ("f",)).rank == 2


def test_dense_keys_give_the_logits_of_the_product() -> None:
    rng = np.random.default_rng(2)
    for head in random_network(4).heads:
        x = rng.normal(size=head.width)
        K, b = head.dense_keys()
        Q, c = head.query_map
        logits = K @ (Q @ x + c) + b
        weights = np.exp(logits - logits.max())
        expected = (weights / weights.sum()).reshape(head.grid)
        np.testing.assert_allclose(attention(head, x[None])[0], expected, rtol=1e-12)


def test_a_huge_head_is_not_written_out() -> None:
    head = partition(4000, 2).heads[0]
    assert head.keys == 16_000_000 and head.rank == 3
    with pytest.raises(Infeasible, match="16000000"):
        head.dense_keys()


def test_cost_counts_the_literal_cross_form() -> None:
    network = partition(10, 2)
    cost = network.cost
    assert (cost.layers, cost.heads, cost.rank, cost.keys, cost.query_dim) == (1, 1, 3, 100, 2)
    assert cost.parameters == 100 * 3 + 100 + 2 * 3 + 3 + 1
    assert cost.stored == 2 * (10 + 10 + 2 + 1) + 100 + 3 + 1
    assert cost.max_value == np.abs(network.heads[0].values).max()


def test_names_can_be_read() -> None:
    network = random_network(0)
    assert network.coordinates[:2] == ("x0", "x1") and network.coordinates[2] == "l0.shared"


def test_the_stream_stays_in_its_ranges() -> None:
    for seed in range(5):
        network = random_network(seed)
        low, high = network.ranges
        found = stream(network, points(network, 500))
        assert (found >= low - 1e-12).all() and (found <= high + 1e-12).all()


def test_weights_cannot_be_changed_from_outside() -> None:
    slopes = np.array([[1.0], [2.0]])
    axis = Axis(np.ones((1, 1)), np.zeros(1), slopes, np.zeros(2))
    slopes[0] = 7.0
    assert axis.slopes[0, 0] == 1.0
    with pytest.raises(ValueError):
        axis.slopes[0] = 3.0


def test_what_is_not_a_network_is_refused() -> None:
    axis = one_axis([1.0, 2.0], [0, 0])
    head = Head("h", (axis,), np.zeros((2, 1)), ("f",))
    box = (np.zeros(1), np.ones(1))

    def build(**changes: object) -> Network:
        given = dict(inputs=("x",), layers=(Layer((head,)),), readout=np.zeros((1, 2)), readout_bias=np.zeros(1))
        return Network(**{**given, "outputs": ("f",), "box": box, **changes})  # type: ignore[arg-type]

    assert identical(build(), build())
    bad: list[dict[str, object]] = [
        {"readout": np.zeros((1, 3))},
        {"readout_bias": np.zeros(2)},
        {"readout": np.array([[np.nan, 0.0]])},
        {"readout": np.array([[0.1, 0.0]]), "dtype": "float32"},
        {"readout": np.array([[1e300, 0.0]]), "dtype": "float32"},
        {"dtype": "float16"},
        {"inputs": ("f",)},
        {"inputs": ("x", "y")},
        {"inputs": ()},
        {"box": (np.ones(1), np.zeros(1))},
        {"box": (np.zeros(1), np.array([np.inf]))},
        {"layers": (Layer((head,)), Layer((head,)))},
    ]
    for changes in bad:
        with pytest.raises(InvalidRequest):
            build(**changes)
    for wrong in (np.zeros((2,)), np.zeros((3, 1)), np.zeros((2, 2))):
        with pytest.raises(InvalidRequest):
            Head("h", (axis,), wrong, ("f",))
    with pytest.raises(InvalidRequest):
        Head("h", (), np.zeros(1), ("f",))
    with pytest.raises(InvalidRequest):
        Head("h", (axis,), np.zeros((2, 2)), ("f", "f"))
    with pytest.raises(InvalidRequest):
        Layer((head, Head("g", (grid_axis(np.zeros(2), 1.0, 0, 2),), np.zeros((2, 1)), ("g",))))


def test_importing_the_room_imports_neither_torch_nor_scipy() -> None:
    code = "import sys, attnfun.network, attnfun.network.store, attnfun.network.literal, attnfun.network.torch_form;"
    code += "sys.exit(any(name in sys.modules for name in ('torch', 'scipy', 'matplotlib')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
