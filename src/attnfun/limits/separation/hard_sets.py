"""The hard set functions themselves: by power sums, by pairs, as expressions; and points to try them on.

| setting | g by pairs | by power sums |
| --- | --- | --- |
| unitary | (2K)^{-1/2} Σ_{n,n'} Σ_{k ≤ K} (x_n x_n')^k/k | (2K)^{-1/2} Σ_{k ≤ K} p_k²/k |
| torus | (Σ_{n,n'} Π_d (1 + x_nd x_n'd) − N²)/sqrt((2N²−N)(2^D−1)) | Σ_{α ≠ 0} p_α²/sqrt((2N²−N)(2^D−1)) |

The two columns are equal identically: p_α² = Σ_{n,n'} (x_n x_n')^α, and Π_d (1 + w_d) = Σ_α w^α over α in {0,1}^D.
`features` keeps the first H terms of the second column, the best that H features do.

For networks a complex coordinate is two real ones, c_d = cos and s_d = sin, and g two outputs, its real and imaginary
part; `expressions` writes both columns in the language of set functions. `angle_expressions` takes the angles
instead, which makes the kernel of pairs cheap: a function of sums of angles. Sampling caveat: products of many power
sums have heavy tails under the unitary measure; only means of few factors converge at sizes one can draw.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.language.domain import Array
from attnfun.language.numbers import whole_number
from attnfun.limits.separation.sets import MOST_DIM

Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class HardSet:
    """The hard function of `points` points in dimension `dim`: unitary for dim 1, else torus."""

    points: int
    dim: int

    def __post_init__(self) -> None:
        whole_number("points", self.points, 2)
        whole_number("dim", self.dim, 1, MOST_DIM)

    @property
    def terms(self) -> int:
        """K, the number of squares in g."""
        return self.points // 2 if self.dim == 1 else 2**self.dim - 1

    @property
    def exponents(self) -> tuple[tuple[int, ...], ...]:
        if self.dim == 1:
            return tuple((k,) for k in range(1, self.terms + 1))
        return tuple(a for a in product((0, 1), repeat=self.dim) if any(a))

    @property
    def divisor(self) -> int:
        """The square of what g is divided by; the k-th term of the unitary g has k below it as well."""
        n = self.points
        return 2 * self.terms if self.dim == 1 else (2 * n * n - n) * self.terms

    def sample(self, sets: int, seed: int = 0) -> Complex:
        """(sets, points, dim) points of the measure."""
        rng = np.random.default_rng(seed)
        if self.dim > 1:
            return np.asarray(np.exp(2j * np.pi * rng.random((sets, self.points, self.dim))))
        shape = sets, self.points, self.points
        q, r = np.linalg.qr(rng.normal(size=shape) + 1j * rng.normal(size=shape))
        signs = np.einsum("bii->bi", r)
        return np.asarray(np.linalg.eigvals(q * (signs / np.abs(signs))[:, None, :]))[:, :, None]

    def by_pairs(self, X: Complex) -> Complex:
        """One sum over pairs of points, O(N² D)."""
        w = X[:, :, None, :] * X[:, None, :, :]
        if self.dim == 1:
            kernel = sum(w[..., 0] ** k / k for k in range(1, self.terms + 1))
        else:
            kernel = np.prod(1 + w, axis=-1) - 1
        return np.asarray(np.sum(kernel, axis=(1, 2)) / math.sqrt(self.divisor))

    def real(self, X: Complex) -> Array:
        """(sets, points, dim) complex → (sets, points, 2 dim): c1, s1, c2, s2, …"""
        parts = np.stack([X.real, X.imag], axis=-1)
        return np.asarray(np.clip(parts.reshape(*X.shape[:2], 2 * self.dim), -1.0, 1.0))

    @property
    def domain(self) -> dict[str, tuple[float, float]]:
        return {name: (-1.0, 1.0) for d in range(1, self.dim + 1) for name in (f"c{d}", f"s{d}")}

    def expressions(self, features: int | None = None) -> list[str]:
        """[real part, imaginary part] of g by one sum over pairs, or of its first squares by sums over elements."""
        if features is None:
            return [f"sum({part})/sqrt({self.divisor})" for part in self._kernel()]
        whole_number("features", features, 1, self.terms)
        re, im = [], []
        for alpha in self.exponents[:features]:
            power = _ONE
            for d, k in enumerate(alpha, start=1):
                for _ in range(k):
                    power = _times(power, (f"c{d}", f"s{d}"))
            under = f"/{alpha[0]}" if self.dim == 1 and alpha[0] > 1 else ""
            re.append(f"(sum({power[0]})**2 - sum({power[1]})**2){under}")
            im.append(f"2*sum({power[0]})*sum({power[1]}){under}")
        return [f"({' + '.join(parts)})/sqrt({self.divisor})" for parts in (re, im)]

    def angles(self, X: Complex) -> Array:
        """(sets, points, dim) complex → angles t1, t2, … in [−π, π]."""
        return np.asarray(np.angle(X))

    @property
    def angle_domain(self) -> dict[str, tuple[float, float]]:
        return {f"t{d}": (-math.pi, math.pi) for d in range(1, self.dim + 1)}

    def angle_expressions(self) -> list[str]:
        """[real part, imaginary part] of g by one sum over pairs, in angles: 1 + e^{ia} = 2 cos(a/2) e^{ia/2}, so that
        the kernel is 2^D Π_d cos(a_d/2) times the cosine or sine of Σ_d a_d/2, a_d = t_nd + t_n'd.
        """
        sums = [f"(t{d}_i + t{d}_j)" for d in range(1, self.dim + 1)]
        parts = []
        for wave, less in (("cos", " - 1"), ("sin", "")):
            if self.dim == 1:
                kernel = " + ".join(f"{wave}({k}*{sums[0]})/{k}" for k in range(1, self.terms + 1))
            else:
                product_ = "*".join(f"cos({a}/2)" for a in sums)
                kernel = f"{2**self.dim}*{product_}*{wave}(({' + '.join(sums)})/2){less}"
            parts.append(f"sum({kernel})/sqrt({self.divisor})")
        return parts

    def _kernel(self) -> tuple[str, str]:
        """κ(x, x') as real and imaginary part, nested so that it grows with K or D and not with 2^D."""
        w = [(f"(c{d}_i*c{d}_j - s{d}_i*s{d}_j)", f"(c{d}_i*s{d}_j + s{d}_i*c{d}_j)") for d in range(1, self.dim + 1)]
        if self.dim == 1:
            powers, power = [], _ONE
            for k in range(1, self.terms + 1):
                power = _times(power, w[0])
                powers.append(tuple(f"{part}/{k}" for part in power))
            return " + ".join(p[0] for p in powers), " + ".join(p[1] for p in powers)
        value = _ONE
        for re, im in w:
            value = _times(value, (f"(1 + {re})", im))
        return f"{value[0]} - 1", value[1]


_ONE: Any = ("1", "0")


def _times(a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str]:
    """The product of two complex expressions."""
    if a == _ONE:
        return b
    return f"({a[0]}*{b[0]} - {a[1]}*{b[1]})", f"({a[0]}*{b[1]} + {a[1]}*{b[0]})"
