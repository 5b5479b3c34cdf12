"""The kinds of targets: one folder per kind, and the registry that names them.

A kind's folder says in its `__init__.py` what the kind is made of (`KIND`): strings, loaded when they are used. What
is done with models (`attnfun.model`, `attnfun.verbs`, the command line, training, pictures) asks the registry and
names no kind. A new kind is one folder and its name in `NAMES`; one that lives elsewhere is added by `register`.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.resources import files
from types import ModuleType
from typing import Any

from attnfun.errors import intact, require

NAMES = (
    *("function", "sequence", "set", "relation", "ternary", "retrieval", "in_context"),
    *("neighbours", "matching", "average", "lexicographic", "sampled"),
)


@dataclass(frozen=True)
class Command:
    """How the command line offers a verb: an entry of a `commands.toml`.

    verb       the function, "module:name" or, in the package itself, ".module:name". Arguments and options, their types
               and defaults are those of its signature
    front      a function that is called in the verb's place; its `**rest` stands for whatever else the verb takes
    arguments  what is given by position; with `several` the first of them may be repeated
    words      words for an argument or option that means something else here than elsewhere: a help text, or a
               metavar and a help text; {module:name} in it stands for the names in a registry
    options    options that the verb takes by its `**kwargs`: [type, help], or [type, help, default]
    defaults   what an option is here unless given, where the verb says something else; "" for nothing
    names      what an option is called, where the parameter is called something else
    required   options that must be given although the verb has a default
    leave      parameters that only Python can hand over
    output     the help text of `-o`, which saves what was made
    picture    the help text of `--png`, and `beside` the name that a picture has if none is given
    view       how a record is shown, with `items` (see `attnfun.cli.render`), or the function that shows it
    goes_on    how to go on after Ctrl-C; the first of these sentences whose names were all given
    """

    name: str
    verb: str
    panel: str
    summary: str
    examples: Sequence[str]
    more: str = ""
    front: str = ""
    arguments: Sequence[str] = ("target",)
    several: bool = False
    words: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    required: Sequence[str] = ()
    leave: Sequence[str] = ()
    output: str = ""
    picture: str = ""
    beside: str = ""
    view: Sequence[Any] | str = ()
    items: Mapping[str, Sequence[str]] = field(default_factory=dict)
    goes_on: Sequence[str] = ()


def commands(package: str) -> tuple[Command, ...]:
    """The commands that the `commands.toml` of a package declares; ".verb:name" is a module of the package itself."""

    def here(value: Any) -> Any:
        return package + value if isinstance(value, str) and re.match(r"\.\w+:\w+$", value) else value

    entries = {name: entry for name, entry in declared(package).items() if "summary" in entry}
    return tuple(Command(name, **{key: here(value) for key, value in entry.items()}) for name, entry in entries.items())


@cache
def declared(package: str) -> dict[str, Any]:
    """The `commands.toml` of a package."""
    return tomllib.loads(files(package).joinpath("commands.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Kind:
    """What a kind is made of; "module:name" each.

    target    its Target class
    weights   the classes that its weights may be of
    view      the Model class that its verb returns
    prover    prove(target, weights, goal, say) -> Proof: from weights and target alone; never imports a `build` module
    words     a module with explain(model), and where there is something of its own to draw or tell, picture(model,
              path) and record(model)
    lesson    lesson(given, ask) -> Lesson: how its weights are trained
    subjects  subjects(model, eps) -> (about, subjects, remarks): what `diagnose` looks at
    unproved  why nothing is proved of it, where it has no prover
    commands  the package whose `commands.toml` says how the command line offers its verbs
    mapped    whether large tensors of a loaded model may stay in the file: only where a loaded model proves nothing
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
    commands: str = ""
    mapped: bool = False

    def loaded(self, part: str) -> Any:
        """The object that a field names."""
        where = getattr(self, part)
        require(where, f"a model of the kind {self.name} has no {part}")
        return named(where)

    @property
    def weight_classes(self) -> tuple[type, ...]:
        return tuple(named(where) for where in self.weights)

    @property
    def module(self) -> ModuleType | None:
        """The words of the kind, if it has any."""
        return import_module(self.words) if self.words else None

    @property
    def picture(self) -> Any:
        """picture(model, path): its own, or the one of any model."""
        return getattr(self.module, "picture", None) or named("attnfun.plots.model:draw_model")


TOKENS = ("attnfun.network.tokens:TokenNetwork", "attnfun.network.tokens:TokenTransformer")


def token_kind(name: str, target: str, view: str, weights: tuple[str, ...] = TOKENS, **more: str) -> Kind:
    """A kind of networks on tokens, each part in the module of its name; words and, by default, lesson in the view."""
    more = {"subjects": "attnfun.diagnosis.plain:of_tokens", "lesson": "view", **more}
    return folder_kind(name, target, view, weights, **more)


def folder_kind(
    name: str, target: str, view: str, weights: tuple[str, ...], lesson: str = "lesson", package: str = "", **more: Any
) -> Kind:
    """A kind each part of which stands in the module of its name, and the words beside the view."""
    here = package or f"attnfun.kinds.{name}"
    return Kind(
        name,
        target=f"{here}.target:{target}",
        weights=weights,
        view=f"{here}.view:{view}",
        prover=f"{here}.prove:proof",
        words=f"{here}.view",
        lesson=f"{here}.{lesson}:lesson",
        **{"subjects": f"{here}.view:subjects", **more},
    )


_KNOWN: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Make a kind known that has no folder here."""
    require(kind.name not in NAMES, f"there is a kind {kind.name} already")
    _KNOWN[kind.name] = kind


def find(name: Any) -> Kind:
    """The kind of this name; DamagedFile for one that nobody knows."""
    if name not in _KNOWN:
        intact(name in NAMES, f"the file is of a kind {name!r:.40} that is not known here")
        _KNOWN[name] = import_module(f"attnfun.kinds.{name}").KIND
    return _KNOWN[name]


def known() -> tuple[Kind, ...]:
    """All kinds."""
    return tuple(find(name) for name in dict.fromkeys((*NAMES, *_KNOWN)))


def named(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
