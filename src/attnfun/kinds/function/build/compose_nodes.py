"""What the walk of `compose` knows of the nodes of its target: ranges, signs, dominators, factors, what cuts them off.

Ranges and signs are proved (`language/ranges.py`); the rest is read off the graph.
"""

import math
from fractions import Fraction
from functools import partial, reduce

from attnfun.errors import Infeasible
from attnfun.kinds.function.build.compose_program import dyadic
from attnfun.kinds.function.build.compose_steps import ARGUMENTS
from attnfun.language import Builder, Graph
from attnfun.language.domain import Box
from attnfun.language.graph import arguments_first, reached
from attnfun.language.ranges import Effort, range_of

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
