"""Retrieval: the view of a head over a table; what `retrieve` returns."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify.certificate import Certificate
from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.prove_polynomials import GIVEN
from attnfun.kinds.relation.view import RelationApproximant
from attnfun.kinds.retrieval.columns import Columns
from attnfun.kinds.retrieval.prove_bounds import RetrievalBound, retrieval_certificate
from attnfun.kinds.retrieval.prove_margins import places_of, query_margin
from attnfun.kinds.retrieval.study import Study, stored_study
from attnfun.kinds.retrieval.target import Lookup
from attnfun.kinds.retrieval.weights import RetrievalWeights
from attnfun.model import Model
from attnfun.network import Network
from attnfun.network.head import Array, Of
from attnfun.search import Goal, certified, one_thread


@dataclass(frozen=True, eq=False)
class Answer:
    """One query: the key that was picked, and what is proved there. `proved`: it is the best key by the utility."""

    key: int
    id: str | None
    proved: bool
    weight: float
    margin: tuple[float, float]
    bound: RetrievalBound
    output: Array


class Retrieval(Model[Lookup, Any]):
    """A head over a table of keys: `head(X)` for queries (m, left variables) → (m, columns of the values)."""

    @cached_property
    def network(self) -> Network:
        """Query → output: plain softmax attention, the tower's layers and one more. Its inputs are the tower's."""
        own: Network = self.weights.network
        if isinstance(self.weights, RetrievalWeights):
            return replace(own, inputs=self.weights.relation.tower(self.target.utility, 0).inputs)
        return own

    @property
    def relation(self) -> RelationApproximant:
        """The relation behind a constructed head."""
        own = self.weights.relation
        return RelationApproximant(self.target.utility, own, self.certificate, self.request, self.story)

    ids, beta = Of[tuple[str, ...] | None]("weights"), Of[float]("weights")

    @cached_property
    def study(self) -> Study | None:
        """What the sample of queries showed."""
        return stored_study(self.story.get("study"))

    @cached_property
    def proof(self) -> Certificate:
        """What is proved of these weights: the certificate, or of a head from a file, whose certificate is only as
        stored, what the checker finds when a promise is asked for.
        """
        if self.certificate.verified and self.certificate.bounds:
            return self.certificate
        with one_thread():
            name = self.story.get("construction", "")
            return certified(self.target, self.weights, Goal(self.request.get("eps")), str(name))

    @property
    def error(self) -> float:
        """e + κ/β: what scores, as the softmax sees them, may be off by."""
        return score_error(self.proof, self.beta)

    def exact(self, X: ArrayLike) -> NDArray[np.float64]:
        """The target itself: the softmax of the utilities, at the table's beta."""
        return self.target.exact(self.target.queries(X))

    def scores(self, X: ArrayLike) -> Array:
        """(m, left variables) → (m, n): what stands for the utilities."""
        return np.concatenate(list(self.weights.logits(self._inputs(X)))) / self.beta

    def attention(self, X: ArrayLike) -> Array:
        """(m, left variables) → (m, n): the softmax weights."""
        return np.concatenate(list(self.weights.weighed(self._inputs(X))))

    def top(self, X: ArrayLike) -> NDArray[np.int64]:
        """(m, left variables) → (m,): the key with the largest score."""
        return np.asarray(self.weights.top(self._inputs(X)))

    def _inputs(self, X: ArrayLike) -> Array:
        (inputs, _), _ = self.target.encode(self.weights, X)
        return inputs

    def at(self, x: ArrayLike) -> Answer:
        """The key picked at one query and what is proved there; utilities are enclosed in balls."""
        point = Columns.given([x], "query", self.target.utility.left.names).values
        if self.bound is None:
            raise InvalidRequest("nothing is proved of this head: verify its file")
        key, weight = int(self.top(point)[0]), self.attention(point)[0]
        W = self.weights
        places = places_of(W.points, W.values)
        seen = query_margin(self.target.utility, point[0], W.points, places)
        low, high = float(seen.low[0]), float(seen.high[0])
        bound = self.promised(self.proof, low)
        assert bound is not None
        mine = places == places[key]
        proved = bool(low > 2 * self.error) and bool(mine[seen.best[0]]) and GIVEN not in self.proof.hypotheses
        name = None if self.ids is None else self.ids[key]
        return Answer(key, name, proved, float(weight[mine].sum()), (low, high), bound, self(point)[0])

    @property
    def bound(self) -> RetrievalBound | None:
        """What holds for every query, and, at the median margin of the study, for the winner; None if unproved.

        The margin of a study that a file holds is not verified: nothing is said of the winner then.
        """
        return self.promised(self.proof, self.median_margin if self.proof is self.certificate else None)

    @property
    def median_margin(self) -> float | None:
        """That of the study."""
        return None if self.study is None else self.study.margins["0.5"]

    def promised(self, found: Certificate, margin: float | None) -> RetrievalBound | None:
        """What a certificate of these weights comes to at a margin; None where it bounds nothing."""
        error, spread = score_error(found, self.beta), float(found.details.get("spread", math.inf))
        if not (math.isfinite(error) and math.isfinite(spread)):
            return None
        delta = float(self.request.get("delta", 1e-3))
        return retrieval_certificate(self.weights.keys, margin, error, self.beta, spread=spread, delta=delta)

    @cached_property
    def duplicates(self) -> int:
        """How many keys stand at the place of an earlier one, whatever their values: ties in every query they lead."""
        places = places_of(self.weights.points)
        return int(len(places) - len(np.unique(places)))


def score_error(found: Certificate, beta: float) -> float:
    kernel = float(found.details.get("kernel", math.inf))
    return math.nextafter((found.error[1] + kernel / beta) * (1 + 1e-15), math.inf)
