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

from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.target import Relation, joined, sides_of, values_of
from attnfun.language import Array, Box, Builder, Graph
from attnfun.language.brief import Brief
from attnfun.language.graph import MAX_EXPONENT
from attnfun.language.ranges import range_of

_SUM, _PRODUCT = ("add", "sub", "neg"), ("mul",)
_PARTS = 2_000  # of a sum or a product, counted as often as they occur
_WORK = 60_000  # nodes × sub-boxes spent on the range of an inner function


@dataclass(frozen=True)
class Core(Brief):
    """g over `left` and `right`; `inner`: the functions u(x), v(y) (None: the variables themselves).

    `ranges` are the proved ranges of u and v; `left` and `right` hold them, and may be wider.
    """

    graph: Graph
    left: Box
    right: Box
    inner: tuple[Graph, Graph] | None = None
    ranges: tuple[Box, Box] | None = None

    @property
    def boxes(self) -> tuple[Box, Box]:
        return self.left, self.right

    @property
    def joint(self) -> Box:
        return joined(self.left, self.right)

    @property
    def composed(self) -> bool:
        """Are there inner functions?"""
        return self.inner is not None


@dataclass(frozen=True)
class Factor(Brief):
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


def inner_points(inner: Graph, points: Array, names: tuple[str, ...]) -> Array:
    """(n, variables) → (n, outputs of `inner`), as NumPy computes them."""
    return np.stack(values_of(inner, dict(zip(names, points.T, strict=True)), len(points)), axis=1)


@lru_cache(maxsize=32)
def core_of(relation: Relation) -> Core:
    """The relation as g(u(x), v(y)) where that has fewer variables on some side, else itself."""
    graph, plain = _sorted_sides(relation), plain_core(relation)
    sides = sides_of(relation, graph.nodes)
    inner: dict[str, list[int]] = {"l": [], "r": []}
    for i, node in enumerate(graph.nodes):
        if sides[i] == "lr":
            for arg in node.args:
                if sides[arg] in inner and arg not in inner[sides[arg]]:
                    inner[sides[arg]].append(arg)
    (out,) = graph.outputs
    counts, most = (len(inner["l"]), len(inner["r"])), (relation.left.dim, relation.right.dim)
    if sides[out] != "lr" or counts == most or not (counts[0] <= most[0] and counts[1] <= most[1]):
        return plain  # one side alone, a constant, or no fewer variables: nothing to compose
    left_inner, right_inner = graph.reachable(inner["l"]), graph.reachable(inner["r"])
    if relation.symmetric:
        names = dict(zip(relation.right.names, relation.left.names, strict=True))
        order = _matching(left_inner, right_inner.renamed(names))
        if order is None:
            return plain
        inner["r"] = [inner["r"][k] for k in order]
        right_inner = graph.reachable(inner["r"])
    names_u, names_v = _fresh("u", counts[0], relation), _fresh("v", counts[1], relation)
    builder = Builder()
    cut = [graph.nodes[i] for i in inner["l"] + inner["r"]]
    new = dict(zip(cut, names_u + names_v, strict=True))
    at = builder.copy(graph.nodes, lambda node, _: builder.var(new[node]) if node in new else None)
    core = builder.graph([at[out]])
    if not set(core.variables) <= {*names_u, *names_v}:
        return plain
    left = _range_box(left_inner, relation.left, names_u)
    right = _range_box(right_inner, relation.right, names_v)
    if left is None or right is None:
        return plain
    if relation.symmetric:
        right = Box(tuple(names_v), left.low, left.high)
    return Core(core, left, right, (left_inner, right_inner), (left, right))


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
    mine, theirs = ([graph.reachable([o]) for o in graph.outputs] for graph in (left, right))
    order: list[int] = []
    for graph in mine:
        order += [k for k, other in enumerate(theirs) if other == graph and k not in order][:1]
    return order if len(order) == len(mine) == len(theirs) else None


def _sorted_sides(relation: Relation) -> Graph:
    """Sums and products that mix the sides, with their left-only, right-only and constant parts put together."""
    graph, builder = relation.graph, Builder()
    sides, at = sides_of(relation, graph.nodes), list[int]()
    for i, node in enumerate(graph.nodes):
        ops = _SUM if node.op in _SUM else _PRODUCT
        parts = _parts(graph, i, sides, ops) if sides[i] == "lr" and node.op in ops else None
        if parts is None:
            at.append(builder.apply(node.op, *(at[a] for a in node.args), value=node.value))
        else:
            at.append(_gather(builder, parts, at, sides, ops[0]))
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
    groups = ([(at[n], minus) for n, minus in parts if sides[n] == side] for side in ("l", "r", "lr", ""))
    result, flip = _together(builder, [_together(builder, group, op) for group in groups if group], op)
    return builder.apply("neg", result) if flip else result


def _together(builder: Builder, parts: list[tuple[int, bool]], op: str) -> tuple[int, bool]:
    """(node, True if the parts are minus that node): a positive part first, where there is one."""
    (total, flip), *rest = sorted(parts, key=lambda p: p[1])
    for n, minus in rest:
        total = builder.apply("sub" if op == "add" and minus != flip else op, total, n)
    return total, flip


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
    names, d = core.left.names + core.right.names, core.left.dim
    place = {name: k for k, name in enumerate(names)}
    uses = [[place[v] for v in builder.graph([p]).variables] for p in parts]
    root = list(range(len(names)))  # of variables that belong together
    for members in (*uses, *([[k, d + k] for k in range(d)] if symmetric else [])):
        old = {root[k] for k in members}
        root = [root[members[0]] if r in old else r for r in root]
    out: list[Factor] = []
    for own in sorted(set(root)):
        constants = [part for part, members in zip(parts, uses, strict=True) if not members and not out]
        nodes = [part for part, members in zip(parts, uses, strict=True) if members and root[members[0]] == own]
        total = reduce(lambda a, b: builder.apply("mul", a, b), constants + nodes or [builder.const(1)])
        mine = [k for k, r in enumerate(root) if r == own]
        sides = tuple(k for k in mine if k < d), tuple(k - d for k in mine if k >= d)
        out.append(Factor(builder.graph([total]), *sides))
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
