"""The complete elliptic integrals K(m) and E(m) of the parameter m < 1, with their cut on [1, inf).

E = (1 - m) (K + 2 m K'), which takes the series of E from that of K without a division by m.
"""

from fractions import Fraction
from typing import Any

from attnfun.language.operations.analytic import analytic, by_series, real_scipy
from attnfun.language.operations.entry import Need, Range
from attnfun.language.operations.shapes import Ball


def _off_cut(z: Ball) -> bool:
    return bool(z.real < 1 or not z.imag.contains(0))


def _second(t: Any) -> Any:
    k = t.elliptic_k()
    return (1 - t) * (k + 2 * t * k.derivative())


_FIELDS: dict[str, Any] = {
    "needs": Need(Range("must stay below 1", most=Fraction(1))),
    "cut": lambda g: 1 - g,
    "singular": lambda g: 1 - g,
}

OPERATIONS = (
    *analytic(
        "ellipk",
        lambda z: z.elliptic_k(),
        by_series(lambda t: t.elliptic_k()),
        _off_cut,
        ufuncs=("ellipk",),
        floats=real_scipy("ellipk", lambda z: z.elliptic_k()),
        **_FIELDS,
    ),
    *analytic(
        "ellipe",
        lambda z: z.elliptic_e(),
        by_series(_second, more=1),
        _off_cut,
        ufuncs=("ellipe",),
        floats=real_scipy("ellipe", lambda z: z.elliptic_e()),
        **_FIELDS,
    ),
)
