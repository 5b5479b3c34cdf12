"""compose: rewrites and programs are the target exactly, heads are shared, layers are as early as they can be."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

import attnfun as af
from attnfun.certify.identity import same_function
from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.kinds.function.build.compose_program import Finished, Program, dyadic, rough_keys, step_graph
from attnfun.kinds.function.build.compose_steps import Forms, Step, names_of
from attnfun.kinds.function.build.compose_steps import steps_of as found_steps
from attnfun.kinds.function.build.compose_walk import Walk
from attnfun.kinds.function.build.plan import Request
from attnfun.language import BallAlgebra, Builder, Graph, parse, precision, run
from attnfun.language.canonical import canonical
from attnfun.language.domain import Box
from attnfun.language.function import Function
from expressions.random_graphs import graphs
from products import drawn

POSITIVE, ANY = "x=1:2;y=0.5:3;z=1:5", "x=-1:2;y=-1.5:1;z=-1:1"


def walked(target: str | list[str], domain: str) -> tuple[Finished, Graph, Box]:
    box = Box.parse(domain)
    graph = parse(target, box.names)
    return Walk(canonical(graph), box, rough_keys).finished, graph, box


def steps_of(target: str | list[str], domain: str) -> tuple[Graph, tuple[Step, ...]]:
    finished, graph, box = walked(target, domain)
    request = Request(
        Function(graph, box, tuple(f"f{i}" for i in range(len(graph.outputs)))), 1e-3, math.inf, "float64"
    )
    return finished.graph, found_steps(finished, request)


def points_agree(one: Graph, other: Graph, box: Box, seed: int = 0, count: int = 40) -> bool:
    """Do both graphs have the same values, in balls, at random points at which the second is defined?"""
    X = box.sample(count, np.random.default_rng(seed))
    point = np.frompyfunc(arb, 1, 1)
    with precision(256):
        env = {n: point(X[:, k]) for k, n in enumerate(box.names)}
        for a, b in zip(run(one, BallAlgebra(), env), run(other, BallAlgebra(), env), strict=True):
            left, right = (np.broadcast_to(np.asarray(v, dtype=object), (count,)) for v in (a, b))
            for p, q in zip(left, right, strict=True):
                if q.is_finite() and not (p.is_finite() and p.overlaps(q)):
                    return False
    return True


# ---------------------------------------------------------------- rewrites


REWRITES = {
    "products in one order": ("x*y/z", "y/z*x"),
    "nested quotients": ("x/(y/z)", "z*x/y"),
    "quotient of quotients": ("(x/y)/(z/y)", "x/z"),
    "equal bases merged": ("x*y*x*x", "y*x**3"),
    "powers of powers": ("(x**2)**3*y", "y*x**6"),
    "negative powers": ("x**-2*y", "y/x**2"),
    "rational factors": ("(2*x)*(3*y)", "6*(y*x)"),
    "signs of products": ("(-x)*(-y)", "x*y"),
    "odd power of a sign": ("(-x)**3", "-x**3"),
    "even power of a sign": ("(y - x)**2", "(x - y)**2"),
    "sums in one order": ("x + y + z", "z + (y + x)"),
    "equal terms": ("x + y + x + x", "3*x + y"),
    "cancelling terms": ("x + y - x", "y"),
    "constants collected": ("1 + x + 2 - 1/2", "x + 5/2"),
    "sign of a difference": ("-(x - y)", "y - x"),
    "even functions": ("cos(y - x) + cosh(-x) + abs(y - x)", "cos(x - y) + cosh(x) + abs(x - y)"),
    "odd functions": ("sin(-x) + tanh(y - x)", "-sin(x) - tanh(x - y)"),
}


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_makes_one_node_of_two(name: str) -> None:
    one, other = REWRITES[name]
    box = Box.parse(POSITIVE)
    both = canonical(parse([one, other], box.names))
    assert both.outputs[0] == both.outputs[1]
    given_ = parse([one, other], box.names)
    assert points_agree(both, given_, box)
    same_function(both, given_, box)


@pytest.mark.parametrize(
    "text",
    [
        "sqrt(-x*y)",
        "(x*y)**(1/3)",
        "log(-x)",
        "exp(-x)",
        "sqrt(x)*sqrt(x)",
        "acos(-x/9)",
        "max(-x, y)",
        "x**y",
        "0*x + y",
    ],
)
def test_what_needs_positivity_is_left_alone(text: str) -> None:
    box = Box.parse("x=-2:-1;y=0.5:3" if text in ("sqrt(-x*y)", "log(-x)") else "x=1:2;y=0.5:3")
    graph = parse(text, box.names)
    assert points_agree(canonical(graph), graph, box)
    same_function(canonical(graph), graph, box)


@drawn(120)
@given(graphs(("x", "y"), depth=5), st.integers(0, 100))
def test_canonical_graphs_have_the_same_values(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, 2, 2)
    box = Box(("x", "y"), tuple(low), tuple(low + rng.uniform(0.1, 2, 2)))
    try:
        new = canonical(graph)
    except InvalidRequest:  # x/(y - y): a target that is defined nowhere
        new = parse("1/(x - x)", box.names)
    assert points_agree(new, graph, box, seed)
    try:
        same_function(new, graph, box)
    except Undecided as why:  # its rewrites may not reach it, but it must never see a difference
        assert "differ by" not in str(why)


def test_canonical_is_done_once() -> None:
    for one, other in REWRITES.values():
        graph = canonical(parse([one, other, f"sin({one})*exp({other})"], ("x", "y", "z")))
        assert canonical(graph) == graph


# ---------------------------------------------------------------- the walk


WALKS = {
    "fuse": ("sin(x + 2*y)**2 * exp(sin(x + 2*y))", ANY, 2),
    "one variable is one head": ("x*sin(x)/(2 + x*x)", ANY, 1),
    "logs": ("x*y*z", POSITIVE, 4),
    "logs of negatives": ("x*y*z/3", "x=-2:-1;y=-3:-0.5;z=1:5", 4),
    "quotient": ("x**2/(y*sqrt(z))", POSITIVE, 4),
    "squares": ("x*y", ANY, 2),
    "a square": ("(x - y)**2", ANY, 1),
    "squares of steps": ("sin(x)*sin(y)", ANY, 4),
    "g of a product": ("sin(x*y)", POSITIVE, 3),
    "maximum": ("max(x, y)", ANY, 1),
    "minimum of steps": ("min(sin(x), exp(y))", ANY, 3),
    "power": ("x**y", POSITIVE, None),
    "norm": ("sqrt((x - y)**2 + (y - z)**2)", ANY, 3),
    "gravity": ("x*y/((x + 3 - z)**2 + (y + z)**2)", POSITIVE, None),
    "factor of either sign": ("x*y*z", "x=-1:1;y=1:2;z=1:3", None),
    "constants": ("2*pi*x*y + e", POSITIVE, None),
    "several outputs": (["x*y", "sin(x*y)", "x"], POSITIVE, None),
}


@pytest.mark.parametrize("name", WALKS)
def test_a_program_is_the_target(name: str) -> None:
    target, domain, heads = WALKS[name]
    finished, graph, box = walked(target, domain)
    program = finished.graph.reachable(finished.graph.outputs)
    assert points_agree(program, graph, box)
    same_function(program, graph, box)
    assert heads is None or len(finished.heads) <= heads


@pytest.mark.parametrize("name", WALKS)
def test_steps_are_functions_of_arguments_that_are_affine_in_earlier_steps(name: str) -> None:
    target, domain, _ = WALKS[name]
    program, steps = steps_of(target, domain)
    forms = Forms(program, steps)
    for i, step in enumerate(steps):
        form, _ = forms(step.argument)  # Infeasible if it is not affine
        assert all(n < i for n in form if isinstance(n, int))
        assert step.function.variables == ("u",)
        assert step.low < step.high
    for o in program.outputs:
        forms(o)


@pytest.mark.parametrize("name", WALKS)
def test_layers_are_as_early_as_their_arguments_allow(name: str) -> None:
    target, domain, _ = WALKS[name]
    program, steps = steps_of(target, domain)
    forms = Forms(program, steps)
    layers = forms.layers()
    for step, layer in zip(steps, layers, strict=True):
        read = [layers[n] for n in forms(step.argument)[0] if isinstance(n, int)]
        assert layer == (max(read) + 1 if read else 0)


def test_every_alternative_of_a_product_is_exact() -> None:
    """Not only the one that is chosen: each is written out alone and compared with the product."""
    seen = 0
    for target, domain in (("x*y*z", POSITIVE), ("x*y*z", "x=-1:1;y=1:2;z=1:3"), ("sin(x*y)", POSITIVE)):
        box = Box.parse(domain)
        graph = parse(target, box.names)
        walk = Walk(canonical(graph), box, rough_keys)
        (node,) = walk.outputs
        for alternative in walk._alternatives(node):
            program = Program()
            try:
                out = alternative(program)
            except Infeasible:
                continue
            written = program.builder.graph([out])
            assert points_agree(written, graph, box)
            same_function(written, graph, box)
            seen += 1
    assert seen >= 8


def test_equal_steps_share_a_head_and_unneeded_ones_are_dropped() -> None:
    one, _, _ = walked("sin(x + y) + exp(sin(y + x) - 2*z)", ANY)
    assert len(one.heads) == 2  # the sine once
    two, _, _ = walked(["x*y", "x*y + sin(z)", "-y*x"], ANY)
    assert len(two.heads) == 3  # two squares and a sine
    three, _, _ = walked(["exp(x*y)", "log(x) + y"], POSITIVE)
    assert len({phi for phi, _ in three.heads}) == len(three.heads)
    logs = [three.graph.text(phi, 60) for phi, _ in three.heads]
    assert logs.count("log(x)") <= 1


def test_signs_are_proved_not_sampled() -> None:
    box = Box.parse("x=-1:1")
    walk = Walk(parse("1 - 2*exp(-((x - 0.123456)*10000)**2)", box.names), box, rough_keys)
    assert walk.sign(walk.outputs[0]) == 0  # negative on a ten-thousandth of the box
    positive = Walk(parse("x*x + 1/10", box.names), box, rough_keys)
    assert positive.sign(positive.outputs[0]) == 1


def test_dominators() -> None:
    box = Box.parse("x=1:2;y=1:2")
    walk = Walk(parse("exp(x*y) + sin(x*y)", box.names), box, rough_keys)
    found = [walk.text(u) for u in walk.dominators(walk.outputs[0])]
    assert found == ["x*y"]


def test_step_graphs_refuse_a_second_way_in() -> None:
    build = Builder()
    x, y = build.var("x"), build.var("y")
    phi = build.apply("add", build.apply("sin", x), y)
    unary = step_graph(build, build.apply("sin", x), (x,))
    assert unary.text(unary.outputs[0]) == "sin(u)"
    with pytest.raises(Infeasible):
        step_graph(build, phi, (x,))


@given(st.floats(-1e6, 1e6, allow_subnormal=False))
def test_centres_have_few_bits(value: float) -> None:
    near, above = dyadic(value), dyadic(abs(value), up=True)
    assert abs(near - Fraction(value)) <= abs(Fraction(value)) / 2**11
    assert Fraction(abs(value)) <= above <= Fraction(abs(value)) * (1 + Fraction(1, 2**10))
    assert near == Fraction(float(near))


def test_sensitivities_follow_paths() -> None:
    program, steps = steps_of("exp(2*sin(x) + 5*cos(y))/100", "x=0:1;y=0:1")
    texts = [program.text(s.phi, 60) for s in steps]
    weights = dict(zip(texts, Forms(program, steps).sensitivities({}, 1e-3), strict=True))
    assert weights["cos(y)"] == pytest.approx(2.5 * weights["sin(x)"], rel=0.05)


@pytest.mark.parametrize("target", ["x*y*z", "x*(y - 2*z)*z", "x*y*z*w/3", "x*(y + 1)*z*w"])
def test_polarised_products_are_the_product_in_one_layer_of_powers(target: str) -> None:
    box = Box.parse("x=-1:1;y=-2:3;z=-1:0.5;w=-1:1")
    graph = parse(target, box.names)
    finished = Walk(canonical(graph), box, rough_keys, shallow=True).finished
    assert points_agree(finished.graph, graph, box)
    powers = {finished.graph.nodes[phi].value for phi, _ in finished.heads if finished.graph.nodes[phi].op == "powi"}
    assert powers == {3 if "w" not in target else 4}
    assert finished.depth == 1


def test_few_layers_on_request_and_only_then() -> None:
    target, box = "x*y*z", "x=-1:1;y=-1:1;z=-1:1"
    usual = af.compile(target, box, 1e-6, method="compose")
    for options in ({"prefer": "layers"}, {"max_layers": 1}):
        flat = af.compile(target, box, 1e-6, method="compose", **options)
        assert flat.cost.layers == 1 < usual.cost.layers and flat.cost.keys > usual.cost.keys
        assert flat.certificate.error[1] <= 1e-6


def test_names_are_readable_and_unique() -> None:
    program, steps = steps_of(["x*y*z", "sin(x)"], POSITIVE)
    names = names_of(program, steps, ("x", "y", "z", "sin(x)"))
    assert len(set(names)) == len(names)
    assert "sin(x)" not in names and "sin(x) (2)" in names


# ---------------------------------------------------------------- networks


def test_gravity_in_nine_variables_has_three_layers() -> None:
    plan_of = af.compile(
        "G*m1*m2/((x2-x1)**2+(y2-y1)**2+(z2-z1)**2)",
        "m1=1:2;m2=1:2;G=1:2;x1=3:4;x2=1:2;y1=3:4;y2=1:2;z1=3:4;z2=1:2",
        1e-2,
        method="compose",
    )
    assert plan_of.cost.layers == 3
    assert plan_of.cost.heads == 8
    labels = plan_of.network.labels
    assert labels is not None and labels == labels.canonical()


@pytest.mark.parametrize(
    ("target", "domain"), [("x + 2*y", ANY), (lambda x: float(x > 0), "x=-1:1")], ids=["affine", "black box"]
)
def test_what_compose_is_not_for_is_refused(target: object, domain: str) -> None:
    with pytest.raises((Infeasible, InvalidRequest)):
        af.compile(target, domain, 1e-3, method="compose")
