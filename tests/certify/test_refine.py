"""Local refinement: its claim on every sub-box holds at the points of that sub-box, for good and for spoilt weights."""

from __future__ import annotations

import dataclasses
from functools import cache
from itertools import product

import numpy as np
import pytest
from flint import arb

import attnfun as af
from attnfun.certify import Status
from attnfun.certify import composition as module
from attnfun.certify.composition import Composition
from attnfun.certify.refine import LocalStep, Refinement, fewer_variables
from attnfun.certify.witness import outputs_at
from attnfun.kinds.function.prove import prove
from attnfun.language import BallAlgebra, precision, run
from attnfun.language.enclosures import abs_lower
from attnfun.language.function import Function
from attnfun.network import Network
from certify.hunting import Array, assert_sound, with_arrays
from products import few

TARGETS = {
    "bumps": ("0.75*exp(-((9*x-2)**2+(9*y-2)**2)/4) - 0.2*exp(-(9*x-4)**2-(9*y-7)**2)", "x=0:1;y=0:1", 1e-5),
    "quotient": ("exp(-((a-b)/s)**2/2)/s", "a=1:3;b=1:3;s=1:3", 1e-5),
    "norm": ("sqrt((a-b)**2 + (c-d)**2)", "a=0:1;b=0:1;c=0:2;d=0:1", 1e-4),
    "kinks": ("exp(-abs(x-0.3) - 2*abs(y-0.7))", "x=0:1;y=0:1", 1e-4),
    "arc": ("asin(x*sin(y))", "x=0:1;y=1:5", 1e-3),
    "two outputs": (["x*y", "sin(x*y)/(2 + y)"], "x=-1:1;y=-1:1", 1e-5),
    "affine beside": ("x*y + 1000*x - z", "x=-1:1;y=-1:1;z=0:1", 1e-5),
}


@cache
def compiled(name: str) -> tuple[Network, Function]:
    target, domain, eps = TARGETS[name]
    net = af.compile(target, domain, eps, method="compose")
    return net.network, net.target


def field_of(network: Network, function: Function, monkeypatch: pytest.MonkeyPatch) -> Refinement | None:
    """The refinement that a proof of `network` makes, in the inputs themselves; None where there is no proof."""
    made: list[Refinement] = []

    def keep(*args: object) -> Refinement:
        made.append(Refinement(*args))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(module, "_SLACK", 0.0)
    monkeypatch.setattr(module, "Refinement", keep)
    monkeypatch.setattr("attnfun.certify.refine.fewer_variables", lambda steps, box: (steps, box))
    search = Refinement.search
    monkeypatch.setattr(Refinement, "search", lambda self, goal: search(self, goal, 1))
    certificate = prove(network, function)
    assert (certificate.status is Status.BOUNDED) == bool(made), certificate.reason
    return made[0] if made else None


def least_errors(network: Network, function: Function, X: Array) -> Array:
    """What the error is at least, at each point, by balls, however the network is computed."""
    assert function.graph is not None
    out = []
    with precision(128):
        for x in X:
            env = {n: arb(float(v)) for n, v in zip(function.box.names, x, strict=True)}
            f = run(function.graph, BallAlgebra(clip_sqrt=True), env)
            out.append(max(abs_lower(a - b) for a, b in zip(f, outputs_at(network, x), strict=True)))
    return np.array(out)


def spoilt(network: Network, size: float, rng: np.random.Generator) -> Network:
    """One weight of one head off by a relative `size`, labels kept."""
    names = [name for name, array in network.arrays() if name.startswith("layer") and array.any()]
    arrays = dict(network.arrays())
    name = names[rng.integers(len(names))]
    changed = arrays[name].copy()
    at = tuple(rng.integers(n) for n in changed.shape)
    changed[at] = changed[at] * (1 + size) + size * 1e-3
    return dataclasses.replace(with_arrays(network, {name: changed}), labels=network.labels)


