"""Entries of analytic functions that Arb knows: what one function of rectangles gives all algebras.

| given | what it is |
| --- | --- |
| at(z) | f over a rectangle: first order, and not sharp |
| within(z) | proves that f is analytic on the rectangle (no cut, no pole touches it) |
| expand(z, n) | n Taylor coefficients of f over a thin rectangle |
| disc(m) | (R, M): f is analytic, and |f| ≤ M, within R of the point m; for those that Arb gives no good range of |
| slope | f' in the operations of any algebra; without it the operation `<name>_derivative` is made from `expand` |

**Values over a fat ball X.** Where f'(X) has one sign, f is monotone and its ends are the range. Else f(X) lies in
at(X) and in f(m) + f'(X) (X - m), m the middle; a very fat ball is cut into parts first. Rectangles: the same form.

**Taylor coefficients over a fat ball of radius r about m.** Let |f| ≤ M on the square of half-width R > r about m,
which `within` allows, and a_j be the coefficients at m, so |a_j| ≤ M/R^j (Cauchy). For |t - m| ≤ r, q = r/R, k < N,

    f_k(t) = Σ_{k≤j<N} C(j,k) a_j (t - m)^{j-k}  ±  M R^{-k} C(N,k) q^{N-k}/(1 - θ),      θ = q (N+1)/(N+1-k) < 1,

since the terms left out, M R^-k C(j,k) q^{j-k}, j ≥ N, fall at least by the factor θ from one to the next.

Real arguments: f is real there, so the real part of what holds for rectangles holds.
Failure mode: where no R is proved, close to the end of the domain, what `expand` gives over the ball itself is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import flint
import numpy as np

from attnfun.language.operations import shapes as s
from attnfun.language.operations.entry import Operation
from attnfun.language.operations.shapes import NAN, NOWHERE, Ball, acb, arb, span

_REACHES = (16.0, 6.0, 3.0, 1.7)  # R/r, tried in order
_EXTRA = 12  # coefficients at the middle beyond those that are asked for
_PARTS = 8
_VERY_FAT = 3  # bits

Row = Sequence[Ball]


def anywhere(z: Ball) -> bool:
    """`within` of an entire function."""
    return True


def off_negative(z: Ball) -> bool:
    """Off the cut (-inf, 0]."""
    return bool(z.real > 0 or not z.imag.contains(0))


def by_series(f: Callable[[Any], Any], more: int = 0) -> Callable[[Ball, int], Row]:
    """`expand` from flint's series of the function; `more` coefficients are lost on the way, to derivatives."""

    def expand(z: Ball, n: int) -> Row:
        before = flint.ctx.cap  # the callers hold the lock of flint's context
        flint.ctx.cap = n + more
        try:
            row = f(flint.acb_series([z, 1], n + more))
            return [row[k] for k in range(n)]
        finally:
            flint.ctx.cap = before

    return expand


def integrated(at: Callable[[Ball], Ball], slope: Callable[[Any], Any]) -> Callable[[Ball, int], Row]:
    """`expand` from the series of the derivative."""
    expand = by_series(slope)
    return lambda z, n: s.integral(at(z), expand(z, n))[:n]


Disc = Callable[[Ball], tuple[Ball, Ball]]


def _by_disc(at: Callable[[Ball], Ball], expand: Callable[[Ball, int], Row], disc: Disc) -> Callable[[Ball], Ball]:
    """`at` made good over fat rectangles: with r the half width of one about m and q = r/R, the N-th Taylor polynomial
    at m is within M q^N/(1 - q).
    """

    def image(z: Ball) -> Ball:
        if z.rel_accuracy_bits() >= s.FAT_BITS:
            return at(z)
        middle = z.mid()
        reach, bound = disc(middle)
        q, total = _half_width(z) / reach, acb(0)
        if not q < 1:
            return at(z)
        for value in reversed(expand(middle, _EXTRA)):
            total = total * (z - middle) + value
        tail = (bound * q**_EXTRA / (1 - q)).upper()
        return total + acb(tail * arb(0, 1), tail * arb(0, 1))

    return image


