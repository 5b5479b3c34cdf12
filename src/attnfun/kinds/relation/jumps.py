"""A relation with jumps, outside a band around them: sign(g) made smooth, and the measure of the band.

Statement. Let r = Σ_i c_i sign(g_i) + s with rational c_i and continuous s and g_i, without signs of their own. With
e = ε/(2 Σ|c_i|) and any σ with 1 − tanh(σδ) ≤ e, the relation r_δ = Σ_i c_i tanh(σ g_i) + s has |r − r_δ| ≤ ε/2
wherever |g_i| ≥ δ for all i, because tanh rises. What approximates r_δ to ε/2 approximates r to ε outside the band
{some |g_i| < δ}. Across it nothing continuous does so where r jumps: by 2|c_i| where one g_i alone changes its sign, so
that the error there is at least |c_i|.
The measure of the band, as a share of the box, is bounded by branch and bound: sub-boxes on which every |g_i| ≥ δ in
balls do not belong to it.
Failure mode: signs inside other operations (products, powers, functions, other signs) are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb

from attnfun.errors import InvalidRequest, require
from attnfun.kinds.relation.target import Relation, values_of
from attnfun.language import BallAlgebra, Builder, Graph, Node, precision, run
from attnfun.language.domain import Box, halved
from attnfun.language.enclosures import abs_lowers, balls

_BOXES = 12_000


@dataclass(frozen=True)
class Band:
    """Outside {some |g| < delta}, a share of at most `measure` of the box, `of` is within eps."""

    delta: float
    eps: float
    measure: float
    of: str

    @classmethod
    def read(cls, data: Any) -> Band | None:
        """The band that a story tells of; None where it tells of none."""
        if not (isinstance(data, dict) and set(data) == {"delta", "eps", "measure", "of"}):
            return None
        return cls(float(data["delta"]), float(data["eps"]), float(data["measure"]), str(data["of"]))


def smoothed(relation: Relation, delta: float, eps: float) -> tuple[Relation, Band]:
    """The relation r_δ of the module's statement, to be met at eps/2, and its band."""
    if isinstance(delta, bool) or not isinstance(delta, (int, float)) or not 0 < delta < math.inf or delta > 1e308:
        raise InvalidRequest(f"band={delta!r:.30}: a positive finite width is needed")
    found = _collect(relation.graph)
    weight = sum(abs(c) for c in found.values())
    require(weight, f"band={delta:g}: {relation.text[:100]} has no sign() that jumps")
    room = min(Fraction(1), Fraction(eps) / (2 * weight))  # 1 asks for no more than any σ does
    steep = _steepness(delta, float(room) * (1 - 1e-12))
    builder = Builder()

    def smooth(node: Node, args: list[int]) -> int | None:
        """Every sign is one of those that were found."""
        if node.op != "sign":
            return None
        return builder.apply("tanh", builder.apply("mul", builder.const(steep), args[0]))

    at = builder.copy(relation.graph.nodes, smooth)
    graph = builder.graph([at[o] for o in relation.graph.outputs])
    arguments = relation.graph.reachable([relation.graph.nodes[i].args[0] for i in found])
    band = Band(float(delta), float(eps), _measure(arguments, relation.joint, float(delta)), relation.text)
    return Relation(graph, relation.left, relation.right, relation.symmetric), band


def likely_band(relation: Relation) -> float | None:
    """A tenth of what the arguments of the signs reach at samples, in one digit; None where no band helps."""
    try:
        found = _collect(relation.graph)
    except InvalidRequest:
        return None
    Z = relation.joint.probe(256, np.random.default_rng(0))
    arguments = relation.graph.reachable([relation.graph.nodes[i].args[0] for i in found])
    values = values_of(arguments, dict(zip(relation.joint.names, Z.T, strict=True)), len(Z))
    reach = max((float(np.nanmax(np.abs(v))) for v in values), default=0.0)
    return float(f"{reach / 10:.0e}") if 0 < reach < 1e300 else None


def _collect(graph: Graph) -> dict[int, Fraction]:
    """c_i of every sign node that the output holds linearly; InvalidRequest for one that it holds otherwise."""
    factors = {graph.outputs[0]: Fraction(1)}  # of nodes that the output holds linearly
    found: dict[int, Fraction] = {}
    for i in range(len(graph.nodes) - 1, -1, -1):  # what uses a node comes before it
        node, factor = graph.nodes[i], factors.get(i)
        if factor is None:
            continue
        shares: list[tuple[int, Fraction]] = []
        if node.op == "sign":
            _refuse_signs(graph, node.args[0])  # a smoothed sign inside g would move g itself, and |g| >= delta with it
            found[i] = factor
            continue
        if node.op in ("add", "sub"):
            shares = [(node.args[0], factor), (node.args[1], factor if node.op == "add" else -factor)]
        elif node.op == "neg":
            shares = [(node.args[0], -factor)]
        elif node.op in ("mul", "div"):
            values = [graph.nodes[a].value if graph.nodes[a].op == "const" else None for a in node.args]
            for k in (0, 1) if node.op == "mul" else (1,):
                c = values[k]
                if isinstance(c, Fraction) and not shares:
                    shares = [(node.args[1 - k], factor * c if node.op == "mul" else factor / c)]
        if not shares:
            _refuse_signs(graph, i)
        for a, share in shares:
            factors[a] = factors.get(a, Fraction(0)) + share
    return found


def _refuse_signs(graph: Graph, i: int) -> None:
    if any(node.op == "sign" for node in graph.reachable([i]).nodes):
        text = f"band: a sign inside {graph.text(i, 60)}; only sums of signs and continuous terms have one"
        raise InvalidRequest(text)


def _steepness(delta: float, room: float) -> Fraction:
    """σ with 1 − tanh(σδ) ≤ room, proved in balls."""
    require(room > 0, "band: eps is too small")
    guess = math.atanh(max(0.0, 1 - min(room, 1.0))) / delta if room > 1e-15 else 20.0 / delta
    require(guess < 1e290, f"band={delta:g} is too narrow")
    with precision(128):
        for grow in range(1, 60):
            steep = Fraction(math.ceil(guess * 2**16 * (1 + 1e-6 * 2**grow)) + 1, 2**16)
            value = 1 - (arb(steep.numerator) / steep.denominator * arb(delta)).tanh()
            if value <= arb(room):
                return steep
    raise InvalidRequest("band: eps is too small for this width")


def _measure(arguments: Graph, box: Box, delta: float) -> float:
    """An upper bound of the share of the box on which some argument is below delta in size."""
    low, high = box.low_array[None], box.high_array[None]
    spent = 1
    with precision(64):
        while True:
            env = {n: balls(low[:, k], high[:, k]) for k, n in enumerate(box.names)}
            clear = np.ones(len(low), dtype=bool)
            for value in run(arguments, BallAlgebra(), env):
                sizes = abs_lowers(np.broadcast_to(np.asarray(value, dtype=object), (len(low),)))
                clear &= sizes >= delta
            low, high = low[~clear], high[~clear]
            spent += 2 * len(low)
            if not len(low) or spent > _BOXES:
                # from their sides: halves are equal only up to rounding, which is much in a box of few doubles
                shares = np.prod((high - low) / (box.high_array - box.low_array), axis=1)
                return min(1.0, float(shares.sum()) * (1 + 1e-9))
            low, high = halved(low, high, 1 / (box.high_array - box.low_array))
