"""What constructions are made of, for experiments that change a part: `af.parts.build_grid`, `af.parts.curve_keys`, …;
and `af.parts.write_whole`, which writes a file whole or not at all.

Each name is loaded from its home when it is first used. Targets, networks and verbs have public names of their own.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Grid": "kinds.function.build.partition",
    "Request": "kinds.function.build",
    "build_grid": "kinds.function.build.partition",
    "interpolated": "kinds.function.build.relu_network",
    "measured_error": "kinds.function.interpolation",
    "prove": "kinds.function.prove",
    "sequence_example": "kinds.sequence.examples:example",
    "relu_network": "kinds.sequence.examples",
    "embedded": "kinds.sequence.network",
    "sequence_embedding": "kinds.sequence.network",
    "error_lower": "kinds.relation.rank",
    "section": "kinds.relation.rank",
    "checked_witness": "kinds.relation.definiteness:checked",
    "curve_keys": "kinds.average.build",
    "curve_query": "kinds.average.weights",
    "least_norm_query": "kinds.average.weights",
    "circle": "language.circle",
    "pair_gap": "kinds.matching.build_pairs:gap",
    "null_logit": "kinds.matching.build_pairs",
    "vote_accuracy": "kinds.neighbours.build.majority_vote:accuracy",
    "overlap": "kinds.neighbours.build.random_heads",
    "random_directions": "kinds.neighbours.build.random_heads:draw",
    "sign_coefficients": "kinds.neighbours.sphere",
    "uniform_points": "kinds.neighbours.sphere",
    "write_whole": "files",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnfun.parts' has no attribute {name!r}")
    module, _, there = _HOMES[name].partition(":")
    return getattr(import_module(f"attnfun.{module}"), there or name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
