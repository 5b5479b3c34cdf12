"""Retrieval: the view of a head over a table; what is said of it, how it is trained, and what `diagnose` looks at.

What a sample of queries shows of a retrieval head: margins, failures with confidence, and what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify.certificate import Certificate
from attnfun.diagnosis.plain import POINTS
from attnfun.diagnosis.subject import Subject
from attnfun.errors import DamagedFile, InvalidRequest, require
from attnfun.kinds.relation.prove_polynomials import GIVEN
from attnfun.kinds.relation.view import Found, RelationApproximant, told, tower_features
from attnfun.kinds.retrieval.prove_bounds import (
    HYPOTHESIS,
    Margins,
    RetrievalBound,
    beta_needed,
    clopper_pearson,
    places_of,
    query_margin,
    retrieval_certificate,
)
from attnfun.kinds.retrieval.target import Columns, Lookup, blocks
from attnfun.kinds.retrieval.weights import RetrievalWeights, TableHead, TrainedHead
from attnfun.language.brief import Brief
from attnfun.learn.lesson import Ask, Lesson
from attnfun.model import Model
from attnfun.network import Network
from attnfun.network.head import Array, Of, softmax
from attnfun.search import Goal, certified, one_thread


@dataclass(frozen=True, eq=False)
class Answer(Brief):
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
        require(self.bound is not None, "nothing is proved of this head: verify its file")
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


def explain(model: Retrieval) -> str:
    """In words: what it is, and what is proved or was seen of it."""
    cost, made = model.cost, "Trained" if model.trained else "Built"
    below = "a tower and a head" if model.weights.networks else "polynomial features and a head"
    about = f"{model.target.text}  on  {model.target.domain}, {model.weights.keys:,} keys"
    built = f"{made}: {below} over the table, {cost.layers} layer(s), {cost.heads} head(s), "
    built += f"{cost.parameters:,} parameters; beta {model.beta:.4g}."
    return "\n".join([about, built, told(model.certificate, "scores are within {} of the utilities, for every query")])


def record(model: Retrieval) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes; of a head from a file all is as stored."""
    bound, study = model.promised(model.certificate, model.median_margin), model.study
    out: dict[str, Any] = {}
    if isinstance(model.weights, RetrievalWeights):
        out = {"rank": model.relation.rank, "rank_lower": model.relation.rank_lower}
    out |= {"keys": model.weights.keys, "duplicates": model.duplicates, "beta": model.beta}
    out |= {"features_only": not model.weights.networks}
    out["output_error"] = model.certificate.details.get("output_error")
    for name in ("tv", "regret", "softmax_regret", "winner_weight", "value_error", "margin"):
        out[name] = getattr(bound, name, None)
    if study is not None:
        out |= {"failure_probability": list(study.failure_interval), "confidence": study.confidence}
        out["study"] = {k: v for k, v in asdict(study).items() if k != "confidence"} | {"hypothesis": HYPOTHESIS}
    return out | ({"note": model.request["note"]} if "note" in model.request else {})


def subjects(model: Retrieval, eps: float | None) -> Found:
    """The tower, judged by the features that it stands for, and the head, which picks."""
    weights, utility = model.weights, model.target.utility
    built = isinstance(weights, RetrievalWeights)
    about = f"{utility.text}, a {'' if built else 'trained '}head over {weights.keys:,} stored keys"
    if not weights.networks:
        return about, [], ["The head stands behind polynomials, not behind a tower: it is not a network to look at."]
    X = weights.reading(utility)(utility.left.probe(POINTS, np.random.default_rng(45)))
    if not built:
        return about, [Subject("", model.network, X, eps=eps)], []
    asked = eps if eps is not None else model.certificate.eps
    meets = float(np.abs(weights.vectors / model.beta).sum(axis=1).max())
    share = None if asked is None else asked / max(meets, 1e-300)
    features = tower_features(weights.relation, utility, 0)
    below = Subject("tower", model.relation.left.network, X, features, eps=share)
    return about, [below, Subject("", model.network, X, picks=frozenset({"retrieve"}))], []


