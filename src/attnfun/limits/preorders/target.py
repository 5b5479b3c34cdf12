"""Preorder: which of two keys is at least as good, for a query.

Either a utility expression u(q, k) in query and key variables (a ≽ b iff u(q, a) ≥ u(q, b)), or a comparison callable
`prefers(query, a, b)`, true iff a is **at least as good** as b: true both ways for a tie, true for a against itself.
Queries may be absent: then the utility is of keys alone, and the callable is `prefers(a, b)`. It is given read-only
NumPy arrays of shape (variables,) and asked one pair at a time.

A callable is an oracle: nothing but its answers is known, so nothing about it is ever proved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest, present, require
from attnfun.kinds.relation.target import Relation, joined
from attnfun.language import Array, ArrayAlgebra, BallAlgebra, Box, Builder, Graph, parse, precision, run
from attnfun.language.brief import Brief
from attnfun.language.domain import read_boxes
from attnfun.language.enclosures import lower, point_balls, upper
from attnfun.language.function import Function
from attnfun.network.head import frozen

_EXACT = 256
"""Bits of the balls that compare utilities rigorously."""


@dataclass(frozen=True, eq=False)
class Preorder(Brief):
    """Keys on a box, preferred by a utility `graph` or by `prefers`; `queries` is None where there are none."""

    keys: Box
    queries: Box | None
    graph: Graph | None = None
    prefers: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        require((self.graph is None) != (self.prefers is None), "give a utility or a comparison callable, one of them")
        if self.queries is not None:
            joined(self.queries, self.keys)  # says which name is used twice

    @classmethod
    def read(cls, utility: Any, prefers: Any, keys: Any, queries: Any) -> Preorder:
        """From a utility (text, Graph, NumPy function of all variables) or a comparison callable, and the boxes."""
        require(keys is not None, "a preorder needs the box of its keys: right={'k': (0, 1)} (or keys=)")
        boxes = read_boxes(utility, *((queries,) if queries is not None else ()), keys)
        box, asked = boxes[-1], None if queries is None else boxes[0]
        if utility is None:
            require(callable(prefers), f"prefers={prefers!r:.60}: a function (query, a, b), true iff a is no worse")
            return cls(box, asked, prefers=prefers)
        names = box.names if asked is None else joined(asked, box).names
        graph = utility if isinstance(utility, Graph) else None
        if isinstance(utility, str):
            graph = parse(utility, names)
        elif callable(utility):
            graph = Function.read(utility, box if asked is None else joined(asked, box)).graph
        if graph is None or len(graph.outputs) != 1 or not set(graph.variables) <= set(names):
            raise InvalidRequest(f"utility={utility!r:.60}: one expression in {', '.join(names)} is needed")
        return cls(box, asked, graph)

    @property
    def text(self) -> str:
        if self.graph is None:
            return f"{getattr(self.prefers, '__name__', 'prefers')}, a comparison callable"
        return self.graph.text(self.graph.outputs[0])

    @property
    def domain_text(self) -> str:
        return self.keys.text if self.queries is None else f"{self.queries.text} | {self.keys.text}"

    @property
    def joint(self) -> Box:
        return self.keys if self.queries is None else joined(self.queries, self.keys)

    def weakly(self, query: Array | None, a: Array, b: Array) -> bool:
        """a ≽ b, as the callable answers or as NumPy computes the utility."""
        if self.prefers is None:
            u, v = self.values(query, np.stack([a, b]))
            return bool(u >= v)
        points = [frozen(p) for p in ((a, b) if query is None else (query, a, b))]
        try:
            answer = self.prefers(*points)
        except Exception as error:
            raise InvalidRequest(f"prefers failed at {_shown(points)}: {type(error).__name__}: {error!s:.80}") from None
        if isinstance(answer, np.ndarray) and answer.ndim == 0:
            answer = answer[()]
        if not isinstance(answer, (bool, np.bool_)):
            raise InvalidRequest(f"prefers answered {answer!r:.40} at {_shown(points)}: True or False is needed")
        return bool(answer)

    def compare(self, query: Array | None, a: Array, b: Array) -> int:
        """1 if a ≻ b, −1 if b ≻ a, else 0: two questions."""
        return int(self.weakly(query, a, b)) - int(self.weakly(query, b, a))

    def values(self, query: Array | None, K: Array) -> Array:
        """(n, keys) → (n,) the utility as NumPy computes it; never evidence."""
        with np.errstate(all="ignore"):
            value = run(self._graph, ArrayAlgebra(), self._environment(query, K))[0]
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (len(K),)))

    def gap(self, query: Array | None, a: Array, b: Array) -> tuple[float, float]:
        """Proved ends of u(q, a) − u(q, b) at exactly these doubles."""
        with precision(_EXACT):
            env = {name: point_balls(column) for name, column in self._environment(query, np.stack([a, b])).items()}
            value = np.broadcast_to(np.asarray(run(self._graph, BallAlgebra(), env)[0], dtype=object), (2,))
            difference = value[0] - value[1]
            return lower(difference), upper(difference)

    def relation(self) -> Relation:
        """The utility as a relation of queries (left) and keys (right).

        Addends of queries alone are left out: they change neither the preorder nor a softmax over keys. Without queries
        the left side is one idle variable.
        """
        left = self.queries or Box((_unused(self.keys.names),), (0.0,), (1.0,))
        return Relation(self.essential(), left, self.keys)

    def essential(self) -> Graph:
        """The utility without its addends of queries alone."""
        graph, builder = self._graph, Builder()
        at = builder.copy(graph.nodes)
        kept = [(i, plus) for i, plus in addends(graph) if set(graph.reachable((i,)).variables) & set(self.keys.names)]
        total = builder.const(0)
        for i, plus in kept:
            total = builder.apply("add" if plus else "sub", total, at[i])
        return graph if len(kept) == len(addends(graph)) else builder.graph([total])

    @property
    def query_matters(self) -> bool:
        """False where the utility is a(q) + b(k) or b(k) alone: the preorder is then the same for every query."""
        if self.queries is None:
            return False
        return self.graph is None or bool(set(self.essential().variables) & set(self.queries.names))

    @property
    def _graph(self) -> Graph:
        return present(self.graph, InvalidRequest("a comparison callable has no utility of its own"))

    def _environment(self, query: Array | None, K: Array) -> dict[str, Array]:
        env = {name: K[:, k] for k, name in enumerate(self.keys.names)}
        if self.queries is not None and query is not None:
            env |= {name: np.full(len(K), query[k]) for k, name in enumerate(self.queries.names)}
        return env


def addends(graph: Graph) -> list[tuple[int, bool]]:
    """The terms of the output's outermost sums and differences, each with whether it is added."""
    out: list[tuple[int, bool]] = []
    todo = [(graph.outputs[0], True)]
    while todo:
        i, plus = todo.pop()
        node = graph.nodes[i]
        if node.op in ("add", "sub"):
            todo += [(node.args[1], plus == (node.op == "add")), (node.args[0], plus)]
        elif node.op == "neg":
            todo.append((node.args[0], not plus))
        else:
            out.append((i, plus))
    return out


def _unused(names: tuple[str, ...]) -> str:
    name = "query"
    while name in names:
        name += "_"
    return name


def _shown(points: list[Array]) -> str:
    return ", ".join(str(p.tolist()) for p in points)
