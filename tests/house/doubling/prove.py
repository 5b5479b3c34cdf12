"""The proof is that of the function."""

from __future__ import annotations

from typing import Any

from attnfun.certify.verdict import Proof
from attnfun.kinds import find
from attnfun.search import Goal, Say

from .target import Doubling


def proof(target: Doubling, weights: Any, goal: Goal, say: Say) -> Proof:
    found: Proof = find("function").loaded("prover")(target.function, weights, goal, say)
    return found
