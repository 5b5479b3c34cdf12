"""What is impossible, and what the possible costs at least: lower bounds with obstructions that can be checked.

Public: the grids that one number ranks, the misordered share of a slope, hard set functions, disjointness as triples,
and the exact bounds on the Hamming cube. Each is loaded when it is first used; calculators are in `af.bounds`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "HardSet": "separation.hard_sets",
    "candidates_lower": "separation.krawtchouk",
    "converse": "separation.disjointness",
    "coordinates_lower": "separation.krawtchouk",
    "coordinates_upper": "separation.krawtchouk",
    "disjointness_to_triples": "separation.disjointness",
    "grid_limits": "grids",
    "misorder_probability": "preorders.jumps",
    "tied_pair": "grids",
    "uncovered": "separation.krawtchouk",
    "utility": "grids",
    "values_lower": "separation.krawtchouk",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnfun.limits' has no attribute {name!r}")
    return getattr(import_module(f"attnfun.limits.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
