"""attnfun: a target and a tolerance in, softmax-attention weights and a proof out.

Public names are loaded when first used, so `import attnfun` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnfun.errors import AttnfunError, DamagedFile, Infeasible, InvalidRequest, NotPositive, NoUtility, Refuted

if TYPE_CHECKING:
    from attnfun import bounds
    from attnfun.approximant import Approximant
    from attnfun.averages import SparseAverage, sparse_average
    from attnfun.certify import Certificate, Status
    from attnfun.certify.retrieval_bounds import RetrievalBound, retrieval_certificate
    from attnfun.diagnostics import Diagnosis, diagnose
    from attnfun.lexicographic_head import LexicographicHead, lexicographic
    from attnfun.limits.embedding import EmbeddingDimension, embed_dim
    from attnfun.limits.score_rank import ScoreRank, rank_of
    from attnfun.matcher import Matching, matching
    from attnfun.neighbour_networks import Neighbours, neighbours
    from attnfun.network import Architecture, TokenArchitecture
    from attnfun.planner import Plan, plan
    from attnfun.preorders import FinitePreorder, PreorderReport, finite_preorder, preorder
    from attnfun.relations import RelationApproximant, relation
    from attnfun.retrieval import Retrieval, retrieve
    from attnfun.sequence_approximant import SequenceApproximant
    from attnfun.sequences import sequence
    from attnfun.set_functions import SetApproximant, set_function
    from attnfun.solver import InContextSolver, in_context
    from attnfun.studies.report import report
    from attnfun.studies.runner import reproduce
    from attnfun.targets import Box
    from attnfun.training.comparison import Comparison, compare
    from attnfun.training.train import Learned, train
    from attnfun.trilinear import TrilinearForm, ternary
    from attnfun.truncated_linear import interpolation, interpolation_table
    from attnfun.verbs import compile, load, verify

__version__ = "0.1.0"

__all__ = [
    "Approximant",
    "Architecture",
    "AttnfunError",
    "Box",
    "Certificate",
    "Comparison",
    "DamagedFile",
    "Diagnosis",
    "EmbeddingDimension",
    "FinitePreorder",
    "InContextSolver",
    "Infeasible",
    "InvalidRequest",
    "Learned",
    "LexicographicHead",
    "NoUtility",
    "Neighbours",
    "NotPositive",
    "PreorderReport",
    "Matching",
    "Plan",
    "Refuted",
    "RelationApproximant",
    "Retrieval",
    "RetrievalBound",
    "ScoreRank",
    "SequenceApproximant",
    "SetApproximant",
    "SparseAverage",
    "Status",
    "TokenArchitecture",
    "TrilinearForm",
    "bounds",
    "compare",
    "compile",
    "diagnose",
    "embed_dim",
    "finite_preorder",
    "in_context",
    "interpolation",
    "interpolation_table",
    "lexicographic",
    "load",
    "preorder",
    "neighbours",
    "matching",
    "plan",
    "rank_of",
    "relation",
    "report",
    "reproduce",
    "retrieval_certificate",
    "retrieve",
    "sequence",
    "set_function",
    "sparse_average",
    "ternary",
    "train",
    "verify",
]

_HOMES = {
    "Approximant": "attnfun.approximant",
    "Architecture": "attnfun.network",
    "Box": "attnfun.targets",
    "Certificate": "attnfun.certify",
    "Comparison": "attnfun.training.comparison",
    "Diagnosis": "attnfun.diagnostics",
    "EmbeddingDimension": "attnfun.limits.embedding",
    "FinitePreorder": "attnfun.preorders",
    "InContextSolver": "attnfun.solver",
    "Learned": "attnfun.training.train",
    "LexicographicHead": "attnfun.lexicographic_head",
    "PreorderReport": "attnfun.preorders",
    "Neighbours": "attnfun.neighbour_networks",
    "Matching": "attnfun.matcher",
    "Plan": "attnfun.planner",
    "RelationApproximant": "attnfun.relations",
    "Retrieval": "attnfun.retrieval",
    "RetrievalBound": "attnfun.certify.retrieval_bounds",
    "ScoreRank": "attnfun.limits.score_rank",
    "SequenceApproximant": "attnfun.sequence_approximant",
    "SetApproximant": "attnfun.set_functions",
    "SparseAverage": "attnfun.averages",
    "Status": "attnfun.certify",
    "TokenArchitecture": "attnfun.network",
    "TrilinearForm": "attnfun.trilinear",
    "compare": "attnfun.training.comparison",
    "compile": "attnfun.verbs",
    "diagnose": "attnfun.diagnostics",
    "embed_dim": "attnfun.limits.embedding",
    "finite_preorder": "attnfun.preorders",
    "in_context": "attnfun.solver",
    "interpolation": "attnfun.truncated_linear",
    "interpolation_table": "attnfun.truncated_linear",
    "lexicographic": "attnfun.lexicographic_head",
    "load": "attnfun.verbs",
    "preorder": "attnfun.preorders",
    "neighbours": "attnfun.neighbour_networks",
    "matching": "attnfun.matcher",
    "plan": "attnfun.planner",
    "rank_of": "attnfun.limits.score_rank",
    "relation": "attnfun.relations",
    "report": "attnfun.studies.report",
    "reproduce": "attnfun.studies.runner",
    "retrieval_certificate": "attnfun.certify.retrieval_bounds",
    "retrieve": "attnfun.retrieval",
    "sequence": "attnfun.sequences",
    "set_function": "attnfun.set_functions",
    "sparse_average": "attnfun.averages",
    "ternary": "attnfun.trilinear",
    "train": "attnfun.training.train",
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
