"""Method *affine*: networks without heads, in any number of variables.

f − (A x + c), the stored A and c taken as exact rationals, is an expression like any other; its range over the box is
bounded by branch and bound with mean-value forms (`language/ranges.py`). For an affine f every partial derivative is a
rounding error of A, so the first mean-value form is already sharp.
Failure mode: an f that is not affine gets a true, large bound.
"""

import math
from fractions import Fraction

import numpy as np

from attnfun.certify.view import Bound, View, provided
from attnfun.language import Builder, Graph, precision
from attnfun.language.balls import values_at_point
from attnfun.language.enclosures import abs_lower
from attnfun.language.function import Function
from attnfun.language.ranges import range_of


def prove_by_affine(view: View, function: Function) -> Bound:
    """A bound of sup|f − (A x + c)|, its witness at a corner, the centre, or the ends of the box."""
    residual = _residual(view, function)
    high = max(max(-low, top, 0.0) for low, top in range_of(residual, function.box))
    provided(math.isfinite(high), "affine: the residual could not be bounded")
    low, witness = 0.0, None
    box = function.box
    few = np.stack([box.low_array, box.high_array, (box.low_array + box.high_array) / 2])
    X = box.probe(1, np.random.default_rng(0)) if box.dim <= 6 else few
    with precision(128):
        for x in X[:64]:
            found = max(map(abs_lower, values_at_point(residual, box.names, x)))
            if found > low:
                low, witness = found, x
    return Bound("affine", low, high, witness)


def _residual(view: View, function: Function) -> Graph:
    """f_o − Σ_k A_ok x_k − c_o for every output, exact."""
    builder = Builder()
    at = builder.copy(function.formula.nodes)
    outputs = []
    for o, node in enumerate(function.formula.outputs):
        total = builder.apply("sub", at[node], builder.const(Fraction(float(view.bias[o]))))
        for k, name in enumerate(function.box.names):
            if view.affine[o, k] != 0:
                term = builder.apply("mul", builder.const(Fraction(float(view.affine[o, k]))), builder.var(name))
                total = builder.apply("sub", total, term)
        outputs.append(total)
    return builder.graph(outputs)
