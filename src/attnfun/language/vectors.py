"""Vectors of variables: x[100] in a domain declares the variables x[0], x[1], … x[99].

    groups(["x[0]", "x[1]", "y"])       {"x": ("x[0]", "x[1]"), "y": ("y",)}

Every variable stays a name of its own; what belongs together is read off the names.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

MAX_ENTRIES: Final = 1_000

_ENTRY: Final = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)\[(0|[1-9][0-9]{0,5})\]")


def entries(name: str, count: int) -> tuple[str, ...]:
    """The variables of a vector."""
    return tuple(f"{name}[{k}]" for k in range(count))


def entry(name: str) -> tuple[str, int] | None:
    """("x", 3) of "x[3]"; None of a name without an index."""
    found = _ENTRY.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


def groups(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Variables by the vector that they make up, others under their own names; all in their order.

    Entries are a vector where they are all of it, next to each other, from 0 on.
    """
    found: dict[str, tuple[str, ...]] = {}
    for base, run in groupby(names, lambda name: (entry(name) or (name, 0))[0]):
        members = tuple(run)
        if members == entries(base, len(members)):
            found[base] = members
        else:
            found |= {name: (name,) for name in members}
    return found


def is_vector(base: str, members: Sequence[str]) -> bool:
    """Whether a line of `groups` is a vector, and not a variable alone."""
    return tuple(members) != (base,)
