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

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnfun.certify.verdict import Proof, undecided
from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest
from attnfun.kinds.neighbours.bounds import biased_error, full_rank_error, scores_error, tally_error
from attnfun.kinds.neighbours.measure import measured
from attnfun.kinds.neighbours.target import PointsOnSphere
from attnfun.language.target import Array
from attnfun.network import TokenHead, TokenNetwork, TokenTransformer
from attnfun.search import Goal, Say

METHOD = "mean square"
HYPOTHESES = (
    "the points are independent and uniform on the sphere: the bound is of the mean of |target - output| squared",
    "real arithmetic: the stored weights as they are; what evaluation rounds is not counted",
    "SciPy and Python: beta, gamma, exp and log within 1e-10 of their value, in the proof itself",
)
_SHUT = 1000.0
_POINT = {("x", 0): 1.0}
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
    readers: list[Callable[[PointsOnSphere, TokenNetwork], Read | None]] = [_scores]
    readers += [_tally] if target.points == 3 else []
    if target.every or target.bias is not None:
        readers = [_full_rank if target.every else _biased]
    for reader in readers:
        found = reader(target, network)
        if found is not None:
            return found
    raise Undecided("the weights are of no pattern whose mean square is proved")


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


def _shape(network: TokenNetwork) -> tuple[int, ...]:
    return tuple(len(layer.heads) for layer in network.layers)


class _Page:
    """A network held against what its pattern has: matrices by the names of rows, "x" and "q" being blocks of `dim`."""

    def __init__(self, target: PointsOnSphere, network: TokenNetwork, blocks: str, units: tuple[str, ...]) -> None:
        self.dim, self.network = target.dim, network
        self.names = (*(f"{block}{j + 1}" for block in blocks for j in range(target.dim)), *units)
        self.good = network.coordinates == self.names and all(network.outputs)

    def number(self, matrix: Array, name: str, column: int = 0) -> float:
        return float(matrix[self.names.index(name), column]) if self.good and column < matrix.shape[1] else 0.0

    def matrix(self, columns: int, entries: Mapping[tuple[str, int], float]) -> Array:
        made = np.zeros((len(self.names), columns))
        for (name, column), value in entries.items():
            if name in self.names:
                made[self.names.index(name), column] = value
            else:
                for j in range(self.dim):
                    made[self.names.index(f"{name}{j + 1}"), column + j] = value
        return made

    def same(self, found: Array, columns: int, entries: Mapping[tuple[str, int], float]) -> None:
        self.good = self.good and np.array_equal(found, self.matrix(columns, entries))

    def head(self, head: TokenHead, columns: tuple[int, int], *parts: Mapping[tuple[str, int], float]) -> None:
        """W_Q, W_K, W_V and W_O transposed are these."""
        found = (head.query, head.key, head.value, head.output.T)
        for matrix, count, entries in zip(found, (columns[0], columns[0], columns[1], columns[1]), parts, strict=True):
            self.same(matrix, count, entries)

    def rest(self, readout: int, name: str, constants: Array | None = None, carry: Array | None = None) -> None:
        """The read-out is the identity of block or unit `name`, the stream is carried as it is, constants as given."""
        self.same(self.network.readout, readout, {(name, 0): 1.0})
        none = np.zeros((0, len(self.names)))
        self.good = self.good and np.array_equal(self.network.constants, none if constants is None else constants)
        for layer in self.network.layers:
            own = layer.carry
            same = own is carry if own is None or carry is None else np.array_equal(own, carry)
            self.good = self.good and same


def _sign(target: PointsOnSphere) -> float:
    return 1.0 if target.which == "nearest" else -1.0


def _full_rank(target: PointsOnSphere, network: TokenNetwork) -> Read | None:
    if _shape(network) != (1,):
        return None
    d, N, near = target.dim, target.points, target.which == "nearest"
    page = _Page(target, network, "x", tuple(f"p{i + 1}" for i in range(N)) if near else ())
    (head,) = network.heads
    width, beta = network.width, _sign(target) * page.number(head.query, "x1")
    gap = -page.number(head.query, "p1", d) if near else math.inf
    places = {(f"p{i + 1}", d + i): 1.0 for i in range(N)} if near else {}
    query = {("x", 0): _sign(target) * beta} | {at: -gap for at in places}
    page.head(head, (width, d), query, _POINT | places, _POINT, _POINT)
    page.rest(d, "x", carry=np.zeros((width, width)))
    if not (page.good and gap >= 2 * beta + _SHUT):
        return None
    _require(beta)
    return Read("full_rank", full_rank_error(d, N, beta, not near), {"beta": beta})


