"""attnfun: a target and a tolerance in, softmax-attention weights and a proof out.

Public names are loaded when first used, so `import attnfun` costs next to nothing.
"""

from functools import cache
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
    from attnfun.language.tabulated import Tabulated, table
    from attnfun.learn.compare import Comparison, compare
    from attnfun.learn.train import train
    from attnfun.limits.embedding import EmbeddingDimension, embed_dim
    from attnfun.limits.plan import Plan, plan
    from attnfun.limits.preorders.verb import FinitePreorder, PreorderReport, finite_preorder, preorder
    from attnfun.limits.score_rank import ScoreRank, rank_of
    from attnfun.model import Model
    from attnfun.network import Architecture, TokenArchitecture
    from attnfun.network.torch_form import load_pretrained
    from attnfun.verbs import load, verify

__version__ = "0.1.0"

# verbs that build
__all__ = ["compile", "sequence", "set_function", "relation", "ternary", "retrieve", "in_context", "neighbours"]
__all__ += ["matching", "sparse_average", "lexicographic", "interpolation", "interpolation_table"]
# what they return
__all__ += ["Model", "Approximant", "SequenceApproximant", "SetApproximant", "RelationApproximant", "TrilinearForm"]
__all__ += ["Retrieval", "InContextSolver", "Neighbours", "Matching", "SparseAverage", "LexicographicHead"]
# what is asked
__all__ += ["table", "Tabulated"]
__all__ += ["Box", "Relation", "SequenceMap", "InContextTask", "Architecture", "TokenArchitecture"]
# what is done with models
__all__ += ["load", "verify", "train", "compare", "Comparison", "diagnose", "Diagnosis", "Certificate", "Status"]
__all__ += ["load_pretrained"]
# limits
__all__ += ["plan", "Plan", "embed_dim", "EmbeddingDimension", "rank_of", "ScoreRank", "preorder", "PreorderReport"]
__all__ += ["finite_preorder", "FinitePreorder", "retrieval_certificate", "RetrievalBound"]
# rooms, the laboratory, refusals
__all__ += ["bounds", "language", "learn", "limits", "network", "parts", "plots", "reproduce", "report"]
__all__ += ["AttnfunError", "InvalidRequest", "Infeasible", "NotPositive", "NoUtility", "Refuted", "DamagedFile"]


@cache
def _homes() -> dict[str, str]:
    """By public name the module that it stands in, as the imports for type checkers above say."""
    import ast

    tree = ast.parse(__spec__.loader.get_source(__name__))  # type: ignore[union-attr]
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {one.name: str(node.module) for node in found for one in node.names if one.name in __all__}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'attnfun' has no attribute {name!r}")
    home = _homes()[name]
    value = import_module(f"attnfun.{name}") if home == __name__ else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
