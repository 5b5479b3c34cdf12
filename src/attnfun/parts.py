"""What constructions are made of, for experiments that change a part: `af.parts.build_grid`, `af.parts.curve_keys`, …

Each name is loaded from its home when it is first used; "ours:theirs" where it has another name there. Targets,
networks and verbs have public names of their own.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "kinds.function.build": ("Request",),
    "kinds.function.build.partition": ("Grid", "build_grid"),
    "kinds.function.build.relu_network": ("interpolated",),
    "kinds.function.interpolation": ("measured_error",),
    "kinds.function.prove": ("prove",),
    "kinds.sequence.examples": ("relu_network", "sequence_example:example"),
    "kinds.sequence.network": ("embedded", "sequence_embedding"),
    "kinds.relation.rank": ("error_lower", "section"),
    "kinds.relation.definiteness": ("checked_witness:checked",),
    "kinds.average.build": ("curve_keys",),
    "kinds.average.weights": ("curve_query", "least_norm_query"),
    "kinds.matching.build_pairs": ("null_logit", "pair_gap:gap"),
    "kinds.neighbours.build.majority_vote": ("vote_accuracy:accuracy",),
    "kinds.neighbours.build.random_heads": ("overlap", "random_directions:draw"),
    "kinds.neighbours.sphere": ("sign_coefficients", "uniform_points"),
    "language.circle": ("circle",),
}
_HOMES = {one.partition(":")[0]: (home, one.rpartition(":")[2]) for home, names in _NAMES.items() for one in names}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnfun.parts' has no attribute {name!r}")
    home, there = _HOMES[name]
    return getattr(import_module(f"attnfun.{home}"), there)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
