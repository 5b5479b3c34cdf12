"""Lexicographic order on a grid: which grids one number can rank in which format, and what the continuum costs.

Statement. Keys are x ∈ {0, …, P−1}^k, ordered by the first coordinate in which they differ. With p significant bits:

    one number    u = (…(x1 P + x2) P + …) P + x_k, a linear (rank 1) utility, is computed without any rounding
                  iff P^k ≤ 2^p + 1; for k ≥ 2 and the formats below that is P^k ≤ 2^p. Beyond, two keys tie.
    centred       the same with x1 counted from −P/2 on (P odd: every coordinate from −(P−1)/2): the sign is one bit
    more,
                  and P^k ≤ 2^(p+1) + 1 is enough
    cascade       coordinate by coordinate, as `lexicographic` builds it: P ≤ 2^(p−1), whatever k; built in float32
                  and float64

| largest P | bits p | one number, k = 2 | centred, k = 2 | cascade |
| --- | --- | --- | --- | --- |
| bfloat16 | 8 | 16 | 22 | |
| float16 | 11 | 45 | 64 | |
| float32 | 24 | 4,096 | 5,792 | 8,388,608 |
| float64 | 53 | 94,906,265 | 134,217,728 | 4.5e15 |

Derivation. Every whole number up to 2^p is a float, 2^p + 1 is not and rounds to 2^p (ties to even). All intermediate
values of Horner's rule are whole numbers ≤ u ≤ P^k − 1, so nothing rounds if P^k − 1 ≤ 2^p. Otherwise the keys with u
= 2^p and 2^p + 1 exist. In the second the last sum, or the product before it if x_k = 0, is the first value past 2^p;
it becomes 2^p: a tie (`tied_pair`). Centred, u runs from −P^k/2 to P^k/2 − 1, or to ±(P^k − 1)/2, and every
intermediate value is a whole number of at most that size. By Mihailescu's theorem (and, for these p, by looking) 2^p +
1 is no proper power unless p = 3.
Optimal. P^k keys in strict order have P^k different utilities, so the smallest gap is at most range/(P^k − 1), for
every utility (pigeonhole); u attains it.

The continuum. The lexicographic order of [0, 1]^k, k ≥ 2, has no utility at all: for each x1 the interval between
u(x1, 0, …) and u(x1, 1, …) would be nonempty, and uncountably many disjoint intervals do not fit on a line (Debreu
1954). What stays possible: a grid, the cascade, or u = x1 + τ x2, which misorders a uniform pair with probability
τ/3 − τ²/12.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flint import fmpz

from attnfun.language.numbers import one_of, whole_number
from attnfun.limits.record import Record

BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""Significant bits, the hidden one included."""
CASCADES = ("float32", "float64")
"""Formats whose range holds the logits of a cascade, and in which networks are built."""


@dataclass(frozen=True)
class GridLimits(Record):
    """The largest P of each way for k coordinates in one format; `fits`: which ways hold the P that was asked for."""

    told: ClassVar[tuple[str, ...]] = ("dtype", "bits", "coordinates", "levels", "largest", "fits", "gap", "tied_pair")

    dtype: str
    bits: int
    coordinates: int
    one_number: int
    centred: int
    cascade: int | None
    levels: int | None = None

    @property
    def largest(self) -> dict[str, int | None]:
        return {"one_number": self.one_number, "centred": self.centred, "cascade": self.cascade}

    @property
    def fits(self) -> dict[str, bool] | None:
        if self.levels is None:
            return None
        return {way: most is not None and self.levels <= most for way, most in self.largest.items()}

    @property
    def gap(self) -> float | None:
        """gap/range = 1/(P^k − 1), the best of all utilities."""
        return None if self.levels is None or self.levels < 2 else float(1 / (self.levels**self.coordinates - 1))

    @property
    def tied_pair(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Two keys of the grid that are one number in this format."""
        return None if self.levels is None else tied_pair(self.levels, self.coordinates, self.dtype)


def grid_limits(dtype: str = "float32", coordinates: int = 2, levels: int | None = None) -> GridLimits:
    """The largest grids that `dtype` ranks exactly, and whether one of `levels` values per coordinate is among them."""
    p = _bits(dtype)
    check_grid(coordinates, levels)
    one, centred = (int(fmpz(2**bits + 1).root(coordinates)) for bits in (p, p + 1))
    return GridLimits(dtype, p, coordinates, one, centred, 2 ** (p - 1) if dtype in CASCADES else None, levels)


def check_grid(coordinates: int, levels: int | None = None) -> None:
    """InvalidRequest for a grid that has no whole number of coordinates or levels, or too many."""
    whole_number("coordinates", coordinates, 1, 64)
    whole_number("levels", 1 if levels is None else levels, 1, 10**18)


def tied_pair(levels: int, coordinates: int, dtype: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Two keys that differ and whose u = 2^p + 1 and 2^p are one number in `dtype`, better one first; None if exact."""
    edge = 2 ** _bits(dtype)
    if levels**coordinates - 1 <= edge:
        return None
    return _digits(edge + 1, levels, coordinates), _digits(edge, levels, coordinates)


def utility(keys: Any, levels: int, dtype: str, centred: bool = False) -> np.ndarray[Any, np.dtype[Any]]:
    """(n, k) whole numbers → (n,) u by Horner's rule, every operation rounded to `dtype` (bfloat16: in float32)."""
    _bits(dtype)
    X = np.array(keys, dtype=np.float64)
    if centred:
        X[:, : None if levels % 2 else 1] -= levels // 2
    kind = "float32" if dtype == "bfloat16" else dtype
    with np.errstate(over="ignore"):
        P, columns = _rounded(np.asarray(levels, dtype=kind), dtype), _rounded(X.astype(kind), dtype).T
        total = columns[0]
        for column in columns[1:]:
            total = _rounded(_rounded(total * P, dtype) + column, dtype)
    return np.asarray(total)


def _rounded(values: np.ndarray[Any, np.dtype[Any]], dtype: str) -> np.ndarray[Any, np.dtype[Any]]:
    """float32 rounded to bfloat16, ties to even, by its bits; other formats round by themselves.

    A product or a sum of two bfloat16 is rounded twice then, to 24 bits and to 8: the same as once for products, which
    have 16 bits, and for sums of whole numbers up to 2^24, which float32 holds.
    """
    if dtype != "bfloat16":
        return values
    raw = np.asarray(values, dtype=np.float32).view(np.uint32)
    odd = (raw >> np.uint32(16)) & np.uint32(1)
    return ((raw + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)).view(np.float32)


def _bits(dtype: str) -> int:
    one_of("dtype", dtype, BITS)
    return BITS[dtype]


def _digits(value: int, base: int, count: int) -> tuple[int, ...]:
    out = []
    for _ in range(count):
        value, digit = divmod(value, base)
        out.append(digit)
    return tuple(out[::-1])
