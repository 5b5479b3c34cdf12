"""What `diagnose` looks at in a function's model."""

from attnfun.diagnosis.plain import looked_at
from attnfun.diagnosis.subject import Subject
from attnfun.kinds.function.view import Approximant


def subjects(model: Approximant, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """Its heads, judged by the target."""
    asked = model.certificate.eps if eps is None else eps
    return looked_at(model.weights, model.target, asked, model.certificate.norm)
