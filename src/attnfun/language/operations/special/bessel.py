"""Bessel functions of whole order: jv, yv, iv, kv, of which j0, j1, y0, … are the orders 0 and 1.

With C_n = J_n or Y_n, or e^{iπn} K_n or I_n, whose signs are the last column: 2 C_n' = a (C_{n-1} + σ C_{n+1}), so that

    C_n^(k)(z)/k! = (a/2)^k/k! Σ_j C(k,j) σ^j C_{n-k+2j}(z).

| C | a | σ |
| --- | --- | --- |
| J, Y | 1 | -1 |
| I | 1 | 1 |
| K | -1 | 1 |
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint

from attnfun.language.operations import shapes as s
from attnfun.language.operations.analytic import Row, anywhere, family, off_negative
from attnfun.language.operations.entry import POSITIVE, Need, Operation
from attnfun.language.operations.shapes import ZERO, Ball, acb, arb


def _second_kind(n: int, z: Ball) -> Ball:
    """K_n, a small difference of two large numbers where Arb's series for large arguments is not exact enough."""
    order, bits = acb(-abs(n)), flint.ctx.prec
    value = z.bessel_k(order)
    if value.rel_accuracy_bits() >= bits // 2 or z.rel_accuracy_bits() < bits // 2 or not abs(z) < 1000:
        return value
    with flint.ctx.workprec(bits + 3 * int(float(abs(z).upper()))):
        return z.bessel_k(order)


def _disc(n: int, m: Ball) -> tuple[Ball, Ball]:
    """For Re z > 0 is K_n(z) = ∫_0^∞ e^{-z cosh t} cosh nt dt, so |K_n(z)| ≤ K_n(Re z), which falls."""
    if not m.real > 0:
        return ZERO, ZERO
    reach = (m.real * 3 / 4).min(arb(3))
    return reach, _second_kind(n, acb((m.real - reach).lower())).real.upper()


def _entry(
    name: str, fast: tuple[str, str], arb_name: str, a: int, sigma: int, disc: Any = None, **fields: Any
) -> Operation:
    def at(n: int, z: Ball) -> Ball:
        # C_{-n} = σ^n C_n; of a positive order Arb takes up to 10^4 times as long over some fat arguments
        value = _second_kind(n, z) if disc is not None else getattr(z, arb_name)(acb(-abs(n)))
        return -value if sigma < 0 and n > 0 and n % 2 else value

    def orders(n: int, z: Ball, count: int) -> dict[int, Ball]:
        """Those from n - count + 1 to n + count - 1; of Y and K by z (C_{m+1} - σ C_{m-1}) = 2m C_m, without a loss
        upward, where they grow.
        """
        if not fields:
            return {m: at(m, z) for m in range(n - count + 1, n + count)}
        row = [at(0, z), at(1, z)]
        for m in range(1, abs(n) + count):
            row.append(row[m] * (2 * m) / z + sigma * row[m - 1])
        return {m: row[abs(m)] * (sigma**m if m < 0 else 1) for m in range(n - count + 1, n + count)}

    def expand(n: int, z: Ball, count: int) -> Row:
        around = orders(n, z, count)
        out = []
        for k in range(count):
            total = sum((math.comb(k, j) * sigma**j * around[n - k + 2 * j] for j in range(k + 1)), acb(0))
            out.append(total * a**k / (2**k * math.factorial(k)))
        return out

    def slope(b: Any, x: Any, value: Any, n: int) -> Any:
        after = getattr(b, name)(x, n + 1)
        if n == 0:
            return after if a * sigma > 0 else b.neg(after)
        before = getattr(b, name)(x, n - 1)
        both = (b.add if sigma > 0 else b.sub)(before, after)
        return b.mul(b.constant(Fraction(a, 2)), both)

    def floats(n: int, x: Any) -> Any:
        order: Callable[..., Any] = s.scipy(name, n)
        return s.by_field(s.scipy(fast[n]), order)(x) if n in (0, 1) else order(x)

    within = off_negative if fields else anywhere
    ufuncs = (name, f"{name[0]}n")
    return family(name, at, expand, within, slope, disc, floats=floats, ufuncs=ufuncs, **fields)


_LOGARITHMIC: dict[str, Any] = {"needs": Need(POSITIVE), "cut": lambda g: g, "singular": lambda g: g}

OPERATIONS = (
    _entry("jv", ("j0", "j1"), "bessel_j", 1, -1),
    _entry("yv", ("y0", "y1"), "bessel_y", 1, -1, **_LOGARITHMIC),
    _entry("iv", ("i0", "i1"), "bessel_i", 1, 1),
    _entry("kv", ("k0", "k1"), "bessel_k", -1, 1, disc=_disc, **_LOGARITHMIC),
)
