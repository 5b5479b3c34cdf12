"""Linear attention out of softmax attention: mirrored tokens and Richardson heads.

Statement. Let tokens come in pairs ±(x_i, V_i), i = 1 … N, and let a head have logits σ z_i and −σ z_i on a pair. Then

    N/σ · head = (N/σ) Σ V_i sinh(σ z_i) / Σ cosh(σ z_i) = Σ V_i z_i + O(σ²),

odd in σ; H heads of scales σ s_h, s_0 = 1, with weights ρ_h = Π_{k≠h} s_k²/(s_k² − s_h²) leave O(σ^{2H}). s_h = 2^−h or
near the extrema of a Chebyshev polynomial, where W below is next to its least, 2H − 1 (Bernstein's inequality at 0).

Source. Mirrored pairs: after the linear self-attention of von Oswald et al. (arXiv 2212.07677); Richardson
extrapolation (Richardson 1911) of an odd function.

Size. H heads in the same layer.

Bound. Bias about Π s_h² x^{2H}/(2H + 1)! relative, x = σ max|z|, and rounding about W u/x, W = Σ |ρ_h|/s_h: the
scale is chosen where their sum is smallest: a power of two, so that scaling a query rounds nothing, or a few bits.

Failure mode. float32: u/x is large, and the floor is about 1e-6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
_WIDEST = 1.4, 2.0  # the most that σ max|z| may be, for a bound and for typical data
MOST_HEADS = 8
_HEADS = 4  # as many as are taken unless more are asked for


@dataclass(frozen=True)
class Scales:
    """σ_h (of a few bits) and ρ_h of H heads: Σ ρ_h sinh(σ_h z)/σ_h = z + O(z^{2H+1})."""

    sigma: tuple[float, ...]
    rho: tuple[float, ...]

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """(σ_h, ρ_h) of every head."""
        return list(zip(self.sigma, self.rho, strict=True))

    def finer(self, halvings: int) -> Scales:
        return Scales(tuple(sigma * 2.0**-halvings for sigma in self.sigma), self.rho)


def richardson(heads: int) -> tuple[float, ...]:
    """ρ_h for the scales 1, 1/2, 1/4, …"""
    return _weights(_halves(heads))


def _halves(heads: int) -> tuple[float, ...]:
    return tuple(2.0**-h for h in range(heads))


def _extrema(heads: int) -> tuple[float, ...]:
    """32 cos(kπ/(2H − 1)) in whole numbers."""
    return tuple(float(round(32 * math.cos(k * math.pi / (2 * heads - 1)))) for k in range(heads))


def _weights(scales: tuple[float, ...]) -> tuple[float, ...]:
    s = [scale**2 for scale in scales]
    return tuple(math.prod(s[k] / (s[k] - s[h]) for k in range(len(s)) if k != h) for h in range(len(s)))


def choose(
    reach: float, dtype: str, noise: float, heads: int | None = None, typical: float = 1.0, steps: int = 1
) -> Scales:
    """Scales for logits z with |z| ≤ reach; `noise` counts the roundings of a head relative to its scaled signal.

    Without `heads` the number is the smallest whose floor is within a factor two of the best. `typical` < 1 counts the
    bias for logits of that share of `reach`: best for data as they come, no longer for the bound of a whole class.
    `steps` > 1: scales near Chebyshev's extrema, whole multiples of a number with `steps` of its kind from one power of
    two to the next, taken below the best one, for bias grows like σ^{2H} and rounding like 1/σ. Scaling a query then
    rounds once.
    """
    options = range(1, _HEADS + 1) if heads is None else (heads,)
    units = {count: (_extrema if steps > 1 else _halves)(count) for count in options}
    floors = {count: _floor(units[count], dtype, noise, typical) for count in options}
    best = min(floor for floor, _ in floors.values())
    count = next(count for count, (floor, _) in floors.items() if floor <= 2 * best)
    unit, exact = units[count], floors[count][1] / reach
    sigma = few_bits(exact / unit[0], steps) if steps > 1 else 2.0 ** round(math.log2(exact))
    return Scales(tuple(sigma * part for part in unit), _weights(unit))


def few_bits(value: float, steps: int) -> float:
    """The next number below with `steps` of them from one power of two to the next."""
    power = 2.0 ** math.floor(math.log2(value))
    return power * max(1.0, math.floor(steps * value / power) / steps)


def _floor(unit: tuple[float, ...], dtype: str, noise: float, typical: float) -> tuple[float, float]:
    """(least sum of relative bias and rounding, the x where it is) of heads with scales like `unit`, largest first."""
    heads, s = len(unit), [part / unit[0] for part in unit]
    bias = math.prod(part**2 for part in s) / math.factorial(2 * heads + 1)
    rounding = sum(abs(r) / part for r, part in zip(_weights(unit), s, strict=True)) * noise * _ROUNDOFF[dtype]
    bias *= typical ** (2 * heads)
    x = min(_WIDEST[typical < 1], (rounding / (2 * heads * bias)) ** (1 / (2 * heads + 1)))
    return bias * x ** (2 * heads) + rounding / x, x
