"""Pictures of hand-made networks: every number of variables and outputs is drawn, and the bound is where it belongs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnfun.certify.certificate import Certificate, Status
from attnfun.errors import InvalidRequest
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.network.evaluate import evaluate
from attnfun.network.head import Axis, Head
from attnfun.network.network import Layer, Network
from attnfun.plots import draw, figure
from products import few

pytest.importorskip("matplotlib")


@dataclass(frozen=True)
class Drawn:
    network: Network
    target: Function
    certificate: Certificate


def cells(
    expression: str | list[str], domain: str, per_axis: int, sharpness: float = 20.0, norm: float = math.inf
) -> Drawn:
    """A product partition with `per_axis` cells per variable and the target's values at the centres."""
    box = Box.parse(domain)
    target = Function.read(expression, box)
    axes, centres = [], []
    for k in range(box.dim):
        step = (box.high[k] - box.low[k]) / per_axis
        c = box.low[k] + step * (np.arange(per_axis) + 0.5)
        beta = sharpness / step**2
        axes.append(Axis(np.eye(box.dim)[k : k + 1], np.zeros(1), 2 * beta * c[:, None], -beta * c**2))
        centres.append(c)
    X = np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1).reshape(-1, box.dim)
    return finish(
        box,
        target,
        Head("cells", tuple(axes), target.values(X).reshape(*[per_axis] * box.dim, -1), names(target)),
        norm,
    )


def names(target: Function) -> tuple[str, ...]:
    return tuple(f"h{k}" for k in range(len(target.outputs)))


def finish(box: Box, target: Function, head: Head, norm: float = math.inf) -> Drawn:
    p = len(target.outputs)
    readout = np.concatenate([np.zeros((p, box.dim)), np.eye(p)], axis=1)
    ends = box.low_array, box.high_array
    network = Network(box.names, (Layer((head,)),), readout, np.zeros(p), target.outputs, ends)
    X = box.probe(2000, np.random.default_rng(0))
    worst = float(np.abs(np.asarray(evaluate(network, X)).reshape(len(X), -1) - target.values(X)).max())
    certificate = Certificate(
        Status.PROVED, (worst, 1.2 * worst), 1.5 * worst, norm, "float64", "cells", target.text, box.text, "partition"
    )
    return Drawn(network, target, certificate)


def scattered() -> Drawn:
    """One axis with two-dimensional keys: an unstructured head."""
    box = Box.parse("a=-1:1;b=0:2")
    target = Function.read("sin(a)*b", box)
    points = box.sample(60, np.random.default_rng(3))
    axis = Axis(np.eye(2), np.zeros(2), 80 * points, -40 * (points**2).sum(axis=1))
    return finish(box, target, Head("scattered", (axis,), target.values(points), ("h0",)))


def two_layers() -> Drawn:
    """The largest head reads what a first layer wrote."""
    box = Box.parse("x=-1:1")
    target = Function.read("tanh(tanh(x))", box)
    first = Head("tanh", (Axis([[1.0]], [0.0], [[0.0], [2.0]], [0.0, 0.0]),), [[-1.0], [1.0]], ("t",))
    centres = np.linspace(-0.8, 0.8, 30)
    axis = Axis([[0.0, 1.0]], [0.0], 400 * centres[:, None], -200 * centres**2)
    second = Head("cells", (axis,), np.tanh(centres)[:, None], ("u",))
    ends = box.low_array, box.high_array
    network = Network(box.names, (Layer((first,)), Layer((second,))), [[0.0, 0.0, 1.0]], [0.0], target.outputs, ends)
    return Drawn(network, target, Certificate(Status.PROVED, (0.0, 0.1), 0.1, math.inf, "float64", "m", "t", "x=-1:1"))


CASES: dict[str, Callable[[], Drawn]] = {
    "one variable": lambda: cells("sin(3*x)", "x=-1:1", 12),
    "one variable, many cells": lambda: cells("sin(3*x)", "x=-1:1", 500),
    "two outputs": lambda: cells(["sin(x)", "cos(x)"], "x=-1:1", 12),
    "two variables": lambda: cells("sin(x)+cos(y)", "x=-3:3;y=-3:3", 12),
    "three variables, two outputs": lambda: cells(["x*y*z", "x"], "x=0:1;y=0:1;z=0:1", 6),
    "mean norm": lambda: cells("sign(x)", "x=-1:1", 40, norm=2.0),
    "constant": lambda: cells("0*x+1", "x=0:1", 3),
    "unstructured": scattered,
    "two layers": two_layers,
}


@pytest.mark.parametrize("name", few(CASES, 3))
def test_everything_can_be_drawn(name: str, tmp_path: Path) -> None:
    page = figure(CASES[name]())  # laid out, not yet pixels
    assert all(ax.has_data() or ax.texts for ax in page.axes)
    if name == "two layers":
        draw(CASES[name](), tmp_path / "p.png")
        assert (tmp_path / "p.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def panel(picture: Any, start: str) -> Any:
    return next(ax for ax in picture.axes if ax.get_title(loc="left").startswith(start))


def test_the_bound_is_drawn_where_it_was_proved() -> None:
    subject = CASES["one variable"]()
    ax = panel(figure(subject), "Error under its bound")
    dashed = sorted(float(line.get_ydata()[0]) for line in ax.lines if line.get_linestyle() == "--")
    assert dashed == [-subject.certificate.error[1], subject.certificate.error[1]]
    curve = next(line for line in ax.lines if len(line.get_ydata()) > 100)
    assert np.abs(curve.get_ydata()).max() <= subject.certificate.error[1]


def test_axes_carry_the_names_of_the_variables_and_the_title_the_facts() -> None:
    picture = figure(CASES["unstructured"]())
    assert {panel(picture, "The partition").get_xlabel(), panel(picture, "The partition").get_ylabel()} == {"a", "b"}
    assert picture._suptitle.get_text().startswith("sin(a)*b")
    facts = " ".join(text.get_text() for text in picture.texts)
    for word in ("proved", "ε =", "1 head", "60 keys", "parameters"):
        assert word in facts


def test_weights_in_the_attention_panel_sum_to_one() -> None:
    ax = panel(figure(CASES["one variable"]()), "Attention")
    total = sum(line.get_ydata() for line in ax.lines)
    assert np.allclose(total, 1)


def test_a_mean_bound_is_not_shown_as_pointwise() -> None:
    ax = panel(figure(CASES["mean norm"]()), "Error")
    assert any("L^2 mean" in text.get_text() for text in ax.get_legend().get_texts())


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="must end in"):
        draw(CASES["one variable"](), tmp_path / "p.doc")
