"""Extreme requests end soon, with a proof or with a reason: counted in steps of the interpreter, not in seconds.

Every case is drawn at random. What is counted: operations that the one interpreter does, on whatever values, and
candidates of the search for keys. A walk that takes shared nodes anew, or a search by ones, passes the limits by far.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from flint import arb

import attnfun as af
from attnfun.certify import moments, reading
from attnfun.certify.extension import require_extension
from attnfun.certify.moments import _halved_top
from attnfun.certify.view import Undecided
from attnfun.errors import AttnfunError, Infeasible
from attnfun.kinds.function.build import bernstein, partition
from attnfun.kinds.function.build.compose import Compose
from attnfun.kinds.function.build.interpolation import points_for
from attnfun.kinds.function.build.plan import Request
from attnfun.kinds.function.build.relu_network import KINKS, kink_fit
from attnfun.kinds.function.build.unary import search
from attnfun.kinds.function.build.unary.features import features
from attnfun.kinds.function.build.unary.fit import fit_unary
from attnfun.kinds.function.build.unary.grid import VARIANTS, Grid, constant
from attnfun.language import ArrayAlgebra, Builder, Graph, interpret, mean_value, parse, run
from attnfun.language.canonical import canonical
from attnfun.language.definedness import natural_domain
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.graph import arguments_first
from attnfun.language.ranges import Effort, range_of
from attnfun.language.vertices import broken_line
from counting import counted

STEPS = 3_000_000
CANDIDATES = 400


class Counter:
    steps = 0
    candidates = 0


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    counter = Counter()
    step, finish = interpret.step, search.finish

    def counted_step(*args: object) -> object:
        counter.steps += 1
        return step(*args)  # type: ignore[arg-type]

    def counted_finish(*args: object, **named: object) -> object:
        counter.candidates += 1
        return finish(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(interpret, "step", counted_step)
    monkeypatch.setattr(mean_value, "step", counted_step)
    monkeypatch.setattr(search, "finish", counted_finish)
    yield counter


def outcome(count: Counter, target: str | list[str], domain: dict[str, tuple[float, float]], eps: float) -> str:
    """ "proved" or "refused"; anything else, and too much work, fails the test."""
    try:
        made = af.compile(target, domain=domain, eps=eps)
        assert made.certificate.status.value == "proved"
        result = "proved"
    except AttnfunError as why:
        assert len(str(why)) > 20
        result = "refused"
    assert count.steps < STEPS and count.candidates < CANDIDATES, (target, count.steps, count.candidates)
    return result


def some(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.mark.parametrize("seed", range(2))
def test_logarithms_of_extreme_domains_are_refused_with_a_reason(count: Counter, seed: int) -> None:
    rng = some(seed)
    low = rng.choice([5e-324, 10.0 ** -rng.uniform(285, 320)])
    high = 10.0 ** rng.uniform(0, 120)
    assert outcome(count, "log(x)", {"x": (low, high)}, 1e-6) == "refused"
    with pytest.raises(Infeasible) as why:
        af.compile("log(x)", domain={"x": (low, high)}, eps=1e-6, method="tangent")
    assert why.value.nearest is not None and "a constant is within" in str(why.value)
    assert outcome(count, "log(x)", {"x": (low, high)}, why.value.nearest["eps"]) == "proved"


def test_exponentials_that_vanish_are_no_obstacle(count: Counter) -> None:
    shift = some(3).randint(760, 2000)
    assert outcome(count, f"exp(x-{shift})+y*x", {"x": (0, 1), "y": (0, 1)}, 1e-5) == "proved"


@pytest.mark.parametrize("seed", range(6))
def test_intervals_near_the_smallest_numbers_end_with_a_proof_or_a_reason(count: Counter, seed: int) -> None:
    """Squares of their widths are 0 in float64, and one over a width is not a number."""
    rng = some(seed)
    width = rng.choice([5e-324, 10.0 ** -rng.uniform(163, 320)])
    low = rng.choice([0.0, width])
    target = rng.choice(
        ["x*x + abs(x)", "sqrt(x) - x*x", "x**3 + y", "exp(max(y + 1, cosh(x))) - 1", "1/(1 + x) + y*y"]
    )
    domain = {"x": (low, low + width), "y": (low, low + width)}
    outcome(count, target, domain, 10.0 ** -rng.uniform(1, 20))
    with suppress(AttnfunError):
        assert af.compile(target, domain=domain, eps=1e-3, method="compose").certificate.status.value == "proved"


@pytest.mark.parametrize("seed", range(3))
def test_equal_arguments_of_max_and_min_are_one(count: Counter, seed: int) -> None:
    rng = some(seed)
    inner = rng.choice(["x", "x*x", "sin(x)", "(x+1/3)"])
    kink = rng.choice(["max", "min"])
    assert parse(f"{kink}({inner},{inner})", ["x"]) == parse(inner, ["x"])
    assert outcome(count, f"{kink}({inner},{inner})+x*x+x", {"x": (-1, 1)}, 1e-5) == "proved"


@pytest.mark.parametrize("variant", VARIANTS)
def test_points_are_the_fewest_and_found_by_bisection(variant: str) -> None:
    rng = some(7)
    for _ in range(6):
        width, tolerance = 10 ** rng.uniform(-3, 3), 10 ** rng.uniform(-12, 0)
        low = rng.uniform(-5, 5)

        def error(points: int, low: float = low, high: float = low + width) -> float:
            grid = Grid(low, high, points, None, variant)
            return constant(grid) * grid.spacing

        try:
            points = points_for(low, low + width, tolerance, variant)
        except Infeasible:
            assert error(10**12) > tolerance
            continue
        assert error(points) <= tolerance
        assert points <= 2 or error(points - 1) > tolerance


@pytest.mark.slow
def test_kinks_at_the_edge_of_float64_are_proved(count: Counter) -> None:
    at = Fraction(some(5).randint(2, 7), 9)
    assert outcome(count, f"abs(x-{at})", {"x": (0, 1)}, 3e-12) == "proved"


def test_steep_exact_heads_are_proved(count: Counter) -> None:
    steep = 10 ** some(1).uniform(12, 15)
    assert outcome(count, f"tanh({steep:.3e}*x)", {"x": (-1, 1)}, 1e-3) == "proved"


def test_oscillations_past_all_keys_are_refused_before_any_search(count: Counter) -> None:
    rng = some(2)
    frequency = 10 ** rng.uniform(4, 9)
    assert outcome(count, f"sin({frequency:.3e}*x)", {"x": (-1, 1)}, 1e-6) == "refused"
    start = 10.0 ** rng.randint(12, 15)
    assert outcome(count, "sin(x)", {"x": (start, start + 4000)}, 1e-6) == "refused"
    assert count.candidates < 20
    with pytest.raises(Infeasible) as why:
        af.compile(f"sin({frequency:.3e}*x)", domain={"x": (-1, 1)}, eps=1e-6)
    assert why.value.nearest is not None
    nearest = af.compile(f"sin({frequency:.3e}*x)", domain={"x": (-1, 1)}, eps=why.value.nearest["eps"])
    assert nearest.certificate.status.value == "proved"


def test_the_largest_of_many_variables_is_proved(count: Counter) -> None:
    names = [f"x{k}" for k in range(some(4).randint(20, 21))]
    assert outcome(count, f"max({', '.join(names)})", dict.fromkeys(names, (-1.0, 1.0)), 0.05) == "proved"


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 5))])
def test_the_largest_of_many_multiples_is_proved_though_some_never_are_largest(seed: int) -> None:
    """A difference that is never negative has a kink at the end of its range: its error is not doubled by each step."""
    rng = some(seed)
    names = [f"x{k}" for k in range(rng.randint(22, 28) if seed == 0 else rng.randint(28, 60))]
    multiples = [f"{rng.uniform(-2, 2):.2f}*{name}" for name in names]
    made = af.compile(f"{rng.choice(['max', 'min'])}({', '.join(multiples)})", dict.fromkeys(names, (0.0, 1.0)), 0.1)
    assert made.certificate.status == "proved"
    X = np.random.default_rng(seed).uniform(size=(2000, len(names))) ** 0.2
    assert np.abs(made.network.run(X) - made.target.values(X)).max() <= made.certificate.error[1]


def test_many_smooth_outputs_share_a_head(count: Counter) -> None:
    rng = some(6)
    outputs = [f"sin({rng.uniform(0.2, 1.5):.3f}*x+{rng.uniform(0, 6):.3f})" for _ in range(30)]
    made = af.compile(outputs, domain={"x": (-1, 1)}, eps=1e-3)
    assert made.certificate.status.value == "proved" and count.steps < STEPS
    assert made.cost.heads == 1 and made.cost.keys < 20


def test_many_outputs_that_share_nothing_are_refused(count: Counter) -> None:
    outputs = [f"abs(sin({k}*x))" for k in range(1, 67)]
    assert outcome(count, outputs, {"x": (-1, 1)}, 1e-3) == "refused"


def test_the_range_of_a_chain_of_kinks_is_sharp() -> None:
    """The largest of n variables, written with relu as a program has it."""
    rng = some(8)
    builder = Builder()
    names = [f"x{k}" for k in range(12)]
    ends = [(rng.uniform(-2, 0), rng.uniform(0, 2)) for _ in names]
    total = builder.var(names[0])
    for name in names[1:]:
        other = builder.var(name)
        total = builder.apply("add", other, builder.apply("relu", builder.apply("sub", total, other)))
    box = Box(tuple(names), tuple(a for a, _ in ends), tuple(b for _, b in ends))
    ((low, high),) = range_of(builder.graph([total]), box)
    for found, true in ((low, max(a for a, _ in ends)), (high, max(b for _, b in ends))):
        assert math.isclose(found, true, abs_tol=1e-6)
    assert low <= max(a for a, _ in ends) and high >= max(b for _, b in ends)


def test_sums_of_any_length_are_walked_without_recursion() -> None:
    builder = Builder()
    x = builder.var("x")
    total, product = x, x
    for k in range(5_000):
        total = builder.apply("add", builder.apply("sin", builder.apply("add", x, builder.const(k))), total)
        product = builder.apply("div" if k % 2 else "mul", builder.apply("exp", product if k < 50 else x), product)
    graph = builder.graph([total, product])
    assert isinstance(canonical(Graph(graph.nodes[:4_000], (3_999,))), Graph)


def test_shared_nodes_are_taken_once() -> None:
    """A chain that doubles sixty times has 2⁶⁰ ways and 61 nodes."""
    args = {k: (k - 1, k - 1) if k else () for k in range(61)}
    done: set[int] = set()
    for node in arguments_first(60, args.__getitem__, done):
        assert all(a in done for a in args[node])
        done.add(node)
    assert sorted(done) == list(range(61))


def test_long_sums_of_waves_are_refused_before_any_search(count: Counter) -> None:
    rng = some(9)
    total = "+".join(f"sin({k}*x+{rng.uniform(0, 6):.2f})" for k in range(1, rng.randint(260, 300)))
    with pytest.raises(Infeasible) as why:
        af.compile(total, domain={"x": (-1, 1)}, eps=1e-3, method="tangent")
    assert count.candidates == 0 and count.steps < STEPS and why.value.nearest is not None


def test_a_chain_of_sums_is_brought_to_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canonical form of n terms applies a number of operations that grows like n, and keeps the function."""
    made = []
    for n in (100, 200):
        rng, builder = some(n), Builder()
        x = builder.var("x")
        total = x
        for k in range(n):
            wave = builder.apply("sin", builder.apply("mul", builder.const(k + 2), x))
            term = builder.apply("mul", builder.const(rng.randint(2, 9)), wave)
            total = builder.apply(rng.choice(["add", "sub"]), *((total, term) if rng.random() < 0.5 else (term, total)))
        graph, calls, apply = builder.graph([total]), [0], Builder.apply

        def counted(*args: Any, apply: Any = apply, calls: list[int] = calls, **named: Any) -> Any:
            calls[0] += 1
            return apply(*args, **named)

        with monkeypatch.context() as patch:
            patch.setattr(Builder, "apply", counted)
            form = canonical(graph)
        at = np.linspace(-1, 1, 7)
        one, other = (np.asarray(run(g, ArrayAlgebra(), {"x": at})[0]) for g in (graph, form))
        assert np.allclose(one, other, rtol=1e-12, atol=1e-9)
        made.append(calls[0])
    assert made[1] < 2.5 * made[0]


