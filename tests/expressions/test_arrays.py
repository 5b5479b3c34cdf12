"""Expressions on arrays agree with plain NumPy, stay accurate in the tails, and work for complex arguments."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfun.language import ArrayAlgebra, NotAnalytic, parse, run

POINTS = np.concatenate([np.linspace(-3, 3, 61), [-1e300, 1e300, 1e-300, np.inf, -np.inf, np.nan]])


def evaluate(text: str, dtype: npt.DTypeLike = np.float64, **env: npt.ArrayLike) -> npt.NDArray[np.float64]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # undefined is nan, without a warning
        values = {name: np.asarray(value) for name, value in env.items()}
        return run(parse(text, list(env)), ArrayAlgebra(dtype), values)[0]


PLAIN = {
    "sin(x)": np.sin, "cos(x)": np.cos, "tan(x)": np.tan, "asin(x)": np.arcsin, "acos(x)": np.arccos,
    "atan(x)": np.arctan, "sinh(x)": np.sinh, "cosh(x)": np.cosh, "tanh(x)": np.tanh, "exp(x)": np.exp,
    "log(x)": np.log, "log1p(x)": np.log1p, "expm1(x)": np.expm1, "sqrt(x)": np.sqrt, "abs(x)": np.abs,
    "sign(x)": np.sign, "erf(x)": scipy.special.erf, "sigmoid(x)": scipy.special.expit,
    "softplus(x)": lambda x: np.logaddexp(0, x), "relu(x)": lambda x: np.maximum(x, 0), "-x": np.negative,
    "x**2": lambda x: x**2, "x**3": lambda x: x**3, "x**4": lambda x: x**4, "x**5": lambda x: x**5,
    "x**-1": lambda x: 1 / x, "x**-3": lambda x: x**-3.0, "x**0": lambda x: x**0, "x**0.5": lambda x: np.power(x, 0.5),
    "x**(1/3)": lambda x: np.power(x, 1 / 3), "2**x": lambda x: 2.0**x, "1/x": lambda x: 1 / x,
    "max(x, 1)": lambda x: np.maximum(x, 1), "min(x, 1)": lambda x: np.minimum(x, 1),
    "clip(x, -1, 2)": lambda x: np.clip(x, -1, 2),
    "pi*x - e": lambda x: np.pi * x - np.e,
}  # fmt: skip


@pytest.mark.parametrize("text", PLAIN)
def test_agrees_with_plain_numpy(text: str) -> None:
    with np.errstate(all="ignore"):
        expected = PLAIN[text](POINTS)
    np.testing.assert_allclose(evaluate(text, x=POINTS), expected, rtol=1e-14, atol=0)


@settings(deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=5), st.floats(-50, 50))
def test_compound_expressions_agree_with_plain_numpy(xs: list[float], y: float) -> None:
    x = np.array(xs)
    plain = np.sin(3 * x) + np.cos(2 * y) * np.exp(x * y / 100) - np.maximum(x, y) / (1 + x**2)
    ours = evaluate("sin(3*x) + cos(2*y)*exp(x*y/100) - max(x, y)/(1 + x**2)", x=x, y=np.float64(y))
    np.testing.assert_allclose(ours, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("text", [*PLAIN, "sigmoid(3*x) + softplus(x)*x**2.5 - 0.1"])
def test_the_dtype_is_kept(text: str, dtype: npt.DTypeLike) -> None:
    assert evaluate(text, dtype, x=np.array([0.25, 0.5], dtype)).dtype == dtype


@pytest.mark.parametrize("text", ["sigmoid(x)", "softplus(x)", "log1p(x)", "expm1(x)"])
def test_tails_keep_their_digits(text: str) -> None:
    exact: Callable[[Decimal], Decimal] = {
        "sigmoid(x)": lambda x: 1 / (1 + (-x).exp()), "softplus(x)": lambda x: (1 + x.exp()).ln(),
        "log1p(x)": lambda x: (1 + x).ln(), "expm1(x)": lambda x: x.exp() - 1,
    }[text]  # fmt: skip
    points = [-40.0, -30.5, -1e-12, 1e-20, 1e-9, 0.3, 5.0, 36.0, 100.0]
    points = [x for x in points if text != "log1p(x)" or x > -1]
    with localcontext(prec=80):
        expected = np.array([float(exact(Decimal(x))) for x in points])
    np.testing.assert_allclose(evaluate(text, x=points), expected, rtol=1e-15)
    assert np.isfinite(evaluate("sigmoid(x) + 0*softplus(-abs(x))", x=[-1e4, 1e4])).all()


ANALYTIC = [text for text in PLAIN if not any(word in text for word in ("abs", "sign(", "relu", "max", "min", "clip"))]


@pytest.mark.parametrize("text", ANALYTIC)
def test_complex_values_continue_the_real_ones(text: str) -> None:
    x = np.linspace(0.05, 0.9, 9)
    np.testing.assert_allclose(evaluate(text, x=x + 0j), evaluate(text, x=x), rtol=1e-13)
    step = 1e-20  # the derivative without cancellation: Im f(x + ih)/h
    slope = evaluate(text, x=x + 1j * step).imag / step
    near = (evaluate(text, x=x + 1e-5) - evaluate(text, x=x - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, near, rtol=1e-6, atol=1e-8)


def test_complex_softplus_is_the_principal_logarithm_and_does_not_overflow() -> None:
    z = np.array([1 + 3j, -1 + 3j, 2 + 3.5j, 2 - 5j, 0.5 + 9j, -2 + 20j])
    np.testing.assert_allclose(evaluate("softplus(x)", x=z), np.log(1 + np.exp(z)), rtol=1e-13)
    np.testing.assert_allclose(evaluate("softplus(x)", x=1000 + 1j), 1000 + 1j, rtol=1e-15)
    np.testing.assert_allclose(evaluate("sigmoid(x)", x=np.array([-1000 + 1j, 1000 + 1j])), [0, 1], atol=1e-300)


@pytest.mark.parametrize("text", ["abs(x)", "sign(x)", "relu(x)", "max(x, 1)", "min(1, x)"])
def test_what_is_not_analytic_is_refused_for_complex_arguments(text: str) -> None:
    with pytest.raises(NotAnalytic):
        evaluate(text, x=np.array([1j]))


def test_shapes_broadcast() -> None:
    assert evaluate("x*y + sigmoid(x)", x=np.ones((3, 1)), y=np.ones((1, 4))).shape == (3, 4)
    assert evaluate("softplus(x)", x=np.ones((0,))).shape == (0,)


def test_integer_arrays_are_numbers_too() -> None:
    np.testing.assert_array_equal(evaluate("x**-1 + x**2", x=np.array([1, 2])), [2, 4.5])


def test_constants_are_rounded_once() -> None:
    third = ArrayAlgebra(np.longdouble).constant(Fraction(1, 3))
    assert third == np.longdouble(1) / np.longdouble(3)
    assert ArrayAlgebra().constant(Fraction(1, 3)) == 1 / 3
    assert ArrayAlgebra().pi() == np.pi and ArrayAlgebra().e() == np.e


def test_importing_expressions_does_not_import_scipy() -> None:
    code = "import sys, attnfun.language; sys.exit(any(m.split('.')[0] in ('scipy', 'torch') for m in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)