def _scores(target: PointsOnSphere, network: TokenNetwork) -> Read | None:
    if _shape(network) != (2 * target.dim, 1):
        return None
    d, N, n = target.dim, target.points, target.points - 1
    page = _Page(target, network, "xq", ("query", "one", "scratch"))
    scoring, choice = network.layers[0].heads, network.layers[1].heads[0]
    small = page.number(scoring[0].query, "x1")
    v, u = (page.number(scoring[0].value, name) for name in ("query", "one"))
    c = page.number(scoring[0].output.T, "scratch")
    for k, head in enumerate(scoring):
        sign, entry = (1.0, -1.0)[k % 2], k // 2 + 1
        value, output = {("query", 0): v, ("one", 0): u}, {("scratch", 0): sign * c}
        page.head(head, (1, 1), {(f"x{entry}", 0): sign * small}, {(f"q{entry}", 0): 1.0}, value, output)
    beta, gap = _sign(target) * page.number(choice.key, "scratch"), -page.number(choice.key, "query")
    key = {("scratch", 0): _sign(target) * beta, ("query", 0): -gap}
    page.head(choice, (1, d), {("one", 0): 1.0}, key, _POINT, _POINT)
    page.rest(d, "x")
    if not page.good:
        return None
    slope, cubic = Fraction(c) * Fraction(v) * Fraction(small), Fraction(c) * Fraction(v) * Fraction(small) ** 3
    eta = float(abs(2 * slope * n / N**2 - 1) + abs(cubic) / 24) * (1 + 1e-12)
    _require(beta)
    if not (eta <= 1 and gap >= beta * (1 + eta) + _SHUT):
        raise Undecided("its scores are too far off, or the query is not shut out")
    return Read("scores", scores_error(d, N, beta, eta), {"beta": beta, "score_error": eta})


def _tally(target: PointsOnSphere, network: TokenNetwork) -> Read | None:
    if _shape(network) != (target.dim, 1):
        return None
    page = _Page(target, network, "xq", ("index", "scratch"))
    counting, choice = network.layers[0].heads, network.layers[1].heads[0]
    beta, sharp = _sign(target) * page.number(counting[0].query, "q1"), page.number(choice.query, "scratch")
    for k, head in enumerate(counting):
        query = {(f"q{k + 1}", 0): _sign(target) * beta}
        page.head(head, (1, 1), query, {(f"x{k + 1}", 0): 1.0}, {("index", 0): 1.0}, {("scratch", 0): 1.0})
    page.head(choice, (1, target.dim), {("scratch", 0): sharp}, {("index", 0): 1.0}, _POINT, _POINT)
    page.rest(target.dim, "x")
    if not (page.good and beta > 0 and sharp > 0):
        return None
    blur = float(150 / (Fraction(sharp) * Fraction(beta))) * (1 + 1e-12)
    return Read("tally", tally_error(target.dim, beta, blur), {"beta": beta, "blur": blur})


def _biased(target: PointsOnSphere, network: TokenNetwork) -> Read | None:
    if _shape(network) != (1,):
        return None
    assert target.bias is not None
    d = target.dim
    page = _Page(target, network, "xq", ("query", "one", "anchor", "answer"))
    (head,) = network.heads
    beta = page.number(head.query, "q1")
    level, gap = page.number(head.key, "anchor", d), -page.number(head.key, "query", d)
    query, key = {("q", 0): beta, ("one", d): 1.0}, {("x", 0): 1.0, ("anchor", d): level, ("query", d): -gap}
    page.head(head, (d + 1, 1), query, key, {("one", 0): 1.0, ("anchor", 0): -2.0}, {("answer", 0): 1.0})
    page.rest(1, "answer", constants=page.matrix(1, {("one", 0): 1.0, ("anchor", 0): 1.0}).T)
    if not (page.good and beta > 0 and gap >= beta + abs(level) + _SHUT):
        return None
    shift = float(abs(Fraction(level) / Fraction(beta) - Fraction(target.bias))) * (1 + 1e-12)
    return Read("biased", biased_error(d, beta, shift), {"beta": beta, "threshold_error": shift})


def _require(beta: float) -> None:
    if not 1 <= beta < math.inf:
        raise Undecided(f"its inverse temperature is {beta:.3g}, and a bound is known from 1 on")