def test_nested_absolute_values_have_sharp_ranges_and_few_steps() -> None:
    """|a| written 2 relu(a) − a, as a program has it: its range needs no bisection, and is that of |a|."""
    rng, builder = some(10), Builder()
    plain = folded = builder.var("x")
    for _ in range(20):
        shift = builder.const(Fraction(rng.randint(1, 50), 100))
        plain = builder.apply("abs", builder.apply("sub", plain, shift))
        inner = builder.apply("sub", folded, shift)
        kink = builder.apply("relu", inner)
        if rng.random() < 0.5:
            kink = builder.apply("add", inner, builder.apply("relu", builder.apply("neg", inner)))
        folded = builder.apply("sub", builder.apply("mul", builder.const(2), kink), inner)
    box = Box(("x",), (-1.0,), (1.0,))
    ((a, b),), ((c, d),) = (range_of(builder.graph([g]), box) for g in (plain, folded))
    assert (a, b) == (c, d)
    values = np.asarray(run(builder.graph([folded]), ArrayAlgebra(), {"x": np.linspace(-1, 1, 5001)})[0])
    assert a <= values.min() and values.max() <= b


def test_all_kinks_of_nested_absolute_values_are_found_in_one_walk(count: Counter) -> None:
    rng = some(11)
    inner = "x"
    for _ in range(8):
        inner = f"abs({inner}-{rng.uniform(0.05, 0.4):.3f})"
    graph = parse(inner, ["x"])
    found = [f.at for f in features(graph, -1.0, 1.0)]
    assert count.steps < 80 * 3 * len(graph.nodes)
    grid = np.linspace(-1, 1, 20_001)
    values = np.asarray(run(graph, ArrayAlgebra(), {"x": grid})[0])
    bends = grid[1:-1][np.abs(np.diff(values, 2)) > 0.5 * (grid[1] - grid[0])]
    assert len(bends) and all(min(abs(b - f) for f in found) <= 1e-4 for b in bends)


