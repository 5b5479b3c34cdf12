"""Sums that are sums of squares, though they are not written so.

    c p²,  c > 0                                       as it stands; p = Π b^k for a product of even powers b^{2k}
    c p² + d q² ± 2√(cd) p q                            = (√c p ± √d q)²
    c p² + d q² − 2√(cd) p q cos Δ,   p, q ≥ 0            = (√c p − √d q)² + 4√(cd) p q sin²(Δ/2)
    c p² + d q² + 2√(cd) p q cos Δ,   p, q ≥ 0            = (√c p − √d q)² + 4√(cd) p q cos²(Δ/2)
    c p² ∓ d p² cos Δ,  c ≥ d                            = 2d p² sin²(Δ/2) or 2d p² cos²(Δ/2), and (c − d) p²
    c p² − d p² sin² Δ,  c ≥ d, and with cos²             = d p² cos² Δ, and (c − d) p²
    c p² (cosh Δ − 1)                                   = 2c p² sinh²(Δ/2)
    Σ G_ij p_i p_j, G positive semidefinite             = Σ_k d_k (Σ_i l_ki p_i)², G = Lᵀ D L in rational numbers

The third and fourth are the law of cosines: under a root that reaches 0 the left side cancels, the right side does not,
and it shows that the sum is not negative. Coefficients are rational numbers, compared exactly.
Failure mode: None where a term is left over.
"""

from collections.abc import Callable, Collection
from fractions import Fraction
from functools import partial, reduce
from itertools import combinations

from attnfun.language.graph import Builder, Graph, Node

Factors = dict[int, int]
Term = tuple[Fraction, Factors]
HALF = Fraction(1, 2)
_MOST = 12  # terms looked at
_MOST_POWER = 64


def sum_of_squares(build: Builder, node: int, not_negative: Callable[[int], bool]) -> list[tuple[Fraction, int]] | None:
    """[(c_i, p_i)] with node = Σ c_i p_i², c_i > 0, the p_i written into `build`; None if the rules do not apply."""
    terms = _terms(build, node)
    if terms is None or len(terms) > _MOST:
        return None
    terms, halves = _half_angles(build, terms)
    out: list[tuple[Fraction, int]] = []
    roots: list[Term] = []
    crossed: list[Term] = []
    for c, factors in terms:
        if c > 0 and _even(factors):
            roots.append((c, _halved(factors)))
        else:
            crossed.append((c, factors))
    whole = roots, crossed
    for term in crossed:
        found = None
        for i, j in combinations(range(len(roots)), 2):
            found = _joined(build, roots[i], roots[j], term, not_negative)
            if found is not None:
                roots = [r for k, r in enumerate(roots) if k not in (i, j)]
                out += found
                break
        if found is None:
            form = _diagonal(build, *whole)
            return None if form is None else halves + form
    return halves + out + [(c, _product(build, factors)) for c, factors in roots]


def _half_angles(build: Builder, terms: list[Term]) -> tuple[list[Term], list[tuple[Fraction, int]]]:
    """What is left of the terms, and the squares that half angles make of some."""
    left = {tuple(sorted(factors.items())): c for c, factors in terms}
    out: list[tuple[Fraction, int]] = []

    def swung(plain: Factors, wave: str, argument: int) -> int:
        return _product(build, _merged(_halved(plain), {build.apply(wave, argument): 1}))

    for c, factors in terms:
        for base, e in factors.items():
            op, sign = build.node(base).op, 1 if c > 0 else -1
            plain = _merged(factors, {base: -e})
            rest = tuple(sorted(plain.items()))
            own = tuple(sorted(factors.items()))
            size, angle = left.get(rest, Fraction(0)), build.node(base).args
            if not _even(plain) or left.get(own) != c:
                continue
            if op == "cos" and e == 1 and size >= abs(c):
                half = build.apply("div", angle[0], build.const(2))
                out.append((2 * abs(c), swung(plain, "cos" if sign > 0 else "sin", half)))
            elif op == "cosh" and e == 1 and c > 0 and size == -c:
                half = build.apply("div", angle[0], build.const(2))
                out.append((2 * c, swung(plain, "sinh", half)))
            elif op in ("sin", "cos") and e == 2 and c < 0 and size >= -c:
                out.append((-c, swung(plain, "cos" if op == "sin" else "sin", angle[0])))
            else:
                continue
            del left[own]
            left[rest] = size - abs(c) if op != "cosh" else Fraction(0)
            break
    return [(c, dict(key)) for key, c in left.items() if c], out


