"""SetApproximant: the view of a set function's model, what `set_function`, `train` and `load` return; its words.

Networks on sets are trained as those of the sequence map of their form, on tokens that are of a set.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from attnfun.diagnosis.subject import Subject
from attnfun.kinds.sequence.lesson import taught
from attnfun.kinds.sequence.view import SequenceApproximant
from attnfun.kinds.sequence.view import subjects as of_sequence
from attnfun.kinds.set.analysis import SetAnalysis, analyse
from attnfun.kinds.set.network import Form, SetNetwork
from attnfun.kinds.set.pattern import sequence_map
from attnfun.kinds.set.target import SetFunction, pair_tokens
from attnfun.learn.lesson import Ask, Lesson
from attnfun.model import Model, Of
from attnfun.network.head import Array


class SetApproximant(Model[SetFunction, SetNetwork]):  # type: ignore[type-var]  # mypy sees no `Of`
    """A network on sets of n points: `net(X)` for a set (n, d), or for (batch, n, d).

    `network` is that of `sequence`.
    """

    network = Of[Any]("sequence")

    @property
    def method(self) -> str:
        """elements, power-sums or pairs."""
        return self.weights.form

    @cached_property
    def analysis(self) -> SetAnalysis:
        """How many features DeepSets needs for the target, and whether pairs pay."""
        return analyse(self.target)[0]

    @cached_property
    def sequence(self) -> SequenceApproximant:
        """The model of the sequence map of its form, on the tokens of a set; what is proved of sets is said of it."""
        form = sequence_map(self.target, self.weights.form)
        by = str(self.story.get("stages", self.certificate.construction))
        said = self.certificate
        certificate = replace(said, target=form.text, domain=form.domain, construction=by, witness=None)
        return SequenceApproximant(form, self.weights.sequence, certificate, self.request, {"construction": by})


def explain(model: SetApproximant) -> str:
    """In words: what DeepSets needs, what was built and what is proved."""
    a, n = model.analysis, model.target.points
    lines = [f"{model.target.text}  for sets of {n} points in  {model.target.box.text}"]
    lines.append(f"{a.verdict[0].upper()}{a.verdict[1:]} ({a.note}).")
    tokens = f"{n}² tokens, one per pair" if model.weights.pairs else "one token per element"
    lines.append(f"Method {model.method}: {tokens}.")
    lines += [
        f"{key}: {value}" for key, value in model.story.items() if key not in ("construction", "stages", "training")
    ]
    return "\n".join([*lines, model.sequence.explain()])


def record(model: SetApproximant) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    tokens = model.target.points ** (2 if model.weights.pairs else 1)
    return {"points": model.target.points, "tokens": tokens, "analysis": model.analysis.to_json()}


def subjects(model: SetApproximant, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """What `diagnose` looks at: the same as in the model of its sequence map."""
    return of_sequence(model.sequence, eps)


def lesson(_given: Any, ask: Ask[SetFunction]) -> Lesson:
    """The shape of a model, with its form, or one given alone, with the form of `token_coordinates`."""
    target = ask.target
    own: SetNetwork | None = None if ask.source is None else ask.source.weights
    form: Form = own.form if own is not None else "pairs" if target.has_pairs else "elements"

    def drawn(rng: np.random.Generator, count: int) -> Array:
        (sets,) = target.draw(rng, count)
        return pair_tokens(sets) if form == "pairs" else sets

    return taught(target, sequence_map(target, form), own, ask, drawn, lambda sequence: SetNetwork(form, sequence))
