"""Method jumps: bounds in L^p and off bands hold near the surface, no measure is too small, no forgery is proved."""

from __future__ import annotations

import contextlib
import csv
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.composition import Composition, prove_by_composition
from attnfun.certify.jumps import Bands
from attnfun.certify.staircase import prove_staircase
from attnfun.certify.view import HeadView, LineAxis, Undecided
from attnfun.cli import main
from attnfun.errors import AttnfunError, DamagedFile, Infeasible, InvalidRequest
from attnfun.kinds.function.prove import prove
from attnfun.kinds.function.view import Approximant
from attnfun.language import parse, precision
from attnfun.language.arrays import values_at
from attnfun.language.function import Function
from attnfun.network import Axis, Head, Network, evaluate
from certify.hunting import BOUNDS, errors
from products import few

Array = np.ndarray[Any, np.dtype[np.float64]]
SQUARE = "x=-1:1;y=-1:1"
DISC = "x=-1.5:1.5;y=-1.5:1.5"
MEAN: dict[str, tuple[str, str, float, float]] = {  # target, domain, p, eps
    "step": ("sign(x - 0.3)", "x=-1:1", 2, 1e-3),
    "step in L^4": ("sign(x - 0.3)", "x=-1:1", 4, 2e-3),
    "oblique": ("sign(x + y - 0.3)*exp(x)", SQUARE, 2, 5e-3),
    "disc": ("(1 + sign(1 - x**2 - y**2))/2", DISC, 2, 1e-3),
    "ellipse in L^1": ("sign(1 - x**2/4 - 2*y**2)", "x=-3:3;y=-1:1", 1, 1e-3),
    "checker": ("sign(sin(3*x)*sin(3*y))", SQUARE, 2, 2e-3),
    "inside": ("exp(sign(x)*y)", SQUARE, 2, 2e-3),
    "nested": ("sign(x + sign(y)/2)", SQUARE, 1, 1e-3),
    "a jump at the end of the box": ("sign(sin(6*x))*exp(-x)", "x=0:3", 2, 2e-3),
    "large beside eps": ("1e6*where(x > 0.1, y, 0)", "x=-1:1;y=0:1", 2, 1e3),
    "and, or": ("where((x > 0.2 and y > -0.1) or x**2 + y**2 < 0.2, x*y + 1, 0)", SQUARE, 2, 2e-3),
    "whole numbers": ("floor(3*x) + (x*y) % 1", "x=0:1;y=0:2", 2, 2e-3),
    "heights": ("2*sign(x - 0.5) - 3*sign(y + x/4) + x*y", SQUARE, 1.5, 5e-3),
}
BANDS: dict[str, tuple[str, str, float, float]] = {  # target, domain, band, eps
    "step": ("sign(x - 0.3)", "x=-1:1", 1e-3, 1e-6),
    "oblique": ("sign(x + y - 0.3)*exp(x)", SQUARE, 1e-6, 1e-4),
    "disc": ("(1 + sign(1 - x**2 - y**2))/2", DISC, 1e-4, 1e-6),
    "steps of a sine": ("sign(sin(3*x)) + y**2", "x=-2:2;y=-1:1", 1e-2, 1e-5),
    "nested": ("sign(x + sign(y)/2)", SQUARE, 1e-3, 1e-6),
    "floor": ("floor(4*x) + y**2", "x=0:1;y=-1:1", 1e-3, 1e-6),
    "region": ("where(x**2 + y**2 < 1 and y > x/2, exp(x), 0)", DISC, 1e-4, 1e-5),
}


@cache
def mean(name: str) -> Approximant:
    target, domain, p, eps = MEAN[name]
    return af.compile(target, domain, eps, norm=p, method="compose")


@cache
def off_band(name: str) -> Approximant:
    target, domain, band, eps = BANDS[name]
    return af.compile(target, domain, eps, band=band)


