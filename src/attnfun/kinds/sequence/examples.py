"""The sequence maps that ship, each at a size of its own and at a small one, where a partition of all entries fits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest


@dataclass(frozen=True)
class Example:
    """`rows(tokens)` is a target of `sequence`; `small` is (tokens, eps) for constructions over all entries."""

    name: str
    meaning: str
    rows: Callable[[int], Any]
    domain: dict[str, tuple[float, float]]
    tokens: int
    eps: float
    small: tuple[int, float]

    def request(self, small: bool = False) -> dict[str, Any]:
        tokens, eps = self.small if small else (self.tokens, self.eps)
        return {"target": self.rows(tokens), "tokens": tokens, "domain": self.domain, "eps": eps}


def relu_network(tokens: int, dim: int = 2, hidden: int = 10, outputs: int = 2, seed: int = 0) -> list[list[str]]:
    """A 2-layer ReLU net of the flattened sequence with weights from N(0, 1), three decimals: one row per token."""
    rng = np.random.default_rng(seed)
    names = [f"{c}_{j + 1}" for j in range(tokens) for c in "xyzuvw"[:dim]]
    first, second = rng.normal(size=(hidden, len(names) + 1)), rng.normal(size=(tokens, outputs, hidden))
    units = []
    for row in first:
        terms = " + ".join(f"({w:.3f})*{name}" for w, name in zip(row, names, strict=False))
        units.append(f"relu({terms} + ({row[-1]:.3f}))")
    return [
        [" + ".join(f"({w:.3f})*{unit}" for w, unit in zip(line, units, strict=True)) for line in token]
        for token in second
    ]


def _swap(tokens: int) -> list[list[str]]:
    order = [2, 1, *range(3, tokens + 1)]
    return [[f"x_{j}", f"y_{j}"] for j in order]


def _smooth(tokens: int) -> list[list[str]]:
    """No two tokens have the same function."""
    last = f"x_{tokens}"
    rows = [[f"sin(x_1 + x_2*{last})"], [f"exp(x_1*{last})/2 - x_2"], ["cos(x_1 - x_2)*x_3"]]
    rows += [[f"x_{j}*x_{j - 1}/(2 + x_1**2)"] for j in range(4, tokens + 1)]
    return rows[:tokens]


EXAMPLES = (
    Example("sine", "y_i = sin(x_i mean(x))", lambda n: "sin(x*mean(x))", {"x": (-1.0, 1.0)}, 6, 1e-4, (2, 0.1)),
    Example("maximum", "y_i = x_i - max_j x_j", lambda n: "x - max(x)", {"x": (-1.0, 1.0)}, 6, 1e-4, (2, 0.2)),
    Example(
        "relu-net",
        "a 2-layer ReLU net of the flattened sequence",
        lambda n: relu_network(n, dim=2 if n > 2 else 1),
        {"x": (0.0, 1.0), "y": (0.0, 1.0)},
        4,
        1e-3,
        (2, 0.5),
    ),
    Example("swap", "tokens 1 and 2 change places", _swap, {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, 4, 1e-9, (2, 0.2)),
    Example("smooth", "a smooth map, another function at every token", _smooth, {"x": (-1.0, 1.0)}, 3, 1e-3, (2, 0.1)),
)


def example(name: str) -> Example:
    for one in EXAMPLES:
        if one.name == name:
            return one
    raise InvalidRequest(f"no example {name!r}; there are {', '.join(one.name for one in EXAMPLES)}")
