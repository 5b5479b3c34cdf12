"""What `diagnose` looks at in a model of a ternary relation."""

from __future__ import annotations

from typing import Any

from attnfun.diagnosis.subject import Subject
from attnfun.kinds.relation.subjects import tower_subjects
from attnfun.kinds.ternary.view import TrilinearForm
from attnfun.kinds.ternary.weights import Trilinear


def subjects(model: TrilinearForm, _eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """The heads of trained towers; a form has none."""
    weights: Any = model.weights
    if isinstance(weights, Trilinear):
        return "a trilinear form", [], ["It holds features of three sides: there is no head to look at."]
    return tower_subjects(model)
