"""What is said and drawn of a function's model."""

import math
import os
from collections.abc import Mapping
from typing import Any

from attnfun.kinds.function.view import Approximant


def explain(model: Approximant) -> str:
    """In words: what was built, why this method, what each head does, what is proved."""
    c, cost = model.certificate, model.cost
    head, key = model.network.words
    lines = [f"{model.target.text}  on  {model.target.box.text}"]
    sizes = f"{_plural(cost.layers, 'layer')}, {_plural(cost.heads, head)}, {_plural(cost.keys, key)}, rank {cost.rank}"
    form = "" if model.network.is_mlp else " (literal form)"
    values = f"values up to {cost.max_value:.3g}, {model.network.dtype}"
    lines.append(f"Built: {sizes}, {cost.parameters:,} parameters{form}, {values}.")
    if not c.verified:
        lines.append(f"The rest is {c.status.meaning}:")
    lines += _anatomy(model)
    for name, reason in dict(model.story.get("methods", {})).items():
        lines.append(("Taken: " if name == c.construction else "Not taken: ") + str(reason) + ".")
    for key, value in model.story.items():
        if key not in ("methods", "steps", "construction"):
            lines.append(f"{key}: {_short(value)}")
    low, high = c.error
    norm = "sup norm" if math.isinf(c.norm) else f"L^{c.norm:g} norm"
    if c.bounds:
        asked = "no eps was asked for" if c.eps is None else f"eps was {c.eps:.4g}"
        ends = f"at most {high:.4g} and at least {low:.4g}"
        lines.append(f"{c.heading} ({c.method}): the error in the {norm} is {ends}; {asked}.")
        parts = ", ".join(f"{k} {v:.3g}" for k, v in c.parts.items())
        lines.append(f"Parts: {parts}. Hypotheses: {'; '.join(c.hypotheses)}.")
    else:
        lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
    return "\n".join(lines)


def _anatomy(model: Approximant) -> list[str]:
    """A line a head, or for a composed network a line a coordinate with its share of the error."""
    if not model.network.heads:
        return ["The target is affine: the residual stream carries it, no attention is needed."]
    steps = {step["name"]: step for step in model.certificate.details.get("steps", ())}
    word, part = model.network.words
    mlp = "It is an MLP with skip connections: linear maps and ReLU units, and nothing in it attends."
    lines = [mlp] if model.network.is_mlp else []
    for depth, layer in enumerate(model.network.layers):
        for name in layer.writes:
            heads = [head for head in layer.heads if name in head.writes]
            keys = sum(head.keys for head in heads)
            text = f"Layer {depth + 1}: {name}: {_plural(len(heads), word)}, {_plural(keys, part)}"
            if name in steps:
                step = steps[name]
                axes = len(heads[0].axes)
                arguments = "u" if axes == 1 else ", ".join(f"u{k}" for k in range(1, axes + 1))
                text += f", g({arguments}) = {step['function']}, "
                text += f"own error {step['own']:.2g}, with what it reads {step['total']:.2g}"
            elif len(heads) == 1 and len(heads[0].axes) > 1:
                text += " = " + " × ".join(str(axis.keys) for axis in heads[0].axes)
            lines.append(text + ".")
    if steps:
        worst = max(steps.values(), key=lambda step: step["own"])
        lines.append(f"The largest error of a single step is that of {worst['name']}: {worst['own']:.2g}.")
    return lines


def record(model: Approximant) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    names = {"inputs": list(model.network.inputs), "outputs": list(model.network.outputs)}
    names["coordinates"] = list(model.network.coordinates)
    return {"realise": "mlp" if model.network.is_mlp else "attention", **names}


def picture(model: Approximant, path: str | os.PathLike[str] | None = None) -> Any:
    """Partition or key lattice, attention weights, target against network, error under its bound."""
    from attnfun.plots import draw

    return draw(model, path)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_short(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_short(v) for v in value)
    return str(value)
