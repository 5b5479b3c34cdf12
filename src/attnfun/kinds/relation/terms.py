"""Relations that are finite sums Σ_i a_i(x) b_i(y): multiplied out with exact rationals, with the fewest terms.

| symbol | meaning |
| --- | --- |
| atom | a subexpression of one side's variables that is not taken apart any further; constants like π are left ones |
| m_j(x), n_k(y) | products of powers of atoms, left and right |
| C | the rational matrix with r = Σ_jk C_jk m_j(x) n_k(y) |

**Expansion.** Sums, products, integer powers and quotients by one term or by one side are multiplied out;
e^{s+t} = e^s e^t, sin(s + t) = sin s cos t + cos s sin t and cos(s + t) = cos s cos t − sin s sin t take apart a sum
s(x) + t(y). Every step is an identity wherever the expression is defined.

**Fewest terms.** C = P Qᵀ with as many columns as its rank, exactly: a_i = Σ_j P_ji m_j, b_i = Σ_k Q_ki n_k. The rank
is taken part by part, a part being rows and columns that have entries together. A symmetric relation has
C = Σ_i d_i v_i v_iᵀ (Lagrange's reduction): a_i = sqrt|d_i| Σ_j v_ij m_j, with the sign of d_i.
It is the rank of r itself if the m_j are linearly independent and so are the n_k, as monomials are, or may be more.

Atoms are taken as large as they stand (coarse), and again with the polynomials of one side multiplied out as well
(fine), which sees more of them equal; the coarse form is kept unless the fine one has fewer terms.
Constructions and the checker use the same expansion, for it is a proof and no choice.
Failure modes: None for what is no such sum, for work past the caps, and for more than MAX_OUTPUTS terms.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache

import flint
import numpy as np

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.kinds.relation.target import Relation, sides_of
from attnfun.language import Builder, Graph
from attnfun.language.graph import MAX_OUTPUTS, Node

Monomial = tuple[tuple[int, int], ...]  # (atom, exponent), sorted
Terms = dict[tuple[Monomial, Monomial], Fraction]
Row = dict[int, Fraction]

_MOST_TERMS = 20_000
_MOST_STEPS = 400_000  # products of two terms and terms copied, in one expansion
_MOST_REDUCED = 200  # rows or columns of a part whose rank is not full
_MOST_SQUARE = 80  # rows of a part of a symmetric relation
_PRIME = 2**61 - 1
_OPENED = frozenset({"neg", "add", "sub", "mul", "div", "powi"})  # of one side's variables, in the fine form
_ONE: Terms = {((), ()): Fraction(1)}


class _No(Exception):
    """The relation is no sum of separable terms, or too large a one. Never an answer."""


class _TooMany(_No):
    def __init__(self, count: int) -> None:
        super().__init__("too many features")
        self.count = count


@dataclass(frozen=True)
class Expansion:
    """r(x, y) = Σ_i signs_i a_i(x) b_i(y): the outputs of `left` are a_i, those of `right` b_i.

    `signs` are not None exactly if the relation is symmetric; then b_i is a_i of the right variables.
    """

    left: Graph
    right: Graph
    signs: tuple[int, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.left.outputs)


def expansion_of(relation: Relation) -> Expansion | None:
    """The relation as the fewest separable terms that its form shows; None where there are none or too many."""
    found = _found(relation)
    return found if isinstance(found, Expansion) else None


def refuse_many_terms(relation: Relation) -> None:
    """Raise Infeasible, with their number, for a relation that is a sum of more separable terms than can be built."""
    found = _found(relation)
    if isinstance(found, int):
        text = f"{relation.text[:120]} has {found:,} separable terms; features are built for {MAX_OUTPUTS:,} at most"
        raise Infeasible(text)


@lru_cache(maxsize=16)
def _found(relation: Relation) -> Expansion | int | None:
    found: Expansion | int | None = None
    for fine in (False, True):
        try:
            made = _Expander(relation, fine).expansion()
        except _TooMany as many:
            found = many.count if found is None else found
        except (_No, InvalidRequest):  # InvalidRequest: a constant or a graph past what can be written
            continue
        else:
            if not isinstance(found, Expansion) or made.rank < found.rank:
                found = made
    return found


class _Expander:
    """One walk over the nodes of a relation, each visited once, and the terms of those that are needed."""

    def __init__(self, relation: Relation, fine: bool) -> None:
        self.relation, self.fine = relation, fine
        self.builder = Builder()
        self.at = self.builder.copy(relation.graph.nodes)
        self.steps = 0
        self.sides = sides_of(relation, relation.graph.nodes)

    def expansion(self) -> Expansion:
        nodes = self.relation.graph.nodes
        (out,) = self.relation.graph.outputs
        needed = [False] * len(nodes)
        needed[out] = True
        for i in range(out, -1, -1):
            if needed[i] and self._opens(i, nodes[i]):
                for arg in nodes[i].args:
                    needed[arg] = True
        terms: list[Terms] = []
        for i, node in enumerate(nodes[: out + 1]):
            args = [terms[a] for a in node.args]
            terms.append((self._opened(node, args) if self._opens(i, node) else self._atom(i)) if needed[i] else {})
        return self._fewest(terms[out])

    def _opens(self, i: int, node: Node) -> bool:
        """Is this node taken apart, or an atom?"""
        return self.sides[i] == "lr" or node.op == "const" or (self.fine and node.op in _OPENED)

    # ------------------------------------------------------------ terms

    def _atom(self, i: int) -> Terms:
        return self._single(self.at[i], self.sides[i] == "r")

    def _single(self, atom: int, right: bool) -> Terms:
        return {((), ((atom, 1),)) if right else (((atom, 1),), ()): Fraction(1)}

    def _opened(self, node: Node, args: list[Terms]) -> Terms:
        if node.op == "const":
            assert isinstance(node.value, Fraction)
            return {((), ()): node.value} if node.value else {}
        self._spend(sum(map(len, args)))
        if node.op == "neg":
            return {key: -c for key, c in args[0].items()}
        if node.op in ("add", "sub"):
            return _added(args[0], args[1], 1 if node.op == "add" else -1)
        if node.op == "mul":
            return self._times(args[0], args[1])
        if node.op == "div":
            return self._times(args[0], self._inverse(node.args[1], args[1]))
        if node.op == "powi":
            assert isinstance(node.value, int)
            base = args[0] if node.value >= 0 else self._inverse(node.args[0], args[0])
            return self._power(base, abs(node.value))
        if node.op in ("exp", "sin", "cos"):
            s, t = self._split(args[0])

            def of(op: str, part: int, right: bool) -> Terms:
                return self._single(self.builder.apply(op, part), right)

            if node.op == "exp":
                return self._times(of("exp", s, False), of("exp", t, True))
            other = "cos" if node.op == "sin" else "sin"
            first = self._times(of(node.op, s, False), of("cos", t, True))
            return _added(first, self._times(of(other, s, False), of("sin", t, True)), 1 if node.op == "sin" else -1)
        raise _No(node.op)

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > _MOST_STEPS:
            raise _No("too many steps")

    def _times(self, one: Terms, other: Terms) -> Terms:
        self._spend(len(one) * len(other))
        out: Terms = {}
        for (l1, r1), c in one.items():
            for (l2, r2), d in other.items():
                key = _joined(l1, l2), _joined(r1, r2)
                out[key] = out.get(key, Fraction(0)) + c * d
        if len(out) > _MOST_TERMS:
            raise _No("too many terms")
        return {key: c for key, c in out.items() if c}

    def _power(self, base: Terms, n: int) -> Terms:
        if len(base) <= 1:
            return _scaled(base, n) if base else ({} if n else _ONE)
        out = _ONE
        for _ in range(n):
            out = self._times(out, base)
        return out

    def _inverse(self, i: int, terms: Terms) -> Terms:
        """1 over node i: over its one term, or over an atom of one side."""
        if len(terms) != 1 and self.sides[i] == "lr":
            raise _No("a quotient by a sum of both sides' variables")
        ((left, right), c) = next(iter((terms if len(terms) == 1 else self._atom(i)).items()))
        return {(tuple((a, -k) for a, k in left), tuple((a, -k) for a, k in right)): 1 / c}

    def _split(self, terms: Terms) -> tuple[int, int]:
        """Nodes s(x), t(y) whose sum the terms are."""
        sides: tuple[dict[Monomial, Fraction], dict[Monomial, Fraction]] = ({}, {})
        for (left, right), c in terms.items():
            if left and right:
                raise _No("not a sum of one-sided parts")
            sides[1 if right else 0][right or left] = c
        return self._sum(sides[0]), self._sum(sides[1])

    # ------------------------------------------------------------ back to expressions

    def _sum(self, parts: dict[Monomial, Fraction]) -> int:
        total = self.builder.const(0)
        for monomial, c in parts.items():
            term = self._scaled(self._monomial(monomial), c)
            total = self.builder.apply("add", total, term)
        return total

    def _scaled(self, node: int, c: Fraction) -> int:
        return self.builder.apply("mul", self.builder.const(c), node)

    def _monomial(self, monomial: Monomial) -> int:
        total = self.builder.const(1)
        for atom, n in monomial:
            total = self.builder.apply("mul", total, self.builder.apply("powi", atom, value=n))
        return total

    # ------------------------------------------------------------ the fewest terms

    def _fewest(self, terms: Terms) -> Expansion:
        if not terms:
            raise _No("zero")
        if self.relation.symmetric:
            return self._symmetric(terms)
        m, n = (list(dict.fromkeys(key[side] for key in terms)) for side in (0, 1))
        place, other = ({monomial: i for i, monomial in enumerate(basis)} for basis in (m, n))
        rows: list[Row] = [{} for _ in m]
        for (left, right), c in terms.items():
            rows[place[left]][other[right]] = c
        pairs = [pair for part in _parts(rows) for pair in _factored(part, rows)]
        if len(pairs) > MAX_OUTPUTS:
            raise _TooMany(len(pairs))
        a = [self._sum({m[j]: c for j, c in column.items()}) for column, _ in pairs]
        b = [self._sum({n[k]: c for k, c in row.items()}) for _, row in pairs]
        return Expansion(self.builder.graph(a), self.builder.graph(b))

    def _symmetric(self, terms: Terms) -> Expansion:
        left, right = self.relation.left.names, self.relation.right.names
        mirror = self._mirrored(dict(zip(right, left, strict=True)))
        basis: dict[Monomial, int] = {}
        entries: dict[tuple[int, int], Fraction] = {}
        for (one, other), c in terms.items():
            seen = tuple(sorted((mirror(atom), n) for atom, n in other))
            key = basis.setdefault(one, len(basis)), basis.setdefault(seen, len(basis))
            entries[key] = entries.get(key, Fraction(0)) + c
        rows: list[Row] = [{} for _ in basis]
        for (j, k), c in entries.items():
            if entries.get((k, j)) != c:
                raise _No("no symmetric form")
            rows[j][k] = c
        m, made, signs = list(basis), list[int](), list[int]()
        for mine, _ in _parts([{j: Fraction(0), **row} for j, row in enumerate(rows)]):
            for d, v in _diagonal(mine, rows):
                node = self._sum({m[j]: c for j, c in v.items()})
                made.append(self.builder.apply("mul", self._root(abs(d)), node))
                signs.append(1 if d > 0 else -1)
        if len(made) > MAX_OUTPUTS:
            raise _TooMany(len(made))
        graph = self.builder.graph(made)
        back = dict(zip(left, right, strict=True))
        return Expansion(graph, graph.renamed(back), tuple(signs))

    def _root(self, d: Fraction) -> int:
        p, q = math.isqrt(d.numerator), math.isqrt(d.denominator)
        if p * p == d.numerator and q * q == d.denominator:
            return self.builder.const(Fraction(p, q))
        return self.builder.apply("sqrt", self.builder.const(d))

    def _mirrored(self, names: dict[str, str]) -> Callable[[int], int]:
        """The node of an atom with its variables renamed."""
        return cache(lambda atom: self.builder.copy_renamed(self.builder.graph([atom]).nodes, names)[-1])


def _joined(one: Monomial, other: Monomial) -> Monomial:
    if not (one and other):
        return one or other
    out = dict(one)
    for atom, n in other:
        out[atom] = out.get(atom, 0) + n
    return tuple(sorted((atom, n) for atom, n in out.items() if n))


def _added(one: Terms, other: Terms, sign: int) -> Terms:
    out = dict(one)
    for key, c in other.items():
        out[key] = out.get(key, Fraction(0)) + sign * c
    return {key: c for key, c in out.items() if c}


def _scaled(one: Terms, n: int) -> Terms:
    """The n-th power of one term."""
    ((left, right), c) = next(iter(one.items()))
    size = max(c.numerator.bit_length(), c.denominator.bit_length())
    if n * size > 4_000 and abs(c) != 1:
        raise _No("a coefficient")
    if not n:
        return _ONE
    return {(tuple((a, k * n) for a, k in left), tuple((a, k * n) for a, k in right)): c**n}


# ---------------------------------------------------------------- rational matrices, row by row


def _parts(rows: list[Row]) -> list[tuple[list[int], list[int]]]:
    """(rows, columns) that have entries together, in the order of their first rows."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    entries = [(j, k + len(rows)) for j, row in enumerate(rows) for k in row]
    size = 1 + max(place for _, place in entries)
    ones, places = np.ones(len(entries)), tuple(np.array(entries).T)
    label = connected_components(coo_array((ones, places), shape=(size, size)), directed=False)[1]
    parts: dict[int, tuple[set[int], set[int]]] = {}
    for j, k in entries:
        mine, columns = parts.setdefault(int(label[j]), (set(), set()))
        mine.add(j)
        columns.add(k - len(rows))
    return [(sorted(mine), sorted(columns)) for mine, columns in parts.values()]


