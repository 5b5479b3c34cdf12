"""What a gather head computes, and how far that is from the aggregate it stands for, on a whole box, rounding included.

| symbol | meaning |
| --- | --- |
| v_j, s_j | the numbers that are aggregated (and the scores), of token j; v̂_j, ŝ_j what the stream holds for them |
| E_v | bound of |v̂_j − v_j|;  w: width of the proved range of the v_j |
| D | bound of every perturbation of a logit: weights that are not what they should be, rounding, exp, E_s of scores |
| c_n | W((n−1)/e), the solution of c e^c = (n−1)/e |

Every head is out_i = Σ_j softmax_j(S_ij + k·z_j)(z_j·V) + o over n tokens. A softmax whose logits move by at most D
moves an average of numbers of width w by at most w tanh(D/2) (`rounding`). So, up to E_v, |V − unit| and rounding of
the sums:

    mean, sum       logits 0:       w tanh(D/2)         (sum: n times)
    softmax_mean    logits ŝ_j:     w tanh(D/2)
    a copy of token j, S_ij at least `gap` above the others:     (n−1) e^{2D − gap} w
    max             logits β v̂_j:   max_j v̂_j − e^{2D} c_n/β  ≤  Σ_j p_j v̂_j  ≤  max_j v̂_j

The last: with t_j = β(max − v̂_j) ≥ 0 and t_1 = 0 the average lacks (1/β) Σ t_j e^{d_j−t_j} / Σ e^{d_j−t_j} ≤
(e^{2D}/β) R, R = Σ_{j>1} t_j e^{−t_j}/(1 + Σ_{j>1} e^{−t_j}); and R ≤ c holds if Σ_{j>1} (t_j − c) e^{−t_j} ≤ c, whose
terms are largest at t_j = 1 + c, so if (n−1) e^{−1−c} ≤ c, that is from c = c_n on (attained). Half of it is taken off
by o = c_n/(2β). min is alike with −β.

Failure modes: Undecided for heads that are none of these, logits that may overflow, D of a half and more.
"""

import math
from dataclasses import dataclass

import numpy as np
from flint import arb

from attnfun.certify.rounding import LARGEST, ROUNDOFF, TINY, gamma, kernel_move
from attnfun.certify.view import Undecided, provided
from attnfun.kinds.sequence.network import GatherHead
from attnfun.language.enclosures import upper_at

_SAFE = 1 + 1e-9  # sums and products of positive float64 numbers below


@dataclass(frozen=True)
class Known:
    """A coordinate of the stream: its meaning lies in [low, high], what is computed in [least, most] and within `error`
    of the meaning.
    """

    low: float
    high: float
    least: float
    most: float
    error: float

    @property
    def size(self) -> float:
        return max(abs(self.low) + self.error, abs(self.high) + self.error, abs(self.least), abs(self.most))

    @property
    def width(self) -> float:
        return math.nextafter(self.high - self.low, math.inf)


def largest_lack(n: int) -> float:
    """c_n, rounded up: c e^c ≥ (n−1)/e is checked in balls."""
    if n <= 1:
        return 0.0
    goal = (n - 1) / math.e
    c = math.log1p(goal)
    for _ in range(60):
        c -= (c * math.exp(c) - goal) / (math.exp(c) * (1 + c))
    while not arb(c) * arb(c).exp() * arb(1).exp() >= n - 1:
        c = math.nextafter(c * (1 + 1e-15), math.inf)
    return c


def widened(low: float, high: float, error: float, floor: bool, ceiling: bool) -> Known:
    """Meaning in [low, high]; `floor` and `ceiling`: what is computed is an average of numbers ≥ 0 (≤ 0), so is too."""
    if error == 0:
        return Known(low, high, low, high, 0.0)
    least, most = math.nextafter(low - error, -math.inf), math.nextafter(high + error, math.inf)
    return Known(low, high, max(least, 0.0) if floor else least, min(most, 0.0) if ceiling else most, error)


def logit_errors(head: GatherHead, known: list[Known], dtype: str, tokens: int, memory: int) -> tuple[float, float]:
    """The arithmetic of one head, what its logits may be off by besides what they read: (Σ|k_c| size_c, the rounding of
    a logit, of the subtraction of the largest, and of exp).
    """
    sizes = np.array([one.size for one in known])
    u = ROUNDOFF[dtype]
    key = float(np.abs(head.key) @ sizes) * _SAFE
    values = float((np.abs(head.value).T @ sizes).max()) * _SAFE
    most = 0.0 if head.scores is None else float(np.abs(head.scores).max())
    provided(key + most < LARGEST[dtype] and tokens * values < LARGEST[dtype], f"gather head {head.name} may overflow")
    nonzero = int(np.count_nonzero(head.key))
    logit = gamma(nonzero + 16, u) * 2 * key + kernel_move(tokens + memory, dtype, spare=6)
    if head.scores is not None and key > 0:
        logit += gamma(8, u) * most
    return key, logit * _SAFE