def forms(rng: random.Random, names: str, count: int) -> list[str]:
    return [
        "+".join(f"{rng.uniform(-1, 1):.2f}*{n}" for n in names) + f"+{rng.uniform(-1, 1):.2f}" for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(2))
def test_long_chains_of_max_and_min_have_three_keys_a_kink(count: Counter, seed: int) -> None:
    """Errors do not double from kink to kink: the operand that stands outside is affine. Ranges share one budget."""
    rng = some(20 + seed)
    names = "xyz"[: rng.randint(2, 3)]
    chain, *others = forms(rng, names, rng.randint(34, 50))
    for other in others:
        operands = [chain, other] if rng.random() < 0.5 else [other, chain]
        chain = f"{rng.choice(['max', 'min'])}({', '.join(operands)})"
    box = Box(tuple(names), (-1.0,) * len(names), (1.0,) * len(names))
    request = Request(Function.read(chain, box, None), 1e-2, math.inf, "float64")
    plan = Compose().plan(request)
    assert plan.keys <= 3 * len(others) and count.steps < STEPS and count.candidates < CANDIDATES


def test_ranges_that_share_an_effort_stop_halving_and_stay_true() -> None:
    """Where nothing is left the range is that of one box: wider, and never too narrow."""
    rng = some(30)
    for _ in range(20):
        a, b, c = forms(rng, "xy", 3)
        graph = parse(f"max(min({a},{b}),{c})-({a})*({b})", ["x", "y"])
        box = Box(("x", "y"), (-1.0, -1.0), (1.0, 1.0))
        fresh, spent = Effort(), Effort(0)
        ((low, high),), ((wide, top),) = (range_of(graph, box, effort=e) for e in (fresh, spent))
        assert fresh.left < Effort().left and spent.left < 0
        assert wide <= low <= high <= top
        X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
        values = np.asarray(run(graph, ArrayAlgebra(), {"x": X[:, 0], "y": X[:, 1]})[0])
        assert low <= values.min() and values.max() <= high


