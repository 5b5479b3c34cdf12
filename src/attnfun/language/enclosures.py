"""Balls and their end points: making them, reading them as doubles rounded outward, holding flint's precision."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import numpy.typing as npt

from attnfun.errors import AttnfunError

Ball = Any  # flint.arb, or a NumPy object array of them; flint ships no type stubs
arb: Any = flint.arb
LOCK = threading.RLock()  # flint.ctx is one for the whole process
ZERO, ONE, _TWO, NAN = arb(0), arb(1), arb(2), arb("nan")
# The constructor arb(m, r) rounds even a radius of 1 up. These balls around 0 have radii 1/2, 1, 2, ... exactly.
_EXACT = {1.0: flint.acb(arb(0, 1)).real_heaviside().real - 0.5, 2.0: arb(0, 1).sgn()}
for _k in range(2, 8):
    _EXACT[2.0**_k] = _EXACT[2.0 ** (_k - 1)] + _EXACT[2.0 ** (_k - 1)]


def check_rounding() -> None:
    """Raise unless float64 rounds to nearest, ties to even, and keeps subnormal numbers, as operands and as results.

    Some libraries switch the mode of the whole process. The numbers are read from text, so that the processor divides
    and multiplies them here, and no compiler did so before.
    """
    one, tiny, half_ulp = float("1.0"), float("1e-20"), 2.0**-53
    nearest = (
        one + tiny == one
        and one - tiny == one
        and -one - tiny == -one
        and one + half_ulp == one
        and one - half_ulp / 2 == one
        and one + 3 * half_ulp == one + 4 * half_ulp
    )
    if not nearest:
        raise AttnfunError("floating-point rounding is not to nearest in this process; no bound can be proved")
    normal, least = float("2.2250738585072014e-308"), float("5e-324")
    if not (normal / 2 > 0 and least * float("4503599627370496.0") == normal):
        raise AttnfunError("subnormal numbers are flushed to zero in this process; no bound can be proved")


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Hold flint at `bits` bits, one thread at a time, and give the old precision back.

    Raises AttnfunError when float64 does not round to nearest. Re-entrant in one thread.
    """
    if bits < 32:
        raise AttnfunError(f"a precision of {bits} bits is too small: at least 32")
    with LOCK:
        check_rounding()
        before = flint.ctx.prec
        flint.ctx.prec = bits
        try:
            yield
        finally:
            flint.ctx.prec = before


# --- end points -------------------------------------------------------------------------------------------------------


def exact(value: Fraction) -> Ball:
    """The ball of a rational, at the working precision."""
    return arb(flint.fmpq(value.numerator, value.denominator))


def span(lo: Ball, hi: Ball) -> Ball:
    """A ball containing [lo, hi] for exact balls lo <= hi; an end of [lo, hi] that bounds it away from 0 is kept exact.

    nan when lo <= hi is not so (nan included) or an end is infinite.
    """
    width = hi - lo
    if not (lo <= hi and width.is_finite()):
        return NAN
    if lo == hi:
        return lo
    around = _EXACT.get(float(width))
    if around is not None and width == float(width):
        return around + (lo + hi) / _TWO
    if lo >= ZERO:
        return above(lo, hi, width)
    return above(-hi, -lo, width).neg(exact=True) if hi <= ZERO else lo.union(hi)


def above(lo: Ball, hi: Ball, width: Ball) -> Ball:
    """A ball that contains [lo, hi], hi - lo in `width`, with lower end lo but for the rounding of the midpoint;
    positive if lo is.
    """
    # arb(m, r) rounds r up once more, so the radius is made first, around 0, and then shifted
    around = arb(0, width / _TWO)
    shifted = around + (lo + around.rad())
    if shifted > ZERO or not lo > ZERO:
        return shifted
    with flint.ctx.workprec(2400):  # enough for any two doubles; balls may hold more bits than the working precision
        shifted = around + (lo + around.rad())
    return shifted if shifted > ZERO else above(ZERO, hi, hi - ZERO)


def ball(lo: float, hi: float) -> Ball:
    """A ball containing [lo, hi]; nan for an empty, infinite or nan interval."""
    return span(arb(float(lo)), arb(float(hi)))


def upper(x: Ball) -> float:
    """The smallest double >= every point of x; +inf for nan."""
    end = x.upper()
    value = float(end)
    if arb(value) >= end:
        return value
    if end.is_nan():
        return math.inf
    while not arb(value) >= end:
        value = math.nextafter(value, math.inf)
    return value


def upper_at(name: str, x: float) -> float:
    """The function of balls called `name` (exp, expm1, tanh, log, ...) at a double, rounded up; no libm in it."""
    with precision(64):
        return upper(getattr(arb(x), name)())


def lower(x: Ball) -> float:
    """The largest double <= every point of x; -inf for nan."""
    end = x.lower()
    value = float(end)
    if arb(value) <= end:
        return value
    if end.is_nan():
        return -math.inf
    while not arb(value) <= end:
        value = math.nextafter(value, -math.inf)
    return value


def abs_upper(x: Ball) -> float:
    """A double >= |t| for every t of x (real or complex ball); +inf for nan."""
    end = x.abs_upper()
    return math.inf if end.is_nan() else upper(end)


def abs_lower(x: Ball) -> float:
    """A double <= |t| for every t of x (real or complex ball), at least 0; 0 for nan."""
    end = x.abs_lower()
    return 0.0 if end.is_nan() else max(0.0, lower(end))


def _floats(fn: Callable[[Ball], float]) -> Callable[[Ball], npt.NDArray[np.float64]]:
    apply = np.frompyfunc(fn, 1, 1)
    return lambda x: np.asarray(apply(x), dtype=np.float64)


uppers, lowers = _floats(upper), _floats(lower)
abs_uppers, abs_lowers = _floats(abs_upper), _floats(abs_lower)
_balls = np.frompyfunc(ball, 2, 1)
_points = np.frompyfunc(arb, 1, 1)


def balls(lo: npt.ArrayLike, hi: npt.ArrayLike) -> Ball:
    """`ball` on arrays, broadcasting: an object array."""
    return _balls(lo, hi)


def point_balls(x: npt.ArrayLike) -> Ball:
    """The exact balls of an array of doubles: an object array."""
    return _points(x)


def ball_ends(value: Ball, count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(count,) lower and upper ends of an array of balls, or of one for all."""
    column = np.broadcast_to(np.asarray(value, dtype=object), (count,))
    return lowers(column), uppers(column)


def doubles(x: Ball) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Nearest doubles of the midpoints and upper bounds of the distance of every ball from its double."""
    mids = np.array([float(v.mid()) for v in x.ravel()]).reshape(x.shape)
    rads = np.array([upper(v.rad()) for v in x.ravel()]).reshape(x.shape)
    return mids, rads + np.abs(mids) * 2 * 2.0**-53 + 1e-300


def lift(fn: Callable[..., Ball], arity: int = 1) -> Callable[..., Ball]:
    """fn on scalars and, elementwise with broadcasting, on object arrays; scalars stay scalars."""
    each, array = np.frompyfunc(fn, arity, 1), np.ndarray

    def of_one(x: Ball) -> Ball:
        return each(x) if isinstance(x, array) else fn(x)

    def of_two(x: Ball, y: Ball) -> Ball:
        return each(x, y) if isinstance(x, array) or isinstance(y, array) else fn(x, y)

    def of_more(*args: Ball) -> Ball:
        return each(*args) if any(isinstance(a, array) for a in args) else fn(*args)

    return of_one if arity == 1 else of_two if arity == 2 else of_more
