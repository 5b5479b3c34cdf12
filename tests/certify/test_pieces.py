"""MLPs: a bound by pieces is never below the true error, whatever the weights; computations lie where it was said."""

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
from flint import arb, fmpq

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.chebyshev_curve import ChebyshevCurve
from attnfun.certify.pieces import BrokenLine, beyond, block_fits, block_rounding, pieces_of_curve, prove_by_pieces
from attnfun.certify.view import Undecided
from attnfun.certify.witness import outputs_at
from attnfun.kinds.function.prove import prove
from attnfun.kinds.function.view import Approximant
from attnfun.kinds.relation.features import polynomial_graph
from attnfun.language import BallAlgebra, Graph, SeriesAlgebra, parse, precision, run
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.series import series_length
from attnfun.network import Axis, Label, Labels, Layer, Network, ReluBlock, evaluate, evaluate_block
from certify.hunting import Array, assert_sound, worst_error
from stored import load, save

torch.set_num_threads(1)

FUNCTIONS = (
    "u**2",
    "exp(u)",
    "sqrt(u + 2)*sin(9*u)",
    "abs(u - 1/3)*u",
    "relu(u - 0.1) - relu(sin(7*u))",
    "sin(20*u)",
    "1/(1 + 25*u**2)",
    "tanh(50*u)",
    "max(u, u**2)",
    "sqrt(abs(u))",
    "relu(u)**2*abs(u - 1/2)",
    "min(abs(u), 1/2)**2",
    "0*u + 1",
    "u",
)
TARGETS: dict[str, tuple[Any, str, float, str]] = {
    "product": ("x*y", "x=-1:1;y=0:2", 1e-2, "float64"),
    "root at 0": ("sqrt(x**2 + y**2)", "x=-1:1;y=-1:1", 3e-2, "float64"),
    "ends of the domain": ("sqrt(x) + asin(x)*y", "x=0:1;y=0:1", 1e-2, "float64"),
    "kinks": ("max(x, y**2) - abs(x - 2*y)", "x=-1:1;y=-1:1", 1e-2, "float64"),
    "chain": ("sin(exp(sin(x + y)) + y)", "x=0:1;y=0:1", 1e-2, "float64"),
    "several outputs": (["x*y", "x*y + sin(x)", "3*x - y + 2"], "x=0:1;y=0:1", 1e-2, "float64"),
    "far from 0": ("x*y", "x=1000:1001;y=-2001:-2000", 1e-2, "float64"),
    "float32": ("min(x, y)*x/(1 + y)", "x=0.1:1.1;y=0.1:0.7", 1e-2, "float32"),
}


@cache
def mlp(name: str) -> Approximant:
    target, domain, eps, dtype = TARGETS[name]
    return af.compile(target, domain, eps, dtype=dtype, realise="mlp")


def graph(text: str) -> Graph:
    return parse([text], ("u",))


def exact(line: BrokenLine, u: float) -> Fraction:
    """The formula, in rationals."""
    q = Fraction(line.w) * Fraction(u) + Fraction(line.c)
    total = Fraction(line.slope) * Fraction(u) + Fraction(line.offset)
    for k, b, v in zip(line.slopes.tolist(), line.biases.tolist(), line.values.tolist(), strict=True):
        total += Fraction(v) * max(Fraction(0), Fraction(k) * q + Fraction(b))
    return total


def error_at(line: BrokenLine, g: Graph, u: float) -> arb:
    value = exact(line, u)
    return abs(arb(fmpq(value.numerator, value.denominator)) - run(g, BallAlgebra(clip_sqrt=True), {"u": arb(u)})[0])


