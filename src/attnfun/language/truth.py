"""Comparisons and what is made of them, as nodes of a graph: a truth value is 1 or 0.

    x > y        where(x − y, 1, 0)              x >= y     where(y − x, 0, 1)
    x == y       where(x − y, 0, where(y − x, 0, 1))
    where(c, a, b)   c taken apart: where(u, c₁, c₂) as condition is where(u, where(c₁, a, b), where(c₂, a, b))
    c and d      where(c, d, 0)       c or d     where(c, 1, d)       not c      where(c, 0, 1)
    x // y       floor(x/y)           x % y      x − y floor(x/y)     ceil(x)    −floor(−x)
    heaviside(x, h)  1 for x > 0, 0 for x < 0, h at 0

These are Python's and NumPy's values wherever the arguments are numbers.
Failure mode: a condition that is not made of comparisons is an `InvalidRequest`; `x` alone is none, `x != 0` is.
"""

from fractions import Fraction
from typing import Final

from attnfun.errors import InvalidRequest
from attnfun.language.graph import Builder, Node, arguments_first

COMPARISONS: Final = (">", "<", ">=", "<=", "==", "!=")
_TRUTHS: Final = (Node("const", (), Fraction(0)), Node("const", (), Fraction(1)))


def compared(build: Builder, sign: str, x: int, y: int) -> int:
    """The truth value of `x sign y`."""
    one, zero = build.const(1), build.const(0)
    if sign in ("==", "!="):
        same, other = (one, zero) if sign == "==" else (zero, one)
        return build.apply("where", build.apply("sub", x, y), other, _above(build, y, x, other, same))
    if sign in (">", ">="):
        return _above(build, x, y, one, zero) if sign == ">" else _above(build, y, x, zero, one)
    return _above(build, y, x, one, zero) if sign == "<" else _above(build, x, y, zero, one)


def _above(build: Builder, x: int, y: int, a: int, b: int) -> int:
    """a where x > y, b elsewhere."""
    return build.apply("where", build.apply("sub", x, y), a, b)


def is_truth(build: Builder, node: int) -> bool:
    """Is the node 1 or 0 everywhere, as it is written?"""
    seen: set[int] = set()
    stack = [node]
    while stack:
        i = stack.pop()
        if i in seen:
            continue
        seen.add(i)
        one = build.node(i)
        if one.op == "where":
            stack += one.args[1:]
        elif one not in _TRUTHS:
            return False
    return True


def chosen(build: Builder, condition: int, a: int, b: int) -> int:
    """a where the condition holds, b elsewhere."""
    if not is_truth(build, condition):
        raise InvalidRequest("a condition is made of comparisons, such as x > 0")
    made: dict[int, int] = {build.const(0): b, build.const(1): a}
    for i in arguments_first(condition, lambda i: build.node(i).args[1:], made):
        u, first, second = build.node(i).args
        made[i] = build.apply("where", u, made[first], made[second])
    return made[condition]


def both(build: Builder, c: int, d: int) -> int:
    """c and d."""
    return chosen(build, c, _truth(build, d), build.const(0))


def either(build: Builder, c: int, d: int) -> int:
    """c or d."""
    return chosen(build, c, build.const(1), _truth(build, d))


def negated(build: Builder, c: int) -> int:
    return chosen(build, c, build.const(0), build.const(1))


def _truth(build: Builder, d: int) -> int:
    return chosen(build, d, build.const(1), build.const(0))


def floor_divided(build: Builder, x: int, y: int) -> int:
    return build.apply("floor", build.apply("div", x, y))


def remainder(build: Builder, x: int, y: int) -> int:
    """x % y with the sign of y."""
    return build.apply("sub", x, build.apply("mul", y, floor_divided(build, x, y)))


def ceiling(build: Builder, x: int) -> int:
    return build.apply("neg", build.apply("floor", build.apply("neg", x)))


def truncated(build: Builder, x: int) -> int:
    """x without what follows its decimal point."""
    return build.apply("where", x, build.apply("floor", x), ceiling(build, x))


def heaviside(build: Builder, x: int, h: int) -> int:
    at_zero = build.apply("where", build.apply("neg", x), build.const(0), h)
    return build.apply("where", x, build.const(1), at_zero)
