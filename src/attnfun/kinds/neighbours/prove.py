"""What is proved of stored weights that find neighbours: which pattern they are of, then a bound of the mean square.

The error is E|target − output|² for independent uniform points, in real arithmetic. A reader below takes a few numbers
out of the stored matrices, writes the matrices of its pattern with them and compares all of them, entry by entry; so
any other entry, layer or constant token is another pattern. The bound is a function of these numbers (`bounds`).
Where no reader knows the weights, or no bound is known for their numbers, the error is measured: a number that is never
called a bound.

| pattern | numbers | what is shown here |
| --- | --- | --- |
| one head of full rank | β, gap | the token itself is shut out (nearest) or seen (furthest) as `bounds` wants it |
| scores first | β₁, c, v, B, gap | every score is off by at most η, below |
| tally | β, s | the look-up is sharp where \\|τ + B\\| ≥ δ = 150/(sβ): (β/3) δ s = 50 |
| half-space | β, k, gap | tanh(β(t − b')/2) with b' = k/β |

*Shut out.* A key whose logit is at least 1000 below every other one has a weight of at most e^{−1000}, which moves the
mean square by less than the 1e-9 of itself that the bounds have to spare, none of them being below 1e-100.

*Scores.* A candidate's two heads of entry k have logits ±a, a = β₁ x_k y_k, at the query and 0 at the n candidates,
values u + v at the query and u elsewhere, and write c times their difference: with σ the logistic function

    c v (σ(a − ln n) − σ(−a − ln n)) = (1 + κ) x_k y_k + r,   1 + κ = 2 c v β₁ n/N²,   |r| ≤ c v β₁³ |x_k y_k|³/24,

for σ'(−ln n) = n/N² and |σ'''| ≤ 1/8. Σ_k |x_k y_k| ≤ 1 and so is the sum of their cubes: η = |κ| + c v β₁³/24. The
query's own heads have logits 0, so its own score is 0.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from attnfun.certify.verdict import Proof, undecided
from attnfun.certify.view import Undecided, provided
from attnfun.errors import InvalidRequest, present
from attnfun.kinds.neighbours import pattern
from attnfun.kinds.neighbours.bounds import biased_error, full_rank_error, scores_error, tally_error
from attnfun.kinds.neighbours.measure import measured
from attnfun.kinds.neighbours.target import PointsOnSphere
from attnfun.network import TokenNetwork, TokenTransformer
from attnfun.network.tokens import same_entries
from attnfun.search import Goal, Say

METHOD = "mean square"
HYPOTHESES = (
    "the points are independent and uniform on the sphere: the bound is of the mean of |target - output| squared",
    "real arithmetic: the stored weights as they are; what evaluation rounds is not counted",
    "SciPy and Python: beta, gamma, exp and log within 1e-10 of their value, in the proof itself",
)
_SHUT = 1000.0
_MOST = 10_000  # queries of a measurement
_WORK = 3e8  # multiplications of one


@dataclass(frozen=True)
class Read:
    """A pattern's bound and the numbers it is made of."""

    pattern: str
    bound: float
    numbers: Mapping[str, float]


def proof(target: PointsOnSphere, network: TokenNetwork | TokenTransformer, goal: Goal, say: Say) -> Proof:
    """What is proved of `network` for `target`, or measured where nothing is; nothing but these two is read."""
    try:
        found = read(target, network)
    except Undecided as why:
        say("measuring, for nothing is proved of these weights")
        return _seen(target, network, goal.eps, str(why))
    root = math.sqrt(found.bound) * (1 + 1e-15)
    details = {"norm": METHOD, "pattern": found.pattern, **found.numbers, "output_error": root}
    parts = {"construction": found.bound}  # rounding is not in it, so that it is never called proved
    return Proof(METHOD, found.bound, parts=parts, hypotheses=HYPOTHESES, details=details, conditional=True)


def read(target: PointsOnSphere, network: TokenNetwork | TokenTransformer) -> Read:
    """The bound of weights whose pattern is known; Undecided for others."""
    if isinstance(network, TokenTransformer):
        raise Undecided("it has ReLU units between its layers, and nothing is proved of those")
    readers: dict[tuple[int, ...], Callable[[PointsOnSphere, TokenNetwork], Read | None]] = {}  # by heads per layer
    readers[2 * target.dim, 1] = _scores
    if target.points == 3:
        readers[target.dim, 1] = _tally
    if target.every or target.bias is not None:
        readers = {(1,): _full_rank if target.every else _biased}
    reader = readers.get(tuple(len(layer.heads) for layer in network.layers))
    found = None if reader is None else reader(target, network)
    return present(found, Undecided("the weights are of no pattern whose mean square is proved"))


