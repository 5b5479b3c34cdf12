"""Every construction, one line each; the conformance tests run on all of them.

`choose`, or auto: plan every construction, take the smallest plan, and say why.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build import partition
from attnfun.kinds.function.build.affine import Affine
from attnfun.kinds.function.build.bernstein import Bernstein
from attnfun.kinds.function.build.compose import Compose
from attnfun.kinds.function.build.interpolation import Interpolation
from attnfun.kinds.function.build.partition import Partition
from attnfun.kinds.function.build.plan import Construction, Plan, Request
from attnfun.kinds.function.build.relu_network import ReluNetwork
from attnfun.kinds.function.build.table import TableHead, is_table
from attnfun.kinds.function.build.tangent import Tangent
from attnfun.kinds.function.build.unary import grid
from attnfun.language.numbers import one_of

_CHAIN, _ROOM = 4, 0.9  # refusals in a row that are followed; the share of an eps that a plan for it may use
_ALL: tuple[type[Construction], ...] = (
    *(Affine, ReluNetwork, TableHead, Tangent),
    *(Compose, Bernstein, Interpolation, Partition),
)
CONSTRUCTIONS = {made.name: made() for made in _ALL}


@dataclass(frozen=True)
class Choice:
    """The plans that fit, smallest first, and for each construction a sentence about its size or its refusal."""

    plans: tuple[tuple[Construction, Plan], ...]
    reasons: dict[str, str]


def choose(request: Request, method: str, without: frozenset[str] = frozenset()) -> Choice:
    """Plan `method`, or with "auto" all of them but `without`.

    Where none fits, Infeasible says why; where a larger eps would do, why the one that comes nearest is not as good.

    The best first: fewest keys, then layers, then a size that no proof will raise, then smallest values, or as
    `prefer` says.
    """
    one_of("method", method, ("auto", *CONSTRUCTIONS))
    one_of("variant", request.options.get("variant", "auto"), (*partition.VARIANTS, *grid.VARIANTS))
    able = [name for name, construction in CONSTRUCTIONS.items() if request.realise in construction.realisations]
    why = f"{method} builds attention and nothing else; realise={request.realise!r} is offered by {', '.join(able)}"
    feasible(method == "auto" or method in able, why, {"method": "auto"})
    if request.function.band is not None:
        able = [name for name in able if name == Compose.name]
        feasible(method in ("auto", *able), f"{method}: off a band {Compose.name} alone builds", {"method": "auto"})
    names = [name for name in able if name not in without] if method == "auto" else [method]
    if method == "auto" and is_table(request):
        names = [name for name in names if name == TableHead.name]  # others would take its kinks for noise
    plans: list[tuple[Construction, Plan]] = []
    reasons: dict[str, str] = {}
    nearest: Mapping[str, Any] | None = None
    closest = ""  # the construction whose eps is nearest
    for name in names:
        try:
            plan = CONSTRUCTIONS[name].plan(_below(request, plans))
        except Infeasible as why:
            request = replace(request, refused=(*request.refused, name))
            reasons[name] = str(why)
            offered = [one for one in (nearest, why.nearest) if one]
            nearest = min(offered, key=lambda one: (one.get("max_keys", math.inf), one.get("eps", 0.0)), default=None)
            if why.nearest is not None and nearest is why.nearest and "eps" in why.nearest:
                closest = name
            continue
        what = ("blocks", "units") if request.realise == "mlp" else ("heads", "keys")
        reasons[name] = f"{name}: layers {plan.layers}, {what[0]} {plan.heads}, {what[1]} {plan.keys:,}"
        over = _over_limits(request, plan)
        if over:
            reasons[name] += f", over {', '.join(over)}"
            nearest, closest = {"method": name, **over}, ""
            continue
        plans.append((CONSTRUCTIONS[name], plan))
        if plan.keys == 0 or plan.settles:
            break  # nothing is smaller, or worth the time
    if not plans and closest and nearest is not None and "eps" in nearest:
        raise Infeasible(reasons[closest], _met(CONSTRUCTIONS[closest], request, nearest))
    feasible(plans, "; ".join(reasons.values()), nearest)
    plans.sort(key=lambda item: _order(request, item[1]))
    return Choice(tuple(plans), reasons)


def _met(construction: Construction, request: Request, nearest: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The eps that a refusal names, or the one that its own refusal names, and so on, a few times: what stands in the
    way of the first need not be the only thing that does.
    """
    for _ in range(_CHAIN):
        if not construction.stepwise or nearest is None or set(nearest) != {"eps"} or request.attempt:
            break
        try:
            construction.plan(replace(request, eps=_ROOM * nearest["eps"], refused=(), beside=()))
            break
        except Infeasible as why:
            nearest = why.nearest
    return nearest


def _below(request: Request, plans: list[tuple[Construction, Plan]]) -> Request:
    """Where keys decide, a construction need not size what is larger than the best plan so far."""
    if request.prefer != "keys" or not plans:
        return request
    most = min(request.max_keys, *(plan.keys for _, plan in plans))
    return replace(request, max_keys=most, beside=tuple(construction.name for construction, _ in plans))


def _over_limits(request: Request, plan: Plan) -> dict[str, int]:
    """The limits the plan breaks, each with the value that would admit it."""
    pairs = (("max_layers", plan.layers), ("max_heads", plan.heads), ("max_rank", plan.rank))
    return {name: value for name, value in pairs if (limit := getattr(request, name)) is not None and value > limit}


def _order(request: Request, plan: Plan) -> tuple[float, ...]:
    """Fewest keys, then layers, then steady sizes, then smallest values; or what `prefer` puts first."""
    if request.prefer == "layers":
        return plan.layers, plan.keys, plan.max_value
    if request.prefer == "float32":
        return plan.max_value, plan.keys, plan.layers
    return plan.keys, plan.layers, not plan.steady, plan.max_value
