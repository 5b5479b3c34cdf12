"""Targets made of pieces in the sup norm: no point contradicts a certificate, none on a surface; jumps are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.extension import joined_gap, require_extension
from attnfun.certify.view import Undecided
from attnfun.errors import AttnfunError, DamagedFile, Infeasible, InvalidRequest
from attnfun.kinds.function.prove import prove
from attnfun.language import parse
from attnfun.language.domain import Box
from attnfun.language.function import Function
from certify.hunting import Array
from products import few

where = np.where

# the target, its domain, relative eps, NumPy's own function, and values of the variables at which pieces meet
TARGETS: dict[str, tuple[str, str, float, Callable[..., Any], list[Any]]] = {
    "tent": ("where(x < 0, 1 + x, 1 - x)", "x=-1:1", 1e-6, lambda x: 1 - abs(x), [0.0]),
    "huber": ("where(abs(x) < 1, x**2/2, abs(x) - 0.5)", "x=-3:3", 1e-4,
              lambda x: where(abs(x) < 1, x**2 / 2, abs(x) - 0.5), [-1.0, 1.0]),
    "brackets": ("where(x < 1, 0.1*x, where(x < 3, 0.1 + 0.2*(x - 1), 0.5 + 0.4*(x - 3)))", "x=0:5", 1e-3,
                 lambda x: np.interp(x, [0, 1, 3, 5], [0, 0.1, 0.5, 1.3]), [1.0, 3.0]),
    "triangle": ("abs(x % 2 - 1)", "x=0:7", 1e-3, lambda x: abs(x % 2 - 1), [0.0, 1.0, 2.0, 3.0, 4.0, 6.0]),
    "elu": ("x if x > 0 else exp(x) - 1", "x=-4:4", 1e-4, lambda x: where(x > 0, x, np.expm1(x)), [0.0]),
    "irrational": ("where(sin(x) > 0.5, 0.5, sin(x))", "x=0:6", 1e-3, lambda x: np.minimum(np.sin(x), 0.5),
                   [np.pi / 6, 5 * np.pi / 6]),
    "not everywhere": ("where(x > 1, log(x), 0)", "x=0:4", 1e-3, lambda x: np.log(np.maximum(x, 1)), [1.0]),
    "never": ("where(x < 5, sin(x), log(-x))", "x=0:3", 1e-3, np.sin, [3.0]),
    "removed": ("where(x == 0, 1, sin(x)/x)", "x=-9:9", 1e-3, lambda x: np.sinc(x / np.pi), [0.0]),
    "either": ("where((x < -1) | (x > 1), x**2 - 1, 0)", "x=-2:2", 1e-3,
               lambda x: np.maximum(x * x - 1, 0), [-1.0, 1.0]),
    "radial": ("where(x**2 + y**2 < 1, (x**2 + y**2)/2, sqrt(x**2 + y**2) - 0.5)", "x=-2:2;y=-2:2", 1e-3,
               lambda x, y: where(np.hypot(x, y) < 1, np.hypot(x, y) ** 2 / 2, np.hypot(x, y) - 0.5),
               [(0.6, 0.8), (1.0, 0.0), (-0.8, 0.6)]),
    "oblique": ("where(x < y, x**2, y**2)", "x=-1:1;y=-1:1", 1e-3, lambda x, y: np.minimum(x, y) ** 2,
                [(0.5, 0.5), (-1.0, -1.0), (0.0, 0.0)]),
    "curved": ("where(y > sin(x), y, sin(x))", "x=-3:3;y=-1:1", 1e-3, lambda x, y: np.maximum(y, np.sin(x)),
               [(0.5, np.sin(0.5)), (0.0, 0.0)]),
    "pyramid": ("where((abs(x) < 1) & (abs(y) < 1), (1 - abs(x))*(1 - abs(y)), 0)", "x=-2:2;y=-2:2", 1e-2,
                lambda x, y: np.maximum(1 - abs(x), 0) * np.maximum(1 - abs(y), 0),
                [(1.0, 0.0), (0.0, 0.0), (0.5, -1.0)]),
    "one of two": ("where(x + y > 0, exp(-(x + y)), 1)*cos(x)", "x=-1:1;y=-1:1", 1e-3,
                   lambda x, y: np.exp(-np.maximum(x + y, 0)) * np.cos(x), [(0.5, -0.5), (-1.0, 1.0)]),
}  # fmt: skip


@cache
def compiled(name: str) -> Any:
    text, domain, eps, _, _ = TARGETS[name]
    return af.compile(text, domain=domain, eps=eps, relative=True)


def attacked(box: Box, places: list[Any]) -> Array:
    """Samples, and points ever closer to where the pieces meet."""
    rows = [box.probe(4000, np.random.default_rng(5))]
    for place in places:
        for step in [0.0, *(s * t for t in (1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2) for s in (1, -1))]:
            rows += [np.atleast_2d(np.asarray(place) + step * direction) for direction in np.eye(box.dim)]
    return np.clip(np.concatenate(rows), box.low_array, box.high_array)


@pytest.mark.parametrize("name", few(TARGETS, 8))
def test_no_point_contradicts_the_bound(name: str) -> None:
    net = compiled(name)
    *_, function, places = TARGETS[name]
    X = attacked(net.target.box, places)
    found = np.abs(net(X) - function(*X.T)).max()
    assert net.certificate.status == Status.PROVED
    assert found <= net.certificate.error[1] * (1 + 1e-9) + 1e-13 and net.certificate.error[1] <= net.certificate.eps
    assert net.cost.keys <= 40


@pytest.mark.parametrize("name", few(TARGETS, 3))
def test_a_file_is_proved_again(name: str, tmp_path: Path) -> None:
    net = compiled(name)
    net.save(tmp_path / "f.safetensors")
    assert af.verify(tmp_path / "f.safetensors").error[1] == net.certificate.error[1]
    assert af.load(tmp_path / "f.safetensors").target.text == net.target.text


@pytest.mark.parametrize("seed", few(range(24), 6))
def test_random_continuous_pieces_are_proved_and_hold(seed: int) -> None:
    """Broken lines and parabolas through random knots, as nested choices in random order of writing."""
    rng = np.random.default_rng(seed)
    knots = sorted(rng.choice(np.arange(-11, 12), size=rng.integers(1, 5), replace=False) / 4)
    value, text, bends = float(rng.integers(-2, 3)), "", rng.integers(-2, 3, len(knots) + 1)
    slopes, parts, start = rng.integers(-3, 4, len(knots) + 1), [], -3.0
    for slope, bend, end in zip(slopes, bends, [*knots, 3.0], strict=True):
        parts.append(f"{value} + {slope}*(x - {start}) + {bend}*(x - {start})**2".replace("- -", "+ "))
        value, start = value + slope * (end - start) + bend * (end - start) ** 2, end
    text = f"({parts[-1]})"
    for part, knot in reversed(list(zip(parts, knots, strict=False))):
        below, above = f"({part})", text
        text = [f"where(x < {knot}, {below}, {above})", f"where(x >= {knot}, {above}, {below})",
                f"({below} if not x > {knot} else {above})"][rng.integers(3)]  # fmt: skip
    eps = float(rng.choice([1e-2, 1e-4]))
    net = af.compile(text, domain="x=-3:3", eps=eps)
    X = attacked(net.target.box, list(knots))
    own = np.array(
        [float(eval(text, {"__builtins__": {}, "where": lambda c, a, b: a if c else b}, {"x": x})) for x in X[:, 0]]
    )
    assert np.abs(net(X) - own).max() <= net.certificate.error[1] * (1 + 1e-9) + 1e-12
    assert net.certificate.status == Status.PROVED


@pytest.mark.parametrize(
    ("text", "domain", "told"),
    [
        ("where(x > 0.3, 1, 0)", "x=-1:1", "x=0.3"), ("x % 1", "x=0.2:2.5", "x="),
        ("where(x < 0, 1 + x, 1.01 - x)", "x=-1:1", "x="),
        ("where(x > y, x, 2*y)", "x=-1:1;y=-1:1", "y="), ("where(x**2 + y**2 < 1, 1, 0)", "x=-2:2;y=-2:2", "jump"),
        ("where(x == 0, 5, x)", "x=-1:1", "x = 0"), ("where(x > 0, 1 + x, 5)", "x=0:1", "x = 0"),
        ("where(x == y, 1, x)", "x=-1:1;y=-1:1", "x - y = 0"), ("round(x)", "x=0:1", "jump"),
        ("where(sqrt(x) >= 0, x, 5)", "x=-1:1", "sqrt"), ("where(log(x) > 5, 1, x)", "x=-1:1", "log"),
        ("where(1/x > 2, 1, 1)*x + where(1/x > -9, x, x*x)", "x=-1:1", "denominator"),
        ("where(x > 0, log(x), 0)", "x=-1:1", "where x"),
        ("where(x == 0, 5, sin(x)/x)", "x=-3:3", "x = 0"),
        ("where(x > -0.5, log(x), 0)", "x=-1:1", "log"),
    ],
)  # fmt: skip
def test_what_jumps_is_refused_with_the_place(text: str, domain: str, told: str) -> None:
    with pytest.raises((InvalidRequest, Infeasible)) as caught:
        af.compile(text, domain=domain, eps=1e-3)
    assert told in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_a_gap_is_part_of_the_bound() -> None:
    net = af.compile("where(x**2 < 2, x, 1.4142135623730951)", domain="x=0:3", eps=1e-3)
    gap, parts = joined_gap(net.target, np.inf), net.certificate.parts
    assert 0 < gap < 1e-10
    assert parts["pieces"] == gap and sum(parts.values()) <= net.certificate.error[1]


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("where(x < 0.3, sin(x), 0.2955)", "x=-1:1"), ("where(x < y, x**2, y**2 + 1e-5)", "x=-1:1;y=-1:1"),
        ("where(x < 0, sin(y)**2 + cos(y)**2, 1 + x)", "x=-1:1;y=-1:1"),
        ("where(x < 1.2, 0.84*x, 1.008 + 0.31*(x - 1.1999))", "x=0:3"),
    ],
)  # fmt: skip
def test_small_jumps_are_left_out_and_counted(text: str, domain: str, tmp_path: Path) -> None:
    """Rounded coefficients, and branches that meet by an identity that exact algebra does not know."""
    net = af.compile(text, domain=domain, eps=1e-3)
    X = attacked(net.target.box, [])
    own = eval(
        text,
        {"__builtins__": {}, "where": np.where, "sin": np.sin, "cos": np.cos},
        dict(zip(net.target.box.names, X.T)),
    )
    assert np.abs(net(X) - own).max() <= net.certificate.error[1] * (1 + 1e-9) + 1e-13
    assert 0 < net.certificate.parts["pieces"] <= 5e-4 and net.certificate.status == Status.PROVED
    net.save(tmp_path / "f.safetensors")
    assert af.verify(tmp_path / "f.safetensors").error[1] == net.certificate.error[1]
    with pytest.raises(AttnfunError, match="jump"):
        af.compile(text, domain=domain, eps=1e-7)


def test_a_file_whose_slack_is_no_size_is_refused() -> None:
    data = Function.on("where(x < 0.3, sin(x), 0.2955)", "x=-1:1").loosened(1e-3).to_json()
    assert Function.from_json(data).slack == 1e-3
    for slack in (-1.0, np.inf, np.nan, "1", 1):
        with pytest.raises(DamagedFile):
            Function.from_json({**data, "slack": slack})


def test_another_graph_than_the_joined_one_is_not_believed() -> None:
    net = compiled("tent")
    good = net.target
    require_extension(good)
    for text in ("1 - abs(x)", "min(x, 0) - max(x, 0)", "x"):
        forged = dataclasses.replace(good, graph=parse(text, ["x"]))
        with pytest.raises((Undecided, AttnfunError)):
            require_extension(forged)
        assert prove(net.weights, forged, eps=1e-3).status == Status.UNDECIDED


def test_values_are_those_of_what_was_asked_for() -> None:
    """At a jump, too, where the form with signs has a value of its own."""
    for text in ("where(x > 0.5, 1, 0)", "where(x >= 0.5, 1, 0)", "floor(2*x)", "round(x)"):
        function = Function.on(text, "x=0:2")
        X = np.array([[0.25], [0.5], [1.0], [1.5], [2.0]])
        asked = {"where(x > 0.5, 1, 0)": X > 0.5, "where(x >= 0.5, 1, 0)": X >= 0.5, "floor(2*x)": np.floor(2 * X)}
        assert np.array_equal(function.exact(X), asked.get(text, np.round(X)).astype(float))


def test_a_target_without_pieces_has_no_source() -> None:
    """Also the second time, when what was found for an equal graph is remembered."""
    assert [Function.on("sin(x) + x", "x=-1:1").source for _ in range(2)] == [None, None]
