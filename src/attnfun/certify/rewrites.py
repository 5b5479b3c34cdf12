"""The exact rewrites under which two expressions count as one function, in order, each with its side condition.

 1  + - * / and whole powers: arithmetic of sums (`normal_form`); S^-n needs S ≠ 0
 2  max(a,b) = (a+b+|a-b|)/2, min likewise, relu(a) = (a+|a|)/2; |a| = ±a where the sign of a is proved, |ab| = |a||b|
 3  tan = sin/cos (cos ≠ 0); sinh, cosh, tanh, sigmoid by exp; expm1(a) = exp(a)-1; softplus(a) = log(1+exp(a));
    log1p(a) = log(1+a); acos = π/2 - asin (argument in [-1,1]); sqrt(a) = a^(1/2); x**y = exp(y log x) (x > 0)
 4  exp(Σ c_i M_i) = Π exp(M_i)^{c_i};  exp(c log a) = a^c
 5  log(c Π a_i^{q_i}) = log c + Σ q_i log a_i: needs the product > 0, and each factor > 0 or, for an even q_i, then
    log|a_i|; factors of unproved sign stay together; log exp(M) = M; log n for n = 2^i 3^j …
 6  (c Π a_i^{q_i})^r, r a fraction: needs the product ≥ 0 (> 0 if r < 0), each factor ≥ 0 or an even q_i, then |a_i|;
    factors of unproved sign stay together, and then only factors > 0 leave them
 7  sin, asin, atan, erf, sign odd, cos even, others as `operations` has it; shifts of sin and cos by multiples of π/2
 8  cos² = 1 - sin² (under a root the other way); sin(nu), cos(nu) as polynomials of sin(u), cos(u), n ≤ MAX_MULTIPLE,
    where arguments are multiples of one another (u their greatest common divisor)
 9  sin(a + b) = sin a cos b + cos a sin b, cos likewise, for sums of at most MAX_PARTS monomials: only where the
    comparison fails without (`identity`)
10  where |a| remains: the points with a ≥ 0 and those with a ≤ 0 one after the other (`identity`)

`trusting` is on while the target itself is read: that it is defined makes its side conditions facts (log a: a > 0; …).
For the other graph every condition must be such a fact or be proved in balls; otherwise Undecided.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from math import floor, gcd, lcm
from typing import Final

from attnfun.certify.atom_signs import Knowledge
from attnfun.certify.normal_form import UNIT, Key, Monomial, Sum, constant, content, key, leading, scale
from attnfun.certify.signs import Sign
from attnfun.certify.view import Undecided, provided
from attnfun.language import Box, Graph, Node
from attnfun.language.graph import Value
from attnfun.language.operations import OPERATIONS

MAX_MULTIPLE: Final = 16
MAX_PARTS: Final = 4
PRIMES: Final = tuple(p for p in range(2, 1000) if all(p % k for k in range(2, int(p**0.5) + 1)))
HALF: Final = Fraction(1, 2)


class Rewrites:
    """The forms of the nodes of one builder (`about.signs.builder`) under what is known `about` their atoms.

    addition: waves of sums are taken apart (rule 9). `sums` says whether there were any.
    """

    def __init__(self, box: Box, addition: bool = False) -> None:
        self.about = Knowledge(box)
        self.addition, self.sums = addition, False
        self.forms = self.about.forms
        self.units: dict[Key, Fraction] = {}
        self._angles: dict[Key, set[Fraction]] = {}
        self._known: dict[int, Sum] = {}
        self._ratios: dict[Value, int] = {}

    def read(self, graph: Graph, trusting: bool) -> list[Sum]:
        """The form of every output, node by node; Undecided where a side condition of a node is not proved."""
        self.about.trusting = trusting
        builder = self.about.signs.builder
        at = builder.copy(graph.nodes)
        for i in at:
            if i not in self._known:
                node = builder.node(i)
                self._known[i] = self._node(node, list(node.args))
        return [self._known[at[o]] for o in graph.outputs]

    def begin_again(self) -> None:
        """Forget the forms, keep what is known of atoms; arguments that are multiples of one another get a unit."""
        for name, sizes in self._angles.items():
            numerator = denominator = 0
            for c in sizes:
                numerator, denominator = gcd(numerator, c.numerator), lcm(denominator or 1, c.denominator)
            unit = Fraction(numerator, denominator)
            if len(sizes) > 1 and max(sizes) <= MAX_MULTIPLE * unit and self.units.get(name) != unit:
                self.units[name], self.about.learnt = unit, True
        self._known.clear()
        self.about.forget_signs()

    @contextmanager
    def supposing(self, a: int, positive: bool) -> Iterator[None]:
        """Within: only the points with a ≥ 0 (≤ 0) count. No form outlives its supposition."""
        with self.about.supposing(a, positive):
            self.begin_again()
            try:
                yield
            finally:
                self.begin_again()

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _node(self, node: Node, args: list[int]) -> Sum:
        forms, op, value = self.forms, node.op, node.value
        if op == "const":
            assert isinstance(value, Fraction)
            return constant(value)
        if op in ("var", "pi"):
            return forms.single(forms.atom(op, value))
        if op == "e":
            return forms.single(forms.atom("exp", UNIT))
        if op in ("where", "floor", "round", "table"):
            raise Undecided(f"{op} has no normal form")
        a, at = self._known[args[0]], args[0]
        if op == "ratio":  # an atom of its argument and of what it continues
            atom = forms.atom(f"ratio {self._ratios.setdefault(value, len(self._ratios))}", key(forms.tidy(a)))
            provided(self.about.admitted(atom), f"could not prove that the quotient at {self.about.text(a)} is defined")
            return forms.single(atom)
        if len(args) == 2:
            return self._binary(op, a, self._known[args[1]], args)
        if op in ("powi", "powr"):
            assert isinstance(value, int | Fraction)
            return self._power(a, Fraction(value), at)
        return self._atom(op, a, at, value) if op in OPERATIONS and value is not None else self._unary(op, a, at)

    def _binary(self, op: str, a: Sum, b: Sum, args: list[int]) -> Sum:
        forms = self.forms
        if op == "add":
            return forms.add(a, b)
        if op == "sub":
            return forms.add(a, scale(b, -1))
        if op == "mul":
            return forms.multiply(a, b)
        if op == "div":
            return forms.multiply(a, self._power(b, Fraction(-1), args[1]))
        if op == "pow":
            return self._variable_power(a, b, args[0])
        gap = self._absolute(forms.add(a, scale(b, -1)), self.about.build("sub", *args))
        return scale(forms.add(a, b, scale(gap, 1 if op == "max" else -1)), HALF)

    def _unary(self, op: str, a: Sum, at: int) -> Sum:
        forms, one = self.forms, constant(1)
        match op:
            case "neg":
                return scale(a, -1)
            case "sqrt":
                return self._power(a, HALF, at)
            case "exp":
                return self._exp(a)
            case "expm1":
                return forms.add(self._exp(a), constant(-1))
            case "log":
                return self._log(a, at)
            case "log1p":
                return self._log(forms.add(one, a), self.about.build("add", self.about.signs.builder.const(1), at))
            case "softplus":
                return self._log(forms.add(one, self._exp(a)), None)
            case "sin" | "cos":
                return self._wave(op, a)
            case "tan":
                cosine = self._power(self._wave("cos", a), Fraction(-1), self.about.build("cos", at))
                return forms.multiply(self._wave("sin", a), cosine)
            case "sinh" | "cosh":
                other = scale(self._exp(scale(a, -1)), 1 if op == "cosh" else -1)
                return scale(forms.add(self._exp(a), other), HALF)
            case "tanh":
                square = self._exp(scale(a, 2))
                below = self._power(forms.add(square, one), Fraction(-1), None)
                return forms.multiply(forms.add(square, constant(-1)), below)
            case "sigmoid":
                return forms.multiply(self._exp(a), self._power(forms.add(one, self._exp(a)), Fraction(-1), None))
            case "abs":
                return self._absolute(a, at)
            case "relu":
                return scale(forms.add(a, self._absolute(a, at)), HALF)
            case "sign":
                sign = self.about.sign_of(a, at)
                if sign.strict:
                    return constant(1 if sign > 0 else -1)
            case "asin":
                return self._atom(op, a, at)
            case "acos":
                quarter = scale(forms.single(forms.atom("pi")), HALF)
                return forms.add(quarter, scale(self._atom("asin", a, at), -1))
        return self._atom(op, a, at)

    # --- powers, logarithms, exponentials -----------------------------------------------------------------------------

    def _power(self, s: Sum, r: Fraction, at: int | None) -> Sum:
        """s^r (rules 1 and 6)."""
        if r == 0:
            return constant(1)
        c, m = (None if r.denominator == 1 else self._cosine_square(s)) or self.about.split(s, at)
        if r.denominator == 1:
            if r < 0:
                self.about.require(c, m, "nonzero", at)
            return self.forms.whole_power(c, m, int(r)) if c else {}
        self.about.require(c, m, "nonnegative" if r > 0 else "positive", at)
        if not c:
            return {}
        exponents: dict[int, Fraction] = {}
        for a, q in self._take_apart(c, m, strict=r < 0):
            exponents[a] = exponents.get(a, Fraction(0)) + q * r
        k, power = self.forms.monomial(exponents)
        return {power: k}

    def _cosine_square(self, s: Sum) -> tuple[Fraction, Monomial] | None:
        """c − c sin²u as c cos²u (rule 8 the other way): under a root only, where it is |cos u|."""
        rest = {m: c for m, c in s.items() if m}
        if len(s) != 2 or len(rest) != 1:
            return None
        ((m, c),) = rest.items()
        if len(m) != 1 or m[0][1] != 2 or self.forms.atoms[m[0][0]].kind != "sin" or s.get(UNIT) != -c:
            return None
        return -c, ((self.forms.atom("cos", self.forms.atoms[m[0][0]].of), Fraction(2)),)

    def _take_apart(self, c: Fraction, m: Monomial, strict: bool) -> list[tuple[int, Fraction]]:
        """(b, q) with c·M = X·Π b^q for c·M ≥ 0 (> 0: strict), |c| among them as integers, every b ≥ 0, and > 0 if
        there is an X; X, if there is one, one atom more, the last.
        """
        positive = c > 0
        outside: list[tuple[int, Fraction]] = []
        weak: list[tuple[int, Fraction, int]] = []  # b ≥ 0 only: must stay inside with an X
        inside: list[tuple[int, Fraction]] = []
        signs = {a: self.about.atom_sign(a, strict=False) for a, _ in m}
        odd = {a: q.denominator == 1 and q % 2 == 1 for a, q in m}
        parted = any(odd[a] and not signs[a] for a in signs)
        for a, q in m:
            if odd[a] and not signs[a]:
                inside.append((a, q))
                continue
            plain = signs[a] > 0 or q.denominator > 1
            b = a if plain else self.forms.atom("neg" if signs[a] < 0 else "abs", a)
            positive ^= odd[a] and signs[a] < 0
            if strict or q < 0 or a in self.about.nonzero or (parted and self.about.atom_sign(a).strict):
                outside.append((b, q))
            else:
                weak.append((b, q, a))
        if not inside and positive:
            return [*outside, *((b, q) for b, q, _ in weak), *self._integers(abs(c))]
        for _, q, a in weak:  # taken back as it was
            inside.append((a, q))
            positive ^= odd[a] and signs[a] < 0
        if not inside:
            raise Undecided(f"{self.about.text({m: c})} has the wrong sign for a root or logarithm")
        if len(inside) == 1 and inside[0][1] == 1:
            a = inside[0][0] if positive else self.forms.atom("neg", inside[0][0])
            return [*outside, *self._integers(abs(c)), (a, Fraction(1))]
        k, product = self.forms.monomial(dict(inside))
        whole = self.forms.tidy({product: k if positive else -k})
        base = self.forms.atom("base", key(whole))
        return [*outside, *self._integers(abs(c)), (base, Fraction(1))]

    def _integers(self, c: Fraction) -> list[tuple[int, Fraction]]:
        """c > 0 as a product of powers of integer atoms: primes below 1000, and one cofactor a side."""
        out = []
        for n, q in ((c.numerator, Fraction(1)), (c.denominator, Fraction(-1))):
            for p in PRIMES:
                k = 0
                while n % p == 0:
                    n, k = n // p, k + 1
                if k:
                    out.append((self.forms.atom("int", p), k * q))
                if n == 1:
                    break
            if n > 1:
                out.append((self.forms.atom("int", n), q))
        return out

    def _log(self, s: Sum, at: int | None) -> Sum:
        """Rule 5."""
        c, m = self.about.split(s, at)
        self.about.require(c, m, "positive", at)
        total: Sum = {}
        for a, q in self._take_apart(c, m, strict=True):
            atom = self.forms.atoms[a]
            one = {atom.of: Fraction(1)} if atom.kind == "exp" else self.forms.single(self.forms.atom("log", a))
            total = self.forms.add(total, scale(one, q))
        return total

    def _exp(self, s: Sum) -> Sum:
        """Rule 4."""
        exponents: dict[int, Fraction] = {}
        for m, c in self.forms.tidy(s).items():
            first = self.forms.atoms[m[0][0]] if len(m) == 1 and m[0][1] == 1 else None
            a = first.of if first is not None and first.kind == "log" else self.forms.atom("exp", m)
            exponents[a] = exponents.get(a, Fraction(0)) + c
        k, power = self.forms.monomial(exponents)
        return {power: k}

    def _variable_power(self, x: Sum, y: Sum, at: int) -> Sum:
        """x**y = exp(y log x) for x > 0; else (x ≥ 0, y > 0) one atom, which only the target may bring in."""
        if self.about.sign_of(x, at) == Sign.POSITIVE:
            return self._exp(self.forms.multiply(y, self._log(x, at)))
        a = self.forms.atom("pow", (key(self.forms.tidy(x)), key(self.forms.tidy(y))))
        if not self.about.admitted(a):
            raise Undecided(f"could not prove that {self.about.text(x)} is positive on the domain")
        return self.forms.single(a)

    # --- kinks, waves, arcs -------------------------------------------------------------------------------------------

    def _absolute(self, s: Sum, at: int | None) -> Sum:
        """Rule 2: |c Π a^q|."""
        c, m = self.about.split(s, at)
        sign = self.about.product_sign(c, m, at, strict=False)
        if sign:
            return s if sign > 0 else scale(s, -1)
        exponents = dict(m)
        for a, q in m:
            if q.denominator == 1 and q % 2 and not self.about.atom_sign(a):
                size = self.forms.atom("abs", a)
                exponents[a] = q - 1
                exponents[size] = exponents.get(size, Fraction(0)) + 1
        k, power = self.forms.monomial(exponents)
        odd = sum(q.denominator == 1 and q % 2 == 1 and self.about.atom_sign(a) < 0 for a, q in m)
        return {power: abs(c) * k * (-1) ** odd}

    def _wave(self, op: str, s: Sum) -> Sum:
        """Rules 7 and 8: sin or cos of s."""
        forms = self.forms
        s = dict(forms.tidy(s))
        turn: Monomial = ((forms.atom("pi"), Fraction(1)),)
        rest = {m: c for m, c in s.items() if m != turn}
        negative = leading(rest) < 0 if rest else s.get(turn, 0) < 0
        factor = -1 if negative and op == "sin" else 1
        r = s.get(turn, Fraction(0)) * (-1 if negative else 1)
        quarter = floor(2 * r)
        angle = scale(rest, -1 if negative else 1)
        if r - Fraction(quarter, 2):
            angle[turn] = r - Fraction(quarter, 2)
        index = (quarter + (op == "cos")) % 4  # cos θ = sin(θ + π/2); sin, cos, -sin, -cos
        factor *= 1 if index < 2 else -1
        op = ("sin", "cos")[index % 2]
        if not angle:
            return constant(factor if op == "cos" else 0)
        if 1 < len(angle) <= MAX_PARTS:
            self.sums = True
            if self.addition:
                return scale(self._of_sum(op, list(angle.items())), factor)
        return scale(self._multiple(op, angle), factor)

    def _of_sum(self, op: str, terms: list[tuple[Monomial, Fraction]]) -> Sum:
        """Rule 9, one term after the other."""
        first, rest = {terms[0][0]: terms[0][1]}, terms[1:]
        if not rest:
            return self._wave(op, first)
        forms, other = self.forms, "cos" if op == "sin" else "sin"
        straight = forms.multiply(self._wave(op, first), self._of_sum("cos", rest))
        crossed = forms.multiply(self._wave(other, first), self._of_sum("sin", rest))
        return forms.add(straight, crossed if op == "sin" else scale(crossed, -1))

    def _multiple(self, op: str, angle: Sum) -> Sum:
        c = content(angle)
        size, direction = abs(c), scale(angle, 1 / abs(c))
        name = key(direction)
        self._angles.setdefault(name, set()).add(size)
        unit = self.units.get(name, size)
        n = size / unit
        if n.denominator != 1 or n > MAX_MULTIPLE:
            unit, n = size, Fraction(1)
        inner = key(scale(direction, unit))
        cosine, sine = self.forms.atom("cos", inner), self.forms.atom("sin", inner)
        coefficients = _chebyshev(int(n), 0 if op == "cos" else 1)
        out: Sum = {}
        for k, value in enumerate(coefficients):
            if value:
                _, m = self.forms.monomial({cosine: Fraction(k), sine: Fraction(op == "sin")})
                out[m] = Fraction(value)
        return self.forms.expand(out)

    def _atom(self, op: str, s: Sum, at: int, whole: Value = None) -> Sum:
        """op(s) of the argument as it is, or of ±s where op is odd or even; its condition must be known or proved."""
        entry, s = OPERATIONS[op], self.forms.tidy(s)
        if entry.parity < 0 and not s:
            return {}
        sign = -1 if entry.parity and s and leading(s) < 0 else 1
        inner = scale(s, sign)
        if op == "sign":
            inner = scale(inner, 1 / abs(content(inner)))
        a = self.forms.atom(op if whole is None else f"{op} {whole}", key(inner))
        if entry.needs is not None and not entry.needs.continuity and not self.about.admitted(a):
            provided(
                op == "asin" and self.about.signs.unit(at),
                f"could not prove that {op} of {self.about.text(s)} is defined",
            )
        return scale(self.forms.single(a), sign if entry.parity < 0 else 1)


def _chebyshev(n: int, kind: int) -> list[int]:
    """Coefficients in cos u of cos(nu) (kind 0), or of sin(nu)/sin(u) (kind 1)."""
    if kind == 1 and n == 0:
        return [0]
    n -= kind
    before, now = [1], [0, 1 + kind]
    for _ in range(n):
        doubled = [0, *(2 * v for v in now)]
        before, now = now, [v - (before[k] if k < len(before) else 0) for k, v in enumerate(doubled)]
    return before
