"""What is said of a trilinear form, and its record."""

from __future__ import annotations

from typing import Any

from attnfun.kinds.ternary.view import TrilinearForm
from attnfun.kinds.ternary.weights import Trilinear


def explain(model: TrilinearForm) -> str:
    """In words: what it is, and what is proved or was seen of it."""
    c, weights, cost = model.certificate, model.weights, model.cost
    lines = [f"{model.target.text}  on  {model.target.domain}"]
    made = "Trained" if model.trained else "Built"
    if isinstance(weights, Trilinear):
        degrees = ", ".join(f"{len(side) - 1} in {name}" for side, name in zip(weights.coefficients, model.box.names))
        lines.append(f"{made}: a form of {model.rank} terms, polynomials of degree {degrees}.")
    else:
        lines.append(
            f"{made}: {len(weights.networks)} towers, {model.rank} features, {cost.layers} layer(s), "
            f"{cost.parameters:,} parameters, {model.dtype}."
        )
    if model.rank_lower:
        lines.append(f"Any form needs at least {model.rank_lower} terms.")
    if c.bounds:
        asked = "no eps was asked for" if c.eps is None else f"eps was {c.eps:.4g}"
        lines.append(f"{c.heading} ({c.method}): the error is at most {c.error[1]:.4g}; {asked}.")
    else:
        lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
    return "\n".join(lines)


def record(model: TrilinearForm) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    told: dict[str, Any] = {"rank": model.rank, "rank_lower": model.rank_lower}
    if isinstance(model.weights, Trilinear):
        told["degrees"] = [len(side) - 1 for side in model.weights.coefficients]
    return told
