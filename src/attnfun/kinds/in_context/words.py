"""What is said and drawn of a network that solves a regression in context."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from attnfun.certify.view import Undecided
from attnfun.kinds.in_context.prove import measured, prove
from attnfun.kinds.in_context.view import InContextSolver
from attnfun.network import TokenNetwork, TokenTransformer
from attnfun.plots import style
from attnfun.plots.model import draw_model

_DEPTHS = 14
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


@style.picture
def picture(solver: InContextSolver) -> Any:
    """The error against the depth: optimisation, the floors of bias and rounding, what is proved and measured.

    Draw into `path` (.png, .pdf or .svg), if one is given, and return the matplotlib Figure. The same network at up to
    14 depths, to its own and a third beyond: measured on example prompts, and proved.
    """
    from attnfun.kinds.in_context.build import MOST_LAYERS, build

    if solver.alone:
        return draw_model(solver)  # depths are those of a construction
    task, own, network = solver.task, solver.cost.layers, solver.network
    assert isinstance(network, TokenNetwork)
    figure = style.sheet(7.2, 4.4)
    ax = figure.add_subplot()
    step = 1 if task.task in ("linear", "ridge") else 2
    first, last = 1 + step, min(own + max(2, own // 3) * step, MOST_LAYERS[task.task])
    chosen = np.unique(np.linspace(0, (last - first) // step, _DEPTHS).round().astype(int))
    shown, seen, proved = sorted({first + step * int(k) for k in chosen} | {own}), [], []
    for layers in shown:
        options = network.dtype, solver.heads, network.dtype == "float32"
        one = network if layers == own else build(task, layers, solver.algorithm, *options)
        seen.append(measured(one, task, 2, math.inf, search=False)[0])
        try:
            proved.append(prove(one, task).total)
        except Undecided:
            proved.append(math.nan)
    if np.isfinite(proved).any() and network.dtype == "float64":
        ax.semilogy(shown, proved, color=style.BOUND, lw=1.4, label="proved for the whole class")
    ax.semilogy(shown, seen, color=style.NETWORKS[0], marker="o", ms=3, lw=1.2, label="measured on example prompts")
    for k, part in enumerate(("optimisation", "bias", "rounding")):
        value = getattr(solver.budget, part)
        if value > 0 and part != "optimisation":
            ax.axhline(value, color=style.NETWORKS[k + 1], lw=0.9, ls=":", label=f"{part}, predicted: {value:.1e}")
    eps = solver.request.get("eps")
    if eps:
        ax.axhline(eps, color=style.FAINT, lw=0.9, ls="--", label=f"eps = {eps:g}")
    ax.axvline(own, color=style.FAINT, lw=0.9)
    style.legend(ax, fontsize=7)
    note = f"{own} layers, condition number {task.condition:.3g}, {network.dtype}"
    style.title(ax, f"{task.text} by {solver.algorithm}", note, "layers", "largest error of a prediction")
    return figure


def record(model: InContextSolver) -> dict[str, Any]:
    """The algorithm and its steps, the task, and the predicted budget (of trained weights there is none)."""
    return {
        "iterations": model.iterations,
        "algorithm": "training" if model.alone else model.algorithm,
        "task": model.task.to_json(),
        "predicted": asdict(model.budget),
    }
