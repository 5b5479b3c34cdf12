"""The two networks that pick the best key: `build` has their theorem, `prove` holds weights against their entries.

Both are written from the grid and the dtype alone: P levels, k coordinates.
"""

import numpy as np

from attnfun.network.blocks import Stream
from attnfun.network.head import Array
from attnfun.network.tokens import TokenLayer, TokenNetwork

BETA = {"float32": (128.0, 256.0), "float64": (1024.0, 2048.0)}
"""β of the one head, of the cascade: e^−β, and e^(−β/2) for the cascade, are below the smallest number of the dtype."""


def far(levels: int, beta: float) -> float:
    """M: the least power of two from 2P on, times β."""
    return beta * float(1 << (2 * levels - 1).bit_length())


def one_head(levels: int, coordinates: int, dtype: str) -> TokenNetwork:
    """Logits β u: one head of rank 1 that copies the best key into every token."""
    stream, beta = _stream(coordinates, ("one",)), BETA[dtype][0]
    key = {(f"x{i + 1}", 0): beta * float(levels ** (coordinates - 1 - i)) for i in range(coordinates)}
    pick = _copy(stream, "pick the best", coordinates, key, dtype)
    return _network(stream, (pick,), np.zeros((0, stream.width)), coordinates, dtype)


def cascade(levels: int, coordinates: int, dtype: str) -> TokenNetwork:
    """k layers: flags of the beaten, coordinate by coordinate, then a copy of the best key."""
    stream, beta = _stream(coordinates, ("one", "constant", "out")), BETA[dtype][1]
    M, carry = far(levels, beta), np.diag([0.0 if name == "out" else 1.0 for name in stream.names])
    layers = []
    for s in range(1, coordinates):
        query = {("one", 0): 1.0, (f"x{s}", 1): beta, ("one", 1): beta / 2, ("out", 1): -M}
        key = {(f"x{s}", 0): beta, ("out", 0): -M, ("constant", 0): -beta * float(levels), ("constant", 1): 1.0}
        parts = query, key, {("one", 0): 1.0, ("constant", 0): -1.0}, {("out", 0): 1.0}
        layers.append(TokenLayer((stream.head(f"who is beaten in x{s}", dtype, *parts),), carry))
    key = {(f"x{coordinates}", 0): beta, ("out", 0): -M, ("constant", 0): -2 * M}
    layers.append(_copy(stream, "pick the best of the rest", coordinates, key, dtype))
    constant = {(f"x{i + 1}", 0): float(levels) for i in range(coordinates)} | {("one", 0): 1.0, ("constant", 0): 1.0}
    return _network(stream, tuple(layers), stream.matrix(1, constant).T, coordinates, dtype)


def _stream(k: int, more: tuple[str, ...]) -> Stream:
    return Stream(0, "", [*(f"x{i + 1}" for i in range(k)), *more, *(f"best{i + 1}" for i in range(k))])


def _copy(stream: Stream, name: str, k: int, key: dict[tuple[str, int], float], dtype: str) -> TokenLayer:
    """A head whose logits are the same for every token that asks, and that writes the values x to `best`."""
    value, best = ({(f"{what}{i + 1}", i): 1.0 for i in range(k)} for what in ("x", "best"))
    return TokenLayer((stream.head(name, dtype, {("one", 0): 1.0}, key, value, best),))


def _network(stream: Stream, layers: tuple[TokenLayer, ...], constants: Array, k: int, dtype: str) -> TokenNetwork:
    outputs = stream.names[-k:]
    readout = stream.matrix(k, {(name, column): 1.0 for column, name in enumerate(outputs)})
    return TokenNetwork(stream.names, layers, constants, readout, outputs, dtype)
