"""Doubled: the view of a model of tanh(s x); and its words."""

from __future__ import annotations

from typing import Any

from attnfun.model import Model, Of
from attnfun.network import Network

from .target import Doubling


class Doubled(Model[Doubling, Network]):
    """x → tanh(s x), by two keys."""

    slope = Of[float]("target")


def explain(model: Doubled) -> str:
    return f"{model.target.text} by {model.cost.keys} keys"


def subjects(model: Doubled, eps: float | None) -> tuple[str, list[Any], list[str]]:
    return model.target.text, [], ["Two keys, nothing to find."]
