"""The same tape played by NumPy, where numba is not there: polynomials in place of exps are what it gains.

FORM is a sum of products. LATTICE of one axis is Horner's rule; of two the powers of the last y, one product of
matrices with all runs, and Horner's rule over the first axis: `lattice.py` counts that too. Other heads, those of three
axes among them, take their own routes (`network/evaluate.py`), which are as fast.
"""

import numpy as np

from attnfun.fast.codes import FORM, LATTICE
from attnfun.fast.tape import Tape
from attnfun.network.evaluate import evaluate_head
from attnfun.network.head import AnyArray
from attnfun.network.network import Network

_BLOCK = 4096


def play(network: Network, tape: Tape, X: AnyArray) -> AnyArray:
    """(n, inputs) → (n, outputs)."""
    network.require_unchanged()
    out = np.empty((len(X), len(network.outputs)), dtype=X.dtype)
    with np.errstate(all="ignore"):
        for begin in range(0, len(X), _BLOCK):
            block = X[begin : begin + _BLOCK]
            out[begin : begin + _BLOCK] = _block(network, tape, block)
    return out


def _block(network: Network, tape: Tape, X: AnyArray) -> AnyArray:
    ops, index, numbers, _, shape, results = tape.arguments
    buf = np.empty((shape[0], len(X)), dtype=X.dtype)
    buf[: X.shape[1]] = X.T
    for (code, at, w, *_), whose in zip(ops.tolist(), tape.heads, strict=True):
        if code == FORM:
            dst, count = index[at : at + 2]
            sources = index[at + 2 : at + 2 + count]
            row = numbers[w : w + count] @ buf[sources] if count != 1 else numbers[w] * buf[sources[0]]
            buf[dst] = row + numbers[w + count]
            continue
        assert whose is not None
        head, rows = whose
        if code != LATTICE or not _lattice(buf, index[at:], numbers[w:], rows):
            tokens = np.ascontiguousarray(buf[: head.width].T)
            buf[list(rows)] = evaluate_head(head, tokens, network.dtype).T
    return buf[results].T


def _lattice(buf: AnyArray, index: AnyArray, numbers: AnyArray, rows: tuple[int, ...]) -> bool:
    """As in `kernels.py`; False for three axes and more, and where |q| or |y| is larger than it may be."""
    A, p = index[:2].tolist()
    if A > 2:
        return False
    ys, reach, w = [], numbers[0], 1
    for q in index[2 : 2 + A]:
        tau, beta, mid, scale, far = numbers[w : w + 5]
        s = buf[q] if tau == 0 else 1 / (1 + np.exp(-(tau * buf[q] + beta)))
        ys.append((s - mid) * scale)
        if not (np.abs(buf[q]) <= far).all() or not (np.abs(ys[-1]) <= reach).all():
            return False
        w += 5
    count = int(index[2 + A + p])
    lengths = index[3 + A + p : 3 + A + p + 2 * count : 2].tolist()
    runs = [np.split(numbers[w + k * sum(lengths) :][: sum(lengths)], np.cumsum(lengths)[:-1]) for k in range(p)]
    if A == 1:
        for row, (single,) in zip(rows, runs, strict=True):
            buf[row] = _horner(single, ys[0])
        return True
    powers = [np.ones_like(ys[1]), ys[1]]
    while len(powers) < max(lengths):
        powers.append(powers[-1] * ys[1])
    for row, own in zip(rows, runs, strict=True):
        table = np.zeros((count, max(lengths)), dtype=buf.dtype)
        for line, run in zip(table, own, strict=True):
            line[: len(run)] = run[::-1]
        buf[row] = _horner(table @ np.stack(powers[: max(lengths)]), ys[0])
    return True


def _horner(coefficients: AnyArray, y: AnyArray) -> AnyArray:
    """The highest first: numbers, or rows as long as y."""
    total = np.broadcast_to(coefficients[0], y.shape).copy()
    for c in coefficients[1:]:
        total *= y
        total += c
    return total
