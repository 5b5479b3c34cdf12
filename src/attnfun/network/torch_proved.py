"""The base of all torch modules: buffers of weights, and a warning when they leave the dtype of the certificate.

A certificate counts the rounding of one dtype. In a coarser one it says nothing: float16 and bfloat16 are off by far
more than most tolerances. Importing this file imports torch.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from attnfun.network.head import AnyArray


class Proved(nn.Module):
    """Weights in `dtype` of a network that was proved for `proved`; warns once when its arithmetic becomes coarser.

    `to`, `half`, `bfloat16`, `float` and `type`, of this module or of one around it, all go through `_apply`.
    """

    def __init__(self, proved: str, dtype: str) -> None:
        super().__init__()
        self.proved: torch.dtype = getattr(torch, proved)
        self.dtype: torch.dtype = getattr(torch, dtype)
        self._told = False
        self.register_forward_pre_hook(_see_autocast)

    def _keep(self, name: str, array: AnyArray) -> None:
        self.register_buffer(name, torch.tensor(np.ascontiguousarray(array), dtype=self.dtype))

    def _get(self, name: str) -> Tensor:
        return self.get_buffer(name)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        return self.telling()

    def telling(self, dtype: torch.dtype | None = None) -> Self:
        """Itself; warns, unless a part of it has, if `dtype` (that of the buffers) is coarser than what was proved."""
        used = next(self.buffers()).dtype if dtype is None else dtype
        parts = [part for part in self.modules() if isinstance(part, Proved)]
        step = torch.finfo(used).eps if used.is_floating_point else 1.0
        if step > torch.finfo(self.proved).eps and not any(part._told for part in parts):
            for part in parts:
                part._told = True
            proved, now = (str(kind).removeprefix("torch.") for kind in (self.proved, used))
            what = f"what the certificate of this network proves is for {proved} arithmetic: in {now} it holds no more"
            then = f"and errors can be far larger; to_torch() of the network gives the {proved} weights again"
            warnings.warn(f"{what}, {then}", stacklevel=_level())
        return self


def _see_autocast(module: nn.Module, _: Any) -> None:
    """Autocast computes with float32 weights in a coarser dtype; float64 ones it leaves alone."""
    buffer = next(module.buffers())
    kind = buffer.device.type
    if buffer.dtype != torch.float64 and torch.is_autocast_enabled(kind):
        module.telling(torch.get_autocast_dtype(kind))  # type: ignore[operator]  # a Proved


def _level() -> int:
    """How many frames up the first one outside torch and this package is: Python shows a warning once a place."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").partition(".")[0] in ("torch", "attnfun"):
        level += 1
    return level
