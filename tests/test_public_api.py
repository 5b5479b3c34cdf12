"""The public verbs against users who ask for odd things: an AttnfunError or a sound answer, nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import attnfun as af
from certify.hunting import BOUNDS, assert_sound

X1, X2 = "x=-1:1", "x=-1:1;y=-1:1"


def attempt(target: Any, domain: Any, eps: Any, **options: Any) -> af.Approximant | af.AttnfunError:
    """Compile and check; the error if it was refused. Anything else fails the test by itself."""
    try:
        net = af.compile(target, domain, eps, **options)
    except af.AttnfunError as why:
        assert str(why) and "\n" not in str(why)
        return why
    assert net.certificate.status in BOUNDS
    if math.isinf(net.certificate.norm):
        assert_sound(net.certificate, net.network, net.target)
    return net


@pytest.mark.parametrize(
    ("target", "domain", "eps", "options"),
    [
        ("sin(3*x)", X1, 1e3, {}),
        ("sin(3*x)", X1, 1e-14, {"method": "bernstein"}),
        ("abs(abs(abs(x)-0.3)-0.1)", X1, 0.02, {}),
        ("x**y", "x=0.5:2;y=-1:2", 1e-4, {}),
        ("x**x", "x=0.1:2", 1e-5, {}),
        ("sin(x)/x", "x=0.001:1", 1e-4, {"method": "bernstein"}),
        ("(x**2-1)/(x-1)", "x=-1:0.5", 1e-6, {}),
        ("1e12*sin(x)", X1, 1.0, {}),
        ("1e300*sin(x)", X1, 1e294, {"method": "bernstein"}),
        ("1e-300*sin(x)", X1, 1e-305, {"method": "bernstein"}),
        ("exp(700*x)", X1, 1e300, {"method": "partition"}),
        ("sin(x*1e-149)", "x=-1e150:1e150", 0.01, {"method": "partition"}),
        ("sin(x*1e200)", "x=0:1e-200", 0.1, {"method": "partition"}),
        ("sin(x)", "x=0:1e-320", 1e-3, {}),
        ("sin(x-1000000)", "x=1000000:1000001", 1e-5, {"method": "bernstein"}),
        ("sin(5*x)", "x=1000:1001", 0.1, {"dtype": "float32", "method": "bernstein"}),
        ("sin(x*1e37)", "x=0:1e-37", 1e-2, {"dtype": "float32", "method": "bernstein"}),
        ("3e38*sin(x)", X1, 1e37, {"dtype": "float32", "method": "bernstein"}),
        ("1e-42*sin(3*x)", X1, 1e-44, {"dtype": "float32", "method": "bernstein"}),
        (["sin(x)", "abs(x)", "3", "x"], X1, 0.05, {}),
        (["x"] * 20, X1, 1e-8, {}),
        ("+".join(["sin(x)*cos(x)"] * 40), X1, 1e-6, {"method": "bernstein"}),
        ("x0 - x7/3", {f"x{i}": (-1, 1) for i in range(4)} | {"x7": (0, 1)}, 0.5, {"method": "partition"}),
        ("sin(x)", X1, np.float32(1e-3), {}),
        ("sin(x)", {"x": np.array([0, 1])}, 1e-3, {}),
        ("sin(x)", ("x=0:1",), 1e-3, {"norm": math.inf}),
        (lambda x: np.sin(3 * x) + x**2, X1, 1e-5, {}),
        (lambda x, y: np.maximum(x, y) * np.exp(-x), X2, 0.3, {}),
        (np.sin, X1, 1e-5, {}),
        (math.sin, X1, 0.05, {"lipschitz": 1.0}),
        (lambda x: [math.sin(x), math.cos(x)], X1, 0.1, {"lipschitz": 1.0}),
        (lambda x, y: math.hypot(x, y), X2, 0.2, {"lipschitz": 1.0}),
        (lambda X: X[:, 0] if X.ndim == 2 else None, X2, 0.2, {"lipschitz": 1.0}),
    ],
)
def test_odd_but_answerable(target: Any, domain: Any, eps: Any, options: dict[str, Any]) -> None:
    attempt(target, domain, eps, **options)


@pytest.mark.parametrize(
    "target", [5, None, [], ["x", 3], {"a": 1}, "", b"x", "x\0", [["x"]], lambda x: None, lambda: 1]
)
def test_targets_that_are_none(target: Any) -> None:
    assert isinstance(attempt(target, X1, 0.1), af.AttnfunError)


@pytest.mark.parametrize(
    "target", [lambda x: "a", lambda x: None, lambda x: [x, "b"], lambda x: math.nan, lambda x: 1j]
)
def test_black_boxes_that_give_no_numbers(target: Any) -> None:
    assert isinstance(attempt(target, X1, 0.1, lipschitz=1.0), af.AttnfunError)


@pytest.mark.parametrize(
    "domain",
    [
        {"x": (0, 10**400)},
        {"x": (0,)},
        {"x": 5},
        {"x": (1, 0)},
        {"x": (0, math.nan)},
        {"x": (0, math.inf)},
        {"x": ("a", "b")},
        {1: (0, 1)},
        {},
        None,
        5,
        "x",
        "x=1",
        "x=a:b",
        "x=0:1;x=0:2",
        ["x=0:1", 3],
        {"x y": (0, 1)},
        {"lambda": (0, 1)},
        "x=1e150:1.1e150",
        b"x=0:1",
        {f"x{i}": (0, 1) for i in range(65)},
    ],
)
def test_domains_that_are_none(domain: Any) -> None:
    assert isinstance(attempt("x", domain, 0.1), af.AttnfunError)


@pytest.mark.parametrize(
    "eps", [0, -1, math.nan, math.inf, "1e-3", None, 1e-3 + 0j, np.array([1e-3]), True, 10**400, 1e-300]
)
def test_tolerances_that_are_none(eps: Any) -> None:
    assert isinstance(attempt("sin(x)", X1, eps), af.AttnfunError)


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "nan"},
        {"norm": 0.5},
        {"norm": None},
        {"norm": [1]},
        {"seed": "a"},
        {"seed": -1},
        {"seed": None},
        {"max_keys": "a"},
        {"max_keys": 0},
        {"max_keys": -3},
        {"temperature": 3, "method": "partition"},
        {"method": 3},
        {"method": None},
        {"dtype": np.float32},
        {"dtype": ["a"]},
        {"accept": 3},
        {"nonsense": 1},
        {"lipschitz": 1.0},
    ],
)
def test_options_that_are_none(options: dict[str, Any]) -> None:
    assert isinstance(attempt("sin(x)", X1, 1e-2, **options), af.AttnfunError)


def test_points_outside_and_shapes() -> None:
    net = af.compile("x*y", X2, 1e-3)
    assert net([0.5, 0.5]).shape == () and net([[0.5, 0.5]]).shape == (1,)
    assert net(np.empty((0, 2))).shape == (0,)
    for bad in ([2.0, 0.0], [[0.0, math.nan]], [[0.0]], "a", [[0.0, 1.0, 2.0]], [["a", "b"]], None):
        with pytest.raises(af.InvalidRequest):
            net(bad)
    assert np.isfinite(net([[5.0, 0.0]], outside="clamp")).all()
    assert np.isfinite(net([[5.0, 0.0]], outside="allow")).all()
    with pytest.raises(af.InvalidRequest):
        net([[0.0, 0.0]], outside="wrap")
    with pytest.raises(af.InvalidRequest):
        net.evaluate([[0.0, 0.0]], route="teleport")


def test_accept_sampled_says_so() -> None:
    net = af.compile("abs(x*y)", X2, 0.02, accept="sampled", method="bernstein")
    certificate = net.certificate
    assert certificate.status.value == "sampled" and certificate.method == "sampling" and certificate.reason
    with pytest.raises(af.Infeasible):
        af.compile("abs(x*y)", X2, 0.02, method="bernstein")


@pytest.mark.parametrize("target", ["sin(8*x)", "exp(x)*sin(3*x)"])
def test_a_limit_on_keys_that_is_too_low_is_refused_with_one_that_does(target: str) -> None:
    with pytest.raises(af.Infeasible) as why:
        af.compile(target, "x=-1:1", 1e-3, max_keys=2)
    assert why.value.nearest is not None and set(why.value.nearest) == {"max_keys"}
    net = af.compile(target, "x=-1:1", 1e-3, **why.value.nearest)
    assert net.certificate.status == "proved" and 2 < net.cost.keys <= why.value.nearest["max_keys"]


@pytest.mark.parametrize(
    ("target", "eps", "relative", "options"),
    [
        ("100*abs(x)", 1e-6, False, {"method": "interpolation", "max_keys": 40}),
        ("100*abs(x)", 1e-8, True, {"method": "interpolation", "max_keys": 40}),
        # one step cannot be as good as its share
        pytest.param("1000*sin(3*x)", 1.5e-12, False, {"method": "compose"}, marks=pytest.mark.slow),
    ],
)
def test_the_nearest_eps_is_of_the_whole_request_and_succeeds(
    target: str, eps: float, relative: bool, options: dict[str, Any]
) -> None:
    with pytest.raises(af.Infeasible) as why:
        af.compile(target, "x=-1:1", eps, relative=relative, **options)
    assert why.value.nearest is not None and why.value.nearest["eps"] > eps
    again = {**options, **why.value.nearest}
    assert af.compile(target, "x=-1:1", relative=relative, **again).certificate.status == "proved"
