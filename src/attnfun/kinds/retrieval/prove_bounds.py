"""What a softmax over n keys can promise when its scores are off by at most e: the formulas, rounded outward.

| symbol | meaning |
| --- | --- |
| a_j, â_j | true utility of key j and the score in its place, |â_j − a_j| ≤ e for all j |
| β, w_j | inverse temperature; w = softmax(β â) |
| * , m | the best key by a, and the margin a_* − max_{j≠*} a_j |
| spread | largest minus least value, coordinate by coordinate; the largest of these |

Statements, each attained by some scores and so not improvable from (n, m, e, β) alone except where it says so:

*winner*: w_* ≥ 1/(1 + (n−1) e^{−β(m−2e)}), for â_* − â_j ≥ (a_* − e) − (a_j + e) ≥ m − 2e. Equality: â_* = a_* − e,
every other key at a_* − m with score e above. So β ≥ log((n−1)(1−δ)/δ)/(m−2e) gives w_* ≥ 1 − δ, and the output,
an average with weight w_* on v_*, is within (1 − w_*) spread of v_*.

*regret*: the key ĵ of the largest score has a_* − a_ĵ ≤ (â_* + e) − (â_ĵ − e) ≤ 2e. For the softmax
β Σ w_j â_j + H(w) = log Σ e^{β â_j} ≥ β max â with the entropy H(w) ≤ log n, so Σ w_j (a_* − a_j) ≤ 2e + log(n)/β
(not attained: the entropy is largest where nothing is lost).

*distribution*: TV(softmax(βâ), softmax(βa)) ≤ tanh(βe/2). The log-odds of a set S of keys move by at most 2βe, from s
to s + 2βe at most, and σ(s + 2βe) − σ(s) is largest for s = −βe, where it is tanh(βe/2). Equality: two keys,
a = (−e/2, e/2), â = (e/2, −e/2). The output moves by at most TV times the spread.

*failure*: the best key may be missed only where m ≤ 2e. For n ≥ 2 independent uniform utilities that has probability
1 − (1 − 2e)^n: the gap below the largest of n uniform points exceeds t with probability (1 − t)^n. For queries drawn
independently from any distribution, k failures among N give the interval of Clopper and Pearson (1934), which holds the
probability with at least the confidence that was asked for; its ends come from SciPy and are then checked in balls,
I_p(k, N−k+1) ≤ α/2 and 1 − I_p(k+1, N−k) ≤ α/2, and moved outward until they pass.

Margins: by how much the best key leads at given queries, enclosed.

The margin at x is u(x, y_*) − max u(x, y_j) over the keys at another place than the best one; `places` numbers them, so
that copies of one key (equal key, equal value) do not stand against each other. At one query utilities are balls
(`query_margin`); at many they are float64 intervals rounded outward (`query_margins`), which rest on NumPy's elementary
functions being within 4 units in the last place.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest, require
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.retrieval.target import blocks
from attnfun.language import Array, BallAlgebra, precision, run
from attnfun.language.brief import Brief
from attnfun.language.enclosures import arb, lower, lowers, point_balls, upper, uppers
from attnfun.language.intervals import Interval, IntervalAlgebra
from attnfun.language.numbers import number, positive, whole_number

_BITS = 160


@dataclass(frozen=True)
class RetrievalBound(Brief):
    """Bounds for attention over `keys` keys; `winner_weight` and `value_error` need the margin, the rest nothing.

    `winner_weight` is a lower bound, all others are upper bounds. `softmax_error` is the distance from the output of
    the exact utilities' softmax, `value_error` that from the best key's own value.
    """

    keys: int
    error: float
    beta: float
    spread: float
    regret: float
    softmax_regret: float
    tv: float
    softmax_error: float
    delta: float
    margin: float | None = None
    winner_weight: float | None = None
    value_error: float | None = None
    beta_needed: float | None = None
    failure_uniform: float = 0.0
    failures: int | None = None
    queries: int | None = None
    failure_interval: tuple[float, float] | None = None
    confidence: float | None = None


def retrieval_certificate(
    n: int,
    margin: float | None,
    error: float,
    beta: float | None = None,
    *,
    delta: float = 1e-3,
    spread: float = 1.0,
    failures: int | None = None,
    queries: int | None = None,
    confidence: float = 0.95,
) -> RetrievalBound:
    """What softmax attention over n keys promises when scores are off by at most `error` and the best key leads by
    `margin`.

    Without `beta` it is the one that gives the winner the weight 1 − `delta`. `failures` of `queries` independent ones
    with a margin of at most twice the error give an interval for that probability. Pure arithmetic, rounded outward.

    >>> retrieval_certificate(1024, 1e-3, 1e-4).beta_needed     # about 17297
    """
    count = whole_number("n", n, 1, 2**53)
    off = _number("error", error, 0.0)
    wide = _number("spread", spread, 0.0)
    part = _number("delta", delta, 0.0)
    require(0 < part < 1, f"delta={delta!r}: a number between 0 and 1 is needed")
    lead = None if margin is None else _number("margin", margin, 0.0)
    needed = None if lead is None else beta_needed(count, lead, off, part)
    if beta is None:
        if needed is None or not math.isfinite(needed):
            why = "no margin was given"
            if lead is not None:
                why = f"the margin {lead:.3g} is not above twice the error {off:.3g}"
            raise InvalidRequest(f"beta cannot be chosen: {why}; give beta")
        beta = needed if needed > 0 else 1.0
    cold = positive("beta", beta)
    require((failures is None) == (queries is None), "failures and queries belong together: k of N")
    interval = None if failures is None or queries is None else clopper_pearson(failures, queries, confidence)
    won, lost = (None, None) if lead is None else winner_and_losers(count, lead, off, cold)
    with precision(_BITS):
        e, b = arb(off), arb(cold)
        tv = min(1.0, max(0.0, upper((b * e / 2).tanh()))) if count > 1 else 0.0
        softmax_regret = upper(2 * e + arb(count).log() / b) if count > 1 else 0.0
        regret, moved = upper(2 * e) if count > 1 else 0.0, upper(arb(tv) * arb(wide))
        missed = None if lost is None else upper(arb(lost) * arb(wide))
    return RetrievalBound(
        keys=count,
        error=off,
        beta=cold,
        spread=wide,
        regret=regret,
        softmax_regret=softmax_regret,
        tv=tv,
        softmax_error=moved,
        delta=part,
        margin=lead,
        winner_weight=won,
        value_error=missed,
        beta_needed=needed,
        failure_uniform=uniform_failure(count, off),
        failures=None if failures is None else int(failures),
        queries=None if queries is None else int(queries),
        failure_interval=interval,
        confidence=float(confidence) if interval is not None else None,
    )


def winner_and_losers(n: int, margin: float, error: float, beta: float) -> tuple[float, float]:
    """A lower bound of w = 1/(1 + (n−1) e^{−β(m−2e)}) and an upper bound of 1 − w, without cancellation."""
    if n == 1:
        return 1.0, 0.0
    if margin == math.inf:
        return math.nextafter(1.0, 0.0), 2.0**-1074
    with precision(_BITS):
        t = arb(beta) * (arb(margin) - 2 * arb(error))
        others = arb(n - 1)
        if t >= 0:  # the exponential is at most 1 either way
            lost = others * (-t).exp()
            one, rest = 1 / (1 + lost), lost / (1 + lost)
        else:
            kept = t.exp()
            one, rest = kept / (kept + others), others / (kept + others)
        return min(1.0, max(0.0, lower(one))), min(1.0, max(0.0, upper(rest)))


def beta_needed(n: int, margin: float, error: float, delta: float) -> float:
    """The least β, rounded up, with a winner weight of 1 − delta or more; infinity where the margin is not above 2e."""
    with precision(_BITS):
        room = arb(margin) - 2 * arb(error) if math.isfinite(margin) else arb(2) ** 1000
        if n == 1:
            return 0.0
        odds = (arb(n - 1) * (1 - arb(delta)) / arb(delta)).log()
        if odds <= 0 and room >= 0:
            return 0.0
        if not room > 0:
            return math.inf
        return max(0.0, upper(odds / room))


def uniform_failure(n: int, error: float) -> float:
    """1 − (1−2e)^n, rounded up: how probable a margin of at most 2e is for n ≥ 2 independent uniform utilities."""
    if n == 1:
        return 0.0
    if error >= 0.5:
        return 1.0
    with precision(_BITS):
        return min(1.0, max(0.0, upper(1 - (1 - 2 * arb(error)) ** n)))


def clopper_pearson(failures: int, trials: int, confidence: float) -> tuple[float, float]:
    """(low, high) that holds the probability of a failure with at least this confidence; the ends checked in balls."""
    k, total = whole_number("failures", failures, 0, 2**53), whole_number("queries", trials, 1, 2**53)
    level = _number("confidence", confidence, 0.0)
    require(0 < level < 1, f"confidence={confidence!r}: a number between 0 and 1 is needed")
    require(k <= total, f"{k} failures of {total} queries: there cannot be more failures than queries")
    from scipy.stats import beta as distribution

    half = (1 - level) / 2
    low = 0.0 if k == 0 else float(distribution.ppf(half, k, total - k + 1))
    high = 1.0 if k == total else float(distribution.isf(half, k + 1, total - k))
    with precision(2 * _BITS):
        tail = (1 - arb(level)) / 2

        def low_is_good(p: float) -> bool:
            return p <= 0 or bool(arb(p).beta_lower(k, total - k + 1, regularized=True) <= tail)

        def high_is_good(p: float) -> bool:  # 1 − I_p(a, b) = I_{1−p}(b, a)
            return p >= 1 or bool((1 - arb(p)).beta_lower(total - k, k + 1, regularized=True) <= tail)

        move = 1e-15
        while not low_is_good(low):
            low, move = (low * (1 - move), move * 8) if move < 1 and low == low else (0.0, 1.0)
        move = 1e-15
        while not high_is_good(high):
            high, move = (min(1.0, high * (1 + move)), move * 8) if move < 1 and high == high else (1.0, 1.0)
    return low, high


def _number(name: str, value: Any, least: float) -> float:
    found = number(name, value)
    good = math.isfinite(found) and found >= least
    if not good and not (name == "margin" and found == math.inf):
        raise InvalidRequest(f"{name}={value!r:.30}: a finite number from {least:g} on is needed")
    return found


Index = NDArray[np.int64]
HYPOTHESIS = "margins of samples: NumPy's elementary functions err by at most 4 units in the last place"
_PAIRS = 1_000_000  # utilities enclosed together


@dataclass(frozen=True, eq=False)
class Margins:
    """(m,) each: `best`, a key that is not proved to be second; low ≤ margin ≤ high (0 where the best is in doubt)."""

    best: Index
    low: Array
    high: Array


def places_of(*columns: Array) -> Index:
    """(n,) numbers, equal where all columns of two rows are equal."""
    table = np.hstack([np.asarray(c, dtype=np.float64) for c in columns]) + 0.0  # -0.0 is 0.0
    _, inverse = np.unique(table, axis=0, return_inverse=True)
    return np.asarray(inverse, dtype=np.int64).ravel()


def query_margins(relation: Relation, X: Array, Y: Array, places: Index) -> Margins:
    """Margins at (m, left variables) queries over (n, right variables) keys, by intervals."""
    if not len(X):
        return Margins(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
    parts = [_lead(*utilities(relation, X[rows], Y), places) for rows in blocks(len(X), len(Y), _PAIRS)]
    return Margins(*(np.concatenate([p[k] for p in parts]) for k in range(3)))


def query_margin(relation: Relation, x: Array, Y: Array, places: Index, bits: int = 128) -> Margins:
    """The margin at one query (left variables,), by balls."""
    with precision(bits):
        env = {name: point_balls(x[k : k + 1])[0] for k, name in enumerate(relation.left.names)}
        env |= {name: point_balls(Y[:, k]) for k, name in enumerate(relation.right.names)}
        value = run(relation.graph, BallAlgebra(), env)[0]
        balls = np.broadcast_to(np.asarray(value, dtype=object), (len(Y),))
        low, high = lowers(balls)[None], uppers(balls)[None]
    return Margins(*_lead(low, high, places))


def utilities(relation: Relation, X: Array, Y: Array) -> tuple[Array, Array]:
    """(m, n) doubles below and above u(x_i, y_j); −inf and inf where the interval is not known."""
    env = {name: Interval(X[:, k, None], X[:, k, None]) for k, name in enumerate(relation.left.names)}
    env |= {name: Interval(Y[None, :, k], Y[None, :, k]) for k, name in enumerate(relation.right.names)}
    value = run(relation.graph, IntervalAlgebra(), env)[0]
    shape = (len(X), len(Y))
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), shape) for end in (value.lo, value.hi))
    return np.where(np.isfinite(low), low, -np.inf), np.where(np.isfinite(high), high, np.inf)


def _lead(low: Array, high: Array, places: Index) -> tuple[Index, Array, Array]:
    """(best, margin from below, margin from above) of every row.

    If the margin is m > 0 at place p: u_p ≤ max high, and of the two places with the largest lower ends one is not p,
    so m ≤ max high − the second largest lower end (of another place than the first).
    """
    best = np.argmax(low, axis=1)
    first = np.take_along_axis(low, best[:, None], 1)[:, 0]
    same = places[None, :] == places[best][:, None]
    with np.errstate(invalid="ignore"):
        above = np.where(same, -np.inf, high).max(axis=1)
        below = np.where(same, -np.inf, low).max(axis=1)
        least = np.nextafter(first - above, -np.inf)
        most = np.nextafter(high.max(axis=1) - below, np.inf)
    least = np.where(np.isnan(least) | (least < 0), 0.0, least)
    most = np.where(np.isnan(most), np.inf, most)
    return best.astype(np.int64), least, np.maximum(most, 0.0)
