"""attnfun: a target and a tolerance in, softmax-attention weights and a proof out.

Public names are loaded when first used, so `import attnfun` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnfun.errors import AttnfunError, DamagedFile, Infeasible, InvalidRequest, NotPositive, NoUtility, Refuted

if TYPE_CHECKING:
    from attnfun import bounds, language, learn, limits, network, parts, plots
    from attnfun.certify import Certificate, Status
    from attnfun.diagnosis.verb import Diagnosis, diagnose
    from attnfun.kinds.average.verb import sparse_average
    from attnfun.kinds.average.view import SparseAverage
    from attnfun.kinds.function.interpolation import interpolation, interpolation_table
    from attnfun.kinds.function.verb import compile
    from attnfun.kinds.function.view import Approximant
    from attnfun.kinds.in_context.target import InContextTask
    from attnfun.kinds.in_context.verb import in_context
    from attnfun.kinds.in_context.view import InContextSolver
    from attnfun.kinds.lexicographic.verb import lexicographic
    from attnfun.kinds.lexicographic.view import LexicographicHead
    from attnfun.kinds.matching.verb import matching
    from attnfun.kinds.matching.view import Matching
    from attnfun.kinds.neighbours.verb import neighbours
    from attnfun.kinds.neighbours.view import Neighbours
    from attnfun.kinds.relation.target import Relation
    from attnfun.kinds.relation.verb import relation
    from attnfun.kinds.relation.view import RelationApproximant
    from attnfun.kinds.retrieval.prove_bounds import RetrievalBound, retrieval_certificate
    from attnfun.kinds.retrieval.verb import retrieve
    from attnfun.kinds.retrieval.view import Retrieval
    from attnfun.kinds.sequence.target import SequenceMap
    from attnfun.kinds.sequence.verb import sequence
    from attnfun.kinds.sequence.view import SequenceApproximant
    from attnfun.kinds.set.verb import set_function
    from attnfun.kinds.set.view import SetApproximant
    from attnfun.kinds.ternary.verb import ternary
    from attnfun.kinds.ternary.view import TrilinearForm
    from attnfun.lab.studies.report import report
    from attnfun.lab.studies.runner import reproduce
    from attnfun.language.domain import Box
    from attnfun.learn.compare import Comparison, compare
    from attnfun.learn.train import train
    from attnfun.limits.embedding import EmbeddingDimension, embed_dim
    from attnfun.limits.plan import Plan, plan
    from attnfun.limits.preorders.verb import FinitePreorder, PreorderReport, finite_preorder, preorder
    from attnfun.limits.score_rank import ScoreRank, rank_of
    from attnfun.model import Model
    from attnfun.network import Architecture, TokenArchitecture
    from attnfun.verbs import load, verify

__version__ = "0.1.0"

__all__ = [
    "Approximant",
    "Architecture",
    "AttnfunError",
    "bounds",
    "Box",
    "Certificate",
    "compare",
    "Comparison",
    "compile",
    "DamagedFile",
    "diagnose",
    "Diagnosis",
    "embed_dim",
    "EmbeddingDimension",
    "finite_preorder",
    "FinitePreorder",
    "in_context",
    "InContextSolver",
    "InContextTask",
    "Infeasible",
    "interpolation",
    "interpolation_table",
    "InvalidRequest",
    "language",
    "learn",
    "lexicographic",
    "LexicographicHead",
    "limits",
    "load",
    "matching",
    "Matching",
    "Model",
    "neighbours",
    "Neighbours",
    "network",
    "NotPositive",
    "NoUtility",
    "parts",
    "Plan",
    "plan",
    "plots",
    "preorder",
    "PreorderReport",
    "rank_of",
    "Refuted",
    "Relation",
    "relation",
    "RelationApproximant",
    "report",
    "reproduce",
    "Retrieval",
    "retrieval_certificate",
    "RetrievalBound",
    "retrieve",
    "ScoreRank",
    "sequence",
    "SequenceApproximant",
    "SequenceMap",
    "set_function",
    "SetApproximant",
    "sparse_average",
    "SparseAverage",
    "Status",
    "ternary",
    "TokenArchitecture",
    "train",
    "TrilinearForm",
    "verify",
]

_ROOMS = ("bounds", "language", "learn", "limits", "network", "parts", "plots")
_HOMES = {
    "attnfun.certify": "Certificate Status",
    "attnfun.diagnosis.verb": "Diagnosis diagnose",
    "attnfun.kinds.average.verb": "sparse_average",
    "attnfun.kinds.average.view": "SparseAverage",
    "attnfun.kinds.function.interpolation": "interpolation interpolation_table",
    "attnfun.kinds.function.verb": "compile",
    "attnfun.kinds.function.view": "Approximant",
    "attnfun.kinds.in_context.target": "InContextTask",
    "attnfun.kinds.in_context.verb": "in_context",
    "attnfun.kinds.in_context.view": "InContextSolver",
    "attnfun.kinds.lexicographic.verb": "lexicographic",
    "attnfun.kinds.lexicographic.view": "LexicographicHead",
    "attnfun.kinds.matching.verb": "matching",
    "attnfun.kinds.matching.view": "Matching",
    "attnfun.kinds.neighbours.verb": "neighbours",
    "attnfun.kinds.neighbours.view": "Neighbours",
    "attnfun.kinds.relation.target": "Relation",
    "attnfun.kinds.relation.verb": "relation",
    "attnfun.kinds.relation.view": "RelationApproximant",
    "attnfun.kinds.retrieval.prove_bounds": "RetrievalBound retrieval_certificate",
    "attnfun.kinds.retrieval.verb": "retrieve",
    "attnfun.kinds.retrieval.view": "Retrieval",
    "attnfun.kinds.sequence.target": "SequenceMap",
    "attnfun.kinds.sequence.verb": "sequence",
    "attnfun.kinds.sequence.view": "SequenceApproximant",
    "attnfun.kinds.set.verb": "set_function",
    "attnfun.kinds.set.view": "SetApproximant",
    "attnfun.kinds.ternary.verb": "ternary",
    "attnfun.kinds.ternary.view": "TrilinearForm",
    "attnfun.lab.studies.report": "report",
    "attnfun.lab.studies.runner": "reproduce",
    "attnfun.language.domain": "Box",
    "attnfun.learn.compare": "Comparison compare",
    "attnfun.learn.train": "train",
    "attnfun.limits.embedding": "EmbeddingDimension embed_dim",
    "attnfun.limits.plan": "Plan plan",
    "attnfun.limits.preorders.verb": "FinitePreorder PreorderReport finite_preorder preorder",
    "attnfun.limits.score_rank": "ScoreRank rank_of",
    "attnfun.model": "Model",
    "attnfun.network": "Architecture TokenArchitecture",
    "attnfun.verbs": "load verify",
}
"""By module, the names that stand in it."""
_WHERE = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"attnfun.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'attnfun' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
