"""Riemann's zeta function, with its pole at 1."""

from attnfun.language.operations.analytic import analytic, by_series, real_scipy
from attnfun.language.operations.entry import NONZERO, Need

OPERATIONS = analytic(
    "zeta",
    lambda z: z.zeta(),
    by_series(lambda t: t.zeta()),
    lambda z: not z.contains(1),
    ufuncs=("_riemann_zeta",),
    floats=real_scipy("zeta", lambda z: z.zeta()),
    needs=Need(NONZERO, "x - 1", called="the distance to the pole of zeta,"),
    cut=lambda g: (g - 1) ** 2,
    singular=lambda g: g - 1,
)