def random_line(rng: np.random.Generator, low: float, high: float) -> tuple[BrokenLine, Array]:
    """Any units: breakpoints inside, outside, at the ends, in clusters of a few ulps; slopes ±1, random and 0."""
    n, kind = int(rng.integers(1, 10)), int(rng.integers(4))
    w, c = float(rng.choice([1.0, -1.0, rng.normal(), 1e3, 1e-4])), float(rng.choice([0.0, rng.normal(), 1e3]))
    k = rng.choice([-1.0, 1.0], size=n) if kind == 0 else rng.normal(size=n)
    places = rng.uniform(low - 0.1 * (high - low), high + 0.1 * (high - low), size=n)
    if kind == 2:
        places = places[0] + rng.choice([0.0, 1e-16, -1e-16, 1e-15], size=n)
    if kind == 3:
        places[0], places[-1] = low, high
    if rng.random() < 0.3:
        places[0] = float(rng.choice([0.0, 0.5]))  # where the functions have their kinks
    biases = -k * (w * places + c)
    if rng.random() < 0.15:
        k[0] = 0.0
    values = rng.normal(size=n) * 10 ** rng.uniform(-3, 3)
    return BrokenLine(float(rng.normal()), float(rng.normal()), w, c, k, biases, values), places


# ---------------------------------------------------------------- one variable


@pytest.mark.parametrize("seed", range(6))
def test_no_point_is_above_the_bound_and_none_needed_to_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(25):
        g = graph(FUNCTIONS[int(rng.integers(len(FUNCTIONS)))])
        low = float(rng.uniform(-1.9, 0.5))
        high = low + float(10 ** rng.uniform(-6, 0.3))
        line, places = random_line(rng, low, high)
        bound = prove_by_pieces(line, g, low, high, 1e-9)
        inside = np.clip(places, low, high)
        x = np.concatenate([rng.uniform(low, high, 12), inside, np.nextafter(inside, 9.0), [low, high]])
        with precision(200):
            errors = [error_at(line, g, float(v)) for v in np.clip(x, low, high)]
            assert all(e.lower() <= arb(bound.high) for e in errors)
            assert bound.witness is not None
            assert error_at(line, g, float(bound.witness[0])).upper() >= arb(bound.low)
        assert bound.high <= max(1.03 * bound.low, 1.1e-9)


def test_an_interval_between_two_doubles_that_hides_a_breakpoint() -> None:
    """The breakpoint 1/3 is no double, and the value behind it is steep: what the doubles do not see is counted."""
    slopes, biases, values = np.array([3.0]), np.array([-1.0]), np.array([2.0**60])
    line = BrokenLine(0.0, 0.0, 1.0, 0.0, slopes, biases, values)
    low, high = math.nextafter(1 / 3, 0), math.nextafter(1 / 3, 1)
    bound = prove_by_pieces(line, graph("0*u"), low, high, 0.0)
    top = exact(line, high)
    assert Fraction(bound.high) >= top > 0
    below = prove_by_pieces(line, graph("0*u"), low, 1 / 3, 0.0)
    assert Fraction(below.high) >= exact(line, 1 / 3)


@pytest.mark.parametrize("text", ["abs(u)", "relu(u - 1/4)", "max(u, 1/2 - u)", "min(u, 0)"])
def test_a_kink_at_a_breakpoint_costs_nothing(text: str) -> None:
    """One unit is the function: on both sides of the kink the error is proved to be below an ulp of 1."""
    place, jump, slope = {"abs(u)": (0.0, 2.0, -1.0), "min(u, 0)": (0.0, -1.0, 1.0)}.get(text, (0.25, 1.0, 0.0))
    offset = 0.0
    if text.startswith("max"):
        jump, slope, offset = 2.0, -1.0, 0.5
    line = BrokenLine(slope, offset, 1.0, 0.0, np.ones(1), np.array([-place]), np.array([jump]))
    assert prove_by_pieces(line, graph(text), -1.0, 1.0, 1e-18).high <= np.finfo(np.float64).eps


def test_beyond_an_end_the_block_is_compared_with_the_end_value() -> None:
    line = BrokenLine(0.0, 0.0, 1.0, 0.0, np.array([-1.0, 1.0]), np.array([-0.25, 0.0]), np.array([8.0, 1.0]))
    g = graph("sqrt(u)")
    assert beyond(line, g, 0.0, -0.25) == pytest.approx(0.0, abs=1e-12)
    assert 2.0 <= beyond(line, g, 0.0, -0.5) <= 2.0 + 1e-12  # 8 (0.5 − 0.25) at the far end
    assert beyond(line, g, 0.0, 0.0) == 0.0


