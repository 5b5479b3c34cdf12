"""Orders of documents in which every row is an interval, an arc, or an end piece: exact algorithms.

Statement. (a) *line*: there is an order in which every row is a prefix or a suffix iff dimension 1 is enough; ties in
an embedding may be broken at will. (b) *circle*: if there is a cyclic order in which every row is an arc, dimension 2
is enough: points on a circle, and a line cuts every arc off. (c) *intervals*: rows that are intervals in a linear order
are arcs of the circle that closes it.

Source. PQ-trees: K. S. Booth, G. S. Lueker, *Testing for the consecutive ones property, interval graphs, and graph
planarity using PQ-tree algorithms*, J. Comput. System Sci. 13, 1976. From circles to lines: A. Tucker, *Matrix
characterizations of circular-arc graphs*, Pacific J. Math. 39, 1971: complement the rows that hold one fixed document.

Size. A row costs the nodes above its documents and the Q-nodes it meets.

Failure mode. None: if an order exists it is found. Rows that do not fit leave the tree as it was, so the same tree
gives a good order for relations that have no perfect one.

Orders to try. If every row can be an arc (PQ-tree), that order comes first and nothing else is tried. Otherwise: the
order of the tree without the rows that did not fit, the order in which documents were named, by the number of queries
that want them, and by the second singular vector of the scaled relation (correspondence analysis). The one with the
fewest changes of sign in its worst row comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from attnfun.limits.embedding.relevance import Core, Indices, places

_TREE_WORK = 100_000_000
"""Rows × documents up to which a PQ-tree is built: its longest Q-node may be walked for every row."""


class _Node:
    __slots__ = ("children", "leaf", "parent", "queue", "size")

    def __init__(self, queue: bool = False, leaf: int = -1) -> None:
        self.queue = queue  # a Q-node: its children may only be reversed
        self.leaf = leaf
        self.parent: _Node | None = None
        self.size = 1
        # ordered, and cheap to remove from: a P-node gives its touched children away
        self.children: dict[_Node, None] = {}

    def adopt(self, children: Iterable[_Node]) -> _Node:
        self.children = dict.fromkeys(children)
        for child in self.children:
            child.parent = self
        self.size = sum(child.size for child in self.children)
        return self


class PQTree:
    """All orders of 0 … n−1 in which the rows reduced so far are intervals."""

    def __init__(self, n: int) -> None:
        self.leaves = [_Node(leaf=j) for j in range(n)]
        self.root = _Node().adopt(self.leaves)

    def reduce(self, row: Iterable[int]) -> bool:
        """Keep the orders in which `row` is an interval too; False, and nothing changed, if there are none."""
        level = [self.leaves[j] for j in row]
        total = len(level)
        if total < 2:
            return True
        count, marks = dict.fromkeys(level, 1), dict[_Node, list[_Node]]()
        for leaf in level:
            node = leaf
            while node.parent is not None:
                above = node.parent
                known = above in marks
                marks.setdefault(above, []).append(node)
                if known:
                    break
                node = above
        top = self.root
        for node in self._postorder(marks):
            count[node] = sum(count[child] for child in marks[node])
        while inside := [child for child in marks.get(top, ()) if count[child] == total]:
            top = inside[0]
        return self._apply(top, count, marks)

    def _postorder(self, marks: dict[_Node, list[_Node]]) -> list[_Node]:
        out, stack = [], [self.root]
        while stack:
            node = stack.pop()
            if node in marks:
                out.append(node)
                stack.extend(marks[node])
        return out[::-1]

    def _apply(self, top: _Node, count: dict[_Node, int], marks: dict[_Node, list[_Node]]) -> bool:
        if count[top] == top.size:
            return True
        partial = [c for c in marks[top] if count[c] < c.size]
        if len(partial) > 2:
            return False
        if top.queue:
            state = [_state(child, count) for child in top.children]
            first = next(i for i, s in enumerate(state) if s)
            last = max(i for i, s in enumerate(state) if s)
            if any(s != 2 for s in state[first + 1 : last]):
                return False
        chains = [_chain(node, count, marks) for node in partial]
        if any(chain is None for chain in chains):
            return False
        lines = {node: _straighten(chain) for node, chain in zip(partial, chains) if chain is not None}
        if top.queue:
            out: list[_Node] = []
            for at, child in enumerate(list(top.children)):
                if child in lines:  # its full end looks at the full ones
                    out.extend(lines[child] if at == first else lines[child][::-1])
                else:
                    out.append(child)
            top.adopt(out)
            return True
        full = [c for c in marks[top] if count[c] == c.size]
        block = _group(full)
        if partial:
            ends = [lines[node] for node in partial]
            line = [*ends[0], *block, *(ends[1][::-1] if len(ends) > 1 else ())]
            block = [_Node(queue=len(line) > 2).adopt(line)]
        if len(top.children) > len(marks[top]):
            for child in marks[top]:
                top.children.pop(child, None)
            for child in block:
                child.parent = top
                top.children[child] = None
        else:
            top.queue = block[0].queue
            top.adopt(list(block[0].children))
        return True

    def order(self) -> Indices:
        out, stack = [], [self.root]
        while stack:
            node = stack.pop()
            if node.leaf >= 0:
                out.append(node.leaf)
            else:
                stack.extend(reversed(node.children))
        return np.array(out, np.int64)


def _state(node: _Node, count: dict[_Node, int]) -> int:
    """0 empty, 1 partial, 2 full."""
    held = count.get(node, 0)
    return 0 if held == 0 else 2 if held == node.size else 1


_Level = tuple[_Node, list[_Node], list[_Node]]


def _chain(node: _Node, count: dict[_Node, int], marks: dict[_Node, list[_Node]]) -> list[_Level] | None:
    """The levels of a partial node that must have its full leaves at one end: (node, empty, full); None if it cannot.

    For a P-node the empty ones are not listed: the node itself, when its touched children have left it, is their group.
    """
    levels: list[_Level] = []
    below: _Node | None = node
    while below is not None:
        here, below = below, None
        partial = [c for c in marks[here] if count[c] < c.size]
        if len(partial) > 1:
            return None
        full = [c for c in marks[here] if count[c] == c.size]
        empty: list[_Node] = []
        if here.queue:
            line = list(here.children)
            if _state(line[0], count) == 2 or _state(line[-1], count) == 0:
                line.reverse()
            states = [_state(child, count) for child in line]
            if states != sorted(states):
                return None
            empty = [c for c, s in zip(line, states) if s == 0]
            full = [c for c, s in zip(line, states) if s == 2]
        levels.append((here, empty, full))
        below = partial[0] if partial else None
    return levels


def _straighten(levels: list[_Level]) -> list[_Node]:
    """Empty ones on the left, full ones on the right, the innermost level in the middle."""
    left: list[_Node] = []
    right: list[list[_Node]] = []
    for at, (node, empty, full) in enumerate(levels):
        if node.queue:
            left.extend(empty)
            right.append(full)
            continue
        inner = levels[at + 1][0] if at + 1 < len(levels) else None
        rest = [c for c in node.children if c is not inner]
        gone = set(full)
        left.extend(_group([c for c in rest if c not in gone]))
        right.append(_group(full))
    return left + [node for group in reversed(right) for node in group]


def _group(nodes: Sequence[_Node]) -> list[_Node]:
    return list(nodes) if len(nodes) < 2 else [_Node().adopt(nodes)]


def interval_order(rows: Sequence[Indices], n: int) -> tuple[Indices, int]:
    """An order, and how many rows did not fit: 0 iff every row can be an interval at once."""
    tree = PQTree(n)
    failed = sum(not tree.reduce(row.tolist()) for row in rows)
    return tree.order(), failed


def circular_order(core: Core) -> tuple[Indices, int]:
    """A cyclic order, and how many rows did not fit: 0 iff every row can be an arc at once."""
    pivot = int(np.argmin([len(column) for column in core.columns]))
    everything = np.arange(core.n)
    away = [np.setdiff1d(everything, row, assume_unique=True) if pivot in row else row for row in core.rows]
    return interval_order(sorted(away, key=len, reverse=True), core.n)


def end_order(core: Core) -> Indices | None:
    """An order in which every row is a prefix or a suffix, or None if there is none.

    Seen from one document p, a split is its side without p. On a line these sides are two chains of nested sets, left
    and right of p, and sets of different chains are disjoint; taken by falling size, each has one place at most.
    """
    pivot = int(np.argmin([len(column) for column in core.columns]))
    everything = frozenset(range(core.n))
    sides = {frozenset(row.tolist()) for row in core.rows}
    away = {everything - side if pivot in side else side for side in sides}
    left: list[frozenset[int]] = []
    right: list[frozenset[int]] = []
    for side in sorted(away, key=len, reverse=True):
        if not left or side <= left[-1]:
            left.append(side)
        elif side.isdisjoint(left[0]) and (not right or side <= right[-1]):
            right.append(side)
        else:
            return None
    rank = np.zeros(core.n, np.int64)
    for chain, sign in ((left, -1), (right, 1)):
        for side in chain:
            rank[list(side)] += sign
    return np.argsort(rank, kind="stable").astype(np.int64)


def sign_changes(core: Core, order: Indices) -> tuple[Indices, Indices]:
    """For each row its changes of sign along the order, and around the circle."""
    place = places(order)
    line, circle = np.zeros(core.m, np.int64), np.zeros(core.m, np.int64)
    for i, row in enumerate(core.rows):
        at = np.sort(place[row])
        runs = 1 + int(np.count_nonzero(np.diff(at) > 1))
        first, last = at[0] == 0, at[-1] == core.n - 1
        line[i] = 2 * runs - int(first) - int(last)
        circle[i] = 2 * (runs - int(first and last))
    return line, circle


def document_order(core: Core) -> Indices:
    """The best order found, as said above."""
    line = end_order(core)
    if line is not None:
        return line
    found: list[Indices] = []
    if core.m * core.n <= _TREE_WORK:
        arcs, failed = circular_order(core)
        if not failed:
            return arcs
        found.append(arcs)
    found += [np.arange(core.n), _by_length(core.columns), _spectral(core.rows, core.n)]
    return min(found, key=lambda order: int(sign_changes(core, order)[0].max()))


def query_orders(core: Core) -> list[Indices]:
    """Orders of the queries, for documents that few queries want."""
    found = [np.arange(core.m), _spectral(core.columns, core.m), _by_length(core.rows)]
    if core.m * core.n <= _TREE_WORK:
        found.insert(0, interval_order(sorted(core.columns, key=len, reverse=True), core.m)[0])
    return found


def _by_length(lines: tuple[Indices, ...]) -> Indices:
    return np.argsort([len(line) for line in lines], kind="stable").astype(np.int64)


def _spectral(rows: tuple[Indices, ...], n: int) -> Indices:
    from scipy.sparse import csr_array, diags_array
    from scipy.sparse.linalg import ArpackError, svds

    lengths = np.array([len(row) for row in rows])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    A = csr_array((np.ones(starts[-1]), np.concatenate(rows), starts), shape=(len(rows), n))
    if min(A.shape) < 4:
        return np.arange(n)
    counts = np.maximum(A.sum(axis=0), 1.0)
    scaled = diags_array(1 / np.sqrt(np.maximum(lengths, 1.0))) @ A @ diags_array(1 / np.sqrt(counts))
    try:
        _, values, right = svds(scaled, k=2, v0=np.linspace(1.0, 2.0, min(A.shape)), maxiter=300)
    except ArpackError:
        return np.arange(n)
    return np.argsort(right[int(np.argmin(values))] / np.sqrt(counts), kind="stable").astype(np.int64)