@pytest.mark.slow
def test_deep_nests_of_absolute_values_are_proved(count: Counter) -> None:
    rng, inner = some(40), "x"
    for _ in range(rng.randint(50, 60)):
        inner = f"abs({inner}-{rng.random():.3f})"
    assert outcome(count, inner, {"x": (-1, 1)}, 1e-3) == "proved"


def broken(rng: random.Random, kinks: int) -> str:
    """A random nest of affine maps, abs, relu, max and min of x."""
    inner = "x"
    for _ in range(kinks):
        other = f"({rng.uniform(-2, 2):.2f}*x+{rng.uniform(-1, 1):.2f})"
        op = rng.choice(["max", "min", "max", "min", "abs", "relu"])
        inner = f"{op}({inner},{other})" if op in ("max", "min") else f"{op}({inner}-{rng.random():.2f})/2+{other}"
    return inner


@pytest.mark.parametrize("seed", range(6))
def test_a_broken_line_is_the_function_itself_and_shorter(seed: int) -> None:
    """Compared with the expression in rational arithmetic, at vertices and between them; proved so when verified."""
    rng = some(60 + seed)
    low, high = sorted((rng.uniform(-2, 0), rng.uniform(0.1, 2)))
    graph, box = parse(broken(rng, rng.randint(12, 50)), ["x"]), Box(("x",), (low,), (high,))
    line = broken_line(graph, box)
    assert line is not None and len(line.nodes) < len(graph.nodes)
    constants = [n.value for n in line.nodes if isinstance(n.value, Fraction)]
    places = [*(c for c in constants if low <= c <= high), *(Fraction(rng.uniform(low, high)) for _ in range(20))]
    for x in [Fraction(low), Fraction(high), *places]:
        assert exactly(line, x) == exactly(graph, x)
    function = Function.of(graph, box, ("f",))
    assert function.graph == line and function.source == graph
    require_extension(function)
    other = replace(function, source=parse(f"max({graph.text(graph.outputs[0], 10**6)}, 2*x+0.1)", ["x"]))
    if broken_line(other.source, box) != line:  # the label of another function is not believed
        with pytest.raises((Undecided, AttnfunError)):
            require_extension(other)


