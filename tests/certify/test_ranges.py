"""Witnessed ranges: what a relative tolerance is a fraction of."""

from __future__ import annotations

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.language.function import witnessed_range
from certify.hunting import function


@pytest.mark.parametrize(
    ("target", "domain", "true"),
    [
        ("sin(3*x)", "x=-1:1", 2.0),
        ("x**2", "x=-1:2", 4.0),
        ("x*y", "x=-1:1;y=-2:3", 6.0),
        ("exp(-(50*(x - 0.3))**2)", "x=-1:1", 1.0),
        ("1e15 + sin(x)", "x=-2:2", 2.0),
        ("1e15 + 1e-3*x", "x=-1:1", 2e-3),
        ("1e15 + 1e-18*x", "x=-1:1", 2e-18),
        ("1e-200*x", "x=-1:1", 2e-200),
        ("(a + b + c + d + g)/5", "a=0:1;b=0:1;c=0:1;d=0:1;g=0:1", 1.0),
    ],
)
def test_the_range_is_attained_and_close(target: str, domain: str, true: float) -> None:
    f = function(target, domain)
    width, above, below = witnessed_range(f)
    assert 0.9 * true <= width <= true * (1 + 1e-12)  # never above the true range
    X = np.array([above, below])
    assert f.box.contains(X).all()
    high, low = f.values(X)[:, 0]
    assert high - low >= width * (1 - 1e-9) - 4e-16 * abs(high)


@pytest.mark.parametrize(
    "target",
    [
        "3",
        "x - x",
        pytest.param("sin(x)**2 + cos(x)**2", marks=pytest.mark.slow),
        "exp(x)*exp(-x)",
        pytest.param("0*x", marks=pytest.mark.slow),
        "pi",
    ],
)
def test_constants_have_no_range(target: str) -> None:
    f = function(target)
    assert witnessed_range(f)[0] == 0.0
    net = af.compile(target, "x=-1:1", 1e-3, relative=True)
    assert net.certificate.status is Status.PROVED
    assert net.certificate.error[1] <= 1e-13


def test_of_several_outputs_the_narrowest_that_varies() -> None:
    width, _, _ = witnessed_range(function(["5", "sin(3*x)", "0.01*x", "100*x"]))
    assert width == pytest.approx(0.02)


@pytest.mark.parametrize("target", ["1e15 + sin(x)", "1e15 + 1e-3*x", "1e12 + 1e-9*sin(x)"])
def test_a_range_far_below_the_values_is_no_constant(target: str) -> None:
    """Calling it constant would make the tolerance a fraction of the values, thousands of times too lax."""
    with pytest.raises(af.AttnfunError):
        af.compile(target, "x=-1:1", 1e-3, relative=True)


@pytest.mark.parametrize(("target", "eps"), [("1e-9*sin(3*x)", 1e-6), ("1e9*sin(3*x)", 1e-6), ("7 + 1e-3*x**2", 1e-3)])
def test_relative_tolerances_are_kept_in_absolute_terms(target: str, eps: float) -> None:
    net = af.compile(target, "x=-1:1", eps, relative=True)
    certificate = net.certificate
    assert certificate.relative is not None and certificate.relative["fraction"] == eps
    X = np.linspace(-1, 1, 4001)[:, None]
    values = net.target.values(X)
    assert (
        certificate.eps is not None
        and certificate.eps <= eps * np.ptp(values) * (1 + 1e-6) + 1e-15 * np.abs(values).max()
    )
    assert np.abs(net(X) - values[:, 0]).max() <= certificate.error[1] + 1e-14 * np.abs(values).max()


def test_relative_needs_an_expression() -> None:
    with pytest.raises(af.InvalidRequest, match="relative"):
        af.compile(lambda x: abs(x) if x > 0 else 0.0, "x=-1:1", 1e-2, relative=True, lipschitz=1.0)
