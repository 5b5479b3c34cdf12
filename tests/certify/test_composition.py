"""Composed networks: every proved bound holds, no forgery is proved, and what is computed lies where it was said."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb

import attnfun as af
from attnfun.certify import Certificate, Status
from attnfun.certify.composition import Composition
from attnfun.certify.steps import modulus, prove_beyond, prove_line
from attnfun.certify.view import HeadView, LineAxis, View
from attnfun.certify.witness import outputs_at
from attnfun.errors import DamagedFile
from attnfun.kinds.function.prove import prove
from attnfun.kinds.function.view import Approximant
from attnfun.language import ArrayAlgebra, Graph, Node, parse, precision, run
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.network import Axis, Head, Label, Labels, Layer, Network, evaluate, stream
from certify.hunting import Array, assert_sound, errors, worst_error, zero_network
from network.networks import by_every_route
from products import few
from stored import load, save

torch.set_num_threads(1)

UNIT = "x=0:1;y=0:1"
SQUARE = "x=-1:1;y=-1:1"
TARGETS: dict[str, tuple[Any, str, float, str]] = {
    "product": ("x*y", "x=-1:1;y=0:2", 1e-4, "float64"),
    "quotient": ("exp(-x*y)/(1 + z)", "x=0:1;y=0:1;z=0:1", 1e-4, "float64"),
    "root at 0": ("sqrt(x**2 + y**2)", SQUARE, 1e-2, "float64"),
    "kink in a product": ("abs(x - y)*z", "x=-1:1;y=-1:1;z=1:2", 1e-2, "float64"),
    "maximum": ("max(x, y**2)", SQUARE, 1e-3, "float64"),
    "kinks at ends of ranges": ("max(max(max(max(x, y), -2*x), -3*y), -x) + abs(x)", UNIT, 1e-3, "float64"),
    "square of a kink": ("relu(x - y)**2", SQUARE, 1e-3, "float64"),
    "chain": ("sin(exp(sin(x + y)) + y)", UNIT, 1e-4, "float64"),
    "deep chain": ("tanh(tanh(tanh(tanh(tanh(x + y) + y) + x) + y) - x)", SQUARE, 1e-9, "float64"),
    "several outputs": (["x*y", "x*y + sin(x)", "3*x - y + 2"], UNIT, 1e-4, "float64"),
    "narrow ranges": ("x*y", "x=1:1.000001;y=2:2.000001", 1e-9, "float64"),
    "far from 0": ("x*y", "x=1000:1001;y=-2001:-2000", 1e-3, "float64"),
    "float32": ("x*y/(1 + z)", "x=1:2;y=1:2;z=0:1", 1e-2, "float32"),
    "float32, ends not in float32": ("min(x, y)*x", "x=0.1:1.1;y=0.1:0.7", 1e-2, "float32"),
}


@cache
def composed(name: str) -> Approximant:
    target, domain, eps, dtype = TARGETS[name]
    return af.compile(target, domain, eps, method="compose", dtype=dtype)


def relabelled(network: Network, labels: Labels | None) -> Network:
    return dataclasses.replace(network, labels=labels)


def changed(network: Network, name: str, change: Callable[[Array], Array]) -> Network:
    """The network, labels kept, with one array (named as in `Network.arrays`) changed."""
    arrays = {n: change(np.array(a)) if n == name else a for n, a in network.arrays()}
    layers = []
    for i, layer in enumerate(network.layers):
        heads = []
        for j, head in enumerate(layer.heads):
            axis = Axis(*(arrays[f"layer{i}/head{j}/axis0/{p}"] for p in ("query", "offset", "slopes", "biases")))
            heads.append(dataclasses.replace(head, axes=(axis,), values=arrays[f"layer{i}/head{j}/values"]))
        layers.append(Layer(tuple(heads)))
    return dataclasses.replace(
        network, layers=tuple(layers), readout=arrays["readout"], readout_bias=arrays["readout_bias"]
    )


def scaled(factor: float) -> Callable[[Array], Array]:
    """The entry of the largest size multiplied by 1 + factor; a zero array gets the factor itself."""

    def change(a: Array) -> Array:
        flat = a.reshape(-1)
        i = int(np.argmax(np.abs(flat)))
        flat[i] = flat[i] * (1 + factor) if flat[i] else factor
        return a

    return change


# ---------------------------------------------------------------- hand-made networks


def head(name: str, row: list[float], slopes: list[float], values: list[float], **more: Any) -> Head:
    biases = np.array(more.get("biases", [0.0] * len(slopes)))
    axis = Axis(np.array([row]), np.array([more.get("offset", 0.0)]), np.array(slopes)[:, None], biases)
    return Head(name, (axis,), np.array(values)[:, None], (name,))


def by_hand(
    target: str,
    domain: str,
    program: list[str],
    labels: list[tuple[str, float, float]],
    layers: list[list[Head]],
    readout: list[float],
    dtype: str = "float64",
) -> tuple[Network, Function]:
    """A labelled network of one output; `program` is the output, then φ and U of every label."""
    box = Box.parse(domain)
    graph = parse(program, box.names)
    rows = [
        Label(name, graph.outputs[1 + 2 * i], graph.outputs[2 + 2 * i], slope, offset)
        for i, (name, slope, offset) in enumerate(labels)
    ]
    network = Network(
        inputs=box.names,
        layers=tuple(Layer(tuple(heads)) for heads in layers),
        readout=np.array([readout]),
        readout_bias=np.zeros(1),
        outputs=("f",),
        box=(box.low_array, box.high_array),
        dtype=dtype,
        labels=Labels(Graph(graph.nodes, graph.outputs[:1]), tuple(rows)),
    )
    return network, Function.read(target, box)


def tanh_head(name: str = "z", row: tuple[float, ...] = (1.0,)) -> Head:
    return head(name, list(row), [1.0, -1.0], [1.0, -1.0])


def tanh_as(program: str, domain: str = "x=-1:1", target: str = "tanh(x)", argument: str = "x") -> Certificate:
    """The exact network of tanh(x), labelled with a program for it."""
    network, function = by_hand(
        target, domain, [program, program, argument], [("z", 0.0, 0.0)], [[tanh_head()]], [0.0, 1.0]
    )
    return prove(network, function, eps=1e-3)


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize("name", few(TARGETS, 5))
def test_a_proved_bound_holds(name: str) -> None:
    net = composed(name)
    assert net.certificate.status is Status.PROVED
    assert net.certificate.method == "composition"
    assert net.certificate.error[1] <= TARGETS[name][2]
    for seed in range(2):
        assert_sound(net.certificate, net.network, net.target, seed=seed)


@pytest.mark.parametrize(
    "name",
    few(
        ["product", "kinks at ends of ranges", "root at 0", "kink in a product", "chain", "several outputs", "float32"],
        3,
    ),
)
def test_bounds_hold_for_perturbed_weights(name: str) -> None:
    net = composed(name)
    eps = TARGETS[name][2]
    rng = np.random.default_rng(3)
    arrays = [n for n, _ in net.network.arrays()]
    verdicts = set()
    for size in (1e-12, 1e-7, 1e-5, 1e-3):

        def change(a: Array, size: float = size) -> Array:
            flat = a.reshape(-1)
            i = int(rng.integers(flat.size))
            value = flat[i] * (1 + size) if flat[i] else size
            flat[i] = np.float32(value) if net.network.dtype == "float32" else value
            return a

        network = changed(net.network, arrays[int(rng.integers(len(arrays)))], change)
        certificate = prove(network, net.target, eps=eps)
        assert_sound(certificate, network, net.target)
        verdicts.add(certificate.status)
    assert Status.PROVED in verdicts


@pytest.mark.parametrize("name", ["chain", "several outputs", "float32", "kink in a product"])
def test_every_computation_lies_in_the_balls_of_its_rounding(name: str) -> None:
    """NumPy by every route, torch in both forms: within `outputs_at`, which contains real arithmetic too."""
    net = composed(name)
    X = net.target.box.probe(40, np.random.default_rng(5))[-60:]
    forms = list(by_every_route(net.network, X).values())
    for form in ("cross", "self"):
        with torch.no_grad():
            forms.append(net.to_torch(form=form)(torch.tensor(X)).double().numpy().reshape(len(X), -1))
    with precision(128):
        for i, x in enumerate(X):
            for o, value in enumerate(outputs_at(net.network, x)):
                assert all(value.contains(arb(float(y[i, o]))) for y in forms)
                assert float(value.rad()) <= (1e-10 if net.network.dtype == "float64" else 1e-2)


def test_torch_keeps_the_proved_bound() -> None:
    for name in ("deep chain", "narrow ranges", "float32, ends not in float32"):
        net = composed(name)
        _, x = worst_error(net.network, net.target)
        X = np.concatenate([net.target.box.probe(500, np.random.default_rng(1)), x[None]])
        with torch.no_grad():
            y = net.to_torch()(torch.tensor(X)).double().numpy().reshape(len(X), -1)
        assert np.max(np.abs(y - net.target.values(X))) <= net.certificate.error[1] + 1e-14 * np.max(np.abs(y))


@pytest.mark.parametrize("name", few(["several outputs", "quotient", "root at 0", "float32"], 2))
def test_verify_proves_the_same_bound_from_the_file(name: str, tmp_path: Path) -> None:
    net = composed(name)
    net.save(tmp_path / "f.safetensors")
    again = af.verify(tmp_path / "f.safetensors")
    assert again.status is Status.PROVED
    assert again.error == net.certificate.error


def test_without_a_tolerance_the_bound_is_as_good() -> None:
    for name in ("quotient", "deep chain", "maximum"):
        net = composed(name)
        certificate = prove(net.network, net.target)
        assert certificate.status is Status.BOUNDED
        assert certificate.error[1] <= 1.5 * net.certificate.error[1]


def test_errors_of_steps_add_up_to_the_bound() -> None:
    net = composed("chain")
    steps = net.certificate.details["steps"]
    assert len(steps) == len(net.network.labels.coordinates) if net.network.labels else False
    for step in steps:
        assert step["total"] >= step["own"] + step["carried"] + step["rounding"]


# ---------------------------------------------------------------- forged labels


def forged(network: Network, kind: str) -> Network:
    labels = network.labels
    assert labels is not None
    program, rows = labels.program, list(labels.coordinates)
    first, last = rows[0], rows[-1]
    if kind == "φ of another label":
        rows[0], rows[-1] = dataclasses.replace(first, phi=last.phi), dataclasses.replace(last, phi=first.phi)
    elif kind == "names swapped":
        rows[0], rows[-1] = dataclasses.replace(first, name=last.name), dataclasses.replace(last, name=first.name)
    elif kind == "argument replaced by a variable":
        rows[-1] = dataclasses.replace(last, argument=next(i for i, n in enumerate(program.nodes) if n.op == "var"))
    elif kind == "argument behind φ":
        rows[0] = dataclasses.replace(first, argument=len(program.nodes) - 1)
    elif kind == "wrong slope":
        rows[0] = dataclasses.replace(first, slope=first.slope + 0.25)
    elif kind == "wrong offset":
        rows[-1] = dataclasses.replace(last, offset=last.offset + 0.25)
    elif kind == "missing label":
        rows.pop()
    elif kind == "two labels for one node":
        rows.append(dataclasses.replace(first, name="another"))
    elif kind == "two labels for one coordinate":
        rows.append(dataclasses.replace(last, name=first.name))
    elif kind == "another constant":
        nodes = [
            Node("const", (), n.value + Fraction(1, 7)) if n.op == "const" and isinstance(n.value, Fraction) else n
            for n in program.nodes
        ]
        more = (Node("const", (), Fraction(1, 7)), Node("add", (program.outputs[0], len(nodes))))
        program = Graph((*nodes, *more), (len(nodes) + 1, *program.outputs[1:]))
    elif kind == "another operation":
        at = max(i for i, n in enumerate(program.nodes) if n.op in ("add", "sub"))
        node = program.nodes[at]
        swapped = Node("sub" if node.op == "add" else "add", node.args)
        program = Graph((*program.nodes[:at], swapped, *program.nodes[at + 1 :]), program.outputs)
    elif kind == "another output":
        program = Graph(program.nodes, (first.phi, *program.outputs[1:]))
    elif kind == "an output too many":
        program = Graph(program.nodes, (*program.outputs, first.phi))
    return relabelled(network, Labels(program, tuple(rows)))


FORGERIES = (
    "φ of another label",
    "names swapped",
    "argument replaced by a variable",
    "argument behind φ",
    "wrong slope",
    "wrong offset",
    "missing label",
    "two labels for one node",
    "two labels for one coordinate",
    "another constant",
    "another operation",
    "another output",
    "an output too many",
)


@pytest.mark.parametrize("kind", FORGERIES)
@pytest.mark.parametrize("name", few(["chain", "quotient"], 1))
def test_a_forged_label_is_never_proved(kind: str, name: str) -> None:
    net = composed(name)
    certificate = prove(forged(net.network, kind), net.target, eps=TARGETS[name][2])
    assert certificate.status in (Status.UNDECIDED, Status.REFUTED)
    assert certificate.reason


def test_a_network_of_another_target_is_not_proved() -> None:
    net = composed("quotient")
    for text in ("exp(-x*y)/(1 + z) + 1e-5", "exp(-x*y)/(1 + z**2)", "exp(x*y)/(1 + z)", "1/(1 + z)"):
        certificate = prove(net.network, Function.read(text, net.target.box), eps=10.0)
        assert certificate.status is Status.UNDECIDED


def test_swapped_heads_are_not_proved() -> None:
    net = composed("quotient")
    layer = net.network.layers[0]
    heads = list(layer.heads)
    a, b = heads[0], heads[-1]
    heads[0], heads[-1] = dataclasses.replace(a, writes=b.writes), dataclasses.replace(b, writes=a.writes)
    network = dataclasses.replace(net.network, layers=(Layer(tuple(heads)), *net.network.layers[1:]))
    certificate = prove(network, net.target, eps=TARGETS["quotient"][2])
    assert certificate.status in (Status.REFUTED, Status.UNDECIDED)


@pytest.mark.parametrize("name", few(["quotient", "kink in a product"], 1))
def test_one_changed_weight_of_a_file_is_seen(name: str, tmp_path: Path) -> None:
    """The hash is written anew, so only the proof can tell: never proved where the error is above eps."""
    net = composed(name)
    eps = TARGETS[name][2]
    net.save(tmp_path / "f.safetensors")
    network, meta = load(tmp_path / "f.safetensors")
    caught = 0
    last = f"layer{len(network.layers) - 1}/head0"
    for array in [n for n, _ in network.arrays() if n.startswith(("layer0/head0", last, "readout"))]:
        tampered = changed(network, array, scaled(0.02))
        save(tmp_path / "g.safetensors", tampered, meta)
        certificate = af.verify(tmp_path / "g.safetensors")
        seen = assert_sound(certificate, tampered, net.target)
        if seen > eps:
            assert certificate.status in (Status.REFUTED, Status.UNDECIDED)
            caught += 1
    assert caught >= 6


def test_a_label_of_infinite_size_is_damage() -> None:
    labels = composed("chain").network.labels
    assert labels is not None
    data = labels.to_json()
    data["coordinates"][0][1] = math.inf
    with pytest.raises(DamagedFile):
        Labels.from_json(data)


# ---------------------------------------------------------------- programs that are not the target everywhere


def test_the_exact_network_is_proved_by_an_equal_program() -> None:
    for program in ("tanh(x)", "tanh(exp(log(x + 2)) - 2)", "-tanh(-x)", "sinh(x)/cosh(x)"):
        assert tanh_as(program).status is Status.PROVED


@pytest.mark.parametrize(
    "program",
    [
        "tanh(abs(x))",  # equal for x ≥ 0 only
        "tanh(max(x, -1/2))",  # equal on three quarters
        "tanh(sqrt(x)**2)",  # not defined for x < 0
        "tanh(exp(log(x)))",
        "tanh(x)*x/x",  # not defined at 0
        "tanh(x) + 0*log(x)",
        "tanh(x + 1e-9)",
        "tanh(x) + 1e-12*relu(x - 999/1000)",  # another function on a thousandth of the box
    ],
)
def test_a_program_that_is_the_target_on_a_part_only_is_not(program: str) -> None:
    assert tanh_as(program).status is Status.UNDECIDED


def test_nodes_nobody_needs_must_be_defined_too() -> None:
    network, function = by_hand(
        "tanh(x)",
        "x=-1:1",
        ["tanh(x)", "tanh(x)", "x", "log(x)", "x"],
        [("z", 0.0, 0.0), ("dead", 0.0, 0.0)],
        [[tanh_head(), tanh_head("dead")]],
        [0.0, 1.0, 0.0],
    )
    assert prove(network, function, eps=1.0).status is Status.UNDECIDED


def test_a_head_cannot_read_its_own_layer() -> None:
    program = ["tanh(tanh(x))", "tanh(x)", "x", "tanh(tanh(x))", "tanh(x)"]
    labels = [("z", 0.0, 0.0), ("y", 0.0, 0.0)]
    good, function = by_hand(
        "tanh(tanh(x))",
        "x=-1:1",
        program,
        labels,
        [[tanh_head()], [tanh_head("y", (0.0, 1.0))]],
        [0.0, 0.0, 1.0],
    )
    assert prove(good, function, eps=1e-3).status is Status.PROVED
    one_layer, _ = by_hand("tanh(tanh(x))", "x=-1:1", program, labels, [[tanh_head(), tanh_head("y")]], [0.0, 0.0, 1.0])
    assert prove(one_layer, function, eps=10.0).status is Status.UNDECIDED


def test_labels_of_nothing_and_of_inputs_are_not_used() -> None:
    for name in ("nowhere", "x"):
        network, function = by_hand(
            "tanh(x)",
            "x=-1:1",
            ["tanh(x)", "tanh(x)", "x"],
            [("z", 0.0, 0.0)],
            [[tanh_head()]],
            [0.0, 1.0],
        )
        labels = network.labels
        assert labels is not None
        moved = dataclasses.replace(labels.coordinates[0], name=name)
        assert (
            prove(relabelled(network, Labels(labels.program, (moved,))), function, eps=10.0).status is Status.UNDECIDED
        )


def test_a_program_nested_too_deeply_is_undecided() -> None:
    nodes = [Node("var", (), "x"), Node("tanh", (0,)), Node("add", (1, 0)), Node("sub", (2, 0))]
    for _ in range(1500):
        nodes += [Node("add", (len(nodes) - 1, 0)), Node("sub", (len(nodes), 0))]
    network, function = by_hand(
        "tanh(x)", "x=-1:1", ["tanh(x)", "tanh(x)", "x"], [("z", 0.0, 0.0)], [[tanh_head()]], [0.0, 1.0]
    )
    labels = Labels(Graph(tuple(nodes), (len(nodes) - 1,)), (Label("z", 1, 0, 0.0, 0.0),))
    assert prove(relabelled(network, labels), function, eps=1e-3).status in (Status.UNDECIDED, Status.PROVED)


# ---------------------------------------------------------------- the edges of floats


def line_plus_one(dtype: str, **weights: Any) -> tuple[Network, Function]:
    """3x + 1 by a head whose values are equal: exact whatever its logits are, unless they overflow."""
    one = head("z", [weights.get("row", 1.0)], weights["slopes"], [1.0, 1.0], offset=weights.get("offset", 0.0))
    return by_hand("3*x + 1", "x=1:2", ["3*x + 1", "3*x + 1", "x"], [("z", 3.0, 0.0)], [[one]], [3.0, 1.0], dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_may_overflow_is_not_proved(dtype: str) -> None:
    large = float(np.finfo(dtype).max)
    network, function = line_plus_one(dtype, slopes=[1.0, -1.0])
    assert prove(network, function, eps=1e-3).status is Status.PROVED
    for weights in ({"slopes": [large, -large]}, {"slopes": [1.0, -1.0], "row": large, "offset": large}):
        network, function = line_plus_one(dtype, **weights)
        assert not np.isfinite(errors(network, function, np.array([[1.5], [2.0]]))).all()
        assert prove(network, function, eps=1e-3).status is Status.UNDECIDED


@pytest.mark.parametrize("labelled", [True, False])
def test_an_input_that_float32_cannot_hold_is_not_proved_even_unread(labelled: bool) -> None:
    network, function = by_hand(
        "tanh(x)",
        "x=-1:1;y=0:1e40",
        ["tanh(x)", "tanh(x)", "x"],
        [("z", 0.0, 0.0)],
        [[tanh_head("z", (1.0, 0.0))]],
        [0.0, 0.0, 1.0],
        dtype="float32",
    )
    network = network if labelled else relabelled(network, None)
    assert prove(network, function, eps=1e-3).status is Status.UNDECIDED


def test_underflow_of_read_outs_is_counted() -> None:
    least = 2.0**-149
    network, function = by_hand(
        "0*tanh(x)",
        "x=-1:1",
        ["0*tanh(x)", "tanh(x)", "x"],
        [("z", 0.0, 0.0)],
        [[tanh_head()]],
        [0.0, least],
        dtype="float32",
    )
    certificate = prove(network, function, eps=1e-3)
    assert worst_error(network, function)[0] <= certificate.error[1]


@pytest.mark.parametrize(
    ("target", "domain"),
    few(
        [
            ("a*b/(c**2*d)", "a=1:5;b=1:5;c=1:5;d=1:5"),
            ("p*(q + r*sin(t))", "p=1:5;q=1:5;r=1:5;t=1:5"),
            ("exp(-(x - y)**2)/z", "x=1:3;y=1:3;z=1:3"),
            ("exp(-(1.6*abs(x - 0.767) + 0.5*abs(y - 0.741)))", "x=0:1;y=0:1"),
            ("(1 + 1.9*x + 0.3*y + 0.7*z)**(-4)", "x=0:1;y=0:1;z=0:1"),
        ],
        2,
    ),
)
def test_targets_proved_for_float32_hold_in_torch_float32(target: str, domain: str) -> None:
    """1e-4 of the range, proved for float32; torch and NumPy at inputs that are no float32 numbers, and at corners."""
    net = af.compile(target, domain=domain, eps=1e-4, relative=True, dtype="float32")
    assert net.certificate.status is Status.PROVED
    X = net.target.box.probe(5_000, np.random.default_rng(5))
    truth = net.target.values(X).reshape(len(X), -1)
    module = net.to_torch("float32")
    with torch.no_grad():
        found = module(torch.tensor(X, dtype=torch.float32)).numpy().reshape(len(X), -1)
    for values in (found, evaluate(net.network, X)):
        assert np.abs(values.astype(np.float64) - truth).max() <= net.certificate.error[1]


@pytest.mark.parametrize("name", ["float32", "float32, ends not in float32", "chain", "root at 0"])
def test_sizes_of_the_stream_hold_what_is_computed(name: str) -> None:
    """What heads write, as computed at random points and at corners, is within the size the proof goes on with."""
    net = composed(name)
    assert net.network.labels is not None
    proof = Composition(net.network, net.target, net.network.labels)
    values = dict(proof.size)
    proof.prove(1e-2)
    X = net.target.box.probe(20_000, np.random.default_rng(3))
    seen = np.abs(stream(net.network, X).astype(np.float64)).max(axis=0)
    for step in proof.steps:
        name = step["name"]
        assert seen[net.network.coordinates.index(name)] <= proof.size[name]
        assert proof.size[name] <= values[name] + 2 * step["rounding"]


# ---------------------------------------------------------------- one variable


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("sqrt(u)", 0.0, 3.0),
        ("sqrt(abs(u))", -1.0, 2.0),
        ("exp(3*u)", -1.0, 1.0),
        ("abs(u)", -1.0, 1.0),
        ("relu(u - 1/3)", 0.0, 1.0),
        ("u**2", -5.0, 5.0),
        ("asin(u)", -1.0, 1.0),
        ("u**(1/3)", 0.0, 8.0),
        ("log(u)", 1e-6, 1.0),
        ("sin(20*u)", 0.0, 1.0),
        ("sqrt(1 - u)", 0.5, 1.0),
    ],
)
def test_the_modulus_is_above_every_change_seen(text: str, low: float, high: float) -> None:
    g = parse(text, ("u",))
    rng = np.random.default_rng(0)
    u = np.concatenate([rng.uniform(low, high, 20_000), low + (high - low) * 10.0 ** rng.uniform(-15, 0, 5_000)])
    u = np.concatenate([u, high - (high - low) * 10.0 ** rng.uniform(-15, 0, 5_000), [low, high]])
    for delta in (1e-9, 1e-4, 0.03, 100.0):
        v = np.clip(u + rng.choice([-1, 1], len(u)) * delta, low, high)
        change = np.abs(run(g, ArrayAlgebra(), {"u": u})[0] - run(g, ArrayAlgebra(), {"u": v})[0])
        with precision(128):
            bound = modulus(g, low, high, delta)
        assert float(change.max()) <= bound * (1 + 1e-12) + 1e-13
        assert bound <= 40 * float(change.max()) + 0.3 or "asin" in text  # a ball that ends at 1 reaches past it
    assert modulus(g, low, high, 0.0) == 0.0


def test_heads_are_judged_beyond_the_range_by_its_end_values() -> None:
    """tanh by its own head: on the range exact, beyond it as far from the end value as tanh goes."""
    g = parse("tanh(u)", ("u",))
    axis = LineAxis(0, 1.0, 0.0, np.array([1.0, -1.0]), np.zeros(2))
    one = tanh_head()
    view = View(
        np.array([0.0]),
        np.array([1.0]),
        np.zeros((1, 1)),
        np.zeros(1),
        (HeadView("z", (axis,), one.values, np.ones((1, 1)), one),),
    )
    with precision(128):
        for delta in (0.0, 1e-3, 0.1):
            bound = prove_beyond(view, g, (delta, delta), (0.0, 1.0), prove_line(view, g, 1e-9)[0])
            truth = max(math.tanh(delta), math.tanh(1 + delta) - math.tanh(1))
            assert truth <= bound <= 1.3 * truth + 1e-9


def test_several_pieces_of_one_coordinate_are_summed() -> None:
    """Two half heads, the second with a query off by 1e-9: proved, with that in the bound; far off: refuted."""
    for off, status in ((1e-9, Status.PROVED), (0.1, Status.REFUTED)):
        half = head("z", [1.0], [1.0, -1.0], [0.5, -0.5])
        other = head("z", [1.0 + off], [1.0, -1.0], [0.5, -0.5])
        network, function = by_hand(
            "tanh(x)", "x=-1:1", ["tanh(x)", "tanh(x)", "x"], [("z", 0.0, 0.0)], [[half, other]], [0.0, 1.0]
        )
        certificate = prove(network, function, eps=1e-3)
        assert certificate.status is status
        assert_sound(certificate, network, function)


def test_one_head_may_write_several_coordinates() -> None:
    axis = Axis(np.array([[1.0]]), np.zeros(1), np.array([[1.0], [-1.0]]), np.zeros(2))
    both = Head("both", (axis,), np.array([[1.0, 2.0], [-1.0, 0.0]]), ("z", "y"))
    network, function = by_hand(
        "3*tanh(x) + 2",
        "x=-1:1",
        ["tanh(x) + 2*(tanh(x) + 1)", "tanh(x)", "x", "tanh(x) + 1", "x"],
        [("z", 0.0, 0.0), ("y", 0.0, 0.0)],
        [[both]],
        [0.0, 1.0, 2.0],
    )
    certificate = prove(network, function, eps=1e-9)
    assert certificate.status is Status.PROVED
    swapped = dataclasses.replace(both, writes=("y", "z"))
    other = dataclasses.replace(network, layers=(Layer((swapped,)),))
    assert prove(other, function, eps=1e-9).status in (Status.REFUTED, Status.UNDECIDED)


def test_what_the_witness_cannot_read_refutes_nothing() -> None:
    """The same network with a query of two numbers, or with two axes: `outputs_at` reads one axis of one number."""
    net = composed("root at 0")
    network, box = net.network, net.target.box
    (head, *rest) = network.layers[-1].heads
    axis = head.axes[0]
    query, offset = np.concatenate([0 * axis.query, axis.query]), np.concatenate([0 * axis.offset, axis.offset])
    wide = Axis(query, offset, np.concatenate([0 * axis.slopes, axis.slopes], axis=1), axis.biases)
    idle = Axis(0 * axis.query, 0 * axis.offset, np.zeros((2, 1)), np.zeros(2))
    X = box.sample(200, np.random.default_rng(0))
    for axes, values in (((wide,), head.values), ((idle, axis), np.stack([head.values, head.values]))):
        changed_head = dataclasses.replace(head, axes=axes, values=values)
        other = dataclasses.replace(network, layers=(*network.layers[:-1], Layer((changed_head, *rest))))
        assert np.abs(evaluate(other, X) - evaluate(network, X)).max() < 1e-12
        assert prove(other, net.target, eps=1e-2).status is Status.UNDECIDED
    black = Function.read(lambda x, y: math.hypot(float(x), float(y)), box, lipschitz=1.0)
    assert prove(network, black, eps=1e-2).status is Status.UNDECIDED


def test_a_point_refutes_no_mean() -> None:
    """Without heads: |x^20| is 1 at a point, 1/√41 in the mean square."""
    function = Function.read("x**20", Box.parse("x=0:1"))
    network = zero_network(function)
    certificate = prove(network, function, norm=2.0, eps=0.2)
    assert certificate.status is Status.UNDECIDED and certificate.error[0] <= 1 / math.sqrt(41)
    assert prove(network, function, eps=0.2).status is Status.REFUTED
