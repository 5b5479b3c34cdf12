"""What is impossible, and what the possible costs at least: lower bounds with obstructions that can be checked.

Public: the grids that one number ranks, the misordered share of a slope, hard set functions, disjointness as triples,
and the exact bounds on the Hamming cube. Each is loaded when it is first used; calculators are in `af.bounds`.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "grids": ("grid_limits", "tied_pair", "utility"),
    "preorders.jumps": ("misorder_probability",),
    "separation.disjointness": ("converse", "disjointness_to_triples"),
    "separation.hard_sets": ("HardSet",),
    "separation.krawtchouk": (
        "candidates_lower",
        "coordinates_lower",
        "coordinates_upper",
        "uncovered",
        "values_lower",
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnfun.limits' has no attribute {name!r}")
    return getattr(import_module(f"attnfun.limits.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
