"""The shape of a network without its weights."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import attnfun as af
from attnfun.learn.weights import Units, network_of, vector_of
from attnfun.network import Architecture, AxisShape, HeadShape, Network, evaluate

SHAPES = [
    Architecture.one_head(("x",), 5),
    Architecture.one_head(("x", "y"), 7),
    Architecture.one_head(("x", "y"), (3, 4), ("f1", "f2"), "float32"),
    Architecture(
        ("x", "y"),
        (
            (HeadShape((AxisShape(3, 1, (0,)),), (0,)), HeadShape((AxisShape(2, 2, (0, 1)),), (0, 1))),
            (HeadShape((AxisShape(2, 1, (1, 3)), AxisShape(3, 1, ())), (0,)),),
        ),
        ("f",),
    ),
]


def filled(shape: Architecture, seed: int) -> Network:
    size = sum(int(np.prod(part)) for _, part in shape.layout())
    vector = np.random.default_rng(seed).standard_normal(size)
    box = af.Box.parse({name: (-1, 1) for name in shape.inputs})
    return network_of(shape, vector, box, Units(np.zeros(len(shape.inputs)), np.ones(len(shape.inputs)), 1.0))


@pytest.mark.parametrize("shape", SHAPES)
def test_networks_of_equal_shape_have_equal_architectures(shape: Architecture) -> None:
    assert filled(shape, 0).architecture == filled(shape, 1).architecture == shape
    assert hash(filled(shape, 0).architecture) == hash(shape)
    assert Architecture.from_json(json.loads(json.dumps(shape.to_json()))) == shape
    axes = sum(a.dim * (len(a.reads) + 1) + a.keys * (a.dim + 1) for head in shape.heads for a in head.axes)
    values = sum(head.keys * len(head.writes) for head in shape.heads)
    assert shape.free_weights == axes + values + len(shape.outputs) * (len(shape.readout) + 1)
    assert shape.dense().dense() == shape.dense()
    assert shape.dense().holds(shape) and shape.holds(shape)
    assert shape == shape.dense() or not shape.holds(shape.dense())


def test_another_shape_is_another_architecture() -> None:
    shape = SHAPES[1]
    others = [
        Architecture.one_head(("x", "y"), 8),
        Architecture.one_head(("x", "z"), 7),
        Architecture.one_head(("x", "y"), 7, ("f", "g")),
        Architecture.one_head(("x", "y"), (7, 1)),
        replace(shape, dtype="float32"),
        replace(shape, kind="block"),
    ]
    assert len({shape, *others}) == 7
    assert not any(shape.holds(other) or other.holds(shape) for other in others)


def test_the_wiring_is_part_of_the_shape() -> None:
    """An axis of a product head reads one variable, and a trained one still does."""
    shape = af.compile("x*sin(y)", "x=-1:1;y=-1:1", 0.1, method="bernstein").architecture
    assert [axis.reads for head in shape.heads for axis in head.axes] == [(0,), (1,)]
    assert [axis.reads for head in shape.dense().heads for axis in head.axes] == [(0, 1), (0, 1)]


def test_an_mlp_has_one_too() -> None:
    net = af.compile("exp(x)*sin(y)", "x=-1:1;y=-1:1", 0.2, realise="mlp")
    assert net.architecture.kind == "block" and net.architecture.keys == net.cost.keys


@pytest.mark.parametrize("data", [None, 3, {}, {"inputs": ["x"]}, {**SHAPES[0].to_json(), "layers": [[{"axes": 1}]]}])
def test_what_is_no_architecture_is_refused(data: object) -> None:
    with pytest.raises(af.InvalidRequest):
        Architecture.from_json(data)


@pytest.mark.parametrize(
    "layers",
    [
        ((),),
        ((HeadShape((AxisShape(3, 1, (1,)),), (0,)),),),
        ((HeadShape((AxisShape(3, 1, (0,)),), (1,)),),),
        ((HeadShape((AxisShape(3, 1, (0,)),), (0, 0)),),),
        ((HeadShape((), (0,)),),),
    ],
)
def test_shapes_that_do_not_meet_are_refused(layers: tuple[tuple[HeadShape, ...], ...]) -> None:
    with pytest.raises(af.InvalidRequest):
        Architecture(("x",), layers, ("f",))


@pytest.mark.parametrize(
    ("keys", "dim", "reads"), [(0, 1, ()), (1, 0, ()), (1, 1, (1, 0)), (1, 1, (-1,)), (True, 1, ())]
)
def test_axes_that_cannot_be_are_refused(keys: int, dim: int, reads: tuple[int, ...]) -> None:
    with pytest.raises(af.InvalidRequest):
        AxisShape(keys, dim, reads)


@pytest.mark.parametrize("keys", [0, -1, 1.5, True, None, "4", (2,), (2, 2.7), (2, 3, 4)])
def test_keys_are_whole_numbers(keys: object) -> None:
    with pytest.raises(af.InvalidRequest):
        Architecture.one_head(("x", "y"), keys)
    wide, grid = Architecture.one_head(("x", "y"), np.int64(4)), Architecture.one_head(("x", "y"), np.array([2, 3]))
    assert wide == Architecture.one_head(("x", "y"), 4) and grid == Architecture.one_head(("x", "y"), (2, 3))


def test_units_change_the_weights_and_not_the_network() -> None:
    box = af.Box.parse("x=-1:1;y=2:9")
    units = Units(np.array([0.0, 5.5]), np.array([1.0, 4.0]), 16.0)
    net = filled(SHAPES[3], 3)
    again = network_of(SHAPES[3], vector_of(net, SHAPES[3], units), box, units)
    X = box.sample(50, np.random.default_rng(0))
    np.testing.assert_allclose(evaluate(again, X), evaluate(net, X), rtol=1e-12)
