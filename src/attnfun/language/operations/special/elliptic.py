"""The complete elliptic integrals K(m) and E(m) of the parameter m < 1, with their cut on [1, inf).

E = (1 - m) (K + 2 m K'), which takes the series of E from that of K without a division by m.

**Over discs.** K and E are the integrals of (1 - m s)^{-1/2} and (1 - m s)^{1/2}, s = sin² θ, over θ in [0, π/2]. Let d
be the distance of m from the cut, R = 3d/4 and |w - m| ≤ R, so |w| ≤ W = |m| + R, and w is at least d/4 from the cut.
For s ≤ 1/(2W) is |1 - w s| ≥ 1/2; for larger s it is s |1/s - w| ≥ d/(8W), since 1/s lies on the cut. Hence
|K(w)| ≤ (π/2) min(1/2, d/(8W))^{-1/2}, and |E(w)| ≤ (π/2) (1 + W)^{1/2}.
"""

from fractions import Fraction
from typing import Any

from attnfun.language.operations.analytic import analytic, by_series, real_scipy
from attnfun.language.operations.entry import Need, Range
from attnfun.language.operations.shapes import Ball, arb


def _off_cut(z: Ball) -> bool:
    return bool(z.real < 1 or not z.imag.contains(0))


def _second(t: Any) -> Any:
    k = t.elliptic_k()
    return (1 - t) * (k + 2 * t * k.derivative())


def _reach(m: Ball) -> tuple[Ball, Ball]:
    """d and W."""
    far = abs(1 - m) if m.real <= 1 else abs(m.imag)
    return far, abs(m) + far * 3 / 4


def _first_disc(m: Ball) -> tuple[Ball, Ball]:
    far, size = _reach(m)
    least = (far / (8 * size)).min(arb(1) / 2)
    return far * 3 / 4, arb.pi() / 2 / least.sqrt()


def _second_disc(m: Ball) -> tuple[Ball, Ball]:
    far, size = _reach(m)
    return far * 3 / 4, arb.pi() / 2 * (1 + size).sqrt()


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
        disc=_first_disc,
        ufuncs=("ellipk",),
        floats=real_scipy("ellipk", lambda z: z.elliptic_k()),
        **_FIELDS,
    ),
    *analytic(
        "ellipe",
        lambda z: z.elliptic_e(),
        by_series(_second, more=1),
        _off_cut,
        disc=_second_disc,
        ufuncs=("ellipe",),
        floats=real_scipy("ellipe", lambda z: z.elliptic_e()),
        **_FIELDS,
    ),
)
