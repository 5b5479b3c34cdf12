"""attnfun: a target and a tolerance in, softmax-attention weights and a proof out.

Public names are loaded when first used, so `import attnfun` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnfun.errors import AttnfunError, DamagedFile, Infeasible, InvalidRequest, NotPositive, Refuted

if TYPE_CHECKING:
    from attnfun import bounds
    from attnfun.approximant import Approximant
    from attnfun.averages import SparseAverage, sparse_average
    from attnfun.certify import Certificate, Status
    from attnfun.limits.embedding import EmbeddingDimension, embed_dim
    from attnfun.limits.score_rank import ScoreRank, rank_of
    from attnfun.matcher import Matching, matching
    from attnfun.planner import Plan, plan
    from attnfun.relations import RelationApproximant, relation
    from attnfun.sequence_approximant import SequenceApproximant
    from attnfun.sequences import sequence
    from attnfun.solver import InContextSolver, in_context
    from attnfun.targets import Box
    from attnfun.trilinear import TrilinearForm, ternary
    from attnfun.truncated_linear import interpolation, interpolation_table
    from attnfun.verbs import compile, load, verify

__version__ = "0.1.0"

__all__ = [
    "Approximant",
    "AttnfunError",
    "Box",
    "Certificate",
    "DamagedFile",
    "EmbeddingDimension",
    "InContextSolver",
    "Infeasible",
    "InvalidRequest",
    "Matching",
    "NotPositive",
    "Plan",
    "Refuted",
    "RelationApproximant",
    "ScoreRank",
    "SequenceApproximant",
    "SparseAverage",
    "Status",
    "TrilinearForm",
    "bounds",
    "compile",
    "embed_dim",
    "in_context",
    "interpolation",
    "interpolation_table",
    "load",
    "matching",
    "plan",
    "rank_of",
    "relation",
    "sequence",
    "sparse_average",
    "ternary",
    "verify",
]

_HOMES = {
    "Approximant": "attnfun.approximant",
    "Box": "attnfun.targets",
    "Certificate": "attnfun.certify",
    "EmbeddingDimension": "attnfun.limits.embedding",
    "InContextSolver": "attnfun.solver",
    "Matching": "attnfun.matcher",
    "Plan": "attnfun.planner",
    "RelationApproximant": "attnfun.relations",
    "ScoreRank": "attnfun.limits.score_rank",
    "SequenceApproximant": "attnfun.sequence_approximant",
    "SparseAverage": "attnfun.averages",
    "Status": "attnfun.certify",
    "TrilinearForm": "attnfun.trilinear",
    "compile": "attnfun.verbs",
    "embed_dim": "attnfun.limits.embedding",
    "in_context": "attnfun.solver",
    "interpolation": "attnfun.truncated_linear",
    "interpolation_table": "attnfun.truncated_linear",
    "load": "attnfun.verbs",
    "matching": "attnfun.matcher",
    "plan": "attnfun.planner",
    "rank_of": "attnfun.limits.score_rank",
    "relation": "attnfun.relations",
    "sequence": "attnfun.sequences",
    "sparse_average": "attnfun.averages",
    "ternary": "attnfun.trilinear",
    "verify": "attnfun.verbs",
}


def __getattr__(name: str) -> Any:
    if name == "bounds":
        return import_module("attnfun.bounds")
    if name not in _HOMES:
        raise AttributeError(f"module 'attnfun' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES, "bounds"]
