"""Regressions that a network solves in its forward pass: the kind behind `in_context`."""

from attnfun.kinds import token_kind

KIND = token_kind("in_context", "InContextTask", "InContextSolver", commands=__name__)