def _factored(part: tuple[list[int], list[int]], rows: list[Row]) -> list[tuple[Row, Row]]:
    """(column, row) pairs whose products sum to the part of C: as many as its rank (see `_MOST_REDUCED`)."""
    mine, columns = part
    one = Fraction(1)
    if len(mine) <= len(columns) and _full(part, rows):
        return [({j: one}, rows[j]) for j in mine]
    if len(columns) < len(mine) and _full(part, rows):
        return [({j: rows[j][k] for j in mine if k in rows[j]}, {k: one}) for k in columns]
    if max(len(mine), len(columns)) > _MOST_REDUCED:
        raise _No("too large a matrix")
    entries = [rows[j].get(k, Fraction(0)) for j in mine for k in columns]
    flat = [flint.fmpq(c.numerator, c.denominator) for c in entries]
    reduced, rank = flint.fmpq_mat(len(mine), len(columns), flat).rref()
    out = []
    for i in range(int(rank)):
        values = [Fraction(int(reduced[i, k].p), int(reduced[i, k].q)) for k in range(len(columns))]
        lead = next(k for k, v in enumerate(values) if v)  # C restricted to the leading columns, times `reduced`, is C
        column = {j: rows[j][columns[lead]] for j in mine if columns[lead] in rows[j]}
        out.append((column, {columns[k]: v for k, v in enumerate(values) if v}))
    return out


