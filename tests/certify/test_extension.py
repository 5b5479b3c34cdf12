"""Targets with removable singularities: no point contradicts a certificate, none near 0 either; no forgery passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status, extension
from attnfun.certify.extension import require_extension, require_same
from attnfun.certify.view import Undecided
from attnfun.errors import AttnfunError
from attnfun.kinds.function.prove import prove
from attnfun.kinds.function.view import Approximant
from attnfun.language import Graph, parse
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.removable import extension_of
from attnfun.network import Labels
from certify.hunting import Array, with_arrays
from products import few

LINE, SQUARE = "x=-1:1", "x=-1:1;y=-1:1"
M = mpmath

# the target, its domain, eps, its method, and the same function in mpmath
TARGETS: dict[str, tuple[str, str, float, str, Callable[..., Any]]] = {
    "sine": ("sin(x)/x", LINE, 1e-6, "auto", lambda x: M.sin(x) / x),
    "sine, as a polynomial": ("sin(x)/x", LINE, 1e-9, "bernstein", lambda x: M.sin(x) / x),
    "sine, from 0 on": ("sin(x)/x", "x=0:12", 1e-4, "tangent", lambda x: M.sin(x) / x),
    "versed sine": ("(1 - cos(x))/x**2", "x=-3:3", 1e-7, "tangent", lambda x: (1 - M.cos(x)) / x**2),
    "Bose": ("x/(exp(x) - 1)", "x=-5:5", 1e-6, "tangent", lambda x: x / (M.exp(x) - 1)),
    "logarithm": ("log1p(x)/x", "x=-0.99:1", 1e-5, "tangent", lambda x: M.log(1 + x) / x),
    "third order": ("(x - sin(x))/x**3", LINE, 1e-8, "compose", lambda x: (x - M.sin(x)) / x**3),
    "kink": ("abs(x)*sin(x)/x", LINE, 1e-4, "compose", lambda x: abs(x) * M.sin(x) / x),
    "cells": ("tanh(x)/x", LINE, 2e-2, "partition", lambda x: M.tanh(x) / x),
    "factor": ("(sin(x)/x)**2*y", "x=-2:2;y=-1:1", 1e-5, "compose", lambda x, y: (M.sin(x) / x) ** 2 * y),
    "composite": ("sin(x*y)/x", SQUARE, 1e-5, "compose", lambda x, y: M.sin(x * y) / x),
    "difference": ("z*(exp(x - y) - 1)/(x - y)", SQUARE + ";z=1:2", 1e-4, "compose",
                   lambda x, y, z: z * M.expm1(x - y) / (x - y)),
    "logarithm of the quotient": ("exp(-z)*(1 - cos(x*y))/(x*y)**2", SQUARE + ";z=0:1", 1e-5, "compose",
                                  lambda x, y, z: M.exp(-z) * (1 - M.cos(x * y)) / (x * y) ** 2),
    "two sines": ("(sin(x) - sin(y))/(x - y)", SQUARE, 1e-5, "compose",
                  lambda x, y: (M.sin(x) - M.sin(y)) / (x - y) if x != y else M.cos(x)),
    "two exponentials, a square": ("(exp(x*x) - exp(y*y))/(x**2 - y**2)", SQUARE, 1e-5, "compose",
                                   lambda x, y: M.exp(y * y) * (M.expm1(x * x - y * y) / (x * x - y * y)
                                                                if x * x != y * y else 1)),
    "a root of a square": ("sqrt(1 - cos(x))", LINE, 1e-6, "tangent", lambda x: M.sqrt(2) * abs(M.sin(x / 2))),
    "a root of a square polynomial": ("sqrt(x**2 - 2*x + 1)", "x=-1:3", 1e-6, "tangent", lambda x: abs(x - 1)),
    "a square under a root": ("sqrt(x**4 + x**2)", LINE, 1e-6, "tangent", lambda x: abs(x) * M.sqrt(x * x + 1)),
    "a root of a cosine": ("sqrt(1 - sin(x)**2)", "x=-2:2", 1e-6, "compose", lambda x: abs(M.cos(x))),
    "a root of a square of two": ("(x**2*y**2)**0.75", SQUARE, 1e-5, "compose", lambda x, y: abs(x * y) ** 1.5),
    "two variables, one head": ("sin(x*y)/(x*y)", SQUARE, 1e-5, "bernstein", lambda x, y: M.sin(x * y) / (x * y)),
}  # fmt: skip
SMALL = [0.0, 5e-324, 1e-300, -1e-300, 1e-30, 1e-12, -1e-12, 1e-8, -1e-8, 1e-5, 1e-3, -1e-3, 0.1]


@cache
def compiled(name: str) -> Approximant:
    text, domain, eps, method, _ = TARGETS[name]
    return af.compile(text, domain, eps, method=method)


def points(box: Box) -> Array:
    """Random ones, corners, and some at and next to the singular sets x = 0, y = 0, x = y."""
    rng = np.random.default_rng(5)
    X = [box.probe(60, rng)]
    for k in range(min(box.dim, 2)):
        near = box.sample(len(SMALL), rng)
        near[:, k] = np.array(SMALL) + (near[:, 1] if k == 0 and box.dim > 2 else 0.0)
        X.append(near)
    both = box.sample(len(SMALL), rng)
    both[:, :2] = np.array(SMALL)[:, None]
    X = np.concatenate([*X, both])
    return np.asarray(X[box.contains(X)])


def truth(function: Callable[..., Any], x: Array) -> Any:
    """The value at a point, or next to it where the formula is 0/0, in mpmath, digits enough for the cancellation."""
    first = [float(v) for v in x[:2]]
    far = min(abs(v) for v in [*first, *np.diff(first)]) > 1e-13  # then at most 52 digits cancel
    with mpmath.workprec(500 if far else 9000):
        exactly = [mpmath.mpf(float(v)) for v in x]
        try:
            return function(*exactly)
        except ZeroDivisionError:
            return function(*(v + mpmath.mpf(10) ** (-400 - 7 * k) for k, v in enumerate(exactly)))


@pytest.mark.parametrize("name", few(TARGETS, 4))
def test_no_point_at_or_near_the_singularity_contradicts_the_bound(name: str) -> None:
    net = compiled(name)
    assert net.certificate.status is Status.PROVED and net.certificate.error[1] <= TARGETS[name][2]
    X = points(net.target.box)
    out = np.asarray(net(X)).reshape(-1)
    for x, y in zip(X, out, strict=True):
        assert abs(mpmath.mpf(float(y)) - truth(TARGETS[name][4], x)) <= net.certificate.error[1]


@pytest.mark.parametrize("name", few(TARGETS, 5))
def test_the_file_holds_the_expression_and_is_proved_again(name: str, tmp_path: Path) -> None:
    net = compiled(name)
    path = tmp_path / "net.safetensors"
    net.save(path)
    assert af.load(path).target.text == net.target.text == TARGETS[name][0]
    proved = af.verify(path, TARGETS[name][0])
    assert (proved.status, proved.error) == (Status.PROVED, net.certificate.error)


@pytest.mark.parametrize("name", few(["sine", "versed sine", "composite", "factor"], 2))
def test_a_changed_value_is_not_proved(name: str) -> None:
    net = compiled(name)
    for array_name, array in net.network.arrays():
        if array_name.endswith("values"):
            changed = np.array(array)
            changed.reshape(-1)[np.argmax(np.abs(changed))] *= 1.01
            forged = dataclasses.replace(with_arrays(net.network, {array_name: changed}), labels=net.network.labels)
            assert prove(forged, net.target, eps=net.certificate.eps).status is not Status.PROVED


def graph(text: str, domain: str) -> Graph:
    return parse(text, Box.parse(domain).names)


@pytest.mark.parametrize(
    ("claimed", "text", "domain"),
    [
        ("1 + 0*x", "sin(x)/x", LINE),
        ("sin(x)/x", "sin(x)/x", LINE),
        ("cos(x)", "sin(x)/x", LINE),
        ("1*x", "x*log(x)/log(x)", LINE),
    ],
)
def test_a_graph_that_was_not_derived_is_refused(claimed: str, text: str, domain: str) -> None:
    """The plain quotient included: the checker believes its own derivation only."""
    forged = Function(graph(claimed, domain), Box.parse(domain), ("f",), source=graph(text, domain))
    with pytest.raises((Undecided, AttnfunError)):
        require_extension(forged)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("x*log(x)/log(x)", "x=0.5:2"),
        ("sin(x)/x + y", SQUARE),
        ("sqrt(sin(x)/x)", LINE),
        ("sin(x*y)/x/y", SQUARE),
        ("log(x*sin(x)/x**2)", LINE),
        ("(x - y)**3*z/(x - y)", SQUARE + ";z=1:2"),
        ("tan(x)/sin(x)", LINE),
    ],
)
def test_a_true_derivation_passes(text: str, domain: str) -> None:
    function = Function.read(text, Box.parse(domain))
    assert function.source == graph(text, domain)
    require_extension(function)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("relu(x)/relu(x)", LINE),
        ("abs(x)*y/abs(x)", SQUARE),
        ("sin(relu(x))/relu(x)", LINE),
        ("x*log(x)/log(x)", LINE),
        ("x*(x - sqrt(x*x))/(x - sqrt(x*x))", LINE),
        ("x*asin(x)/asin(x)", "x=-2:2"),
        ("sign(x)*sin(x)/x", LINE),
        ("x*sin(x)/(x*(x - 0.5))", LINE),
    ],
)
def test_a_derivation_that_leaves_open_what_the_target_is_does_not_pass(text: str, domain: str) -> None:
    """The derived graph is taken as the target's, without the tests that come before: the proof itself must fail."""
    box = Box.parse(domain)
    derived = extension_of(graph(text, domain), box).graph
    with pytest.raises((Undecided, AttnfunError)):
        require_extension(Function(derived, box, ("f",), source=graph(text, domain)))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("sin(x)/x + 1e-9*x", "sin(x)/x"),
        ("sin(1.000000001*x)/(1.000000001*x)", "sin(x)/x"),
        ("cos(x/2)", "sin(x)/x"),
        ("(1 - cos(x))/x**2", "(1 - cos(x))/(2*x**2)"),
    ],
)
def test_a_wrong_derivation_is_found_by_the_identity(wrong: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box.parse(LINE)
    other = extension_of(graph(wrong, LINE), box).graph if "/x" in wrong or "/(" in wrong else graph(wrong, LINE)

    def dishonest(source: Graph, domain: Box) -> Any:
        honest = extension_of(source, domain)
        nodes = (*honest.whole.nodes, *(dataclasses.replace(n, args=tuple(a + len(honest.whole.nodes) for a in n.args))
                                        for n in other.nodes))  # fmt: skip
        first = other.outputs[0] + len(honest.whole.nodes)
        return dataclasses.replace(honest, whole=Graph(nodes, (first, *honest.whole.outputs[1:])))

    monkeypatch.setattr(extension, "extension_of", dishonest)
    claimed = dishonest(graph(text, LINE), box).graph
    with pytest.raises(Undecided):
        require_extension(Function(claimed, box, ("f",), source=graph(text, LINE)))


PROGRAMS = {
    "another scale": "y*sin(1.000000001*x)/(1.000000001*x)",
    "another factor": "(y + 1e-9)*sin(x)/x",
    "another function that touches it": "y*(1 - x**2/6)",
    "undefined at 0": "y*sin(x)/x + 0/x",
    "a jump at 0": "y*sin(x)/x + 1e-9*sign(x)*x/abs(x)",
    "a logarithm at 0": "y*exp(log(x*x)/2)*sin(x)/(x*abs(x))",
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_that_is_not_the_target_everywhere_is_refused(text: str) -> None:
    function = Function.read("y*sin(x)/x", Box.parse(SQUARE))
    with pytest.raises((Undecided, AttnfunError)):
        require_same(graph(text, SQUARE), function)


def test_labels_of_another_program_are_not_believed() -> None:
    net = compiled("factor")
    labels = net.network.labels
    assert labels is not None
    stretched = [
        dataclasses.replace(n, value=3) if n.op == "powi" and n.value == 2 else n for n in labels.program.nodes
    ]
    other = Labels(Graph(tuple(stretched), labels.program.outputs), labels.coordinates)
    certificate = prove(dataclasses.replace(net.network, labels=other), net.target, eps=net.certificate.eps)
    assert certificate.status is not Status.PROVED


def test_norms_see_the_extension_too() -> None:
    net = af.compile("sin(x)/x", "x=-2:2", 1e-3, norm=2)
    assert net.certificate.status is Status.PROVED and net(np.zeros((1, 1)))[0] == pytest.approx(1.0, abs=0.05)
