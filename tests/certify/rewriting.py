"""Programs made from targets by rewrites that may or may not be allowed, and a judge that looks at values only."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from flint import arb

from attnfun.errors import InvalidRequest
from attnfun.language import BallAlgebra, Builder, Graph, Node, precision, run
from attnfun.language.domain import Box

HALF = Fraction(1, 2)
FUNCTIONS = (
    "sin", "cos", "tan", "exp", "log", "sqrt", "abs", "relu", "sign", "tanh", "sigmoid", "log1p", "asin", "acos",
    "atan", "sinh", "cosh", "softplus", "expm1", "neg", "erf",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "max", "min", "pow")


def random_graph(rng: random.Random, size: int) -> Graph:
    builder = Builder()
    pool = [builder.var("x"), builder.var("y"), builder.const(rng.choice([1, 2, -1, 3, HALF]))]
    for _ in range(size):
        kind = rng.random()
        try:
            if kind < 0.35:
                node = builder.apply(rng.choice(FUNCTIONS), rng.choice(pool))
            elif kind < 0.5:
                node = builder.apply("powi", rng.choice(pool), value=rng.choice([2, 3, -1, -2, 4]))
            elif kind < 0.6:
                node = builder.apply(
                    "powr", rng.choice(pool), value=rng.choice([HALF, 3 * HALF, -HALF, Fraction(1, 3)])
                )
            else:
                node = builder.apply(rng.choice(BINARY), rng.choice(pool[-4:]), rng.choice(pool))
        except InvalidRequest:
            continue
        pool.append(node)
    return builder.graph([pool[-1]])


class _B:
    """Shorthand for building: numbers become constants."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def __call__(self, op: str, *args: int | Fraction | tuple[int], value: int | Fraction | None = None) -> int:
        nodes = [self.builder.const(a[0]) if isinstance(a, tuple) else int(a) for a in args]
        return self.builder.apply(op, *nodes, value=value)


Rule = Callable[[_B, Node, tuple[int, ...]], int | None]


def _unary(op: str, make: Callable[[_B, int], int]) -> Rule:
    return lambda b, node, args: make(b, args[0]) if node.op == op else None


def _binary(op: str, make: Callable[[_B, int, int], int]) -> Rule:
    return lambda b, node, args: make(b, args[0], args[1]) if node.op == op else None


def _inner(outer: str, inner: str, make: Callable[[_B, tuple[int, ...], Node], int]) -> Rule:
    """outer(inner(…)) replaced by something made of the inner node's arguments."""

    def rule(b: _B, node: Node, args: tuple[int, ...]) -> int | None:
        below = b.builder.node(args[0]) if args else None
        return make(b, below.args, node) if node.op == outer and below is not None and below.op == inner else None

    return rule


def _exponent(b: _B, base: int, q: Fraction) -> int:
    return b("powi", base, value=int(q)) if q.denominator == 1 else b("powr", base, value=q)


def _square(b: _B, u: int) -> int:
    return b("powi", u, value=2)


def _split_power(b: _B, a: tuple[int, ...], n: Node) -> int:
    q = Fraction(n.value)  # type: ignore[arg-type]
    return b("mul", _exponent(b, a[0], q), _exponent(b, a[1], q))


