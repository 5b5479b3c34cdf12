"""Approximant: a target, a network and a certificate together; what `compile` and `load` return."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.certify.stored import kept
from attnfun.errors import InvalidRequest
from attnfun.network import Architecture, Cost, Literal, Network, evaluate, literal, save, to_torch
from attnfun.targets import Function

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Approximant:
    """A network that approximates `target`, with what is proved of it.

    `request` is what was asked (eps, norm, method, …); `story` is what the construction has to tell (temperatures,
    degrees,
    the methods that were not taken and why).
    """

    target: Function
    network: Network
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)
    story: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, X: ArrayLike, outside: str = "raise") -> NDArray[np.float64]:
        """(n, variables) → (n,) or (n, outputs), float64; columns in the domain's order. A single point (variables,)
        is allowed.
        """
        points, single = self._points(X, outside)
        values = evaluate(self.network, points).astype(np.float64)
        values = values[:, 0] if values.shape[1] == 1 else values
        return values[0] if single else values

    def evaluate(self, X: ArrayLike, route: str = "auto", outside: str = "raise") -> NDArray[np.float64]:
        """(n, outputs) by a named route: dense, factorised, local, or auto."""
        points, _ = self._points(X, outside)
        return evaluate(self.network, points, route=route).astype(np.float64)

    def _points(self, X: ArrayLike, outside: str) -> tuple[NDArray[np.float64], bool]:
        try:
            points = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidRequest(f"points {X!r:.60}: an array of numbers is needed") from None
        d = self.target.box.dim
        single = points.ndim == 1 and len(points) == d and d > 1
        if d == 1 and points.ndim == 1:
            points = points[:, None]
        elif single:
            points = points[None]
        if points.ndim != 2 or points.shape[1] != d:
            raise InvalidRequest(
                f"points of shape {np.shape(X)}: (n, {d}) is needed, columns {', '.join(self.target.box.names)}"
            )
        if outside not in ("raise", "clamp", "allow"):
            raise InvalidRequest(f"outside={outside!r}: write raise, clamp or allow")
        inside = self.target.box.contains(points)
        if outside == "raise" and not inside.all():
            first = points[int(np.argmin(inside))]
            at = ", ".join(f"{n}={v:g}" for n, v in zip(self.target.box.names, first, strict=True))
            raise InvalidRequest(
                f"the point {at} lies outside the domain {self.target.box.text}; pass outside='clamp' or 'allow'"
            )
        if np.isnan(points).any():
            raise InvalidRequest("a point is NaN")
        if outside == "clamp":
            points = np.clip(points, self.target.box.low_array, self.target.box.high_array)
        return points, single

    @property
    def cost(self) -> Cost:
        return self.network.cost

    @property
    def architecture(self) -> Architecture:
        """The network's shape without its weights: what `train` sets free."""
        return self.network.architecture

    def to_torch(self, dtype: Any = None, form: str = "cross", second: tuple[str, ...] = ()) -> torch.nn.Module:
        """A torch module: linear maps and F.scaled_dot_product_attention(scale=1.0) with these weights and no more.

        Of an MLP: linear maps and relu.
        """
        return to_torch(self.network, dtype, form, second)

    def literal(self, form: str = "self", second: tuple[str, ...] = ()) -> Literal:
        """The theorem's own form: appended constant tokens, W_Q, W_K, W_V, W_O ("self", "cross" or "joint").

        InvalidRequest for an MLP, which is no attention.
        """
        return literal(self.network, form, second)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, target, domain, request and certificate to one safetensors file."""
        save(
            path,
            self.network,
            {
                "target": self.target.to_json(),
                "domain": self.target.box.text,
                "story": dict(self.story),
                **kept(self.request, self.certificate, self.certificate.norm),
            },
        )

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Partition or key lattice, attention weights, target against network, error under its bound."""
        from attnfun.plots import draw

        return draw(self, path)

    def _anatomy(self) -> list[str]:
        """A line a head, or for a composed network a line a coordinate with its share of the error."""
        if not self.network.heads:
            return ["The target is affine: the residual stream carries it, no attention is needed."]
        steps = {step["name"]: step for step in self.certificate.details.get("steps", ())}
        lines = []
        word, part = self.network.words
        if self.network.is_mlp:
            lines.append("It is an MLP with skip connections: linear maps and ReLU units, and nothing in it attends.")
        for depth, layer in enumerate(self.network.layers):
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

    def explain(self) -> str:
        """In words: what was built, why this method, what each head does, what is proved."""
        c, cost = self.certificate, self.cost
        head, key = self.network.words
        lines = [f"{self.target.text}  on  {self.target.box.text}"]
        lines.append(
            f"Built: {_plural(cost.layers, 'layer')}, {_plural(cost.heads, head)}, {_plural(cost.keys, key)}, "
            f"rank {cost.rank}, "
            f"{cost.parameters:,} parameters{'' if self.network.is_mlp else ' (literal form)'}, "
            f"values up to {cost.max_value:.3g}, {self.network.dtype}."
        )
        if not c.verified:
            lines.append(f"The rest is {c.status.meaning}:")
        lines += self._anatomy()
        for name, reason in dict(self.story.get("methods", {})).items():
            lines.append(("Taken: " if name == c.construction else "Not taken: ") + str(reason) + ".")
        for key, value in self.story.items():
            if key not in ("methods", "steps"):
                lines.append(f"{key}: {_short(value)}")
        low, high = c.error
        norm = "sup norm" if math.isinf(c.norm) else f"L^{c.norm:g} norm"
        if c.bounds:
            lines.append(
                f"{c.heading} ({c.method}): the error in the {norm} is at most {high:.4g} "
                f"and at least {low:.4g}; {'no eps was asked for' if c.eps is None else f'eps was {c.eps:.4g}'}."
            )
            parts = ", ".join(f"{k} {v:.3g}" for k, v in c.parts.items())
            lines.append(f"Parts: {parts}. Hypotheses: {'; '.join(c.hypotheses)}.")
        else:
            lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
        return "\n".join(lines)


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
