"""The compiled kernels: one interpreter of tapes, for every network and both dtypes.

A tape (`tape.py`) is a list of operations on rows; a row holds one number for each point of a block. The residual
stream is the first rows, so a block passes through all layers while it is in the cache. Nothing is compiled for one
network: sizes and weights are data.

**Counted operations**, in the dtype, roundoff u. `a*b + c` is one rounding or two: the flag `contract` leaves it open.

FORM: a product for each nonzero entry of a row, their sum, one addition of the offset.
KEYS: for each key r products, their sum with the bias, one exp, a product with each value; sums over the keys in some
order; one division. Where logits could pass SAFE in size (`tape.py`), the largest is subtracted first.
FACTOR: the terms of KEYS for each axis; values contracted axis by axis, a product and a sum each; the sums of the terms
of the axes multiplied; one division.
WINDOW: the operations of the route *local* of `network/evaluate.py`, one by one.
LATTICE: for each axis s = 1/(1 + exp(−(τ q + β))), or s = q where τ = 0, y = (s − mid)·scale; then Horner's rule in y,
axis by axis. Blocks with a point where that does not apply do what stands beside it.

KEYS, FACTOR and WINDOW do the operations of the routes *dense*, *factorised* and *local*, or fewer, so what a
certificate counts for those covers them. LATTICE is another formula: `lattice.py` and `powers.py` bound it, point for
point.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, types

from attnfun.fast.codes import FACTOR, FORM, KEYS, LATTICE
from attnfun.fast.compiled import FLAGS, SOURCES, array, compiled, exp, kept
from attnfun.fast.windows import window

MOST_AXES = 64
"""The values of a head are an array with an axis for each, and NumPy's arrays have 64 at most."""


@compiled
def _within(row: Any, most: Any, c: int) -> bool:
    """Is |row[q]| <= most for all q? NaN is not."""
    beyond = 0
    for q in range(c):
        beyond |= not abs(row[q]) <= most
    return beyond == 0


@compiled
def _form(buf: Any, dst: int, index: Any, at: int, count: int, numbers: Any, w: int, c: int) -> None:
    """buf[dst] = Σ numbers[w + k] buf[index[at + k]] + numbers[w + count]."""
    out, offset, k = buf[dst], numbers[w + count], count % 4
    if k == 0:
        for q in range(c):
            out[q] = offset
    elif k == 1:
        r0, a0 = buf[index[at]], numbers[w]
        for q in range(c):
            out[q] = a0 * r0[q] + offset
    elif k == 2:
        r0, r1, a0, a1 = buf[index[at]], buf[index[at + 1]], numbers[w], numbers[w + 1]
        for q in range(c):
            out[q] = a0 * r0[q] + (a1 * r1[q] + offset)
    else:
        r0, r1, r2 = buf[index[at]], buf[index[at + 1]], buf[index[at + 2]]
        a0, a1, a2 = numbers[w], numbers[w + 1], numbers[w + 2]
        for q in range(c):
            out[q] = a0 * r0[q] + (a1 * r1[q] + (a2 * r2[q] + offset))
    while k < count:
        r0, r1, r2, r3 = buf[index[at + k]], buf[index[at + k + 1]], buf[index[at + k + 2]], buf[index[at + k + 3]]
        a0, a1, a2, a3 = numbers[w + k], numbers[w + k + 1], numbers[w + k + 2], numbers[w + k + 3]
        for q in range(c):
            out[q] += (a0 * r0[q] + a1 * r1[q]) + (a2 * r2[q] + a3 * r3[q])
        k += 4


@compiled
def _logits(buf: Any, index: Any, at: int, r: int, numbers: Any, k: int, b: int, out: Any, c: int) -> None:
    """out = numbers[b] + Σ numbers[k + i] buf[index[at + i]]: the logits of one key."""
    row, a, bias = buf[index[at]], numbers[k], numbers[b]
    for q in range(c):
        out[q] = a * row[q] + bias
    for i in range(1, r):
        row, a = buf[index[at + i]], numbers[k + i]
        for q in range(c):
            out[q] += a * row[q]


@compiled
def _safe(buf: Any, index: Any, at: int, r: int, numbers: Any, w: int, c: int) -> bool:
    """Are the queries within numbers[w + 1 + i], so that no logit is too large?"""
    for i in range(r):  # noqa: SIM110
        if not _within(buf[index[at + i]], numbers[w + 1 + i], c):
            return False
    return True