def exactly(graph: Graph, x: Fraction) -> Fraction:
    values: list[Fraction] = []
    for node in graph.nodes:
        args = [values[a] for a in node.args]
        known = {"var": x, "const": node.value}
        if node.op in known:
            values.append(Fraction(known[node.op]))  # type: ignore[arg-type]
        else:
            values.append(
                {
                    "neg": lambda a: -a,
                    "abs": abs,
                    "relu": lambda a: max(a, Fraction(0)),
                    "add": lambda a, b: a + b,
                    "sub": lambda a, b: a - b,
                    "mul": lambda a, b: a * b,
                    "div": lambda a, b: a / b,
                    "max": max,
                    "min": min,
                }[node.op](*args)  # type: ignore[operator]
            )
    return values[graph.outputs[0]]


def test_what_is_no_broken_line_of_few_vertices_stays_as_it_is() -> None:
    box, tent = Box(("x",), (0.0,), (1.0,)), "x"
    for _ in range(12):
        tent = f"1-abs(2*({tent})-1)"
    assert broken_line(parse(tent, ["x"]), box) is None  # 4,097 vertices
    curved = "max(x, sin(x))" + "".join(f"+abs(x-0.{k})" for k in range(1, 10))
    assert broken_line(parse(curved, ["x"]), box) is None
    assert broken_line(parse("max(x, 1-x)+abs(x-0.3)", ["x"]), box) is None  # short as it is


def test_chains_of_one_variable_are_proved_in_few_steps(count: Counter) -> None:
    rng, chain = some(70), "x"
    for _ in range(50):
        chain = f"{rng.choice(['min', 'max'])}({chain},{rng.uniform(-2, 2):.3f}*x+{rng.uniform(-1, 1):.3f})"
    assert outcome(count, chain, {"x": (-1, 1)}, 1e-2) == "proved"
    assert count.steps < 30_000


