"""The variables of a target whose domain does not name them.

    domain=[(-1, 1), (0, 2)]    of "y*sin(x)" y, then x    of lambda x, y: … x, then y

Of an expression in the order in which they first stand there, of a Python function in the order of its arguments.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnfun.language.graph import Graph
from attnfun.language.parse import CONSTANTS

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w ]*\()")


def names_of(target: Any, count: int) -> tuple[str, ...]:
    """All of them; of a function that does not name `count` of them x, or x1, x2, …"""
    if isinstance(target, Graph):
        return target.variables
    if isinstance(target, str):
        return tuple(dict.fromkeys(name for name in _NAME.findall(target) if name not in CONSTANTS))
    if isinstance(target, Sequence):
        return tuple(dict.fromkeys(name for one in target for name in names_of(one, count)))
    if not callable(target):
        return ()
    try:
        taken = () if isinstance(target, np.ufunc) else inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        taken = ()
    named = tuple(one.name for one in taken if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))
    usual = ("x",) if count == 1 else tuple(f"x{k + 1}" for k in range(count))
    return named if len(named) == count else usual
