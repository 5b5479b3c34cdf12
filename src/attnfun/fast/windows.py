"""WINDOW: the few keys of each axis around the nearest one, as the route *local* of `network/evaluate.py` does."""

from typing import Any

import numpy as np

from attnfun.fast.compiled import compiled, exp


@compiled
def _nearest(x: Any, count: int, numbers: Any, w: int, spots: Any, c: int) -> None:
    """spots = how many edges are below x; numbers[w:] are -inf, the `count` edges, inf.

    Guessed as if the edges were evenly spaced, and searched for where that is wrong.
    """
    kind = numbers.dtype.type
    first, zero, one, top = numbers[w + 1], kind(0), kind(1), kind(count)
    pace = kind(count - 1) / (numbers[w + count] - first) if count > 1 else zero
    lost = np.int64(0)
    for q in range(c):
        u = (x[q] - first) * pace + one
        u = u if u > zero else zero
        i = np.int64(u if u < top else top)
        below, above = numbers[w + i], numbers[w + i + 1]
        spots[q] = i
        lost |= np.int64(not below < x[q]) | np.int64(not x[q] <= above)
    if lost == 0:
        return
    for q in range(c):
        i = spots[q]
        if numbers[w + i] < x[q] <= numbers[w + i + 1]:
            continue
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            if numbers[w + 1 + middle] < x[q]:
                low = middle + 1
            else:
                high = middle
        spots[q] = low


@compiled
def window(
    buf: Any, index: Any, at: int, numbers: Any, w: int, table: Any, v: int, rows: Any, spots: Any, places: Any, c: int
) -> None:
    """index: A, p, for each axis a query row, its keys, window and radius, then p rows to write; numbers: for each axis
    -inf, its breakpoints, inf, then its steps. table[v:]: values, the outputs of a cell together.

    rows: A sums of inner axes, a denominator, a spare, then the terms of each axis. spots: the starts and the corner.
    """
    A, p = index[at], index[at + 1]
    at += 2
    den, spare, zero = rows[A], rows[A + 1], numbers.dtype.type(0)
    first = A + 2
    corner, start = spots[0], spots[1]
    starts, sizes, strides, place = places[0], places[1], places[2], places[3]
    stride = 1
    for a in range(A - 1, -1, -1):
        strides[a] = stride
        stride *= index[at + 4 * a + 1]
    for q in range(c):
        den[q] = 1
        corner[q] = 0
    for a in range(A):
        x, keys = buf[index[at + 4 * a]], index[at + 4 * a + 1]
        size, radius = index[at + 4 * a + 2], index[at + 4 * a + 3]
        _nearest(x, keys - 1, numbers, w, start, c)
        marks, slopes, far = numbers[w + 1 :], numbers[w + keys + 1 :], keys - size
        w += 2 * keys
        for q in range(c):
            i = start[q] - radius
            i = i if i > 0 else 0
            start[q] = i if i < far else far
            corner[q] += start[q] * strides[a]
        # Rises are positive left of the nearest key and negative right of it: each side sums its own sign. A row holds
        # first the sum of those before it or its own rise, whichever is not zero.
        sizes[a], starts[a], total, floor = size, first, rows[a], numbers[w]
        for q in range(c):
            spare[q] = 0
            total[q] = 0
        for o in range(size - 1):
            own = rows[first + o]
            for q in range(c):
                i = np.uint64(start[q] + o)
                rise = slopes[i] * (x[q] - marks[i])
                own[q] = spare[q] + (rise if rise > 0 else zero)
                spare[q] += rise if rise < 0 else zero
        own = rows[first + size - 1]
        for q in range(c):
            own[q] = spare[q]
            spare[q] = 0
        for o in range(size - 1, -1, -1):
            own = rows[first + o]
            for q in range(c):
                spare[q] += own[q] if own[q] > 0 else zero
                e = (own[q] if own[q] < 0 else zero) - spare[q]
                own[q] = exp(floor if e < floor else e)
                total[q] += own[q]
        for q in range(c):
            den[q] *= total[q]
        w += 1
        first += size
    outer, last = 1, sizes[A - 1]
    for a in range(A - 1):
        outer *= sizes[a]
    base, inner = starts[A - 1], rows[A - 1]
    for o in range(p):
        out = buf[index[at + 4 * A + o]]
        for a in range(A):
            place[a] = 0
        for a in range(A):
            own = rows[a]
            for q in range(c):
                own[q] = 0
        shift = 0
        for _ in range(outer):
            j = 0
            while j + 3 <= last:  # cells that lie together are looked up together
                term, second, third = rows[base + j], rows[base + j + 1], rows[base + j + 2]
                cells = table[v + o + p * (shift + j) :]
                nexts, lasts = cells[p:], cells[2 * p :]
                for q in range(c):
                    i = np.uint64(p * corner[q])
                    inner[q] += term[q] * cells[i] + second[q] * nexts[i] + third[q] * lasts[i]
                j += 3
            while j < last:
                term, cells = rows[base + j], table[v + o + p * (shift + j) :]
                for q in range(c):
                    inner[q] += term[q] * cells[np.uint64(p * corner[q])]
                j += 1
            for a in range(A - 2, -1, -1):
                own, term, below = rows[a], rows[starts[a] + place[a]], rows[a + 1]
                for q in range(c):
                    own[q] += term[q] * below[q]
                    below[q] = 0
                place[a] += 1
                shift += strides[a]
                if place[a] < sizes[a]:
                    break
                shift -= sizes[a] * strides[a]
                place[a] = 0
        result = rows[0]
        for q in range(c):
            out[q] = result[q] / den[q]
