"""Many small heads of one shape, evaluated together: the dense route of `evaluate.py`, every head's own operations.

A layer that multiplies features has a head for each, of a few keys; a loop over thousands of them would spend its time
in Python. Here their arrays stand in stacks, and the queries of all heads are one matrix product.
"""

from __future__ import annotations

import numpy as np

from attnfun.network.head import AnyArray, Head, once_per_dtype
from attnfun.network.network import Layer

FEWEST = 32
"""Heads that are worth a stack."""
_BUDGET = 32 << 20


def alike(layer: Layer) -> bool:
    """Does the layer have many heads, each of one axis with a query of several dimensions, one output, one shape?

    With two query dimensions or more no other route than the dense one applies.
    """
    heads = layer.heads
    if len(heads) < FEWEST or not all(isinstance(h, Head) and len(h.axes) == 1 for h in heads):
        return False
    shapes = {(h.axes[0].slopes.shape, h.outputs) for h in heads}
    if len(shapes) != 1 or len(layer.writes) != len(heads):
        return False
    (shape, outputs) = shapes.pop()
    return outputs == 1 and shape[1] >= 2 and shape[0] <= 4096


@once_per_dtype
def _stack(layer: Layer, dtype: str) -> list[AnyArray]:
    """query (width, H r), offset (H r), slopes (H, r, keys), biases, values (H, keys)."""
    axes = [head.axes[0] for head in layer.heads]
    parts = (
        np.ascontiguousarray(np.concatenate([a.query for a in axes]).T),
        np.concatenate([a.offset for a in axes]),
        np.stack([a.slopes.T for a in axes]),
        np.stack([a.biases for a in axes]),
        np.stack([head.values[:, 0] for head in layer.heads]),
    )
    return [part.astype(dtype) for part in parts]


def evaluate_alike(layer: Layer, tokens: AnyArray, dtype: str) -> AnyArray:
    """The layer on the stream before it, (n, width) -> (n, heads), for layers that are `alike`."""
    W_Q, offset, slopes, biases, values = _stack(layer, dtype)
    H, r, keys = slopes.shape
    result = np.empty((len(tokens), H), dtype=tokens.dtype)
    step = max(1, _BUDGET // (tokens.dtype.itemsize * H * (keys + r)))
    with np.errstate(all="ignore"):
        for start in range(0, len(tokens), step):
            block = tokens[start : start + step]
            query = (block @ W_Q + offset).reshape(len(block), H, r).transpose(1, 0, 2)
            terms = query @ slopes
            terms += biases[:, None, :]
            terms -= terms.max(axis=2, keepdims=True)
            np.exp(terms, out=terms)
            summed = (terms @ values[:, :, None])[:, :, 0] / terms.sum(axis=2)
            result[start : start + step] = summed.T
    return result
