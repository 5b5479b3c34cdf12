"""Symmetric polynomials in power sums, exactly: p_α = Σ_n (x_n − c)^α for a base point c.

A set function built from sums, means and polynomials is a polynomial P in the p_α with rational coefficients: inside
a sum every term is a coefficient times x_i^α x_j^β times power sums, and its sum over i and j is the coefficient
times p_α p_β (p_0 = n). Nothing is rounded. For total degree at most n the products of power sums are linearly
independent and P is unique; past it P is the one that the expression gives.

`forms` are the fewest sums Σ_n ψ_h(x_n) that P is a polynomial of: its *essential* linear forms. With M the matrix of
the coefficients of ∂P/∂p_α (one row per α), P does not change along v exactly if vᵀM = 0, so these forms are a basis of
the columns' span; in reduced row echelon form P is Q(φ), Q being P with every p_α that is no pivot replaced by 0.

Failure mode: NotPolynomial, with the reason, for anything else than rational polynomials, or past MAX_PRODUCTS terms.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

from flint import fmpq, fmpq_mat

from attnfun.errors import InvalidRequest
from attnfun.kinds.set.target import SetFunction, Sum, first, second
from attnfun.language import BallAlgebra, Graph, precision, run

Exponents = tuple[int, ...]
Product = tuple[Exponents, ...]  # factors p_α in order
Polynomial = dict[Product, Fraction]
_Term = tuple[Exponents, Exponents, Product]  # x_i^α x_j^β times power sums
Terms = dict[_Term, Fraction]

MAX_PRODUCTS = 4000
MAX_DEGREE = 64


class NotPolynomial(InvalidRequest):
    """The expression is no polynomial with rational coefficients, or too large a one."""


@dataclass(frozen=True)
class PowerSums:
    """A set function as polynomials in power sums about `base`, one an output."""

    points: int
    base: tuple[Fraction, ...]
    outputs: tuple[Polynomial, ...]  # without constant factors that are no rationals

    @property
    def exponents(self) -> tuple[Exponents, ...]:
        """All α that occur, by degree."""
        found = {alpha for polynomial in self.outputs for factors in polynomial for alpha in factors}
        return tuple(sorted(found, key=lambda a: (sum(a), tuple(-k for k in a))))

    @property
    def degree(self) -> int:
        return max((sum(map(sum, factors)) for p in self.outputs for factors in p), default=0)

    @property
    def factors(self) -> int:
        """The most power sums in one product."""
        return max((len(factors) for p in self.outputs for factors in p), default=0)

    def value(self, points: Sequence[Sequence[Fraction]]) -> list[Fraction]:
        """The polynomials at rational points, exactly."""
        sums = {alpha: sum((_power(x, self.base, alpha) for x in points), Fraction(0)) for alpha in self.exponents}
        return [
            sum((c * math.prod(sums[alpha] for alpha in factors) for factors, c in polynomial.items()), Fraction(0))
            for polynomial in self.outputs
        ]

    def two_factor_matrix(self) -> list[list[Fraction]]:
        """G with Σ G_αβ p_α p_β the part with two factors, those of several outputs side by side."""
        every = self.exponents
        return [
            [
                polynomial.get(tuple(sorted((a, b))), Fraction(0)) / (1 if a == b else 2)
                for polynomial in self.outputs
                for b in every
            ]
            for a in every
        ]

    def gradients(self) -> list[tuple[int, dict[Exponents, Fraction]]]:
        """The columns of M: for every product, its degree and its coefficients in the ∂P/∂p_α; outputs side by side."""
        columns: dict[tuple[int, Product], dict[Exponents, Fraction]] = {}
        for o, polynomial in enumerate(self.outputs):
            for factors, coefficient in polynomial.items():
                for alpha in set(factors):
                    rest = list(factors)
                    rest.remove(alpha)
                    column = columns.setdefault((o, tuple(rest)), {})
                    column[alpha] = column.get(alpha, Fraction(0)) + coefficient * factors.count(alpha)
        return [(sum(map(sum, rest)), column) for (_, rest), column in columns.items()]

    def forms(self) -> tuple[list[dict[Exponents, Fraction]], list[Exponents]]:
        """The fewest linear forms in the p_α that all outputs are polynomials of, and the pivot α of each."""
        alphas = self.exponents
        rows = [[column.get(a, Fraction(0)) for a in alphas] for _, column in self.gradients()]
        reduced, found = _matrix(rows).rref()
        forms = []
        for r in range(found):
            forms.append({a: Fraction(int(v.p), int(v.q)) for c, a in enumerate(alphas) if (v := reduced[r, c]) != 0})
        return forms, [next(iter(form)) for form in forms]

    def least_rank(self, most: int) -> int:
        """A lower bound of the rank of M where only its entries of total degree |α| + |product| ≤ n = `most` are known.

        With the rows in order of degree d_1 < d_2 < …, Frobenius' inequality for the rows up to d_k, all columns, and
        the rows up to d_{k+1}, columns up to degree n − d_{k+1}, gives R_{k+1} ≥ R_k + r[d_{k+1}, n − d_{k+1}] −
        r[d_k, n − d_{k+1}], r[a, b] the rank of the known block of rows up to a and columns up to b.
        """
        columns = self.gradients()
        total, before = 0, -1
        for d in sorted({sum(a) for a in self.exponents if sum(a) <= most}):
            known = [column for degree, column in columns if degree <= most - d]

            def block(up_to: int, known: list[dict[Exponents, Fraction]] = known) -> int:
                rows = [a for a in self.exponents if sum(a) <= up_to]
                return rank([[column.get(a, Fraction(0)) for column in known] for a in rows])

            total += block(d) - block(before)
            before = d
        return total


def rank(matrix: Sequence[Sequence[Fraction]]) -> int:
    """Over the rationals."""
    return int(_matrix(matrix).rank())


def _matrix(rows: Sequence[Sequence[Fraction]]) -> Any:
    if not rows or not rows[0]:
        return fmpq_mat(0, 0)
    flat = [fmpq(v.numerator, v.denominator) for row in rows for v in row]
    return fmpq_mat(len(rows), len(rows[0]), flat)


def _power(x: Sequence[Fraction], base: Sequence[Fraction], alpha: Exponents) -> Fraction:
    return math.prod(((v - c) ** k for v, c, k in zip(x, base, alpha, strict=True)), start=Fraction(1))


def base_of(target: SetFunction) -> tuple[Fraction, ...]:
    """0 in every coordinate whose interval holds it, else the interval's middle."""
    ends = zip(target.box.low, target.box.high, strict=True)
    return tuple(Fraction(0) if a <= 0 <= b else (Fraction(a) + Fraction(b)) / 2 for a, b in ends)


