"""The sequence maps that networks on sets compute, one a form: what construction and proof share.

The forms are those of `network.py`: elements, power-sums, pairs. Power sums are compared with the target exactly, at
rational points, before they are used.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.sequence.target import Definition, SequenceMap
from attnfun.kinds.set.power_sums import NotPolynomial, PowerSums, Terms, TermsAlgebra, power_sums, without_factor
from attnfun.kinds.set.target import SetFunction, aggregated, first, inlined, second
from attnfun.language import Builder, run

FORMS = ("elements", "power-sums", "pairs")
Rows = Sequence[Sequence[Fraction]]
"""The points of a set, their coordinates in order."""


@lru_cache(maxsize=32)
def sequence_map(target: SetFunction, form: str) -> SequenceMap:
    """The sequence map that a network on sets computes, from the set function and the name of its form alone.

    `target` at each of n tokens (or n², of pairs): the same function.

    InvalidRequest where the target has no such form, Infeasible where it has too many pairs.
    """
    if form == "pairs":
        return target.on_pairs()
    if form == "elements":
        return target.on_elements()
    try:
        found = power_sums(target)
    except NotPolynomial:
        text = target.text[:80]
        raise InvalidRequest(f"{text} is no polynomial with rational coefficients: method='pairs' is for it") from None
    if not check_exact(target, found):
        raise AssertionError("power sums that do not give the target's exact values: no network")
    return as_sums_over_elements(target, found)


def check_exact(target: SetFunction, found: PowerSums, seed: int = 0, trials: int = 3) -> bool:
    """Whether the power sums give the target's values at random rational sets, compared exactly."""
    sets = rational_sets(target.points, target.box.dim, seed, trials)
    return all(found.value(rows) == exact_value(target, rows) for rows in sets)


def rational_sets(points: int, dim: int, seed: int, trials: int) -> list[Rows]:
    numbers = np.random.default_rng(seed).integers(-99, 100, size=(trials, points, dim))
    return [[[Fraction(int(v), 7) for v in row] for row in rows] for rows in numbers]


def as_sums_over_elements(target: SetFunction, found: PowerSums) -> SequenceMap:
    """The target as a polynomial of the fewest sums over elements, a sequence map of n tokens: equal to it exactly.

    Output factors that are no rationals are put back from the target's own expression.
    """
    forms, pivots = found.forms()
    definitions: list[Definition] = []
    names = {pivot: f"feature_{number}" for number, pivot in enumerate(pivots, start=1)}
    for pivot, form in zip(pivots, forms, strict=True):
        builder, ends = Builder(), zip(target.box.names, found.base, strict=True)
        centred = [builder.apply("sub", builder.var(c), builder.const(b)) for c, b in ends]
        terms = [(value, _product(builder, zip(centred, alpha, strict=True))) for alpha, value in form.items()]
        graph = builder.graph([_combined(builder, terms)])
        definitions += aggregated(names[pivot], f"element_{names[pivot]}", "sum", graph, target.box.names)
    builder = Builder()
    rows = []
    for output, polynomial in zip(target.row.outputs, found.outputs, strict=True):
        terms = []
        for factors, coefficient in polynomial.items():
            if all(alpha in names for alpha in factors):
                powers = ((builder.var(names[a]), factors.count(a)) for a in dict.fromkeys(factors))
                terms.append((coefficient, _product(builder, powers)))
        value = _combined(builder, terms)
        for op, factor, on_left in reversed(without_factor(target.row, output)[1]):
            other = inlined(builder, factor)
            value = builder.apply(op, other, value) if on_left else builder.apply(op, value, other)
        rows.append(value)
    return SequenceMap(target.box, target.points, tuple(definitions), (builder.graph(rows),)).checked()


def _product(builder: Builder, powers: Iterable[tuple[int, int]]) -> int:
    """The product of nodes to powers that are not negative."""
    factors = (builder.apply("powi", base, value=k) for base, k in powers if k)
    return reduce(partial(builder.apply, "mul"), factors, builder.const(1))


def _combined(builder: Builder, terms: Sequence[tuple[Fraction, int]]) -> int:
    zero, total = builder.const(0), None
    for coefficient, node in terms:
        term = builder.apply("mul", builder.const(abs(coefficient)), node)
        if total is None and coefficient < 0:
            total = builder.apply("neg", term)
        else:
            total = builder.apply("add" if coefficient > 0 else "sub", zero if total is None else total, term)
    return zero if total is None else total


def exact_value(target: SetFunction, points: Rows) -> list[Fraction]:
    """The target at rational points by summing over elements and pairs one by one, constant factors that are no
    rationals left out as in `power_sums`: what an exact form is checked against.
    """
    algebra: Any = TermsAlgebra((0,) * target.box.dim)
    shared: dict[str, Terms] = {}
    n = len(points)
    for s in target.sums:
        total: Terms = {}
        for a in points:
            for b in points if s.pairs else (a,):
                env = dict(shared)
                for i, j, at_i, at_j in zip(first(target.box), second(target.box), a, b, strict=True):
                    env[i], env[j] = algebra.constant(at_i), algebra.constant(at_j)
                total = algebra.add(total, run(s.graph, algebra, env)[0])
        times = Fraction(1, n ** (2 if s.pairs else 1)) if s.kind == "mean" else Fraction(1)
        shared[s.name] = algebra.mul(total, algebra.constant(times))
    graphs = [without_factor(target.row, output)[0] for output in target.row.outputs]
    return [sum(run(graph, algebra, shared)[0].values(), Fraction(0)) for graph in graphs]
