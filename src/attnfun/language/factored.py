"""Sums of many products with common factors: a b + a c + b c = a (b + c) + b c.

A quadratic form in d variables is a sum of about d²/2 products, and of at most d products of a variable and a sum. The
factor that most products of a sum share is taken out first; what has no common factor stays as it is. Every step is an
identity of real functions.
Failure mode: sums of few products are left alone; there a product of its own may have a cheaper recipe.
"""

from collections import Counter
from fractions import Fraction

from attnfun.language.graph import Builder, Graph, Node

_FEW = 32  # products of one sum up to which it is left alone


def factored(graph: Graph) -> Graph:
    """The same function with fewer products."""
    nodes, build = graph.nodes, Builder()
    inner = _inner(graph)
    at: dict[int, int] = {}
    changed = False
    for i, node in enumerate(nodes):
        if i in inner:
            continue
        if node.op in ("add", "sub"):
            terms = _terms(nodes, i, inner)
            pairs = {n: pair for n in terms if (pair := _pair(nodes[n])) is not None}
            if len(pairs) > _FEW:
                changed = True
                at[i] = _written(build, terms, pairs, at)
                continue
            for j in sorted(_chain(nodes, i, inner)):
                at[j] = build.apply(nodes[j].op, *(at[a] for a in nodes[j].args))
            continue
        at[i] = build.apply(node.op, *(at[a] for a in node.args), value=node.value)
    return build.graph([at[o] for o in graph.outputs]) if changed else graph


def _pair(node: Node) -> tuple[int, int] | None:
    """The two factors of a product or a square."""
    if node.op == "mul":
        return node.args[0], node.args[1]
    return (node.args[0], node.args[0]) if node.op == "powi" and node.value == 2 else None


def _written(build: Builder, terms: dict[int, Fraction], pairs: dict[int, tuple[int, int]], at: dict[int, int]) -> int:
    """The sum with common factors taken out, the one of most products first."""
    left = dict(pairs)
    sums: list[tuple[Fraction, int]] = []
    while left:
        count = Counter(f for pair in left.values() for f in set(pair))
        factor, most = max(count.items(), key=lambda item: (item[1], -item[0]))
        if most < 2:
            break
        shared = [n for n, pair in left.items() if factor in pair]
        others = {n: left[n][1] if left[n][0] == factor else left[n][0] for n in shared}
        rest = _sum(build, [(terms[n], at[others[n]]) for n in shared])
        sums.append((Fraction(1), build.apply("mul", at[factor], rest)))
        for n in shared:
            del left[n]
    for n, c in terms.items():
        if n not in pairs:
            sums.append((c, at[n]))
        elif n in left:
            a, b = (at[f] for f in left[n])
            sums.append((c, build.apply("powi", a, value=2) if a == b else build.apply("mul", a, b)))
    return _sum(build, sums)


def _sum(build: Builder, terms: list[tuple[Fraction, int]]) -> int:
    total: int | None = None
    for c, node in terms:
        size = abs(c)
        piece = node if size == 1 else build.apply("mul", build.const(size), node)
        if total is None:
            total = piece if c > 0 else build.apply("neg", piece)
        else:
            total = build.apply("add" if c > 0 else "sub", total, piece)
    return build.const(0) if total is None else total


def _inner(graph: Graph) -> set[int]:
    """Sums, negations and multiples that one other sum needs, and nothing else does."""
    nodes = graph.nodes
    uses = Counter(graph.outputs)
    above = dict[int, int]()
    for i, node in enumerate(nodes):
        for a in node.args:
            uses[a] += 1
            above[a] = i
    linear = {i for i, node in enumerate(nodes) if node.op in ("add", "sub", "neg") or _multiple(nodes, i) is not None}
    tops = {i for i in linear if nodes[i].op in ("add", "sub")}
    found: set[int] = set()
    for i in sorted(linear, reverse=True):
        if uses[i] == 1 and i in above and (above[i] in tops or above[i] in found):
            found.add(i)
    return found


def _multiple(nodes: tuple[Node, ...], i: int) -> tuple[Fraction, int] | None:
    """(c, n) of a node c·n."""
    node = nodes[i]
    if node.op != "mul":
        return None
    first = nodes[node.args[0]]
    return (first.value, node.args[1]) if first.op == "const" and isinstance(first.value, Fraction) else None


def _chain(nodes: tuple[Node, ...], i: int, inner: set[int]) -> set[int]:
    found, stack = {i}, [i]
    while stack:
        for a in nodes[stack.pop()].args:
            if a in inner and a not in found:
                found.add(a)
                stack.append(a)
    return found


def _terms(nodes: tuple[Node, ...], i: int, inner: set[int]) -> dict[int, Fraction]:
    """Node by node what a sum adds up, with its coefficient."""
    terms: dict[int, Fraction] = {}
    stack = [(i, Fraction(1))]
    while stack:
        j, c = stack.pop()
        node, multiple = nodes[j], _multiple(nodes, j)
        if j != i and j not in inner:
            terms[j] = terms.get(j, Fraction(0)) + c
        elif multiple is not None:
            stack.append((multiple[1], c * multiple[0]))
        elif node.op == "neg":
            stack.append((node.args[0], -c))
        else:
            stack += [(node.args[1], c if node.op == "add" else -c), (node.args[0], c)]
    return {n: c for n, c in terms.items() if c}
