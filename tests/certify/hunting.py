"""Tools for attacking certificates: networks made by hand, and a search for the worst point of a claim."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attnfun.certify import Certificate, Status
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.network import Axis, Head, Layer, Network, evaluate, rounded

Array = npt.NDArray[np.float64]
BOUNDS = (Status.PROVED, Status.BOUNDED, Status.CONDITIONAL)


def function(target: Any, domain: Any = "x=-1:1") -> Function:
    return Function.read(target, Box.parse(domain))


def line_network(
    slopes: Sequence[float],
    biases: Sequence[float],
    values: Any,
    domain: str = "x=-1:1",
    w: float = 1.0,
    c: float = 0.0,
    dtype: str = "float64",
) -> Network:
    """One head of one variable with these keys."""
    box = Box.parse(domain)
    v = np.asarray(values, dtype=np.float64)
    v = v[:, None] if v.ndim == 1 else v
    p = v.shape[1]
    axis = Axis(np.array([[w]]), np.array([c]), np.asarray(slopes, dtype=np.float64)[:, None], np.asarray(biases))
    return Network(
        inputs=box.names,
        layers=(Layer((Head("head", (axis,), rounded(v, dtype), tuple(f"v{i}" for i in range(p))),)),),
        readout=np.concatenate([np.zeros((p, 1)), np.eye(p)], axis=1),
        readout_bias=np.zeros(p),
        outputs=("f",) if p == 1 else tuple(f"f{i + 1}" for i in range(p)),
        box=(box.low_array, box.high_array),
        dtype=dtype,
    )


def zero_network(target: Function) -> Network:
    """No heads: 0 everywhere."""
    box, p = target.box, len(target.outputs)
    return Network(box.names, (), np.zeros((p, box.dim)), np.zeros(p), target.outputs, (box.low_array, box.high_array))


def with_arrays(network: Network, changed: dict[str, Array]) -> Network:
    """The same network with some of its arrays (names as in `Network.arrays`) replaced."""
    arrays = {name: changed.get(name, array) for name, array in network.arrays()}
    layers = []
    for i, layer in enumerate(network.layers):
        heads = []
        for j, head in enumerate(layer.heads):
            here = f"layer{i}/head{j}"
            axes = tuple(
                Axis(*(arrays[f"{here}/axis{k}/{part}"] for part in ("query", "offset", "slopes", "biases")))
                for k in range(len(head.axes))
            )
            heads.append(Head(head.name, axes, arrays[f"{here}/values"], head.writes, head.key_names))
        layers.append(Layer(tuple(heads)))
    return Network(
        network.inputs,
        tuple(layers),
        arrays["readout"],
        arrays["readout_bias"],
        network.outputs,
        network.box,
        network.dtype,
    )


def flip(array: Array, index: int, bit: int) -> Array:
    """One bit of one float64 entry changed."""
    changed = np.array(array)
    flat = changed.reshape(-1)
    flat.view(np.uint64)[index] ^= np.uint64(1) << np.uint64(bit)
    return changed


def errors(network: Network, target: Function, X: Array, route: str = "auto") -> Array:
    """(n,) max over the outputs of |net − f| in plain floats; an output that is not a number is an infinite error. 0 in
    the band of the target.
    """
    with np.errstate(all="ignore"):
        found = np.max(np.abs(evaluate(network, X, route).astype(np.float64) - target.values(X)), axis=1)
    return np.where(target.off_band(X), np.where(np.isfinite(found), found, np.inf), 0.0)


def worst_error(
    network: Network, target: Function, points: int = 4000, seed: int = 0, rounds: int = 24
) -> tuple[float, Array]:
    """The largest error found by samples, corners, edges and a local search from the worst of them."""
    rng = np.random.default_rng(seed)
    box = target.box
    X = box.probe(points, rng)
    if box.dim == 1:
        X = np.concatenate([X, np.linspace(box.low[0], box.high[0], 2 * points + 1)[:, None]])
    seen = errors(network, target, X)
    order = np.argsort(seen)[::-1][:12]
    top, best, step = X[order], seen[order], 0.05
    for _ in range(rounds):
        Y = np.repeat(top, 8, axis=0)
        Y = Y + step * (box.high_array - box.low_array) * rng.standard_normal(Y.shape)
        Y = np.clip(Y, box.low_array, box.high_array)
        X, seen = np.concatenate([top, Y]), np.concatenate([best, errors(network, target, Y)])
        order = np.argsort(seen)[::-1][:12]
        top, best, step = X[order], seen[order], step * 0.6
    return float(best[0]), top[0]


def formula_rounding(target: Function, points: int = 2000) -> float:
    """64 · 2^-53 · max|f|: what evaluating the formula in floats may itself be off by."""
    with np.errstate(all="ignore"):
        values = np.abs(target.values(target.box.probe(points, np.random.default_rng(9))))
    return 64 * 2.0**-53 * float(np.max(values[np.isfinite(values)], initial=0.0))


def assert_sound(certificate: Certificate, network: Network, target: Function, seed: int = 0) -> float:
    """No certificate may contradict what is seen; returns the worst error found."""
    low, high = certificate.error
    assert 0 <= low <= high
    seen, where = worst_error(network, target, seed=seed)
    allowed = formula_rounding(target)
    if certificate.status in BOUNDS:
        assert math.isfinite(high)
        assert seen <= high + allowed, f"proved {high} but at {where} the error is {seen} ({certificate.method})"
    else:
        assert certificate.reason
    if certificate.status is Status.REFUTED:
        assert certificate.eps is not None and low > certificate.eps
    if certificate.witness is not None:
        x = np.array([certificate.witness])
        assert target.box.contains(x).all()
        there = float(errors(network, target, x)[0])
        rounding = certificate.parts.get("rounding", math.inf)
        assert there >= low * (1 - 1e-9) - rounding - allowed, f"the witness has {there}, not {low}"
    return seen


def rewrite(path: Path, out: Path, change: Any) -> Path:
    """Pass the JSON record of an attnfun file through `change(record, tensors)` and write it with fitting seals."""
    from attnfun.network.sealed import read as _read
    from attnfun.network.sealed import to_bytes as _to_bytes

    tensors, record = _read(path)
    tensors = {name: np.array(array) for name, array in tensors.items()}
    change(record, tensors)
    out.write_bytes(_to_bytes(tensors, metadata={"attnfun": json.dumps(record, sort_keys=True)}))
    return out
