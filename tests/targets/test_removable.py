"""Removable singularities: found in whatever form they are written, given their limit, and told from poles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.language import parse
from attnfun.language.definedness import require_defined
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.removable import extended, resolved

LINE, SQUARE = "x=-1:1", "x=-1:1;y=-1:1"

# the target, its domain, a singular point, the limit there
REMOVABLE: dict[str, tuple[str, str, tuple[float, ...], float]] = {
    "sine": ("sin(x)/x", LINE, (0.0,), 1.0),
    "at the end of the domain": ("sin(x)/x", "x=0:1", (0.0,), 1.0),
    "squares": ("sin(x)**2/x**2", LINE, (0.0,), 1.0),
    "square of the quotient, and a factor": ("(sin(x)/x)**2*y", SQUARE, (0.0, 0.5), 0.5),
    "negative powers": ("y*x**-2*sin(x)**2", SQUARE, (0.0, 0.5), 0.5),
    "versed sine": ("(1 - cos(x))/x**2", LINE, (0.0,), 0.5),
    "exponential": ("(exp(x) - 1)/x", LINE, (0.0,), 1.0),
    "expm1": ("expm1(x)/x", LINE, (0.0,), 1.0),
    "Bose": ("x/(exp(x) - 1)", LINE, (0.0,), 1.0),
    "tangent": ("tan(x)/x", LINE, (0.0,), 1.0),
    "hyperbolic tangent below": ("x/tanh(x)", LINE, (0.0,), 1.0),
    "hyperbolic sine": ("sinh(x)/x", LINE, (0.0,), 1.0),
    "log1p": ("log1p(x)/x", "x=-0.5:1", (0.0,), 1.0),
    "logarithm of 1 + x": ("log(1 + x)/x", "x=-0.5:1", (0.0,), 1.0),
    "logarithm": ("log(x)/(x - 1)", "x=0.5:2", (1.0,), 1.0),
    "sine below": ("x/sin(x)", LINE, (0.0,), 1.0),
    "arc tangent": ("atan(x)/x", LINE, (0.0,), 1.0),
    "arc sine, up to its ends": ("asin(x)/x", LINE, (0.0,), 1.0),
    "error function": ("erf(x)/x", LINE, (0.0,), 2 / math.sqrt(math.pi)),
    "third order": ("(x - sin(x))/x**3", LINE, (0.0,), 1 / 6),
    "pi": ("sin(pi*x)/(pi*x)", LINE, (0.0,), 1.0),
    "pi above only": ("sin(pi*x)/x", LINE, (0.0,), math.pi),
    "polynomials": ("(x**2 - 1)/(x - 1)", "x=0:3", (1.0,), 2.0),
    "a power cancelled": ("x**3/x", LINE, (0.0,), 0.0),
    "a composite": ("sin(x*y)/(x*y)", SQUARE, (0.0, 0.5), 1.0),
    "a composite, half of it below": ("sin(x*y)/x", SQUARE, (0.0, 0.5), 0.5),
    "a composite, one factor at a time": ("sin(x*y)/x/y", SQUARE, (0.5, 0.0), 1.0),
    "a composite above": ("x*y/(exp(x*y) - 1)", SQUARE, (0.0, 0.5), 1.0),
    "a difference": ("sin(x - y)/(y - x)", SQUARE, (0.25, 0.25), -1.0),
    "multiples of a difference": ("sin(2*x - 2*y)/(x - y)", SQUARE, (0.25, 0.25), 2.0),
    "a difference times a factor": ("t*sin((x - y)*t/2)**2/((x - y)*t/2)**2", "x=0:1;y=0:1;t=1:3", (0.5, 0.5, 2), 2.0),
    "two quotients": ("sin(x)/x*sin(y)/y", SQUARE, (0.0, 0.0), 1.0),
    "inside a function": ("log(sin(x)/x)", LINE, (0.0,), 0.0),
    "in a sum": ("y + sin(x)/x", SQUARE, (0.0, 0.5), 1.5),
    "with a kink elsewhere": ("abs(x)*sin(x)/x", LINE, (0.0,), 0.0),
    "a root that stays positive": ("sin(sqrt(x)*y)/(sqrt(x)*y)", "x=1:2;y=0:1", (1.5, 0.0), 1.0),
    "away from 0": ("sin(x - 1/3)/(x - 1/3)", "x=0:1", (1 / 3,), 1.0),
    "two exponentials": ("(exp(x) - exp(y))/(x - y)", SQUARE, (0.25, 0.25), math.exp(0.25)),
    "two sines": ("(sin(2*x) - sin(2*y))/(y - x)", SQUARE, (0.25, 0.25), -2 * math.cos(0.5)),
    "two cosines": ("(cos(x) - cos(y))/(x - y)", SQUARE, (0.25, 0.25), -math.sin(0.25)),
    "two logarithms below": ("(x - y)/(log(x) - log(y))", "x=1:3;y=1:3", (2.0, 2.0), 2.0),
    "two roots": ("(sqrt(x) - sqrt(y))/(x - y)", "x=1:3;y=1:3", (2.0, 2.0), 0.5 / math.sqrt(2)),
    "two powers": ("z*(x**1.5 - y**1.5)/(x - y)", "x=1:3;y=1:3;z=0:1", (2.0, 2.0, 0.5), 0.75 * math.sqrt(2)),
    "two cubes": ("(x**3 - y**3)/(x - y)", SQUARE, (0.5, 0.5), 0.75),
    "two reciprocals": ("(1/x - 1/y)/(x - y)", "x=1:3;y=1:3", (2.0, 2.0), -0.25),
    "two tangents": ("(tan(x) - tan(y))/(x - y)", SQUARE, (0.25, 0.25), 1 / math.cos(0.25) ** 2),
    "two hyperbolic tangents": ("(tanh(x) - tanh(y))/(x - y)", SQUARE, (0.25, 0.25), 1 / math.cosh(0.25) ** 2),
    "two hyperbolic sines": ("(sinh(x) - sinh(y))/(x - y)", SQUARE, (0.25, 0.25), math.cosh(0.25)),
    "two hyperbolic cosines": ("(cosh(x) - cosh(y))/(x - y)", SQUARE, (0.25, 0.25), math.sinh(0.25)),
    "two sigmoids": ("(sigmoid(x) - sigmoid(y))/(x - y)", SQUARE, (0.0, 0.0), 0.25),
    "two log1p": ("(log1p(x) - log1p(y))/(x - y)", "x=0:1;y=0:1", (0.5, 0.5), 1 / 1.5),
    "two products": ("(x*exp(x) - y*exp(y))/(x - y)", SQUARE, (0.5, 0.5), 1.5 * math.exp(0.5)),
    "two quotients of one kind": ("(x/(2 + x) - y/(2 + y))/(x - y)", SQUARE, (0.5, 0.5), 2 / 2.5**2),
    "differences above and below": ("(sin(x) - sin(y))/(exp(x) - exp(y))", SQUARE, (0.0, 0.0), 1.0),
    "along a slanted line": ("(exp(2*x + 1) - exp(y))/(2*x + 1 - y)", "x=-1:0;y=-1:1", (-0.5, 0.0), 1.0),
    "negative powers of both": ("(x**-2 - y**-2)/(x - y)", "x=1:3;y=1:3", (2.0, 2.0), -0.25),
}

# the target, its domain, what the refusal must name
REFUSED: dict[str, tuple[str, str, str]] = {
    "1/x": ("1/x", LINE, r"denominator x .*x=.*pole"),
    "order too low": ("sin(x)/x**2", LINE, r"x\*\*2 .*x=.*pole"),
    "no zero above": ("cos(x)/x", LINE, r"denominator x .*x=.*pole"),
    "nearly": ("sin(x)/(x + 1e-9)", LINE, r"x \+ 1e-9 .*x=-1e-09.*pole"),
    "nearly above": ("(sin(x) - 1e-12)/x", LINE, r"denominator x .*x=.*pole"),
    "nearly, in a scale": ("sin(x)/(1.000000001*x - 1e-30)", LINE, r"x=.*pole"),
    "other zeros": ("sin(x)/y", SQUARE, r"denominator y .*y=.*pole"),
    "a sum of zeros": ("(sin(x) + sin(y))/x", SQUARE, r"denominator x .*x=.*pole"),
    "a second pole": ("sin(x)/(x*(x - 0.5))", LINE, r"x - 0.5 .*x=0.5.*pole"),
    "another zero of the denominator": ("x/sin(x)", "x=-4:4", r"sin\(x\)/x .*x=-3.14159.*pole"),
    "a jump": ("abs(x)/x", LINE, r"denominator x .*x=.*pole"),
    "a jump by a root": ("sqrt(1 - cos(x))/x", LINE, r"denominator x .*x=.*pole"),
    "0/0 on half of the domain": ("relu(x)/relu(x)", LINE, r"relu\(x\) .*x=-"),
    "a sine of it": ("sin(relu(x))/relu(x)", LINE, r"relu\(x\) .*x=-"),
    "a root that hides it": ("x*(x - sqrt(x*x))/(x - sqrt(x*x))", LINE, r"sqrt.*x="),
    "undefined on half of the domain": ("x*log(x)/log(x)", LINE, r"argument of log x .*x=-1"),
    "0/0 everywhere": ("(x - x)/(x - x)", LINE, r"denominator x - x .*x="),
    "two variables, no zero above": ("(exp(x) + exp(y))/(x - y)", SQUARE, r"x - y .*pole"),
    "two variables, order too low": ("(exp(x) - exp(y))/(x - y)**2", SQUARE, r"x - y.*pole"),
    "two variables, another line": ("(exp(x) - exp(y))/(x + y)", SQUARE, r"x \+ y .*pole"),
    "two variables, nearly": ("(exp(x) - exp(y) - 1e-12)/(x - y)", SQUARE, r"x - y .*pole"),
    "two variables, a kink": ("(abs(x) - abs(y))/(x - y)", SQUARE, r"x - y .*pole"),
    "two variables, half of the zeros": ("(sin(x) - sin(y))/(x**2 - y**2)", SQUARE, r"x \+ y|x\*\*2 - y\*\*2"),
    "a limit that depends on the way": ("x*y/(x**2 + y**2)", SQUARE, r"x\*\*2 \+ y\*\*2 .*pole"),
}


@pytest.mark.parametrize("case", REMOVABLE.values(), ids=REMOVABLE.keys())
def test_a_removable_singularity_has_its_limit(case: tuple[str, str, tuple[float, ...], float]) -> None:
    text, domain, point, limit = case
    box = Box.parse(domain)
    function = Function.read(text, box)
    assert function.graph is not None and function.source == parse(text, box.names)
    require_defined(function.graph, box)
    X = np.array([point])
    assert function.values(X)[0, 0] == pytest.approx(limit, abs=1e-14, rel=1e-14)
    step = 1e-7 * np.sign((box.low_array + box.high_array) / 2 - X[0] + 1e-3)
    assert function.values(X + step)[0, 0] == pytest.approx(limit, abs=1e-5)


@pytest.mark.parametrize("case", REMOVABLE.values(), ids=REMOVABLE.keys())
def test_elsewhere_it_is_the_expression(case: tuple[str, str, tuple[float, ...], float]) -> None:
    text, domain, _, _ = case
    box = Box.parse(domain)
    X = box.sample(200, np.random.default_rng(3))
    function = Function.read(text, box)
    plain = Function(parse(text, box.names), box, ("f",)).values(X)
    assert np.isfinite(plain).all()
    assert np.abs(function.values(X) - plain).max() <= 1e-9 * (1 + np.abs(plain).max())


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_pole_is_refused_with_the_subexpression_and_a_point(case: tuple[str, str, str]) -> None:
    text, domain, words = case
    box = Box.parse(domain)
    function = Function.read(text, box)
    assert function.graph is not None
    with pytest.raises(InvalidRequest, match=words):
        require_defined(function.graph, box)


@pytest.mark.parametrize("text", ["sin(x)/x", "sin(3*x)/(2 + x)", "(x - 1)/(x - 2) + log(x)", "x/(exp(x) - 1)"])
def test_nothing_changes_where_no_denominator_vanishes(text: str) -> None:
    box = Box.parse("x=0.5:1.5")
    graph = parse(text, box.names)
    assert extended(graph, box) is graph
    assert resolved(graph, box)[0] is graph
    assert Function.read(text, box).source is None


def test_what_is_stored_and_shown_is_the_expression_that_was_asked_for() -> None:
    box = Box.parse(SQUARE)
    function = Function.read("y*sin(x)**2/x**2", box)
    assert function.text == "y*sin(x)**2/x**2"
    again = Function.from_json(function.to_json())
    assert again == function and again.source == function.source


def test_several_outputs_are_extended_together() -> None:
    box = Box.parse(LINE)
    function = Function.read(["sin(x)/x", "x", "tan(x)/x + 1"], box)
    assert function.values(np.zeros((1, 1))).tolist() == [[1.0, 0.0, 2.0]]


@pytest.mark.parametrize(
    "text",
    [
        "1/(x - x)",
        "x**1000/x",
        "1e300*sin(x)/(1e-300*x)",
        "(" * 40 + "x" + ")/x" * 40,
        "x/x/x",
        "0*sin(x)/x",
        "x**-999",
    ],
)
def test_odd_requests_end_in_a_function_or_a_sentence(text: str) -> None:
    box = Box.parse(LINE)
    try:
        function = Function.read(text, box)
        assert function.graph is not None
        require_defined(function.graph, box)
    except AttnfunError as why:
        assert str(why)
    else:
        assert np.isfinite(function.values(np.array([[0.0], [0.3]]))).all()


def test_a_traced_function_may_be_a_sinc() -> None:
    def wave(x: Any) -> Any:
        return np.sinc(x) + np.sin(x - 1) / (x - 1)

    function = Function.read(wave, Box.parse("x=-1:2"))
    assert function.source is not None
    expected = [np.sinc(0.0) + np.sin(1.0), np.sinc(1.0) + 1.0, np.sinc(0.3) + np.sin(-0.7) / -0.7]
    assert function.values(np.array([[0.0], [1.0], [0.3]]))[:, 0] == pytest.approx(expected, rel=1e-13)
