"""relu_network: MLPs of torch as attention, proved, hunted, forged and spoilt."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import attnfun as af
from attnfun.certify import Status
from attnfun.errors import Infeasible
from attnfun.kinds.function.build.relu_network import INTERPOLATION, relu_fit
from attnfun.kinds.function.prove import prove
from attnfun.kinds.function.view import Approximant
from attnfun.language.domain import Box
from attnfun.language.relu_ranges import ReluRanges
from attnfun.network import Label, Labels, Network
from certify.hunting import Array

nn = torch.nn
torch.set_num_threads(1)


def mlp(sizes: tuple[int, ...], hard: bool = False, seed: int = 3) -> torch.nn.Sequential:
    """torch's own initialisation, or N(0, 1)/√(fan in) for weights and biases."""
    torch.manual_seed(seed)
    layers: list[torch.nn.Module] = []
    for a, b in pairwise(sizes):
        linear = nn.Linear(a, b)
        if hard:
            nn.init.normal_(linear.weight, std=a**-0.5)
            nn.init.normal_(linear.bias, std=a**-0.5)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@cache
def compiled(sizes: tuple[int, ...], eps: float, hard: bool, dtype: str, method: str = "auto") -> Approximant:
    return af.compile(mlp(sizes, hard), (-1, 1), eps, dtype=dtype, method=method)


def errors(ours: torch.nn.Module, dtype: str, module: torch.nn.Module, X: Array) -> Array:
    """Our network in torch, through attention, against the MLP itself in float64."""
    with torch.no_grad():
        seen = ours(torch.tensor(X, dtype=getattr(torch, dtype))).double().numpy().reshape(len(X), -1)
        true = module.double()(torch.tensor(X)).numpy()
    return np.asarray(np.abs(seen - true).max(axis=1))


def worst(net: Approximant, module: torch.nn.Module) -> float:
    """Random points, corners and edges, then a local search from the worst of them."""
    rng, box = np.random.default_rng(1), net.target.box
    ours, dtype = net.to_torch(), net.network.dtype
    X = box.probe(3000, rng)
    X = X[np.argsort(errors(ours, dtype, module, X))[-30:]]
    step = 0.1
    for _ in range(30):
        moves = step * rng.standard_normal((300, box.dim)) * (rng.random((300, box.dim)) < 0.5)
        Y = np.clip(np.repeat(X, 10, axis=0) + moves, box.low_array, box.high_array)
        X = np.concatenate([X, Y])
        X = X[np.argsort(errors(ours, dtype, module, X))[-30:]]
        step *= 0.8
    return float(errors(ours, dtype, module, X).max())


