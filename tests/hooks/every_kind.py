"""Models of every kind that has layers, and what their modules take."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnfun.kinds import NAMES
from house.requests import model

KINDS = [name for name in NAMES if name != "ternary"]
"""A trilinear form has no network."""


def inputs(one: Any, count: int, seed: int = 0) -> list[Any]:
    """What the module of a model takes of drawn inputs, `count` of each."""
    import torch

    given, _ = one.target.encode(one.weights, *one.target.draw(np.random.default_rng(seed), count))
    return [torch.tensor(array[:count]) for array in given if isinstance(array, np.ndarray)]


def differs(one: Any, seen: Any, arrays: list[Any]) -> float:
    """How far an output is off the network's, in units of what rounding may do: 2^12 ulp of the largest value."""
    wanted = np.asarray(one.weights.run(*(array.numpy() for array in arrays)), dtype=np.float64)
    size = max(1.0, one.cost.max_value, float(np.abs(wanted).max()))
    gap = np.abs(seen.detach().double().numpy().reshape(wanted.shape) - wanted).max()
    return float(gap) / (2.0**12 * float(np.finfo(one.dtype).eps) * size)


__all__ = ["KINDS", "differs", "inputs", "model"]
