"""Towers of ReLU units: every feature of one variable as a broken line, all units in one hidden layer.

Statement: `unary.spline` gives each feature the fewest breakpoints that keep it in a corridor of half-width E; the
units of all features stand beside each other in one hidden layer, the affine parts in the read-out.
Source: the ReLU spline walk of `realise="mlp"`; compare Altabaa and Lafferty, arXiv 2402.08856, who count neurons by
Barron's theorem: of order r² κ² C²/ε² for r features of Barron norm C (κ² = sup r(x, x)).
Size: ¼ ∫ √|φ''|/√E a feature. Bound: `certify.towers` (*pieces*). Failure mode: boxes past breakpoints.
Several variables: `relu_product_towers`.
"""

import numpy as np

from attnfun.errors import Infeasible
from attnfun.kinds.relation.build.relu_product_towers import broken_lines, relu_product_tower, usable
from attnfun.kinds.relation.features import Features
from attnfun.kinds.relation.towers import Keys, TowerWeights


def relu_tower(features: Features, side: str, tolerance: float) -> TowerWeights:
    """Units and lines with every used column within about `tolerance` of the feature."""
    half = features.half(side)
    low, high = half.box
    for v in range(len(low)):
        if not usable(float(low[v]), float(high[v])):
            text = f"realise='mlp': no breakpoints can stand in [{low[v]:.3g}, {high[v]:.3g}]"
            raise Infeasible(text, {"realise": "attention"})
    if len(low) > 1:
        return relu_product_tower(features, side, tolerance)
    if len(features.blocks) != 1:
        raise Infeasible("realise='mlp': several factors of one variable", {"realise": "attention"})
    slopes, biases, values, lines = broken_lines(half, 0, float(low[0]), float(high[0]), tolerance)
    if not len(slopes):  # affine features: one silent unit, for a layer has at least one
        slopes, biases, values = np.ones(1), np.array([-float(high[0])]), np.zeros((1, lines.shape[1]))
    return TowerWeights((Keys(1.0, 0.0, slopes, biases),), (values,), lines)
