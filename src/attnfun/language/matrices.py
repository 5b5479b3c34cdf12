"""Values of a large graph at points: its affine parts as matrices, thousands of operations at once.

    tanh(x @ W) @ v      of 784 variables and 32 units is two matrix products and 32 columns, not 50,000 operations

Sums are rounded in another order than node by node. Nothing here is a bound.
Failure mode: a value that is not finite would spoil others that do not depend on it; then there is no answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from attnfun.language.arrays import ArrayAlgebra
from attnfun.language.graph import Graph, Node
from attnfun.language.interpret import step

Array = NDArray[np.float64]

_FEW = 1_000  # operations up to which one after the other is as quick
_MOST = 20_000_000  # entries of all matrices


@dataclass(frozen=True)
class _Level:
    """Affine forms of what is known, a row for each node of `made`; then the nodes `steps`, which read them."""

    made: tuple[int, ...]
    rows: Array
    constants: Array
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Matrices:
    """The levels of a graph; what is known grows by the steps of each."""

    graph: Graph
    names: tuple[str, ...]
    levels: tuple[_Level, ...]

    @classmethod
    def of(cls, graph: Graph, names: Sequence[str]) -> Matrices | None:
        """None for a small graph, and where matrices would be too large."""
        nodes = graph.nodes
        if len(nodes) <= _FEW:
            return None
        free = [_is_affine(nodes, node) for node in nodes]
        steps = [i for i, node in enumerate(nodes) if not free[i] and node.op not in ("var", "const")]
        wanted = {a for i in steps for a in nodes[i].args} | set(graph.outputs)
        if len(wanted) * (len(names) + len(steps)) > _MOST:
            return None
        forms = {i: _form(nodes, free, i) for i in sorted(wanted)}
        depth: dict[int, int] = {}
        for i in steps:
            below = (atom for a in nodes[i].args for atom in forms[a] if atom in depth)
            depth[i] = 1 + max((depth[atom] for atom in below), default=-1)
        last = 1 + max(depth.values(), default=-1)
        order = sorted(steps, key=lambda i: (depth[i], i))
        place = {i: names.index(str(node.value)) for i, node in enumerate(nodes) if node.op == "var"}
        place |= {i: len(names) + k for k, i in enumerate(order)}
        levels = []
        for level in range(last + 1):
            here = tuple(i for i in order if depth[i] == level)
            made = sorted({a for i in here for a in nodes[i].args} if level < last else set(graph.outputs))
            width = len(names) + sum(depth[i] < level for i in order)
            rows, constants = np.zeros((len(made), width)), np.zeros(len(made))
            for k, i in enumerate(made):
                for atom, c in forms[i].items():
                    if atom < 0:
                        constants[k] = c
                    else:
                        rows[k, place[atom]] += c
            levels.append(_Level(tuple(made), rows, constants, here))
        return cls(graph, tuple(names), tuple(levels))

    def values(self, X: Array) -> Array | None:
        """(n, d) → (n, outputs), or None."""
        algebra, known = ArrayAlgebra(), X
        for level in self.levels:
            with np.errstate(all="ignore"):
                given = dict(zip(level.made, (known @ level.rows.T + level.constants).T, strict=True))
            new = [step(self.graph.nodes[i], algebra, {}, given) for i in level.steps]
            if new:
                columns = [np.broadcast_to(np.asarray(column, dtype=np.float64), (len(X),)) for column in new]
                known = np.concatenate([known, np.stack(columns, axis=1)], axis=1)
        found = np.stack([given[o] for o in self.graph.outputs], axis=1)
        return found if np.isfinite(known).all() and np.isfinite(found).all() else None


def _is_affine(nodes: Sequence[Node], node: Node) -> bool:
    if node.op == "mul":
        return nodes[node.args[0]].op == "const" or nodes[node.args[1]].op == "const"
    return node.op in ("add", "sub", "neg") or (node.op == "div" and nodes[node.args[1]].op == "const")


def _form(nodes: Sequence[Node], free: Sequence[bool], root: int) -> dict[int, float]:
    """Coefficients of a node in variables and in nodes that are not affine, by number; the constant at −1."""
    weights, heap, form = {root: 1.0}, [-root], dict[int, float]()
    while heap:  # the largest number first: all that reads a node comes before it
        i = -heapq.heappop(heap)
        c, node = weights.pop(i), nodes[i]
        if node.op == "const":
            form[-1] = form.get(-1, 0.0) + c * float(_value(node))
            continue
        if not free[i]:
            form[i] = c
            continue
        for a, factor in _parts(nodes, node):
            if a not in weights:
                heapq.heappush(heap, -a)
            weights[a] = weights.get(a, 0.0) + c * factor
    return form


def _parts(nodes: Sequence[Node], node: Node) -> list[tuple[int, float]]:
    a, b = node.args[0], node.args[-1]
    if node.op in ("add", "sub"):
        return [(a, 1.0), (b, 1.0 if node.op == "add" else -1.0)]
    if node.op == "neg":
        return [(a, -1.0)]
    if node.op == "div":
        return [(a, 1.0 / float(_value(nodes[b])))]
    return [(b, float(_value(nodes[a])))] if nodes[a].op == "const" else [(a, float(_value(nodes[b])))]


def _value(node: Node) -> Fraction:
    assert isinstance(node.value, Fraction)
    return node.value
