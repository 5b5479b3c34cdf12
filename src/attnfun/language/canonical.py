"""Exact rewrites before the walk, in order; each keeps the function and makes more of the graph the same node.

1. products: a product is written coefficient · (numerator factors)/(denominator factors), factors in a fixed order,
   equal bases merged, signs and rational factors pulled into the coefficient, so that x*y/z and −y*x/z share a node;
2. sums: terms in a fixed order, equal terms merged, the sign of the first term pulled out, so that a−b and b−a share a
   node;
3. even powers and abs of a negated argument lose the sign; sin, tan, … of a negated argument give it back.

Signs may always be pulled out of integer powers; nothing is split out of fractional powers here (that needs
positivity).
"""

from fractions import Fraction

from attnfun.language.graph import Builder, Graph
from attnfun.language.operations import OPERATIONS

_EVEN = frozenset(name for name, entry in OPERATIONS.items() if entry.parity > 0)
_ODD = frozenset(name for name, entry in OPERATIONS.items() if entry.parity < 0)


def canonical(graph: Graph, monic: bool = False) -> Graph:
    """The same function with products and sums in canonical order and signs pulled outward.

    monic: the size of the first coefficient of a sum goes outward, too, so that 2x - 2y and x - y share a node.
    """
    return _Canonical(graph, monic).result()


class _Canonical:
    """Every source node becomes (rational coefficient, node of the new graph): value = coefficient · node."""

    def __init__(self, graph: Graph, monic: bool) -> None:
        self.graph, self.monic = graph, monic
        self.out = Builder()
        self.done: dict[int, tuple[Fraction, int]] = {}
        self.inner = _inner_sums(graph)

    def result(self) -> Graph:
        for i in range(len(self.graph.nodes)):
            if i not in self.inner:
                self.done[i] = self._one(i)
        return self.out.graph([self._node(self.done[o]) for o in self.graph.outputs])

    def _node(self, value: tuple[Fraction, int]) -> int:
        coefficient, node = value
        if coefficient == 1:
            return node
        if coefficient == -1 and self.out.node(node).op != "const":
            return self.out.apply("neg", node)
        return self.out.apply("mul", self.out.const(coefficient), node)

    def _one(self, i: int) -> tuple[Fraction, int]:
        node = self.graph.nodes[i]
        op = node.op
        if op in ("add", "sub"):
            return self._sum(i)
        args = [self.done[a] for a in node.args]
        if op == "const":
            assert isinstance(node.value, Fraction)
            return node.value, self.out.const(1)
        if op == "neg":
            return -args[0][0], args[0][1]
        if op in ("mul", "div"):
            c = args[0][0] * args[1][0] if op == "mul" else args[0][0] / args[1][0] if args[1][0] else None
            if c is None or c == 0:
                return Fraction(1), self.out.apply(op, *(self._node(a) for a in args))
            return c, self._product([(args[0][1], 1), (args[1][1], 1 if op == "mul" else -1)])
        if op == "powi" and isinstance(node.value, int) and args[0][0] != 0 and abs(node.value) <= 64:
            return args[0][0] ** node.value, self._product([(args[0][1], node.value)])
        if op in _EVEN | _ODD and args[0][0] < 0:
            return Fraction(1 if op in _EVEN else -1), self.out.apply(op, self._node((-args[0][0], args[0][1])))
        return Fraction(1), self.out.apply(op, *(self._node(a) for a in args), value=node.value)

    # ------------------------------------------------------------ products and sums in canonical order

    def _powers(self, node: int, exponent: int, powers: dict[int, int]) -> None:
        stack = [(node, exponent)]
        while stack:
            node, exponent = stack.pop()
            inner = self.out.node(node)
            if inner.op == "const" and inner.value == 1:
                continue
            if inner.op in ("mul", "div"):
                stack += [(inner.args[0], exponent), (inner.args[1], exponent if inner.op == "mul" else -exponent)]
            elif inner.op == "powi" and isinstance(inner.value, int):
                powers[inner.args[0]] = powers.get(inner.args[0], 0) + exponent * inner.value
            else:
                powers[node] = powers.get(node, 0) + exponent

    def _product(self, parts: list[tuple[int, int]]) -> int:
        powers: dict[int, int] = {}
        for node, exponent in parts:
            self._powers(node, exponent, powers)
        sides = []
        for sign in (1, -1):
            side = None
            for base, p in sorted(powers.items()):
                if p * sign > 0:
                    factor = base if p * sign == 1 else self.out.apply("powi", base, value=p * sign)
                    side = factor if side is None else self.out.apply("mul", side, factor)
            sides.append(side)
        numerator = self.out.const(1) if sides[0] is None else sides[0]
        return numerator if sides[1] is None else self.out.apply("div", numerator, sides[1])

    def _terms(self, coefficient: Fraction, node: int, terms: dict[int, Fraction]) -> None:
        stack = [(coefficient, node)]
        while stack:
            coefficient, node = stack.pop()
            inner = self.out.node(node)
            if inner.op in ("add", "sub"):
                stack.append((coefficient, inner.args[0]))
                stack.append((coefficient if inner.op == "add" else -coefficient, inner.args[1]))
            elif inner.op == "neg":
                stack.append((-coefficient, inner.args[0]))
            elif inner.op == "mul" and self.out.node(inner.args[0]).op == "const":
                value = self.out.node(inner.args[0]).value
                assert isinstance(value, Fraction)
                stack.append((coefficient * value, inner.args[1]))
            elif inner.op == "const" and isinstance(inner.value, Fraction):
                one = self.out.const(1)
                terms[one] = terms.get(one, Fraction(0)) + coefficient * inner.value
            else:
                terms[node] = terms.get(node, Fraction(0)) + coefficient

    def _sum(self, i: int) -> tuple[Fraction, int]:
        """The sum that ends at node i, with all the sums that only it needs: each of them is walked once."""
        terms: dict[int, Fraction] = {}
        stack = [(i, 1)]
        while stack:
            j, sign = stack.pop()
            if j == i or j in self.inner:
                source = self.graph.nodes[j]
                stack += [(source.args[0], sign), (source.args[1], sign if source.op == "add" else -sign)]
            else:
                self._terms(self.done[j][0] * sign, self.done[j][1], terms)
        one = self.out.const(1)
        kept = sorted((n, c) for n, c in terms.items() if c and n != one)
        constant = terms.get(one, Fraction(0))
        if not kept:
            return constant, one
        if len(kept) == 1 and not constant:
            return kept[0][1], kept[0][0]
        scale = Fraction(1 if kept[0][1] > 0 else -1)
        if self.monic:
            scale /= abs(kept[0][1])
        total = None
        for node, c in kept:
            c = c * scale
            piece = self._node((abs(c), node))
            if total is None:
                total = piece if c > 0 else self._node((c, node))
            else:
                total = self.out.apply("add" if c > 0 else "sub", total, piece)
        assert total is not None
        if constant:
            value = constant * scale
            total = self.out.apply("add" if value > 0 else "sub", total, self.out.const(abs(value)))
        return 1 / scale, total


def _inner_sums(graph: Graph) -> set[int]:
    """Sums that one other sum needs, and nothing else does."""
    uses = [0] * len(graph.nodes)
    for o in graph.outputs:
        uses[o] += 2
    for node in graph.nodes:
        for a in node.args:
            uses[a] += 1 if node.op in ("add", "sub") else 2
    return {i for i, node in enumerate(graph.nodes) if node.op in ("add", "sub") and uses[i] == 1}
