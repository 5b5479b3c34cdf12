"""The class of prompts as a linear in-context network sees it: norms, eigenvalues, and what rounding the data costs.

In float64 data are seen as they are; eigenvalues may lie `EDGE` outside the declared spectrum, as `predict` allows, and
twice that is assumed. In float32 X, y and q are rounded first. Then singular values move by at most ‖ΔX‖, and with
A = XᵀX + αI, w = A⁻¹Xᵀy and the same with primes for rounded data,

    w' − w = A'⁻¹(ΔXᵀ(y − Xw) + X'ᵀ(Δy − ΔX w)),       |y − Xw| ≤ |y|,  |w| ≤ max √μ/λ |y|,

for αw = Xᵀ(y − Xw): exact, not to first order.

Logistic regression has the curvature of its penalty, whatever the data: its bound reads neither `low` nor `input`, so
its spectrum may begin at 0, and it counts what rounding the data costs itself.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from attnfun.certify.rounding import ROUNDOFF, TINY
from attnfun.certify.view import provided
from attnfun.kinds.in_context.target import EDGE, InContextTask

SAFE = 1 + 1e-9  # bounds are computed in float64 from positive terms


@dataclass(frozen=True)
class SeenClass:
    """The class of prompts as the network sees it (float32: rounded), and what that rounding costs."""

    N: int
    d: int
    alpha: float
    low: float
    high: float
    row: float
    y_entry: float
    q: float
    y: float
    input: float

    @property
    def top(self) -> float:
        """The largest eigenvalue of XᵀX."""
        return (self.high - self.alpha) * SAFE

    def lost(self, dtype: str, w: float, change: Callable[[float], float]) -> float:
        """What rounding the data to float32 costs: |w*| ≤ `w` moves by `change` of ‖ΔX‖ at most, and then there is Δq.

        |q·w*| is off by |q| change + |Δq|(w + change).
        """
        if dtype == "float64":
            return 0.0
        u, tiny = ROUNDOFF[dtype], TINY[dtype]
        moved = change((u * math.sqrt(self.d * self.high) + math.sqrt(self.N * self.d) * tiny) * SAFE)
        return float((self.q * moved + (u * self.q + math.sqrt(self.d) * tiny) * (w + moved)) * SAFE)


def seen(task: InContextTask, dtype: str) -> SeenClass:
    N, d, alpha, u = task.examples, task.dim, task.shift, ROUNDOFF[dtype]
    edge = 2 * EDGE * task.spectrum[1]
    low, high = max(task.spectrum[0] - edge, 0.0), task.spectrum[1] + edge
    q, y = math.sqrt(d) * task.query_range * SAFE, math.sqrt(N) * task.y_range * SAFE
    row = min(math.sqrt(d) * task.x_range, math.sqrt(max(high - alpha, 0.0))) * SAFE
    provided(task.from_zero or (low > 0 and low >= alpha - edge), "the spectrum reaches 0")
    if dtype == "float64":
        return SeenClass(N, d, alpha, low, high, row, task.y_range, q, y, 0.0)
    tiny = TINY[dtype]
    move = (u * math.sqrt(d * max(high - alpha, 0.0)) + math.sqrt(N * d) * tiny) * SAFE
    small = max(math.sqrt(max(low - alpha, 0.0)) - move, 0.0) ** 2 + alpha
    large = (math.sqrt(max(high - alpha, 0.0)) + move) ** 2 + alpha
    provided(task.from_zero or small > 0, "rounding the data may take the spectrum to 0")
    lost = 0.0
    if not task.from_zero:
        w, after = y * gain(low, high, alpha), gain(small, large, alpha)
        change = move * y / small + after * (u * y + math.sqrt(N) * tiny + move * w)
        lost = ((u * q + math.sqrt(d) * tiny) * (w + change) + q * change) * SAFE
    up = (1 + 2 * u) * SAFE
    row = min(row * up, math.sqrt(large - alpha) * up)
    return SeenClass(N, d, alpha, small / up, large * up, row, task.y_range * up, q * up, y * up, lost)


def gain(low: float, high: float, alpha: float, safe: float = SAFE) -> float:
    """max √(λ − α)/λ over [low, high], times `safe`; its only stationary point is 2α."""
    peak = min(max(low, 2 * alpha), high)
    return max(math.sqrt(max(lam - alpha, 0.0)) / lam for lam in (low, peak, high)) * safe