@compiled
def _peak(
    buf: Any, index: Any, at: int, r: int, n: int, numbers: Any, k: int, b: int, peak: Any, own: Any, c: int
) -> None:
    """peak = the largest logit of each point."""
    _logits(buf, index, at, r, numbers, k, b, peak, c)
    for j in range(1, n):
        _logits(buf, index, at, r, numbers, k + j * r, b + j, own, c)
        for q in range(c):
            peak[q] = own[q] if own[q] > peak[q] else peak[q]


@compiled
def _terms(buf: Any, index: Any, at: int, r: int, n: int, numbers: Any, w: int, rows: Any, first: int, c: int) -> None:
    """rows[first + j] = exp of the logits of key j; rows[first + n] their sum. rows[first + n + 1] is used."""
    k = w + r + 1
    b = k + n * r
    total, lowest = rows[first + n], numbers[w]
    if _safe(buf, index, at, r, numbers, w, c):
        for q in range(c):
            total[q] = 0
        for j in range(n):
            own = rows[first + j]
            _logits(buf, index, at, r, numbers, k + j * r, b + j, own, c)
            for q in range(c):
                own[q] = exp(own[q])
                total[q] += own[q]
        return
    peak = rows[first + n + 1]
    _peak(buf, index, at, r, n, numbers, k, b, peak, total, c)
    for q in range(c):
        total[q] = 0
    for j in range(n):
        own = rows[first + j]
        _logits(buf, index, at, r, numbers, k + j * r, b + j, own, c)
        for q in range(c):
            own[q] -= peak[q]
            own[q] = exp(lowest if own[q] < lowest else own[q])
            total[q] += own[q]


@compiled
def _line(t: Any, n: int, numbers: Any, k: int, num: Any, den: Any, c: int) -> None:
    """KEYS of one query, one output and logits that are safe: four keys at a time."""
    b, v = k + n, k + 2 * n
    for q in range(c):
        num[q] = 0
        den[q] = 0
    j = 0
    while j + 4 <= n:
        k0, k1, k2, k3 = numbers[k + j], numbers[k + j + 1], numbers[k + j + 2], numbers[k + j + 3]
        b0, b1, b2, b3 = numbers[b + j], numbers[b + j + 1], numbers[b + j + 2], numbers[b + j + 3]
        v0, v1, v2, v3 = numbers[v + j], numbers[v + j + 1], numbers[v + j + 2], numbers[v + j + 3]
        for q in range(c):
            x = t[q]
            e0, e1, e2, e3 = exp(k0 * x + b0), exp(k1 * x + b1), exp(k2 * x + b2), exp(k3 * x + b3)
            den[q] += (e0 + e1) + (e2 + e3)
            num[q] += (v0 * e0 + v1 * e1) + (v2 * e2 + v3 * e3)
        j += 4
    if j + 2 <= n:
        k0, k1, b0, b1, v0, v1 = (
            numbers[k + j],
            numbers[k + j + 1],
            numbers[b + j],
            numbers[b + j + 1],
            numbers[v + j],
            numbers[v + j + 1],
        )
        for q in range(c):
            x = t[q]
            e0, e1 = exp(k0 * x + b0), exp(k1 * x + b1)
            den[q] += e0 + e1
            num[q] += v0 * e0 + v1 * e1
        j += 2
    if j < n:
        k0, b0, v0 = numbers[k + j], numbers[b + j], numbers[v + j]
        for q in range(c):
            e0 = exp(k0 * t[q] + b0)
            den[q] += e0
            num[q] += v0 * e0


@compiled
def _sharp_line(t: Any, n: int, numbers: Any, k: int, floor: Any, num: Any, den: Any, peak: Any, c: int) -> None:
    """KEYS of one query and one output: the largest logit is found first, then subtracted; four keys at a time."""
    b, v = k + n, k + 2 * n
    k0, b0 = numbers[k], numbers[b]
    for q in range(c):
        num[q] = 0
        den[q] = 0
        peak[q] = k0 * t[q] + b0
    j = 1
    while j < n:
        m = min(j + 1, n - 1)
        k0, b0, k1, b1 = numbers[k + j], numbers[b + j], numbers[k + m], numbers[b + m]
        for q in range(c):
            x, most = t[q], peak[q]
            l0, l1 = k0 * x + b0, k1 * x + b1
            most = l0 if l0 > most else most
            peak[q] = l1 if l1 > most else most
        j += 2
    j = 0
    while j < n:
        m = min(j + 1, n - 1)
        k0, b0, k1, b1 = numbers[k + j], numbers[b + j], numbers[k + m], numbers[b + m]
        v0, v1, more = numbers[v + j], numbers[v + m], numbers.dtype.type(m > j)
        for q in range(c):
            x, most = t[q], peak[q]
            l0, l1 = (k0 * x + b0) - most, (k1 * x + b1) - most
            e0, e1 = exp(floor if l0 < floor else l0), more * exp(floor if l1 < floor else l1)
            den[q] += e0 + e1
            num[q] += v0 * e0 + v1 * e1
        j += 2