def _diagonal(build: Builder, roots: list[Term], crossed: list[Term]) -> list[tuple[Fraction, int]] | None:
    """The squares of a positive semidefinite form in the roots, by elimination; None if it is none."""
    n, bases = len(roots), [p for _, p in roots]
    form = [[c if i == j else Fraction(0) for j in range(n)] for i, (c, _) in enumerate(roots)]
    for c, factors in crossed:
        pair = next((ij for ij in combinations(range(n), 2) if _merged(bases[ij[0]], bases[ij[1]]) == factors), None)
        if pair is None:
            return None
        i, j = pair
        form[i][j] += c / 2
        form[j][i] += c / 2
    out: list[tuple[Fraction, int]] = []
    for k in range(n):
        pivot = form[k][k]
        if pivot < 0 or (pivot == 0 and any(form[k][k + 1 :])):
            return None
        if pivot == 0:
            continue
        total = _product(build, bases[k])
        for i in range(k + 1, n):
            if form[k][i]:
                scaled = build.apply("mul", build.const(form[k][i] / pivot), _product(build, bases[i]))
                total = build.apply("add", total, scaled)
        out.append((pivot, total))
        for i in range(k + 1, n):
            for j in range(k + 1, n):
                form[i][j] -= form[i][k] * form[k][j] / pivot
    return out


def _even(factors: Factors) -> bool:
    return all(e % 2 == 0 for e in factors.values())


