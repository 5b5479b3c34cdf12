"""Whole numbers as points of a circle: the look-up x → (cos 2πx/M, sin 2πx/M) that stands before networks of residues.

It is a table of whole numbers, not a layer: every entry is worked out in balls from the residue of x and is within
1.01 u (relative, u the unit roundoff of the dtype) of the true cosine or sine, exactly 0 and ±1 where they are.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import arb, fmpq

from attnfun.errors import InvalidRequest, require
from attnfun.language.enclosures import precision
from attnfun.language.target import Array

_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
_MOST = 1 << 62
_SMALL = 1 << 12  # moduli whose whole circle is kept: training looks it up at every step


def residues(x: npt.ArrayLike, modulus: int) -> npt.NDArray[np.int64]:
    """Whole numbers mod M, in any shape; InvalidRequest for anything but whole numbers."""
    given = np.asarray(x)
    if given.dtype.kind not in "iu" and not (given.dtype == object and all(type(v) is int for v in given.flat)):
        raise InvalidRequest(f"tokens to match are whole numbers, and not {given.dtype}")
    require(2 <= modulus < _MOST, f"modulus={modulus!r}: a whole number from 2 on is needed")
    wide = {"i": np.int64, "u": np.uint64}.get(given.dtype.kind)  # a modulus may not fit into the type given
    return np.asarray(np.mod(given if wide is None else given.astype(wide), modulus), dtype=np.int64)


def circle(x: npt.NDArray[np.int64], modulus: int, dtype: str) -> tuple[Array, Array]:
    """(cos 2πx/M, sin 2πx/M) of residues, as numbers of the dtype held in float64."""
    if modulus <= min(_SMALL, x.size):
        found = _whole_circle(modulus, dtype)[x]
    else:
        different, places = np.unique(x, return_inverse=True)
        found = _looked_up(different, modulus, dtype)[places].reshape((*x.shape, 2))
    return found[..., 0], found[..., 1]


@lru_cache(maxsize=8)
def _whole_circle(modulus: int, dtype: str) -> Array:
    return _looked_up(np.arange(modulus), modulus, dtype)


def _looked_up(values: npt.NDArray[np.int64], modulus: int, dtype: str) -> Array:
    """(n, 2) cosines and sines."""
    table = np.empty((len(values), 2))
    with precision(160):
        for row, value in enumerate(values.tolist()):
            angle = fmpq(2 * value, modulus)
            table[row] = [_nearest(one(angle), dtype) for one in (arb.cos_pi_fmpq, arb.sin_pi_fmpq)]
    return table


def _nearest(ball: Any, dtype: str) -> float:
    """A number of the dtype within 1.01 u of the ball, relative; checked."""
    kind = np.dtype(dtype).type
    guess = kind(float(ball.mid()))
    for number in (guess, np.nextafter(guess, kind(np.inf)), np.nextafter(guess, kind(-np.inf))):
        value = float(number)
        if abs(ball - arb(value)) <= arb(1.01 * _ROUNDOFF[dtype]) * abs(ball) or (ball == 0 and value == 0):
            return value
    raise AssertionError("a ball of 160 bits has a nearest float")