def test_sums_of_many_waves_are_proved_by_few_long_series(count: Counter) -> None:
    rng = some(71)
    waves = (
        f"{rng.uniform(0.1, 1):.2f}*sin({rng.uniform(10, 30):.2f}*x+{rng.uniform(0, 6):.2f})"
        for _ in range(rng.randint(42, 48))
    )
    made = af.compile("+".join(waves), domain={"x": (-1, 1)}, eps=1e-2, method="tangent")
    assert made.certificate.method == "moments" and made.certificate.details["order"] == 24
    assert count.steps < 150_000 and count.candidates < 40


def test_a_halved_polynomial_bounds_all_its_values() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        c, r = rng.standard_normal(rng.integers(1, 12)), float(rng.uniform(0.1, 3))
        s = np.linspace(-r, r, 2001)
        seen = float(np.abs(np.polynomial.polynomial.polyval(s, c)).max())
        top = _halved_top([arb(float(v)) for v in c], r, 0.0)
        assert seen * (1 - 1e-12) <= top <= 1.3 * seen


@pytest.mark.parametrize("seed", range(2))
def test_different_waves_are_counted_before_the_walk(count: Counter, seed: int) -> None:
    rng = some(72 + seed)
    total = "+".join(f"sin({k}*x+{rng.uniform(0, 6):.3f})" for k in range(1, rng.randint(100, 200)))
    with pytest.raises(Infeasible, match="different steps"):
        af.compile(total, domain={"x": (-1, 1)}, eps=1e-2, method="compose")
    assert count.candidates == 0 and count.steps < 40_000


def test_waves_at_numbers_that_are_far_apart_are_refused_before_any_proof(count: Counter) -> None:
    far = 10.0 ** some(74).uniform(14.5, 15.5)
    assert outcome(count, "sin(x)", {"x": (far, far + 2000)}, 1e-2) == "refused"
    assert count.candidates == 0 and count.steps < 5_000


def test_the_domain_of_nested_roots_is_found_in_few_calls() -> None:
    inner = "u"
    for _ in range(some(75).randint(40, 60)):
        inner = f"sqrt({inner})"
    graph = parse(inner, ["u"])
    assert natural_domain(graph) == (0.0, math.inf)
    assert counted(lambda: natural_domain(graph)) < 50_000


def test_values_past_float64_are_refused_with_a_reason() -> None:
    inner = "x"
    for _ in range(some(76).randint(6, 60)):
        inner = f"exp({inner})"
    with pytest.raises(Infeasible, match="past what float64 can hold"):
        af.compile(inner, domain={"x": (0, 1)}, eps=1e-2, method="partition")


OVERFLOWING = {
    "1/(1 + exp(-{k}*x))": "proved",
    "x/(1 + exp({k}*x))": "proved",
    "tanh({steep:.0e}*x)": "proved",
    "log(1 + exp({k}*x))": "refused",
    "sqrt(exp({k}*x))*exp(-{k}*x/2)": "refused",
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", OVERFLOWING)
def test_what_overflows_on_the_way_is_proved_or_refused_without_a_warning(count: Counter, text: str) -> None:
    rng = some(len(text))
    k, steep = rng.randint(1440, 3000), 10.0 ** rng.randint(200, 300)
    wanted, text = OVERFLOWING[text], text.format(k=k, steep=steep)
    assert outcome(count, text, {"x": (-1, 1)}, 10.0 ** -rng.uniform(1, 3)) == wanted
    if wanted == "refused":
        with pytest.raises(Infeasible, match="tangent: the target is past what float64 can hold, at 0"):
            af.compile(text, domain={"x": (-1, 1)}, eps=1e-2, method="tangent")


@pytest.mark.parametrize("seed", range(4))
def test_kinks_have_keys_without_a_search(count: Counter, seed: int) -> None:
    rng = some(70 + seed)
    for graph in KINKS:
        low, high, eps = -(10 ** rng.uniform(-2, 1)), 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-11, -2)
        fit = kink_fit(graph, low, high, eps, "float64")
        u = np.sort(np.concatenate([np.linspace(low, high, 4001), low * np.geomspace(1e-14, 1, 400)]))
        u = np.concatenate([u, high * np.geomspace(1e-14, 1, 400)])
        error = np.abs(fit(u) - np.asarray(run(graph, ArrayAlgebra(), {"u": u})[0])).max()
        assert error <= 1.02 * eps and fit.keys <= 17 and count.candidates == 0