class _Raw:
    """Rectangles with first-order enclosures: what slopes are worked out in."""

    def constant(self, value: Fraction) -> Ball:
        return acb(arb(value.numerator) / value.denominator)

    def pi(self) -> Ball:
        return acb.pi()

    def e(self) -> Ball:
        return acb(arb.const_e())

    add, sub, mul, div, neg = map(staticmethod, (acb.__add__, acb.__sub__, acb.__mul__, acb.__truediv__, acb.__neg__))

    def powi(self, z: Ball, n: int) -> Ball:
        return z**n if n >= 0 else 1 / z**-n

    def __getattr__(self, op: str) -> Callable[..., Ball]:
        from attnfun.language.operations import OPERATIONS

        entry = OPERATIONS[op]
        raw = entry.raw
        if raw is None:
            raw = entry.rectangle
        assert raw is not None
        return (lambda z, n: raw(n, z)) if entry.whole else raw


_RAW = _Raw()


def analytic(
    name: str,
    at: Callable[..., Ball],
    expand: Callable[..., Row],
    within: Callable[[Ball], bool] = anywhere,
    slope: Callable[..., Any] | None = None,
    disc: Disc | None = None,
    **fields: Any,
) -> tuple[Operation, ...]:
    """The entry of the function, and that of its derivatives where it has no `slope`. `fields` replace what is made."""
    if slope is None:
        following = f"{name}_derivative"
        entry = analytic(name, at, expand, within, lambda b, x, value: getattr(b, following)(x, 1), disc, **fields)
        return (*entry, _derivatives(following, expand, within, disc, entry[0]))
    ranging = at if disc is None else _by_disc(at, expand, disc)
    found = _operation(name, ranging, expand, within, slope, disc=disc)
    return (replace(found, **fields),)


def family(
    name: str,
    at: Callable[..., Ball],
    expand: Callable[..., Row],
    within: Callable[[Ball], bool],
    slope: Callable[..., Any],
    disc: Callable[[int, Ball], tuple[Ball, Ball]] | None = None,
    **fields: Any,
) -> Operation:
    """The same for functions f_n(x) with a whole number n, which comes first in `at`, `expand` and `disc`, last in
    `slope`.
    """
    ranging = at
    if disc is not None:
        ranging = lambda n, z: _by_disc(partial(at, n), partial(expand, n), partial(disc, n))(z)  # noqa: E731
    return replace(_operation(name, ranging, expand, within, slope, whole=True, disc=disc), **fields)


