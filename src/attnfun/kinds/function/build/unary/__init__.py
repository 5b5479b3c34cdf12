"""Heads for functions of one variable: keys as tangent lines of a convex potential."""

from attnfun.kinds.function.build.unary.fit import estimate_keys, fit_unary
from attnfun.kinds.function.build.unary.pieces import Fit

__all__ = ["Fit", "estimate_keys", "fit_unary"]
