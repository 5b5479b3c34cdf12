"""TrilinearForm: the view of a ternary relation's model; what `ternary` returns."""

from functools import cached_property

from attnfun.certify.certificate import Certificate
from attnfun.kinds.relation.view import Ranked
from attnfun.kinds.ternary.target import Ternary
from attnfun.kinds.ternary.weights import Coefficients
from attnfun.language import Graph
from attnfun.language.domain import Box
from attnfun.network.head import Of
from attnfun.search import Goal, certified


class TrilinearForm(Ranked[Ternary]):
    """Σ_i a_i(x) b_i(y) c_i(z): `form(X, Y, Z)` for columns (n,) each; or three trained towers in its place."""

    graph, box = Of[Graph]("target"), Of[Box]("target")
    coefficients = Of[Coefficients]("weights")
    """Chebyshev coefficients (N, rank) of every side."""

    @property
    def error(self) -> float:
        """The proved bound, rounding included; of a form from a file it is proved when it is asked for."""
        return self._proof.error[1]

    @cached_property
    def _proof(self) -> Certificate:
        if self.certificate.verified:
            return self.certificate
        return certified(self.target, self.weights, Goal(self.request.get("eps")))