def _derivatives(
    name: str, expand: Callable[..., Row], within: Callable[[Ball], bool], disc: Disc | None, of: Operation
) -> Operation:
    """f^(n)(x) for n ≥ 0, from the coefficients of f."""
    raw = of.raw
    assert raw is not None

    def at(n: int, z: Ball) -> Ball:
        return _taylor(raw, expand, within, z, n + 1, disc)[n] * math.factorial(n)

    def further(n: int, z: Ball, count: int) -> Row:
        row = expand(z, n + count)
        return [row[n + k] * (math.factorial(n + k) // math.factorial(k)) for k in range(count)]

    return family(
        name, at, further, within, lambda b, x, value, n: getattr(b, name)(x, n + 1),
        least=0, needs=of.needs, cut=of.cut, singular=of.singular, rough=of.rough, entire=of.entire,
    )  # fmt: skip


def _operation(
    name: str,
    at: Callable[..., Ball],
    expand: Callable[..., Row],
    within: Callable[[Ball], bool],
    slope: Callable[..., Any],
    whole: bool = False,
    disc: Callable[..., tuple[Ball, Ball]] | None = None,
) -> Operation:
    def guarded(*args: Any) -> Ball:
        z = args[-1]
        w = at(*args) if within(z) else NOWHERE
        return w if w.is_finite() else NOWHERE

    def inclined(n: tuple[int, ...], z: Ball, value: Ball) -> Ball:
        return slope(_RAW, z, value, *n)

    def ball(*args: Any) -> Ball:
        return _over(partial(guarded, *args[:-1]), partial(inclined, args[:-1]), args[-1])

    def rectangle(*args: Any) -> Ball:
        *n, z = args
        value = guarded(*n, z)
        f = lambda t: value if t is z else guarded(*n, t)  # noqa: E731
        return s.centred(f, lambda t: inclined(tuple(n), t, value), within)(z)

    def taylor(series: Any, *args: Any) -> Row:
        *n, c, count = args
        own = None if disc is None else partial(disc, *n)
        row = _taylor(partial(guarded, *n), partial(expand, *n), within, acb(c), count, own)
        return row if isinstance(c, flint.acb) else [a.real for a in row]

    return Operation(
        name, floats=by_arb(guarded), ball=ball, rectangle=rectangle, taylor=taylor, slope=slope, raw=guarded,
        whole=whole, entire=within is anywhere,
    )  # fmt: skip


def _over(f: Callable[[Ball], Ball], slope: Callable[[Ball, Ball], Ball], x: Ball, cuts: int = 1) -> Ball:
    """The range of f over a real ball."""
    whole = f(acb(x))
    value = whole.real
    if x.rel_accuracy_bits() >= s.THIN_BITS:
        return value
    rise = slope(acb(x), whole).real
    if not value.is_finite() or not (rise >= 0 or rise <= 0):
        if cuts and x.rel_accuracy_bits() < _VERY_FAT:
            return _in_parts(f, slope, x)
        if not rise.is_finite():
            return value
        form = f(acb(x.mid())).real + rise * (x - x.mid())
        return form if not value.is_finite() else value.intersection(form)
    low, high = f(acb(x.lower())).real, f(acb(x.upper())).real
    low, high = (low, high) if rise >= 0 else (high, low)
    return span(low.lower(), high.upper())


def _in_parts(f: Callable[[Ball], Ball], slope: Callable[[Ball, Ball], Ball], x: Ball) -> Ball:
    lower, upper = x.lower(), x.upper()
    edges = [lower, *(((lower * (_PARTS - k) + upper * k) / _PARTS).mid() for k in range(1, _PARTS)), upper]
    found = [_over(f, slope, span(a, b), 0) for a, b in pairwise(edges)]
    if not all(part.is_finite() for part in found):
        return NAN
    return span(min(part.lower() for part in found), max(part.upper() for part in found))


def _taylor(
    f: Callable[[Ball], Ball],
    expand: Callable[..., Row],
    within: Callable[[Ball], bool],
    c: Ball,
    n: int,
    disc: Disc | None,
) -> Row:
    """n Taylor coefficients over the ball c."""
    if not c.is_finite() or not within(c):
        return [NOWHERE] * n
    middle, radius = c.mid(), _half_width(c)
    if c.rel_accuracy_bits() >= s.THIN_BITS or not radius > 0:
        return expand(c, n)
    found = _largest(f, middle, radius) if disc is None else disc(middle)
    if found is None or not radius < found[0]:
        return expand(c, n)
    (reach, bound), count = found, n + _EXTRA
    row, away, q = expand(middle, count), c - middle, radius / reach
    out = []
    for k in range(n):
        total = acb(0)
        for j in reversed(range(k, count)):
            total = total * away + row[j] * math.comb(j, k)
        fall = q * (count + 1) / (count + 1 - k)
        if not fall < 1:
            return expand(c, n)
        tail = (bound / reach**k * math.comb(count, k) * q ** (count - k) / (1 - fall)).upper()
        out.append(total + acb(tail * arb(0, 1), tail * arb(0, 1)))
    return out


def _largest(f: Callable[[Ball], Ball], middle: Ball, radius: Ball) -> tuple[Ball, Ball] | None:
    """(R, M) for a square about the middle on which f is finite."""
    for times in _REACHES:
        reach = radius * times
        size = f(middle + acb(reach * arb(0, 1), reach * arb(0, 1)))
        if size.is_finite():
            return reach, abs(size).upper()
    return None


def _half_width(c: Ball) -> Ball:
    """Of the rectangle the distance of the farthest corner from the middle, rounded up."""
    a, b = arb(c.real.rad()), arb(c.imag.rad())
    return (a if b == 0 else (a * a + b * b).sqrt()).upper()


# --- floats -----------------------------------------------------------------------------------------------------------


def by_arb(f: Callable[..., Ball]) -> Callable[..., Any]:
    """Float arrays by Arb, point by point: where SciPy has no such function, as for complex points."""

    def value(*args: Any) -> complex:
        w = f(*args[:-1], acb(complex(args[-1])))
        return complex(w) if w.is_finite() else complex(math.nan, math.nan)

    def function(*args: Any) -> Any:
        x = args[-1]
        out = np.frompyfunc(lambda t: value(*args[:-1], t), 1, 1)(x)
        found = np.asarray(out, dtype=np.complex128)
        return found.astype(x.dtype) if np.iscomplexobj(x) else found.real.astype(x.dtype)

    return function


def real_scipy(name: str, at: Callable[..., Ball]) -> Callable[..., Any]:
    """SciPy's function of real arrays; complex ones by Arb."""
    return s.by_field(s.scipy(name), by_arb(at))