def test_a_kink_near_the_left_end_has_its_head_on_the_short_side() -> None:
    """Its values are small there; on the long side they would pass the cap, and all searches end in vain."""
    rng = some(80)
    low = -(10 ** rng.uniform(-4, -2))
    fit = fit_unary(parse("abs(u)", ["u"]), low, 1.0, 1e-8)
    assert fit.keys <= 8 and fit.max_value <= 200 * abs(low)


def test_compose_does_not_repeat_the_search_that_tangent_refused(count: Counter) -> None:
    function = Function.read("log(x)", Box(("x",), (10 ** -some(81).uniform(60, 100),), (1.0,)), None)
    with pytest.raises(Infeasible, match="tangent"):
        Compose().plan(Request(function, 1e-6, math.inf, "float64", refused=("tangent",)))
    assert count.candidates == 0


def test_corner_values_of_a_bernstein_head_are_known_before_it_is_solved() -> None:
    rng = some(82)
    text = "+".join(f"sin({rng.uniform(1, 12):.2f}*x+{rng.uniform(0, 6):.2f})" for _ in range(4))
    request = Request(Function.read(text, Box(("x",), (-1.0,), (1.0,)), None), 1e-4, math.inf, "float64")
    for step in (1.0, 3.0):
        shape = bernstein._shape(request, (step,), request.eps)
        assert shape is not None
        values = np.abs(bernstein._values(request, shape))
        assert math.isclose(bernstein._corners(shape), max(values[0, 0], values[-1, 0]), rel_tol=1e-3)


@pytest.mark.parametrize("seed", range(2))
def test_long_chains_of_one_extreme_take_every_argument_once(count: Counter, seed: int) -> None:
    rng = some(seed)
    op, parts = rng.choice(["max", "min"]), rng.sample(["x", "y", "x*y", "1/3", "x - y"], 3)
    chain = parts[0]
    for _ in range(60):
        pair = [chain, rng.choice(parts)]
        rng.shuffle(pair)
        chain = f"{op}({pair[0]}, {pair[1]})"
    assert sum(node.op == op for node in parse(chain, ["x", "y"]).nodes) == 2
    assert outcome(count, chain, {"x": (-1, 1), "y": (-1, 1)}, 1e-2) == "proved"


PARTS = ["x", "y", "x*y", "1/3", "x - y"]


@pytest.mark.parametrize("seed", range(4))
def test_long_chains_of_both_extremes_take_every_argument_once(count: Counter, seed: int) -> None:
    rng = some(90 + seed)
    pairs = [f"{rng.choice(['max', 'min'])}({a}, {b})" for a, b in itertools.pairwise(PARTS)]
    parts = PARTS if seed % 2 else [*PARTS, *pairs]
    chain = rng.choice(parts)
    for _ in range(60):
        pair = [chain, rng.choice(parts)]
        rng.shuffle(pair)
        chain = f"{rng.choice(['max', 'min'])}({pair[0]}, {pair[1]})"
    kinks = sum(node.op in ("max", "min") for node in parse(chain, ["x", "y"]).nodes)
    assert kinks < (len(PARTS) if seed % 2 else 12)
    assert outcome(count, chain, {"x": (-1, 1), "y": (-1, 1)}, 1e-2) == "proved"