def test_what_is_not_bounded_is_undecided() -> None:
    line = BrokenLine(0.0, 0.0, 1.0, 0.0, np.ones(1), np.zeros(1), np.ones(1))
    for text, low, high in (("1/u", -1.0, 1.0), ("log(u)", 0.0, 1.0), ("u", 0.5, 0.5), ("u", 0.0, math.inf)):
        with pytest.raises(Undecided):
            prove_by_pieces(line, graph(text), low, high, 1e-3)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(4))
def test_every_computation_of_a_block_is_within_its_rounding(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    kind = getattr(torch, dtype)

    def held(a: Any) -> Array:
        return np.asarray(a, dtype=np.float64).astype(dtype).astype(np.float64)

    for _ in range(25):
        n = int(rng.integers(1, 60))
        k = held(rng.choice([-1.0, 1.0], size=n) if rng.random() < 0.5 else rng.normal(size=n))
        values = held(rng.normal(size=n) * 10 ** rng.uniform(-3, 3))
        line = BrokenLine(0.0, 0.0, 1.0, 0.0, k, held(-k * rng.uniform(-1, 1, size=n)), values)
        q = held(rng.uniform(-1, 1, size=20))
        rounding, size = block_rounding(line, -1.0, 1.0, dtype)
        block = ReluBlock("b", Axis(np.eye(1), np.zeros(1), k[:, None], line.biases), values[:, None], ("z",))
        first = evaluate_block(block, q[:, None], dtype)[:, 0]
        hidden = torch.tensor(q[:, None], dtype=kind) @ torch.tensor(k[None], dtype=kind)
        hidden = torch.relu(hidden + torch.tensor(line.biases, dtype=kind))
        second = (hidden @ torch.tensor(values[:, None], dtype=kind))[:, 0].numpy()
        backward = (hidden.flip(1) * torch.tensor(values[::-1].copy(), dtype=kind)).cumsum(1)[:, -1].numpy()
        for at, results in zip(q.tolist(), zip(first, second, backward, strict=True), strict=True):
            truth = exact(line, at)
            assert abs(truth) <= Fraction(size)
            assert all(abs(Fraction(float(r)) - truth) <= Fraction(rounding) for r in results)
        assert rounding <= 4 * (n + 2) * np.finfo(dtype).eps * (size + float(np.abs(values).sum()))


def test_what_may_overflow_does_not_fit() -> None:
    one = np.ones(1)
    assert block_fits(one, one, one, 1.0, "float32")
    assert not block_fits(1e30 * one, one, 1e10 * one, 1.0, "float32")
    assert block_fits(1e30 * one, one, 1e10 * one, 1.0, "float64")
    assert not block_fits(one, one, one, math.inf, "float64")
    assert not block_fits(one, np.array([math.nan]), one, 1.0, "float64")


# ---------------------------------------------------------------- whole networks


def changed(network: Network, name: str, change: Callable[[Array], Array]) -> Network:
    """The MLP, labels kept, with one array (named as in `Network.arrays`) changed."""
    arrays = {n: change(np.array(a)) if n == name else a for n, a in network.arrays()}
    layers = []
    for i, layer in enumerate(network.layers):
        blocks = []
        for j, block in enumerate(layer.heads):
            here = f"layer{i}/block{j}"
            axis = Axis(*(arrays[f"{here}/{part}"] for part in ("query", "offset", "slopes", "biases")))
            blocks.append(ReluBlock(block.name, axis, arrays[f"{here}/values"], block.writes))
        layers.append(Layer(tuple(blocks)))
    return dataclasses.replace(
        network, layers=tuple(layers), readout=arrays["readout"], readout_bias=arrays["readout_bias"]
    )


@pytest.mark.parametrize("name", TARGETS)
def test_a_proved_bound_holds_and_torch_keeps_it(name: str) -> None:
    net = mlp(name)
    assert net.certificate.status is Status.PROVED and net.network.is_mlp
    assert {step["method"] for step in net.certificate.details["steps"]} == {"pieces"}
    assert net.certificate.error[1] <= TARGETS[name][2]
    assert_sound(net.certificate, net.network, net.target)
    _, x = worst_error(net.network, net.target)
    X = np.concatenate([net.target.box.probe(500, np.random.default_rng(1)), x[None]])
    with torch.no_grad():
        y = net.to_torch()(torch.tensor(X)).double().numpy().reshape(len(X), -1)
    assert np.max(np.abs(y - net.target.values(X))) <= net.certificate.error[1] + 1e-14 * np.max(np.abs(y))


def test_only_hypotheses_about_arithmetic_are_printed() -> None:
    assert not any("exp" in text or "attention" in text for text in mlp("product").certificate.hypotheses)
    assert mlp("product").certificate.hypotheses


@pytest.mark.parametrize("name", ["chain", "several outputs", "float32", "kinks"])
def test_every_computation_lies_in_the_balls_of_its_rounding(name: str) -> None:
    net = mlp(name)
    X = net.target.box.probe(40, np.random.default_rng(5))[-40:]
    with torch.no_grad():
        forms = [evaluate(net.network, X), net.to_torch()(torch.tensor(X)).numpy().reshape(len(X), -1)]
    with precision(128):
        for i, x in enumerate(X):
            for o, value in enumerate(outputs_at(net.network, x)):
                assert all(value.contains(arb(float(y[i, o]))) for y in forms)
                assert float(value.rad()) <= (1e-10 if net.network.dtype == "float64" else 1e-3)


@pytest.mark.parametrize("name", TARGETS)
def test_bounds_hold_for_perturbed_weights(name: str) -> None:
    net = mlp(name)
    rng = np.random.default_rng(len(name))
    names = [n for n, _ in net.network.arrays()]
    for trial, size in enumerate((1e-12, 1e-7, 1e-4, 1e-2, 0.3, 3.0)):

        def change(a: Array, size: float = size, trial: int = trial) -> Array:
            flat = a.reshape(-1)
            i = int(rng.integers(flat.size))
            value = -flat[i] if trial == 4 else flat[i] * (1 + size) if flat[i] else size
            flat[i] = np.float32(value) if net.network.dtype == "float32" else value
            return a

        network = changed(net.network, names[int(rng.integers(len(names)))], change)
        eps = None if trial % 2 else TARGETS[name][2]
        assert_sound(prove(network, net.target, eps=eps), network, net.target, seed=trial)


@pytest.mark.parametrize("name", ["product", "kinks"])
def test_one_changed_weight_of_a_file_is_seen(name: str, tmp_path: Path) -> None:
    """The hash is written anew, so only the proof can tell: never proved where the error is above eps."""
    net = mlp(name)
    net.save(tmp_path / "f.safetensors")
    network, meta = load(tmp_path / "f.safetensors")
    caught = 0
    for array in [n for n, _ in network.arrays() if n.startswith(("layer0/block0", "readout"))]:
        for factor in (-1.0, 1.5):

            def change(a: Array, factor: float = factor) -> Array:
                flat = a.reshape(-1)
                i = int(np.argmax(np.abs(flat)))
                flat[i] = factor * flat[i] if flat[i] else factor
                return a

            tampered = changed(network, array, change)
            save(tmp_path / "g.safetensors", tampered, meta)
            certificate = af.verify(tmp_path / "g.safetensors")
            if assert_sound(certificate, tampered, net.target) > TARGETS[name][2]:
                assert certificate.status in (Status.REFUTED, Status.UNDECIDED)
                caught += 1
    assert caught >= 8


def test_verify_proves_the_same_bound_from_the_file(tmp_path: Path) -> None:
    net = mlp("root at 0")
    net.save(tmp_path / "f.safetensors")
    again = af.verify(tmp_path / "f.safetensors")
    assert again.status is Status.PROVED and again.error == net.certificate.error


# ---------------------------------------------------------------- forgeries


def relu_network(labels: list[tuple[str, str, str]], blocks: list[ReluBlock], readout: list[float]) -> Network:
    """One layer on x; `labels` are (coordinate, φ, U), the program's output is the first φ."""
    box = Box.parse("x=-1:1")
    program = parse([labels[0][1], *(text for _, *pair in labels for text in pair)], box.names)
    rows = [
        Label(name, program.outputs[1 + 2 * i], program.outputs[2 + 2 * i], 0.0, 0.0)
        for i, (name, _, _) in enumerate(labels)
    ]
    held = Labels(Graph(program.nodes, program.outputs[:1]), tuple(rows))
    ends = box.low_array, box.high_array
    return Network(box.names, (Layer(tuple(blocks)),), np.array([readout]), np.zeros(1), ("f",), ends, labels=held)


def unit(name: str = "z", slope: float = 1.0, row: float = 1.0, value: float = 1.0) -> ReluBlock:
    axis = Axis(np.array([[row]]), np.zeros(1), np.array([[slope]]), np.zeros(1))
    return ReluBlock(name, axis, np.array([[value]]), (name,))


def test_a_unit_is_relu() -> None:
    target = Function.read("relu(x)", Box.parse("x=-1:1"))
    good = relu_network([("z", "relu(x)", "x")], [unit()], [0.0, 1.0])
    certificate = prove(good, target, eps=1e-3)
    assert certificate.status is Status.PROVED and certificate.error[1] <= 1e-5
    halves = relu_network([("z", "relu(x)", "x")], [unit(row=0.5, value=2.0)], [0.0, 1.0])
    assert prove(halves, target, eps=1e-3).status is Status.PROVED
    for bad in (unit(slope=-1.0), unit(value=1.01), unit(row=0.0), unit(row=-1.0)):
        network = relu_network([("z", "relu(x)", "x")], [bad], [0.0, 1.0])
        certificate = prove(network, target, eps=1e-3)
        assert certificate.status in (Status.REFUTED, Status.UNDECIDED)


def test_labels_of_mlps_are_claims_too() -> None:
    target = Function.read("relu(x)", Box.parse("x=-1:1"))
    for phi in ("abs(x)", "relu(x + 1e-9)", "relu(x)*x/x", "x"):
        network = relu_network([("z", phi, "x")], [unit()], [0.0, 1.0])
        assert prove(network, target, eps=10.0).status is Status.UNDECIDED
    net = mlp("chain")
    labels = net.network.labels
    assert labels is not None
    first, last = labels.coordinates[0], labels.coordinates[-1]
    for rows in (
        (dataclasses.replace(first, phi=last.phi), *labels.coordinates[1:-1], dataclasses.replace(last, phi=first.phi)),
        (dataclasses.replace(first, slope=first.slope + 0.25), *labels.coordinates[1:]),
        labels.coordinates[:-1],
    ):
        forged = dataclasses.replace(net.network, labels=Labels(labels.program, tuple(rows)))
        assert prove(forged, net.target, eps=TARGETS["chain"][2]).status in (Status.REFUTED, Status.UNDECIDED)


def test_several_blocks_for_one_coordinate_and_no_labels_are_undecided() -> None:
    target = Function.read("relu(x)", Box.parse("x=-1:1"))
    pair = [unit(value=0.5), ReluBlock("other", unit(value=0.5).axis, np.array([[0.5]]), ("z",))]
    certificate = prove(relu_network([("z", "relu(x)", "x")], pair, [0.0, 1.0]), target, eps=1.0)
    assert certificate.status is Status.UNDECIDED and "several blocks" in str(certificate.reason)
    bare = dataclasses.replace(relu_network([("z", "relu(x)", "x")], [unit()], [0.0, 1.0]), labels=None)
    certificate = prove(bare, target, eps=1.0)
    assert certificate.status is Status.UNDECIDED and "MLP" in str(certificate.reason)


# ---------------------------------------------------------------- polynomials


def random_curve(rng: np.random.Generator) -> tuple[ChebyshevCurve, Graph]:
    """Coefficients that decay or do not, of degrees up to 150, and the same polynomial as a graph."""
    low = float(rng.choice([0.1, rng.normal(), 1e3 * rng.normal()]))
    high = low + float(10 ** rng.uniform(-4, 2))
    n = int(rng.choice([1, 2, 3, 20, 151]))
    c = rng.normal(size=n) * float(rng.uniform(0.6, 1.0)) ** np.arange(n) * 10 ** rng.uniform(-3, 3)
    return ChebyshevCurve(c, low, high), polynomial_graph(c, low, high)


@pytest.mark.parametrize("seed", range(4))
def test_values_and_curvatures_of_a_polynomial_are_enclosed_and_narrow(seed: int) -> None:
    """On both sides: nothing of the polynomial lies outside, and at an ulp's width hardly anything else is inside."""
    rng = np.random.default_rng(seed)
    for _ in range(8):
        curve, graph = random_curve(rng)
        ends = np.sort(np.clip(rng.uniform(curve.low, curve.high, (2, 6)), curve.low, curve.high), axis=0)
        ends[1] = ends[0] + (ends[1] - ends[0]) * 10 ** rng.uniform(-8, 0, 6)
        ends[0, 0], ends[1, 1] = curve.low, curve.high
        least, most = curve.curvatures(ends[0], ends[1])
        size = float(np.abs(curve.coefficients).sum())
        narrow = size * len(curve.coefficients) ** 4 * (2 / (curve.high - curve.low)) ** 2 * 1e-6
        with precision(300), series_length(3):
            for i, (a, b) in enumerate(ends.T.tolist()):
                for u in np.clip([a, b, *rng.uniform(a, b, 5)], a, b).tolist():
                    algebra = SeriesAlgebra(3)
                    value, _, half = algebra.coefficients(run(graph, algebra, {"u": algebra.variable(arb(u))})[0])
                    assert 2 * half >= arb(least[i]) and 2 * half <= arb(most[i])
                    assert curve.at(np.array([u]))[0].contains(value)
                    assert curve.over(np.array([a]), np.array([b]))[0].contains(value)
                    assert float(curve.at(np.array([u]))[0].rad()) <= 1e-11 * size + 1e-290
        _, tops = curve.curvatures(ends[0], ends[0])
        bottoms, _ = curve.curvatures(ends[0], ends[0])
        assert (tops - bottoms <= narrow + 1e-280).all()


@pytest.mark.parametrize("seed", range(3))
def test_no_point_of_a_polynomial_is_above_the_bound_by_its_curve(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    for _ in range(6):
        curve, graph = random_curve(rng)
        low, high = curve.low, curve.high
        line, places = random_line(rng, low, high)
        bound = pieces_of_curve(line, curve, low, high, 1e-9)
        x = np.clip(np.concatenate([rng.uniform(low, high, 20), places, [low, high]]), low, high)
        with precision(300):
            assert all(error_at(line, graph, float(v)).lower() <= arb(bound.high) for v in x)
            assert bound.witness is not None
            assert error_at(line, graph, float(bound.witness[0])).upper() >= arb(bound.low)
        assert bound.high <= 1.03 * bound.low + 1.1e-9 + 8 * curve.resolution


def test_a_proof_of_a_polynomial_has_a_budget_of_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces times terms: a search that stops there returns a larger bound, and still a bound."""
    c = np.random.default_rng(0).normal(size=80)
    curve, graph = ChebyshevCurve(c, 0.0, 1.0), polynomial_graph(c, 0.0, 1.0)
    line = BrokenLine(0.0, 0.0, 1.0, 0.0, np.ones(1), np.array([-0.5]), np.ones(1))
    free = pieces_of_curve(line, curve, 0.0, 1.0, 0.0)
    seen = 0
    inner = ChebyshevCurve.curvatures

    def counting(self: ChebyshevCurve, left: Array, right: Array) -> tuple[Array, Array]:
        nonlocal seen
        seen += len(left)
        return inner(self, left, right)

    monkeypatch.setattr(ChebyshevCurve, "curvatures", counting)
    monkeypatch.setattr("attnfun.certify.chebyshev_curve._WORK", 80 * 100)
    short = pieces_of_curve(line, curve, 0.0, 1.0, 0.0)
    assert seen <= 100 and short.high > free.high
    with precision(200):
        assert error_at(line, graph, float(free.witness[0])).lower() <= arb(short.high)
