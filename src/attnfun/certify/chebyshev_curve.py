"""A Chebyshev polynomial as the function of *pieces*: values and curvatures of many places at a time.

    g(u) = Σ_m c_m T_m(t),   t = (2u − a − b)/(b − a) = cos θ,   u in [a, b],   c_m stored doubles

Values. g(u) = Re Σ c_m e^{imθ}.

Curvatures. g'' = Σ_m q_m T_m(t) with q from the recurrence of derivatives, in balls. As a function of θ it is
q(θ) = Re Σ q_m e^{imθ}; where |θ − θ_0| ≤ η, Taylor with Lagrange's remainder has

    |q(θ) − q(θ_0)| ≤ Σ_{0 < k < K} |q^{(k)}(θ_0)| η^k/k! + Σ_m |q_m| m^K η^K/K!,    q^{(k)} = Re Σ q_m (im)^k e^{imθ}.

In θ every derivative is at most Σ |q_m| m^k, at the ends of [a, b] too, where derivatives in u grow with m^{2k}.

Rounding. θ = 2 atan2(√(b − u), √(u − a)) is a ball, and cos θ_0, sin θ_0 are rounded from balls: z_1 is within 2u of
e^{iθ_0}. Products of complex doubles are within 4u of their sizes, so z_m = z_{m−1} z_1 is within 8mu of e^{imθ_0}
(induction; m < 10⁶). A sum of N terms w_m z_m, its w_m within (K + 2)u of their sizes, is in any order within
Σ |w_m| (8m + 2N + 2K + 16)u of the exact one.

Cost: N values of K derivatives a place, as one product of matrices, where a graph of 3N nodes ran in power series for
every piece.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb

from attnfun.language import Array, precision
from attnfun.language.enclosures import balls, upper

_U = 2.0**-53
_BITS = 192
_TERMS = 32  # K
_CHUNK = 1 << 18  # numbers e^{imθ} that are held at a time
_WORK = 60_000_000  # of them in all: the budget of a proof


@dataclass(frozen=True, eq=False)
class ChebyshevCurve:
    """Σ_m c_m T_m on [low, high], as `pieces` asks for a function of one variable."""

    coefficients: Array
    low: float
    high: float

    @property
    def most_pieces(self) -> int:
        return max(1, _WORK // len(self.coefficients))

    @cached_property
    def resolution(self) -> float:
        return _slack(np.abs(self.coefficients), np.zeros_like(self.coefficients))

    def at(self, y: Array) -> Array:
        """(n,) balls with g at doubles of [low, high]."""
        c = self.coefficients
        angles = self._angles(y)
        found = [_sums(chunk, c[:, None])[:, 0].real for chunk in _chunks([(a, a) for a in angles], len(c))]
        value, off = np.concatenate([*found, np.zeros(0)]), self.resolution
        return np.asarray(balls(np.nextafter(value - off, -np.inf), np.nextafter(value + off, np.inf)), dtype=object)

    def over(self, left: Array, right: Array) -> Array:
        """(n,) balls with the range of g between: |T_m| ≤ 1."""
        size = np.nextafter(np.abs(self.coefficients).sum() * (1 + 2 * len(self.coefficients) * _U), np.inf)
        return np.asarray(balls(np.full(len(left), -size), np.full(len(left), size)), dtype=object)

    def curvatures(self, left: Array, right: Array) -> tuple[Array, Array]:
        """(n,) lower and upper bounds of g'' on pieces of [low, high]."""
        q, off = self._bend
        m = np.arange(len(q), dtype=np.float64)
        powers = np.cumprod(np.vstack([np.ones_like(m)] + [m] * _TERMS), axis=0)  # (K + 1, N)
        slack = np.array([_slack(np.abs(q) * row, off * row) for row in powers])
        rest = float(np.abs(q) @ powers[-1]) + slack[-1]
        table = (q * powers[:-1]).T
        turn = 1j ** np.arange(_TERMS)
        least, most = [np.zeros(0)], [np.zeros(0)]
        ends = list(zip(self._angles(right), self._angles(left), strict=True))
        for chunk in _chunks(ends, len(q)):
            derivatives = (_sums(chunk, table) * turn).real
            eta = chunk[2]
            total = np.full(len(eta), rest)
            for k in range(_TERMS, 0, -1):  # Horner: Σ_k |q^(k)| η^k/k!
                before = np.abs(derivatives[:, k - 1]) + slack[k - 1] if k > 1 else slack[0]
                total = before + total * (eta / k)
            total = total * (1 + 1e-12) + 1e-290
            least.append(np.nextafter(derivatives[:, 0] - total, -np.inf))
            most.append(np.nextafter(derivatives[:, 0] + total, np.inf))
        return np.concatenate(least), np.concatenate(most)

    @cached_property
    def _bend(self) -> tuple[Array, Array]:
        """(q, what its doubles are off): Chebyshev coefficients of g''."""
        with precision(_BITS):
            scale = 2 / (arb(self.high) - arb(self.low))
            rows = [arb(float(c)) for c in self.coefficients]
            for _ in range(2):
                rows = [scale * row for row in _derivative(rows)]
            q = np.array([float(row.mid()) for row in rows])
            return q, np.array([upper(abs(row - arb(v))) for row, v in zip(rows, q.tolist(), strict=True)])

    def _angles(self, y: Array) -> list[arb]:
        """Balls with θ."""
        a, b = arb(self.low), arb(self.high)
        with precision(_BITS):
            return [2 * arb.atan2((b - arb(u)).sqrt(), (arb(u) - a).sqrt()) for u in y.tolist()]


def _derivative(c: list[arb]) -> list[arb]:
    """Chebyshev coefficients of the derivative: d_{m−1} = d_{m+1} + 2 m c_m, and half of that for m = 1."""
    d = [arb(0)] * (len(c) + 1)
    for m in range(len(c) - 1, 0, -1):
        d[m - 1] = d[m + 1] + 2 * m * c[m]
    d[0] = d[0] / 2
    return d[: max(1, len(c) - 1)]


def _chunks(ends: list[tuple[arb, arb]], terms: int) -> list[tuple[Array, int, Array]]:
    """(z_1 at the middles of angles, number of terms, how far the angles go from there), few at a time."""
    step = max(1, _CHUNK // terms)
    out = []
    with precision(_BITS):
        for start in range(0, len(ends), step):
            first, reach = [], []
            for a, b in ends[start : start + step]:
                middle = arb(float(((a + b) / 2).mid())) if a is not b else a
                sine, cosine = middle.sin_cos()
                first.append(complex(float(cosine.mid()), float(sine.mid())))
                reach.append(max(upper(abs(b - middle)), upper(abs(a - middle))))
            out.append((np.array(first), terms, np.array(reach)))
    return out


def _sums(chunk: tuple[Array, int, Array], weights: Array) -> Array:
    """(places, columns) Σ_m weights[m] z_m."""
    first, terms, _ = chunk
    steps = np.ones((terms, len(first)), dtype=np.complex128)
    for m in range(1, terms):
        steps[m] = steps[m - 1] * first
    return np.asarray(steps.T @ weights)


def _slack(sizes: Array, off: Array) -> float:
    """What Σ_m w_m z_m may be off with |w_m| = sizes, and w_m themselves by `off`."""
    n = len(sizes)
    each = (8 * np.arange(n) + 2 * n + 2 * _TERMS + 16) * _U
    return float(sizes @ each + off.sum()) * (1 + 1e-9) + 1e-300 * n
