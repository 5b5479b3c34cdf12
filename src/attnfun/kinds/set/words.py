"""What is said and told of a set function's model."""

import os
from typing import Any

from attnfun.diagnosis.subject import Subject
from attnfun.kinds.sequence.subjects import subjects as of_sequence
from attnfun.kinds.set.view import SetApproximant


def explain(model: SetApproximant) -> str:
    """In words: what DeepSets needs, what was built and what is proved."""
    a, n = model.analysis, model.target.points
    lines = [f"{model.target.text}  for sets of {n} points in  {model.target.box.text}"]
    lines.append(f"{a.verdict[0].upper()}{a.verdict[1:]} ({a.note}).")
    tokens = f"{n}² tokens, one a pair" if model.weights.pairs else "one token an element"
    lines.append(f"Method {model.method}: {tokens}.")
    lines += [
        f"{key}: {value}" for key, value in model.story.items() if key not in ("construction", "stages", "training")
    ]
    return "\n".join([*lines, model.sequence.explain()])


def picture(model: SetApproximant, path: str | os.PathLike[str] | None = None) -> Any:
    """That of its sequence map."""
    return model.sequence.plot(path)


def record(model: SetApproximant) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    tokens = model.target.points ** (2 if model.weights.pairs else 1)
    return {"points": model.target.points, "tokens": tokens, "analysis": model.analysis.to_json()}


def subjects(model: SetApproximant, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """What `diagnose` looks at: the same as in the model of its sequence map."""
    return of_sequence(model.sequence, eps)