def value_error(
    head: GatherHead, column: int, place: int, factor: float, known: list[Known], dtype: str, tokens: int
) -> tuple[float, float]:
    """(what the numbers z_j·V are off besides E of the coordinate `place`, what summing and dividing costs)."""
    u = ROUNDOFF[dtype]
    weights = head.value[:, column]
    off = sum(abs(float(w) - (factor if c == place else 0.0)) * known[c].size for c, w in enumerate(weights) if w != 0)
    provided(weights[place] != 0, f"gather head {head.name} does not read what it stands for")
    size = sum(abs(float(w)) * known[c].size for c, w in enumerate(weights) if w != 0) * _SAFE
    unit = np.count_nonzero(weights) == 1 and abs(np.frexp(weights[place])[0]) == 0.5
    product = 0.0 if unit else gamma(int(np.count_nonzero(weights)) + 2, u) * size
    offset = abs(float(head.offset[column]))
    lost = 2 * gamma(tokens + 16, u) * size + (2 * u * (size + offset) if offset else 0.0)
    return off * _SAFE, (product + lost) * _SAFE + 8 * (tokens + 8) * TINY[dtype]


def aggregate(
    head: GatherHead, kind: str, places: tuple[int, ...], known: list[Known], dtype: str, tokens: int, memory: int
) -> Known:
    """What is proved of a head that stands for an aggregate of the coordinates `places` (score first, then value)."""
    if head.scores is not None or len(head.writes) != 1:
        raise Undecided(f"gather head {head.name}: an aggregate has no positional scores and writes one coordinate")
    place = places[-1]
    v = known[place]
    _, rounding = logit_errors(head, known, dtype, tokens, memory)
    factor = float(tokens) if kind == "sum" else 1.0
    off, lost = value_error(head, 0, place, factor, known, dtype, tokens)
    offset = float(head.offset[0])
    base = (factor * v.error + off + lost) * _SAFE
    low, high = (v.low, v.high) if kind != "sum" else (_down(tokens * v.low), _up(tokens * v.high))
    strength = float(head.key[place]) if kind in ("max", "min") else 0.0
    meant = {"softmax_mean": (places[0], 1.0), "max": (place, strength), "min": (place, strength)}.get(kind, (-1, 0.0))
    stray = sum(
        abs(float(k) - (meant[1] if c == meant[0] else 0.0)) * known[c].size
        for c, k in enumerate(head.key)
        if k != 0 or c == meant[0]
    )
    D = (stray + rounding + (known[places[0]].error if kind == "softmax_mean" else 0.0)) * _SAFE
    provided(D < 0.5, f"gather head {head.name}: its logits are too uncertain ({D:.2g})")  # NaN must not pass
    if kind in ("max", "min"):
        sign = 1.0 if kind == "max" else -1.0
        provided(sign * strength > 0, f"gather head {head.name} does not look for the {kind}")
        lack = upper_at("exp", 2 * D) * largest_lack(tokens) / abs(strength) * _SAFE
        own = max(abs(offset), abs(offset - sign * lack)) * _SAFE
    else:
        own = (factor * v.width * upper_at("tanh", D / 2) + abs(offset)) * _SAFE
    return _written(head, 0, v, low, high, base + own)


def _written(head: GatherHead, column: int, v: Known, low: float, high: float, error: float) -> Known:
    """What is proved of a column that averages v: its meaning in [low, high], what is computed within `error` of it."""
    weights, offset = head.value[:, column], float(head.offset[column])
    positive = bool(np.all(weights >= 0)) and np.count_nonzero(weights) == 1
    floor, ceiling = positive and v.least >= 0 and offset >= 0, positive and v.most <= 0 and offset <= 0
    return widened(low, high, math.nextafter(error, math.inf), floor, ceiling)


def copies(
    head: GatherHead, known: list[Known], inputs: int, dtype: str, tokens: int, memory: int
) -> tuple[tuple[int, ...], list[Known]]:
    """(the token that each token fetches, what is proved of the coordinates written): heads that copy whole tokens."""
    if head.scores is None or len(head.writes) != inputs:
        raise Undecided(f"gather head {head.name}: a copy needs positional scores and writes every input")
    D = sum(logit_errors(head, known, dtype, tokens, memory)) * _SAFE
    provided(D < 0.5, f"gather head {head.name}: its logits are too uncertain ({D:.2g})")
    sources = tuple(int(j) for j in np.argmax(head.scores, axis=1))
    gap = math.inf
    for i, j in enumerate(sources):
        others = np.delete(head.scores[i], j)
        if len(others):
            gap = min(gap, _down(float(head.scores[i, j]) - float(others.max())))
    leak = (tokens - 1) * upper_at("exp", _up(min(2 * D - gap, 50.0))) * _SAFE if tokens > 1 else 0.0
    out = []
    for c in range(inputs):
        v = known[c]
        off, lost = value_error(head, c, c, 1.0, known, dtype, tokens)
        error = (v.error + off + lost + abs(float(head.offset[c])) + leak * v.width) * _SAFE
        out.append(_written(head, c, v, v.low, v.high, error))
    return sources, out


def _up(x: float) -> float:
    return math.nextafter(x, math.inf)


def _down(x: float) -> float:
    return math.nextafter(x, -math.inf)
