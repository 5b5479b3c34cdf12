"""Programs of `compose`: a graph, and which of its nodes are heads of which arguments; their rough sizes.

**Norms.** Roots of sums that reach 0, before the walk: the sum is written as squares of what can be computed well.

√S with S = 0 somewhere has no slope there: an error δ of S costs √δ. But if S = Σ c_i p_i², errors of the p_i count
only once (a norm is Lipschitz in its components), provided the squares are pinned at 0 (`unary/fit.py`). So every
argument of a root, or of a power below 1, whose range comes down to 0 is written as a sum of squares by
`language/squares.py`, the law of cosines included; the walk keeps these squares as steps of their own.
Failure mode: sums that are no squares by those rules stay as they are.

**Nodes.** What the walk knows of the nodes of its target: ranges, signs, dominators, factors, what cuts them off.

Ranges and signs are proved (`language/ranges.py`); the rest is read off the graph.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, partial, reduce

import numpy as np

from attnfun.certify.staircase import jumps
from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.unary.features import evaluated
from attnfun.kinds.function.build.unary.fit import estimate_keys
from attnfun.kinds.function.build.unary.staircase import staircase
from attnfun.language import Box, Builder, Graph, Node
from attnfun.language.graph import arguments_first, reached
from attnfun.language.ranges import Effort, range_of
from attnfun.language.squares import sum_of_squares

ARGUMENTS = (2, 3)
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
    if jumps(unary):
        return float(len(staircase(unary, low, high)[1]))
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


_POWERS, _HALF = ("powi", "powr", "sqrt"), Fraction(1, 2)
PRODUCT = frozenset({"mul", "div", "neg", *_POWERS})
Factors = list[tuple[int, Fraction]]  # bases and their exponents


class Nodes:
    """The target's graph, which grows as recipes need further nodes, and facts about its nodes, each found once."""

    def __init__(self, target: Graph, box: Box) -> None:
        self.source, self.box = Builder(), box
        self.at = self.source.copy(target.nodes)
        self.outputs = [self.at[o] for o in target.outputs]
        self._ranges: dict[int, tuple[float, float]] = {}
        self._effort = Effort()
        self._variables: dict[int, frozenset[str]] = {}
        self._is_affine: dict[int, bool] = {}

    def graph(self, *nodes: int) -> Graph:
        return self.source.graph(list(nodes))

    def variables(self, n: int) -> frozenset[str]:
        for m in arguments_first(n, self.arguments, self._variables):
            node = self.source.node(m)
            own = frozenset([str(node.value)]) if node.op == "var" else frozenset()
            self._variables[m] = own.union(*(self._variables[a] for a in node.args))
        return self._variables[n]

    def arguments(self, n: int) -> tuple[int, ...]:
        return self.source.node(n).args

    def constant(self, n: int) -> bool:
        return not self.variables(n)

    def range(self, n: int) -> tuple[float, float]:
        if n not in self._ranges:
            self._ranges[n] = range_of(self.graph(n), self.box, effort=self._effort)[0]
        return self._ranges[n]

    def sign(self, n: int) -> int:
        """+1 or −1 where the node is proved to keep that strict sign on the box, with room to spare; else 0."""
        low, high = self.range(n)
        if low > 1e-3 * abs(high):
            return 1
        return -1 if high < -1e-3 * abs(low) else 0

    def text(self, n: int) -> str:
        graph = self.graph(n)
        return graph.text(graph.outputs[0], limit=80)

    def dominators(self, n: int) -> list[int]:
        """Nodes other than n through which every path from n to a variable passes, nearest to the variables first."""
        below = sorted(reached([n], self._varying))
        onward: dict[int, int] = {}  # paths to variables; `ways`: paths from n; arguments have smaller numbers
        for m in below:
            onward[m] = sum(onward[a] for a in self._varying(m)) or 1
        ways = dict.fromkeys(below, 0) | {n: 1}
        for m in reversed(below):
            for a in self._varying(m):
                ways[a] += ways[m]
        return [u for u in below if u != n and ways[u] * onward[u] == onward[n]]

    def _varying(self, n: int) -> list[int]:
        return [a for a in self.source.node(n).args if not self.constant(a)]

    def is_free(self, n: int) -> bool:
        """Is the node an affine operation on its arguments?"""
        node = self.source.node(n)
        if node.op == "mul":
            return any(self.constant(a) for a in node.args)
        return node.op in ("add", "sub", "neg") or (node.op == "div" and self.constant(node.args[1]))

    def _affine(self, n: int) -> bool:
        for m in arguments_first(n, self.arguments, self._is_affine):
            leaf = self.source.node(m).op == "var" or self.constant(m)
            self._is_affine[m] = leaf or (self.is_free(m) and all(self._is_affine[a] for a in self.arguments(m)))
        return self._is_affine[n]

    def cuts(self, n: int) -> list[tuple[int, ...]]:
        """Sets of nodes that n is a function of: its variables, the largest affine nodes below it, its own operands."""
        variables = {m for m in reached([n], self._varying) if self.source.node(m).op == "var"}
        found = reached([n], lambda m: () if self._affine(m) else self._varying(m))
        cuts = [variables, {m for m in found if self._affine(m)}, set(self._varying(n))]
        return [cut for cut in dict.fromkeys(tuple(sorted(cut)) for cut in cuts) if len(cut) in ARGUMENTS]

    def factors(self, n: int) -> tuple[int, Factors]:
        """n = coefficient · Π base^exponent: a constant node, and bases that are no products, equal ones merged."""
        coefficient = self.source.const(1)
        powers: dict[int, Fraction] = {}
        stack: Factors = [(n, Fraction(1))]
        while stack:
            m, p = stack.pop()
            node = self.source.node(m)
            if self.constant(m):
                coefficient = self.source.apply("mul", coefficient, self._power(m, p))
            elif node.op in ("mul", "div") and (p.denominator == 1 or all(self.sign(a) > 0 for a in node.args)):
                stack += [(node.args[0], p), (node.args[1], p if node.op == "mul" else -p)]
            elif node.op == "neg" and p.denominator == 1:
                coefficient = self.source.apply("mul", coefficient, self.source.const((-1) ** abs(p.numerator)))
                stack.append((node.args[0], p))
            elif (node.op == "powi" and p.denominator == 1) or (node.op in _POWERS and self.sign(node.args[0]) > 0):
                stack.append((node.args[0], p * (node.value if isinstance(node.value, int | Fraction) else _HALF)))
            else:
                powers[m] = powers.get(m, Fraction(0)) + p
        return coefficient, [(m, p) for m, p in sorted(powers.items()) if p != 0]

    def is_one(self, n: int) -> bool:
        node = self.source.node(n)
        return node.op == "const" and node.value == 1

    def is_continued(self, n: int) -> bool:
        """Does the node hold a continued quotient? The sign of such a one and a shift is not derived by the checker."""
        return any(node.op == "ratio" for node in self.graph(n).nodes)

    def is_monomial(self, u: int) -> bool:
        if self.source.node(u).op not in PRODUCT:
            return False
        _, factors = self.factors(u)
        return len(factors) >= 2 and all(self.sign(b) != 0 for b, _ in factors)

    def grouped(self, factors: Factors) -> list[Factors]:
        """Factors of the same single variable belong together: one head computes their product."""
        groups: dict[object, Factors] = {}
        for base, p in factors:
            own = self.variables(base)
            key: object = own if len(own) == 1 else base
            groups.setdefault(key, []).append((base, p))
        return list(groups.values())

    def product_node(self, factors: Factors) -> int:
        """Π base^p as a source node."""
        return reduce(partial(self.source.apply, "mul"), (self._power(base, p) for base, p in factors))

    def _power(self, base: int, p: Fraction) -> int:
        return base if p == 1 else self.source.apply("pow", base, self.source.const(p))

    def centred(self, n: int) -> tuple[Fraction, Fraction]:
        low, high = self.range(n)
        if not (math.isfinite(low) and math.isfinite(high) and high > low):
            raise Infeasible(f"compose: {self.text(n)} is not bounded on the box")
        return dyadic((low + high) / 2), dyadic((high - low) / 2, up=True)