def assert_local(field: Refinement, network: Network, function: Function, rng: np.random.Generator) -> float:
    """Points, and boxes around them of many sizes, anywhere and at the edges; returns how close a claim came."""
    box = function.box
    X = box.probe(50, rng)
    true = least_errors(network, function, X)
    closest = 0.0
    for size in (0.0, 1e-12, 1e-6, 1e-3, 0.03, 0.3, 1.0):
        below = size * rng.random(X.shape) * (box.high_array - box.low_array)
        above = size * rng.random(X.shape) * (box.high_array - box.low_array)
        low, high = np.maximum(X - below, box.low_array), np.minimum(X + above, box.high_array)
        plain, computed = field.errors(low, high)
        assert (computed >= true).all(), (size, X[np.argmin(computed - true)])
        assert (plain <= computed * (1 + 1e-9)).all()
        closest = max(closest, float(np.max(true / np.maximum(computed, 1e-300))))
    return closest


@pytest.mark.parametrize("name", few(TARGETS, 3))
def test_every_sub_box_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, function = compiled(name)
    field = field_of(network, function, monkeypatch)
    assert field is not None
    closest = assert_local(field, network, function, np.random.default_rng(1))
    assert closest > 0.3  # the claims are sharp somewhere, so that the test could fail


@pytest.mark.parametrize(("name", "size"), few(product(["bumps", "quotient", "norm", "kinks"], [1e-9, 1e-5, 1e-2]), 2))
def test_spoilt_weights(name: str, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    network, function = compiled(name)
    rng = np.random.default_rng(int(-np.log10(size)))
    bad = spoilt(network, size, rng)
    field = field_of(bad, function, monkeypatch)
    if field is not None:
        assert_local(field, bad, function, rng)
    monkeypatch.undo()
    assert_sound(prove(bad, function, eps=TARGETS[name][2]), bad, function)


def test_refined_is_never_above_plain_and_often_half(monkeypatch: pytest.MonkeyPatch) -> None:
    network, function = compiled("bumps")
    local = prove(network, function)
    monkeypatch.setattr(module, "_SLACK", np.inf)
    plain = prove(network, function)
    assert local.error[1] <= plain.error[1] and local.error[0] >= plain.error[0]
    assert local.error[1] < 0.7 * plain.error[1]
    assert local.details["refined"]["plain"] == pytest.approx(plain.error[1], rel=1e-6)


def test_fewer_variables_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """λ t + what is left contains every argument's form of the inputs; t's box contains every t."""
    network, function = compiled("norm")
    proof = Composition(network, function, network.labels)  # type: ignore[arg-type]
    proof.prove(1e-4)
    steps, box = fewer_variables(proof.local, function.box)
    assert box.dim == 2 and all(isinstance(step, LocalStep) for step in steps)
    rng = np.random.default_rng(0)
    both = zip(proof.local, steps, strict=True)
    readers = [(old, new) for old, new in both if set(new.argument.phis) & {*box.names}]
    assert len(readers) >= 2
    with precision(128):
        for x in function.box.probe(50, rng):
            env = {n: arb(float(v)) for n, v in zip(function.box.names, x, strict=True)}
            t: dict[str, arb] = {}
            for old, new in readers:
                value = sum((w * env[n] for n, w in old.argument.phis.items() if n in env), old.argument.meant)
                ((name, scale),) = [(n, w) for n, w in new.argument.phis.items() if n in box.names]
                here = (value - new.argument.meant) / scale
                if name in t:
                    assert here.overlaps(t[name])
                t.setdefault(name, here)
                k = box.names.index(name)
                assert here >= arb(box.low[k]) - arb(1e-300) or here.overlaps(arb(box.low[k]))
                assert here <= arb(box.high[k]) or here.overlaps(arb(box.high[k]))


def test_a_kink_keeps_its_share() -> None:
    """Errors that do peak together are not talked away: both kinks at one point."""
    network, function = compiled("kinks")
    low, high = prove(network, function).error
    assert low <= high and least_errors(network, function, np.array([[0.3, 0.7]]))[0] <= high
