"""What is asked: tanh(s x) on [-1, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attnfun.errors import require
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.inputs import numbers
from attnfun.language.target import Target


@dataclass(frozen=True)
class Doubling(Target):
    kind: ClassVar[str] = "doubling"
    slope: float

    @property
    def text(self) -> str:
        return f"tanh({self.slope:g} x)"

    @property
    def domain(self) -> str:
        return "x=-1:1"

    @property
    def function(self) -> Function:
        return Function.read(f"tanh({self.slope!r}*x)", Box.parse(self.domain))

    def to_json(self) -> dict[str, Any]:
        return {"slope": self.slope}

    @classmethod
    def from_json(cls, data: Any) -> Doubling:
        return cls(float(data["slope"]))

    def encode(self, _weights: Any, x: Any) -> tuple[tuple[Any], None]:
        points = numbers(x, "x")
        require(points.ndim == 1 or points.shape[1:] == (1,), f"x: (n,) points are needed, not {points.shape}")
        return (points.reshape(-1, 1),), None

    def decode(self, outputs: Any, how: None) -> Any:
        return outputs[:, 0]

    def columns(self, weights: Any) -> tuple[list[str], list[str]]:
        return ["x"], ["y"]

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Any]:
        return (rng.uniform(-1, 1, count),)

    def exact(self, x: Any) -> Any:
        return np.tanh(self.slope * np.asarray(x))
