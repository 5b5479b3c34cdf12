"""What `diagnose` looks at in a set function's model: the same as in that of its sequence map."""

from __future__ import annotations

from attnfun.diagnosis.subject import Subject
from attnfun.kinds.sequence.subjects import subjects as of_sequence
from attnfun.kinds.set.view import SetApproximant


def subjects(model: SetApproximant, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    return of_sequence(model.sequence, eps)
