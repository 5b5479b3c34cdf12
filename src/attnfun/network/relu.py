"""One block of ReLU units: what an MLP has where an attention network has a head.

    block(x) = sum_j relu(k_j . q + b_j) V_j,    q = Q x + c,    relu(t) = max(t, 0)

| symbol | here | shape |
| --- | --- | --- |
| x | one token: the coordinates of the residual stream before the layer | (width,) |
| Q, c | `axis.query`, `axis.offset` | (r, width), (r,) |
| k_j, b_j | `axis.slopes`, `axis.biases` | (units, r), (units,) |
| V_j | `values` | (units, p) |

The same numbers as in a head of one axis, without the softmax: its keys are here its *hidden units*. A network of such
blocks is a ReLU multilayer perceptron with skip connections, for a layer's outputs stand beside what it read in the
residual stream. Its hidden matrix is kept as a product, slopes times Q; r = width and Q = 1 is any hidden layer.
Nothing attends here: such a network has no literal form.
"""

from dataclasses import dataclass

import numpy as np

from attnfun.network.head import AnyArray, Array, Axis, Keyed

_BUDGET = 8 << 20  # bytes of hidden units at a time


@dataclass(frozen=True, eq=False)
class ReluBlock(Keyed):
    """Hidden units over one affine query; output c is added to the stream coordinate `writes[c]`."""

    name: str
    axis: Axis
    values: Array
    writes: tuple[str, ...]

    kind, key_names = "block", "unit {0}"

    @property
    def axes(self) -> tuple[Axis, ...]:  # type: ignore[override]
        return (self.axis,)

    @property
    def arrays(self) -> dict[str, Array]:
        return {**self.axis.arrays, "values": self.values}

    def reach(self, low: Array, high: Array) -> tuple[Array, Array]:
        """(low, high) of every output in real arithmetic for tokens in the box [low, high], rounded outward.

        Units one by one, so that what cancels between them counts twice.
        """
        weights = self.axis.slopes @ self.axis.query
        offset = self.axis.slopes @ self.axis.offset + self.axis.biases
        size = np.abs(self.axis.slopes) @ (np.abs(self.axis.query) @ np.maximum(np.abs(low), np.abs(high)))
        size += np.abs(self.axis.slopes) @ np.abs(self.axis.offset) + np.abs(self.axis.biases)
        blur = 8 * (self.width + self.query_dim + 4) * 2.0**-53 * size + 1e-300
        most = np.maximum(weights, 0.0) @ high + np.minimum(weights, 0.0) @ low + offset + blur
        least = np.maximum(weights, 0.0) @ low + np.minimum(weights, 0.0) @ high + offset - blur
        most, least = np.maximum(most, 0.0), np.maximum(least, 0.0)
        up, down = np.maximum(self.values, 0.0), np.minimum(self.values, 0.0)
        slack = 4 * (self.keys + 4) * 2.0**-53 * (most @ np.abs(self.values)) + 1e-300
        return least @ up + most @ down - slack, most @ up + least @ down + slack


def evaluate_block(block: ReluBlock, tokens: AnyArray, dtype: str = "float64") -> AnyArray:
    """One block on the stream before its layer, (n, width) -> (n, outputs), every operation in `dtype`.

    Query: a sum of (nonzeros of the row) products and one addition; unit: r products, a sum of r terms, one addition;
    then one matrix product over the units, its order not stated.
    """
    kind = np.dtype(dtype)
    given = np.asarray(tokens).astype(kind, copy=False)
    query, offset, slopes, biases, values = (a.astype(kind, copy=False) for a in block.arrays.values())
    result = np.empty((len(given), block.outputs), dtype=kind)
    step = max(1, _BUDGET // (kind.itemsize * 2 * block.keys))
    with np.errstate(all="ignore"):
        for start in range(0, len(given), step):
            hidden = (given[start : start + step] @ query.T + offset) @ slopes.T
            hidden += biases
            np.maximum(hidden, 0, out=hidden)
            result[start : start + step] = hidden @ values
    return result
