"""Where a function of one variable changes its sign, with proof: between the switches it has one sign and no zero.

Statement. `switches(u, low, high)` returns intervals in order, each strictly after the one before, such that u has no
zero in [low, high] outside of them. A *switch* that is one rational number is a zero of u there, exactly.
The zeros of a product, a quotient, a power, |v| and sqrt(v) are among those of its parts; affine u are solved in
rational numbers. Else [low, high] is halved until on every part balls show that u is not 0, or
that u' is not 0: then u is monotone there and has a zero if and only if its signs at the ends differ, which bisection
follows down to `_FINEST` of the interval. A rational number of small denominator in there is tried for u = 0 by exact
algebra (`vanishing`); u being monotone, there is no other zero beside it. Parts of that size on which neither
shows (double zeros, zeros at a kink) are switches as they are.
Failure mode: more than `_MOST` switches, or a function that is not defined on the interval: None.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from attnfun.language.balls import BallAlgebra
from attnfun.language.definedness import affine_forms
from attnfun.language.enclosures import Ball, ball, precision
from attnfun.language.gradient import GradientAlgebra
from attnfun.language.graph import Builder, Graph
from attnfun.language.interpret import run
from attnfun.language.vanishing import rational

_MOST: Final = 256
_PARTS: Final = 1500  # looked at
_PARTED: Final = frozenset({"mul", "div", "neg", "abs", "sqrt", "powi"})
_FINEST: Final = Fraction(1, 2**48)
_DENOMINATORS: Final = (10, 1000, 100_000, 10**7)
_BITS: Final = 128
_ASKEW: Final = Fraction(509, 1000)  # where a part is halved: not where formulas like to have their zeros

Switch = tuple[Fraction, Fraction]


def value_at(graph: Graph, at: Fraction) -> Fraction | None:
    """The exact value of a function of one variable at a rational number, where exact algebra finds it."""
    build = Builder()
    (node,) = build.substitute(graph, build.const(at))
    return rational(build, node)


def sign_on(graph: Graph, low: Fraction, high: Fraction) -> int:
    """1 or -1 where the function of one variable is proved to have that sign on the interval, else 0."""
    (name,) = graph.variables
    with precision(_BITS):
        (value,) = run(graph, BallAlgebra(clip_sqrt=True), {name: _ball(low, high)})
        return 1 if value > 0 else -1 if value < 0 else 0


def switches(graph: Graph, low: Fraction, high: Fraction) -> list[Switch] | None:
    """See the module's statement."""
    parts, found = [graph], list[Switch]()
    while parts:
        part = parts.pop()
        top = part.nodes[part.outputs[0]]
        if top.op in _PARTED and (top.op != "powi" or top.value != 0):
            inner = [part.reachable([arg]) for arg in top.args]
            parts += [arg for arg in inner if arg.variables]
            continue
        own = _one(part, low, high)
        if own is None or len(found) + len(own) > _MOST:
            return None
        found += own
    joined: list[Switch] = []
    for a, b in sorted(found):
        if joined and a <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(b, joined[-1][1]))
        else:
            joined.append((a, b))
    return joined


def _one(graph: Graph, low: Fraction, high: Fraction) -> list[Switch] | None:
    form = affine_forms(graph)[graph.outputs[0]]
    if form is not None and form[0]:
        root = -form[1] / form[0]
        return [(root, root)] if low <= root <= high else []
    with precision(_BITS):
        return _searched(graph, low, high)


def _searched(graph: Graph, low: Fraction, high: Fraction) -> list[Switch] | None:
    (name,) = graph.variables
    over = GradientAlgebra(BallAlgebra(clip_sqrt=True), 1)
    found: list[Switch] = []
    stack, looked = [(low, high)], 0
    while stack:
        a, b = stack.pop()
        looked += 1
        if looked > _PARTS or len(found) > 2 * _MOST:
            return None
        (dual,) = run(graph, over, over.variables([name], {name: _ball(a, b)}))
        value, (slope,) = dual.value, over.gradient(dual)
        if value > 0 or value < 0:
            continue
        if slope > 0 or slope < 0:
            first, last = _sign(graph, name, a), _sign(graph, name, b)
            if first and last:
                if first != last:
                    found.append(_followed(graph, name, a, b, first, (high - low) * _FINEST))
                continue
            ends = [end for end, sign in ((a, first), (b, last)) if not sign and value_at(graph, end) == 0]
            if ends:  # monotone: no other zero
                found.append((ends[0], ends[0]))
                continue
        if b - a < (high - low) * _FINEST:
            found.append((a, b))
            continue
        middle = a + (b - a) * _ASKEW
        middle = min(max(middle.limit_denominator(2**80), a), b)
        stack += [(a, middle), (middle, b)]
    return found


def _followed(graph: Graph, name: str, a: Fraction, b: Fraction, first: int, fine: Fraction) -> Switch:
    """The one zero of a monotone function in [a, b], whose sign at a is `first`."""
    for limit in _DENOMINATORS:
        guess = _root_guess(graph, name, a, b, first, limit)
        if guess is not None:
            return guess, guess
    while b - a > fine:
        middle = Fraction(float((a + b) / 2))
        sign = _sign(graph, name, middle) if a < middle < b else 0
        if not sign:
            break
        a, b = (middle, b) if sign == first else (a, middle)
    return a, b


def _root_guess(graph: Graph, name: str, a: Fraction, b: Fraction, first: int, limit: int) -> Fraction | None:
    """A rational zero of denominator at most `limit` between a and b, if bisection leads to one."""
    for _ in range(200):
        middle = (a + b) / 2
        guess = middle.limit_denominator(limit)
        if a <= guess <= b:
            sign = _sign(graph, name, guess)
            if not sign:
                return guess if value_at(graph, guess) == 0 else None
            a, b = (max(a, guess), b) if sign == first else (a, min(b, guess))
        if b - a < Fraction(1, 4 * limit * limit):
            return None
        middle = Fraction(float((a + b) / 2))
        sign = _sign(graph, name, middle)
        if not sign:
            return middle if value_at(graph, middle) == 0 else None
        a, b = (middle, b) if sign == first else (a, middle)
    return None


def _sign(graph: Graph, name: str, at: Fraction) -> int:
    (value,) = run(graph, BallAlgebra(clip_sqrt=True), {name: _ball(at, at)})
    return 1 if value > 0 else -1 if value < 0 else 0


def _ball(low: Fraction, high: Fraction) -> Ball:
    """Exact ends where they are doubles."""
    if Fraction(float(low)) == low and Fraction(float(high)) == high:
        return ball(float(low), float(high))
    from attnfun.language.enclosures import exact

    return exact(low).union(exact(high))
