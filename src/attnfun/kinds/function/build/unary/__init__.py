"""Heads for functions of one variable: keys as tangent lines of a convex potential."""
