"""Tensor heads inside composed networks: bounds hold, forgeries are not proved, computations lie in their balls."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import arb

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.steps import gradient_shifts
from attnfun.certify.view import View
from attnfun.certify.witness import outputs_at
from attnfun.errors import DamagedFile
from attnfun.kinds.function.prove import prove
from attnfun.kinds.function.view import Approximant
from attnfun.language import ArrayAlgebra, parse, precision, run
from attnfun.language.domain import Box
from attnfun.network import Head, Label, Labels, Layer, Network, evaluate, routes
from certify.hunting import assert_sound, with_arrays

TARGETS: dict[str, tuple[str, str, float, str]] = {
    "quotient over a product": ("x*y/(1 + z*w) + sin(w)", "x=-1:1;y=-1:1;z=0:1;w=0:1", 1e-5, "float64"),
    "two in one layer": ("sin(x*y)*z + exp(x*z)", "x=-1:1;y=-1:1;z=-1:1", 1e-4, "float64"),
    "of two norms": ("sqrt(1 + x**2 + y**2)*exp(-z*sqrt(1 + x**2 + y**2))", "x=-1:1;y=-1:1;z=0:1", 1e-3, "float64"),
    "float32": ("cos(x*y)*z + x", "x=-1:1;y=-1:1;z=-1:1", 1e-2, "float32"),
}

QUICK = [pytest.param(name, marks=[pytest.mark.slow] if name == "of two norms" else []) for name in TARGETS]


@cache
def composed(name: str) -> Approximant:
    target, domain, eps, dtype = TARGETS[name]
    return af.compile(target, domain, eps, method="compose", prefer="layers", dtype=dtype)


def tensor_heads(network: Network) -> list[tuple[int, int, Head]]:
    found = []
    for i, layer in enumerate(network.layers):
        found += [(i, j, h) for j, h in enumerate(layer.heads) if isinstance(h, Head) and len(h.axes) > 1]
    return found


def relabelled(network: Network, **change: object) -> Network:
    """The labels of tensor heads changed."""
    assert network.labels is not None
    rows = tuple(
        dataclasses.replace(c, **change) if c.further else c  # type: ignore[arg-type]
        for c in network.labels.coordinates
    )
    return dataclasses.replace(network, labels=Labels(network.labels.program, rows))


@pytest.mark.parametrize("name", QUICK)
def test_a_proved_bound_holds(name: str) -> None:
    net = composed(name)
    assert tensor_heads(net.network)
    assert net.certificate.status is Status.PROVED and net.certificate.method == "composition"
    assert net.certificate.error[1] <= TARGETS[name][2]
    for seed in range(2):
        assert_sound(net.certificate, net.network, net.target, seed=seed)


def test_it_is_chosen_where_layers_are_dear_and_not_where_keys_are() -> None:
    target, domain, eps, _ = TARGETS["quotient over a product"]
    few = af.compile(target, domain, eps, method="compose")
    flat = composed("quotient over a product")
    assert not tensor_heads(few.network)
    assert flat.cost.layers < few.cost.layers and flat.cost.keys > few.cost.keys
    limited = af.compile(target, domain, eps, method="compose", max_layers=flat.cost.layers)
    assert limited.cost.layers <= flat.cost.layers
    thin = af.compile(target, domain, eps, method="compose", prefer="layers", max_rank=2)
    assert thin.cost.rank <= 2 and not tensor_heads(thin.network)


@pytest.mark.parametrize("name", QUICK)
def test_bounds_hold_for_perturbed_weights(name: str) -> None:
    net = composed(name)
    rng = np.random.default_rng(1)
    places = [n for i, j, _ in tensor_heads(net.network) for n, _ in net.network.arrays() if f"layer{i}/head{j}/" in n]
    verdicts = set()
    for size in (1e-12, 1e-5, 1e-2):
        place = places[int(rng.integers(len(places)))]
        array = np.array(dict(net.network.arrays())[place])
        flat = array.reshape(-1)
        k = int(rng.integers(flat.size))
        flat[k] = np.asarray(flat[k] * (1 + size) if flat[k] else size, dtype=net.network.dtype)
        network = dataclasses.replace(with_arrays(net.network, {place: array}), labels=net.network.labels)
        certificate = prove(network, net.target, eps=TARGETS[name][2])
        assert_sound(certificate, network, net.target)
        verdicts.add(certificate.status)
    assert Status.PROVED in verdicts


def test_large_changes_are_not_proved() -> None:
    net = composed("quotient over a product")
    (i, j, head), *_ = tensor_heads(net.network)
    place = f"layer{i}/head{j}/values"
    values = np.array(head.values) + 0.01
    network = dataclasses.replace(with_arrays(net.network, {place: values}), labels=net.network.labels)
    assert prove(network, net.target, eps=1e-5).status in (Status.REFUTED, Status.UNDECIDED)


def test_forged_labels_are_not_proved() -> None:
    net = composed("quotient over a product")
    network, labels = net.network, net.network.labels
    assert labels is not None
    (label,) = [c for c in labels.coordinates if c.further]
    swapped = {"argument": label.further[0], "further": (label.argument, *label.further[1:])}
    forgeries: list[dict[str, object]] = [
        swapped,  # u1/u2 read as u2/u1
        {"further": ()},
        {"further": (label.argument,)},
        {"slope": 1.0},
        {"offset": 1e-3},
        {"phi": labels.program.outputs[0]},
    ]
    for change in forgeries:
        certificate = prove(relabelled(network, **change), net.target, eps=1e-5)
        assert certificate.status in (Status.REFUTED, Status.UNDECIDED), change
    (i, j, head), *_ = tensor_heads(network)
    crossed = dataclasses.replace(head, axes=head.axes[::-1], values=np.moveaxis(head.values, 0, 1))
    heads = list(network.layers[i].heads)
    heads[j] = crossed  # the same function, its axes in another order than the label says
    layers = (*network.layers[:i], Layer(tuple(heads)), *network.layers[i + 1 :])
    other = dataclasses.replace(network, layers=layers)
    X = net.target.box.sample(50, np.random.default_rng(0))
    assert np.abs(evaluate(other, X) - evaluate(network, X)).max() < 1e-10
    assert prove(other, net.target, eps=1e-5).status is not Status.PROVED
    twice = dataclasses.replace(network, layers=(*network.layers[:i], Layer((*heads, head)), *network.layers[i + 1 :]))
    assert prove(twice, net.target, eps=1e-5).status is not Status.PROVED


@pytest.mark.parametrize("offset", [1e300, -1e308, 1.7e308])
def test_arguments_past_every_double_are_refused_and_not_a_crash(offset: float) -> None:
    net = composed("quotient over a product")
    network, labels = net.network, net.network.labels
    assert labels is not None
    for place, row in enumerate(labels.coordinates):
        rows = list(labels.coordinates)
        rows[place] = dataclasses.replace(row, offset=offset)
        forged = dataclasses.replace(network, labels=Labels(labels.program, tuple(rows)))
        assert prove(forged, net.target, eps=1e-5).status is Status.UNDECIDED


@pytest.mark.parametrize("name", ["two in one layer", "float32"])
def test_every_computation_lies_in_the_balls_of_its_rounding(name: str) -> None:
    net = composed(name)
    X = net.target.box.probe(12, np.random.default_rng(5))[-16:]
    forms = [evaluate(net.network, X, route).astype(np.float64) for route in ("auto", *routes(net.network))]
    for form in ("cross", "self"):
        with torch.no_grad():
            forms.append(net.to_torch(form=form)(torch.tensor(X)).double().numpy().reshape(len(X), -1))
    with precision(128):
        for i, x in enumerate(X):
            (value,) = outputs_at(net.network, x)
            assert all(value.contains(arb(float(y[i, 0]))) for y in forms)
            assert float(value.rad()) <= (1e-9 if net.network.dtype == "float64" else 1e-2)


def test_the_file_keeps_all_arguments_and_proves_the_same(tmp_path: Path) -> None:
    net = composed("quotient over a product")
    net.save(tmp_path / "t.safetensors")
    again = af.load(tmp_path / "t.safetensors")
    assert again.network.labels == net.network.labels
    assert af.verify(tmp_path / "t.safetensors").error == net.certificate.error


@pytest.mark.parametrize("row", [["z", 0.0, 0.0, 3], ["z", 1.0, 0.0, 2], ["z", 0.0, 0.0, 1], ["z", 0.0, 0.0, 2, 2]])
def test_rows_that_do_not_fit_are_damage(row: list[object]) -> None:
    graph = parse("x*y", ("x", "y"))
    x, y, phi = 0, 1, graph.outputs[0]
    good = Labels(graph, (Label("z", phi, x, 0.0, 0.0, (y,)),))
    data = good.to_json()
    assert Labels.from_json(data).coordinates[0].further
    data["coordinates"] = [row]
    with pytest.raises(DamagedFile):
        Labels.from_json(data)


@pytest.mark.parametrize("text", ["sin(3*u1)*exp(u2)", "u1/(1.5 + u2)", "u1*u2 + cos(u1 - 2*u2)"])
def test_shifts_are_above_every_change_seen(text: str) -> None:
    names = ("u1", "u2")
    graph, rng = parse(text, names), np.random.default_rng(2)
    box = Box(names, (-1.0, -1.0), (1.0, 1.0))
    seen = View(box.low_array, box.high_array, np.zeros((1, 2)), np.zeros(1), ())
    deltas = (np.array([1e-2, 3e-3]), np.array([0.0, 1e-1]), np.zeros(2))
    found = gradient_shifts(graph, names, seen, deltas)
    assert found[2] == 0
    for delta, bound in zip(deltas[:2], found[:2], strict=True):
        X = box.sample(20000, rng)
        Y = np.clip(X + delta * rng.choice([-1.0, 0.0, 1.0], X.shape), -1, 1)
        at = [np.asarray(run(graph, ArrayAlgebra(), {"u1": Z[:, 0], "u2": Z[:, 1]})[0]) for Z in (X, Y)]
        change = float(np.abs(at[0] - at[1]).max())
        assert 0.6 * bound <= change <= bound


def test_the_picture_and_the_words_know_tensor_heads(tmp_path: Path) -> None:
    net = composed("quotient over a product")
    assert "g(u1, u2)" in net.explain()
    net.plot(tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 10_000
