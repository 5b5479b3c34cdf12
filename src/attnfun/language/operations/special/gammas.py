"""gamma, gammaln and the polygammas ψ_n = ψ^(n), of which digamma is the first.

gamma and ψ_n have their poles at 0, -1, -2, …, where sin(π min(x, 1/2)) vanishes; gammaln has its cut on (-inf, 0].
"""

import math
from typing import Any

import numpy as np

from attnfun.language.operations import shapes as s
from attnfun.language.operations.analytic import Row, analytic, by_arb, by_series, family, off_negative
from attnfun.language.operations.entry import NONZERO, POSITIVE, Need
from attnfun.language.operations.shapes import Ball, acb


def _off_poles(z: Ball) -> bool:
    return bool(z.real > 0 or not z.contains_integer())


def _between_poles(g: Any) -> Any:
    """What looks away from (-inf, 0] while g surrounds none of the poles next to its middle."""
    below = math.floor(float(np.median(np.real(g))))
    return g if below >= 0 else (g - below) * (below + 1 - g)


def _psi(n: int, z: Ball) -> Ball:
    return z.polygamma(acb(n)) if n else z.digamma()


def _psi_coefficients(n: int, z: Ball, count: int) -> Row:
    return [_psi(n + k, z) / math.factorial(k) for k in range(count)]


def _psi_floats(n: int, x: Any) -> Any:
    import scipy.special

    if np.iscomplexobj(x):
        return by_arb(_psi)(n, x)
    return s.scipy("psi")(x) if n == 0 else scipy.special.polygamma(n, x).astype(x.dtype)


_NEEDS = Need(NONZERO, "sin(pi*min(x, 1/2))", called="the sine behind a gamma function,")
_POLES: dict[str, Any] = {
    "needs": _NEEDS,
    "cut": _between_poles,
    "singular": lambda g: np.sin(np.pi * np.minimum(g, 0.5)),
}

OPERATIONS = (
    *analytic(
        "gamma",
        lambda z: z.gamma(),
        by_series(lambda t: t.gamma()),
        _off_poles,
        lambda b, x, value: b.mul(value, b.polygamma(x, 0)),
        ufuncs=("gamma",),
        floats=s.scipy("gamma"),
        **_POLES,
    ),
    *analytic(
        "gammaln",
        lambda z: z.lgamma(),
        by_series(lambda t: t.lgamma()),
        off_negative,
        lambda b, x, value: b.polygamma(x, 0),
        aliases=("lgamma",),
        ufuncs=("gammaln",),
        floats=s.by_field(lambda x: np.where(x > 0, s.scipy("gammaln")(x), x.dtype.type(np.nan)), s.scipy("loggamma")),
        needs=Need(POSITIVE),
        cut=lambda g: g,
        singular=lambda g: g,
    ),
    family(
        "polygamma",
        _psi,
        _psi_coefficients,
        _off_poles,
        lambda b, x, value, n: b.polygamma(x, n + 1),
        floats=_psi_floats,
        least=0,
        **_POLES,
    ),
)
