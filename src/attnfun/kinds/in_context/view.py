"""InContextSolver: the view of a network that solves a regression in context; what `in_context` and `load` return."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from attnfun.errors import InvalidRequest
from attnfun.kinds.in_context.exact import exact_predictions, example_prompts
from attnfun.kinds.in_context.prove import predictions
from attnfun.kinds.in_context.prove_prompt import prompt_bounds
from attnfun.kinds.in_context.target import ALGORITHMS, InContextTask, OutsideSpectrum, prompt
from attnfun.language.target import Array
from attnfun.model import TokenModel
from attnfun.network import TokenNetwork
from attnfun.network.tokens import layer_output

_QUERIES = 512  # at a time
FINER = 8
_WIDE = np.longdouble


@dataclass(frozen=True)
class Budget:
    """Predicted errors of predictions (estimates), and on how many example prompts."""

    optimisation: float
    bias: float
    rounding: float
    total: float
    prompts: int


class BoundedPredictions(NamedTuple):
    """Predictions of one prompt, and what is proved of each: |prediction − exact prediction| ≤ bound."""

    predictions: Array
    bound: Array
    reasons: tuple[str, ...]  # why a bound is infinite; "" where it is not
    outside: str  # what of the prompt lies outside the declared class; "" where nothing does


class InContextSolver(TokenModel[InContextTask]):
    """A network that solves `task` for every prompt of its class: `net(X, y, X_query)`, or `predict`."""

    @property
    def task(self) -> InContextTask:
        return self.target

    @overload
    def predict(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike, *, bound: Literal[False] = False) -> Array: ...
    @overload
    def predict(
        self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike, *, bound: Literal[True]
    ) -> BoundedPredictions: ...
    def predict(
        self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike, *, bound: bool = False
    ) -> Array | BoundedPredictions:
        """(queries,) predictions: builds the token matrix and runs the network, nothing else.

        Refuses with InvalidRequest, and with what would do, prompts outside the class: more examples than declared,
        entries outside the ranges, eigenvalues outside `spectrum`.

        With `bound` a `BoundedPredictions`: every prediction with a bound of its error that is proved for these very
        data (`prove_prompt.py`), infinite where the data do not determine it. That bound needs no class, so here a
        prompt outside it is run as long as the network can read it, and `outside` says what lies outside.
        """
        outside = ""
        try:
            x, t, queries = self._checked(X, y, X_query)
        except InvalidRequest as error:
            if not bound:
                raise
            outside, (x, t) = str(error), self.task.examples_of(X, y, any_size=True)
            queries = self.task.queries_of(X_query, any_size=True)
        parts = [
            predictions(self.network, self.task, x, t, queries[k : k + _QUERIES])
            for k in range(0, len(queries), _QUERIES)
        ]
        found = np.concatenate(parts)
        return BoundedPredictions(found, *prompt_bounds(self.task, x, t, queries, found), outside) if bound else found

    def tokens(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike) -> Array:
        """(2 · examples + queries, width): the prompt as the network, here and in torch, reads it."""
        return prompt(self.network.coordinates, self.task, *self._checked(X, y, X_query))

    def coefficients(self, X: ArrayLike, y: ArrayLike) -> Array:
        """(dim,) the w that the solver token holds after the last layer, read from the token matrix."""
        if self.alone:
            raise InvalidRequest("a learned network holds no coefficients that are known: ask it for predictions")
        assert isinstance(self.network, TokenNetwork)
        states = self.network.stream(self.tokens(X, y, np.zeros((1, self.task.dim))))
        solver, dim = 2 * self.task.examples + 1, self.task.dim
        if self.task.task in ("linear", "ridge"):
            token, names = states[-1][solver].astype(np.float64), self.network.coordinates
            at = names.index("v1")
            return np.asarray(token[at : at + dim] / token[names.index("sign")])
        key = self.network.layers[-1].heads[0].key[:, :dim]  # what the last layer takes for w
        return np.asarray(states[-2][solver].astype(np.float64) @ key)

    def _checked(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike) -> tuple[Array, Array, Array]:
        """One prompt of the class; the refusal of another spectrum says how deep a network for it would be."""
        try:
            x, t, queries = self.task.checked(X, y, X_query)
        except OutsideSpectrum as why:
            from attnfun.kinds.in_context.build import depth

            eps = None if self.alone else self.request.get("eps") or self.certificate.error[1]
            if why.declare is None or not (isinstance(eps, (int, float)) and 0 < eps < math.inf):
                raise
            layers = depth(replace(self.task, spectrum=why.declare), self.algorithm, float(eps))
            raise InvalidRequest(f"{why}: about {layers} layers for {eps:.2g}") from None
        if x.ndim != 2 or queries.ndim != 2:
            raise InvalidRequest("one prompt at a time: X (rows, dim), y (rows,) and X_query (queries, dim)")
        return x, t, queries

    @property
    def alone(self) -> bool:
        """Whether every query has a prompt of its own: networks that were trained so have not learned another way."""
        return self.task.alone(self.network)

    @property
    def algorithm(self) -> str:
        offered = ALGORITHMS[self.task.task]
        asked = self.request.get("algorithm")  # of a file, so it may be anything
        return asked if asked in offered else offered[0]

    @property
    def heads(self) -> int | None:
        """The number of Richardson heads that was asked for."""
        from attnfun.kinds.in_context.build import MOST_HEADS

        asked = self.request.get("heads")
        return asked if isinstance(asked, int) and 1 <= asked <= MOST_HEADS else None

    @property
    def iterations(self) -> int:
        """Steps of the algorithm: one a layer but the last, for lasso and logistic one every two layers."""
        layers = self.cost.layers
        return layers - 1 if self.task.task in ("linear", "ridge") else layers // 2

    @cached_property
    def budget(self) -> Budget:
        """What optimisation, bias and rounding are expected to cost, predicted on example prompts; not a bound.

        Of trained weights nothing is predicted.
        """
        from attnfun.kinds.in_context.build import build

        if self.alone:
            return Budget(0.0, 0.0, 0.0, 0.0, prompts=0)
        assert isinstance(self.network, TokenNetwork)
        limit = build(self.task, len(self.network.layers), self.algorithm, "float64", self.heads, finer=FINER)
        return predicted_budget(self.network, limit, self.task)


def predicted_budget(network: TokenNetwork, limit: TokenNetwork, task: InContextTask, count: int = 8) -> Budget:
    """What optimisation, bias and rounding cost on example prompts: predicted on prompts that nobody will ask about.

    The network as it is, the same weights in extended precision (the difference is rounding), and `limit`, the same
    network with scales 2^-8 of its own, in extended precision, where linearisation is exact for all purposes (the
    difference is bias; what is left is optimisation). Estimates, not bounds. The worst of the prompts is looked into:
    its parts, its total.
    """
    N, worst = 2 * task.examples, -1.0
    prompts = example_prompts(task, count, queries=24, seed=1)
    if not prompts:
        return Budget(0.0, 0.0, 0.0, 0.0, 0)
    for X, y, queries in prompts:
        tokens = prompt(network.coordinates, task, X, y, queries)
        got = task.decode(network.run(tokens), False)
        exact = exact_predictions(task, X, y, queries)
        total = float(np.abs(got - exact).max())
        if not total <= worst:
            worst, chosen = total, (tokens, exact, got)
    tokens, exact, got = chosen
    first = 0 if task.task == "logistic" else N  # elsewhere examples are only read
    wide, ideal = (_extended(net, tokens, first)[N : N + len(got)] for net in (network, limit))
    parts = [float(np.abs(a - b).max()) for a, b in pairwise((exact, ideal, wide, got))]
    return Budget(parts[0], parts[1], parts[2], worst, len(prompts))


def _extended(network: TokenNetwork, tokens: Array, first: int) -> np.ndarray:
    """The prediction of every token, in the widest arithmetic there is; tokens before `first` stay as they are."""
    Z = network.joined(network.given(tokens)[None]).astype(_WIDE)
    for layer in network.layers:
        Z = np.concatenate([Z[:, :first], layer_output(layer, Z, first)], axis=1)
    return np.asarray((Z @ network.readout.astype(_WIDE))[0, :, 0])
