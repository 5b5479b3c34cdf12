"""What an operation of the language is: one entry, which every algebra reads.

| field | what it is | read by |
| --- | --- | --- |
| name, aliases, ufuncs | what it is called in text; NumPy's and SciPy's functions that trace to it | parser, tracing |
| arity, whole, least | how many arguments it has; does a whole number ≥ least stand before them: jv(n, x) | graph |
| floats | the function on float arrays, complex ones where it is analytic | arrays |
| ball, clipped | the range over a real ball; of what is left of the ball when it is cut to the domain | balls |
| interval | a method of the algebra of intervals; without it by balls of 64 bits at both ends | intervals |
| rectangle | the same over a rectangle, finite only where it is proved analytic; None: it never is | complex balls |
| raw | the same of first order, which slopes are worked out in | `analytic` |
| taylor | n Taylor coefficients over a ball, real or complex: of the algebra of series, the ball and n | series |
| slope | the derivative in the operations of any algebra: of the algebra, the argument and the value | gradient |
| series, dual | methods of those two algebras, for kinks | series, gradient |
| needs | the condition on its argument | definedness |
| parity | 1: even, -1: odd | canonical forms, identities |
| entire, cut | analytic everywhere; what must avoid (-inf, 0] for it to be analytic, in floats | ellipses |
| rough | there are points at which it is defined, and not analytic | removable singularities |
| singular | what vanishes where smoothness ends, in floats | heads of one variable |
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Truth = NDArray[np.bool_]


@dataclass(frozen=True)
class Range:
    """Where an argument must lie: in [least, most], or inside where it is not `closed`; without ends: off 0, or, if
    `stepwise`, between two whole numbers.
    """

    words: str
    least: Fraction | None = None
    most: Fraction | None = None
    closed: bool = False
    stepwise: bool = False

    @property
    def off_zero(self) -> bool:
        return self.least is None and self.most is None and not self.stepwise

    def holds(self, low: Floats, high: Floats) -> Truth:
        """For every value of [low, high]; NaN fails."""
        if self.off_zero:
            return np.asarray((low > 0) | (high < 0))
        if self.stepwise:
            return np.asarray(np.floor(low) == np.floor(high))
        good = np.ones(np.shape(low), dtype=bool)
        if self.least is not None:
            good &= low >= float(self.least) if self.closed else low > float(self.least)
        if self.most is not None:
            good &= high <= float(self.most) if self.closed else high < float(self.most)
        return good

    def fails(self, low: Floats, high: Floats) -> Truth:
        """For no value of [low, high]; NaN does not."""
        if self.off_zero:
            return np.asarray((low == 0) & (high == 0))
        if self.stepwise:
            return np.zeros(np.shape(low), dtype=bool)
        bad = np.zeros(np.shape(low), dtype=bool)
        if self.least is not None:
            bad |= high < float(self.least) if self.closed else high <= float(self.least)
        if self.most is not None:
            bad |= low > float(self.most) if self.closed else low >= float(self.most)
        return bad

    def holds_exactly(self, low: Fraction, high: Fraction) -> bool:
        """For [low, high], of a closed range."""
        return (self.least is None or low >= self.least) and (self.most is None or high <= self.most)


NONZERO = Range("must stay away from 0")
BETWEEN = Range("must stay between two whole numbers", stepwise=True)
POSITIVE = Range("must stay above 0", Fraction(0))
NONNEGATIVE = Range("must not be negative", Fraction(0), closed=True)
UNIT = Range("must stay in [-1, 1]", Fraction(-1), Fraction(1), closed=True)


@dataclass(frozen=True)
class Need:
    """The condition of an operation: `of` the argument x, a formula, lies in `range`.

    `called`: what a refusal calls that formula. `continuity`: only a continuous target needs it.
    """

    range: Range
    of: str = "x"
    called: str = ""
    continuity: bool = False


@dataclass(frozen=True)
class Operation:
    """One operation; the table of this file says what the fields are."""

    name: str
    floats: Callable[..., Any]
    ball: Callable[..., Any]
    interval: Callable[..., Any] | None = None
    rectangle: Callable[..., Any] | None = None
    taylor: Callable[..., Any] | None = None
    slope: Callable[..., Any] | None = None
    series: Callable[..., Any] | None = None
    dual: Callable[..., Any] | None = None
    clipped: Callable[..., Any] | None = None
    aliases: tuple[str, ...] = ()
    ufuncs: tuple[str, ...] = ()
    arity: int = 1
    whole: bool = False
    needs: Need | None = None
    parity: int = 0
    entire: bool = False
    cut: Callable[[Floats], Floats] | None = None
    rough: bool = False
    singular: Callable[[Floats], Floats] | None = None
    raw: Callable[..., Any] | None = None
    least: int = -1000


@dataclass(frozen=True)
class Derived:
    """A function that is a formula in others, of which it loses nothing; it leaves no trace of its own in a graph."""

    name: str
    arguments: tuple[str, ...]
    formula: str
    aliases: tuple[str, ...] = ()
    ufuncs: tuple[str, ...] = ()
