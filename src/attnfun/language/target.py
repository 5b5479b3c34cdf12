"""Target: what is asked of a network, one class per kind.

A target says what it is (`text`, `domain`, JSON), checks what a user hands in and writes it as the arrays that weights
read, reads the answer off their output, and knows the truth where that can be computed. Everything that is done with
a model (`attnfun.model`) goes through these methods, so none of it knows a kind by name.

| method | what it does |
| --- | --- |
| `encode(weights, *inputs)` | a user's inputs, checked: the arrays that `weights.run` takes, what `decode` must know |
| `decode(outputs, how)` | what the user gets |
| `draw(rng, count)` | inputs of the class, as many as asked for, hard ones among them |
| `exact(*inputs)` | the truth for drawn inputs |
| `errors(outputs, wanted)` | (count, entries): how far off, for every draw |
| `against(given)` | the target that a file is to be proved for, if a caller of `verify` says what it is about |
| `aimed(given, domain, lipschitz)` | the target that `train` aims at, if a caller says another than the network's own |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.language.brief import Brief
from attnfun.language.inputs import together

Json = dict[str, Any]
Array = NDArray[np.float64]


class Target(Brief):
    """Base of all targets: frozen dataclasses; `kind` is the name under which the registry knows it."""

    _shown = ("text", "domain")

    kind: ClassVar[str]
    norms: ClassVar[tuple[str, ...]] = ("sup",)
    """What eps may be about: "sup", "lp", "relative" (a fraction of a range), "mean square"."""
    draws_what: ClassVar[str] = "points"
    """What `draw` draws, in the plural."""
    left_out: str = ""
    """Of which inputs nothing is asked, in words: the band about the jumps of a target, where it has one."""

    if TYPE_CHECKING:  # properties or fields of the classes; a dataclass would take an inherited property for a default

        @property
        def text(self) -> str:
            """What is asked for, as a person would write it."""
            ...

        @property
        def domain(self) -> str:
            """For which inputs."""
            ...

    def to_json(self) -> Json:
        """Its fields, by name."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """What `to_json` wrote; AttnfunError or TypeError for anything else, as `__post_init__` sees to it."""
        return cls(**data)

    def encode(self, weights: Any, *inputs: Any, **options: Any) -> tuple[tuple[Any, ...], Any]:
        raise InvalidRequest(f"a {type(self).__name__} is not evaluated")

    @property
    def variables(self) -> tuple[str, ...]:
        """Names by which a call may give the inputs, one array each."""
        return ()

    def of_names(self, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Inputs that name their variables, broadcast against each other; and the shape that the outputs take."""
        X = together(given)
        return self.of_columns(X.reshape(-1, X.shape[-1])), X.shape[:-1]

    def decode(self, outputs: Any, how: Any) -> Any:
        return outputs

    def columns(self, weights: Any) -> tuple[list[str], list[str]]:
        """Names of the columns of a table of inputs, one input per row, and of its outputs."""
        raise InvalidRequest(
            f"inputs of the kind {self.kind} are not rows of a table: give a file whose name ends in .json, "
            "which holds the arguments of a call as a list"
        )

    def of_columns(self, rows: Array) -> tuple[Any, ...]:
        """The inputs that the rows of such a table are."""
        return (rows,)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Any, ...]:
        raise InvalidRequest(f"no inputs of {self.text[:80]} can be drawn")

    @property
    def stream(self) -> int:
        """Seeds the draws at which models are measured."""
        return 1

    def sample_size(self, weights: Any) -> int:
        """How many draws weights are measured at."""
        return 20_000

    def same(self, other: Target) -> bool:
        """Whether two models may be compared."""
        return self.kind == other.kind and self.to_json() == other.to_json()

    def exact(self, *inputs: Any) -> Any:
        raise InvalidRequest(f"the truth of {self.text[:80]} is not computed")

    def errors(self, outputs: Any, wanted: Any) -> Array:
        """By entry; an entry whose truth is not finite counts as met."""
        found, truth = (np.asarray(one, dtype=np.float64).reshape(len(wanted), -1) for one in (outputs, wanted))
        with np.errstate(all="ignore"):
            gap = np.abs(found - truth)
        return np.where(np.isfinite(truth), np.where(np.isnan(gap), np.inf, gap), 0.0)

    def wrong(self, outputs: Any, wanted: Any) -> NDArray[np.bool_] | None:
        """Which decisions are wrong, where something is decided; `decided` says what."""
        return None

    decided: ClassVar[str] = ""

    def against(self, given: Any) -> Self:
        """This target, if `given` says the same, or the one to prove instead; InvalidRequest for another one."""
        raise InvalidRequest(f"a file of the kind {self.kind} is proved against what it holds: leave target out")

    def aimed(self, given: Any, domain: Any, lipschitz: float | None) -> Target:
        """This target: only functions are replaced, by a target or a text on a domain."""
        if any(one is not None for one in (given, domain, lipschitz)):
            raise InvalidRequest(f"{self.text:.60} is the target; leave any other, domain and lipschitz out")
        return self

    def absolute(self, fraction: float, dtype: str) -> tuple[float, Mapping[str, Any]]:
        """(eps, its witness) for an eps that is a fraction of the target's range."""
        raise InvalidRequest("an eps that is a fraction of a range is for functions only")

    def accepts(self, norm: float | str, relative: bool) -> None:
        """DamagedFile for a claim that this kind is never proved for."""
        if relative and "relative" not in self.norms:
            raise DamagedFile("the file says that its eps is a fraction of a range, which is for functions only")
        name = norm if isinstance(norm, str) else "sup" if norm == math.inf else "lp"
        if name not in self.norms:
            said = "another norm" if name == "lp" else f"the {name}"
            raise DamagedFile(f"the file says that it is about {said}, and its kind is about the {self.norms[0]} norm")

    def token_coordinates(self) -> tuple[str, ...]:
        """What a given token holds, where the inputs are written as tokens."""
        raise InvalidRequest(f"{self.text[:80]} is not written as tokens")

    def token_outputs(self) -> tuple[str, ...]:
        """What is read off a token."""
        raise InvalidRequest(f"{self.text[:80]} is not written as tokens")

    def completed(self, weights: Any) -> Self:
        """This target with what only the weights hold of it, as a long table; itself where they hold nothing."""
        return self

    def fits(self, weights: Any) -> str:
        """Why weights cannot be this target's, in words; empty where they can."""
        return ""


def settle(target: Target, values: Mapping[str, Any]) -> None:
    """For `__post_init__`: the fields as plain numbers and tuples, whatever was given."""
    for name, value in values.items():
        object.__setattr__(target, name, value)