def _halved(factors: Factors) -> Factors:
    return {b: e // 2 for b, e in factors.items()}


def rooted(graph: Graph, wanted: Collection[int]) -> Graph:
    """The graph with squares taken out of the roots `wanted` (powers between 0 and 1): √(c p²) = √c |p|, and
    √(b² q) = |b| √q.
    """
    build, chosen = Builder(), {id(graph.nodes[i]) for i in wanted}

    def taken_out(node: Node, args: list[int]) -> int | None:
        if id(node) not in chosen:
            return None
        power = HALF if node.op == "sqrt" else node.value
        assert isinstance(power, Fraction)
        found = sum_of_squares(build, args[0], lambda n: False)
        if found is not None and len(found) == 1:
            ((c, p),) = found
            sides = [build.apply("powr", build.const(c), value=power)] if c != 1 else []
            sides.append(build.apply("powr", build.apply("abs", p), value=2 * power))
        else:
            terms = _terms(build, args[0]) or []
            common = {b: min(f.get(b, 0) for _, f in terms) // 2 * 2 for b in (terms[0][1] if terms else ())}
            common = {b: e for b, e in common.items() if e > 0}
            if not common or len(terms) < 2:
                return None
            sides = [build.apply("powr", build.apply("abs", b), value=e * power) for b, e in common.items()]
            rest = [(c, _merged(f, {b: -e for b, e in common.items()})) for c, f in terms]
            parts = [build.apply("mul", build.const(c), _product(build, f)) for c, f in rest]
            sides.append(build.apply(node.op, reduce(partial(build.apply, "add"), parts), value=node.value))
        return reduce(partial(build.apply, "mul"), sides)

    at = build.copy(graph.nodes, taken_out)
    return Graph(build.nodes, tuple(at[o] for o in graph.outputs))


def is_square(graph: Graph) -> bool:
    """Is the function of one variable u² and nothing else?"""
    last = graph.nodes[graph.outputs[0]]
    return last.op == "powi" and last.value == 2 and graph.nodes[last.args[0]].op == "var"


def _joined(
    build: Builder, one: Term, other: Term, crossed: Term, not_negative: Callable[[int], bool]
) -> list[tuple[Fraction, int]] | None:
    """The squares of c_1 p² + c_2 q² + c · factors, if the last is ±2√(c_1 c_2) p q, perhaps times a cosine."""
    (c1, p), (c2, q), (c, factors) = one, other, crossed
    if c * c != 4 * c1 * c2:
        return None
    both = _merged(p, q)
    angle = None
    if factors != both:
        cosines = [b for b, e in factors.items() if e == 1 and build.node(b).op == "cos"]
        angle = next((b for b in cosines if _merged(both, {b: 1}) == factors), None)
        if angle is None:
            return None
    first, second = _product(build, p), _product(build, q)
    if angle is not None and not (not_negative(first) and not_negative(second)):
        return None
    if c1 != c2:
        first = build.apply("mul", build.apply("sqrt", build.const(c1)), first)
        second = build.apply("mul", build.apply("sqrt", build.const(c2)), second)
    scale = c1 if c1 == c2 else Fraction(1)
    if angle is None:
        return [(scale, build.apply("add" if c > 0 else "sub", first, second))]
    half = build.apply("div", build.node(angle).args[0], build.const(2))
    swing = build.apply("cos" if c > 0 else "sin", half)
    mean = build.apply("sqrt", _product(build, both))
    return [(scale, build.apply("sub", first, second)), (2 * abs(c), build.apply("mul", mean, swing))]


def _terms(build: Builder, node: int) -> list[Term] | None:
    """node = Σ coefficient · Π base^exponent, equal products merged; None if there are very many."""
    found: dict[tuple[tuple[int, int], ...], Fraction] = {}
    stack = [(Fraction(1), node)]
    steps = 0
    while stack:
        steps += 1
        if steps > 400:
            return None
        c, n = stack.pop()
        inner = build.node(n)
        if inner.op in ("add", "sub"):
            stack += [(c, inner.args[0]), (c if inner.op == "add" else -c, inner.args[1])]
            continue
        scale, factors = factored(build, n, _MOST_POWER)
        lone = [b for b, e in factors.items() if e == 1]
        if len(factors) == 1 and lone and build.node(lone[0]).op in ("add", "sub"):
            stack.append((c * scale, lone[0]))
            continue
        key = tuple(sorted(factors.items()))
        found[key] = found.get(key, Fraction(0)) + c * scale
    return [(c, dict(key)) for key, c in found.items() if c != 0]


def factored(build: Builder, node: int, most: int) -> Term:
    """node = coefficient · Π base^exponent, exponents of size `most` at most; what would pass it stays a base.

    Nodes are taken from the last to the first, arguments standing before what uses them, so each is opened once with
    the sum of its exponents, however many paths lead to it.
    """
    coefficient, powers, open_ = Fraction(1), Factors(), {node: 1}
    while open_:
        n = max(open_)
        e = open_.pop(n)
        inner = build.node(n)
        parts: list[tuple[int, int]] | None = None
        if inner.op == "const" and isinstance(inner.value, Fraction) and inner.value != 0:
            coefficient, parts = coefficient * inner.value**e, []
        elif inner.op == "neg":
            coefficient, parts = coefficient * (-1) ** (e % 2), [(inner.args[0], e)]
        elif inner.op == "mul":
            parts = [(a, e) for a in inner.args]
        elif inner.op == "div":
            parts = [(inner.args[0], e), (inner.args[1], -e)]
        elif inner.op == "powi" and isinstance(inner.value, int):
            parts = [(inner.args[0], e * inner.value)]
        after = {a: open_.get(a, 0) for a, _ in parts or ()}
        for a, p in parts or ():
            after[a] += p
        if parts is None or any(abs(p) > most for p in after.values()):
            powers[n] = e
        else:
            open_ |= after
    return coefficient, {b: e for b, e in powers.items() if e}


def _merged(a: Factors, b: Factors) -> Factors:
    total = dict(a)
    for base, e in b.items():
        total[base] = total.get(base, 0) + e
    return {base: e for base, e in total.items() if e}


def _product(build: Builder, factors: Factors) -> int:
    total = None
    for base, e in sorted(factors.items()):
        power = base if e == 1 else build.apply("powi", base, value=e)
        total = power if total is None else build.apply("mul", total, power)
    return build.const(1) if total is None else total
