"""The kinds of targets: one folder per kind, and the registry that names them.

A kind's folder says in its `__init__.py` what the kind is made of (`KIND`): strings, loaded when they are used. What
is done with models (`attnfun.model`, `attnfun.verbs`, the command line, training, pictures) asks the registry and
names no kind. A new kind is one folder and its name in `NAMES`; one that lives elsewhere is added by `register`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from attnfun.errors import DamagedFile, InvalidRequest

NAMES = (
    "function",
    "sequence",
    "set",
    "relation",
    "ternary",
    "retrieval",
    "in_context",
    "neighbours",
    "matching",
    "average",
    "lexicographic",
    "sampled",
)


@dataclass(frozen=True)
class Option:
    """An option of a command that its verb does not have; `prepare` makes of it what the verb takes."""

    type: Any
    default: Any
    help: str


@dataclass(frozen=True)
class Command:
    """How the command line offers a verb. Arguments and options are those of the verb's signature.

    `arguments` are given by position, and may be several where the verb takes a list. `helps` are words for options
    that mean something else here than elsewhere. `options` are further ones, and `prepare` (kwargs -> kwargs) reads
    them. `leave`: what only Python can hand over. `picture`: whether there is a --png.
    """

    name: str
    verb: str
    panel: str
    summary: str
    examples: tuple[str, ...]
    more: str = ""
    arguments: tuple[str, ...] = ("target",)
    several: bool = False
    helps: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)
    prepare: str = ""
    leave: tuple[str, ...] = ()
    picture: bool = False


@dataclass(frozen=True)
class Kind:
    """What a kind is made of; "module:name" each.

    target    its Target class
    weights   the classes that its weights may be of
    view      the Model class that its verb returns
    prover    prove(target, weights, goal, say) -> Proof: from weights and target alone; never imports a `build` module
    words     a module with explain(model), and where there is something to draw or tell, picture(model, path) and
              record(model)
    lesson    lesson(given, ask) -> Lesson: how its weights are trained
    subjects  subjects(model, eps) -> (about, subjects, remarks): what `diagnose` looks at
    unproved  why nothing is proved of it, where it has no prover
    commands  how the command line offers its verbs
    """

    name: str
    target: str
    weights: tuple[str, ...]
    view: str = "attnfun.model:Model"
    prover: str = ""
    words: str = ""
    lesson: str = ""
    subjects: str = ""
    unproved: str = ""
    commands: tuple[Command, ...] = ()

    def loaded(self, part: str) -> Any:
        """The object that a field names."""
        where = getattr(self, part)
        if not where:
            raise InvalidRequest(f"a model of the kind {self.name} has no {part}")
        return named(where)

    @property
    def weight_classes(self) -> tuple[type, ...]:
        return tuple(named(where) for where in self.weights)

    @property
    def module(self) -> ModuleType | None:
        """The words of the kind, if it has any."""
        return import_module(self.words) if self.words else None


TOKENS = ("attnfun.network.tokens:TokenNetwork", "attnfun.network.token_transformer:TokenTransformer")


def token_kind(name: str, target: str, view: str, weights: tuple[str, ...] = TOKENS) -> Kind:
    """A kind of networks on tokens, each part in the module of its name, and the words beside the view."""
    here = f"attnfun.kinds.{name}"
    return Kind(
        name,
        target=f"{here}.target:{target}",
        weights=weights,
        view=f"{here}.view:{view}",
        prover=f"{here}.prove:proof",
        words=f"{here}.view",
        lesson=f"{here}.lesson:lesson",
        subjects="attnfun.diagnosis.tokens:subjects",
    )


_OTHERS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Make a kind known that has no folder here."""
    if kind.name in NAMES:
        raise InvalidRequest(f"there is a kind {kind.name} already")
    _OTHERS[kind.name] = kind


def find(name: Any) -> Kind:
    """The kind of this name; DamagedFile for one that nobody knows."""
    if name in _OTHERS:
        return _OTHERS[name]
    if name not in NAMES:
        raise DamagedFile(f"the file is of a kind {name!r:.40} that is not known here")
    return _known(name)


@cache
def _known(name: str) -> Kind:
    kind: Kind = import_module(f"attnfun.kinds.{name}").KIND
    return kind


def known() -> tuple[Kind, ...]:
    """All kinds."""
    return (*(_known(name) for name in NAMES), *_OTHERS.values())


def named(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
