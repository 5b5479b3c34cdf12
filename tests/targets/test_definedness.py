"""Defined or not: what just reaches its limit is accepted by proof, what just passes it never."""

from __future__ import annotations

import numpy as np
import pytest

from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.language import ArrayAlgebra, parse, run
from attnfun.language.definedness import natural_domain, require_defined
from attnfun.language.domain import Box

DEFINED = [
    ("asin(a/(b*c))", "a=1:2;b=1:5;c=2:5"),  # 1 at a corner
    ("acos(1 - x**2)", "x=-1:1"),
    ("sqrt(x*y - z)", "x=1:2;y=1:2;z=0:1"),  # 0 at a corner
    ("sqrt(x**2 + y**2 - 2*x*y*cos(s - t))", "x=1:5;y=1:5;s=1:5;t=1:5"),
    ("sqrt((a - b)**2 + (c - d)**2)", "a=0:1;b=0:1;c=0:2;d=0:1"),
    ("sqrt(0.1*x**2 + abs(y))", "x=-1:1;y=-0.3:0.7"),
    ("log(x/y + y/x - sin(b)**2)", "x=1:5;y=1:5;b=0:6"),  # at least 1, by the dependence of its terms
    ("log(r**2 + d**2 - 2*r*d*cos(a))", "r=1:3;d=4:6;a=0:6"),
]
UNDEFINED = [
    ("asin(a/(b*c))", "a=1:2.000000001;b=1:5;c=2:5"),
    ("acos(1 - x**2)", "x=-1:1.4143"),
    ("sqrt(x*y - z)", "x=1:2;y=1:2;z=0:1.000000001"),
    ("sqrt(x**2 + y**2 - 2.000001*x*y*cos(s - t))", "x=1:5;y=1:5;s=1:5;t=1:5"),
    ("sqrt(x**2 + y**2 - 2*x*y*cos(s) - 1e-9)", "x=1:5;y=1:5;s=-1:1"),
    ("log(x/y + y/x - 2*sin(b)**2)", "x=1:5;y=1:5;b=0:6"),
]


@pytest.mark.parametrize(("text", "domain"), DEFINED)
def test_accepted(text: str, domain: str) -> None:
    box = Box.parse(domain)
    graph = parse(text, box.names)
    require_defined(graph, box)
    X = box.probe(2000, np.random.default_rng(0))
    with np.errstate(all="ignore"):
        (f,) = run(graph, ArrayAlgebra(), {n: X[:, k] for k, n in enumerate(box.names)})
    assert np.isfinite(f).mean() > 0.9  # in floats a root may see −1e-17


@pytest.mark.parametrize(("text", "domain"), UNDEFINED)
def test_never_accepted(text: str, domain: str) -> None:
    box = Box.parse(domain)
    with pytest.raises(AttnfunError):
        require_defined(parse(text, box.names), box)


def test_a_corner_past_the_limit_is_named() -> None:
    box = Box.parse("a=1:3;b=1:5")
    with pytest.raises(InvalidRequest, match="a=3"):
        require_defined(parse("asin(a/(2*b))", box.names), box)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("asin(exp(u))", -np.inf, 0.0),
        ("sqrt(1 - exp(2*u))", -np.inf, 0.0),
        ("sqrt(2 - sqrt(u))", 0.0, 4.0),
        ("log(log(u))", 1.0, np.inf),
        ("log(3 - exp(-u))", -np.log(3), np.inf),
        ("asin(exp(u)/2 - 1)", -np.inf, np.log(4)),
        ("asin(u*u)", -np.inf, np.inf),
    ],
)
def test_natural_domains_through_monotone_steps(text: str, low: float, high: float) -> None:
    found = natural_domain(parse(text, ["u"]))
    assert found == pytest.approx((low, high), abs=1e-15)
    u = np.linspace(-6, 6, 4001)
    with np.errstate(all="ignore"):
        (value,) = run(parse(text, ["u"]), ArrayAlgebra(), {"u": u})
    defined = u[np.isfinite(value)]
    assert ((defined >= found[0]) & (defined <= found[1])).all()
