"""The parser: what it reads, what each thing means, and that hostile text is one short sentence in no time."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnfun.errors import InvalidRequest
from attnfun.language import ArrayAlgebra, Node, parse, run
from attnfun.language.operations import CALLED
from attnfun.language.operations.entry import Operation
from attnfun.language.parse import CALLS, COLLECTORS, arity
from products import drawn


def value(text: str, **env: float) -> float:
    graph = parse(text, list(env))
    return float(run(graph, ArrayAlgebra(), {name: np.float64(number) for name, number in env.items()})[0])


def ops(text: str, *names: str) -> list[str]:
    return [node.op for node in parse(text, names).nodes]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sin(3*x) + cos(2*y)*exp(x*y)", math.sin(0.9) + math.cos(1.4) * math.exp(0.21)),
        ("-x**2", -0.09), ("2**-1", 0.5), ("2**3**2", 512), ("1 - 2 - 3", -4), ("8/4/2", 1), ("+x", 0.3),
        ("arcsin(x) + asin(x)", 2 * math.asin(0.3)), ("arccos(x)", math.acos(0.3)), ("arctan(x)", math.atan(0.3)),
        ("ln(y)", math.log(0.7)), ("log1p(x) + expm1(x)", math.log1p(0.3) + math.expm1(0.3)),
        ("max(x, y, 0.5, 2)", 2), ("min(x, y, 0.5)", 0.3), ("clip(5*x, 0, 1)", 1), ("clip(-x, 0, 1)", 0),
        ("abs(-x) + sign(-y)", -0.7), ("relu(x - y)", 0), ("erf(x)", math.erf(0.3)), ("sqrt(y)", math.sqrt(0.7)),
        ("sigmoid(x)", 1 / (1 + math.exp(-0.3))), ("softplus(x)", math.log(1 + math.exp(0.3))),
        ("pi*e", math.pi * math.e),
        ("x**y", 0.3**0.7), ("x**0.5", math.sqrt(0.3)), ("y**(1/3)", 0.7 ** (1 / 3)), ("tanh(x)/sinh(x)*cosh(x)", 1),
        (" x +\n\ty ", 1.0), ("sin (x)", math.sin(0.3)), (".5 + 1. + 1e0 + 1E-1", 2.6), ("tan(x)", math.tan(0.3)),
    ],
)  # fmt: skip
def test_expressions_mean_what_they_mean_in_python(text: str, expected: float) -> None:
    assert value(text, x=0.3, y=0.7) == pytest.approx(expected, rel=1e-14)


def test_numbers_are_exact_decimals() -> None:
    for text, exact in [("0.1", Fraction(1, 10)), ("1e300", Fraction(10**300)), ("1.25e-2", Fraction(1, 80))]:
        assert parse(text, []).nodes == (Node("const", (), exact),)
    assert parse("0.1 + 0.2 - 0.3", []).nodes == (Node("const", (), Fraction(0)),)
    assert parse("-0e999", []).nodes == (Node("const", (), Fraction(0)),)


def test_a_name_of_the_domain_is_a_variable_whatever_it_is_called() -> None:
    names = ["e", "pi", "I", "E", "gamma", "beta", "lambd", "S", "N"]
    graph = parse("+".join(names), names)
    assert sorted(graph.variables) == sorted(names)
    assert ops("e*pi", "x") == ["e", "pi", "mul"]
    assert ops("e*pi", "e") == ["var", "pi", "mul"]
    assert ops("sin", "sin") == ["var"]


def test_powers_go_to_the_operation_of_their_exponent() -> None:
    assert parse("x**2", "x").nodes[-1] == Node("powi", (0,), 2)
    assert parse("x**-(4/2)", "x").nodes[-1] == Node("powi", (0,), -2)
    assert parse("x**0.5", "x").nodes[-1] == Node("powr", (0,), Fraction(1, 2))
    assert ops("x**pi", "x")[-1] == "pow"
    assert ops("2**x", "x")[-1] == "pow"


def test_several_outputs_share_one_graph() -> None:
    graph = parse(["sin(x)", "sin(x)**2", "x"], ["x"])
    assert len(graph.nodes) == 3 and len(graph.outputs) == 3


def test_long_flat_sums_and_wide_expressions_are_read() -> None:
    assert value("+".join(["x"] * 700), x=1.0) == 700
    assert value("(" + ")+(".join("*".join(["x"] * 40) for _ in range(60)) + ")", x=1.0) == 60
    assert value("(" * 199 + "x" + ")" * 199, x=1.0) == 1
    assert value("max(" + ",".join(["x"] * 2000) + ")", x=1.0) == 1


HOSTILE = {
    "60,000 brackets": "(" * 60_000 + "x" + ")" * 60_000,
    "9,999 brackets": "(" * 9_999 + "x" + ")" * 9_999,
    "open brackets": "(" * 60_000,
    "250 brackets": "(" * 250 + "x" + ")" * 250,
    "nested calls": "sin(" * 250 + "x" + ")" * 250,
    "half-open calls": "sin(" * 190,
    "a million characters": "x" * 10**6,
    "a million terms": "+".join("x" * 500_000),
    "10,000 terms": "+".join("x" * 9_999),
    "many terms": "+".join(["(x+x+x+x)"] * 700),
    "import": "__import__('os')",
    "import without a string": "__import__(x)",
    "attribute": "x.real",
    "attribute of a number": "(1).real",
    "class": "x.__class__.__bases__[0]",
    "lambda": "lambda x: x",
    "lambda as a name": "lambda*x",
    "f-string": "f'{x}'",
    "string": "'x'",
    "comprehension": "[x for x in x]",
    "generator": "max(x for x in x)",
    "walrus": "(x:=3)",
    "conditional": "x if x else x",
    "boolean": "x and x",
    "not": "not x",
    "a condition that is a number": "where(x, 1, 2)",
    "brackets left out around comparisons": "x > 0 & x > 1",
    "an if without else": "x if x > 0",
    "an else without if": "(x if x > 0) else 2",
    "a not inside a sum": "x + not x > 0",
    "a not after an operand": "x not x",
    "an if in an if": "x if x > 0 if x > 1 else 2",
    "identity": "x is x",
    "membership": "x in x",
    "two comparisons": "x > > 1",
    "many else": "x if x > 0 else " * 150 + "x",
    "many not": "not " * 250 + "x > 0",
    "starred": "max(*x)",
    "keyword": "sin(x=1)",
    "await": "await x",
    "yield": "(yield x)",
    "unicode name": "α + x",
    "unicode digits": "x + ٣",
    "confusable": "х",
    "fullwidth": "ｘ",
    "null byte": "x\0",
    "surrogate": "x\ud800",
    "comment": "x # y",
    "continuation": "x + \\\n x",
    "semicolon": "x; x",
    "too large": "1e400",
    "too small": "1e-400",
    "far too large": "1e99999999999999999999",
    "tower": "9**9**9**9",
    "large power": "x**1001",
    "large constant": "10**400",
    "large constant of large": "1e200**500",
    "long number": "9" * 5_000,
    "long decimal": "0." + "1" * 5_000,
    "signs": "-" * 5_000 + "x",
    "many signs": "-" * 19_000 + "x",
    "mixed signs": "+-" * 150 + "x",
    "power chain": "**".join("x" * 5_000),
    "short power chain": "**".join("x" * 250),
    "signed power chain": "**-".join("x" * 150),
    "bracketed signs": "-(" * 110 + "x" + ")" * 110,
    "empty": "",
    "blank": " \n ",
    "infinity": "inf",
    "nan": "nan*x",
    "division by zero": "x/0",
    "hidden division by zero": "x/(1 - 1)",
    "power of zero": "0**-1",
    "complex": "1j",
    "hexadecimal": "0x10",
    "octal": "007",
    "underscore": "1_000",
    "juxtaposition": "2x",
    "call of a number": "2(x)",
    "call of a bracket": "(sin)(x)",
    "call of a variable": "x(2)",
    "call of a call": "sin(x)(x)",
    "double call": "max(x, x)(x)",
    "function as a name": "sin + x",
    "missing operand": "x +",
    "missing operand in a call": "max(x,)",
    "empty call": "sin()",
    "empty bracket": "()",
    "tuple": "x, x",
    "bracketed tuple": "(x, x)",
    "unclosed": "(x",
    "unopened": "x)",
    "too few": "max(x)",
    "too many": "sin(x, x)",
    "clip": "clip(x, 1)",
    "caret": "x^2",
    "matrix product": "x @ x",
    "inversion": "~x",
    "assignment": "x = 3",
    "ellipsis": "...",
    "none": "None",
    "debug": "__debug__",
    "long name": "a" * 20_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_one_line(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidRequest) as caught:
            parse(text, ["x"])
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and len(message) < 700 and message.isprintable()
    assert caught.value.column is not None and f"column {caught.value.column}" in message
    assert ascii(text[:40])[1:-1] in message or len(text) > 64, "the text is repeated"


@drawn(300)
@given(st.text(alphabet="xy()+-*/.,0123456789e sincomax\n", max_size=60))
@example("1e5e5")
@example("x**")
def test_any_text_is_read_or_refused(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            graph = parse(text, ["x", "y"])
        except InvalidRequest as error:
            assert len(str(error).splitlines()) == 1
        else:
            again = [graph.text(output, 20_000) for output in graph.outputs]
            assert parse(again, ["x", "y"]) == graph


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_unicode_is_read_or_refused(text: str) -> None:
    try:
        parse(text, ["x"])
    except InvalidRequest as error:
        assert str(error).isprintable()


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("sin(x) + foo(x)", 10, "unknown function 'foo'"), ("Sin(x)", 1, "did you mean 'sin'"),
        ("x + alhpa", 5, "did you mean 'alpha'"), ("x + q", 5, "the variables are x, alpha"),
        ("x^2", 2, "**"), ("x + (2*x", 5, "never closed"), ("x)", 2, "never opened"),
        ("2x", 2, "operator is missing"),
        ("1 + x/(2 - 2)", 8, "division by zero"), ("  x + y", 7, "unknown name 'y'"), ("x + lambda", 5, "Python"),
        ("sin", 1, "sin(…)"), ("x(2)", 1, "x*(…)"), ("x +\nfoo", 5, "unknown name"), ("max(x)", 1, "2 or more"),
        ("cso(x)", 1, "did you mean 'cos'"), ("x*1e301", 3, "1e300"), ("x, x", 2, "list"),
    ],
)  # fmt: skip
def test_errors_point_at_the_column_and_help(text: str, column: int, part: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text, ["x", "alpha"])
    assert caught.value.column == column
    assert part in str(caught.value)


@pytest.mark.parametrize("source", [None, 5, [], ["x", 5], {"x": 1}, b"x", ["x"] * 1001, [["x"]]])
def test_what_is_no_text_is_refused(source: object) -> None:
    with pytest.raises(InvalidRequest):
        parse(source, ["x"])  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [["x", "x"], ["lambda"], ["1x"], ["x y"], [""], ["α"], [5], ["a" * 200], ["x\n"]])
def test_bad_names_are_refused(names: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse("1", names)
    assert len(str(caught.value).splitlines()) == 1


def test_many_large_outputs_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="together"):
        parse(["max(" + ",".join(["x"] * 4_000) + ")"] * 1000, ["x"])


def test_every_listed_function_is_read() -> None:
    for name in CALLS:
        if name in COLLECTORS and name not in ("max", "min"):
            assert parse(f"{name}(v)", ["x", "v[0]", "v[1]"]).nodes
            continue
        whole = isinstance(entry := CALLED.get(name), Operation) and entry.whole
        arguments = (["2"] if whole else ["x > 0" if name == "where" else "x"]) + ["x"] * (arity(name) - 1)
        assert parse(f"{name}({', '.join(arguments)})", ["x"]).nodes


V = [*(f"v[{k}]" for k in range(5)), "y", *(f"w[{k}]" for k in range(3))]


@pytest.mark.parametrize(
    ("text", "written_out"),
    [
        ("sum(v[i]**2 for i in range(3))", "v[0]**2 + v[1]**2 + v[2]**2"),
        ("sum(v)", "v[0] + v[1] + v[2] + v[3] + v[4]"), ("sum(v[1::2])", "v[1] + v[3]"), ("v[-1]*y", "v[4]*y"),
        ("sum(v[i]*v[i+1] for i in range(4))", "v[0]*v[1] + v[1]*v[2] + v[2]*v[3] + v[3]*v[4]"),
        ("sum(v[i] for i in range(1, 5, 3))", "v[1] + v[4]"), ("sum(v[i] for i in range(4, 2, -1))", "v[4] + v[3]"),
        ("prod(cos(w[i]/(i + 1)) for i in range(3))", "cos(w[0])*cos(w[1]/2)*cos(w[2]/3)"),
        ("sum(i*w[i]**i for i in range(1, 3))", "w[1] + 2*w[2]**2"),
        ("sum(v[i]*w[j] for i in range(2) for j in range(i + 1))", "v[0]*w[0] + v[1]*w[0] + v[1]*w[1]"),
        ("sum(prod(w[j] for j in range(i + 1)) for i in range(2))", "w[0] + w[0]*w[1]"),
        ("sum(u*y for u in w)", "w[0]*y + w[1]*y + w[2]*y"), ("sum(u**2 for u in v[:2])", "v[0]**2 + v[1]**2"),
        ("sum(w[i] for i in range(3) if i % 2 - 1)", "w[0] + w[2]"),
        ("sum(w[i//2] for i in range(4))", "w[0] + w[0] + w[1] + w[1]"),
        ("max(w)", "max(max(w[0], w[1]), w[2])"), ("min(u - y for u in w[1:])", "min(w[1] - y, w[2] - y)"),
        ("max(w[0], y, 1)", "max(max(w[0], y), 1)"), ("max(v[:4])", "max(max(v[0], v[1]), max(v[2], v[3]))"),
        ("norm(w)", "sqrt(w[0]**2 + w[1]**2 + w[2]**2)"),
        ("norm(w[i] - v[i] for i in range(2))", "sqrt((w[0] - v[0])**2 + (w[1] - v[1])**2)"),
        ("logsumexp(w[:2])", "log(exp(w[0]) + exp(w[1]))"), ("sum(w)/len(w)", "(w[0] + w[1] + w[2])/3"),
        ("sum(w[i] for i in range(0)) + y", "y"), ("y*prod(w[:0])", "y"), ("sum(w for w in w)", "w[0] + w[1] + w[2]"),
        ("sum(v[(i + 3) % 5] for i in range(3))", "v[3] + v[4] + v[0]"),
        ("sum(u for u in w) * y", "(w[0] + w[1] + w[2])*y"),
    ],
)  # fmt: skip
def test_vectors_and_generators_are_written_out(text: str, written_out: str) -> None:
    assert parse(text, V) == parse(written_out, V)


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("v", 1, "a vector of 5"), ("v[5]", 1, "past the 5 entries"), ("v[-6]", 1, "past"),
        ("v[y]", 3, "whole number"),
        ("v[1/2]", 3, "whole number"), ("y[0]", 1, "no vector"), ("q[0]", 1, "no vector"), ("v[v[0]]", 4, "index"),
        ("v[0][1]", 5, "operator is missing"), ("v[]", 3, "missing"), ("v[1:]", 1, "a slice is a vector"),
        ("v[1,2]", 4, "comma"),
        ("sum(v[i] for i in range(y))", 25, "whole number"), ("sum(y)", 1, "sum takes a vector"),
        ("sin(v)", 1, "sin(v) for v"),
        ("sum(v[i] for i in range(6))", 5, "past"), ("sum(1 for i in range(10**7))", 16, "more than 200,000"),
        ("sum(1 for i in range(900) for j in range(900))", 36, "more than 200,000"),
        ("range(3)", 1, "in a generator"),
        ("sum(i for i in range(1, 2, 0))", 16, "step"), ("sum(v[::0])", 5, "step"), ("max(w[3:])", 1, "of nothing"),
        ("(i for i in v)", 4, "stand alone in calls"), ("sum(i for i in v, 2)", 17, "alone"),
        ("sum(2, i for i in v)", 10, "alone"),
        ("sum(for i in v)", 5, "missing before 'for'"), ("sum(i for 2 in v)", 11, "loop variable"),
        ("sum(i for i of v)", 13, "'in'"),
        ("sum(i for i in)", 15, "missing"), ("sum(i for in v)", 11, "loop variable"),
        ("sum(v[i] for i in y)", 19, "no vector"), ("sum(w[i] for w in range(3))", 5, "no vector"),
        ("sum(v[i] for i in v)", 7, "whole number"),
        ("sum(u for u in v if y)", 21, "condition"),
        ("y:2", 2, "slices"), ("v[:::]", 5, "slices"), ("v[0)", 4, "never opened"), ("[v]", 1, "no lists"),
        ("v[1+:]", 5, "missing"),
        ("sum(1" + "".join(f" for a{k} in v" for k in range(9)) + ")", 103, "8 loops"), ("len(y)", 1, "len takes"),
        ("sum(1/i for i in range(2))", 7, "division by zero"),
        ("sum(v[i%0] for i in range(2))", 9, "division by zero"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_index_or_a_generator_is_told(text: str, column: int, part: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text, V)
    assert part in str(caught.value) and caught.value.column == column


@drawn(300)
@given(
    st.lists(
        st.sampled_from(
            [
                "v",
                "w",
                "y",
                "i",
                "[",
                "]",
                "(",
                ")",
                ":",
                ",",
                " for ",
                " in ",
                " if ",
                "sum(",
                "max(",
                "range(",
                "+",
                "-",
                "2",
                "//",
                "%",
                "i in v",
            ]
        ),
        max_size=24,
    ).map("".join)
)
def test_any_generator_is_read_or_refused_before_it_is_parsed(text: str) -> None:
    """What the scan lets through is a sentence of Python, too."""
    try:
        parse(text, V)
    except InvalidRequest as error:
        assert "not a correct expression" not in str(error)
