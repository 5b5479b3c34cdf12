"""Theorems that build weights: one construction a file, each with its statement, source, size, bound and failure
mode.
"""

from attnfun.kinds.function.build.plan import Construction, Plan, Request
from attnfun.kinds.function.build.registry import CONSTRUCTIONS, Choice, choose

__all__ = ["CONSTRUCTIONS", "Choice", "Construction", "Plan", "Request", "choose"]
