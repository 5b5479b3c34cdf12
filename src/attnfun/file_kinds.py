"""What files there are besides those of functions: who loads them and who proves them again.

A file says its format; networks on token matrices share one and say their target's kind besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from attnfun.network import (
    model_file,
    relation_file,
    relation_forms,
    retrieval_file,
    sequence_file,
    token_file,
    trilinear,
)
from attnfun.network.sealed import Held


@dataclass(frozen=True)
class FileKind:
    """`load` and `verify` are functions of `module`, of a file that was read; `verify` takes a `Gate` and a progress
    besides, or is empty: `proof` says why.
    """

    formats: tuple[str, ...]
    module: str
    load: str
    verify: str
    proof: str = ""
    target: str | None = None

    def loaded(self, file: Held) -> Any:
        return getattr(import_module(self.module), self.load)(file)

    @property
    def verifier(self) -> Callable[..., Any] | None:
        found: Callable[..., Any] | None = getattr(import_module(self.module), self.verify) if self.verify else None
        return found


_KINDS = (
    FileKind((sequence_file.FORMAT,), "attnfun.sequences", "load_sequence_approximant", "verify_sequence"),
    FileKind(
        (relation_file.FORMAT, relation_forms.CELLS, relation_forms.SLICES, relation_forms.TERMS),
        "attnfun.relations",
        "load_towers",
        "verify_towers",
    ),
    FileKind((retrieval_file.FORMAT,), "attnfun.retrieval", "load_head", "verify_head"),
    FileKind((trilinear.FORMAT,), "attnfun.trilinear", "load_form", "verify_form"),
    FileKind(
        token_file.FORMATS,
        "attnfun.neighbour_networks",
        "load_neighbours",
        "",
        "the file holds a network of neighbours: its error is a mean, not verified",
        target="neighbours",
    ),
    FileKind(
        (token_file.FORMAT,),
        "attnfun.matcher",
        "load_matching",
        "verify_matching",
        target="matching",
    ),
    FileKind(
        token_file.FORMATS,
        "attnfun.training.models.head",
        "load_head_model",
        "verify_head_model",
        target="trained head",
    ),
    FileKind(
        token_file.FORMATS,
        "attnfun.training.models.token",
        "load_token_model",
        "",
        "the file holds a network that was trained on a sampler: its error is sampled, and the sampler is not in it",
        target="sampled task",
    ),
    FileKind(
        (model_file.FORMAT,),
        "attnfun.training.models.retrieval",
        "load_retrieval_model",
        "",
        "the file holds a trained head over a table: its error is sampled, and no proof of it is known",
        target="retrieval model",
    ),
    FileKind(
        (model_file.FORMAT,),
        "attnfun.training.models.tower",
        "load_tower_model",
        "",
        "the file holds trained towers: their error is sampled, and no proof of it is known",
        target="towers",
    ),
    FileKind(
        token_file.FORMATS,
        "attnfun.training.models.sequence",
        "load_sequence_model",
        "",
        "the file holds a trained model of a sequence map: its error is sampled, and no proof of it is known",
        target="sequence model",
    ),
    FileKind(
        token_file.FORMATS,
        "attnfun.solver",
        "load_in_context",
        "verify_in_context",
    ),
)


def kind_of(file: Held) -> FileKind | None:
    """The kind of a file; None for that of a function's network."""
    fitting = [kind for kind in _KINDS if file.format in kind.formats]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return next((kind for kind in fitting if kind.target == file.target_kind), fitting[-1])