def along_lines(network: Network, target: Function, p: float, lines: int = 60, seed: int = 0) -> float:
    """The normalised L^p norm of the error on a grid of lines along each axis in turn, meshed ever more finely towards
    the zeros of all arguments of signs; the smallest over the axes, so that what it misses makes it smaller.
    """
    box, rng, found = target.box, np.random.default_rng(seed), []
    for axis in range(box.dim):
        a, b = box.low[axis], box.high[axis]
        count = lines if box.dim > 1 else 1
        total = 0.0
        for i in range(count):
            base = box.low_array + (box.high_array - box.low_array) * rng.random(box.dim)
            other = (axis + 1) % box.dim
            if box.dim > 1:
                base[other] = box.low[other] + (box.high[other] - box.low[other]) * (i + 0.5) / count

            def at(t: Array, base: Array = base, axis: int = axis) -> Array:
                X = np.repeat(base[None], len(t), axis=0)
                X[:, axis] = t
                return X

            t = np.linspace(a, b, 801)
            grid = [t]
            for argument in target.arguments:
                u = values_at(argument, box.names, at(t))[:, 0]
                for k in np.flatnonzero(np.sign(u[:-1]) != np.sign(u[1:])):
                    left, right = t[k], t[k + 1]
                    for _ in range(60):
                        middle = left + (right - left) / 2
                        same = np.sign(values_at(argument, box.names, at(np.array([middle])))[0, 0]) == np.sign(u[k])
                        left, right = (middle, right) if same else (left, middle)
                    h = (b - a) * 0.5 ** np.arange(2, 52, 0.25)
                    grid += [left - h, right + h, np.array([left, right])]
            s = np.unique(np.clip(np.concatenate(grid), a, b))
            e = np.max(np.abs(evaluate(network, at(s)) - target.values(at(s))), axis=1) ** p
            total += float(np.sum((e[1:] + e[:-1]) / 2 * np.diff(s))) / (b - a) / count
        found.append(total ** (1 / p))
    return min(found)


def spoilt(network: Network, change: Any) -> Network:
    """Its steepest head changed."""
    steep = max(
        (float(np.abs(a.slopes).max()), h.name) for layer in network.layers for h in layer.heads for a in h.axes
    )
    layers = []
    for layer in network.layers:
        layers.append(replace(layer, heads=tuple(change(h) if h.name == steep[1] else h for h in layer.heads)))
    return replace(network, layers=tuple(layers))


def steeper(factor: float) -> Any:
    def change(head: Head) -> Head:
        axes = tuple(Axis(a.query, a.offset, a.slopes * factor, a.biases * factor) for a in head.axes)
        return replace(head, axes=axes)

    return change


def moved(by: float) -> Any:
    def change(head: Head) -> Head:
        return replace(head, axes=tuple(replace(a, offset=a.offset + by) for a in head.axes))

    return change


def taller(factor: float) -> Any:
    return lambda head: replace(head, values=head.values * factor)


# ---------------------------------------------------------------- L^p


@pytest.mark.parametrize("name", few(list(MEAN), 5))
def test_the_bound_holds_near_the_surface_too(name: str) -> None:
    net, (_, _, p, eps) = mean(name), MEAN[name]
    assert net.certificate.status is Status.PROVED and net.certificate.error[1] <= eps
    seen = along_lines(net.network, net.target, p)
    assert 0 < seen <= net.certificate.error[1] * (1 + 1e-3)


def test_a_jump_costs_a_few_keys_whatever_eps_is() -> None:
    keys = [af.compile("sign(x - 0.3)", "x=-1:1", eps, norm=2).cost.keys for eps in (1e-1, 1e-3, 1e-6)]
    assert keys == [2, 2, 2]
    assert mean("disc").cost.keys <= 40 and mean("oblique").cost.keys <= 40


@pytest.mark.parametrize("name", few(list(MEAN), 3))
@pytest.mark.parametrize(
    "change", [steeper(0.5), steeper(1e-3), steeper(1e-6), moved(1e-4), moved(-0.03), taller(1.01), taller(-1.0)]
)
def test_spoilt_weights_get_an_honest_bound(name: str, change: Any) -> None:
    net, (_, _, p, eps) = mean(name), MEAN[name]
    network = spoilt(net.network, change)
    certificate = prove(network, net.target, norm=p, eps=eps)
    seen = along_lines(network, net.target, p, lines=30)
    assert seen <= certificate.error[1] * (1 + 1e-3)
    assert certificate.status is not Status.PROVED or seen <= eps


