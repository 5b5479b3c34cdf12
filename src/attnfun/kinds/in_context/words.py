"""What is said and drawn of a network that solves a regression in context."""

from __future__ import annotations

import os
from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.kinds.in_context.view import InContextSolver
from attnfun.network import TokenTransformer

_STORIES = {
    "linear": "Queries solve A v = q and a solver token A w = Xᵀy, by {steps} steps of {name} (condition number "
    "{kappa:.3g}); the last layer multiplies their residuals away.",
    "lasso": "{steps} proximal steps, each a gradient layer and a layer that soft-thresholds every coefficient, then "
    "one layer that predicts (condition number {kappa:.3g}).",
    "logistic": "{steps} accelerated gradient steps, each a layer of exact sigmoids and a layer that gathers the "
    "gradient, then one layer that predicts.",
}
_STORIES["ridge"] = _STORIES["linear"]


def explain(model: InContextSolver) -> str:
    """In words: what was built, what its layers do, what is proved of it and what is predicted."""
    c, cost, task, network = model.certificate, model.cost, model.task, model.network
    lines = [f"{task.text}: {task.domain}."]
    lines.append(
        f"Built: {cost.layers} layers, {cost.heads} heads, width {network.width}, {cost.keys} constant tokens,"
        f" {cost.parameters:,} parameters, {network.dtype}; prompts of {2 * task.examples} tokens and queries."
    )
    if model.alone:
        units = sum(network.units) if isinstance(network, TokenTransformer) else 0
        lines += [f"{units:,} ReLU units stand between its layers."] if units else []
        return "\n".join([*lines, "Its weights were trained.", f"{c.heading}: {c.reason or c.status.meaning}."])
    lines.append(_STORIES[task.task].format(steps=model.iterations, name=model.algorithm, kappa=task.condition))
    if c.bounds:
        order = ("optimisation", "bias", "rounding", "input")
        parts = ", ".join(f"{name} {c.parts[name]:.2g}" for name in order if name in c.parts)
        lines.append(f"{c.heading}, for every prompt of the class: predictions within {c.error[1]:.3g} ({parts}).")
        lines.append(f"Hypotheses: {'; '.join(c.hypotheses)}.")
    else:
        lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
    b = model.budget
    if b.prompts:
        lines.append(
            f"Predicted on example prompts (an estimate): {b.total:.2g}, of which optimisation "
            f"{b.optimisation:.2g}, bias {b.bias:.2g}, rounding {b.rounding:.2g}."
        )
    return "\n".join(lines)


def picture(model: InContextSolver, path: str | os.PathLike[str] | None = None) -> Any:
    """The error against the depth: optimisation, the floors of bias and rounding, what is proved and measured."""
    from attnfun.kinds.in_context.picture import draw_in_context

    if model.alone:
        raise InvalidRequest("the picture is that of a construction; this network was trained")
    return draw_in_context(model, path)


def record(model: InContextSolver) -> dict[str, Any]:
    """The algorithm and its steps, the task, and the predicted budget (of trained weights there is none)."""
    return {
        "iterations": model.iterations,
        "algorithm": "training" if model.alone else model.algorithm,
        "task": model.task.to_json(),
        "predicted": model.budget.to_json(),
    }
