"""What rank and heads buy on the furthest of two points: an error no heads avoid, and one that some attain.

The scalar problem: sign(⟨z, y⟩ − b) by Σ_{h ≤ H} φ_h(K_hᵀz, y) with K_h of rank r, any φ_h; z, y uniform on the sphere
in R^d; error relative in mean square. In a real layer two candidates x1, x2 and a query y are independent and uniform,
the target f is the candidate further from y, E|f|² = 1, and the heads put out Σ_h V_h (their averages); the error is
E|f − g|².

| setting | lower bound of the error | counted per head in degree ℓ |
| --- | --- | --- |
| scalar | Σ e_ℓ(d) (1 − H c_ℓ/N(d, ℓ))₊ | M(r, ℓ) |
| layer-scalar-v | ½ Σ e_ℓ(d−1) (1 − H c_ℓ/N(d−1, ℓ))₊ | M(r, ℓ) in dimension d−1 |
| layer-any-v | the same | Σ_{|j| ≤ 2} M(r, ℓ+j) |
| softmax-scalar-v | ½ Σ e_ℓ(d) (1 − H c_ℓ/N(d, ℓ))₊ | M(r, ℓ) |
| softmax-any-v | the same | M(r, ℓ−2) + M(r, ℓ) + M(r, ℓ+2) |

*scalar*: on the harmonics of degree ℓ of z and of y the target is λ_ℓ times the identity, the approximant has rank at
most H M(r, ℓ) (`harmonics`), and no operator of rank k is nearer to λ Id_N than λ² (N − k) (Eckart and Young); degrees
are orthogonal, and e_ℓ = N λ_ℓ² (`energies`). It is attained whenever the heads' harmonics are independent.
*scalar, upper*: with K_h drawn from the uniform distribution, Π_h the projectors on what head h sees and
g = Σ_ℓ λ_ℓ c_ℓ Σ_h Π_h, c_ℓ = N/(N + (H−1)M), the mean error is Σ e_ℓ (N − M)/(N + (H−1)M): some directions do as well.
*layer*: with s = x1 + x2, w = x1 − x2, z = w/|w|: s ⟂ w, |w| is a function of s, and given s both z and the part of y
orthogonal to s are uniform in s^⊥, of dimension d−1; f = s/2 − sign(⟨w, y⟩) w/2 with E|w|²/4 = 1/2. Along z a scalar
V leaves functions of K_hᵀz (s being given); any V multiplies them by a linear form (zᵀVs) or a quadratic one (zᵀVz),
and a product with degree j lives in j±1, or j and j±2.
*softmax*: where the weights of a head sum to 1 and depend on x1, x2 through K_hᵀ(x1 − x2) only, the midpoint averages
out, and the same argument runs in dimension d without linear forms.
*self*: a head that also attends to y adds V y, along z again a linear form: (M(r, ℓ−1) + M(r, ℓ+1)) min(d−1, rank V)
more in the layer settings.

*Degrees beyond those computed*: c_ℓ/N falls there (`harmonics`); for the sums of shifted M, each is at most M(r, ℓ+2),
and M(r, ℓ+2)/N(ℓ) falls. So all higher degrees together, 1 − Σ e_ℓ, get the factor of the last one computed.

Sources: Amsel, Yehudai and Bruna 2024, arXiv 2407.16153 (the separation); the sharp count M(r, ℓ), the brackets and the
versions for layers are derived here. Size: exact integers, 20,001 degrees. Bound: rounded down below, up above.
Failure mode: with r ≥ d (d−1 in a layer) nothing is excluded, and one head of full rank does it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.language.domain import Array
from attnfun.language.numbers import bisected, one_of, positive_or_none, whole_number
from attnfun.limits.record import Record, texts
from attnfun.limits.separation.energies import Energies, energies
from attnfun.limits.separation.harmonics import all_seen
from attnfun.limits.separation.published import Quoted, high_precision_heads, low_precision_heads, majority_heads

SETTINGS = ("scalar", "layer-scalar-v", "layer-any-v", "softmax-scalar-v", "softmax-any-v")
MOST_DIM = 4096
_U = 2.0**-53
_TEXTS = texts("rank")


@dataclass(frozen=True)
class RankBound(Record):
    """No `heads` heads of rank `rank` have an error below `lower`; some have at most `upper` (None: none is proved).

    `heads_needed`: the fewest heads that are not excluded at error `eps`; `heads_sufficient`: that are proved to do.
    """

    also: ClassVar[tuple[str, ...]] = ("heads_needed_log10", "heads_sufficient_log10", "published")

    dim: int
    rank: int
    heads: int
    setting: str
    bias: float
    lower: float
    upper: float | None
    eps: float | None
    heads_needed: int | None
    heads_sufficient: int | None
    largest: float
    hypotheses: tuple[str, ...]
    source: str = _TEXTS["source"]

    def record(self) -> dict[str, Any]:
        """As JSON; numbers of heads with more than 4,000 digits are given by their logarithm alone."""
        told = super().record()
        return {name: None if type(v) is int and v.bit_length() > 13_000 else v for name, v in told.items()}

    @property
    def heads_needed_log10(self) -> float | None:
        return math.log10(self.heads_needed) if self.heads_needed else None

    @property
    def heads_sufficient_log10(self) -> float | None:
        return math.log10(self.heads_sufficient) if self.heads_sufficient else None

    @property
    def published(self) -> tuple[Quoted, ...]:
        """The printed regimes of the literature for these numbers, constants taken as 1: no bounds."""
        quoted = [high_precision_heads(self.dim, self.rank), majority_heads(self.dim)]
        if self.eps is not None:
            quoted.insert(0, low_precision_heads(self.dim, self.rank, self.eps))
        return tuple(quoted)

    def plot(self, path: Any = None) -> Any:
        """The error against rank and heads, in this setting."""
        from attnfun.plots.limits import draw_rank_map

        return draw_rank_map(self, path)


def rank(
    dim: int,
    rank: int,
    heads: int,
    eps: float | None = None,
    setting: str = "scalar",
    *,
    bias: float = 0.0,
    attends_self: bool = False,
    value_rank: int | None = None,
) -> RankBound:
    """Bounds on the error of `heads` heads of rank `rank` in dimension `dim`, and the heads that `eps` needs.

    `setting`: "scalar" (sign(⟨z, y⟩ − bias)), "layer-scalar-v", "layer-any-v", "softmax-scalar-v" or "softmax-any-v"
    (the table above). `attends_self` (layer settings): the query is a key as well, with values of rank dim, or of rank
    `value_rank` where the setting is "layer-any-v".
    """
    d, r, h = whole_number("dim", dim, 2, MOST_DIM), whole_number("rank", rank, 1), whole_number("heads", heads, 0)
    one_of("setting", setting, SETTINGS)
    require(d >= 3 or not setting.startswith("layer"), f"dim={d}: a layer on two candidates needs dim of at least 3")
    require(bias == 0 or setting == "scalar", "bias belongs to setting='scalar': the layer's target has none")
    require(setting.startswith("layer") or not attends_self, "attends_self belongs to the layer settings")
    if value_rank is not None and not (attends_self and setting == "layer-any-v"):
        raise InvalidRequest("value_rank belongs to setting='layer-any-v' with attends_self; scalar values are full")
    eps = positive_or_none("eps", eps)
    values = d if value_rank is None else whole_number("value_rank", value_rank, 0)
    ladder = _ladder(d, r, setting, float(bias), min(values, d - 1) if attends_self else 0)
    enough, attained = None, ladder.upper(h) if setting == "scalar" else None
    if eps is not None and setting == "scalar":
        enough = ladder.sufficient(eps)
    family, _, value = setting.partition("-")
    hypotheses: tuple[str, ...] = _TEXTS["scalar"]
    if setting != "scalar":
        out = f"{'c' if value == 'scalar-v' else 'V'}_h {_TEXTS[family]}"
        hypotheses = _TEXTS["target"], f"one layer, no MLP; head h puts out {out}"
    hypotheses += (_TEXTS["self"].format(rank=values),) if attends_self else ()
    if bias:
        hypotheses += (f"the target is sign(<z, y> - {bias:g})",)
    needed = None if eps is None else ladder.needed(eps)
    errors = float(bias), ladder.lower(h), attained, eps
    return RankBound(d, r, h, setting, *errors, needed, enough, ladder.scale, hypotheses)


@dataclass(frozen=True, eq=False)
class Ladder:
    """Energies by degree, and the share m = c/N of its harmonics that one head takes.

    `share` and `spared` = 1 − m are quotients of integers, correctly rounded, `logs` = log₂(N/c) for shares and heads
    past the range of doubles.
    """

    energies: Energies
    share: Array
    spared: Array
    logs: Array
    beyond: tuple[float, float]  # (share, log) of an upper bound of m in all higher degrees
    least: float  # a lower bound of m in all degrees
    scale: float

    def lower(self, heads: int) -> float:
        """scale · Σ e_ℓ (1 − H m_ℓ)₊, rounded down."""
        if heads == 0:
            return self.scale * (1 - 4 * _U)
        kept = np.maximum(0.0, 1 - _taken(heads, self.share, self.logs, 1) - 2 * _U)
        rest = self.energies.rest[0] * max(0.0, 1 - float(_taken(heads, *self.beyond, 1)) - 2 * _U)
        total = float(np.sum(self.energies.low * kept)) + rest
        return max(0.0, self.scale * total * (1 - (len(kept) + 16) * _U))

    def upper(self, heads: int) -> float:
        """scale · Σ e_ℓ (1 − m)/(1 + (H−1) m), rounded up; for the setting in which a head takes M only."""
        if heads == 0:
            return self.scale
        left = np.minimum(1.0, self.spared / (1 + _taken(heads - 1, self.share, self.logs, -1)) * (1 + 8 * _U))
        # (1 − m)/(1 + (H−1) m) falls in m
        others = self.least * float(min(heads - 1, 2**900))
        rest = self.energies.rest[1] * (1 - self.least) / (1 + others) * (1 + 8 * _U)
        total = float(np.sum(self.energies.high * left)) + rest
        return min(self.scale, self.scale * total * (1 + (len(left) + 16) * _U))

    def needed(self, eps: float) -> int:
        """The least H whose lower bound is below eps."""
        return least_heads(lambda h: self.lower(h) < eps)

    def sufficient(self, eps: float) -> int | None:
        """The least H whose upper bound is at most eps; None past 10^300 heads."""
        if not self.upper(10**300) <= eps:
            return None
        return least_heads(lambda h: self.upper(h) <= eps)


def least_heads(holds: Callable[[int], bool]) -> int:
    """The least H ≥ 0 that holds, for a property that stays once it holds."""
    if holds(0):
        return 0
    low, high = 0, 1
    while not holds(high):
        low, high = high, high * high if high > 4 else high * 2
    return bisected(low, high, holds)


@lru_cache(maxsize=64)
def _ladder(dim: int, rank: int, setting: str, bias: float, queries: int) -> Ladder:
    """The ladder of a setting; `queries`: rank of what the query's own value adds, 0 if it is not attended to."""
    D = dim - 1 if setting.startswith("layer") else dim
    found = energies(D, bias)
    last = int(found.degrees[-1])
    seen = all_seen(D, rank, last + 4)
    shifts = {"layer-any-v": (-2, -1, 0, 1, 2), "softmax-any-v": (-2, 0, 2)}.get(setting, (0,))

    def taken(degree: int) -> int:
        own = sum(seen[degree + j] for j in shifts if degree + j >= 0)
        return own + queries * (seen[degree + 1] + (seen[degree - 1] if degree else 0))

    pairs = [(taken(int(k)), n) for k, n in zip(found.degrees, found.counts, strict=True)]
    share, spared = np.array([c / n for c, n in pairs]), np.array([max(n - c, 0) / n for c, n in pairs])
    logs = np.array([math.log2(n) - math.log2(c) for c, n in pairs])
    if shifts == (0,) and not queries:
        beyond = (float(share[-1]), float(logs[-1]))
    else:
        most, count = (len(shifts) + 2 * queries) * seen[last + 2], found.counts[-1]
        beyond = (most / count, math.log2(count) - math.log2(most))
    least = 1.0 if rank >= D else 0.5 if rank == D - 1 else 0.0
    return Ladder(found, share, spared, logs, beyond, least, 1.0 if setting == "scalar" else 0.5)


def _taken(heads: int, share: Array | float, logs: Array | float, way: int) -> Any:
    """H m_ℓ from above (way 1) or from below (−1), but for what is less than 2^−120."""
    if heads < 2**900:
        return float(heads) * share * (1 + way * 8 * _U)
    power = math.log2(heads) - logs  # absolute error below 1e-11, for both are below 2^18
    return np.where(power > -900, np.exp2(np.clip(power, -900, 900)), 0.0) * (1 + way * 1e-10)