def test_a_head_that_is_not_steep_enough_is_not_proved() -> None:
    net = mean("disc")
    certificate = prove(spoilt(net.network, steeper(1e-5)), net.target, norm=2, eps=1e-3)
    assert certificate.status is Status.UNDECIDED and certificate.error[1] > 1e-2


EXACT = {  # the share of the box where U is in an interval of length w about its level at the jump, for small w
    "step": lambda w: w / 2,
    "oblique": lambda w: 1.7 * w / 4,
    "disc": lambda w: math.pi * w / 9,
    "ellipse in L^1": lambda w: math.pi * math.sqrt(2) * w / 12,
}


@pytest.mark.parametrize("name", list(EXACT))
def test_measures_are_those_of_discs_ellipses_and_strips(name: str) -> None:
    net, p = mean(name), MEAN[name][2]
    bands = measured(net.network, net.target)
    width = sum(b - a for a, b in bands.jumps[0].stairs.walls)
    with precision(64):
        bands.norm(0.0, p, 0.0)
    exact = EXACT[name](width)
    assert exact * (1 - 1e-9) <= bands.measure <= 1.05 * exact


@pytest.mark.parametrize("name", few(list(MEAN), 4))
@pytest.mark.parametrize("factor", [1e-4, 1e-6])
def test_measures_of_wide_walls_hold_on_samples(name: str, factor: float) -> None:
    """In walls as wide as the box's tenth points can be counted."""
    net = mean(name)
    network = spoilt(net.network, steeper(factor))
    bands = measured(network, net.target)
    X = net.target.box.sample(40_000, np.random.default_rng(1))
    inside = np.zeros(len(X), dtype=bool)
    program = Composition(network, net.target, network.labels)
    with precision(128):
        program.prove(math.inf, witnessed=False)
    for jump in bands.jumps:
        argument = program.reading.program.reachable((jump.label.argument,))
        u = values_at(argument, net.target.box.names, X)[:, 0]
        for a, b in jump.stairs.walls:
            inside |= (u >= a) & (u <= b)
    seen = inside.mean()
    with precision(64):
        bands.norm(0.0, 2.0, 0.0)
    assert seen <= bands.measure + 3 * math.sqrt(seen / len(X)) + 1e-9


def measured(network: Network, target: Function) -> Bands:
    assert network.labels is not None
    made = Composition(network, target, network.labels)
    made.prove(1e-3, witnessed=False)
    with precision(64):
        return Bands(made.reading, made.jumps)


def test_two_points_of_a_critical_surface_count_whole_until_they_are_small() -> None:
    """sin(3x) sin(3y) has critical points on its zeros: the measure is still near that of the walls."""
    net = mean("checker")
    found = net.certificate.details["bands"]
    assert 0 < found["measure"] < 1e-5 and found["boxes"] > 50


@pytest.mark.parametrize("seed", few(list(range(12)), 4))
def test_a_step_is_within_its_error_off_its_walls(seed: int) -> None:
    """Any partition against any staircase: U off the walls, û as far from it as allowed."""
    rng = np.random.default_rng(seed)
    g = parse("sign(u - 0.2) + 0.5*sign(u + 0.4) + 0.1*sign(sin(5*u))", ("u",))
    keys = int(rng.integers(2, 6))
    t = np.sort(rng.uniform(-1, 1, keys - 1)) if seed % 3 else np.array([-0.4, 0.2])
    keys, kappa = len(t) + 1, 10 ** rng.uniform(2, 8)
    slopes = kappa * (np.arange(keys) - (keys - 1) / 2)
    biases = np.concatenate([[0.0], -np.cumsum(kappa * t)])
    values = rng.uniform(-2, 2, (keys, 1))
    head = Head("h", (Axis(np.ones((1, 1)), np.zeros(1), slopes[:, None], biases),), values, ("z",))
    line = LineAxis(0, 1.0, 0.0, slopes, biases)
    delta, offset = 10 ** rng.uniform(-9, -2), float(rng.uniform(-1, 1))
    view = HeadView("h", (line,), values, np.ones((1, 1)), head)
    stairs = prove_staircase(line, view, g, offset, (-1.0, 1.0), delta, "float64", 1e-6)
    h = 0.5 ** np.arange(2, 45, 0.5)
    ends = np.array([e for wall in stairs.walls for e in wall])
    U = np.concatenate(
        [rng.uniform(-1, 1, 4000), *(e + s * h for e in ends for s in (-1, 1)), ends - 1e-15, ends + 1e-15]
    )
    off_walls = np.all([(a > U) | (b < U) for a, b in stairs.walls], axis=0)
    U = U[(np.abs(U) <= 1) & off_walls]
    seen = U + delta * rng.uniform(-1, 1, len(U))
    weights = line.weights(seen)
    found = (weights @ values)[:, 0] + offset
    off = np.abs(found - values_at(g, ("u",), U[:, None])[:, 0])
    assert off.max(initial=0.0) <= stairs.own + stairs.rounding + 1e-12
    everywhere = (line.weights(np.linspace(-1, 1, 9001)) @ values)[:, 0] + offset
    assert stairs.ends[0] <= everywhere.min() and everywhere.max() <= stairs.ends[1]