@compiled
def _keys(buf: Any, index: Any, at: int, numbers: Any, w: int, rows: Any, c: int) -> None:
    """index: n, r, p, r query rows, p rows to write; numbers: a floor, r limits, slopes, biases, values."""
    n, r, p = index[at], index[at + 1], index[at + 2]
    at += 3
    to, k = at + r, w + r + 1
    b = k + n * r
    v = b + n
    den, lowest = rows[0], numbers[w]
    safe = _safe(buf, index, at, r, numbers, w, c)
    peak, own = rows[1], rows[2]
    if r == 1 and p == 1:
        out = buf[index[to]]
        if safe:
            _line(buf[index[at]], n, numbers, k, out, den, c)
        else:
            _sharp_line(buf[index[at]], n, numbers, k, lowest, out, den, peak, c)
        for q in range(c):
            out[q] /= den[q]
        return
    if not safe:
        _peak(buf, index, at, r, n, numbers, k, b, peak, own, c)
    for q in range(c):
        den[q] = 0
    for o in range(p):
        out = buf[index[to + o]]
        for q in range(c):
            out[q] = 0
    for j in range(n):
        _logits(buf, index, at, r, numbers, k + j * r, b + j, own, c)
        if safe:
            for q in range(c):
                own[q] = exp(own[q])
                den[q] += own[q]
        else:
            for q in range(c):
                own[q] -= peak[q]
                own[q] = exp(lowest if own[q] < lowest else own[q])
                den[q] += own[q]
        for o in range(p):
            out, a = buf[index[to + o]], numbers[v + j * p + o]
            for q in range(c):
                out[q] += a * own[q]
    for o in range(p):
        out = buf[index[to + o]]
        for q in range(c):
            out[q] /= den[q]


@compiled
def _mix(rows: Any, first: int, n: int, numbers: Any, v: int, out: Any, c: int) -> None:
    """out = Σ_j numbers[v + j] rows[first + j]."""
    for q in range(c):
        out[q] = 0
    j = 0
    while j + 4 <= n:
        r0, r1, r2, r3 = rows[first + j], rows[first + j + 1], rows[first + j + 2], rows[first + j + 3]
        v0, v1, v2, v3 = numbers[v + j], numbers[v + j + 1], numbers[v + j + 2], numbers[v + j + 3]
        for q in range(c):
            out[q] += (v0 * r0[q] + v1 * r1[q]) + (v2 * r2[q] + v3 * r3[q])
        j += 4
    while j < n:
        r0, v0 = rows[first + j], numbers[v + j]
        for q in range(c):
            out[q] += v0 * r0[q]
        j += 1


@compiled
def _factor(buf: Any, index: Any, at: int, numbers: Any, w: int, rows: Any, places: Any, c: int) -> None:
    """index: A, p, for each axis n, r and r query rows, then p rows to write; numbers: axes as in KEYS, then values.

    rows: A − 1 sums of inner axes, one denominator, then for each axis its n terms, their sum and a spare.
    """
    A, p = index[at], index[at + 1]
    at += 2
    sizes, starts, place = places[0], places[1], places[2]
    first = A + 1
    den = rows[A]
    for q in range(c):
        den[q] = 1
    for a in range(A):
        n, r = index[at], index[at + 1]
        _terms(buf, index, at + 2, r, n, numbers, w, rows, first, c)
        own = rows[first + n]
        for q in range(c):
            den[q] *= own[q]
        sizes[a], starts[a] = n, first
        first += n + 2
        at += 2 + r
        w += r + 1 + n * (r + 1)
    outer, last = 1, sizes[A - 1]
    for a in range(A - 1):
        outer *= sizes[a]
    for o in range(p):
        out = buf[index[at + o]]
        for a in range(A):
            place[a] = 0
        for a in range(A - 1):
            own = rows[a]
            for q in range(c):
                own[q] = 0
        for _ in range(outer):
            _mix(rows, starts[A - 1], last, numbers, w, out, c)
            w += last
            for a in range(A - 2, -1, -1):
                own, term, inner = rows[a], rows[starts[a] + place[a]], out if a == A - 2 else rows[a + 1]
                for q in range(c):
                    own[q] += term[q] * inner[q]
                if a < A - 2:
                    for q in range(c):
                        inner[q] = 0
                place[a] += 1
                if place[a] < sizes[a]:
                    break
                place[a] = 0
        result = rows[0] if A > 1 else out
        for q in range(c):
            out[q] = result[q] / den[q]


