"""The compiled kernel of attention over given tokens and over tables: softmax(Q K^T + S) V, never a matrix in memory.

Every lane is a softmax of its own. Lanes share their keys (K and V of two dimensions: the tokens of one sequence), or
each has its own (of three, the lanes last: sequences side by side, or the parts of a long table, which `tokens.table`
puts together). Keys pass in groups of GROUP: logits, their largest, exp, sums.

**Counted operations** of a lane, in the dtype, roundoff u, whatever `contract` makes of `a*b + c`: a logit is r
products, their sum and S_ij, in some order; the running maximum of the groups so far is subtracted; one exp; products
with the values; sums in some order. Where the maximum rises, the sums so far are multiplied by one exp: once a group at
most, so once for every further 64 keys. One division at the end. Parts of a table are multiplied by one exp more; they
are LANES or more, of n/LANES keys each, or of one key, whose own exp is exp(0) = 1 exactly: so the exps of a term are
1 + n/64 at most here too.

That is what steps 2 to 5 of `certify/rounding.py` count, and the proofs of sequences, sets, tables, in-context networks
and single heads by its `kernel_move`. Our exp is within 4u (`exp_bound.py`); they count 8u or more. A term FAR below
the largest is 0 exactly. Where a true term underflows the dtype that is what they suppose; all others that vanish have
e^-FAR of the mass each, which is less than the 4u that exp has to spare.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from attnfun.fast.compiled import INLINE, SOURCES, array, compiled, exp, kept

GROUP = 64
LANES = 256


def _lane(x: Any, q: int) -> Any:
    """Lane q of a row, or a number that all lanes share; never called as Python."""
    raise NotImplementedError


@overload(_lane, jit_options=INLINE)
def _lane_of_type(x, q):  # type: ignore[no-untyped-def]
    return (lambda x, q: x[np.uint64(q)]) if isinstance(x, types.Array) else (lambda x, q: x)


@njit(**INLINE)  # type: ignore[untyped-decorator]
def _logits(
    Q: Any, K: Any, S: Any, x0: int, at: int, r: int, i: int, g: int, n: int, a: int, b: int, rows: Any
) -> None:
    """The logits of the keys g to g + n, four at a time; behind the last one it stands again, where nobody reads."""
    c, m = b - a, n - 1
    zero = Q.dtype.type(0)
    for j in range(0, n, 4):
        s0, s1, s2, s3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        j0, j1, j2, j3 = g + j, g + min(j + 1, m), g + min(j + 2, m), g + min(j + 3, m)
        b0, b1, b2, b3 = (S[i, j0], S[i, j1], S[i, j2], S[i, j3]) if len(S) > 0 else (zero, zero, zero, zero)
        x = Q[i, x0, a:b]
        k = at
        u0, u1, u2, u3 = K[j0, k], K[j1, k], K[j2, k], K[j3, k]
        if r % 2 == 1:
            for q in range(c):
                s0[q] = b0 + x[q] * _lane(u0, a + q)
                s1[q] = b1 + x[q] * _lane(u1, a + q)
                s2[q] = b2 + x[q] * _lane(u2, a + q)
                s3[q] = b3 + x[q] * _lane(u3, a + q)
        else:
            y = Q[i, x0 + 1, a:b]
            k = at + 1
            w0, w1, w2, w3 = K[j0, k], K[j1, k], K[j2, k], K[j3, k]
            for q in range(c):
                s0[q] = b0 + (x[q] * _lane(u0, a + q) + y[q] * _lane(w0, a + q))
                s1[q] = b1 + (x[q] * _lane(u1, a + q) + y[q] * _lane(w1, a + q))
                s2[q] = b2 + (x[q] * _lane(u2, a + q) + y[q] * _lane(w2, a + q))
                s3[q] = b3 + (x[q] * _lane(u3, a + q) + y[q] * _lane(w3, a + q))
        for o in range(2 - r % 2, r, 2):
            x, y, k = Q[i, x0 + o, a:b], Q[i, x0 + o + 1, a:b], at + o
            u0, u1, u2, u3 = K[j0, k], K[j1, k], K[j2, k], K[j3, k]
            w0, w1 = K[j0, k + 1], K[j1, k + 1]
            w2, w3 = K[j2, k + 1], K[j3, k + 1]
            for q in range(c):
                s0[q] += x[q] * _lane(u0, a + q) + y[q] * _lane(w0, a + q)
                s1[q] += x[q] * _lane(u1, a + q) + y[q] * _lane(w1, a + q)
                s2[q] += x[q] * _lane(u2, a + q) + y[q] * _lane(w2, a + q)
                s3[q] += x[q] * _lane(u3, a + q) + y[q] * _lane(w3, a + q)


@njit(**INLINE)  # type: ignore[untyped-decorator]
def _top(rows: Any, n: int, top: Any, c: int) -> None:
    """The largest logit of each lane."""
    row = rows[0]
    for q in range(c):
        top[q] = row[q]
    for j in range(1, n):
        row = rows[j]
        for q in range(c):
            top[q] = row[q] if row[q] > top[q] else top[q]


@njit(**INLINE)  # type: ignore[untyped-decorator]
def _risen(top: Any, own: Any, total: Any, num: Any, i: int, o0: int, p: int, a: int, b: int, far: Any) -> None:
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
        e = exp(far if x < far else x)
        top[q] = 0 if x < far else e
        total[q] *= top[q]
    for o in range(p):
        out = num[i, o0 + o, a:b]
        for q in range(c):
            out[q] *= top[q]


@njit(**INLINE)  # type: ignore[untyped-decorator]
def _sums(rows: Any, n: int, V: Any, v0: int, p: int, g: int, num: Any, i: int, o0: int, a: int, b: int) -> None:
    """num += the sum of the terms `rows` with the values of the keys from g on."""
    c, j = b - a, 0
    while j + 4 <= n:
        s0, s1, s2, s3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        at, o = g + j, 0
        while o + 2 <= p:
            out, k = num[i, o0 + o, a:b], v0 + o
            w0, w1 = V[at, k], V[at + 1, k]
            w2, w3 = V[at + 2, k], V[at + 3, k]
            more, k = num[i, o0 + o + 1, a:b], k + 1
            z0, z1 = V[at, k], V[at + 1, k]
            z2, z3 = V[at + 2, k], V[at + 3, k]
            for q in range(c):
                left, right = (
                    s0[q] * _lane(w0, a + q) + s1[q] * _lane(w1, a + q),
                    s0[q] * _lane(z0, a + q) + s1[q] * _lane(z1, a + q),
                )
                out[q] += left + (s2[q] * _lane(w2, a + q) + s3[q] * _lane(w3, a + q))
                more[q] += right + (s2[q] * _lane(z2, a + q) + s3[q] * _lane(z3, a + q))
            o += 2
        if o < p:
            out, k = num[i, o0 + o, a:b], v0 + o
            w0, w1 = V[at, k], V[at + 1, k]
            w2, w3 = V[at + 2, k], V[at + 3, k]
            for q in range(c):
                left = s0[q] * _lane(w0, a + q) + s1[q] * _lane(w1, a + q)
                out[q] += left + (s2[q] * _lane(w2, a + q) + s3[q] * _lane(w3, a + q))
        j += 4
    while j < n:
        s0 = rows[j]
        for o in range(p):
            out, w0 = num[i, o0 + o, a:b], V[g + j, v0 + o]
            for q in range(c):
                out[q] += s0[q] * _lane(w0, a + q)
        j += 1


def _attend(
    Q: Any,
    K: Any,
    V: Any,
    S: Any,
    heads: Any,
    num: Any,
    den: Any,
    peak: Any,
    first: int,
    last: int,
    far: Any,
    rows: Any,
    top: Any,
) -> None:
    """Lanes first to last of several heads: num (I, Σp, L), den and peak (I, H, L) from Q (I, .., L), K and V (J, ..).

    heads (H, 5): where a head's queries begin in Q, its keys in K and how many coordinates they have, where its values
    begin in V and how many those are. Its numerators follow those of the heads before it.
    """
    items, keys = len(Q), len(K)
    for a in range(first, last, LANES):
        b = min(last, a + LANES)
        c, o0 = b - a, 0
        for h in range(len(heads)):
            x0, k0, r, v0, p = heads[h, 0], heads[h, 1], heads[h, 2], heads[h, 3], heads[h, 4]
            for g in range(0, keys, GROUP):
                n = min(GROUP, keys - g)
                for i in range(items):
                    _logits(Q, K, S, x0, k0, r, i, g, n, a, b, rows)
                    _top(rows, n, top, c)
                    own, total = peak[i, h, a:b], den[i, h, a:b]
                    if g == 0:
                        for q in range(c):
                            own[q] = top[q]
                            total[q] = 0
                        for o in range(p):
                            out = num[i, o0 + o, a:b]
                            for q in range(c):
                                out[q] = 0
                    else:
                        _risen(top, own, total, num, i, o0, p, a, b, far)
                    for j in range(n):
                        row = rows[j]
                        for q in range(c):
                            x = row[q] - own[q]
                            e = exp(far if x < far else x)
                            row[q] = 0 if x < far else e
                            total[q] += row[q]
                    _sums(rows, n, V, v0, p, g, num, i, o0, a, b)
            o0 += p


_play = compiled(_attend)


@lru_cache
def attend(dtype: str, own: bool) -> Any:
    """`_attend` for a dtype, and for lanes that have keys of their `own` or share them."""
    sources, real = SOURCES, types.float64 if dtype == "float64" else types.float32

    def entry(
        Q: Any, K: Any, V: Any, S: Any, heads: Any, num: Any, den: Any, peak: Any, first: int, last: int, far: Any
    ) -> None:
        if len(sources) > 0:
            rows, top = np.empty((GROUP + 3, LANES), Q.dtype), np.empty(LANES, Q.dtype)
            _play(Q, K, V, S, heads, num, den, peak, first, last, far, rows, top)

    keys, found = array(real, 3 if own else 2), (array(real, 3, False),) * 3
    given = (array(real, 3), keys, keys, array(real, 2), array(types.int64, 2), *found)
    return kept(entry, *given, types.int64, types.int64, real)
