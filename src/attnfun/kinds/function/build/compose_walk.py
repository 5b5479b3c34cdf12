"""The walk of `compose`: from a target's graph to a program whose nonlinear steps are functions of one variable.

A *program* is a graph for the same function in which some nodes φ are marked as heads, each with an argument node U: φ
is a function of U alone, and U is affine in the variables and in other heads. The walk visits the target bottom up;
affine operations are free, every other node has a short list of alternatives, and the one with the fewest estimated
keys, then the fewest layers, is taken:

    fuse        φ = g(u) for a node u through which all paths to the variables pass (a dominator)
    fuse log    the same where u is a positive monomial: φ = g(exp(L)), L = Σ p_i log x_i
    logs        c Π b_i^p_i = c exp(Σ p_i log b_i), all b_i of one strict sign
    polarise    a b c = 9/8 r Σ ± ((α ± β ± γ)/3)³, a = r_a α, …, and so for four factors: one layer, more keys
    squares     a b = linear terms + ar br (((α+β)/2)² − ((α−β)/2)²), a = ac + ar α, b = bc + br β
    shift       u M = exp(log(u + c) + L) − c exp(L), u of either sign, M = exp(L) a positive monomial
    relu        max(a, b) = b + relu(a − b), min(a, b) = a − relu(a − b)
    log         log(c Π b_i^p_i) = log c + Σ p_i log b_i, no head of its own
    tensor      φ = g(u_1, u_2) or g(u_1, u_2, u_3), one head on a product grid, whatever g is

Every alternative is an exact identity on the box; signs are proved by ranges.
Failure mode: a product with factors that vanish and more than `_SPLIT` of them; a step whose argument is not finite on
the box.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property, partial
from itertools import product

from attnfun.certify.staircase import jumps
from attnfun.errors import Infeasible
from attnfun.kinds.function.build.compose_program import (
    PRODUCT,
    Factors,
    Finished,
    Nodes,
    Program,
    Ranges,
    depth,
    dyadic,
    step_graph,
)
from attnfun.kinds.function.build.compose_steps import MOST_KEYS, require_room, tensor_keys
from attnfun.kinds.function.build.unary.features import KINKS
from attnfun.language import Builder, Graph, Node
from attnfun.language.definedness import natural_domain
from attnfun.language.domain import Box
from attnfun.language.graph import FUNCTIONS, arguments_first, reached

_SPLIT = 5
_CANDIDATES = 6
_KINKED = 8  # kinks of a node above which a tensor head, which needs many keys for one, is not looked at
_WORK = 8_000  # operations, times kinks, of all steps that are weighed; past it the smallest step is taken


class Walk(Nodes):
    """Chooses, once for every node of the target, the cheapest alternative, and writes programs by those choices."""

    def __init__(
        self,
        target: Graph,
        box: Box,
        keys: Callable[[Graph, float, float], float],
        squares: frozenset[int] = frozenset(),
        shallow: bool = False,
        tensors: bool = True,
        stairs: Mapping[int, int] | None = None,
        apart: bool = False,
    ) -> None:
        """`squares`: nodes p² of the target that stay steps of their own; `shallow`: few layers before few keys;
        `tensors`: steps of several arguments are allowed; `stairs`: sums that are one step each, and their arguments;
        `apart`: kinks are steps of their own.
        """
        super().__init__(target, box)
        self.squares = {self.at[n] for n in squares}
        self.stairs = {self.at[n]: self.at[w] for n, w in (stairs or {}).items()}
        self.shallow, self.tensors, self.apart = shallow, tensors, apart
        self.keys = keys
        self._choice: dict[int, Callable[[Program], int]] = {}
        self._sizes: dict[tuple[Graph, Ranges], float] = {}
        self._spent = 0
        self._open: set[int] = set()
        self._least: dict[int, float] = {}  # keys of the best alternative so far, of nodes that are being chosen for

    def least_steps(self) -> int:
        """Different steps that every program has: operations on affine nodes, to which affine maps and then functions
        of one argument lead from the outputs, fused or not; those that are equal on equal ranges count once.
        """
        free = reached(self.outputs, lambda m: self._varying(m) if self.is_free(m) else ())
        own = (self._innermost(m) for m in free if not (self.constant(m) or self.is_free(m)))
        return len({(node.op, self.range(node.args[0])) for node in own if node is not None})

    def _innermost(self, n: int) -> Node | None:
        """The operation on an affine node to which functions of one argument lead from n, if they do."""
        node = self.source.node(n)
        while node.op in FUNCTIONS and node.op not in ("log", "sqrt"):
            inner = node.args[0]
            if self._affine(inner):
                return node
            while self.is_free(inner) and len(self._varying(inner)) == 1:
                (inner,) = self._varying(inner)
            node = self.source.node(inner)
        return None

    def is_free(self, n: int) -> bool:
        return n not in self.stairs and super().is_free(n)

    # ------------------------------------------------------------ writing

    def write(self, program: Program, n: int) -> int:
        """The node of `program` that computes source node n from variables and heads."""

        def needs(m: int) -> tuple[int, ...]:
            return self.arguments(m) if self.is_free(m) and not self.constant(m) else ()

        for m in arguments_first(n, needs, program.written):
            program.written[m] = self._write(program, m)
            program.meaning.setdefault(program.written[m], m)
        return program.written[n]

    def _write(self, program: Program, n: int) -> int:
        node = self.source.node(n)
        if self.constant(n) or node.op == "var":
            return self._copy(program, n, {})
        if self.is_free(n):
            return program.builder.apply(node.op, *(program.written[a] for a in node.args))
        return self.choose(n)(program)

    def _copy(self, program: Program, n: int, replaced: dict[int, int]) -> int:
        """Source node n in the program, with some source nodes replaced by program nodes."""
        made = dict(replaced)
        for m in arguments_first(n, self.arguments, made):
            node = self.source.node(m)
            made[m] = program.builder.apply(node.op, *(made[a] for a in node.args), value=node.value)
        return made[n]

    def choose(self, n: int) -> Callable[[Program], int]:
        """The cheapest alternative for a nonlinear node, by the estimated keys of the heads it needs on its own; of
        equal ones the first of least depth.
        """
        if n in self._choice:
            return self._choice[n]
        if n in self._open:
            raise Infeasible(f"compose: {self.text(n)} depends on itself")
        self._open.add(n)
        best, best_cost, reasons = None, (math.inf, math.inf), []
        for alternative in self._alternatives(n):
            trial = Program()
            try:
                alternative(trial)
                if self._spent > _WORK:
                    best = best or alternative
                    break
                cost = self.cost(trial), float(depth(trial.builder.nodes, trial.heads))
                cost = cost[::-1] if self.shallow else cost
            except Infeasible as why:
                reasons.append(str(why))
                continue
            if cost < best_cost:
                best, best_cost = alternative, cost
                self._least[n] = cost[1] if self.shallow else cost[0]
        self._open.discard(n)
        if best is None:
            raise Infeasible(reasons[0] if reasons else f"compose: no recipe for {self.text(n)}")
        self._choice[n] = best
        return best

    def cost(self, program: Program) -> float:
        """Estimated keys, and a little for every head."""
        total = 0.0
        for phi, arguments in program.heads.items():
            g, ranges = key = step_graph(program.builder, phi, arguments), program.ranges[phi]
            if key not in self._sizes and len(arguments) == 1:
                self._spent += len(g.nodes) * (1 + sum(node.op in KINKS for node in g.nodes))
                (low, high), (least, most) = ranges[0], natural_domain(g)
                self._sizes[key] = self.keys(g, max(low, least), min(high, most))
            elif key not in self._sizes:
                self._sizes[key] = tensor_keys(g, ranges)
            total += self._sizes[key] + 0.5
        return total

    # ------------------------------------------------------------ alternatives

    def _alternatives(self, n: int) -> Iterator[Callable[[Program], int]]:
        node = self.source.node(n)
        if n in self.squares:
            yield partial(self._fuse, n=n, u=node.args[0])
            return
        if n in self.stairs:
            yield partial(self._fuse, n=n, u=self.stairs[n])
            return
        if node.op in ("max", "min"):
            yield lambda p: self._relu(p, n)
        if node.op == "log" and self.is_monomial(node.args[0]):
            yield lambda p: self._log_product(p, node.args[0])
        candidates = [u for u in self.dominators(n) if not self.apart or self._is_apart(n, u)]
        for u in [*candidates[:_CANDIDATES], *candidates[max(_CANDIDATES, len(candidates) - 2) :]]:
            if self._spent > _WORK and u != candidates[-1]:
                continue
            yield partial(self._fuse, n=n, u=u)
            if self.is_monomial(u):
                yield partial(self._fuse_log, n=n, u=u)
        if node.op == "pow":
            exponent = self.source.apply("mul", node.args[1], self.source.apply("log", node.args[0]))
            power = self.source.apply("exp", exponent)
            yield lambda p: self.write(p, power)
        if node.op in PRODUCT:
            yield from self._products(n)
        if self.tensors and sum(one.op in KINKS for one in self.graph(n).nodes) <= _KINKED:
            for cut in self.cuts(n):
                yield partial(self._tensor, n=n, cut=cut)

    def _is_apart(self, n: int, u: int) -> bool:
        """Is n, as a function of u, one kink or without kinks?"""
        ops = [node.op for node in step_graph(self.source, n, (u,)).nodes]
        return len(ops) == 2 or not any(op in KINKS for op in ops)

    def _tensor(self, program: Program, n: int, cut: tuple[int, ...]) -> int:
        """One tensor head of g(cut); given up early where it is too large, or larger than what was found before."""
        g, ranges = step_graph(self.source, n, cut), tuple(self.range(c) for c in cut)
        keys, least = tensor_keys(g, ranges), math.inf if self.shallow else self._least.get(n, math.inf)
        if jumps(g) or not (keys <= MOST_KEYS and keys < least):
            raise Infeasible(f"compose: a tensor head for {self.text(n)} would need about {keys:.2g} keys")
        require_room(g, ranges)
        arguments = tuple(self.write(program, c) for c in cut)
        phi = self._copy(program, n, dict(zip(cut, arguments, strict=True)))
        return program.tensor(phi, arguments, ranges)

    def _fuse(self, program: Program, n: int, u: int) -> int:
        argument = self.write(program, u)
        phi = self._copy(program, n, {u: argument})
        return program.head(phi, argument, *self.range(u))

    def _fuse_log(self, program: Program, n: int, u: int) -> int:
        coefficient, sign, logarithm, ends = self._logarithm(program, self.factors(u))
        positive = program.builder.apply("exp", logarithm)
        scaled = self._scaled(program, coefficient, sign, positive)
        phi = self._copy(program, n, {u: scaled})
        return program.head(phi, logarithm, *ends)

    def _log_product(self, program: Program, u: int) -> int:
        """log(c Π b^p) = log(sign c) + Σ p log b: no head of its own."""
        coefficient, sign, logarithm, _ = self._logarithm(program, self.factors(u))
        constant = coefficient if sign > 0 else self.source.apply("neg", coefficient)
        if self.is_one(constant):
            return logarithm
        return program.builder.apply("add", self._copy(program, self.source.apply("log", constant), {}), logarithm)

    def _relu(self, program: Program, n: int) -> int:
        """The operand that stands outside the kink too is the affine one, if one is: its errors are counted twice."""
        node = self.source.node(n)
        args = node.args
        inner, outer = args if node.op == "max" else args[::-1]
        if self._affine(inner) and not self._affine(outer):
            args = args[::-1]
        a, b = (self.write(program, arg) for arg in args)
        difference = program.builder.apply("sub", a, b)
        ends = self.range(self.source.apply("sub", *args))
        kink = program.head(program.builder.apply("relu", difference), difference, *ends)
        return program.builder.apply("add", b, kink) if node.op == "max" else program.builder.apply("sub", a, kink)

    # ------------------------------------------------------------ products

    def _logarithm(self, program: Program, parts: tuple[int, Factors]) -> tuple[int, int, int, tuple[float, float]]:
        """(c, sign, L, range of L) with c · Π base^p = sign · c · exp(L); every base must be of one strict sign."""
        coefficient, factors = parts
        sign, total = 1, None
        low = high = 0.0
        for base, p in factors:
            s = self.sign(base)
            if s == 0 or (s < 0 and p.denominator != 1):
                raise Infeasible(f"compose: {self.text(base)} may vanish, so it has no logarithm")
            if s < 0 and p.numerator % 2:
                sign = -sign
            positive = base if s > 0 else self.source.apply("neg", base)
            node = self.source.node(positive)
            one = node.args[0] if node.op == "exp" else self.source.apply("log", positive)
            term = self.write(program, one)
            if p != 1:
                term = program.builder.apply("mul", program.builder.const(p), term)
            total = term if total is None else program.builder.apply("add", total, term)
            ends = [float(p) * end for end in self.range(one)]
            low, high = low + min(ends), high + max(ends)
        assert total is not None
        return coefficient, sign, total, (low, high)

    def _scaled(self, program: Program, coefficient: int, sign: int, node: int) -> int:
        value = self._copy(program, coefficient, {})
        out = node if self.is_one(coefficient) else program.builder.apply("mul", value, node)
        return out if sign > 0 else program.builder.apply("neg", out)

    def _products(self, n: int) -> Iterator[Callable[[Program], int]]:
        coefficient, factors = self.factors(n)
        groups = self.grouped(factors)
        if len(groups) < 2:
            return
        if all(self.sign(b) != 0 for b, _ in factors):
            yield lambda p: self._logs(p, (coefficient, factors))
        wild = [f for f in factors if self.sign(f[0]) == 0]
        if len(wild) == 1 and wild[0][1] == 1 and len(factors) >= 2 and not self.is_continued(wild[0][0]):
            tame = [f for f in factors if f is not wild[0]]
            yield lambda p: self._shift(p, coefficient, wild[0][0], tame)
        if len(groups) in (3, 4):
            yield lambda p: self._polarise(p, coefficient, groups)
        if len(groups) <= _SPLIT:
            for mask in range(1, 2 ** (len(groups) - 1)):
                left = [f for i, g in enumerate(groups) if mask >> i & 1 for f in g]
                right = [f for i, g in enumerate(groups) if not mask >> i & 1 for f in g]
                yield partial(self._squares, coefficient=coefficient, left=left, right=right)
        else:
            tame = [f for f in factors if self.sign(f[0]) != 0]
            if wild and tame:
                yield lambda p: self._squares(p, coefficient, wild, tame)

    def _logs(self, program: Program, parts: tuple[int, Factors]) -> int:
        coefficient, sign, logarithm, ends = self._logarithm(program, parts)
        phi = program.head(program.builder.apply("exp", logarithm), logarithm, *ends)
        return self._scaled(program, coefficient, sign, phi)

    def _shift(self, program: Program, coefficient: int, u: int, tame: Factors) -> int:
        low, high = self.range(u)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise Infeasible(f"compose: {self.text(u)} is not bounded on the box")
        c = dyadic(-low + (high - low) / 2)
        one, sign, logarithm, (bottom, top) = self._logarithm(program, (coefficient, tame))
        shifted = self.source.apply("log", self.source.apply("add", u, self.source.const(c)))
        both = program.builder.apply("add", self.write(program, shifted), logarithm)
        left, right = self.range(shifted)
        first = program.head(program.builder.apply("exp", both), both, bottom + left, top + right)
        second = program.head(program.builder.apply("exp", logarithm), logarithm, bottom, top)
        total = program.builder.apply("sub", first, program.builder.apply("mul", program.builder.const(c), second))
        return self._scaled(program, one, sign, total)

    def _polarise(self, program: Program, coefficient: int, groups: list[Factors]) -> int:
        """Π a_i = Π r_i n^n/(2^{n−1} n!) Σ_ε Π ε_i ((α_1 + Σ ε_i α_i)/n)^n over signs ε_2, …, ε_n, a_i = r_i α_i."""
        build, n, scale = program.builder, len(groups), Fraction(1)
        scaled = []
        for group in groups:
            node = self.product_node(group)
            low, high = self.range(node)
            if not (math.isfinite(low) and math.isfinite(high) and (low != 0 or high != 0)):
                raise Infeasible(f"compose: {self.text(node)} is not bounded on the box")
            r = dyadic(max(abs(low), abs(high)), up=True)
            scale *= r
            scaled.append(build.apply("div", self.write(program, node), build.const(n * r)))
        total = None
        for signs in product((1, -1), repeat=n - 1):
            argument = scaled[0]
            for sign, term in zip(signs, scaled[1:], strict=True):
                argument = build.apply("add" if sign > 0 else "sub", argument, term)
            power = program.head(build.apply("powi", argument, value=n), argument, -1.0, 1.0)
            op = "add" if math.prod(signs) > 0 else "sub"
            total = power if total is None else build.apply(op, total, power)
        assert total is not None
        weight = build.const(scale * n**n / (2 ** (n - 1) * math.factorial(n)))
        return self._scaled(program, coefficient, 1, build.apply("mul", weight, total))

    def _squares(self, program: Program, coefficient: int, left: Factors, right: Factors) -> int:
        """A product of two by two squares of centred, scaled factors; both squares see [-1, 1]."""
        build, a, b = program.builder, self.product_node(left), self.product_node(right)
        first, second = self.write(program, a), self.write(program, b)
        if a == b:
            square = program.head(build.apply("powi", first, value=2), first, *self.range(a))
            return self._scaled(program, coefficient, 1, square)
        (ac, ar), (bc, br) = (self.centred(n) for n in (a, b))
        alpha = build.apply("div", build.apply("sub", first, build.const(ac)), build.const(2 * ar))
        beta = build.apply("div", build.apply("sub", second, build.const(bc)), build.const(2 * br))
        squares = []
        for op in ("add", "sub"):
            argument = build.apply(op, alpha, beta)
            squares.append(program.head(build.apply("powi", argument, value=2), argument, -1.0, 1.0))
        total = build.apply("mul", build.const(ar * br), build.apply("sub", *squares))
        for centre, other in ((ac, second), (bc, first)):
            if centre:
                total = build.apply("add", total, build.apply("mul", build.const(centre), other))
        total = build.apply("sub", total, build.const(ac * bc)) if ac * bc else total
        return self._scaled(program, coefficient, 1, total)

    # ------------------------------------------------------------ the whole

    @cached_property
    def finished(self) -> Finished:
        """The program of all outputs, unused heads dropped, arguments before the heads that read them."""
        program = Program()
        outputs = [self.write(program, o) for o in self.outputs]
        graph = Graph(program.builder.nodes, tuple(outputs))
        needed = reached(outputs, lambda m: program.heads.get(m) or graph.nodes[m].args)
        order = [(phi, program.heads[phi]) for phi in sorted(needed) if phi in program.heads]
        plainly = self._plainly(program)
        return Finished(graph, tuple(order), tuple(tuple(plainly(u) for u in us) for _, us in order))

    def _plainly(self, program: Program) -> Callable[[int], Graph]:
        """A node of the program, its parts written as in the source; every node is written once for all of them."""
        build = Builder()
        source = build.copy(self.source.nodes)
        memo: dict[int, int] = {}

        def needs(n: int) -> tuple[int, ...]:
            return () if n in program.meaning else program.builder.node(n).args

        def plainly(u: int) -> Graph:
            for n in arguments_first(u, needs, memo):
                node = program.builder.node(n)
                if n in program.meaning:
                    memo[n] = source[program.meaning[n]]
                else:
                    memo[n] = build.apply(node.op, *(memo[a] for a in node.args), value=node.value)
            return build.graph([memo[u]])

        return plainly