@compiled
def _horner(z: Any, n: int, numbers: Any, w: int, out: Any, c: int) -> None:
    """out = Horner's rule in z on n numbers, a multiple of four, the highest first."""
    a0, a1, a2, a3 = numbers[w], numbers[w + 1], numbers[w + 2], numbers[w + 3]
    j = 4
    if n % 8 == 0:
        a4, a5, a6, a7 = numbers[w + 4], numbers[w + 5], numbers[w + 6], numbers[w + 7]
        for q in range(c):
            x = z[q]
            out[q] = ((((((a0 * x + a1) * x + a2) * x + a3) * x + a4) * x + a5) * x + a6) * x + a7
        j = 8
    else:
        for q in range(c):
            x = z[q]
            out[q] = ((a0 * x + a1) * x + a2) * x + a3
    while j < n:
        a0, a1, a2, a3 = numbers[w + j], numbers[w + j + 1], numbers[w + j + 2], numbers[w + j + 3]
        a4, a5, a6, a7 = numbers[w + j + 4], numbers[w + j + 5], numbers[w + j + 6], numbers[w + j + 7]
        for q in range(c):
            x = z[q]
            y = (((out[q] * x + a0) * x + a1) * x + a2) * x + a3
            out[q] = (((y * x + a4) * x + a5) * x + a6) * x + a7
        j += 8


@compiled
def _nested(z: Any, n: int, numbers: Any, w: int, out: Any, y: Any, own: Any, c: int) -> None:
    """own = own y + what `_horner` makes of the same; `out` is used."""
    if n == 4:
        a0, a1, a2, a3 = numbers[w], numbers[w + 1], numbers[w + 2], numbers[w + 3]
        for q in range(c):
            x = z[q]
            own[q] = own[q] * y[q] + (((a0 * x + a1) * x + a2) * x + a3)
        return
    j = w + n - 8
    a0, a1, a2, a3 = numbers[j], numbers[j + 1], numbers[j + 2], numbers[j + 3]
    a4, a5, a6, a7 = numbers[j + 4], numbers[j + 5], numbers[j + 6], numbers[j + 7]
    if n == 8:
        for q in range(c):
            x = z[q]
            v = ((a0 * x + a1) * x + a2) * x + a3
            own[q] = own[q] * y[q] + ((((v * x + a4) * x + a5) * x + a6) * x + a7)
        return
    _horner(z, n - 8, numbers, w, out, c)
    for q in range(c):
        x = z[q]
        v = (((out[q] * x + a0) * x + a1) * x + a2) * x + a3
        own[q] = own[q] * y[q] + ((((v * x + a4) * x + a5) * x + a6) * x + a7)


