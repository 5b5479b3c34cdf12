"""interpolation: the published bounds and tables, what the better variants gain, and which targets are such units."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnfun as af
from attnfun.certify.identity import same_function
from attnfun.certify.view import Undecided
from attnfun.kinds.function.build.broken_lines import broken_line
from attnfun.kinds.function.build.unary.grid import VARIANTS, Grid, constant, grid_fit
from attnfun.kinds.function.build.unary.keys import Fit
from attnfun.kinds.function.interpolation import measured_error
from attnfun.language import ArrayAlgebra, Builder, Graph, run
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.ranges import range_of
from attnfun.network import identical
from certify.hunting import assert_sound
from constructions.conformance import agreement
from products import few

SLOW = pytest.mark.slow
SIZES = (8, 16, 32, *(pytest.param(points, marks=SLOW) for points in (64, 128)))
PAIRS = ((6, 1), (6, 2), (6, 4), *(pytest.param(*pair, marks=SLOW) for pair in ((6, 8), (10, 16))))


# ---------------------------------------------------------------- one head of p points, on [-2, 3]


@pytest.mark.parametrize("points", SIZES)
def test_the_published_bound_is_proved_and_attained_by_the_published_points(points: int) -> None:
    """The points leave the end b out, so the error is (b − a)/p; the bound is that and max(|a|, |b|) ε₀."""
    net = af.interpolation(-2, 3, points, variant="published")
    spacing, published = 5 / points, 3e-3 + 5 / points
    low, high = net.certificate.error
    assert net.certificate.status is af.Status.PROVED
    assert net.story["published bound"] == pytest.approx(published)
    assert high <= published
    assert low >= spacing * (1 - 1e-9)
    assert measured_error(net) == pytest.approx(spacing, rel=1e-6)
    assert net.cost.keys == points and net.cost.heads == 1 and net.cost.rank == 2


@pytest.mark.parametrize("points", SIZES)
def test_the_best_temperature_is_proved_below_a_twelfth_of_the_spacing(points: int) -> None:
    net = af.interpolation(-2, 3, points)
    spacing = 5 / (points - 1)
    low, high = net.certificate.error
    assert net.certificate.status is af.Status.PROVED
    assert low <= measured_error(net) * (1 + 1e-12) <= high <= 0.08 * spacing
    assert measured_error(net) == pytest.approx(0.062 * spacing, rel=0.02)


# p, and the sup errors tabled for eps0 = 1e-3: as published, both ends included, at the same temperature
@pytest.mark.parametrize(
    ("points", "published", "inclusive"),
    [
        (8, 0.6250, 0.205),
        (16, 0.3125, 0.099),
        *(pytest.param(*row, marks=SLOW) for row in ((32, 0.1563, 0.050), (64, 0.0781, 0.0252), (128, 0.0391, 0.0128))),
    ],
)
def test_the_table_of_hard_heads(points: int, published: float, inclusive: float) -> None:
    one, other = (af.interpolation(-2, 3, points, variant=v) for v in ("published", "inclusive"))
    assert measured_error(one) == pytest.approx(published, rel=1e-3)
    assert measured_error(other) == pytest.approx(inclusive, rel=0.01)
    for net in (one, other):
        low, high = net.certificate.error
        assert low <= measured_error(net) * (1 + 1e-12) <= high <= 1.07 * measured_error(net)


@pytest.mark.parametrize(("sharpness", "error"), few([(2, 0.120), (3, 0.079), (4, 0.135), (10, 0.303), (30, 0.415)], 2))
def test_errors_at_other_temperatures(sharpness: float, error: float) -> None:
    net = af.interpolation(-2, 3, 64, variant="inclusive", sharpness=sharpness)
    spacing = 5 / 63
    assert measured_error(net) / spacing == pytest.approx(error, abs=1.5e-3)
    assert measured_error(net) <= net.certificate.error[1] <= 1.07 * measured_error(net)


@pytest.mark.parametrize("sharpness", [2.0, 2.5, 2.7, 2.75, 3.0, 4.0])
def test_errors_are_those_of_the_staircase_and_of_the_ends(sharpness: float) -> None:
    """The closed forms: Poisson's for the staircase on an infinite grid, a half-lattice for the end; the cell by an end
    is neither, and up to a hundredth above.
    """
    theta = math.exp(-(math.pi**2) / sharpness)
    staircase = 2 * math.pi / sharpness * theta / math.sqrt(1 - 4 * theta**2)
    tail = [math.exp(-sharpness * m * m) for m in range(1, 9)]
    end = sum(m * t for m, t in enumerate(tail, 1)) / (1 + sum(tail))
    assert constant(Grid(0.0, 1.0, 24, sharpness=sharpness)) == pytest.approx(max(staircase, end), rel=1e-2)


def test_the_chosen_temperature_is_the_best_of_its_neighbours() -> None:
    best = Grid(0.0, 1.0, 12)
    assert best.c == pytest.approx(2.7, abs=0.05)
    for other in (best.c - 1 / 16, best.c + 1 / 16):
        assert constant(best) < constant(Grid(0.0, 1.0, 12, sharpness=other))


# ---------------------------------------------------------------- H heads of n points


@pytest.mark.parametrize(("points", "heads"), PAIRS)
def test_published_heads_are_proved_at_half_a_spacing(points: int, heads: int) -> None:
    net = af.interpolation(-2, 3, points, heads=heads, variant="published")
    spacing = 5 / ((points - 2) * heads)
    low, high = net.certificate.error
    assert net.certificate.status is af.Status.PROVED
    assert net.story["published bound"] == pytest.approx(3e-3 + spacing)
    assert spacing / 2 * (1 - 1e-9) <= low <= high <= 1.01 * spacing / 2
    assert (net.cost.heads, net.cost.keys, net.cost.layers) == (heads, points * heads, 1)


@pytest.mark.parametrize(("points", "heads"), PAIRS)
def test_heads_that_truncate_their_own_stretch_are_proved_below_a_twelfth_of_the_spacing(
    points: int, heads: int
) -> None:
    net = af.interpolation(-2, 3, points, heads=heads)
    assert net.certificate.error[1] <= 0.08 * 5 / (heads * (points - 1))
    assert measured_error(net) <= net.certificate.error[1]
    assert net.certificate.error[1] * 12 < net.story["published bound"]


def test_off_duty_heads_rest_on_their_caps() -> None:
    """Far from its own stretch every published head but the first and last is 0, as stored."""
    net = af.interpolation(-2, 3, 6, heads=4, variant="published")
    fit = grid_fit(Grid(-2, 3, 6, 4, "published"))
    for h, piece in enumerate(fit.pieces):
        own = (-2 + h * 5 / 4, -2 + (h + 1) * 5 / 4)
        away = np.concatenate([np.linspace(-4, own[0] - 0.3, 50), np.linspace(own[1] + 0.3, 5, 50)])
        rest = np.where((away < own[0])[:, None], piece.values[0], piece.values[-1])
        assert np.abs(Fit((piece,))(away)[:, None] - rest).max() < 1e-9
        assert (piece.values[0] == 0) == (h > 0) and (piece.values[-1] == 0) == (h < 3)
    assert [head.values.shape for head in net.network.heads] == [(6, 1)] * 4


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("heads", [None, pytest.param(5, marks=SLOW)])
def test_the_rate_is_one_over_the_keys(variant: str, heads: int | None) -> None:
    counts = None if heads is None else (heads,)
    rows = af.interpolation_table(-2, 3, (8, 16), heads=counts, variants=(variant,))
    for row, finer in itertools.pairwise(rows):
        ratio = row.spacing / finer.spacing
        assert row.proved / finer.proved == pytest.approx(ratio, rel=0.1)
        assert row.measured <= row.proved and finer.measured <= finer.proved


# ---------------------------------------------------------------- what a network must satisfy


@pytest.mark.parametrize(
    ("points", "options"),
    [
        (9, {"variant": "published"}),
        (7, {"heads": 3, "variant": "published"}),
        pytest.param(7, {"heads": 3, "query": "2*x - y/3 + 1", "domain": "x=-2:2;y=-3:1"}, marks=SLOW),
        (12, {"variant": "inclusive", "query": "x + y + z - 1/2", "domain": "x=-2:2;y=-3:1;z=0:3"}),
        (6, {"heads": 2, "variant": "published", "query": "2*x - y/3", "domain": "x=-2:2;y=-3:3"}),
        (8, {"variant": "published", "query": "2*x - y/3", "domain": "x=-2:2;y=-3:3"}),
        (6, {"heads": 2, "variant": "inclusive", "query": "-x/2 + 1/3", "domain": "x=-9:9"}),
        (8, {"dtype": "float32"}),
        (5, {"query": "x", "domain": "x=0:1"}),
    ],
)
def test_torch_file_and_literal_form_agree(points: int, options: dict[str, Any], tmp_path: Path) -> None:
    net = af.interpolation(-2, 3, points, **options)
    assert_sound(net.certificate, net.network, net.target)
    X = net.target.box.probe(20, np.random.default_rng(0))
    apart, values = agreement(net, X)[:, 0], net(X)
    dtype = getattr(torch, net.network.dtype)
    module = net.to_torch()
    assert (np.abs(module(torch.tensor(X, dtype=dtype)).numpy().astype(float).ravel() - values) <= apart).all()
    assert (np.abs(net.literal("self").run(X).astype(float).ravel() - values) <= apart).all()
    assert apart.max() <= 1e-3 * net.certificate.error[1]
    path = tmp_path / "f.safetensors"
    net.save(path)
    assert identical(af.load(path).network, net.network)
    again = af.verify(path)
    assert (again.status, again.error) == (af.Status.PROVED, net.certificate.error)
    assert "interpolation point" in net.network.heads[0].key_names and net.explain()


def test_a_claim_that_is_too_small_is_refused_by_the_checker() -> None:
    """Nothing is believed: the same weights with one value moved past the claim are refuted or undecided."""
    from attnfun.kinds.function.prove import prove
    from certify.hunting import with_arrays

    net = af.interpolation(-2, 3, 8)
    name = next(n for n, _ in net.network.arrays() if n.endswith("values"))
    values = dict(net.network.arrays())[name].copy()
    values[3] += 0.05
    moved = with_arrays(net.network, {name: values})
    assert prove(moved, net.target, eps=net.certificate.eps).status is not af.Status.PROVED


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((3, -2, 8), {}),
        ((-2, -2, 8), {}),
        ((-2, math.inf, 8), {}),
        ((-2, math.nan, 8), {}),
        (("a", 3, 8), {}),
        ((-2, 3, 1), {}),
        ((-2, 3, 0), {"variant": "published"}),
        ((-2, 3, 8.5), {}),
        ((-2, 3, True), {}),
        ((-2, 3, 2), {"heads": 3, "variant": "published"}),
        ((-2, 3, 3), {"heads": 1, "variant": "inclusive"}),
        ((-2, 3, 8), {"heads": 0}),
        ((-2, 3, 8), {"variant": "best"}),
        ((-2, 3, 8), {"leak": 0}),
        ((-2, 3, 8), {"sharpness": -1}),
        ((-2, 3, 8), {"dtype": "float16"}),
        ((-2, 3, 8), {"query": "x + y"}),
        ((-2, 3, 8), {"query": "x*y", "domain": "x=-2:2;y=-2:2"}),
        ((-2, 3, 8), {"query": "abs(x)", "domain": "x=-2:2"}),
        ((-2, 3, 8), {"query": "1", "domain": "x=-2:2"}),
        ((-2, 3, 8), {"query": "x, 1) + clip(x", "domain": "x=-2:2"}),
        ((-2, 3, 8), {"query": 5, "domain": "x=-2:2"}),
        ((-2, 3, 5000), {}),
        ((-2, 3, 10**9), {"heads": 10**9}),
        ((-1e200, 1e200, 5000), {}),
        ((0, 1e-200, 4), {}),
    ],
)
def test_bad_requests_are_one_sentence(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    with pytest.raises(af.AttnfunError) as caught:
        af.interpolation(*arguments, **options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) > 15


# ---------------------------------------------------------------- targets made of such units


@pytest.mark.parametrize(
    ("target", "domain", "units"),
    [
        ("clip(2*x + 1, -1, 1)", "x=-2:2", 1),
        ("max(min(x, 1), -1)", "x=-2:2", 1),
        ("clip(x, -1, 1)", "x=-2:0.5", 1),
        ("clip(x, -1, 1)", "x=-1/2:1/2", 0),
        ("clip(x, -1, 1)", "x=2:3", 0),
        ("relu(x) + relu(-x) + abs(x)", "x=-1:1", 1),
        ("abs(x + 3)", "x=-1:1", 0),
        ("abs(min(y + 5*x, 5*x + y))", "x=-1:1;y=-1:1", 1),
        ("max(2*x - y, y - (y - 2*x) - y)", "x=-1:1;y=-1:1", 0),
        ("max(x, y, 2*y - x)", "x=-1:1;y=-1:1", 2),
        ("min(x, y) + max(x, y)", "x=-1:1;y=-1:1", 1),
        ("sqrt(2)*relu(pi*x - y)/3", "x=-1:1;y=-1:1", 1),
        ("relu(abs(x) - 1/2)", "x=-1:1", 2),
    ],
)
def test_programs_of_units_are_the_target(target: str, domain: str, units: int) -> None:
    function = Function.read(target, Box.parse(domain.replace("1/2", "0.5")))
    assert function.graph is not None
    line = broken_line(function.graph, function.box)
    assert len(line.units) == units
    X = function.box.probe(500, np.random.default_rng(0))
    env = {name: X[:, k] for k, name in enumerate(function.box.names)}
    found = run(line.program, ArrayAlgebra(), env)[0]
    assert np.abs(found - function.values(X)[:, 0]).max() < 1e-12


@pytest.mark.parametrize(
    ("target", "domain", "eps"),
    [
        ("clip(2*x + 1, -1, 1)", "x=-2:2", 0.1),
        ("relu(x)", "x=-1:1", 0.08),
        ("abs(x)", "x=-1:1", 0.2),
        ("max(x, y)", "x=-1:1;y=-1:1", 0.15),
        ("clip(x - y + 3*z, -1, 1)", "x=-1:1;y=-1:1;z=-1:1", 0.1),
    ],
)
def test_auto_takes_it_at_loose_eps_where_nothing_is_smaller(target: str, domain: str, eps: float) -> None:
    net = af.compile(target, domain, eps)
    assert net.certificate.construction == "interpolation"
    assert_sound(net.certificate, net.network, net.target)
    for other in ("tangent", "compose", "bernstein"):
        try:
            rival = af.compile(target, domain, eps, method=other)
        except af.Infeasible:
            continue
        assert rival.cost.keys >= net.cost.keys


@pytest.mark.parametrize("target", ["clip(2*x + 1, -1, 1)", "abs(x)"])
def test_auto_leaves_it_at_tight_eps(target: str) -> None:
    net = af.compile(target, "x=-2:2", 1e-4)
    assert net.certificate.construction != "interpolation"
    assert "interpolation" in net.story["methods"]


def test_no_fewer_points_would_do() -> None:
    """The size follows eps: one point less has a larger error than eps."""
    net = af.compile("clip(x, -2, 3)", "x=-4:5", 0.02, method="interpolation")
    fewer = af.interpolation(-2, 3, net.cost.keys - 1, domain="x=-4:5")
    assert fewer.certificate.error[0] > 0.97 * 0.02


# ---------------------------------------------------------------- ReLU networks


def affine(out: Builder, row: np.ndarray, nodes: list[int]) -> int:
    """Σ row_k node_k + the last entry of the row."""
    total = out.const(Fraction(float(row[-1])))
    for weight, node in zip(row[:-1], nodes, strict=True):
        total = out.apply("add", total, out.apply("mul", out.const(Fraction(float(weight))), node))
    return total


def relu_graph(rng: np.random.Generator, sizes: tuple[int, ...], dead: bool = False) -> tuple[Graph, Box]:
    """A random ReLU network; `dead`: a unit of every hidden layer is always 0, one of the first is always passed."""
    out = Builder()
    nodes = [out.var(f"x{k + 1}") for k in range(sizes[0])]
    box = Box.parse({f"x{k + 1}": (-1.0, 1.0) for k in range(sizes[0])})
    for level, (before, after) in enumerate(itertools.pairwise(sizes)):
        rows = rng.normal(size=(after, before + 1))
        if dead and level == 0:
            rows[1, -1] = 20.0
        if dead and level < len(sizes) - 2:
            rows[0, -1] = -900.0
        nodes = [affine(out, row, nodes) for row in rows]
        if level < len(sizes) - 2:
            nodes = [out.apply("relu", node) for node in nodes]
    return out.graph(nodes), box


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_a_branch_that_the_program_decides_the_checker_decides_too(seed: int) -> None:
    """relu of what barely stays positive: ranges see it, bisection does not always (seed 1)."""
    rng = np.random.default_rng(seed)
    box, out = Box.parse({n: (-1.0, 1.0) for n in "xyz"}), Builder()
    variables = [out.var(n) for n in "xyz"]
    hidden = [out.apply("relu", affine(out, rng.normal(size=4), variables)) for _ in range(7)]
    inner = affine(out, rng.normal(size=8), hidden)
    ((low, high),) = range_of(out.graph([inner]), box)
    lifted = out.apply("add", inner, out.const(Fraction(0.01 * (high - low) - low)))
    target = out.graph([out.apply("add", out.apply("relu", lifted), variables[0])])
    program = broken_line(target, box).program
    assert len([n for n in program.nodes if n.op == "relu"]) <= 7
    same_function(program, target, box)
    with pytest.raises(Undecided):  # and a branch that is not there is not granted
        wrong = out.graph([out.apply("add", out.apply("relu", inner), variables[0])])
        same_function(program, wrong, box)


@pytest.mark.parametrize(
    ("sizes", "seed", "dead"), [((2, 5, 1), 0, False), ((2, 5, 1), 1, True), ((2, 4, 3, 2), 2, True)]
)
def test_random_relu_networks_are_proved(sizes: tuple[int, ...], seed: int, dead: bool) -> None:
    graph, box = relu_graph(np.random.default_rng(seed), sizes, dead)
    spread = max(b - a for a, b in range_of(graph, box))
    net = af.compile(graph, dict.fromkeys(box.names, (-1.0, 1.0)), 0.05 * spread, method="interpolation")
    assert_sound(net.certificate, net.network, net.target)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4])
def test_a_relu_network_of_three_layers_is_proved(seed: int) -> None:
    graph, box = relu_graph(np.random.default_rng(seed), (3, 7, 5, 2))
    spread = max(b - a for a, b in range_of(graph, box))
    net = af.compile(graph, dict.fromkeys(box.names, (-1.0, 1.0)), 0.2 * spread, method="interpolation")
    assert_sound(net.certificate, net.network, net.target)
