"""`retrieve`: attention that picks the best key of a table by a utility, with what is proved of it; and its file."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate, Status
from attnfun.certify.relation import GIVEN
from attnfun.certify.retrieval import head_error, key_features, prove_by_retrieval
from attnfun.certify.retrieval_bounds import (
    RetrievalBound,
    beta_needed,
    check_count,
    retrieval_certificate,
)
from attnfun.certify.retrieval_margins import HYPOTHESIS, places_of, query_margin, query_margins
from attnfun.certify.stored import kept, read_back
from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.gate import Gate
from attnfun.network import Architecture, Cost, Network, evaluate, to_torch
from attnfun.network.features import Features
from attnfun.network.head import Array
from attnfun.network.retrieval import RetrievalWeights, key_vectors, require_size, retrieval_network
from attnfun.network.retrieval_file import StoredRetrieval, load_retrieval, save_retrieval
from attnfun.network.sealed import Source
from attnfun.relations import RelationApproximant, relation, stored_goal
from attnfun.retrieval_study import Study, quantile, stored_study, studied
from attnfun.targets import require_defined
from attnfun.targets.columns import Columns, columns
from attnfun.targets.relation import Relation

if TYPE_CHECKING:
    import torch

_BLOCK = 2_000_000  # scores at a time


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


@dataclass(frozen=True, eq=False)
class Retrieval:
    """A head over a table of keys: call it with queries (m, left variables) for outputs (m, columns of the values)."""

    relation: RelationApproximant
    weights: RetrievalWeights
    certificate: Certificate
    ids: tuple[str, ...] | None = None
    study: Study | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @cached_property
    def network(self) -> Network:
        """Query → output: plain softmax attention, the tower's layers and one more. Its inputs are the tower's."""
        return retrieval_network(self.relation.left.network, self.weights)

    @property
    def architecture(self) -> Architecture:
        return self.network.architecture

    @property
    def cost(self) -> Cost:
        """Of `network`; behind polynomials instead of a tower the head alone."""
        if not self.relation.features_only:
            return self.network.cost
        n, (rank, p) = self.weights.keys, (self.relation.rank, self.weights.values.shape[1])
        return Cost(1, 1, rank, n, n * (rank + p), rank, float(np.abs(self.weights.values).max()), n * (rank + p))

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """`network` as a torch module that runs scaled_dot_product_attention."""
        return to_torch(self.network, dtype)

    @property
    def beta(self) -> float:
        return self.weights.beta

    @cached_property
    def proof(self) -> Certificate:
        """What is proved of these weights: the certificate, or of a head from a file, whose certificate is only as
        stored, what the checker finds when a promise is asked for.
        """
        known = self.certificate.verified and self.certificate.bounds
        return self.certificate if known else _proved(self, self.request.get("eps"))

    @property
    def error(self) -> float:
        """e + κ/β: what scores, as the softmax sees them, may be off by."""
        return _score_error(self.proof, self.beta)

    def __call__(self, X: ArrayLike) -> NDArray[Any]:
        """(m, left variables) → (m, columns): Σ_j softmax_j V_j."""
        tower = self.relation.left
        if not self.relation.features_only:
            return np.asarray(evaluate(self.network, tower.inputs(X)))
        return np.concatenate([w @ self.weights.values for w in self._blocks(X)])

    def scores(self, X: ArrayLike) -> Array:
        """(m, left variables) → (m, n): what stands for the utilities."""
        return np.asarray(self.relation.left(X) @ self.weights.vectors.T) / self.beta

    def attention(self, X: ArrayLike) -> Array:
        """(m, left variables) → (m, n): the softmax weights."""
        return np.concatenate(list(self._blocks(X)))

    def top(self, X: ArrayLike) -> NDArray[np.int64]:
        """(m, left variables) → (m,): the key with the largest score."""
        return np.concatenate([np.argmax(w, axis=1) for w in self._blocks(X, logits=True)])

    def at(self, x: ArrayLike) -> Answer:
        """The key picked at one query and what is proved there; utilities are enclosed in balls."""
        point = Columns.given([x], "query", self.relation.target.left.names).values
        if self.bound is None:
            raise InvalidRequest("nothing is proved of this head: verify its file")
        key, weight = int(self.top(point)[0]), self.attention(point)[0]
        W = self.weights
        places = places_of(W.points, W.values)
        seen = query_margin(self.relation.target, point[0], W.points, places)
        low, high = float(seen.low[0]), float(seen.high[0])
        bound = self._bound(self.proof, low)
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
        return self._bound(self.proof, self._margin if self.proof is self.certificate else None)

    @property
    def _margin(self) -> float | None:
        return None if self.study is None else self.study.margins["0.5"]

    def _bound(self, found: Certificate, margin: float | None) -> RetrievalBound | None:
        error, spread = _score_error(found, self.beta), float(found.details.get("spread", math.inf))
        if not (math.isfinite(error) and math.isfinite(spread)):
            return None
        return retrieval_certificate(self.weights.keys, margin, error, self.beta, spread=spread, delta=self._delta)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Head, towers, utility, request, certificate and study in one safetensors file."""
        meta = {"method": self.relation.method, "rank_lower": self.relation.rank_lower}
        meta |= kept(self.request, self.certificate)
        if self.study is not None:
            meta["study"] = asdict(self.study)
        assert isinstance(self.relation.stored, Features)  # `retrieve` makes no other
        stored = StoredRetrieval(self.relation.stored, self.relation.towers, self.weights, self.ids)
        save_retrieval(path, self.relation.target.to_json(), stored, meta)

    def record(self) -> dict[str, Any]:
        """What `attnfun retrieve --json` prints; of a head from a file all is as stored, and `verified` is false."""
        certificate = self.certificate.to_json()
        bound, study = self._bound(self.certificate, self._margin), self.study
        out: dict[str, Any] = {name: certificate[name] for name in ("status", "verified", "error")}
        out |= {"error_low": certificate["error_low"], "eps": certificate["eps"], "rank": self.relation.rank}
        out |= {"rank_lower": self.relation.rank_lower, "keys": self.weights.keys, "duplicates": self.duplicates}
        out |= {"beta": self.beta, "output_error": self.certificate.details.get("output_error")}
        for name in ("tv", "regret", "softmax_regret", "winner_weight", "value_error", "margin"):
            out[name] = getattr(bound, name, None)
        if study is not None:
            out |= {"failure_probability": list(study.failure_interval), "confidence": study.confidence}
            out["study"] = {k: v for k, v in asdict(study).items() if k != "confidence"} | {"hypothesis": HYPOTHESIS}
        if "note" in self.request:
            out["note"] = self.request["note"]
        out |= {"features_only": self.relation.features_only, "method": self.relation.method}
        if not self.relation.features_only:
            cost = self.network.cost
            out |= {"layers": cost.layers, "heads": cost.heads, "parameters": cost.parameters}
        for name in ("target", "domain", "parts", "hypotheses", "reason"):
            out[name] = certificate[name]
        return {**out, "seconds": round(self.seconds, 3)}

    @cached_property
    def duplicates(self) -> int:
        """How many keys stand at the place of an earlier one, whatever their values: ties in every query they lead."""
        places = places_of(self.weights.points)
        return int(len(places) - len(np.unique(places)))

    @property
    def _delta(self) -> float:
        return float(self.request.get("delta", 1e-3))

    def _blocks(self, X: ArrayLike, logits: bool = False) -> Any:
        """Softmax weights (or logits) of blocks of queries."""
        phi = self.relation.left(X)
        step = max(1, _BLOCK // self.weights.keys)
        for start in range(0, max(len(phi), 1), step):
            own = phi[start : start + step] @ self.weights.vectors.T
            if not logits:
                own = np.exp(own - own.max(axis=1, keepdims=True))
                own /= own.sum(axis=1, keepdims=True)
            yield own


def retrieve(
    utility: Any,
    left: Any = None,
    right: Any = None,
    keys: Any = None,
    eps: float | None = None,
    *,
    values: Any = None,
    queries: Any = None,
    beta: float | None = None,
    delta: float = 1e-3,
    confidence: float = 0.95,
    symmetric: bool = False,
    signed: bool = False,
    method: str = "auto",
    features_only: bool = False,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Retrieval:
    """An attention head over `keys` whose scores are within `eps` of utility(x, key) for every query x, proved.

    `utility`: an expression of left (query) and right (key) variables, or what `relation` gave (then `left`, `right`,
    `eps` and the options of `relation` are left out). `keys`: an array (n, right variables) or the path of a CSV file
    whose header names the right variables; a column "id" names the keys, other columns are not read. `values`: what
    the head hands out, an array (n, p) or a CSV file (its columns but "id" and the right variables, so that one file
    may hold both); the keys' own coordinates unless given. `queries`: a number of uniform ones, an array or a CSV
    file, on which margins are enclosed: they serve the choice of beta and the failure probability, at `confidence`.
    `beta`, the inverse temperature: unless given the one that gives the best key the weight 1 − `delta` at the median
    margin; where that margin is not above twice the error there is none, and the request is refused with the eps that
    would do.
    """
    from attnfun.verbs import check_request, one_thread

    start = time.perf_counter()
    say = progress or (lambda _text: None)
    if keys is None:
        raise InvalidRequest("no keys: give an array (n, right variables) or the path of a CSV file")
    cold = 1.0 if beta is None else beta
    retrieval_certificate(2, 1.0, 0.0, cold, delta=delta, failures=0, queries=1, confidence=confidence)  # or refuse
    given = isinstance(utility, RelationApproximant)
    check_request(1.0 if given else math.nan if eps is None else eps, "float64", seed)
    if given:
        if (left, right, eps, method) != (None, None, None, "auto") or symmetric or signed or features_only:
            raise InvalidRequest("a built relation has its boxes, eps and options: leave them out")
        asked = utility.target
    else:
        asked = Relation.read(utility, left, right, symmetric)
    table, out, ids = _tables(asked, keys, values)
    sample, drawn = _queries(asked, queries, len(table.values), seed)
    if given:
        found = utility
    else:
        options: dict[str, Any] = {"symmetric": symmetric, "signed": signed}
        options["method"] = "polynomial" if method == "auto" else method  # a head is proved from polynomial features
        options |= {"features_only": features_only, "progress": progress, "accept": "proved"}
        found = relation(utility, left, right, float(eps or 0), **options)
    if found.band is not None or (found.towers is not None and found.towers[0].mlp):
        raise InvalidRequest("a head needs attention towers of a relation without a band")
    if not isinstance(found.stored, Features):
        raise Infeasible(f"method={found.method}: a head needs polynomial features", {"method": "polynomial"})
    require_size(len(table.values), found.rank)
    with one_thread(), _decided():
        say(f"margins at {len(sample):,} queries")
        places = places_of(table.values, out.values)
        margins = query_margins(asked, sample, table.values, places)
        features = key_features(asked, found.stored, found.core, table.values)
        seen = quantile(margins.low, 0.5)
        cold = float(beta) if beta is not None else _beta(asked, len(table.values), seen, found.certificate, delta)
        parts, goal = _parts(found)
        for attempt in range(4):
            say("the proof of the head")
            weights = RetrievalWeights(table.values, key_vectors(features, cold), out.values, cold, out.names)
            head = head_error(asked, found.stored, found.towers, weights, parts)
            needed = beta_needed(weights.keys, seen, head.error(cold), delta)
            if beta is not None or attempt == 3 or not cold < needed < math.inf:
                break
            cold = needed * (1 + 1e-9)
        certificate = prove_by_retrieval(asked, found.stored, found.towers, weights, goal, found.method, say, parts)
        if certificate.status not in (Status.PROVED, Status.CONDITIONAL):
            raise Infeasible(f"eps={goal} for a head over {weights.keys:,} keys was not proved: {certificate.reason}")
    request: dict[str, Any] = {"eps": goal, "delta": float(delta), "confidence": float(confidence), "seed": int(seed)}
    built = Retrieval(found, weights, certificate, ids, None, request)
    say("the sample of queries")
    share = float(delta), float(confidence)
    study = studied(found, weights, built.error, sample, drawn, margins, places, *share)
    if study.failures > len(sample) / 2:
        request["note"] = _too_coarse(seen, built.error)
    return Retrieval(found, weights, certificate, ids, study, request, time.perf_counter() - start)


def load_head(path: Source) -> Retrieval:
    """The retrieval head of a file; its certificate and study are the stored ones, not proved anew. What it promises
    (`error`, `bound`, `at`) is proved from its weights when it is asked for.
    """
    from attnfun.certify.relation import core_that_fits

    target, stored, rest = load_retrieval(path)
    asked = Relation.from_json(target)
    certificate, request, _ = read_back(rest, "float64", asked.text, asked.domain_text)
    core = core_that_fits(asked, stored.features)
    least, how = rest.get("rank_lower"), rest.get("method")
    found = RelationApproximant(
        asked,
        stored.features,
        stored.towers,
        core,
        certificate,
        least if type(least) is int else 0,
        how if isinstance(how, str) else "",
        request,
    )
    return Retrieval(found, stored.weights, certificate, stored.ids, stored_study(rest.get("study")), found.request)


def verify_head(path: Source, gate: Gate, progress: Callable[[str], None] | None = None) -> Certificate:
    """Prove the head again from the stored features, tower, keys and utility; no number of the certificate is read."""
    target, stored, rest = load_retrieval(path)
    asked, how = Relation.from_json(target), rest.get("method")
    eps, name = stored_goal(asked, rest, gate), how if isinstance(how, str) else ""
    return prove_by_retrieval(asked, stored.features, stored.towers, stored.weights, eps, name, progress)


def _proved(head: Retrieval, eps: float | None) -> Certificate:
    from attnfun.verbs import one_thread

    own = head.relation
    assert isinstance(own.stored, Features)
    require_defined(own.target.graph, own.target.joint)
    with one_thread():
        return prove_by_retrieval(own.target, own.stored, own.towers, head.weights, eps, own.method)


def _score_error(found: Certificate, beta: float) -> float:
    kernel = float(found.details.get("kernel", math.inf))
    return math.nextafter((found.error[1] + kernel / beta) * (1 + 1e-15), math.inf)


def _tables(asked: Relation, keys: Any, values: Any) -> tuple[Columns, Columns, tuple[str, ...] | None]:
    """Keys inside the right box, values as many as keys, and the keys' names."""
    table = columns(keys, "keys", asked.right.names)
    table.require_inside(asked.right)
    if values is None:
        return table, table, table.ids
    out = columns(values, "values", None, asked.right.names)
    if len(out.values) != len(table.values):
        raise InvalidRequest(f"{len(out.values):,} values for {len(table.values):,} keys: one row a key is needed")
    return table, out, table.ids or out.ids


def _queries(asked: Relation, queries: Any, keys: int, seed: int) -> tuple[Array, str]:
    """(m, left variables) queries and where they come from."""
    if queries is None:
        queries = max(100, min(2000, 8_000_000 // keys))
    if isinstance(queries, (int, np.integer)):
        count = check_count("queries", queries, 1)
        return asked.left.sample(count, np.random.default_rng(seed)), f"uniform in {asked.left.text}"
    table = columns(queries, "queries", asked.left.names)
    table.require_inside(asked.left)
    return table.values, "as given; the interval holds if they were drawn independently"


@contextmanager
def _decided() -> Iterator[None]:
    """What cannot be proved cannot be had."""
    try:
        yield
    except Undecided as why:
        raise Infeasible(f"a head over these keys cannot be proved: {why}") from None


def _parts(found: RelationApproximant) -> tuple[Any, float]:
    from attnfun.certify.relation import parts_that_fit

    assert isinstance(found.stored, Features)
    goal = float(found.request.get("eps", found.certificate.error[1]))
    return parts_that_fit(found.target, found.stored, goal), goal


def _beta(asked: Relation, keys: int, margin: float, certificate: Certificate, delta: float) -> float:
    """The inverse temperature for the median margin, or a refusal with the eps that would do."""
    error = certificate.error[1]
    needed = beta_needed(keys, margin, error, delta)
    if math.isfinite(needed):
        return needed if needed > 0 else 1.0
    nearest = {"eps": float(f"{margin / 4:.1e}")} if margin > 0 else {"beta": float(f"{1 / error:.1e}")}
    raise Infeasible(f"{asked.text[:120]}: {_too_coarse(margin, error)}, so no beta singles out the best key", nearest)


def _too_coarse(margin: float, error: float) -> str:
    if margin > 0:
        return f"half of the queries have margins of at most {margin:.3g}, and the scores are off by up to {error:.3g}"
    return "half of the queries have no best key (a margin of 0)"
