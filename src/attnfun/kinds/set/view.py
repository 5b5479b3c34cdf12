"""SetApproximant: the view of a set function's model; what `set_function`, `train` and `load` return."""

from dataclasses import replace
from functools import cached_property
from typing import Any

from attnfun.kinds.sequence.view import SequenceApproximant
from attnfun.kinds.set.analysis import SetAnalysis, analyse, sequence_map
from attnfun.kinds.set.network import SetNetwork
from attnfun.kinds.set.target import SetFunction
from attnfun.model import Model, Of


class SetApproximant(Model[SetFunction, SetNetwork]):
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
