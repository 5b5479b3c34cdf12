"""auto: plan every construction, take the smallest plan, and say why."""

from __future__ import annotations

from dataclasses import dataclass

from attnfun.constructions.plan import Construction, Plan, Request
from attnfun.constructions.registry import CONSTRUCTIONS
from attnfun.errors import Infeasible, InvalidRequest


@dataclass(frozen=True)
class Choice:
    """The plans that fit, smallest first, and for each construction a sentence about its size or its refusal."""

    plans: tuple[tuple[Construction, Plan], ...]
    reasons: dict[str, str]


def choose(request: Request, method: str, without: frozenset[str] = frozenset()) -> Choice:
    """Plan `method`, or with "auto" all of them but `without`; fewest keys first, then fewest layers."""
    if method != "auto" and method not in CONSTRUCTIONS:
        raise InvalidRequest(f"method={method!r}: the methods are auto, {', '.join(CONSTRUCTIONS)}")
    names = [n for n in CONSTRUCTIONS if n not in without] if method == "auto" else [method]
    plans: list[tuple[Construction, Plan]] = []
    reasons: dict[str, str] = {}
    nearest = None
    for name in names:
        try:
            plan = CONSTRUCTIONS[name].plan(request)
        except Infeasible as why:
            reasons[name] = str(why)
            nearest = nearest or why.nearest
            continue
        reasons[name] = f"{name}: {plan.layers} layer(s), {plan.heads} head(s), {plan.keys:,} keys"
        plans.append((CONSTRUCTIONS[name], plan))
        if plan.keys == 0:
            break  # nothing is smaller
    if not plans:
        raise Infeasible("; ".join(reasons.values()), nearest)
    plans.sort(key=lambda item: (item[1].keys, item[1].layers))
    return Choice(tuple(plans), reasons)