def power_sums(target: SetFunction, algebra: Any = None) -> PowerSums:
    """The target as polynomials in power sums; constant factors of an output that are no rationals are left out.

    `algebra`: `TermsAlgebra`, or that of `power_series.py`, which gives the target's part of low degree.
    """
    algebra = algebra or TermsAlgebra((0,) * target.box.dim)
    env = _points(target)
    for s in target.sums:
        env[s.name] = _sum(target, s, algebra, env)
    graphs = [without_factor(target.row, output)[0] for output in target.row.outputs]
    outputs = tuple(_in_power_sums(run(graph, algebra, env)[0]) for graph in graphs)
    return PowerSums(target.points, base_of(target), outputs)


def _in_power_sums(terms: Terms) -> Polynomial:
    return {factors: value for (_, _, factors), value in terms.items()}


def sums_behind(target: SetFunction) -> int | None:
    """So many sums over elements Σ ψ(x_n) give all the target's sums, and so the target; None if that is not seen.

    The sums that are polynomials are polynomials of their essential forms, together; a sum over elements of anything
    else counts one, if no other sum stands in it.
    """
    algebra, env = TermsAlgebra((0,) * target.box.dim), _points(target)
    polynomials: list[Polynomial] = []
    others = 0
    for s in target.sums:
        try:
            if not set(s.graph.variables) <= set(env):
                raise NotPolynomial("a sum that is no polynomial stands in it")
            env[s.name] = _sum(target, s, algebra, env)
            polynomials.append(_in_power_sums(env[s.name]))
        except NotPolynomial:
            if s.pairs or s.kind not in ("sum", "mean") or not set(s.graph.variables) <= set(first(target.box)):
                return None
            others += 1
    return others + len(PowerSums(target.points, base_of(target), tuple(polynomials)).forms()[0])


def _points(target: SetFunction) -> dict[str, Terms]:
    """x_i and x_j about the base point, as terms."""
    dim = target.box.dim
    zero = (0,) * dim
    env: dict[str, Terms] = {}
    for k, c in enumerate(base_of(target)):
        unit = tuple(int(l == k) for l in range(dim))
        for name, powers in ((first(target.box)[k], (unit, zero)), (second(target.box)[k], (zero, unit))):
            env[name] = _collected([((*powers, ()), Fraction(1)), ((zero, zero, ()), c)])
    return env


