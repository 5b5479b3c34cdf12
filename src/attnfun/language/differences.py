"""Divided differences: the quotient (N(x) − N(y))/(x − y) as an expression that has a value where x = y.

Statement. Let N be an expression, x one of its variables, y an expression without x. Write u' for u with y in the place
of x, and δu = (u − u')/(x − y). Then, node by node,

    δx = 1, δu = 0 where u does not depend on x, δ(a ± b) = δa ± δb, δ(ab) = δa b + a' δb,
    δ(a/b) = (δa − (a'/b') δb)/b,  δ g(a) = K_g(a, a') δa  with  g(u) − g(v) = (u − v) K_g(u, v),  w = u − v:

| g | K_g(u, v) |
| --- | --- |
| u^n, u^-n | Σ_{k<n} u^k v^(n-1-k), and −Σ_{k<n} u^(k-n) v^(-1-k) |
| sqrt, u^p | 1/(√u + √v), v^(p-1) ((1+z)^p − 1)/z with z = w/v |
| exp, expm1; log, log1p | e^v (e^w − 1)/w; log(1+z)/z/v with z = w/v |
| sin, cos, tan | sin(h)/h · cos((u+v)/2), −sin(h)/h · sin((u+v)/2) with h = w/2; sin(w)/w/(cos u cos v) |
| sinh, cosh, tanh, sigmoid | the same with hyperbolic ones; sigmoid(t) = (1 + tanh(t/2))/2 |

Every 0/0 that is left is a function of one node, which `removable` continues. So where N and D vanish for x = y, N/D is
δN/δD. Nothing here has to be believed: `certify.extension` proves what came out.
Failure mode: other functions (atan, erf, …), and denominators that vanish elsewhere than where an affine form does or
two variables are equal, are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import reduce
from itertools import permutations

from attnfun.language.canonical import canonical
from attnfun.language.graph import MAX_EXPONENT, Builder, Graph, arguments_first
from attnfun.language.squares import factored

_PRODUCT = frozenset({"mul", "div", "powi"})
_HYPERBOLIC = {"sinh": "cosh", "cosh": "sinh"}


class _Unknown(Exception):
    """An operation without a rule."""


def divided(graph: Graph, poles: list[int]) -> Graph:
    """The graph with N/D as δN/δD where D is one of the nodes `poles` and both vanish together."""
    build = Builder()
    at: list[int] = []
    wanted: set[int] = set()
    for i, node in enumerate(graph.nodes):
        new = build.apply(node.op, *(at[a] for a in node.args), value=node.value)
        if node.op in _PRODUCT:
            new = _quotient(build, new, wanted) or new
        at.append(new)
        if i in poles:
            wanted.add(new)
    return build.graph([at[o] for o in graph.outputs])


def _quotient(build: Builder, n: int, poles: set[int]) -> int | None:
    """The product n with each pole in it divided out, or None if none could be."""
    c, powers = factored(build, n, MAX_EXPONENT)
    factor: int | None = None
    for pole in [b for b, p in powers.items() if p < 0 and b in poles]:
        for x, y in _places(build, pole):
            tops = [b for b, p in powers.items() if p > 0 and _vanishes(build, b, x, y)]
            if not tops:
                continue
            try:
                rule = _Divided(build, x, y)
                times = min(powers[tops[0]], -powers[pole])
                above, below = rule.of(tops[0]), rule.of(pole)
            except _Unknown:
                continue
            if above is None or below is None:
                continue
            piece = build.apply("powi", build.apply("div", above, below), value=times)
            factor = piece if factor is None else build.apply("mul", factor, piece)
            powers[tops[0]] -= times
            powers[pole] += times
            break
    if factor is None:
        return None
    total = build.apply("mul", build.const(c), factor)
    for base, p in sorted(powers.items(), key=lambda item: item[1] < 0):
        if p:
            power = build.apply("powi", base, value=abs(p))
            total = build.apply("mul" if p > 0 else "div", total, power)
    return total


def _places(build: Builder, pole: int) -> Iterator[tuple[str, int]]:
    """(x, y): where the node may vanish, told as x = y."""
    alone = build.graph([pole])
    form = _affine(build, pole)
    if form is not None:
        x = next((v for v in alone.variables if form.get(v)), None)
        if x is not None:
            terms = [build.const(-form.get("", Fraction(0)) / form[x])]
            terms += [
                build.apply("mul", build.const(-form[v] / form[x]), build.var(v)) for v in alone.variables if v != x
            ]
            yield x, reduce(lambda a, b: build.apply("add", a, b), terms)
        return
    for x, other in permutations(alone.variables, 2):
        if _vanishes(build, pole, x, build.var(other)):
            yield x, build.var(other)


def _affine(build: Builder, n: int) -> dict[str, Fraction] | None:
    """Coefficients by variable and, under "", the constant, if the node is affine with rational coefficients."""
    forms: dict[int, dict[str, Fraction] | None] = {}
    for i in arguments_first(n, lambda k: build.node(k).args, forms):
        node = build.node(i)
        args = [f for f in (forms[a] for a in node.args) if f is not None]
        form: dict[str, Fraction] | None = None
        if node.op == "var":
            form = {str(node.value): Fraction(1)}
        elif node.op == "const" and isinstance(node.value, Fraction):
            form = {"": node.value}
        elif len(args) == len(node.args) and node.op in ("neg", "add", "sub"):
            signs = {"neg": (-1,), "add": (1, 1), "sub": (1, -1)}[node.op]
            form = {}
            for sign, part in zip(signs, args, strict=True):
                for name, value in part.items():
                    form[name] = form.get(name, Fraction(0)) + sign * value
        elif len(args) == 2 and node.op in ("mul", "div"):
            a, b = args if node.op == "div" or set(args[1]) <= {""} else reversed(args)
            if set(b) <= {""} and (node.op == "mul" or b.get("")):
                k = b.get("", Fraction(0))
                form = {name: value * k if node.op == "mul" else value / k for name, value in a.items()}
        forms[i] = form
    return forms[n]


def _vanishes(build: Builder, n: int, x: str, y: int) -> bool:
    """Does the node depend on x, and is it 0 for x = y, as its canonical form shows?"""
    if x not in build.graph([n]).variables:
        return False
    inner = build.graph([n, y])
    trial = Builder()
    (there,) = trial.copy(inner.reachable([inner.outputs[1]]).nodes)[-1:]
    at = trial.copy(inner.nodes, lambda node, _: there if node.op == "var" and node.value == x else None)
    plain = canonical(trial.graph([at[inner.outputs[0]]]))
    last = plain.nodes[plain.outputs[0]]
    return last.op == "const" and last.value == 0


class _Divided:
    """δ of the nodes of a builder, and the nodes with y in the place of x; what is 0 is None."""

    def __init__(self, build: Builder, x: str, y: int) -> None:
        self.build, self.x, self.y = build, x, y
        self.there: dict[int, int] = {}
        self.slopes: dict[int, int | None] = {}

    def of(self, n: int) -> int | None:
        for i in arguments_first(n, lambda k: self.build.node(k).args, self.slopes):
            node = self.build.node(i)
            if node.op == "var" and node.value == self.x:
                self.there[i], self.slopes[i] = self.y, self.build.const(1)
            elif all(self.slopes[a] is None for a in node.args):
                self.there[i], self.slopes[i] = i, None
            else:
                args = [self.there[a] for a in node.args]
                self.there[i] = self.build.apply(node.op, *args, value=node.value)
                self.slopes[i] = self._slope(i)
        return self.slopes[n]

    def _slope(self, i: int) -> int | None:
        node, op, apply = self.build.node(i), self.build.node(i).op, self.build.apply
        slopes = [self.slopes[a] for a in node.args]
        if op in ("add", "sub"):
            a, b = slopes
            if a is None or b is None:
                return (apply("neg", b) if op == "sub" and b is not None else b) if a is None else a
            return apply(op, a, b)
        if op == "neg":
            return apply("neg", self._some(slopes[0]))
        if op == "mul":
            (a, b), (da, db) = node.args, slopes
            parts = [apply("mul", da, b)] if da is not None else []
            parts += [apply("mul", self.there[a], db)] if db is not None else []
            return reduce(lambda s, t: apply("add", s, t), parts)
        if op == "div":
            (_, b), (da, db) = node.args, slopes
            if db is None:
                return apply("div", self._some(da), b)
            moved = apply("mul", self.there[i], db)
            return apply("div", apply("neg", moved) if da is None else apply("sub", da, moved), b)
        if len(node.args) != 1:
            raise _Unknown
        (a,) = node.args
        return apply("mul", self._kernel(op, node.value, a, self.there[a], i), self._some(slopes[0]))

    def _some(self, slope: int | None) -> int:
        assert slope is not None
        return slope

    def _kernel(self, op: str, value: object, u: int, v: int, i: int) -> int:
        """K_g(u, v); node i is g(u)."""
        apply, const = self.build.apply, self.build.const
        w = apply("sub", u, v)
        half, mean = apply("div", w, const(2)), apply("div", apply("add", u, v), const(2))
        there = self.there[i]
        if op == "powi":
            assert isinstance(value, int)
            n = abs(value)
            low, sign = (0, 1) if value > 0 else (-n, -1)
            terms = [
                apply(
                    "mul",
                    apply("powi", u, value=k + low),
                    apply("powi", v, value=(n - 1 - k) if sign > 0 else -1 - k),
                )
                for k in range(n)
            ]
            total = reduce(lambda s, t: apply("add", s, t), terms)
            return total if sign > 0 else apply("neg", total)
        if op == "sqrt":
            return apply("div", const(1), apply("add", i, there))
        if op in ("exp", "expm1"):
            return apply("mul", apply("exp", v), apply("div", apply("expm1", w), w))
        if op in ("log", "log1p", "powr"):
            base = apply("add", const(1), v) if op == "log1p" else v
            z = apply("div", w, base)
            if op == "powr":
                assert isinstance(value, Fraction)
                top = apply("sub", apply("powr", apply("add", const(1), z), value=value), const(1))
                return apply("mul", apply("div", there, base), apply("div", top, z))
            return apply("div", apply("div", apply("log1p", z), z), base)
        if op in ("sin", "cos"):
            wave = apply("div", apply("sin", half), half)
            return apply("mul", wave, apply("cos", mean) if op == "sin" else apply("neg", apply("sin", mean)))
        if op in _HYPERBOLIC:
            wave = apply("div", apply("sinh", half), half)
            return apply("mul", wave, apply(_HYPERBOLIC[op], mean))
        if op in ("tan", "tanh", "sigmoid"):
            numerator, below = ("sin", "cos") if op == "tan" else ("sinh", "cosh")
            if op == "sigmoid":
                u, v, w = apply("div", u, const(2)), apply("div", v, const(2)), half
            ends = apply("mul", apply(below, u), apply(below, v))
            slope = apply("div", apply("div", apply(numerator, w), w), ends)
            return apply("div", slope, const(4)) if op == "sigmoid" else slope
        raise _Unknown
