"""Brief: how everything public prints itself, in at most six lines.

    Network(inputs=('x',), outputs=('f',), dtype='float64', cost=Cost(layers=1, heads=1, rank=2, keys=4, …))

A number has six digits, an array is its shape, a long text or list is its beginning, and what is empty is left out.
"""

from __future__ import annotations

import reprlib
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np

_LINES, _WIDTH, _DEEP = 6, 96, 3


class Brief:
    """Base of the dataclasses that users see: `repr` tells their fields, or the attributes that `_shown` names."""

    _shown: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """A dataclass leaves a `__repr__` alone that its class has itself, and overwrites an inherited one."""
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            setattr(cls, "__repr__", cls.__repr__)  # noqa: B010

    def __repr__(self) -> str:
        return folded(_SHORT.repr1(self, _DEEP))


def folded(text: str) -> str:
    """A text on at most six lines; what does not fit is left out."""
    fit: dict[str, Any] = {"max_lines": _LINES, "placeholder": " …", "break_on_hyphens": False}
    return "\n".join(textwrap.wrap(text, _WIDTH, subsequent_indent="    ", **fit))


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.fillvalue, self.maxstring, self.maxother = "…", 72, 72
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = 6

    def repr1(self, x: Any, level: int) -> str:
        if isinstance(x, Enum):
            return repr(x.value)
        if isinstance(x, float):
            return f"{x:.6g}"
        if isinstance(x, np.ndarray):
            return f"array{x.shape}" if x.size > 3 else self.repr1(x.tolist(), level)
        if isinstance(x, tuple) and level <= 0:
            return f"({len(x)} {type(x[0]).__name__})" if x else "()"
        if isinstance(x, Mapping):
            x = dict(x)
        if not is_dataclass(x) or isinstance(x, type):
            return super().repr1(x, level)
        name = type(x).__name__
        if level <= 0:
            return f"{name}(…)"
        names = getattr(x, "_shown", ()) or [field.name for field in fields(x) if field.repr]
        told = ((name, getattr(x, name)) for name in names)
        return f"{name}({', '.join(f'{n}={self.repr1(v, level - 1)}' for n, v in told if not _empty(v))})"


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | tuple | list | Mapping) and not value)


_SHORT = _Short()
