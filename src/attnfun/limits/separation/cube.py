"""What heads cannot see of the nearest neighbour on the Hamming cube: a calculator over `krawtchouk`, exact.

| question | heads know of z | lower bound | upper bound |
| --- | --- | --- | --- |
| `rank`, one candidate | r of the d coordinates | `coordinates_lower` | `coordinates_upper`: some heads do |
| `rank`, two candidates | r coordinates of x1 and the same of x2 | `candidates_lower` | none is proved |
| `values` | one of v values | `values_lower` | none is proved |

Statements and derivations are in `krawtchouk`. Size: fractions, d up to 256. Bound: exact; `lower` is rounded down and
`upper` up. Failure mode: none but size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from attnfun.errors import InvalidRequest
from attnfun.language import precision
from attnfun.language.enclosures import arb, upper
from attnfun.language.numbers import above, below, positive_or_none, whole_number
from attnfun.limits.record import Record
from attnfun.limits.separation import krawtchouk
from attnfun.limits.separation.rank import least_heads

MOST_DIM = 256
_BITS = 256
_TARGETS = {
    1: "z and y are independent and uniform on {-1, 1}^d; the target is sign(<z, y>), 0 for ties, the error E|f - g|^2",
    2: "x1, x2, y are independent and uniform on {-1, 1}^d; the target is sign(<x1 - x2, y>), 0 for ties: the nearer "
    "one; the error is E|f - g|^2",
}
_HEADS = {
    "coordinates": "head h is any function of r of the d coordinates of z, and of y; a sum of heads, nothing after it",
    "candidates": "head h is any function of r of the d coordinates of x1, the same of x2, and of y; a sum of heads, "
    "nothing after it",
    "values": "head h is any function of y and of a number of z that takes at most v values; a sum of heads, nothing "
    "after it",
}
_CAVEAT = "a head of rank r with real weights reads more than r coordinates: rank alone excludes nothing on the cube"
_SOURCE = (
    "derived in attnfun.limits.separation.krawtchouk, on a question of Bruna's about Amsel, Yehudai, Bruna 2024 (arXiv "
    "2407.16153); coefficients of majority: O'Donnell 2014, section 5.3"
)


@dataclass(frozen=True)
class CubeBound(Record):
    """No `heads` heads have an error below `exact` ≥ `lower`; some have at most `upper` (None: none is proved).

    `rank` coordinates a head, or `values` values; `heads_needed`: the fewest heads that are not excluded at error
    `eps`, None where no number of them is enough. `floor`: any number errs by so much; `largest`: the error of none.
    """

    dim: int
    rank: int | None
    values: int | None
    heads: int
    setting: str
    lower: float
    upper: float | None
    exact: Fraction
    eps: float | None
    heads_needed: int | None
    floor: float
    largest: float
    hypotheses: tuple[str, ...]
    source: str = _SOURCE


def cube(
    dim: int,
    rank: int | None = None,
    heads: int = 1,
    eps: float | None = None,
    *,
    values: int | None = None,
    candidates: int = 1,
) -> CubeBound:
    """Bounds on the error of `heads` heads on the Hamming cube {−1, 1}^dim, and the heads that `eps` needs.

    `rank`: coordinates that a head reads, or `values`: values that what it knows of z can take; one of the two.
    `candidates`: 1 for sign(⟨z, y⟩), 2 for the nearer of two points (with `rank`).
    """
    d, h = whole_number("dim", dim, 1, MOST_DIM), whole_number("heads", heads, 0)
    n = whole_number("candidates", candidates, 1, 2)
    if (rank is None) == (values is None):
        raise InvalidRequest("either rank (coordinates that a head reads) or values, and not both")
    if values is not None and n == 2:
        raise InvalidRequest("values: for one candidate only")
    eps = positive_or_none("eps", eps)
    r = None if rank is None else whole_number("rank", rank, 1, d)
    v = None if values is None else whole_number("values", values, 1)

    def least(count: int) -> Fraction:
        if v is not None:
            return krawtchouk.values_lower(d, v, count)
        assert r is not None
        return (krawtchouk.coordinates_lower if n == 1 else krawtchouk.candidates_lower)(d, r, count)

    setting = "values" if v is not None else "coordinates" if n == 1 else "candidates"
    exact, floor = least(h), least(1 << d)  # so many heads see all that any number of them sees
    needed = None if eps is None or floor > Fraction(eps) else least_heads(lambda count: least(count) <= Fraction(eps))
    reached = _attained(d, r, h) if setting == "coordinates" and r is not None else None
    errors, ends = (below(exact), reached, exact), (below(floor), above(least(0)))
    hypotheses = _TARGETS[n], _HEADS[setting], _CAVEAT
    return CubeBound(d, r, v, h, setting, *errors, eps, needed, *ends, hypotheses)


def _attained(dim: int, rank: int, heads: int) -> float:
    """`krawtchouk.coordinates_upper` in balls, from above: its fraction has too many digits for many heads."""
    with precision(_BITS):
        total = arb(0)
        for degree, energy in enumerate(krawtchouk.cube_energies(dim)):
            missed = 1 - Fraction(math.comb(rank, degree), math.comb(dim, degree))
            total += arb(energy.numerator) / energy.denominator * (arb(missed.numerator) / missed.denominator) ** heads
        return upper(total)