def test_what_is_not_defined_between_the_levels_is_never_proved_by_composition() -> None:
    """The head passes through all values between −1 and 1, and y/(1/2 + s) has a pole among them."""
    net = af.compile("exp(sign(x)*y)", SQUARE, 1e-2, norm=2, method="compose")
    function = Function.on("y/(sign(x) + y/4)", SQUARE)
    assert prove(net.network, function, norm=2, eps=10.0).status is Status.UNDECIDED
    with pytest.raises(AttnfunError):
        af.compile("y/(sign(x - y) + y/4)", SQUARE, 1e-3, norm=2, method="compose")


def test_what_floats_cannot_hold_is_refused_with_what_they_can() -> None:
    with pytest.raises(Infeasible, match="float64") as refused:
        af.compile("sign(x - 0.3)", "x=-1:1", 1e-5, norm=4, method="compose")
    assert refused.value.nearest is not None
    eps = refused.value.nearest["eps"]
    assert af.compile("sign(x - 0.3)", "x=-1:1", eps, norm=4, method="compose").certificate.error[1] <= eps


SHIPPED = (Path(af.__file__).parent / "data" / "suites" / "jumps.csv").read_text("utf-8")
ROWS = {row["name"]: row for row in csv.DictReader(SHIPPED.splitlines())}


@pytest.mark.parametrize("name", few(ROWS, 4))
def test_every_shipped_jump_is_met_at_a_thousandth_of_its_range(name: str) -> None:
    row = ROWS[name]
    net = af.compile(row["formula"], row["domain"], 1e-3, norm=float(row["norm"]), relative=True)
    assert net.certificate.status is Status.PROVED and net.cost.keys <= 60
    assert along_lines(net.network, net.target, float(row["norm"]), lines=20) <= net.certificate.error[1] * (1 + 1e-3)


def test_without_the_walls_nothing_is_said_of_a_program_that_jumps() -> None:
    net = mean("oblique")
    assert net.network.labels is not None
    with pytest.raises(Undecided, match="jumps"):
        prove_by_composition(net.network, net.target, net.network.labels, 1e-3)
    assert prove(net.network, net.target, eps=10.0).status is Status.UNDECIDED


# ---------------------------------------------------------------- bands


def just_off(target: Function, rng: np.random.Generator, count: int = 400) -> Array:
    """Points at which some argument of a sign is the band, up to a few roundings, and points anywhere."""
    box, found = target.box, [target.box.sample(2000, rng)]
    for argument in target.arguments:
        A, B = box.sample(count, rng), box.sample(count, rng)
        for level in (-target.band, target.band):  # type: ignore[operator]
            a, b = (values_at(argument, box.names, X)[:, 0] - level for X in (A, B))
            keep = np.sign(a) * np.sign(b) < 0
            left, right, sign = A[keep], B[keep], np.sign(a[keep])
            for _ in range(60):
                middle = left + (right - left) / 2
                same = np.sign(values_at(argument, box.names, middle)[:, 0] - level) == sign
                left, right = np.where(same[:, None], middle, left), np.where(same[:, None], right, middle)
            found += [left, right, left + (left - right) * 8, right + (right - left) * 8]
    X = np.clip(np.concatenate(found), box.low_array, box.high_array)
    return X[target.off_band(X)]


