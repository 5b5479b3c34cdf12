"""Anybody's attention head in a plain safetensors file, by names of tensors.

| tensor | shape | |
| --- | --- | --- |
| K | (m, r) | keys |
| V | (m, o), or (m,) | values |
| b, or bias | (m,) | biases of the logits; zeros if there are none |
| W_Q | (r, d) | query map; the identity if there is none |
| b_Q | (r,) | its offset; zeros |
| beta | one number | on all logits; 1 |

    output(x) = Σ_j softmax_j( beta (K_j · (W_Q x + b_Q) + b_j) ) V_j

float64, float32, float16 and bfloat16 are read exactly. Failure mode: InvalidRequest in one line for other tensors,
shapes that do not meet, and numbers that are not finite.
"""

import os
from pathlib import Path

import numpy as np

from attnfun.errors import DamagedFile, InvalidRequest, require
from attnfun.files import require_regular
from attnfun.language.domain import Box
from attnfun.language.mlp import read_tensors
from attnfun.network import Axis, Head, Layer, Network

_KNOWN = {"K", "V", "b", "bias", "W_Q", "b_Q", "beta"}


def is_foreign(path: str | os.PathLike[str]) -> bool:
    """Whether it is a whole safetensors file that attnfun did not write."""
    from safetensors import SafetensorError, safe_open

    require_regular(path)
    try:
        with safe_open(path, "np") as file:
            return "attnfun" not in (file.metadata() or {})
    except (OSError, SafetensorError):
        return False


def foreign_head(path: str | os.PathLike[str], box: Box) -> Network:
    """The head as a network of one layer on the box, in float64 with the numbers of the file."""
    where = Path(path)
    tensors = read_tensors(where)
    if not {"K", "V"} <= set(tensors):
        named = ", ".join(sorted(tensors))[:80]
        raise InvalidRequest(f"{where}: no attention head in it: tensors K and V are needed, it has {named}")
    strange = sorted(set(tensors) - _KNOWN)
    if strange:
        raise InvalidRequest(f"{where}: what is the tensor {strange[0]!r:.40}? {', '.join(sorted(_KNOWN))} are read")
    require(not {"b", "bias"} <= set(tensors), f"{where}: it has both b and bias; one of them is needed")
    require(all(np.isfinite(array).all() for array in tensors.values()), f"{where}: a weight is NaN or infinite")
    K, V = tensors["K"], tensors["V"]
    V = V[:, None] if V.ndim == 1 else V
    if K.ndim != 2 or V.ndim != 2 or len(K) != len(V) or 0 in K.shape or 0 in V.shape:
        raise InvalidRequest(f"{where}: K and V must be tables with one row per key, not {K.shape} and {V.shape}")
    query = tensors.get("W_Q", np.eye(K.shape[1]))
    offset = tensors.get("b_Q", np.zeros(len(query)))
    bias = tensors.get("b", tensors.get("bias", np.zeros(len(K)))).reshape(-1)
    beta = tensors.get("beta", np.ones(1)).reshape(-1)
    if query.ndim != 2 or query.shape[0] != K.shape[1] or offset.shape != (len(query),) or len(bias) != len(K):
        shapes = f"K {K.shape}, W_Q {query.shape}, b_Q {offset.shape}, b {bias.shape}"
        raise InvalidRequest(f"{where}: shapes do not meet: {shapes}")
    require(len(beta) == 1, f"{where}: beta must be one number, not {len(beta)}")
    require(query.shape[1] == box.dim, f"{where}: a head of {query.shape[1]} numbers, a domain of {box.dim} variables")
    p = V.shape[1]
    outputs = ("f",) if p == 1 else tuple(f"f{k + 1}" for k in range(p))
    axis = Axis(query, offset, K * beta[0], bias * beta[0])
    head = Head("head", (axis,), V, tuple(f"value of {o}" for o in outputs))
    readout, ends = np.eye(p, box.dim + p, box.dim), (box.low_array, box.high_array)
    try:
        return Network(box.names, (Layer((head,)),), readout, np.zeros(p), outputs, ends)
    except InvalidRequest as why:
        raise DamagedFile(str(why)) from None
