"""What is said of it."""

from __future__ import annotations

from typing import Any


def explain(model: Any) -> str:
    return f"{model.target.text} by {model.cost.keys} keys"


def subjects(model: Any, eps: float | None) -> tuple[str, list[Any], list[str]]:
    return model.target.text, [], ["Two keys, nothing to find."]
