"""What every construction offers: a plan (sizes, before anything large is built) and a network from the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from attnfun.network import Network
from attnfun.language.function import Function

REALISATIONS = ("attention", "mlp")


@dataclass(frozen=True)
class Request:
    """What is asked of a construction: the error it may make in real arithmetic, in `norm`, for weights of `dtype`.

    `max_*` limit the cost (rank as in `cost.rank`); `prefer` breaks ties: "keys", "layers" or "float32" (small values).
    `realise` is one of REALISATIONS: what takes the nonlinear steps, softmax heads or ReLU units. `attempt` counts how
    often the proof of a plan for this request has missed: a construction may then choose what is easier to prove.
    `beside` names the constructions that have planned it already, with `max_keys` keys or more.
    """

    function: Function
    eps: float
    norm: float
    dtype: str
    seed: int = 0
    max_keys: int = 4_000_000
    max_layers: int | None = None
    max_heads: int | None = None
    max_rank: int | None = None
    prefer: str = "keys"
    realise: str = "attention"
    attempt: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[str, ...] = ()


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


class Construction(Protocol):
    """One file, one class, one line in the registry. `plan` raises Infeasible with the nearest request that would
    fit. `realisations` are those of REALISATIONS that it can build.
    """

    name: str
    summary: str
    realisations: tuple[str, ...]

    def plan(self, request: Request) -> Plan: ...

    def build(self, request: Request, plan: Plan) -> Network: ...