RULES: tuple[Rule, ...] = (
    # true everywhere
    _binary("mul", lambda b, u, v: b("div", b("sub", _square(b, b("add", u, v)), _square(b, b("sub", u, v))), (4,))),
    _binary("max", lambda b, u, v: b("add", v, b("relu", b("sub", u, v)))),
    _binary("min", lambda b, u, v: b("sub", u, b("relu", b("sub", u, v)))),
    _unary("abs", lambda b, u: b("sub", b("mul", (2,), b("relu", u)), u)),
    _unary("cos", lambda b, u: b("sub", (1,), b("mul", (2,), _square(b, b("sin", b("div", u, (2,))))))),
    _unary("sin", lambda b, u: b("neg", b("sin", b("neg", u)))),
    _unary("tanh", lambda b, u: b("sub", b("mul", (2,), b("sigmoid", b("mul", (2,), u))), (1,))),
    _unary("softplus", lambda b, u: b("log", b("add", (1,), b("exp", u)))),
    _inner("exp", "add", lambda b, a, n: b("mul", b("exp", a[0]), b("exp", a[1]))),
    _unary("abs", lambda b, u: b("sqrt", _square(b, u))),
    # true under a condition
    _binary("mul", lambda b, u, v: b("exp", b("add", b("log", u), b("log", v)))),
    _binary("div", lambda b, u, v: b("exp", b("sub", b("log", u), b("log", v)))),
    _binary("div", lambda b, u, v: b("mul", u, b("powi", v, value=-1))),
    _binary("pow", lambda b, u, v: b("exp", b("mul", v, b("log", u)))),
    _unary("tan", lambda b, u: b("div", b("sin", u), b("cos", u))),
    _inner("log", "mul", lambda b, a, n: b("add", b("log", a[0]), b("log", a[1]))),
    _inner("log", "div", lambda b, a, n: b("sub", b("log", a[0]), b("log", a[1]))),
    _inner("log", "powi", lambda b, a, n: b("mul", (2,), b("log", a[0]))),
    _inner("sqrt", "mul", lambda b, a, n: b("mul", b("sqrt", a[0]), b("sqrt", a[1]))),
    _inner("sqrt", "powi", lambda b, a, n: a[0]),
    _inner("powr", "mul", _split_power),
    _inner("powi", "sqrt", lambda b, a, n: _exponent(b, a[0], Fraction(n.value) / 2)),  # type: ignore[arg-type]
    _inner("powr", "powi", lambda b, a, n: _exponent(b, a[0], Fraction(n.value) * 2)),  # type: ignore[arg-type]
    _inner("exp", "log", lambda b, a, n: a[0]),
    _unary("abs", lambda b, u: u),
    _unary("relu", lambda b, u: u),
    _unary("sign", lambda b, u: b("div", u, b("abs", u))),
    _unary("acos", lambda b, u: b("sub", b("div", b("pi"), (2,)), b("asin", u))),
    _unary("asin", lambda b, u: b("atan", b("div", u, b("sqrt", b("sub", (1,), _square(b, u)))))),
    # false
    _unary("sin", lambda b, u: b("sin", b("add", u, b("pi")))),
    _unary("cos", lambda b, u: b("cos", b("add", u, (1,)))),
    _unary("exp", lambda b, u: b("exp", b("neg", u))),
    _binary("add", lambda b, u, v: b("sub", u, v)),
    _binary("max", lambda b, u, v: b("add", v, b("relu", b("sub", v, u)))),
)  # fmt: skip


def rewritten(rng: random.Random, graph: Graph) -> Graph:
    """The graph again, with rules applied at random places."""
    builder = Builder()
    b = _B(builder)
    at: list[int] = []
    for node in graph.nodes:
        args = tuple(at[a] for a in node.args)
        here: int | None = None
        if rng.random() < 0.6:
            for rule in rng.sample(RULES, len(RULES)):
                try:
                    here = rule(b, node, args)
                except (InvalidRequest, ValueError):
                    here = None
                if here is not None:
                    break
        at.append(builder.apply(node.op, *args, value=node.value) if here is None else here)
    return builder.graph([at[o] for o in graph.outputs])


def mutated(rng: random.Random, graph: Graph) -> Graph:
    """The graph with one constant, operation or argument changed."""
    builder = Builder()
    which = rng.randrange(len(graph.nodes))
    at: list[int] = []
    for i, node in enumerate(graph.nodes):
        op, args, value = node.op, [at[a] for a in node.args], node.value
        if i == which:
            if op == "const" or (op in ("var", "pi", "e")):
                here = builder.apply(op, value=value)
                at.append(builder.apply("add", here, builder.const(Fraction(rng.choice([1, -1]), 10**15))))
                continue
            if op == "powi":
                value = int(value) + rng.choice([1, -1, 2])  # type: ignore[arg-type]
            elif op == "powr":
                value = Fraction(value) + Fraction(1, 7)  # type: ignore[arg-type]
            elif len(args) == 2:
                op = rng.choice([o for o in BINARY if o != op])
            else:
                op = rng.choice([o for o in FUNCTIONS if o != op])
        at.append(builder.apply(op, *args, value=value))
    return builder.graph([at[o] for o in graph.outputs])


def differ(p: Graph, f: Graph, box: Box, seed: int) -> str | None:
    """Where p is proved not to be f, or is undefined although f is defined; None if no such point was found.

    Balls of an argument that is exactly 1 may pass 1, so what asin and acos leave undefined proves nothing.
    """
    arcs = any(node.op in ("asin", "acos") for node in p.nodes)
    X = box.probe(60, np.random.default_rng(seed))
    with precision(160):
        env = {n: np.frompyfunc(arb, 1, 1)(X[:, k]) for k, n in enumerate(box.names)}
        left, right = (
            np.broadcast_to(np.asarray(run(g, BallAlgebra(clip_sqrt=True), env)[0], dtype=object), (len(X),))
            for g in (p, f)
        )
        for x, a, b in zip(X, left, right, strict=True):
            if not b.is_finite():
                continue
            if not a.is_finite() and arcs:
                continue
            if not a.is_finite():
                return f"undefined at {x}"
            if a - b > 0 or a - b < 0:
                return f"{a} is not {b} at {x}"
    return None