def _seen(target: PointsOnSphere, network: TokenNetwork | TokenTransformer, eps: float | None, why: str) -> Proof:
    """The error at random points; above eps, or infinite, it says no more than that."""
    plain = network.attention
    work = sum(target.points * (network.width * 2 * (h.query_dim + h.outputs) + target.points) for h in plain.heads)
    try:
        seen = measured(target, network, int(min(_MOST, max(200, _WORK / max(1, work)))), seed=78)
    except InvalidRequest as error:
        return undecided(error)
    reason = f"{why}; mean squared error {seen.error:.4g} ± {seen.error_se:.2g} at {seen.queries:,} queries"
    if not (math.isfinite(seen.error) and (eps is None or seen.error <= eps)):
        return undecided(reason + ("" if eps is None else f", eps {eps:.3g}"), METHOD)
    details = {"norm": METHOD, "error_se": seen.error_se, "accuracy": seen.accuracy, "queries": seen.queries}
    return Proof("sampling", seen.error, seen.error, measured=True, reason=reason, details=details)


# -- patterns ----------------------------------------------------------------------------------------------------------


def _number(network: TokenNetwork, array: str, name: str, column: int = 0) -> float:
    """An entry of a head by the name of its coordinate; 0 where there is none."""
    found = dict(network.arrays())[array]
    matrix = found.T if array.endswith("output") else found
    inside = name in network.coordinates and column < matrix.shape[1]
    return float(matrix[network.coordinates.index(name), column]) if inside else 0.0


def _full_rank(target: PointsOnSphere, network: TokenNetwork) -> Read | None:
    d, N, near, query = target.dim, target.points, target.which == "nearest", "layer0/head0/query"
    beta, gap = _sign(target) * _number(network, query, "x1"), -_number(network, query, "p1", d)
    if not same_entries(network, pattern.full_rank(d, N, near, beta, gap)) or (near and not gap >= 2 * beta + _SHUT):
        return None
    _require(beta)
    return Read("full_rank", full_rank_error(d, N, beta, not near), {"beta": beta})


def _scores(target: PointsOnSphere, network: TokenNetwork) -> Read | None:
    d, N, n, key = target.dim, target.points, target.points - 1, "layer1/head0/key"
    small, c = (_number(network, f"layer0/head0/{part}", at) for part, at in (("query", "x1"), ("output", "scratch")))
    v, u = (_number(network, "layer0/head0/value", name) for name in ("query", "one"))
    beta, gap = _sign(target) * _number(network, key, "scratch"), -_number(network, key, "query")
    if not same_entries(network, pattern.scores(d, target.which == "nearest", small, (v, u), c, (beta, gap))):
        return None
    slope, cubic = Fraction(c) * Fraction(v) * Fraction(small), Fraction(c) * Fraction(v) * Fraction(small) ** 3
    eta = float(abs(2 * slope * n / N**2 - 1) + abs(cubic) / 24) * (1 + 1e-12)
    _require(beta)
    provided(eta <= 1 and gap >= beta * (1 + eta) + _SHUT, "its scores are too far off, or the query is not shut out")
    return Read("scores", scores_error(d, N, beta, eta), {"beta": beta, "score_error": eta})


def _tally(target: PointsOnSphere, network: TokenNetwork) -> Read | None:
    beta = _sign(target) * _number(network, "layer0/head0/query", "q1")
    sharp = _number(network, "layer1/head0/query", "scratch")
    same = same_entries(network, pattern.tally(target.dim, target.which == "nearest", beta, sharp))
    if not (same and beta > 0 and sharp > 0):
        return None
    blur = float(150 / (Fraction(sharp) * Fraction(beta))) * (1 + 1e-12)
    return Read("tally", tally_error(target.dim, beta, blur), {"beta": beta, "blur": blur})


def _biased(target: PointsOnSphere, network: TokenNetwork) -> Read | None:
    assert target.bias is not None
    d, key = target.dim, "layer0/head0/key"
    beta, level = _number(network, "layer0/head0/query", "q1"), _number(network, key, "anchor", d)
    gap = -_number(network, key, "query", d)
    same = same_entries(network, pattern.biased(d, beta, level, gap))
    if not (same and beta > 0 and gap >= beta + abs(level) + _SHUT):
        return None
    shift = float(abs(Fraction(level) / Fraction(beta) - Fraction(target.bias))) * (1 + 1e-12)
    return Read("biased", biased_error(d, beta, shift), {"beta": beta, "threshold_error": shift})


def _sign(target: PointsOnSphere) -> float:
    return 1.0 if target.which == "nearest" else -1.0


def _require(beta: float) -> None:
    provided(1 <= beta < math.inf, f"its inverse temperature is {beta:.3g}, and a bound is known from 1 on")
