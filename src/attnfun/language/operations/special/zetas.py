"""Riemann's zeta function, with its pole at 1.

**Over discs.** ζ(s) = s/(s - 1) - s ∫_1^∞ {x} x^{-s-1} dx for σ = Re s > 0, so |ζ(s)| ≤ |s| (1/|s - 1| + 1/σ). With R
three quarters of the smaller of Re m and |m - 1|, both of |s - 1| and σ are at least a quarter of it within R of m.
"""

from attnfun.language.operations.analytic import analytic, by_series, real_scipy
from attnfun.language.operations.entry import NONZERO, Need
from attnfun.language.operations.shapes import ZERO, Ball


def _disc(m: Ball) -> tuple[Ball, Ball]:
    near = abs(m - 1).min(m.real)
    return (near * 3 / 4, (abs(m) + near) * 8 / near) if near > 0 else (ZERO, ZERO)


OPERATIONS = analytic(
    "zeta",
    lambda z: z.zeta(),
    by_series(lambda t: t.zeta()),
    lambda z: not z.contains(1),
    disc=_disc,
    ufuncs=("_riemann_zeta",),
    floats=real_scipy("zeta", lambda z: z.zeta()),
    needs=Need(NONZERO, "x - 1", called="the distance to the pole of zeta,"),
    cut=lambda g: (g - 1) ** 2,
    singular=lambda g: g - 1,
)
