"""The exponential integrals Ei(x) = -E1(-x) and E1(x).

expi is Ei on the right half plane and -E1(-z) on the left one: real on both half axes, with a pole at 0 between them.
"""

from attnfun.language.operations.analytic import analytic, by_arb, integrated, off_negative
from attnfun.language.operations.entry import NONZERO, POSITIVE, Need
from attnfun.language.operations.shapes import Ball, acb, by_field, scipy


def _one_side(z: Ball) -> bool:
    return bool(z.real > 0 or z.real < 0)


def _expi(z: Ball) -> Ball:
    return z.ei() if z.real > 0 else -(-z).expint(acb(1))


OPERATIONS = (
    *analytic(
        "expi",
        _expi,
        integrated(_expi, lambda t: t.exp() / t),
        _one_side,
        lambda b, x, value: b.div(b.exp(x), x),
        ufuncs=("expi",),
        floats=by_field(scipy("expi"), by_arb(_expi)),
        needs=Need(NONZERO),
        cut=lambda g: g * g,
        singular=lambda g: g,
    ),
    *analytic(
        "exp1",
        lambda z: z.expint(acb(1)),
        integrated(lambda z: z.expint(acb(1)), lambda t: -(-t).exp() / t),
        off_negative,
        lambda b, x, value: b.neg(b.div(b.exp(b.neg(x)), x)),
        ufuncs=("exp1",),
        floats=scipy("exp1"),
        needs=Need(POSITIVE),
        cut=lambda g: g,
        singular=lambda g: g,
    ),
)
