"""Does an expression vanish by exact algebra? Branches of a target that meet do so by identities such as exp(0) = 1.

Statement. `rational(build, n)` is c only if the node n has the value c at every point at which it is defined.
Every node is written as a polynomial with rational coefficients in *atoms*: variables, pi, e, and functions of such
polynomials. Two functions of equal polynomials are one atom, so that what is the same cancels. A function of a rational
number that has a rational value is that number:

    exp(0) = cosh(0) = cos(0) = 1, sin(0) = … = 0, log(1) = 0, √(p²/q²) = p/q, sigmoid(0) = 1/2, |c|, max(c, d), …
    sin and cos of multiples of π/2;  max(a, b), min(a, b) where a − b is rational

A quotient is a product with an atom 1/b, which is defined where it is. Everything is arithmetic of rational numbers.
Failure mode: other identities (√(x²) = |x|, sin² + cos² = 1), and polynomials of more than `_MOST` terms: None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from attnfun.language.graph import MAX_BITS, Builder, Node, arguments_first, bits

_MOST = 300  # terms of one polynomial
_MOST_POWER = 32
Atom = tuple[Any, ...]
Monomial = tuple[tuple[Atom, int], ...]
Form = dict[Monomial, Fraction]

_AT_ZERO: Final = {
    **dict.fromkeys(("sin", "tan", "asin", "atan", "sinh", "tanh", "expm1", "log1p", "erf"), Fraction(0)),
    **dict.fromkeys(("cos", "cosh", "exp"), Fraction(1)),
    "sigmoid": Fraction(1, 2),
}
_EXACT: Final[dict[str, Callable[[Fraction], Fraction]]] = {
    "abs": abs,
    "relu": lambda c: max(c, Fraction(0)),
    "sign": lambda c: Fraction((c > 0) - (c < 0)),
    "floor": lambda c: Fraction(math.floor(c)),
    "round": lambda c: Fraction(round(c)),
}


def rational(build: Builder, node: int, known: dict[int, Form | None] | None = None) -> Fraction | None:
    """The rational number that the node is wherever it is defined; None where none is found.

    `known`: what was found of nodes of this builder before, and what is found now.
    """
    forms: dict[int, Form | None] = {} if known is None else known
    for i in arguments_first(node, lambda i: build.node(i).args, forms):
        one = build.node(i)
        args = [forms[a] for a in one.args]
        given = [form for form in args if form is not None]
        form = _form(one, given) if len(given) == len(args) else None
        long = form is not None and (len(form) > _MOST or max(map(bits, form.values()), default=0) > MAX_BITS)
        forms[i] = None if long else form
    form = forms[node]
    return None if form is None else _constant(form)


def _constant(form: Form) -> Fraction | None:
    if not form:
        return Fraction(0)
    return form.get(()) if len(form) == 1 else None


def _form(node: Node, args: list[Form]) -> Form | None:
    op, value = node.op, node.value
    constants = [_constant(form) for form in args]
    if op == "const":
        assert isinstance(value, Fraction)
        return {(): value} if value else {}
    if not args:
        return _atom((op, value))
    if op == "neg":
        return _scaled(args[0], Fraction(-1))
    if op in ("add", "sub"):
        return _sum(args[0], args[1] if op == "add" else _scaled(args[1], Fraction(-1)))
    if op == "mul":
        return _product(args[0], args[1])
    if op == "div":
        below = _reciprocal(args[1])
        return None if below is None else _product(args[0], below)
    if op == "powi" and isinstance(value, int):
        return _power(args[0], value)
    if op == "where":
        if constants[0] is None:
            return args[1] if args[1] == args[2] else _atom((op, *map(_key, args)))
        return args[1] if constants[0] > 0 else args[2]
    if op in ("max", "min"):
        gap = _constant(_sum(args[0], _scaled(args[1], Fraction(-1))))
        if gap is not None:
            return args[0] if (gap > 0) == (op == "max") else args[1]
        return _atom((op, *sorted(map(_key, args))))
    found = _value(op, value, constants[0], args[0]) if len(args) == 1 else None
    if found is not None:
        return {(): found} if found else {}
    if op == "abs":
        return _atom((op, min(_key(args[0]), _key(_scaled(args[0], Fraction(-1))))))
    return _atom((op, value, *map(_key, args)))


def _value(op: str, carried: Any, c: Fraction | None, form: Form) -> Fraction | None:
    """The function of a rational number, or of a multiple of π."""
    if c is None:
        turns = form.get(((("pi", None), 1),)) if len(form) == 1 else None
        if op in ("sin", "cos") and turns is not None and (2 * turns).denominator == 1:
            quarter = (2 * turns.numerator // turns.denominator + (op == "cos")) % 4
            return Fraction((0, 1, 0, -1)[quarter])
        return None
    if op in _EXACT:
        return _EXACT[op](c)
    if op == "sqrt" or (op == "powr" and isinstance(carried, Fraction) and carried.denominator == 2):
        root = [math.isqrt(abs(n)) for n in (c.numerator, c.denominator)]
        if c < 0 or root[0] ** 2 != c.numerator or root[1] ** 2 != c.denominator:
            return None
        power = 1 if op == "sqrt" else carried.numerator
        return Fraction(*root) ** power if (c or power > 0) and abs(power) <= _MOST_POWER else None
    if op == "powr":
        return c if c == 1 else None
    if c == 0:
        return _AT_ZERO.get(op)
    return Fraction(0) if op == "log" and c == 1 else None


def _key(form: Form) -> Any:
    return tuple(sorted(form.items(), key=repr))


def _atom(atom: Atom, power: int = 1) -> Form:
    return {((atom, power),): Fraction(1)}


def _scaled(form: Form, factor: Fraction) -> Form:
    return {monomial: factor * c for monomial, c in form.items()} if factor else {}


def _sum(a: Form, b: Form) -> Form:
    total = dict(a)
    for monomial, c in b.items():
        total[monomial] = total.get(monomial, Fraction(0)) + c
    return {monomial: c for monomial, c in total.items() if c}


def _product(a: Form, b: Form) -> Form | None:
    if len(a) * len(b) > 4 * _MOST:
        return None
    total: Form = {}
    for first, c in a.items():
        for second, d in b.items():
            powers = dict(first)
            for atom, p in second:
                powers[atom] = powers.get(atom, 0) + p
            monomial = tuple(sorted(((atom, p) for atom, p in powers.items() if p), key=repr))
            total[monomial] = total.get(monomial, Fraction(0)) + c * d
    return {monomial: c for monomial, c in total.items() if c}


def _power(form: Form, n: int) -> Form | None:
    if abs(n) > _MOST_POWER:
        return _atom(("powi", n, _key(form)))
    below = _reciprocal(form) if n < 0 else form
    result: Form | None = {(): Fraction(1)}
    for _ in range(abs(n)):
        result = None if result is None or below is None else _product(result, below)
    return result


def _reciprocal(form: Form) -> Form | None:
    """1/b as an atom of b with leading coefficient 1; None of 0."""
    if not form:
        return None
    c = _constant(form)
    if c is not None:
        return {(): 1 / c}
    lead = min(form.items(), key=repr)[1]
    return _scaled(_atom(("inverse", _key(_scaled(form, 1 / lead)))), 1 / lead)
