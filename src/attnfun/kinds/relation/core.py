"""The core of a relation, g(u(x), v(y)), and its factors: exact rewrites that tell how large its rank has to be.

**Core.** Node for node, a subexpression of left variables only is a u, one of right variables only a v; sums and
products are first put in an order in which such parts stand together (associativity and commutativity, nothing else).
What is left is g in as many variables as there are u and v. If that is fewer than the relation has on some side, rank
follows the inner dimension: rank_ε(r) ≤ rank_ε(g on range(u) × range(v)).

**Factors.** g = Π_k g_k with no variable in two factors: products and integer powers of factors, and exp of sums,
(e^{s+t} = e^s e^t; c(s + t) = cs + ct for constants c). In a symmetric relation x_k and y_k stay together.

Both are identities wherever the expression is defined; constructions and the checker use the same ones, for they are
proofs and no choice. Failure mode: what is not seen is not used, and costs rank, never truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.target import Relation, renamed
from attnfun.language import ArrayAlgebra, Builder, Graph, run
from attnfun.language.domain import Array, Box
from attnfun.language.graph import MAX_EXPONENT
from attnfun.language.ranges import range_of

_SUM, _PRODUCT = ("add", "sub", "neg"), ("mul",)
_PARTS = 2_000  # of a sum or a product, counted as often as they occur
_WORK = 60_000  # nodes × sub-boxes spent on the range of an inner function


@dataclass(frozen=True)
class Core:
    """g over `left` and `right`; `left_inner`, `right_inner`: the functions u(x), v(y) (None: the variables).

    `left_range`, `right_range` are the proved ranges of u and v; `left` and `right` hold them, and may be wider.
    """

    graph: Graph
    left: Box
    right: Box
    left_inner: Graph | None = None
    right_inner: Graph | None = None
    left_range: Box | None = None
    right_range: Box | None = None


@dataclass(frozen=True)
class Factor:
    """One factor g_k: which left and which right variables of the core it holds (indices, in order)."""

    graph: Graph
    left: tuple[int, ...]
    right: tuple[int, ...]


# ---------------------------------------------------------------- the core


def plain_core(relation: Relation) -> Core:
    return Core(relation.graph, relation.left, relation.right)


def fitting_core(relation: Relation, left: tuple[Array, Array], right: tuple[Array, Array]) -> Core:
    """The relation's core if features on these boxes are functions of its u and v, else the relation as it is."""
    core = core_of(relation)
    return core if (len(left[0]), len(right[0])) == (core.left.dim, core.right.dim) else plain_core(relation)


def core_points(core: Core, side: str, points: Array, names: tuple[str, ...]) -> Array:
    """(n, variables) → (n, variables of the core): the inner functions, as NumPy computes them."""
    inner = core.left_inner if side == "left" else core.right_inner
    return points if inner is None else inner_points(inner, points, names)


def inner_points(inner: Graph, points: Array, names: tuple[str, ...]) -> Array:
    """(n, variables) → (n, outputs of `inner`), as NumPy computes them."""
    with np.errstate(all="ignore"):
        out = run(inner, ArrayAlgebra(), {n: points[:, k] for k, n in enumerate(names)})
    return np.stack([np.broadcast_to(np.asarray(c, dtype=np.float64), (len(points),)) for c in out], axis=1)


@lru_cache(maxsize=32)
def core_of(relation: Relation) -> Core:
    """The relation as g(u(x), v(y)) where that has fewer variables on some side, else itself."""
    graph = _sorted_sides(relation)
    sides = _sides(graph, relation)
    inner: dict[str, list[int]] = {"l": [], "r": []}
    for i, node in enumerate(graph.nodes):
        if sides[i] == "lr":
            for arg in node.args:
                if sides[arg] in inner and arg not in inner[sides[arg]]:
                    inner[sides[arg]].append(arg)
    (out,) = graph.outputs
    if sides[out] != "lr":
        return plain_core(relation)  # one side alone, or a constant: nothing to compose
    counts = (len(inner["l"]), len(inner["r"]))
    if not (counts[0] <= relation.left.dim and counts[1] <= relation.right.dim):
        return plain_core(relation)
    if counts == (relation.left.dim, relation.right.dim):
        return plain_core(relation)
    left_inner, right_inner = graph.reachable(inner["l"]), graph.reachable(inner["r"])
    if relation.symmetric:
        names = dict(zip(relation.right.names, relation.left.names, strict=True))
        order = _matching(left_inner, renamed(right_inner, names))
        if order is None:
            return plain_core(relation)
        inner["r"] = [inner["r"][k] for k in order]
        right_inner = graph.reachable(inner["r"])
    names_u = _fresh("u", counts[0], relation)
    names_v = _fresh("v", counts[1], relation)
    builder, at = Builder(), list[int]()
    new = dict(zip(inner["l"] + inner["r"], names_u + names_v, strict=True))
    for i, node in enumerate(graph.nodes):
        if i in new:
            at.append(builder.var(new[i]))
        else:
            at.append(builder.apply(node.op, *(at[a] for a in node.args), value=node.value))
    core = builder.graph([at[out]])
    if not set(core.variables) <= {*names_u, *names_v}:
        return plain_core(relation)
    left = _range_box(left_inner, relation.left, names_u)
    right = _range_box(right_inner, relation.right, names_v)
    if left is None or right is None:
        return plain_core(relation)
    if relation.symmetric:
        right = Box(tuple(names_v), left.low, left.high)
    return Core(core, left, right, left_inner, right_inner, left, right)


