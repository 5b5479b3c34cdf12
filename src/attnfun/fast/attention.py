"""The compiled kernel of attention over given tokens and over tables: softmax(Q K^T + S) V, never a matrix in memory.

Every lane is a softmax of its own: the tokens of one sequence, which share their keys (K and V of two dimensions), or
sequences that each have their own (of three, the lanes last). One lane may also hold a part of the keys of a table;
then the parts are merged (`merged`). Keys pass in groups of GROUP: logits, their largest, exp, sums.

**Counted operations** of one lane, in the dtype, roundoff u, whatever `contract` makes of `a*b + c`: a logit is r
products, their sum and S_ij, in some order; the running maximum of the groups so far is subtracted; one exp; products
with the values; sums in some order. Where the maximum rises, the sums so far are multiplied by one exp: once a group at
most, so once for every further 64 keys. `merged` multiplies the sums of a part by one exp more, where there are at
least 128 keys and a part has at most a quarter of them. One division at the end.

That is what `certify/rounding.py` counts in its steps 2 to 5 (exp by `exp_bound.py`), and what the proofs of sequences,
in-context networks, tables and single heads count by `kernel_move`. exp(0) is 1 exactly. A term FAR below the largest
is 0 exactly, as those proofs allow: where true terms underflow it is 0, and what else vanishes, e^-FAR of the mass a
key, is below what exp has to spare (4u of at least 8u).
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from attnfun.certify.rounding import FAR
from attnfun.fast.kernels import _FLAGS, _INLINE, _exp
from attnfun.network.head import AnyArray

GROUP = 64
LANES = 256


def _part(x: Any, a: int, b: int) -> Any:
    """Lanes a to b of a row, or a number that all lanes share; never called as Python."""
    raise NotImplementedError


def _lane(x: Any, q: int) -> Any:
    raise NotImplementedError


@overload(_part, jit_options=_INLINE)
def _part_of_type(x, a, b):  # type: ignore[no-untyped-def]
    return (lambda x, a, b: x[a:b]) if isinstance(x, types.Array) else (lambda x, a, b: x)


@overload(_lane, jit_options=_INLINE)
def _lane_of_type(x, q):  # type: ignore[no-untyped-def]
    return (lambda x, q: x[q]) if isinstance(x, types.Array) else (lambda x, q: x)


@njit(**_INLINE)  # type: ignore[untyped-decorator]
def _four(Q: Any, K: Any, i: int, k: int, at: Any, a: int, b: int, s: Any, fresh: bool) -> None:
    """Coordinates k and k + 1 of the logits of four keys, added to what is there unless they are the first."""
    (j0, j1, j2, j3), (s0, s1, s2, s3) = at, s
    x, y = Q[i, k, a:b], Q[i, k + 1, a:b]
    u0, u1, u2, u3 = _part(K[j0, k], a, b), _part(K[j1, k], a, b), _part(K[j2, k], a, b), _part(K[j3, k], a, b)
    k += 1
    w0, w1, w2, w3 = _part(K[j0, k], a, b), _part(K[j1, k], a, b), _part(K[j2, k], a, b), _part(K[j3, k], a, b)
    if fresh:
        for q in range(b - a):
            s0[q] = x[q] * _lane(u0, q) + y[q] * _lane(w0, q)
            s1[q] = x[q] * _lane(u1, q) + y[q] * _lane(w1, q)
            s2[q] = x[q] * _lane(u2, q) + y[q] * _lane(w2, q)
            s3[q] = x[q] * _lane(u3, q) + y[q] * _lane(w3, q)
    else:
        for q in range(b - a):
            s0[q] += x[q] * _lane(u0, q) + y[q] * _lane(w0, q)
            s1[q] += x[q] * _lane(u1, q) + y[q] * _lane(w1, q)
            s2[q] += x[q] * _lane(u2, q) + y[q] * _lane(w2, q)
            s3[q] += x[q] * _lane(u3, q) + y[q] * _lane(w3, q)


@njit(**_INLINE)  # type: ignore[untyped-decorator]
def _last(Q: Any, K: Any, i: int, k: int, at: Any, a: int, b: int, s: Any, fresh: bool) -> None:
    """As `_four`, one coordinate."""
    (j0, j1, j2, j3), (s0, s1, s2, s3) = at, s
    x = Q[i, k, a:b]
    u0, u1, u2, u3 = _part(K[j0, k], a, b), _part(K[j1, k], a, b), _part(K[j2, k], a, b), _part(K[j3, k], a, b)
    if fresh:
        for q in range(b - a):
            s0[q], s1[q] = x[q] * _lane(u0, q), x[q] * _lane(u1, q)
            s2[q], s3[q] = x[q] * _lane(u2, q), x[q] * _lane(u3, q)
    else:
        for q in range(b - a):
            s0[q] += x[q] * _lane(u0, q)
            s1[q] += x[q] * _lane(u1, q)
            s2[q] += x[q] * _lane(u2, q)
            s3[q] += x[q] * _lane(u3, q)


@njit(**_INLINE)  # type: ignore[untyped-decorator]
def _top(rows: Any, n: int, S: Any, i: int, g: int, top: Any, c: int) -> None:
    """Adds S to the logits, and finds the largest of each lane."""
    if len(S) > 0:
        for j in range(n):
            row, more = rows[j], S[i, g + j]
            for q in range(c):
                row[q] += more
    row = rows[0]
    for q in range(c):
        top[q] = row[q]
    j = 1
    while j + 2 <= n:
        one, two = rows[j], rows[j + 1]
        for q in range(c):
            t = one[q] if one[q] > two[q] else two[q]
            top[q] = t if t > top[q] else top[q]
        j += 2
    if j < n:
        row = rows[j]
        for q in range(c):
            top[q] = row[q] if row[q] > top[q] else top[q]


@njit(**_INLINE)  # type: ignore[untyped-decorator]
def _risen(top: Any, own: Any, total: Any, num: Any, i: int, a: int, b: int, far: Any) -> None:
    """The maximum of every lane is raised to `top` at least, and its sums are multiplied by exp(old - new)."""
    c, rises = b - a, 0
    for q in range(c):
        rises |= top[q] > own[q]
    if rises == 0:
        return
    for q in range(c):
        t = top[q] if top[q] > own[q] else own[q]
        x = own[q] - t
        own[q] = t
        e = _exp(far if x < far else x)
        top[q] = 0 if x < far else e
        total[q] *= top[q]
    for o in range(num.shape[1]):
        out = num[i, o, a:b]
        for q in range(c):
            out[q] *= top[q]


@njit(**_INLINE)  # type: ignore[untyped-decorator]
def _sums(rows: Any, n: int, V: Any, g: int, num: Any, i: int, a: int, b: int) -> None:
    """num += the sum of the terms `rows` with the values of the keys from g on."""
    c, j = b - a, 0
    while j + 4 <= n:
        s0, s1, s2, s3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        at = g + j
        for o in range(num.shape[1]):
            out = num[i, o, a:b]
            v0, v1 = _part(V[at, o], a, b), _part(V[at + 1, o], a, b)
            v2, v3 = _part(V[at + 2, o], a, b), _part(V[at + 3, o], a, b)
            for q in range(c):
                left = s0[q] * _lane(v0, q) + s1[q] * _lane(v1, q)
                out[q] += left + (s2[q] * _lane(v2, q) + s3[q] * _lane(v3, q))
        j += 4
    while j < n:
        s0 = rows[j]
        for o in range(num.shape[1]):
            out, v0 = num[i, o, a:b], _part(V[g + j, o], a, b)
            for q in range(c):
                out[q] += s0[q] * _lane(v0, q)
        j += 1


def _attend(Q: Any, K: Any, V: Any, S: Any, num: Any, den: Any, peak: Any, first: int, last: int, far: Any) -> None:
    """num, den, peak (I, p, L), (I, L), (I, L) of the lanes first to last of Q (I, r, L) over K (J, r), V (J, p)."""
    items, r, _ = Q.shape
    keys = len(K)
    rows, top = np.empty((GROUP + 3, LANES), Q.dtype), np.empty(LANES, Q.dtype)
    for a in range(first, last, LANES):
        b = min(last, a + LANES)
        c = b - a
        for g in range(0, keys, GROUP):
            n = min(GROUP, keys - g)
            for i in range(items):
                for j in range(0, n, 4):  # behind the last key it stands again, in rows that nobody reads
                    j1, j2, j3 = min(j + 1, n - 1), min(j + 2, n - 1), min(j + 3, n - 1)
                    at, s = (g + j, g + j1, g + j2, g + j3), (rows[j], rows[j + 1], rows[j + 2], rows[j + 3])
                    if r % 2 == 1:
                        _last(Q, K, i, r - 1, at, a, b, s, True)
                    else:
                        _four(Q, K, i, r - 2, at, a, b, s, True)
                    for k in range(0, (r - 1) // 2 * 2, 2):
                        _four(Q, K, i, k, at, a, b, s, False)
                _top(rows, n, S, i, g, top, c)
                own, total = peak[i, a:b], den[i, a:b]
                if g == 0:
                    for q in range(c):
                        own[q] = top[q]
                        total[q] = 0
                    for o in range(num.shape[1]):
                        out = num[i, o, a:b]
                        for q in range(c):
                            out[q] = 0
                else:
                    _risen(top, own, total, num, i, a, b, far)
                for j in range(n):
                    row = rows[j]
                    for q in range(c):
                        x = row[q] - own[q]
                        e = _exp(far if x < far else x)
                        row[q] = 0 if x < far else e
                        total[q] += row[q]
                _sums(rows, n, V, g, num, i, a, b)


@lru_cache
def attend(dtype: str, own: bool) -> Any:
    """`_attend` compiled for a dtype, for lanes that have keys of their `own` or share them."""
    real = types.float64 if dtype == "float64" else types.float32

    def array(dim: int, readonly: bool = True) -> Any:
        return types.Array(real, dim, "C", readonly=readonly)

    keys = array(3 if own else 2)
    given = (array(3), keys, keys, array(2), array(3, False), array(2, False), array(2, False))
    return njit(types.void(*given, types.int64, types.int64, real), cache=True, nogil=True, **_FLAGS)(_attend)