def lesson(given: Any, ask: Ask[Lookup]) -> Lesson:
    """The tower, the query map and the key vectors of a head, towards the softmax of the utilities."""
    from attnfun.kinds.retrieval.torch_lookup import LookupProblem

    ask.no_noise()
    ask.no_towers()
    target, own = ask.target, ask.weights_of(given)
    require(own.networks, "this head stands behind features and no tower: leave features_only out to have a network")
    problem = LookupProblem(target, own, own.network)
    if ask.start == "random":
        problem = replace(problem, origin=problem.random(ask.recipe.seed))
    elif isinstance(ask.start, TableHead) and ask.start is not own:
        fits = ask.start.networks and problem.architecture.holds(ask.start.network.architecture)
        require(fits, "the start is not a network of the architecture to be trained")
        problem = replace(problem, origin=problem.taken(ask.start.network))
    elif ask.start is not own:
        raise InvalidRequest(f"start={ask.start!r:.60}: random, constructed, or a head over the same table is needed")

    def weights(found: Network) -> TrainedHead:
        return TrainedHead(own.points, own.values, own.beta, own.ids, found, problem.architecture, problem.reads)

    return Lesson(target, problem, weights)


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Study(Brief):
    """What a sample of queries shows. Margins are enclosed, intervals have the confidence; `measured` is not a bound.

    `failures` queries have a margin that is not proved to be above twice the error: there the best key may be missed.
    `served` queries have a proved winner weight of 1 − delta or more. Both intervals are about the distribution that
    the queries were drawn from, independently: `drawn` says which.
    """

    queries: int
    drawn: str
    margins: Mapping[str, float]
    betas: Mapping[str, float | None]
    failures: int
    failure_interval: tuple[float, float]
    served: int
    served_interval: tuple[float, float]
    confidence: float
    delta: float
    measured: Mapping[str, float]


def quantile(margins: Array, q: float) -> float:
    """A margin that at least 1 − q of the queries have."""
    return float(np.quantile(margins, q, method="lower"))


def studied(head: Any, X: Array, drawn: str, margins: Margins) -> Study:
    """The study of a head at queries X whose margins are known; `delta` and `confidence` are those of its request."""
    relation, weights, error = head.target.utility, head.weights, head.error
    delta, confidence = head.request["delta"], head.request["confidence"]
    n, beta, total, places = weights.keys, weights.beta, len(X), places_of(weights.points, weights.values)
    failures = total - int(np.count_nonzero(margins.low > 2 * error * (1 + 1e-15)))
    enough = 0.0
    if n > 1:  # w ≥ 1 − δ iff β(m − 2e) ≥ log((n−1)(1−δ)/δ), rounded up
        lead = math.log((n - 1) * (1 - delta) / delta) / beta
        enough = lead + 1e-12 * abs(lead) + 2 * error * (1 + 1e-12)
    served = int(np.count_nonzero(margins.low >= enough))
    quantiles = {f"{q:g}": quantile(margins.low, q) for q in QUANTILES}
    betas = {k: beta_needed(n, m, error, delta) for k, m in quantiles.items()}
    wrong, regret, moved = 0, 0.0, 0.0
    for rows in blocks(total, n):
        true = relation.table(X[rows], weights.points)
        logits = weights.relation.values(0, weights.reading(relation)(X[rows])) @ weights.vectors.T
        chosen, best = np.argmax(logits, axis=1), np.argmax(true, axis=1)
        lost = true.max(axis=1) - np.take_along_axis(true, chosen[:, None], 1)[:, 0]
        wrong += int(np.count_nonzero((places[chosen] != places[best]) & (lost > 0)))
        regret = max(regret, float(lost.max()))
        gap = np.abs(softmax(logits) - softmax(beta * true)).sum(axis=1) / 2
        moved = max(moved, float(gap.max()))
    return Study(
        queries=total,
        drawn=drawn,
        margins=quantiles,
        betas={k: v if math.isfinite(v) else None for k, v in betas.items()},
        failures=failures,
        failure_interval=clopper_pearson(failures, total, confidence),
        served=served,
        served_interval=clopper_pearson(served, total, confidence),
        confidence=confidence,
        delta=delta,
        measured={"wrong_top1": wrong / total, "regret": regret, "tv": moved},
    )


def stored_study(data: Any) -> Study | None:
    """The study that a file holds."""
    if data is None:
        return None
    try:
        made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return Study(**made)
    except (TypeError, AttributeError):
        raise DamagedFile("the stored study cannot be read") from None