def _range_box(inner: Graph, box: Box, names: list[str]) -> Box | None:
    """The proved ranges of the inner functions, as a box; None where one has none."""
    ranges = range_of(inner, box, budget=max(1, min(1500, _WORK // len(inner.nodes))))
    try:
        return Box(tuple(names), tuple(a for a, _ in ranges), tuple(b for _, b in ranges))
    except InvalidRequest:  # infinite, constant, or too narrow to be a box
        return None


def _fresh(stem: str, count: int, relation: Relation) -> list[str]:
    taken = {*relation.left.names, *relation.right.names}
    while any(name.startswith(stem) for name in taken):
        stem += "_"
    return [f"{stem}{k + 1}" for k in range(count)]


def _matching(left: Graph, right: Graph) -> list[int] | None:
    """For every output of `left` the output of `right` that is the same function node by node, or None."""
    mine = [left.reachable([o]) for o in left.outputs]
    theirs = [right.reachable([o]) for o in right.outputs]
    if len(mine) != len(theirs):
        return None
    order = []
    for graph in mine:
        found = [k for k, other in enumerate(theirs) if other == graph and k not in order]
        if not found:
            return None
        order.append(found[0])
    return order


def _sides(graph: Graph, relation: Relation) -> list[str]:
    """For every node "l", "r", "lr" or "": the sides whose variables it holds."""
    left = set(relation.left.names)
    out: list[str] = []
    for node in graph.nodes:
        if node.op == "var":
            out.append("l" if node.value in left else "r")
        else:
            out.append("".join(s for s in "lr" if any(s in out[a] for a in node.args)))
    return out


def _sorted_sides(relation: Relation) -> Graph:
    """Sums and products that mix the sides, with their left-only, right-only and constant parts put together."""
    graph = relation.graph
    sides = _sides(graph, relation)
    builder = Builder()
    at: list[int] = []
    for i, node in enumerate(graph.nodes):
        ops = _SUM if node.op in _SUM else _PRODUCT
        parts = _parts(graph, i, sides, ops) if sides[i] == "lr" and node.op in ops else None
        if parts is not None:
            at.append(_gather(builder, parts, at, sides, ops[0]))
        else:
            at.append(builder.apply(node.op, *(at[a] for a in node.args), value=node.value))
    return builder.graph([at[o] for o in graph.outputs])


def _parts(graph: Graph, i: int, sides: list[str], ops: tuple[str, ...]) -> list[tuple[int, bool]] | None:
    """The nodes, from left to right, into which node i falls at operations `ops` that mix the sides; True: negated.

    None where they are very many, each counted as often as it occurs.
    """
    found: list[tuple[int, bool]] = []
    stack = [(i, False)]
    while stack:
        n, minus = stack.pop()
        node = graph.nodes[n]
        if sides[n] == "lr" and node.op in ops:
            last = minus != (node.op in ("neg", "sub"))  # neg has one argument, its last
            stack += [(node.args[-1], last), *((a, minus) for a in node.args[:-1])]
        else:
            found.append((n, minus))
        if len(found) + len(stack) > _PARTS:
            return None
    return found


def _gather(builder: Builder, parts: list[tuple[int, bool]], at: list[int], sides: list[str], op: str) -> int:
    """One node for the parts: left ones first, then right ones, the mixed, the constants."""
    groups: dict[str, list[tuple[int, bool]]] = {"l": [], "r": [], "lr": [], "": []}
    for n, minus in parts:
        groups[sides[n]].append((n, minus))
    made: list[tuple[int, bool]] = []
    for group in groups.values():
        if not group:
            continue
        group = sorted(group, key=lambda p: p[1])  # a positive part first, where there is one
        total, flip = at[group[0][0]], group[0][1]  # flip: the group is minus `total`
        for n, minus in group[1:]:
            total = builder.apply("sub" if op == "add" and minus != flip else op, total, at[n])
        made.append((total, flip))
    made.sort(key=lambda p: p[1])
    result, flip = made[0]
    for n, minus in made[1:]:
        result = builder.apply("sub" if op == "add" and minus != flip else op, result, n)
    return builder.apply("neg", result) if flip else result


# ---------------------------------------------------------------- factors


def factors_of(core: Core, symmetric: bool) -> list[Factor]:
    """Factors of g without common variables; [g itself] where there are none.

    One variable a side is one factor: a(x) b(y) has rank 1 as it is, and no factor is then without a side.
    """
    if core.left.dim == core.right.dim == 1:
        return [Factor(core.graph, (0,), (0,))]
    builder = Builder()
    at = builder.copy(core.graph.nodes)
    parts = _factors(builder, at[core.graph.outputs[0]])
    names = core.left.names + core.right.names
    parent = list(range(len(names)))

    def root(k: int) -> int:
        while parent[k] != k:
            k = parent[k]
        return k

    def join(members: list[int]) -> None:
        for k in members[1:]:
            parent[root(k)] = root(members[0])

    place = {name: k for k, name in enumerate(names)}
    uses = [[place[v] for v in builder.graph([p]).variables] for p in parts]
    for members in uses:
        join(members)
    if symmetric:
        for k in range(core.left.dim):
            join([k, core.left.dim + k])
    found: dict[int, list[int]] = {}
    constants: list[int] = []
    for part, members in zip(parts, uses, strict=True):
        (found.setdefault(root(members[0]), []) if members else constants).append(part)
    out: list[Factor] = []
    roots = sorted({root(k) for k in place.values()})
    for members in ([k for k in range(len(names)) if root(k) == r] for r in roots):
        nodes = found.get(root(members[0]), [])
        if not out:
            nodes = constants + nodes
        total = nodes[0] if nodes else builder.const(1)
        for n in nodes[1:]:
            total = builder.apply("mul", total, n)
        d = core.left.dim
        out.append(
            Factor(builder.graph([total]), tuple(k for k in members if k < d), tuple(k - d for k in members if k >= d))
        )
    return out


def _factors(builder: Builder, i: int) -> list[int]:
    """Nodes whose product is node i."""
    found: list[int] = []
    stack = [(i, 1)]
    while stack:
        n, power = stack.pop()
        node = builder.node(n)
        if node.op == "mul":
            stack += [(node.args[1], power), (node.args[0], power)]
        elif node.op == "div":
            stack += [(node.args[1], -power), (node.args[0], power)]
        elif node.op == "powi" and isinstance(node.value, int) and abs(power * node.value) <= MAX_EXPONENT:
            stack.append((node.args[0], power * node.value))
        elif node.op == "neg":
            found.append(builder.const((-1) ** abs(power)))
            stack.append((node.args[0], power))
        else:
            pieces = [n]
            if node.op == "exp":
                pieces = [builder.apply("exp", s) for s in _summands(builder, node.args[0])]
            found += [builder.apply("powi", piece, value=power) for piece in pieces]
        if len(found) + len(stack) > _PARTS:
            return [i]
    return found


def _summands(builder: Builder, i: int) -> list[int]:
    """Nodes whose sum is node i."""
    found: list[int] = []
    stack: list[tuple[int, tuple[tuple[str, int], ...]]] = [(i, ())]  # nodes, and what is done to them outside
    while stack:
        n, outside = stack.pop()
        node = builder.node(n)
        if node.op in ("add", "sub"):
            second = (*outside, ("neg", -1)) if node.op == "sub" else outside
            stack += [(node.args[1], second), (node.args[0], outside)]
            continue
        if node.op == "neg":
            stack.append((node.args[0], (*outside, ("neg", -1))))
            continue
        sides = {"mul": (0, 1), "div": (0,)}.get(node.op, ())
        k = next((k for k in sides if not builder.graph([node.args[1 - k]]).variables), None)
        if k is not None:
            stack.append((node.args[k], (*outside, (node.op, node.args[1 - k]))))
            continue
        for op, other in reversed(outside):
            args = (n,) if op == "neg" else (other, n) if op == "mul" else (n, other)
            n = builder.apply(op, *args)
        found.append(n)
        if len(found) + len(stack) > _PARTS:
            return [i]
    return found
