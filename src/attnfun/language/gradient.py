"""Forward differentiation over any algebra: a value and its partial derivatives travel together through the graph.

Over set-valued algebras (balls, intervals; those with `choose`) the partials over a box enclose every Clarke gradient
of f at every point of the box, so the mean value inequality f(b) - f(a) in sum_i partial_i (b_i - a_i) holds for a
and b in the box, kinks included: at abs, relu, max, min it is the hull of the branches that the value leaves open.
Over plain arrays one branch is taken (at a tie the second argument's; 0 for abs and relu).

A partial that is None, or missing at the end of the tuple, is exactly 0. Failure mode: sqrt, log, asin, x**p ... at an
end of their domain, and sign, floor, round and where at a jump, have non-finite partials while the value may be
finite: test value and partials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Generic, TypeVar

from attnfun.language.graph import Ratio
from attnfun.language.interpret import Algebra
from attnfun.language.operations.entry import Operation
from attnfun.language.table import on_duals

T = TypeVar("T")


@dataclass(frozen=True)
class Dual(Generic[T]):
    """A value and its partials in the order of the variables; None, or missing at the end, is exactly 0."""

    value: T
    partials: tuple[T | None, ...]


class GradientAlgebra(Algebra[Dual[T]], Generic[T]):
    """The operations of the expression language on `Dual` values over `base`; `dimension` only sets how many partials
    `gradient` writes out at least."""

    def __init__(self, base: Algebra[T], dimension: int = 0) -> None:
        self.base, self.dimension = base, dimension

    def variables(self, names: Sequence[str], values: Mapping[str, T]) -> dict[str, Dual[T]]:
        """An environment in which names[i] is the i-th variable of differentiation."""
        one = self.base.constant(Fraction(1))
        return {
            name: Dual(values[name], tuple(one if i == j else None for j in range(len(names))))
            for i, name in enumerate(names)
        }

    def gradient(self, x: Dual[T]) -> tuple[T, ...]:
        """The partials with None and what is missing up to `dimension` written out as the base's 0."""
        zero = self.base.constant(Fraction(0))
        missing = (zero,) * (self.dimension - len(x.partials))
        return tuple(zero if p is None else p for p in x.partials) + missing

    # --- building blocks ---

    def chain(self, x: Dual[T], value: T, slope: Callable[[], T]) -> Dual[T]:
        if all(p is None for p in x.partials):
            return Dual(value, x.partials)
        s = slope()
        return Dual(value, tuple(None if p is None else self.base.mul(s, p) for p in x.partials))

    def paired(self, value: T, x: Dual[T], y: Dual[T], rule: Callable[[T | None, T | None], T | None]) -> Dual[T]:
        return Dual(value, tuple(rule(p, q) for p, q in zip_longest(x.partials, y.partials)))

    def sum(self, x: T | None, y: T | None) -> T | None:
        if x is None:
            return y
        return x if y is None else self.base.add(x, y)

    def choose(self, x: T, y: T, a: T | None, b: T | None) -> T | None:
        """a where x > y, b where x < y, the hull (or b) where it is open."""
        if a is None and b is None:
            return None
        base: Any = self.base
        zero = base.constant(Fraction(0))
        a, b = zero if a is None else a, zero if b is None else b
        if hasattr(base, "choose"):
            return base.choose(x, y, a, b)
        first = base.relu(base.sign(base.sub(x, y)))
        return base.add(base.mul(first, a), base.mul(base.sub(base.constant(Fraction(1)), first), b))

    def _c(self, value: int | Fraction) -> T:
        return self.base.constant(value if type(value) is Fraction else Fraction(value))

    # --- arithmetic ---

    def constant(self, value: Fraction) -> Dual[T]:
        return Dual(self.base.constant(value), ())

    def pi(self) -> Dual[T]:
        return Dual(self.base.pi(), ())

    def e(self) -> Dual[T]:
        return Dual(self.base.e(), ())

    def neg(self, x: Dual[T]) -> Dual[T]:
        return Dual(self.base.neg(x.value), tuple(None if p is None else self.base.neg(p) for p in x.partials))

    def add(self, x: Dual[T], y: Dual[T]) -> Dual[T]:
        return self.paired(self.base.add(x.value, y.value), x, y, self.sum)

    def sub(self, x: Dual[T], y: Dual[T]) -> Dual[T]:
        base = self.base

        def partial(p: T | None, q: T | None) -> T | None:
            if q is None:
                return p
            return base.neg(q) if p is None else base.sub(p, q)

        return self.paired(base.sub(x.value, y.value), x, y, partial)

    def mul(self, x: Dual[T], y: Dual[T]) -> Dual[T]:
        base = self.base

        def times(a: T, p: T | None) -> T | None:
            return None if p is None else base.mul(a, p)

        value = base.mul(x.value, y.value)
        return self.paired(value, x, y, lambda p, q: self.sum(times(y.value, p), times(x.value, q)))

    def div(self, x: Dual[T], y: Dual[T]) -> Dual[T]:
        base = self.base
        quotient = base.div(x.value, y.value)

        def partial(p: T | None, q: T | None) -> T | None:
            if q is None:
                return None if p is None else base.div(p, y.value)
            drop = base.mul(quotient, q)
            return base.div(base.neg(drop) if p is None else base.sub(p, drop), y.value)

        return self.paired(quotient, x, y, partial)

    def powi(self, x: Dual[T], n: int) -> Dual[T]:
        value = self.base.powi(x.value, n)
        if n == 0:
            return Dual(value, ())
        return self.chain(x, value, lambda: self.base.mul(self._c(n), self.base.powi(x.value, n - 1)))

    def powr(self, x: Dual[T], p: Fraction) -> Dual[T]:
        value = self.base.powr(x.value, p)
        return self.chain(x, value, lambda: self.base.mul(self._c(p), self._real_power(x.value, Fraction(p) - 1)))

    def _real_power(self, x: T, p: Fraction) -> T:
        return self.base.powi(x, p.numerator) if p.denominator == 1 else self.base.powr(x, p)

    def pow(self, x: Dual[T], y: Dual[T]) -> Dual[T]:
        base = self.base
        value = base.pow(x.value, y.value)
        by_base = self.chain(x, value, lambda: base.mul(y.value, base.pow(x.value, base.sub(y.value, self._c(1)))))
        by_exponent = self.chain(y, value, lambda: base.mul(value, base.log(x.value)))
        return self.paired(value, by_base, by_exponent, self.sum)

    def ratio(self, x: Dual[T], quotient: Ratio) -> Dual[T]:
        j = quotient.derivative + 1  # (h_j)' = (j+1) h_{j+1}
        following = replace(quotient, derivative=j)
        value = self.base.ratio(x.value, quotient)
        return self.chain(x, value, lambda: self.base.mul(self._c(j), self.base.ratio(x.value, following)))

    table = on_duals

    @classmethod
    def method(cls, entry: Operation) -> Callable[..., Dual[Any]]:
        if entry.dual is not None:
            return entry.dual
        op, slope = entry.name, entry.slope
        assert slope is not None

        def smooth(self: GradientAlgebra[Any], x: Dual[Any], *whole: int) -> Dual[Any]:
            value = getattr(self.base, op)(x.value, *whole)
            return self.chain(x, value, lambda: slope(self.base, x.value, value, *whole))

        return smooth
