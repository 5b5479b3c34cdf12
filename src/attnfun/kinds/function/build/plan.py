"""What every construction offers: a plan (sizes, before anything large is built) and a network from the plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from attnfun.errors import Infeasible, present
from attnfun.kinds.function.build.unary.keys import Fit
from attnfun.language import Graph
from attnfun.language.function import Function
from attnfun.network import Head, Labels, Layer, Network, rounded

REALISATIONS = ("attention", "mlp")
MOST_KEYS = 4_000_000
"""The most keys of a request that names no limit."""


@dataclass(frozen=True)
class Request:
    """What is asked of a construction: the error it may make in real arithmetic, in `norm`, for weights of `dtype`.

    `max_*` limit the cost (rank as in `cost.rank`); `prefer` breaks ties: "keys", "layers" or "float32" (small values).
    `realise` is one of REALISATIONS: what takes the nonlinear steps, softmax heads or ReLU units. `attempt` counts how
    often the proof of a plan for this request has missed: a construction may then choose what is easier to prove.
    `beside` names the constructions that have planned it already, with `max_keys` keys or more, `refused` those that
    could not.
    """

    function: Function
    eps: float
    norm: float
    dtype: str
    seed: int = 0
    max_keys: int = MOST_KEYS
    max_layers: int | None = None
    max_heads: int | None = None
    max_rank: int | None = None
    prefer: str = "keys"
    realise: str = "attention"
    attempt: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def expression(self, why: str) -> Graph:
        """The target's graph; a black box has none and is refused, `why` says for what reason."""
        return present(self.function.graph, Infeasible(why))

    def network(
        self, layers: Iterable[Layer], readout: ArrayLike, bias: ArrayLike, labels: Labels | None = None
    ) -> Network:
        """The network of these layers from the target's variables to its outputs, the read-out rounded."""
        function, dtype = self.function, self.dtype
        ends, held = (function.box.low_array, function.box.high_array), (rounded(readout, dtype), rounded(bias, dtype))
        return Network(function.box.names, tuple(layers), *held, function.outputs, ends, dtype, labels)

    def network_of(self, head: Head) -> Network:
        """The network whose outputs are what the one head writes."""
        p, d = len(self.function.outputs), self.function.box.dim
        return self.network([Layer((head,))], np.concatenate([np.zeros((p, d)), np.eye(p)], axis=1), np.zeros(p))


@dataclass(frozen=True)
class Plan:
    """A construction's answer: `keys` is exact, the size `build` will have; `data` is the construction's own.

    `story` holds facts worth telling a person (temperatures, degrees, the published worst case). `settles`: no other
    construction is worth sizing, let alone proving, for this target. `steady`: where the proof asks for a smaller share
    of eps, the size stays what it is.
    """

    construction: str
    keys: int
    heads: int
    layers: int
    rank: int
    max_value: float
    data: Any
    story: Mapping[str, Any] = field(default_factory=dict)
    settles: bool = False
    steady: bool = False

    @classmethod
    def of(
        cls,
        construction: str,
        request: Request,
        fits: Collection[Fit],
        layers: int,
        data: Any,
        story: Mapping[str, Any],
        rank: int = 2,
        nearest: Callable[[int], Mapping[str, Any]] | None = None,
        **more: bool,
    ) -> Plan:
        """The plan of steps that were fitted; Infeasible where their keys are too many, with the `nearest` request or
        the limit that would admit them.
        """
        keys = sum(fit.keys for fit in fits)
        if keys > request.max_keys:
            what = "ReLU units" if request.realise == "mlp" else "keys"
            why = f"{construction}: {keys:,} {what} would be needed, more than {request.max_keys:,}"
            raise Infeasible(why, admitting(keys) if nearest is None else nearest(keys))
        heads, largest = sum(fit.count for fit in fits), max(fit.max_value for fit in fits)
        return cls(construction, keys, heads, layers, rank, largest, data, story, **more)


def admitting(keys: int) -> dict[str, int] | None:
    """The limit that would admit so many keys, where that is one to offer."""
    return {"max_keys": keys} if keys <= MOST_KEYS else None


class Construction(Protocol):
    """One file, one class, one line in the registry. `plan` raises Infeasible with the nearest request that would
    fit. `realisations` are those of REALISATIONS that it can build; `stepwise`: a refusal names what one of several
    steps lacks, and another may lack more.
    """

    name: str
    summary: str
    realisations: tuple[str, ...] = ("attention",)
    stepwise: bool = False

    def plan(self, request: Request) -> Plan: ...

    def build(self, request: Request, plan: Plan) -> Network: ...