CASES = [
    ((3, 8, 2), 1e-3, True, "float64"),
    ((2, 4, 1), 1e-3, True, "float32"),
    ((2, 4, 3, 2), 1e-3, True, "float64"),
    pytest.param((3, 8, 2), 1e-3, False, "float64", marks=pytest.mark.slow),
    pytest.param((3, 8, 2), 1e-3, True, "float32", marks=pytest.mark.slow),
    pytest.param((8, 32, 32, 1), 1e-2, False, "float64", marks=pytest.mark.slow),
    pytest.param((8, 32, 32, 1), 1e-2, True, "float64", marks=pytest.mark.slow),
    pytest.param((8, 32, 32, 1), 1e-2, True, "float32", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("sizes", "eps", "hard", "dtype"), CASES)
def test_an_mlp_is_proved_and_torch_agrees(sizes: tuple[int, ...], eps: float, hard: bool, dtype: str) -> None:
    net = compiled(sizes, eps, hard, dtype)
    low, high = net.certificate.error
    assert net.certificate.status is Status.PROVED
    assert net.certificate.construction == "relu_network"
    assert high <= eps
    seen = worst(net, mlp(sizes, hard))
    assert seen <= high
    assert low <= seen * 1.2 + 1e-6  # the hunt and the witness are of one size
    units = sum(sizes[1:-1])
    assert net.cost.layers == len(sizes) - 2
    assert net.cost.heads <= units
    if dtype == "float64":
        assert net.cost.keys == 3 * net.cost.heads


def test_a_file_alone_is_proved_and_the_mlp_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    net = compiled((3, 8, 2), 1e-3, True, "float64")
    net.save(path)
    found = af.verify(path)
    assert (found.status, found.error, found.construction) == (Status.PROVED, net.certificate.error, "")
    assert af.verify(path, mlp((3, 8, 2), True)).status is Status.PROVED
    with pytest.raises(af.InvalidRequest):
        af.verify(path, mlp((3, 8, 2), True, seed=4))


@pytest.mark.slow
def test_a_wide_and_a_deep_network() -> None:
    for sizes, eps in (((12, 48, 48, 3), 1e-2), ((3, *(6,) * 15, 1), 1e-2)):
        net = af.compile(mlp(sizes, hard=True), (-1, 1), eps, method="relu_network")
        assert net.certificate.status is Status.PROVED
        assert worst(net, mlp(sizes, hard=True)) <= net.certificate.error[1]


def test_units_that_keep_their_sign_have_no_head() -> None:
    module = mlp((4, 12, 12, 2), hard=True)
    centre = np.random.default_rng(0).uniform(-1, 1, 4)
    box = [(float(c - 0.1), float(c + 0.1)) for c in centre]
    net = af.compile(module, box, 1e-5)
    ranges = ReluRanges.of(net.target.graph, net.target.box)
    assert ranges is not None
    changing = sum(ranges.sign(unit.argument) == 0 for unit in ranges.network.units)
    assert 0 < net.cost.heads <= changing < 24
    assert worst(net, module) <= net.certificate.error[1]


def test_outputs_share_units_and_dead_ones_vanish() -> None:
    module = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [0.5, 0.5]]))
        module[0].bias.copy_(torch.tensor([0.0, 0.0, 0.25, -3.0]))  # equal, equal, its own, dead
        module[2].weight.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 0.0, -1.0, 5.0], [0.0, 1.0, 1.0, 1.0]]))
    net = af.compile(module, (-1, 1), 1e-6, method="relu_network")
    assert net.cost.heads == 2
    assert worst(net, module) <= net.certificate.error[1]


def test_expressions_of_relu_reach_it_too() -> None:
    net = af.compile("relu(x - y) - 2*relu(relu(x) + y/3 - 0.2)", "x=-1:1;y=-1:1", 1e-5, method="relu_network")
    assert (net.cost.layers, net.cost.heads, net.cost.keys) == (2, 3, 9)
    for target in ("sin(x)", "x", "relu(x)*y", "abs(x)"):
        with pytest.raises(Infeasible, match="relu_network"):
            af.compile(target, "x=-1:1;y=-1:1", 1e-3, method="relu_network")


@pytest.mark.parametrize("eps", [0.3, 1e-2, 1e-4, 1e-7])
def test_one_unit_takes_three_keys_whatever_the_tolerance(eps: float) -> None:
    for low, high in ((-1.0, 1.0), (-0.3, 5.0), (-1e4, 2e3), (-1e-6, 3e-6)):
        scale = max(-low, high)
        fit = relu_fit(low, high, eps * scale, "float64")
        u = np.concatenate([np.linspace(low, high, 20_001), np.geomspace(1e-12, 1, 4001) * high, [low, 0.0]])
        assert np.abs(fit(u) - np.maximum(u, 0)).max() <= eps * scale
        assert fit.keys <= 3


def test_interpolation_has_the_rate_that_the_story_tells() -> None:
    """The published grid, one head of p points per unit: errors fall like 1/p and stay below Σ|W₂| C B/(p − 1)."""
    module = mlp((3, 8, 2)).double()
    first, second = (m.weight.detach().numpy() for m in (module[0], module[2]))
    bias = module[0].bias.detach().numpy()
    X = Box.parse("x=-1:1;y=-1:1;z=-1:1").probe(4000, np.random.default_rng(0))
    Z = X @ first.T + bias
    reach = np.abs(first).sum(axis=1) + np.abs(bias)
    found = []
    for p in (16, 64, 256):
        off = np.zeros_like(Z)
        for j, b in enumerate(reach):
            t = np.linspace(0, b, p)
            logits = -2.725 * ((Z[:, j : j + 1] - t) / (t[1] - t[0])) ** 2
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            off[:, j] = weights @ t / weights.sum(axis=1) - np.maximum(Z[:, j], 0)
        error = float(np.abs(off @ second.T).max())
        assert error <= float((np.abs(second) @ reach).max()) * INTERPOLATION / (p - 1)
        found.append(error)
    for coarse, fine in pairwise(found):
        assert 3.2 < coarse / fine < 5.2
    story = compiled((3, 8, 2), 1e-3, True, "float64").story["published"]
    assert "interpolation" in story
    assert int("".join(c for c in story.split("take")[1] if c.isdigit())) > 20 * 24


