"""Approximant: the view of a function's model; what `compile` and `load` return.

How it is trained (all weights of its shape, from random ones or from those given), what `diagnose` looks at in it, and
what is said and drawn of it.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun import fast
from attnfun.diagnosis.plain import looked_at
from attnfun.diagnosis.subject import Subject
from attnfun.errors import InvalidRequest, require
from attnfun.language.definedness import require_defined
from attnfun.language.function import Function
from attnfun.language.numbers import at_least, at_most
from attnfun.learn.lesson import Ask, Lesson
from attnfun.learn.weights import random_network
from attnfun.model import Model
from attnfun.network import Architecture, Literal, Network, literal


class Approximant(Model[Function, Network]):
    """A network that approximates a function on a box: `net(X)` for points (n, variables), in the domain's order."""

    @property
    def network(self) -> Network:
        return self.weights

    def evaluate(self, X: ArrayLike, route: str = "auto", outside: str = "raise") -> NDArray[np.float64]:
        """(n, outputs) by a named route: dense, factorised, local, fused (compiled), or auto (NumPy's cheapest)."""
        (points,), _ = self.target.encode(self.weights, X, outside)
        found = fast.fused(self.weights, points) if route == "fused" else self.weights.run(points, route=route)
        return found.astype(np.float64)

    def literal(self, form: str = "self", second: tuple[str, ...] = ()) -> Literal:
        """The theorem's own form: appended constant tokens, W_Q, W_K, W_V, W_O ("self", "cross" or "joint").

        InvalidRequest for an MLP, which is no attention.
        """
        return literal(self.weights, form, second)


def subjects(model: Approximant, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """Its heads, judged by the target."""
    asked = model.certificate.eps if eps is None else eps
    return looked_at(model.weights, model.target, asked, model.certificate.norm)


def lesson(given: Any, ask: Ask[Function]) -> Lesson:
    """The shape of `given` (a model, a network or an architecture) towards the asked function."""
    from attnfun.learn.torch_function import FunctionProblem

    ask.no_towers()
    function = ask.target
    architecture = given if isinstance(given, Architecture) else getattr(given, "architecture", None)
    if not isinstance(architecture, Architecture):
        raise InvalidRequest(f"nothing in it can be trained towards a function: {type(given).__name__}")
    if function.graph is not None:
        require_defined(function.graph, function.box, continuous=False)
    elif function.call is None:
        raise InvalidRequest("the target is a Python function that is not in the file; pass it as target")
    if architecture.inputs != function.box.names or len(architecture.outputs) != len(function.outputs):
        network = f"a network from {', '.join(architecture.inputs)} to {len(architecture.outputs)} output(s)"
        raise InvalidRequest(f"{network} cannot learn {function.text[:80]} on {function.box.text}")
    if ask.start == "random":
        begun = random_network(architecture, function, ask.recipe.seed)
    elif isinstance(ask.start, Network):
        begun = ask.start
    else:
        raise ask.other_start()
    require(architecture.holds(begun.architecture), "the start is not a network of the architecture to be trained")
    return Lesson(function, FunctionProblem(architecture, function, begun))


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
    asked = "no eps was asked for" if c.eps is None else f"eps was {c.eps:.4g}"
    reached = f"is at most {at_most(high)} and at least {at_least(low)}"
    bound = f" ({c.method}): the error in the {norm}{c.off} {reached}; {asked}."
    return "\n".join([*lines, *c.told(bound, f"Parts: {c.parts_told}. Hypotheses: {'; '.join(c.hypotheses)}.")])


def _anatomy(model: Approximant) -> list[str]:
    """One line per head, or for a composed network one per coordinate with its share of the error."""
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
                text += f"own error {at_most(step['own'], 2)}, with what it reads {at_most(step['total'], 2)}"
            elif len(heads) == 1 and len(heads[0].axes) > 1:
                text += " = " + " × ".join(str(axis.keys) for axis in heads[0].axes)
            lines.append(text + ".")
    if steps:
        worst = max(steps.values(), key=lambda step: step["own"])
        lines.append(f"The largest error of a single step is that of {worst['name']}: {at_most(worst['own'], 2)}.")
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
