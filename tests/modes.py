"""Other arithmetic than the one that proofs need."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MODES = ("down", "up", "zero", "flush")


@contextmanager
def arithmetic(mode: str) -> Iterator[None]:
    """The processor in another mode, as some libraries leave it."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    before = libm.fegetround()
    try:
        if mode == "flush":
            assert torch.set_flush_denormal(True)
        else:  # the numbers of <fenv.h> on x86 and on ARM
            numbers = {"x86_64": (0x400, 0x800, 0xC00), "aarch64": (0x800000, 0x400000, 0xC00000)}[platform.machine()]
            assert libm.fesetround(numbers[("down", "up", "zero").index(mode)]) == 0
        yield
    finally:
        torch.set_flush_denormal(False)
        libm.fesetround(before)