def _sum(target: SetFunction, s: Sum, algebra: Any, env: Mapping[str, Terms]) -> Terms:
    """A sum or mean of terms over elements or pairs, in power sums."""
    if s.kind not in ("sum", "mean"):
        raise NotPolynomial(f"{s.kind} is no polynomial")
    n, zero = target.points, (0,) * target.box.dim
    over = n ** (2 if s.pairs else 1) if s.kind == "mean" else 1
    summed: list[tuple[_Term, Fraction]] = []
    for (alpha, beta, factors), coefficient in run(s.graph, algebra, env)[0].items():
        parts = (alpha, beta) if s.pairs else (alpha,)
        times = coefficient * n ** sum(not any(part) for part in parts)
        summed.append(((zero, zero, tuple(sorted((*factors, *filter(any, parts))))), times / over))
    return _collected(summed)


def without_factor(graph: Graph, output: int) -> tuple[Graph, list[tuple[str, Graph, bool]]]:
    """An output without the variable-free factors that are no rationals; these, the outermost first: the operation, the
    factor, whether it stands on the left.
    """
    dropped = []
    while (node := graph.nodes[output]).op in ("mul", "div"):
        left, right = (graph.reachable([arg]) for arg in node.args)
        if _is_factor(right):
            output, factor = node.args[0], (node.op, right, False)
        elif node.op == "mul" and _is_factor(left):
            output, factor = node.args[1], (node.op, left, True)
        else:
            break
        dropped.append(factor)
    return graph.reachable([output]), dropped


def _is_factor(graph: Graph) -> bool:
    """Whether it is a constant, no rational as written, that is proved to be finite and not 0."""
    if graph.variables or graph.nodes[graph.outputs[0]].op == "const":
        return False
    with precision(128):
        value = run(graph, BallAlgebra(), {})[0]
        return bool(value.is_finite() and not value.contains(0))


class TermsAlgebra:
    """The algebra of polynomials in x_i, x_j and power sums."""

    def __init__(self, zero: Exponents) -> None:
        self.one: _Term = (zero, zero, ())

    def constant(self, value: Fraction, /) -> Terms:
        return {self.one: value} if value else {}

    def neg(self, x: Terms, /) -> Terms:
        return {key: -value for key, value in x.items()}

    def add(self, x: Terms, y: Terms, /) -> Terms:
        return _collected((*x.items(), *y.items()))

    def sub(self, x: Terms, y: Terms, /) -> Terms:
        return self.add(x, self.neg(y))

    def mul(self, x: Terms, y: Terms, /) -> Terms:
        if len(x) * len(y) > 50 * MAX_PRODUCTS:
            raise NotPolynomial(f"a product of {len(x):,} by {len(y):,} terms is too large")
        return _collected(
            ((_added(a, c), _added(b, d), tuple(sorted(f + g))), u * v)
            for (a, b, f), u in x.items()
            for (c, d, g), v in y.items()
        )

    def div(self, x: Terms, y: Terms, /) -> Terms:
        if set(y) != {self.one}:
            raise NotPolynomial("a quotient by something that is not constant is no polynomial")
        return {key: value / y[self.one] for key, value in x.items()}

    def powi(self, x: Terms, n: int, /) -> Terms:
        if n < 0:
            return self.div(self.constant(Fraction(1)), self.powi(x, -n))
        if n > MAX_DEGREE:
            raise NotPolynomial(f"a power {n} is too high")
        return reduce(self.mul, [x] * n, self.constant(Fraction(1)))

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)
        raise NotPolynomial(f"{op} is no polynomial with rational coefficients")


def _added(a: Exponents, b: Exponents) -> Exponents:
    return tuple(i + j for i, j in zip(a, b, strict=True))


def _collected(terms: Iterable[tuple[_Term, Fraction]]) -> Terms:
    """The terms, like ones added up, without those that are 0."""
    total: Terms = {}
    for key, value in terms:
        total[key] = total.get(key, Fraction(0)) + value
    if len(total) > MAX_PRODUCTS:
        raise NotPolynomial(f"more than {MAX_PRODUCTS:,} terms")
    return {key: value for key, value in total.items() if value}
