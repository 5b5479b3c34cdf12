"""Blocks of ReLU units: what they compute, in NumPy and torch, in a file, and what they are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.network import Axis, Layer, Network, ReluBlock, evaluate, identical, literal, store, stream
from network.networks import points, random_axis, random_network, rounded
from stored import load, save

torch.set_num_threads(1)


def random_mlp(seed: int, dtype: str = "float64", layers: int = 3) -> Network:
    """Blocks of different sizes and query dimensions, shared and several coordinates."""
    rng = np.random.default_rng(seed)
    built, width = [], 2
    for number in range(layers):
        blocks = []
        for place in range(int(rng.integers(1, 4))):
            axis = random_axis(rng, width, int(rng.integers(1, 3)), int(rng.integers(1, 9)), dtype)
            writes = (f"l{number}.shared", f"l{number}.own{place}") if place else (f"l{number}.shared",)
            blocks.append(
                ReluBlock(f"{number}.{place}", axis, rounded(rng.normal(size=(axis.keys, len(writes))), dtype), writes)
            )
        built.append(Layer(tuple(blocks)))
        width += len(built[-1].writes)
    readout, bias = rounded(rng.normal(size=(2, width)), dtype), rounded(rng.normal(size=2), dtype)
    ends = np.full(2, -1.0), np.full(2, 2.0)
    return Network(("x", "y"), tuple(built), readout, bias, ("f", "g"), ends, dtype)


def by_the_formula(network: Network, x: np.ndarray) -> np.ndarray:
    current = list(x)
    for layer in network.layers:
        new = dict.fromkeys(layer.writes, 0.0)
        for block in layer.heads:
            axis = block.axes[0]
            q = [sum(w * s for w, s in zip(row, current, strict=True)) + c for row, c in zip(axis.query, axis.offset)]
            for k, b, v in zip(axis.slopes, axis.biases, block.values, strict=True):
                hidden = max(0.0, float(np.dot(k, q)) + float(b))
                for name, value in zip(block.writes, v, strict=True):
                    new[name] += hidden * float(value)
        current += new.values()
    return np.asarray(network.readout @ np.array(current) + network.readout_bias)


@pytest.mark.parametrize("seed", range(4))
def test_numpy_and_torch_follow_the_formula(seed: int) -> None:
    network = random_mlp(seed)
    X = points(network, 50)
    expected = np.array([by_the_formula(network, x) for x in X])
    size = np.abs(expected).max()
    assert np.abs(evaluate(network, X) - expected).max() <= 1e-12 * size
    assert np.abs(network.to_torch()(torch.tensor(X)).numpy() - expected).max() <= 1e-12 * size
    single = random_mlp(seed, "float32")
    X = points(single, 50)
    wide = np.array([by_the_formula(single, x) for x in X])
    assert np.abs(evaluate(single, X) - wide).max() <= 1e-4 * np.abs(wide).max()


def test_many_points_are_taken_in_blocks_and_any_leading_shape_is_kept() -> None:
    rng = np.random.default_rng(0)
    axis = Axis(np.eye(1), np.zeros(1), rng.normal(size=(3000, 1)), rng.normal(size=3000))
    block = ReluBlock("b", axis, rng.normal(size=(3000, 1)), ("z",))
    network = Network(("x",), (Layer((block,)),), np.eye(2)[1:], np.zeros(1), ("f",), (np.zeros(1), np.ones(1)))
    X = rng.uniform(size=(4, 700, 1))
    values = evaluate(network, X)
    assert values.shape == (4, 700, 1)
    assert np.allclose(values[2, 13], evaluate(network, X[2, 13:14])[0], rtol=1e-12, atol=0)
    assert np.allclose(network.to_torch()(torch.tensor(X)).numpy(), values[..., 0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_streams_stay_in_their_ranges(seed: int) -> None:
    network = random_mlp(seed)
    corners = np.array([[a, b] for a in (-1.0, 2.0) for b in (-1.0, 2.0)])
    seen = stream(network, np.concatenate([points(network, 3000), corners]))
    low, high = network.ranges
    assert (seen >= low).all() and (seen <= high).all()


def test_units_and_blocks_are_counted_like_keys_and_heads() -> None:
    network = random_mlp(1)
    cost = network.cost
    assert cost.keys == sum(len(block.axes[0].biases) for block in network.heads)
    assert cost.heads == sum(len(layer.heads) for layer in network.layers)
    assert cost.parameters == cost.stored == sum(array.size for _, array in network.arrays())
    assert network.is_mlp and network.words == ("block", "unit")
    assert not random_network(1).is_mlp


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_file_comes_back_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    network = random_mlp(5, dtype)
    save(tmp_path / "a", network, {"domain": "x=0:1"})
    again, meta = load(tmp_path / "a")
    assert identical(network, again)
    save(tmp_path / "b", again, meta)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_damage_and_another_format_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    save(path, random_mlp(2), {})
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        broken = bytearray(data)
        broken[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(broken))
        try:
            assert identical(load(path)[0], random_mlp(2))
        except DamagedFile as error:
            assert "\n" not in str(error)
    for old, new in (
        (f'"format\\":\\"{store.FORMAT}', '"format\\":\\"attnfun 0'),
        ('"is\\":\\"ReluBlock', '"is\\":\\"ReluBlox'),
    ):
        assert old.encode() in data  # JSON within JSON
        path.write_bytes(data.replace(old.encode(), new.encode()))
        with pytest.raises(DamagedFile):
            load(path)


def test_an_mlp_is_no_attention() -> None:
    network = random_mlp(3)
    for form in ("self", "cross", "joint"):
        with pytest.raises(InvalidRequest, match="MLP"):
            literal(network, form, ("y",) if form == "joint" else ())
    for form, second in (("self", ()), ("joint", ("y",))):
        with pytest.raises(InvalidRequest, match="MLP"):
            network.to_torch(form=form, second=second)
    with pytest.raises(InvalidRequest, match="MLP"):
        assert network.layers[0].attention


def test_heads_and_blocks_do_not_mix() -> None:
    head, block = random_network(0).layers[0].heads[0], random_mlp(0).layers[0].heads[0]
    with pytest.raises(InvalidRequest, match="not both"):
        Layer((head, block))
    mlp, attention = random_mlp(0, layers=1), random_network(0, layers=1)
    width = 2 + len(attention.layers[0].writes)
    axis = Axis(np.ones((1, width)), np.zeros(1), np.ones((1, 1)), np.zeros(1))
    layers = (attention.layers[0], Layer((ReluBlock("b", axis, np.ones((1, 1)), ("z",)),)))
    readout = np.ones((1, width + 1))
    with pytest.raises(InvalidRequest, match="not both"):
        Network(attention.inputs, layers, readout, np.zeros(1), ("f",), mlp.box)


@pytest.mark.parametrize("bad", [("z", "z"), ()])
def test_a_block_writes_distinct_coordinates(bad: tuple[str, ...]) -> None:
    axis = Axis(np.eye(1), np.zeros(1), np.ones((3, 1)), np.zeros(3))
    with pytest.raises(InvalidRequest):
        ReluBlock("b", axis, np.ones((3, 2)), bad)
    with pytest.raises(InvalidRequest):
        ReluBlock("b", axis, np.ones((2, 1)), ("z",))
