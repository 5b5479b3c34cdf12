"""What all compiled kernels share: how they are compiled and kept, and their exp.

**exp**: n = x log2 e to the nearest integer, r = x − n ln2 in two parts, Taylor's polynomial in r of degree 13 (7 in
float32), times 2^n by its bits. `exp_bound.py` proves it within 4u.

numba keeps what it has compiled, and looks at the file of the kernel alone to see whether that is still right. So a
kernel that is kept closes over SOURCES, the hash of all sources of this room: numba makes that a part of the key.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit
from numba import types as numba_types
from numba.extending import intrinsic, overload

from attnfun.fast.exp_bound import LN2, LOG2_E, MAGIC, ONE_BITS, TAYLOR

FLAGS: dict[str, Any] = {"fastmath": {"contract", "nsz"}, "error_model": "numpy"}
INLINE: dict[str, Any] = {**FLAGS, "forceinline": True}
SOURCES = sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compiled when it is called, for the types it is called with; as a part of a kernel no extra call.

    It makes no arrays, so numba counts no references: that would be two locked instructions for every row that is read.
    """
    made: F = njit(_nrt=False, **FLAGS)(function)
    return made


def kept(function: Callable[..., Any], *given: Any) -> Any:
    """Compiled for these types, or read from numba's cache; runs without Python's lock."""
    return njit(numba_types.void(*given), cache=True, nogil=True, **FLAGS)(function)


def array(kind: Any, dim: int, readonly: bool = True) -> Any:
    return numba_types.Array(kind, dim, "C", readonly=readonly)


@intrinsic  # type: ignore[untyped-decorator]
def _power(_context: Any, k: Any) -> Any:
    """2^n from k = n + MAGIC: the last bits of k are n, and move to where the exponent stands."""
    wide = k == numba_types.float64

    def make(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        whole, real = (ir.IntType(64), ir.DoubleType()) if wide else (ir.IntType(32), ir.FloatType())
        one = ONE_BITS["float64" if wide else "float32"]
        moved = builder.shl(builder.bitcast(arguments[0], whole), ir.Constant(whole, 52 if wide else 23))
        return builder.bitcast(builder.add(moved, ir.Constant(whole, one)), real)

    return k(k), make


def _constants(kind: Any) -> tuple[Any, ...]:
    name = np.dtype(kind).name
    return tuple(kind(c) for c in (LOG2_E, MAGIC[name], *LN2[name], *TAYLOR[name]))


_E2, _M, _HI, _LO, *_C = _constants(np.float64)
_C13, _C12, _C11, _C10, _C9, _C8, _C7, _C6, _C5, _C4, _C3, _C2 = _C
_e2, _m, _hi, _lo, _c7, _c6, _c5, _c4, _c3, _c2 = _constants(np.float32)


@njit(**INLINE)  # type: ignore[untyped-decorator]
def _reduced(x: Any, log2e: Any, magic: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """2^n and r, x = n ln2 + r."""
    k = x * log2e + magic
    n = k - magic
    return _power(k), (x - n * high) - n * low


@njit(**INLINE)  # type: ignore[untyped-decorator]
def _ended(s: Any, r: Any, p: Any, c6: Any, c5: Any, c4: Any, c3: Any, c2: Any) -> Any:
    """The last steps of Taylor's polynomial, times s."""
    p = p * r + c6
    p = p * r + c5
    p = p * r + c4
    p = p * r + c3
    p = p * r + c2
    p = p * r * r + r
    return s + s * p


@njit(**INLINE)  # type: ignore[untyped-decorator]
def _exp64(x: Any) -> Any:
    s, r = _reduced(x, _E2, _M, _HI, _LO)
    p = _C13
    p = p * r + _C12
    p = p * r + _C11
    p = p * r + _C10
    p = p * r + _C9
    p = p * r + _C8
    p = p * r + _C7
    return _ended(s, r, p, _C6, _C5, _C4, _C3, _C2)


@njit(**INLINE)  # type: ignore[untyped-decorator]
def _exp32(x: Any) -> Any:
    s, r = _reduced(x, _e2, _m, _hi, _lo)
    return _ended(s, r, _c7, _c6, _c5, _c4, _c3, _c2)


def exp(x: Any) -> Any:
    """exp in the type of x; never called as Python."""
    raise NotImplementedError


@overload(exp, jit_options=INLINE)
def _exp_of_type(x):  # type: ignore[no-untyped-def]  # numba compares the names and the annotations
    if x == numba_types.float64:
        return lambda x: _exp64(x)
    return lambda x: _exp32(x)


@compiled
def exps(x: Any, out: Any) -> None:
    """out = exp(x), point for point: what a vectorised exp costs, and what the tests of its bound call."""
    for i in range(len(x)):
        out[i] = exp(x[i])