@pytest.mark.parametrize("name", few(list(BANDS), 4))
def test_the_bound_holds_at_points_just_off_the_band(name: str) -> None:
    net, (_, _, band, eps) = off_band(name), BANDS[name]
    c = net.certificate
    assert c.status is Status.PROVED and c.error[1] <= eps and f"< {band:g}" in c.band
    X = just_off(net.target, np.random.default_rng(2))
    sizes = np.min([np.abs(values_at(a, net.target.box.names, X)[:, 0]) for a in net.target.arguments], axis=0)
    assert np.sum(sizes < band * (1 + 1e-9)) > 20
    assert errors(net.network, net.target, X).max() <= c.error[1] * (1 + 1e-9) + 1e-14
    inside = replace(net.target, band=None)
    assert errors(net.network, inside, inside.box.sample(400_000, np.random.default_rng(3))).max() >= c.error[0]


def test_every_page_of_the_command_line_names_the_band(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "net.safetensors")
    made = ["compile", "sign(x - 0.3)", "--domain", "x=-1:1", "--band", "1e-3", "--eps", "1e-6", "-o", path]
    for words in (made, ["verify", path], ["show", path]):
        with contextlib.suppress(SystemExit):
            main(words)
        assert "off the band |x - 0.3| < 0.001" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["step", "disc"])
def test_the_certificate_names_the_band_and_no_file_hides_it(name: str, tmp_path: Path) -> None:
    net, band, path = off_band(name), BANDS[name][2], tmp_path / "net.safetensors"
    argument = {"step": "x - 0.3", "disc": "1 - x**2 - y**2"}[name]
    net.save(path)
    for certificate in (net.certificate, af.verify(path), af.load(path).certificate):
        assert f"off the band |{argument}| < {band:g} is at most" in certificate.sentence
        assert certificate.to_json()["band"] == f"|{argument}| < {band:g}"
    assert f"off the band |{argument}| < {band:g}" in net.explain() and f"|{argument}| < {band:g}" in repr(net)
    data = path.read_bytes()
    damaged = data.replace(f'\\"band\\":{band!r}'.encode(), f'\\"band\\":{2 * band!r}'.encode())
    assert damaged != data and len(damaged) == len(data)
    path.write_bytes(damaged)
    with pytest.raises(DamagedFile):
        af.verify(path)


def test_a_narrower_band_than_the_walls_is_not_proved() -> None:
    net = off_band("disc")
    for band, status in ((1e-3, Status.PROVED), (1e-9, Status.UNDECIDED), (1e-12, Status.UNDECIDED)):
        assert prove(net.network, replace(net.target, band=band), eps=1e-6).status is status
    whole = prove(net.network, replace(net.target, band=None), eps=1e-6)
    assert whole.status not in BOUNDS
    other = Function.on("(1 + sign(1.001 - x**2 - y**2))/2", DISC).outside(1e-4)
    assert prove(net.network, other, eps=1e-6).status not in BOUNDS


@pytest.mark.parametrize("change", [steeper(1e-3), moved(0.01), taller(1.01)])
def test_spoilt_weights_are_not_proved_off_the_band(change: Any) -> None:
    net = off_band("oblique")
    certificate = prove(spoilt(net.network, change), net.target, eps=1e-4)
    assert certificate.status not in BOUNDS
    if certificate.witness is not None:
        assert net.target.off_band(np.array([certificate.witness])).all()


@pytest.mark.parametrize("target", ["sign(x - 0.3)", "sign(x - y)*y + x", "sign(sin(3*x)*sin(3*y)) + sign(x)"])
def test_a_jump_in_the_sup_norm_is_refused_with_a_band_that_will_do(target: str) -> None:
    with pytest.raises(Infeasible, match="a jump") as refused:
        af.compile(target, SQUARE, 1e-4)
    assert set(refused.value.nearest or {}) == {"band"}
    net = af.compile(target, SQUARE, 1e-4, **(refused.value.nearest or {}))
    assert net.certificate.status is Status.PROVED


def test_a_band_is_for_jumps_in_the_sup_norm() -> None:
    for target, options in (("sin(x)", {}), ("sign(x)", {"norm": 2}), ("sign(x)", {"band": -1.0})):
        with pytest.raises(InvalidRequest, match="band"):
            af.compile(target, "x=-1:1", 1e-3, **{"band": 1e-3, **options})
