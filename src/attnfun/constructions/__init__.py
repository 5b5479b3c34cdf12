"""Theorems that build weights: one construction a file, each with its statement, source, size, bound and failure
mode.
"""

from attnfun.constructions.auto import Choice, choose
from attnfun.constructions.plan import Construction, Plan, Request
from attnfun.constructions.registry import CONSTRUCTIONS

__all__ = ["CONSTRUCTIONS", "Choice", "Construction", "Plan", "Request", "choose"]