@compiled
def _lattice(buf: Any, index: Any, at: int, numbers: Any, w: int, rows: Any, c: int) -> bool:
    """index: A, p, a query row for each axis, p rows to write, a count of runs, then for each run its length, a
    multiple of four, and how many of the outer axes end with it; numbers: the largest |y|, then τ, β, mid, scale and
    the largest |q| for each axis, then the runs of every output: coefficients of the last axis, the highest first.

    rows: A − 1 inner sums, then y of each axis. False where |q| or |y| is larger than it may be.
    """
    A, p = index[at], index[at + 1]
    most, one = numbers[w], numbers.dtype.type(1)
    at += 2
    w += 1
    for a in range(A):
        t, y = buf[index[at + a]], rows[A - 1 + a]
        tau, beta, mid, scale = numbers[w], numbers[w + 1], numbers[w + 2], numbers[w + 3]
        beyond = 0
        if tau == 0:
            for q in range(c):
                v = (t[q] - mid) * scale
                y[q] = v
                beyond |= not abs(v) <= most
        else:
            if not _within(t, numbers[w + 4], c):
                return False
            for q in range(c):
                v = (one / (one + exp(-(tau * t[q] + beta))) - mid) * scale
                y[q] = v
                beyond |= not abs(v) <= most
        w += 5
        if beyond:
            return False
    at += A
    runs, z = at + p, rows[2 * A - 2]
    for o in range(p):
        out = buf[index[at + o]]
        for a in range(A - 1):
            own = rows[a]
            for q in range(c):
                own[q] = 0
        for k in range(runs + 1, runs + 1 + 2 * index[runs], 2):
            if A == 1:
                _horner(z, index[k], numbers, w, out, c)
                w += index[k]
                break
            _nested(z, index[k], numbers, w, out, rows[2 * A - 3], rows[A - 2], c)
            w += index[k]
            for a in range(A - 3, A - 3 - index[k + 1], -1):
                own, y, inner = rows[a], rows[A - 1 + a], rows[a + 1]
                for q in range(c):
                    own[q] = own[q] * y[q] + inner[q]
                    inner[q] = 0
        if A > 1:
            result = rows[0]
            for q in range(c):
                out[q] = result[q]
    return True


@compiled
def _read(X: Any, buf: Any) -> None:
    """Points to the first rows of the stream."""
    c, d = X.shape
    if d == 1:
        row = buf[0]
        for q in range(c):
            row[q] = X[q, 0]
        return
    if d == 2:  # by constant steps, which the compiler shuffles in registers
        row, other = buf[0], buf[1]
        for q in range(c):
            row[q] = X[q, 0]
            other[q] = X[q, 1]
        return
    for k in range(d):
        row = buf[k]
        for q in range(c):
            row[q] = X[q, k]


@compiled
def _write(buf: Any, results: Any, out: Any) -> None:
    c, p = out.shape
    if p == 1:
        row = buf[results[0]]
        for q in range(c):
            out[q, 0] = row[q]
        return
    for k in range(p):
        row = buf[results[k]]
        for q in range(c):
            out[q, k] = row[q]


@njit(**FLAGS)  # type: ignore[untyped-decorator]
def _play(X: Any, out: Any, ops: Any, index: Any, numbers: Any, table: Any, shape: Any, results: Any) -> None:
    """out = the network at the points X, block by block.

    ops: code, places in index, numbers and table; then code and places of what is done where LATTICE does not apply.
    shape: rows of the stream and the queries, rows for the operations, points of a block; results: the rows of `out`.
    """
    size = shape[2]
    buf, rows = np.empty((shape[0], size), numbers.dtype), np.empty((shape[1], size), numbers.dtype)
    spots, places = np.empty((2, size), np.int64), np.empty((4, MOST_AXES), np.int64)
    n = len(X)
    for begin in range(0, n, size):
        c = min(size, n - begin)
        _read(X[begin : begin + c], buf)
        for i in range(len(ops)):
            code, at, w = ops[i, 0], ops[i, 1], ops[i, 2]
            if code == LATTICE:
                if _lattice(buf, index, at, numbers, w, rows, c):
                    continue
                code, at, w = ops[i, 4], ops[i, 5], ops[i, 6]
            if code == FORM:
                _form(buf, index[at], index, at + 2, index[at + 1], numbers, w, c)
            elif code == KEYS:
                _keys(buf, index, at, numbers, w, rows, c)
            elif code == FACTOR:
                _factor(buf, index, at, numbers, w, rows, places, c)
            else:
                window(buf, index, at, numbers, w, table, ops[i, 3], rows, spots, places, c)
        _write(buf, results, out[begin : begin + c])


@lru_cache
def run(dtype: str) -> Any:
    """`_play` for one dtype; the first call on a machine takes some seconds, later ones read the cache."""
    sources, real = SOURCES, types.float64 if dtype == "float64" else types.float32

    def entry(X: Any, out: Any, ops: Any, index: Any, numbers: Any, table: Any, shape: Any, results: Any) -> None:
        if len(sources) > 0:
            _play(X, out, ops, index, numbers, table, shape, results)

    given = (array(real, 2), array(real, 2, False), array(types.int64, 2), array(types.int64, 1))
    return kept(entry, *given, array(real, 1), array(real, 1), array(types.int64, 1), array(types.int64, 1))
