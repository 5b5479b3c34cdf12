"""Programs of `compose`: a graph, and which of its nodes are heads of which arguments; their rough sizes.

Roots of sums that reach 0, before the walk: the sum is written as squares of what can be computed well.

√S with S = 0 somewhere has no slope there: an error δ of S costs √δ. But if S = Σ c_i p_i², errors of the p_i count
only once (a norm is Lipschitz in its components), provided the squares are pinned at 0 (`unary/fit.py`). So every
argument of a root, or of a power below 1, whose range comes down to 0 is written as a sum of squares by
`language/squares.py`, the law of cosines included; the walk keeps these squares as steps of their own.
Failure mode: sums that are no squares by those rules stay as they are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.unary.features import evaluated
from attnfun.kinds.function.build.unary.fit import estimate_keys
from attnfun.language import Builder, Graph, Node
from attnfun.language.domain import Box
from attnfun.language.graph import arguments_first
from attnfun.language.ranges import range_of
from attnfun.language.squares import sum_of_squares

Ranges = tuple[tuple[float, float], ...]  # one for every argument of a step


@dataclass
class Program:
    """A program under construction: the builder of its graph and the heads found so far, φ → its arguments.

    `meaning`: which node of the source a node of the program computes; `written`: the other way round.
    """

    builder: Builder = field(default_factory=Builder)
    heads: dict[int, tuple[int, ...]] = field(default_factory=dict)
    meaning: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    ranges: dict[int, Ranges] = field(default_factory=dict)

    def head(self, phi: int, argument: int, low: float, high: float) -> int:
        """Mark φ as a head on U, whose values are thought to lie in [low, high], unless it is trivial."""
        feasible(math.isfinite(low) and math.isfinite(high), "compose: a step's argument is not bounded on the box")
        if phi != argument and self.builder.node(argument).op not in ("const", "pi", "e"):
            self.heads.setdefault(phi, (argument,))
            self.ranges.setdefault(phi, ((low, high),))
        return phi

    def tensor(self, phi: int, arguments: tuple[int, ...], ranges: Ranges) -> int:
        """Mark φ as a tensor head on several arguments."""
        if len(set(arguments)) != len(arguments) or phi in arguments:
            raise Infeasible("compose: a tensor step needs arguments that differ")
        self.heads.setdefault(phi, arguments)
        self.ranges.setdefault(phi, ranges)
        return phi


@dataclass(frozen=True)
class Finished:
    """The program's graph, its outputs, and its heads in an order in which arguments come first.

    `plainly`: the arguments of each head as the source has them, for ranges.
    """

    graph: Graph
    heads: tuple[tuple[int, tuple[int, ...]], ...]
    plainly: tuple[tuple[Graph, ...], ...]

    @property
    def depth(self) -> int:
        """The layers the heads need."""
        return depth(self.graph.nodes, dict(self.heads))


def depth(nodes: Sequence[Node], heads: Mapping[int, tuple[int, ...]]) -> int:
    """The most heads one after the other on any way through the nodes."""
    levels: list[int] = []
    for i, node in enumerate(nodes):
        below = max((levels[a] for a in node.args), default=0)
        levels.append(1 + max(levels[a] for a in heads[i]) if i in heads else below)
    return max(levels, default=0)


def argument_names(count: int) -> tuple[str, ...]:
    """The variables of g: u, or u1, u2, … of a tensor step."""
    return ("u",) if count == 1 else tuple(f"u{k}" for k in range(1, count + 1))


def step_graph(builder: Builder, phi: int, arguments: tuple[int, ...]) -> Graph:
    """The function g with φ = g(U), or g(U_1, U_2, …)."""
    out = Builder()
    memo = {argument: out.var(name) for argument, name in zip(arguments, argument_names(len(arguments)), strict=True)}

    for n in arguments_first(phi, lambda n: builder.node(n).args, memo):
        node = builder.node(n)
        feasible(node.op != "var", f"compose: {node.value} reaches a head by another way than its arguments")
        memo[n] = out.apply(node.op, *(memo[a] for a in node.args), value=node.value)
    return out.graph([memo[phi]])


def dyadic(value: float, up: bool = False) -> Fraction:
    """A nearby fraction of few bits (12), not smaller than `value` if `up`."""
    if value == 0:
        return Fraction(0)
    exponent = math.frexp(value)[1] - 12
    scaled = value / 2.0**exponent
    return Fraction(math.ceil(scaled) if up else round(scaled)) * Fraction(2) ** exponent


@lru_cache(maxsize=1024)
def rough_keys(unary: Graph, low: float, high: float, eps: float = 1e-7) -> float:
    """Estimated keys of a head for g on [low, high], `eps` a fraction of g's range there; Infeasible if it has none."""
    if not high > low:
        return 1.0
    u = np.linspace(low, high, 129)
    inner = evaluated(unary, u)[1:-1]  # at an end there may be a pole that the rounding of a range has put there
    feasible(np.isfinite(inner).all(), "compose: a step is not defined on the range of its argument")
    keys = estimate_keys(unary, low, high, eps * max(float(np.ptp(inner)), 1e-300))
    feasible(math.isfinite(keys), "compose: a step for which no head can be sized")
    return keys


_NEAR = 1e-3  # least over largest value below which a root is taken to reach 0


def as_norms(graph: Graph, box: Box) -> tuple[Graph, frozenset[int]]:
    """The same function, and the nodes p² that are to stay as they are."""
    build = Builder()
    at: list[int] = []
    kept: set[int] = set()

    def not_negative(n: int) -> bool:
        return range_of(build.graph([n]), box)[0][0] >= 0

    for node in graph.nodes:
        args = [at[a] for a in node.args]
        root = node.op == "sqrt" or (node.op == "powr" and isinstance(node.value, Fraction) and 0 < node.value < 1)
        if root and len(build.graph(args).variables) > 1:
            low, high = range_of(build.graph(args), box)[0]
            found = sum_of_squares(build, args[0], not_negative) if low <= _NEAR * high else None
            if found is not None and len(found) > 1:
                total = None
                for c, p in found:
                    square = build.apply("powi", p, value=2)
                    kept.add(square)
                    term = square if c == 1 else build.apply("mul", build.const(c), square)
                    total = term if total is None else build.apply("add", total, term)
                assert total is not None
                args = [total]
        at.append(build.apply(node.op, *args, value=node.value))
    return Graph(build.nodes, tuple(at[o] for o in graph.outputs)), frozenset(kept)
