"""Method *retrieval*: a softmax head over stored keys against the softmax of the utilities, for every query of the box.

Statement. For the stored relation u(x, y), stored features φ, ψ with the left tower φ̂, stored keys y_j, vectors K_j,
values V_j and β: for every x of the left box and every key, |⟨φ̂(x), K_j⟩/β − u(x, y_j)| ≤ e as computed, and the
output computed by any route is within tanh((βe + κ)/2) spread + (sums) of Σ_j softmax_j(β u(x, y_j)) V_j.

| symbol | meaning |
| --- | --- |
| E | ≥ sup |u − ⟨φ, ψ⟩| on both boxes (`relation`) |
| η_i, a_i | ≥ |φ̂_i as computed − φ_i|, ≥ |φ_i| (`towers`; without towers the polynomials' own rounding) |
| θ_ji | ≥ |K_ji/β − ψ_i(y_j)|: the stored vectors against the stored features, at the keys themselves |
| κ | what subtracting a maximum and exp do to a logit |

**Score.** ⟨φ̂, K_j/β⟩ − ⟨φ, ψ(y_j)⟩ = ⟨φ̂ − φ, K_j/β⟩ + ⟨φ, K_j/β − ψ(y_j)⟩, so it is at most
Σ_i η_i |K_ji|/β + Σ_i a_i θ_ji. Reading φ̂ from the stream is what the tower's own read-out does, and η counts it. The
inner product of r terms, with a bias 0 and a constant coordinate in some forms, adds γ_{r+4} Σ_i (a_i + η_i)|K_ji| to
the logit, and (2r + 8) least positive numbers by underflow. e = E + the largest over j of these three, the last by β.
ψ_i(y_j) is computed by `Features.side`, whose rounding (`side_errors`) is part of θ.

**Softmax.** Model and constants of `rounding`, steps 3 to 5: a maximum, possibly a running one, is subtracted
(2u · gap; past a gap of 720 a key has vanished, n e^−700 of the mass in all), exp errs by 4 ulp, once more for every
further 64 keys: κ. All of it multiplies weights by e^{±(βe + κ)}, so the total variation distance is at most
tanh((βe + κ)/2) (`prove_bounds`), and an average moves by that times the spread of its values. Numerator and
denominator are summed in any order and divided: 2g/(1 − g) max|V|, g = γ_{n+24+…}. The read-out multiplies by 1.

No route but dense applies: without biases all lines of a head of rank 1 cross in one point, and windows need order.

Everything else (winner weight, regret, β) is `prove_bounds` with the error e + κ/β. Nothing is assumed of the
vectors: were they another relation's, θ would show it. Where features are functions of u(x) and v(y),
|g(ũ, v') − g(u, v)| for u as a network computes it and v as NumPy does is added to e (`inner`).

Failure modes: Undecided where the relation is, where a logit may overflow, and for keys outside the right box.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.certify.rounding import LARGEST, ROUNDOFF, TINY, VANISH, gamma, hypotheses, kernel_move
from attnfun.certify.verdict import Proof, above, undecided
from attnfun.certify.view import Undecided, provided
from attnfun.errors import AttnfunError
from attnfun.kinds.relation.core import Core
from attnfun.kinds.relation.features import Features
from attnfun.kinds.relation.form import Towers
from attnfun.kinds.relation.prove import require_continuous
from attnfun.kinds.relation.prove_features import Parts, construction_error, side_errors
from attnfun.kinds.relation.prove_inner import inner_part, numpy_part
from attnfun.kinds.relation.prove_polynomials import GIVEN, LIBM, NUMPY, parts_that_fit
from attnfun.kinds.relation.prove_towers import tower_errors
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.witness import Seen, witnessed
from attnfun.kinds.retrieval.prove_bounds import RetrievalBound, retrieval_certificate
from attnfun.kinds.retrieval.target import Lookup, blocks
from attnfun.kinds.retrieval.weights import RetrievalWeights
from attnfun.language import precision
from attnfun.language.enclosures import arb
from attnfun.search import Goal, Say

_U, _TINY = ROUNDOFF["float64"], TINY["float64"]
_GAP = 720.0
_ROWS = 4_000_000  # entries of key vectors looked at together


@dataclass(frozen=True)
class HeadError:
    """What is proved of a head: `score` = e, `kernel` = κ (of logits), `sums` (of outputs), `spread` of the values."""

    score: float
    kernel: float
    sums: float
    spread: float
    parts: dict[str, float]
    assumed: tuple[str, ...] = ()

    def error(self, beta: float) -> float:
        """e + κ/β, rounded up: what the formulas of `prove_bounds` take as the error of the scores."""
        return math.nextafter((self.score + self.kernel / beta) * (1 + 4 * _U), math.inf)

    def bound(self, keys: int, beta: float) -> RetrievalBound:
        """The formulas for this head."""
        return retrieval_certificate(keys, None, self.error(beta), beta, spread=self.spread)

    def output_error(self, keys: int, beta: float) -> float:
        """|output as computed − output of the exact softmax|, in every coordinate."""
        return math.nextafter((self.bound(keys, beta).softmax_error + self.sums) * (1 + 4 * _U), math.inf)


def proof(target: Lookup, weights: Any, goal: Goal, say: Say) -> Proof:
    """What is proved of a stored head: the error is that of its scores, `details` has what follows for its output.

    Without towers it is about features computed as polynomials, and says so; of towers the left one is in the head.
    """
    if not isinstance(weights, RetrievalWeights):
        return undecided("the proof of a head needs the features behind its tower and keys; trained weights have none")
    relation, features, towers = target.utility, weights.relation.features, weights.relation.towers
    try:
        require_continuous(relation)
        say("the bound of the features")
        parts = parts_that_fit(relation, features, goal.eps)
        say("the bound of the head")
        found = head_error(relation, weights, parts)
    except (Undecided, AttnfunError) as why:
        return undecided(why, "retrieval")
    n, beta = weights.keys, weights.beta
    bound = found.bound(n, beta)
    low, at = _witness(relation, weights, parts.core)
    libm = any(e.libm for e in parts.expansions)
    details: dict[str, Any] = {"keys": n, "beta": beta, "tv": bound.tv, "output_error": found.output_error(n, beta)}
    details |= {"regret": bound.regret, "softmax_regret": bound.softmax_regret}
    details |= {"spread": found.spread, "kernel": found.kernel, "sums": found.sums}
    if towers is None:
        details["features_only"] = True
    return Proof(
        "retrieval",
        found.score,
        min(low, found.score),
        parts=found.parts,
        hypotheses=tuple(dict.fromkeys((*hypotheses("float64"), *found.assumed, *((LIBM,) if libm else ())))),
        witness=None if at is None else tuple(float(v) for v in at),
        details={k: v for k, v in details.items() if not isinstance(v, float) or math.isfinite(v)},
        conditional=GIVEN in found.assumed,
        reason=f"of the scores {above(found.score, goal.eps)}",
    )


def head_error(relation: Relation, weights: RetrievalWeights, parts: Parts) -> HeadError:
    """e, κ and what sums lose; raises Undecided."""
    features, towers = weights.relation.features, weights.relation.towers
    n, rank, beta = weights.keys, features.rank, weights.beta
    Y, K = weights.points, weights.vectors
    provided(Y.shape[1] == relation.right.dim, "the keys do not fit the relation")
    provided(relation.right.contains(Y).all(), "a key lies outside the domain of the relation")
    construction, _, _ = construction_error(parts, features)
    below, assumed = _inner(relation, features, towers, parts)
    if towers is None:
        eta, a = side_errors(features, "left")
    else:
        eta, a = tower_errors(features, "left", towers[0], parts.core.left.names)
    off, _ = side_errors(features, "right")
    carried, dot = 0.0, 0.0
    safe = 1 + (4 * rank + 32) * _U
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in blocks(n, rank, _ROWS):
            psi = weights.relation.at(relation, 1, Y[rows])
            size = np.abs(K[rows])
            ratio = K[rows] / beta
            theta = np.abs(ratio - psi) + 2 * _U * (np.abs(ratio) + np.abs(psi)) + off + 4 * _TINY
            score = (np.abs(ratio) + 2 * _TINY) @ eta + theta @ a
            carried = _larger(carried, float(np.max(score)))
            dot = _larger(dot, float(np.max(size @ (a + eta))))
        lost = (gamma(rank + 4, _U) * dot + (2 * rank + 8) * _TINY) * safe
        carried *= safe
        total = (construction + below + carried + lost / beta * (1 + 4 * _U)) * (1 + 8 * _U)
    V = weights.values
    largest = float(np.abs(V).max())
    fits = all(size < LARGEST["float64"] for size in (dot * safe, n * largest, float((a + eta).max())))
    provided(fits and math.isfinite(total), "the scores of the head are not bounded, or a logit may overflow")
    gap = min(_GAP, 2 * dot * safe + 2 * lost)
    kernel = (kernel_move(n, "float64") + 2 * _U * gap) * (1 + 1e-9) if n > 1 else 0.0
    spread = math.nextafter(float((V.max(axis=0) - V.min(axis=0)).max()), math.inf) if n > 1 else 0.0
    g = gamma(n + V.shape[1] + 32, _U)
    gone = 2 * n * VANISH["float64"] * spread + (8 * n + 64) * _TINY
    sums = 2 * g / (1 - g) * largest + gone if g < 0.5 else math.inf
    provided(math.isfinite(sums) and math.isfinite(spread), "the sums of the head are not bounded")
    named = {"features": construction, "tower and keys": carried, "rounding": lost / beta}
    if below:
        named["inner functions"] = below
    return HeadError(float(total), kernel, sums * (1 + 1e-9), spread, named, assumed)


def _inner(
    relation: Relation, features: Features, towers: Towers | None, parts: Parts
) -> tuple[float, tuple[str, ...]]:
    """(what computing u(x) and v(y_j) costs, on what that rests).

    v(y_j) is computed by NumPy, and u(x) by the network below the tower, or without towers by NumPy too (`inner`).
    """
    if not parts.core.composed:
        return 0.0, ()
    if towers is not None and towers[0].inner is None:
        return 0.0, (GIVEN,)
    try:
        keys = numpy_part(relation, parts.core)
    except Undecided:
        return 0.0, (GIVEN,)
    if towers is None:
        return keys, (NUMPY,)
    below, assumed = inner_part(relation, features, towers, parts.core, lambda _text: None)
    return (below + keys) * (1 + 4 * _U), (*assumed, NUMPY)


def _larger(one: float, other: float) -> float:
    """The larger of two bounds; NaN is not a bound."""
    return max(one, other) if other == other else math.inf


def _witness(relation: Relation, weights: RetrievalWeights, core: Core) -> Seen:
    """(low, (x, y_j)): a score of this machine and a proved distance of it from the utility; 0 where u, v are given."""
    if core.composed:
        return 0.0, None
    few = np.unique(np.linspace(0, weights.keys - 1, 256).astype(int))
    count = max(16, min(400, 4_000_000 // (weights.relation.rank + len(few))))
    X = relation.left.probe(count, np.random.default_rng(0))
    logits = weights.relation.values(0, X) @ weights.vectors[few].T
    Y = weights.points[few]
    error = np.abs(logits / weights.beta - relation.table(X, Y))
    i, j = np.unravel_index(int(np.argmax(np.where(np.isfinite(error), error, -1.0))), error.shape)
    with precision(128):
        score = arb(float(logits[i, j])) / arb(weights.beta)
    return witnessed(relation.graph, relation.joint.names, np.r_[X[i], Y[j]][None], [score])
