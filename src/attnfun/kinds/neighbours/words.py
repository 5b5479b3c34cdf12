"""What is said of a network that finds neighbours."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from attnfun.kinds.neighbours.view import Neighbours


def explain(model: Neighbours) -> str:
    """In words: what was built, what is proved of its mean square, what is predicted."""
    c, cost, said = model.certificate, model.cost, model.predicted
    made = "trained" if model.trained else f"built by {model.method}"
    lines = [f"{model.target.text}, {model.target.domain}."]
    lines.append(
        f"{cost.layers} layers, {cost.heads:,} heads of rank at most {cost.rank:,}, width {model.network.width:,}, "
        f"{cost.parameters:,} parameters, {model.dtype}; {made}."
    )
    if c.bounds:
        lines.append(f"{c.heading}: the mean squared error is at most {c.error[1]:.4g}.")
        lines.append(f"Hypotheses: {'; '.join(c.hypotheses)}.")
    else:
        lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
    if said.error is not None:
        how = f": {said.how}" if c.verified else ""
        lines.append(f"Predicted, not a bound: {said.error:.4g} ± {said.uncertainty:.1g}, of {said.of}{how}.")
    return "\n".join(lines)


def record(model: Neighbours) -> dict[str, Any]:
    """What was asked, what is predicted, and limits."""
    return {
        "method": model.method,
        "which": model.which,
        "dim": model.dim,
        "points": model.points,
        "beta": model.request.get("beta"),
        "request": dict(model.request),
        "predicted": model.predicted.to_json(),
        "limit": model.limit,
        "width": model.network.width,
    }


def and_measured(
    dim: int,
    points: int | None = None,
    method: str = "full-rank",
    queries: int = 10_000,
    seed: int = 0,
    progress: Any = None,
    **rest: Any,
) -> tuple[Neighbours, dict[str, Any]]:
    """What the command makes: a network, and its error on random queries."""
    from attnfun.kinds.neighbours.verb import neighbours

    count = points if points is not None else 2 if method == "biased" else 3
    found = neighbours(dim, count, method, seed=seed, **rest)
    return found, {"measured": asdict(found.measured(queries, seed, progress)) if queries else None}
