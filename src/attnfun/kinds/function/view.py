"""Approximant: the view of a function's model; what `compile` and `load` return."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.language.function import Function
from attnfun.model import Model
from attnfun.network import Literal, Network, literal


class Approximant(Model[Function, Network]):
    """A network that approximates a function on a box: `net(X)` for points (n, variables), in the domain's order."""

    @property
    def network(self) -> Network:
        return self.weights

    def evaluate(self, X: ArrayLike, route: str = "auto", outside: str = "raise") -> NDArray[np.float64]:
        """(n, outputs) by a named route: dense, factorised, local, or auto."""
        (points,), _ = self.target.encode(self.weights, X, outside)
        return self.weights.run(points, route=route).astype(np.float64)

    def literal(self, form: str = "self", second: tuple[str, ...] = ()) -> Literal:
        """The theorem's own form: appended constant tokens, W_Q, W_K, W_V, W_O ("self", "cross" or "joint").

        InvalidRequest for an MLP, which is no attention.
        """
        return literal(self.weights, form, second)
