"""The predicted budget of an in-context network: what optimisation, bias and rounding cost on example prompts.

Predicted on prompts that nobody will ask about: the network as it is, the same weights in extended
precision (the difference is rounding), and the same network with scales 2^-8 of its own in extended precision, where
linearisation is exact for all purposes (the difference is bias; what is left is optimisation). Estimates, not bounds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from attnfun.kinds.in_context.exact import exact_predictions, example_prompts
from attnfun.kinds.in_context.target import InContextTask, prompt
from attnfun.language.target import Array
from attnfun.network import TokenNetwork

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

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def predicted_budget(network: TokenNetwork, limit: TokenNetwork, task: InContextTask, count: int = 8) -> Budget:
    """`limit` is the same network with finer scales. The worst of the prompts is looked into: its parts, its total."""
    N, worst = 2 * task.examples, -1.0
    prompts = example_prompts(task, count, queries=24, seed=1)
    if not prompts:
        return Budget(0.0, 0.0, 0.0, 0.0, 0)
    for X, y, queries in prompts:
        tokens = prompt(network.coordinates, task, X, y, queries)
        got = network.run(tokens)[N:, 0].astype(np.float64)
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
    given = np.asarray(tokens, dtype=network.dtype)
    Z = np.concatenate([given, network.constants.astype(network.dtype)]).astype(_WIDE)
    for layer in network.layers:
        active = Z[first:]
        new = active if layer.carry is None else active @ layer.carry.astype(_WIDE)
        for head in layer.heads:
            W_Q, W_K, W_V, W_O = (array.astype(_WIDE) for array in head.arrays.values())
            logits = (active @ W_Q) @ (Z @ W_K).T
            terms = np.exp(logits - logits.max(axis=1, keepdims=True))
            new = new + ((terms @ (Z @ W_V)) / terms.sum(axis=1, keepdims=True)) @ W_O
        Z = np.concatenate([Z[:first], new])
    return np.asarray((Z @ network.readout.astype(_WIDE))[:, 0])
