"""Towers of ReLU units: every feature of one variable as a broken line, all units in one hidden layer.

Statement: `function/build/unary/spline` gives each feature the fewest breakpoints that keep it in a corridor of
half-width E; the units of all features stand beside each other in one hidden layer, the affine parts in the read-out.
Source: the ReLU spline walk of `realise="mlp"`; compare Altabaa and Lafferty, arXiv 2402.08856, who count neurons by
Barron's theorem: of order r² κ² C²/ε² for r features of Barron norm C (κ² = sup r(x, x)).
Size: ¼ ∫ √|φ''|/√E a feature. Bound: `prove_towers` (*pieces*). Failure mode: boxes past breakpoints.
Several variables: `_product_tower`.
"""

import math

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.unary.spline import MOST_UNITS, fit_spline, growth
from attnfun.kinds.relation.features import Features, Half, polynomial_graph
from attnfun.kinds.relation.towers import Keys, Squares, TowerWeights, parents
from attnfun.network.head import Array

_MOST = 12  # the finest template has 2^12 units per side
_MOST_UNITS = 300_000


def relu_tower(features: Features, side: str, tolerance: float) -> TowerWeights:
    """Units and lines with every used column within about `tolerance` of the feature."""
    half = features.half(side)
    low, high = half.box
    for v in range(len(low)):
        text = f"realise='mlp': no breakpoints can stand in [{low[v]:.3g}, {high[v]:.3g}]"
        feasible(_usable(float(low[v]), float(high[v])), text, {"realise": "attention"})
    if len(low) > 1:
        return _product_tower(features, side, tolerance)
    feasible(len(features.blocks) == 1, "realise='mlp': several factors of one variable", {"realise": "attention"})
    slopes, biases, values, lines = _broken_lines(half, 0, float(low[0]), float(high[0]), tolerance)
    if not len(slopes):  # affine features: one silent unit, for a layer has at least one
        slopes, biases, values = np.ones(1), np.array([-float(high[0])]), np.zeros((1, lines.shape[1]))
    return TowerWeights((Keys(1.0, 0.0, slopes, biases),), (values,), lines)


def _product_tower(features: Features, side: str, tolerance: float) -> TowerWeights:
    """Units, templates and products with every column within about `tolerance` and every product likewise.

    Towers of ReLU units in several variables: factors as broken lines, products by squares.

    Statement: a b = ((a + b)² − (a − b)²)/4 with both squares as one broken line (`towers`); factors of one
    variable by `function/build/unary/spline`, their affine parts as two more units.
    Source: products by squares of broken lines, Yarotsky 2017; the ReLU spline walk for the factors.
    Size: a factor ¼ ∫ √|φ''|/√E units, a product about 4/√E; layers: one, and one a further factor.
    Bound: `prove_towers`, from the stored units. Failure mode: factors of several variables that belong together.
    """
    half = features.half(side)
    (low, high), blocks = half.box, half.alive
    if any(len(half.places[b]) > 1 for b in blocks):
        raise Infeasible("realise='mlp': factors of several variables that belong together", {"realise": "attention"})
    keys: dict[int, Keys] = {}
    values, sups = [], []
    for b in blocks:
        (v,), P = half.places[b], half.tables[b]
        start = float(low[v])
        slopes, biases, own, lines = _broken_lines(half, b, start, float(high[v]), tolerance)
        lines[1] += lines[0] * start  # the affine parts as two more units, relu(x − low) and relu(1)
        keys[v] = Keys(1.0, 0.0, np.append(slopes, [1.0, 0.0]), np.append(biases, [-start, 1.0]))
        values.append(np.concatenate([own, lines]))
        nodes = np.cos(np.linspace(0, np.pi, 8 * len(P) + 1))
        sups.append(1.01 * np.abs(np.polynomial.chebyshev.chebval(nodes, P)).max(axis=1) + 2 * tolerance)
    sizes = sups[0][half.distinct(blocks[:1])[0][:, 0]]
    steps, finest, total = [], 0, sum(map(len, values))
    for k in range(1, len(blocks)):
        parent, last = parents(half, k)
        a, b = sizes[parent], sups[k][last]
        reach = 2 * np.sqrt(a * b) * 1.001  # λ' a + b/λ' with λ' = √(b/a)
        gain = reach * reach / 4
        allowed = tolerance * np.maximum(a, b)
        levels = np.ceil(0.5 * np.log2(np.maximum(gain / (4 * allowed), 1.0)))  # 2 gain E ≤ allowed, E = 4^−level/8
        if not levels.max() <= _MOST:
            raise Infeasible("realise='mlp': products this close need too many units", {"realise": "attention"})
        finest = max(finest, int(levels.max()))
        steps.append(np.stack([np.sqrt(b / a) / reach, np.sqrt(a / b) / reach, gain, levels]))
        total += int(np.sum(4 * 2.0**levels))
        sizes = a * b + 4 * allowed
    feasible(total <= _MOST_UNITS, f"realise='mlp': {total:,} ReLU units are out of reach", {"realise": "attention"})
    templates = tuple(_square(level) for level in range(finest + 1))
    every = range(len(low))
    return TowerWeights(tuple(keys[v] for v in every), tuple(values), squares=Squares(templates, tuple(steps)))


def _square(level: int) -> Array:
    """(3, 2n) units of u² − constant on [−1, 1], n = 2^level pieces of width h a side, within h²/8: E = 4^−level/8.

    Slopes are those of chords; breakpoints 0, h, 2h, …: at 0 both units speak outward.
    """
    n = 2**level
    places = np.arange(n) / n
    rise = np.full(n, 2 / n)  # chord slopes 1/n, 3/n, …
    rise[0] = 1 / n
    slopes = np.r_[np.ones(n), -np.ones(n)]
    return np.stack([slopes, np.r_[-places, -places], np.r_[rise, rise]])


def _broken_lines(half: Half, b: int, low: float, high: float, tolerance: float) -> tuple[Array, Array, Array, Array]:
    """Slopes, biases and values (units, columns) of units for the used columns of a block, and (2, columns) their
    affine parts; Infeasible, before any unit is made, where together they would be too many."""
    P, used = half.tables[b], np.unique(half.selection[:, b])
    graphs = [polynomial_graph(P[:, c], low, high) for c in used]
    units = sum(growth(graph, low, high)(tolerance) for graph in graphs)
    if not units <= 1.1 * MOST_UNITS:  # an estimate
        nearest = {"eps": 2 * tolerance * (units / MOST_UNITS) ** 2} if math.isfinite(units) else None
        raise Infeasible(f"about {units:,.0f} ReLU units would be needed, more than {MOST_UNITS:,}", nearest)
    fits = [fit_spline(graph, low, high, tolerance) for graph in graphs]
    lines, parts = np.zeros((2, P.shape[-1])), []
    for c, fit in zip(used, fits, strict=True):
        parts.append(np.zeros((fit.keys, P.shape[-1])))
        parts[-1][:, c], lines[:, c] = fit.pieces[0].values[:, 0], (fit.slope, fit.offset)
    slopes = np.concatenate([fit.pieces[0].axes[0].slopes[:, 0] for fit in fits])
    biases = np.concatenate([fit.pieces[0].axes[0].biases for fit in fits])
    return slopes, biases, np.concatenate(parts), lines


def _usable(low: float, high: float) -> bool:
    """Can breakpoints stand in the box? Not where its width is lost beside its place or beside 1."""
    far = max(abs(low), abs(high))
    return math.isfinite(far) and high - low > 1e-30 and far < 1e30 and high - low > 1e-9 * far
