"""One head in the arithmetic of a dtype, against the same head in float64.

float64 and float32: weights, inputs and every operation in the dtype. float16 and bfloat16 as accelerators run them:
weights and inputs rounded to the dtype, sums and exp in float32. float64 itself is held against the processor's long
double, where that is longer. Logits are formed as torch forms them, as slopes times
query plus bias.
"""

from dataclasses import dataclass

import numpy as np

from attnfun.network import Axis, Head, evaluate_head
from attnfun.network.head import Array


@dataclass(frozen=True)
class Dtype:
    """`roundoff` of a stored weight, the largest number, and ln of it: past that exp overflows without a shift."""

    name: str
    roundoff: float
    largest: float
    runs_in: str

    @property
    def exp_limit(self) -> float:
        return float(np.log(self.largest))


DTYPES = {
    "float64": Dtype("float64", 2.0**-53, float(np.finfo(np.float64).max), "float64"),
    "float32": Dtype("float32", 2.0**-24, float(np.finfo(np.float32).max), "float32"),
    "float16": Dtype("float16", 2.0**-11, 65504.0, "float32"),
    "bfloat16": Dtype("bfloat16", 2.0**-8, (2 - 2.0**-7) * 2.0**127, "float32"),
}


def held(array: Array, dtype: Dtype) -> Array:
    """The nearest numbers of the dtype, as float64; infinite past its range."""
    with np.errstate(over="ignore"):
        if dtype.name == "bfloat16":
            bits = np.asarray(array, dtype=np.float64).astype(np.float32).view(np.uint32).astype(np.uint64)
            bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
            return bits.astype(np.uint32).view(np.float32).astype(np.float64)
        return np.asarray(array, dtype=np.float64).astype(np.dtype(dtype.name)).astype(np.float64)


def in_dtype(head: Head, tokens: Array, dtype: Dtype) -> Array | None:
    """(n, outputs) as the dtype computes it; None where a weight leaves its range."""
    axes = tuple(Axis(*(held(a, dtype) for a in (x.query, x.offset, x.slopes, x.biases))) for x in head.axes)
    values = held(head.values, dtype)
    arrays = [values, *(array for axis in axes for array in axis.arrays.values())]
    if not all(np.isfinite(array).all() for array in arrays):
        return None
    own = Head(head.name, axes, values, head.writes)
    route = "factorised" if len(axes) > 1 else "dense"
    return np.asarray(evaluate_head(own, held(tokens, dtype), dtype.runs_in, route), dtype=np.float64)