@pytest.mark.parametrize("seed", range(3))
def test_a_bound_of_many_outputs_halves_what_may_be_the_largest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halving all of 199 outputs down to the end would take a hundred parts for each of them on each interval."""
    rng, calls, halved = some(100 + seed), [0], moments._halved_top

    def counted_top(*args: Any) -> float:
        calls[0] += 1
        return halved(*args)

    monkeypatch.setattr(moments, "_halved_top", counted_top)
    outputs = [f"sin({rng.uniform(0.2, 20):.3f}*x)" for _ in range(199)]
    made = af.compile(outputs, domain={"x": (-1, 1)}, eps=1e-3)
    assert made.certificate.status.value == "proved" and made.cost.heads == 1
    assert calls[0] < 10 * 199 * made.certificate.details["intervals"]


def test_many_nested_outputs_that_share_nothing_are_counted_before_the_walk(count: Counter) -> None:
    rng = some(103)
    shift, outer = rng.uniform(-0.5, 0.5), rng.choice(["abs", "exp", "tanh"])
    outputs = [f"{outer}(sin({k + rng.random():.3f}*x)-{shift:.2f})" for k in range(1, 200)]
    assert outcome(count, outputs, {"x": (-1, 1)}, 1e-3) == "refused"
    assert count.candidates == 0 and count.steps < 60_000


def test_a_search_whose_errors_fall_too_slowly_ends_early(count: Counter) -> None:
    low = 10.0 ** -some(104).uniform(90, 110)
    with pytest.raises(Infeasible) as why:
        af.compile("log(x)", domain={"x": (low, 1)}, eps=1e-6)
    assert why.value.nearest is not None and count.candidates <= 12


@pytest.mark.parametrize("seed", range(3))
def test_a_fraction_of_a_range_that_underflows_is_refused(seed: int) -> None:
    rng = some(105 + seed)
    target = f"exp({rng.choice(['x', '-x', 'x*x'])}-{rng.randint(720, 2000)})"
    with pytest.raises(AttnfunError, match="the target varies, but by so little"):
        af.compile(target, domain={"x": (0, 1)}, eps=1e-3, relative=True)
    constant_ = af.compile(f"{rng.uniform(1, 9):.3f} + 0*x", domain={"x": (0, 1)}, eps=1e-3, relative=True)
    assert constant_.certificate.relative["range"] == 0


@pytest.mark.parametrize("seed", range(2))
def test_the_operations_of_a_proof_by_cells_are_counted_before_it(
    seed: int, count: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million cells with fifty operations each would take minutes; the nearest eps is within the count."""
    rng = some(110 + seed)
    waves = [f"sin({rng.uniform(-3, 3):.2f}*x+{rng.uniform(-1, 1):.2f}*y)" for _ in range(12)]
    target, domain = "+".join(waves), {"x": (-1, 1), "y": (-1, 1)}
    function = Function.read(target, Box(("x", "y"), (-1.0, -1.0), (1.0, 1.0)), None)
    with pytest.raises(Infeasible, match="operations, more than") as why:
        partition.Partition().plan(Request(function, rng.uniform(0.006, 0.007), math.inf, "float64"))
    assert why.value.nearest is not None and count.steps < 60_000
    monkeypatch.setattr(partition, "_OPERATIONS", 50_000)
    with pytest.raises(Infeasible, match="operations, more than") as why:
        af.compile(target, domain=domain, eps=0.2, method="partition", variant="uniform")
    assert why.value.nearest is not None
    assert af.compile(target, domain=domain, **why.value.nearest).certificate.status.value == "proved"


def test_a_range_that_has_no_effort_left_asks_no_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kink of a long nest would be compared with the target anew, each time through all kinks below it."""
    rng, inner, asked, compare = some(112), "x", [0], reading.in_terms_of

    def counted_compare(*args: Any) -> Any:
        asked[0] += 1
        return compare(*args)

    monkeypatch.setattr(reading, "in_terms_of", counted_compare)
    monkeypatch.setattr(reading, "Effort", partial(Effort, 0))
    for _ in range(6):
        inner = f"abs({rng.uniform(0.8, 1.3):.2f}*{inner}+{rng.uniform(-1, 1):.2f}*y-{rng.random():.2f})"
    made = af.compile(inner, domain={"x": (-1, 1), "y": (-1, 1)}, eps=0.05, method="compose")
    assert made.certificate.status.value == "proved" and not asked[0]