def _full(part: tuple[list[int], list[int]], rows: list[Row]) -> bool:
    """Is the rank of the part proved to be the least of its sides? Modulo a prime it is never more than over Q."""
    mine, columns = part
    if len(mine) == 1 or len(columns) == 1:
        return True
    flat = []
    for j in mine:
        for k in columns:
            c = rows[j].get(k, Fraction(0))
            if c.denominator % _PRIME == 0:
                return False
            flat.append(c.numerator * pow(c.denominator, -1, _PRIME) % _PRIME if c else 0)
    return bool(flint.nmod_mat(len(mine), len(columns), flat, _PRIME).rank() == min(len(mine), len(columns)))


def _diagonal(mine: list[int], rows: list[Row]) -> list[tuple[Fraction, Row]]:
    """(d, v) with Σ d v vᵀ the part of a symmetric C; with u = e_i, or e_i + e_j where all of the diagonal is 0,
    C − (Cu)(Cu)ᵀ/(uᵀCu) has one rank less."""
    if len(mine) > _MOST_SQUARE:
        raise _No("too large a matrix")
    C = {j: dict(rows[j]) for j in mine}
    out: list[tuple[Fraction, Row]] = []
    while any(C.values()):
        best = max(mine, key=lambda j: abs(C[j].get(j, Fraction(0))))
        w, q = dict(C[best]), C[best].get(best, Fraction(0))
        if not q:
            i = next(j for j in mine if C[j])
            j = next(iter(C[i]))
            w = {k: v for k in mine if (v := C[i].get(k, Fraction(0)) + C[j].get(k, Fraction(0)))}
            q = 2 * C[i][j]
        for a, x in w.items():
            for b, y in w.items():
                left = C[a].get(b, Fraction(0)) - x * y / q
                if left:
                    C[a][b] = left
                else:
                    C[a].pop(b, None)
        out.append((q, {k: v / q for k, v in w.items()}))
    return out
