"""Quotients continued to a point where both sides vanish: sin(u)/u, (1 - cos u)/u², u/(e^u - 1), log(u)/(u - 1), ...

| symbol | meaning |
| --- | --- |
| N, D, a, k | the sides of h = N/D; both vanish at a, D to the order k exactly, N at least to it |
| f_j(t) | the Taylor coefficient f^(j)(t)/j! |
| ν, δ | N/(u-a)^k, D/(u-a)^k, so that h = ν/δ |

**The shift.** ν_j(t) lies in the convex hull of N_{k+j} on the segment from a to t, and δ_j likewise. Proof. Taylor's
formula with its integral remainder, the first k coefficients at a being 0, is ν(t) = k ∫_0^1 (1-s)^{k-1} N_k(a +
s(t-a)) ds. Differentiated j times, ν_j(t) = k C(k+j,j) ∫_0^1 (1-s)^{k-1} s^j N_{k+j}(a + s(t-a)) ds, and the weight
integrates to 1. ∎
So the series of N and D over one ball that contains a and the argument, moved by k places and divided, enclose every
coefficient of h: the same rule for real and complex balls, values and derivatives. Both sides are finite only if N and
D are analytic on that ball, and the division only if δ has no zero there: a finite result proves h analytic.

Three enclosures are intersected: the shift (near a), N/D itself (away from a), and the mean value form
h_j(m) + (j+1) h_{j+1}(c) (c - m) about the midpoint m of c. At an exact point t other than a, N/D loses
(k+j) log2(1/|t-a|) bits, which are added to the working precision.
Failure mode: where another zero of D, or the end of the domain of N or D, lies between a and the argument, only N/D is
left; where D vanishes there, too, the result is nan.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import flint

from attnfun.language.enclosures import NAN, Ball, arb, exact, precision
from attnfun.language.graph import Builder, Graph, Ratio
from attnfun.language.interpret import run
from attnfun.language.series import REAL, Field, Kink, SeriesAlgebra, series_length

_EXTRA_BITS = 6000
_TERMS = 30
_TAIL = 2.0**-58  # of the largest coefficient: what `expansion` may leave out


def taylor(quotient: Ratio, c: Ball, n: int, field: Field = REAL) -> list[Ball]:
    """n Taylor coefficients over the ball c of what `quotient` denotes; nan where they are not proved to exist."""
    j = quotient.derivative
    row = _coefficients(quotient, c, j + n, field)
    if row is None:
        return [NAN] * n
    return [math.comb(j + m, j) * row[j + m] if j else row[m] for m in range(n)]


def _coefficients(q: Ratio, c: Ball, n: int, field: Field) -> list[Ball] | None:
    """h_0 .. h_{n-1} over c."""
    if not c.is_finite():
        return None
    a = field.balls.constant(q.point)
    if c.is_exact():
        return _at_point(q, c, a, n, field)
    middle = c.mid()
    row = None if c.contains(a) else _divided(_sides(q, c, n + 1, field), 0)
    row = _met(row, _divided(_sides(q, c.union(a), n + 1 + q.order, field), q.order))
    if row is None:
        return None
    centre = _at_point(q, middle, a, n, field)
    if centre is None:
        return row[:n]
    return _met(row[:n], [centre[j] + (j + 1) * row[j + 1] * (c - middle) for j in range(n)])


def _at_point(q: Ratio, c: Ball, a: Ball, n: int, field: Field) -> list[Ball] | None:
    """The same at an exact point."""
    size = float((c - a).abs_upper())
    if size > 0:
        extra = (q.order + n) * max(0, 1 - math.frexp(size)[1])
        if extra <= _EXTRA_BITS:
            with flint.ctx.workprec(flint.ctx.prec + extra):
                row = _divided(_sides(q, c, n, field), 0)
            if row is not None:
                return row
    return _divided(_sides(q, c if size == 0 and c == a else c.union(a), n + q.order, field), q.order)


def _sides(q: Ratio, c: Ball, n: int, field: Field) -> tuple[list[Ball], list[Ball]] | None:
    """n Taylor coefficients of N and of D over c; None where they are not proved to exist."""
    with series_length(n):
        algebra = SeriesAlgebra(n, field)
        try:
            top, bottom = (algebra.coefficients(s) for s in run(q.graph, algebra, {"u": algebra.variable(c)}))
        except Kink:
            return None
    return top, bottom


def _divided(sides: tuple[list[Ball], list[Ball]] | None, shift: int) -> list[Ball] | None:
    """The power series of the quotient of both sides, moved by `shift` places; None where the divisor may be 0."""
    if sides is None:
        return None
    top, bottom = (side[shift:] for side in sides)
    if not bottom[0].abs_lower() > 0:
        return None
    row = divided(top, bottom)
    return row if all(value.is_finite() for value in row) else None


def divided(top: Sequence[Ball], bottom: Sequence[Ball]) -> list[Ball]:
    """Coefficients of the quotient of two power series, as many as are given of the first."""
    row: list[Ball] = []
    for i, value in enumerate(top):
        for j in range(i):
            value = value - row[j] * bottom[i - j]
        row.append(value / bottom[0])
    return row


def _met(one: list[Ball] | None, other: list[Ball] | None) -> list[Ball] | None:
    """Both rows enclose the same numbers: what they have in common."""
    if one is None or other is None:
        return other if one is None else one
    return [_intersection(x, y) if y.is_finite() else x for x, y in zip(one, other, strict=True)]


def _intersection(x: Ball, y: Ball) -> Ball:
    if isinstance(x, arb) and isinstance(y, arb):
        return x.intersection(y)
    return type(x)(x.real.intersection(y.real), x.imag.intersection(y.imag))


@lru_cache(maxsize=256)
def expansion(quotient: Ratio) -> tuple[tuple[Fraction, ...], float]:
    """(coefficients about `point`, a distance up to which their sum is about as good as double precision); no bound."""
    with precision(256):
        row = taylor(quotient, exact(quotient.point), _TERMS)
    if not all(value.is_finite() for value in row):
        return (), 0.0
    parts = [value.mid().man_exp() for value in row]
    rationals = tuple(Fraction(int(m)) * Fraction(2) ** int(e) for m, e in parts)
    sizes = [abs(float(value)) for value in rationals]
    largest = max(sizes)
    reach = [(_TAIL * largest / size) ** (1 / j) for j, size in enumerate(sizes) if 2 * j >= _TERMS and size > 0]
    return rationals, min(reach, default=1e3)


def opened(graph: Graph) -> Graph:
    """The graph with, for every ratio, the nodes of N, D and δ and a division by δ appended (the outputs as they were).

    Whoever asks where a graph is defined, or where it is singular, finds the conditions of both sides and δ ≠ 0 there.
    """
    ratios = [(node.args[0], node.value) for node in graph.nodes if isinstance(node.value, Ratio)]
    if not ratios:
        return graph
    builder = Builder()
    at = builder.copy(graph.nodes)
    for argument, quotient in ratios:
        top, _ = builder.substitute(quotient.graph, at[argument])
        builder.apply("div", top, builder.apply("ratio", at[argument], value=divisor(quotient)))
    return Graph(builder.nodes, tuple(at[o] for o in graph.outputs))


def with_divisors(graph: Graph) -> Graph:
    """The graph with the denominator D of every ratio as a further output."""
    builder = Builder()
    at = builder.copy(graph.nodes)
    divisors = [
        builder.substitute(node.value.graph, at[node.args[0]])[1]
        for node in graph.nodes
        if isinstance(node.value, Ratio)
    ]
    return Graph(builder.nodes, (*(at[o] for o in graph.outputs), *dict.fromkeys(divisors)))


def divisor(quotient: Ratio) -> Ratio:
    """δ = D/(u - a)^k, a quotient of the same kind."""
    builder = Builder()
    u = builder.var("u")
    _, bottom = builder.substitute(quotient.graph, u)
    power = builder.apply("powi", builder.apply("sub", u, builder.const(quotient.point)), value=quotient.order)
    return replace(quotient, graph=builder.graph([bottom, power]), derivative=0)