# ---------------------------------------------------------------- attacks on the checker


def spoilt(network: Network, rng: np.random.Generator, size: float) -> Network:
    """The network with one array of weights off by a relative `size` in one entry."""
    number = int(rng.integers(len(network.layers)))
    layer = network.layers[number]
    place = int(rng.integers(len(layer.heads)))
    head = layer.heads[place]
    axis = head.axes[0]
    which = int(rng.integers(5))
    arrays = [head.values.copy(), axis.slopes.copy(), axis.biases.copy(), axis.query.copy(), axis.offset.copy()]
    flat = arrays[which].reshape(-1)
    at = int(rng.integers(len(flat)))
    flat[at] = flat[at] * (1 + size) + size * (flat[at] == 0)
    axis = replace(axis, slopes=arrays[1], biases=arrays[2], query=arrays[3], offset=arrays[4])
    heads = list(layer.heads)
    heads[place] = replace(head, axes=(axis,), values=arrays[0])
    layers = list(network.layers)
    layers[number] = replace(layer, heads=tuple(heads))
    return replace(network, layers=tuple(layers))


@pytest.mark.parametrize("seed", range(4))
def test_bounds_hold_for_spoilt_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = mlp((2, 3, 2, 1), hard=True)
    net = compiled((2, 3, 2, 1), 1e-2, True, "float64", "relu_network")
    for size in (1e-9, 1e-3, 0.1, 3.0):
        network = spoilt(net.network, rng, size)
        certificate = prove(network, net.target, eps=1e3)
        if certificate.status is not Status.PROVED:
            continue
        other = Approximant(net.target, network, certificate, {}, {})
        assert worst(other, module) <= certificate.error[1]


def test_a_unit_that_changes_sign_is_never_taken_for_affine() -> None:
    """Heads left out, and the labels with them: the unit is read as affine only if it is."""
    net = compiled((2, 4, 3, 2), 1e-3, True, "float64", "relu_network")
    network = net.network
    assert network.labels is not None
    last = network.layers[-1]
    for drop in range(len(last.heads)):
        gone = last.heads[drop].writes[0]
        heads = tuple(h for i, h in enumerate(last.heads) if i != drop)
        keep = [k for k, n in enumerate(network.coordinates) if n != gone]
        labels = Labels(network.labels.program, tuple(c for c in network.labels.coordinates if c.name != gone))
        forged = replace(
            network,
            layers=(*network.layers[:-1], replace(last, heads=heads)),
            readout=network.readout[:, keep],
            labels=labels,
        )
        certificate = prove(forged, net.target, eps=1e-3)
        assert certificate.status is not Status.PROVED


def test_labels_of_another_unit_or_another_network_are_not_proved() -> None:
    net = compiled((2, 4, 3, 2), 1e-3, True, "float64", "relu_network")
    labels = net.network.labels
    assert labels is not None
    first, second = labels.coordinates[:2]
    swapped = (replace(second, name=first.name), replace(first, name=second.name), *labels.coordinates[2:])
    forged: list[tuple[Label, ...]] = [
        swapped,
        (replace(first, slope=first.slope + 0.1), *labels.coordinates[1:]),
        (replace(first, offset=first.offset + 0.1), *labels.coordinates[1:]),
        labels.coordinates[1:],
    ]
    for coordinates in forged:
        network = replace(net.network, labels=Labels(labels.program, coordinates))
        assert prove(network, net.target, eps=1e-3).status is not Status.PROVED
    module = mlp((2, 4, 3, 2), hard=True)
    with torch.no_grad():
        module[2].weight[1, 1] += 1e-3
    other = af.compile(module, (-1, 1), 1e-3, method="relu_network")
    certificate = prove(net.network, other.target, eps=math.inf)
    assert certificate.status is not Status.PROVED or certificate.error[1] >= worst(net, module)
