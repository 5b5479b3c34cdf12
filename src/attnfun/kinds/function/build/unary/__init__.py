"""Heads for functions of one variable: keys as tangent lines of a convex potential."""

from attnfun.kinds.function.build.unary.fit import Piece, UnaryFit, estimate_keys, fit_unary

__all__ = ["Piece", "UnaryFit", "estimate_keys", "fit_unary"]
