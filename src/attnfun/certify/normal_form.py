"""Sums of monomials over real atoms, with exact coefficients and exponents: what two equal functions become equal in.

| symbol | meaning |
| --- | --- |
| atom | a function stored once: a variable, π, an integer n > 1, exp(M), log a, sin S, |a|, -a, a sum S as `base`, … |
| monomial M | Π a_i^{q_i}, q_i rational; atoms by number, sorted |
| sum S | Σ c_M M, c_M rational: a dict, never changed after it was made |
| tidy S | brackets multiplied out, numerators reduced by their denominators: the form of every argument of a function |
| split S | c·M with the sum as a product of its irreducible factors: the form that powers and logarithms take apart |

Every step here is an identity of real functions wherever the powers that occur exist, and whoever forms a power has
proved that it does: a^q with q < 0 needs a ≠ 0, with a fraction q it needs a ≥ 0. So x^a·x^b = x^{a+b} throughout.
Factors are found by FLINT and multiplied again before they are believed.
Failure modes: a product past MAX_TERMS stays unexpanded (equal functions may then look different); a sum past MAX_SUM
raises TooLarge, work past MAX_STEPS OutOfSteps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import comb, floor, gcd, lcm
from typing import Any, Final

import flint

from attnfun.language import Builder

Monomial = tuple[tuple[int, Fraction], ...]
Sum = dict[Monomial, Fraction]
Key = tuple[tuple[Monomial, Fraction], ...]

UNIT: Final[Monomial] = ()
MAX_TERMS: Final = 400  # of a product that is multiplied out
MAX_SUM: Final = 40_000  # of any sum
MAX_STEPS: Final = 200_000  # products of two terms, in one comparison
_STEPS_EACH: Final = 100  # the same for each operation of the target, where that is more
_SPANNED, _LONG = 24, 12  # bases that are told by fewer, and terms of one of them from which on it is worth while
_SPLIT: Final = 20  # steps a term that taking a sum apart counts for
MAX_BITS: Final = 20_000  # of a coefficient
FACTOR_TERMS: Final = 200
FACTOR_DEGREE: Final = 40  # in one atom


class TooLarge(Exception):
    """A form outgrew its cap. Never an answer."""


class OutOfSteps(Exception):
    """A comparison took more than MAX_STEPS. Nobody but its caller goes on after that. Never an answer."""


@dataclass(frozen=True)
class Atom:
    """`kind` and what identifies it: a name, an integer, another atom's number, a monomial, or the key of a sum."""

    kind: str
    of: Any = None


def constant(value: Fraction | int) -> Sum:
    return {UNIT: Fraction(value)} if value else {}


def scale(s: Sum, c: Fraction | int) -> Sum:
    return {m: v * c for m, v in s.items()} if c else {}


def key(s: Sum) -> Key:
    return tuple(sorted(s.items()))


def leading(s: Sum) -> Fraction:
    """The coefficient of the last monomial in the order of atoms."""
    return s[max(s)]


def content(s: Sum) -> Fraction:
    """The rational c with s = c·t, t of coprime integer coefficients and positive leading coefficient."""
    numerator, denominator = 0, 1
    for v in s.values():
        numerator, denominator = gcd(numerator, v.numerator), lcm(denominator, v.denominator)
    c = Fraction(numerator, denominator)
    return c if leading(s) > 0 else -c


class Forms:
    """The table of atoms of one comparison, and the arithmetic of sums over them."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.atoms: list[Atom] = []
        self.steps, self.most = 0, MAX_STEPS
        self._index: dict[Hashable, int] = {}
        self._expressions: dict[int, int] = {}
        self._splits: dict[Key, tuple[Fraction, Monomial]] = {}
        self._powers: dict[tuple[int, int], Sum] = {}

    def admit(self, operations: int) -> None:
        """Leave room for a comparison with a target of so many operations."""
        self.most = max(self.most, _STEPS_EACH * operations)

    def atom(self, kind: str, of: Any = None) -> int:
        at = self._index.get((kind, of))
        if at is None:
            at = self._index[(kind, of)] = len(self.atoms)
            self.atoms.append(Atom(kind, of))
        return at

    def single(self, a: int, q: Fraction | int = 1) -> Sum:
        c, m = self.monomial({a: Fraction(q)})
        return {m: c}

    # --- products -----------------------------------------------------------------------------------------------------

    def monomial(self, exponents: dict[int, Fraction]) -> tuple[Fraction, Monomial]:
        """c·M = Π a^q with integer powers of integers, of -a and even ones of |a| carried out."""
        c = Fraction(1)
        for a, q in list(exponents.items()):
            atom = self.atoms[a]
            if atom.kind == "int":
                n = floor(q)
                if n and abs(n) * atom.of.bit_length() > MAX_BITS:
                    raise TooLarge("a coefficient")
                c, exponents[a] = c * Fraction(atom.of) ** n, q - n
            elif atom.kind == "neg":
                n = floor(q)
                c, exponents[a] = c * (-1) ** (n % 2), q - n
                exponents[atom.of] = exponents.get(atom.of, Fraction(0)) + n
            elif atom.kind == "abs":
                n = 2 * floor(q / 2)
                exponents[a] = q - n
                exponents[atom.of] = exponents.get(atom.of, Fraction(0)) + n
        return c, tuple(sorted((a, q) for a, q in exponents.items() if q))

    def times(self, m: Monomial, n: Monomial) -> tuple[Fraction, Monomial]:
        if not m or not n:
            return Fraction(1), m or n
        exponents = dict(m)
        for a, q in n:
            exponents[a] = exponents.get(a, Fraction(0)) + q
        return self.monomial(exponents)

    def add(self, *sums: Sum) -> Sum:
        out: Sum = dict(sums[0])
        for s in sums[1:]:
            self._work(len(s))
            for m, c in s.items():
                _collect(out, m, c)
        if len(out) > MAX_SUM:
            raise TooLarge("a sum")
        return out

    def distribute(self, s: Sum, t: Sum) -> Sum:
        """s·t, every term with every term."""
        self._work(len(s) * len(t))
        out: Sum = {}
        for m, c in s.items():
            for n, d in t.items():
                k, mn = self.times(m, n)
                _collect(out, mn, c * d * k)
        return out

    def multiply(self, s: Sum, t: Sum) -> Sum:
        """s·t; two proper sums are kept as a product of their factors until `tidy` needs them multiplied out."""
        if len(s) > 1 and len(t) > 1:
            (c, m), (d, n) = self.split(s), self.split(t)
            s, t = {m: c} if c else {}, {n: d} if d else {}
        return self.distribute(s, t)

    def whole_power(self, c: Fraction, m: Monomial, n: int) -> Sum:
        """(c·M)^n; for n < 0 the caller has proved it is not 0."""
        if abs(n) * max(c.numerator.bit_length(), c.denominator.bit_length()) > MAX_BITS:
            raise TooLarge("a coefficient")
        k, power = self.monomial({a: q * n for a, q in m})
        return {power: k * c**n}

    # --- brackets multiplied out --------------------------------------------------------------------------------------

    def expand(self, s: Sum, most: int = MAX_TERMS) -> Sum:
        """Whole positive powers of bases multiplied out, cos² = 1 - sin². TooLarge past `most` terms."""
        while True:
            out: Sum = {}
            again = False
            for m, c in s.items():
                hit = next(((a, q) for a, q in m if q >= 1 and self._opens(a, q)), None)
                if hit is None:
                    _collect(out, m, c)
                    continue
                again = True
                a, q = hit
                n = floor(q) if self.atoms[a].kind == "base" else 2 * floor(q / 2)
                rest = tuple((b, p - n if b == a else p) for b, p in m if b != a or p != n)
                for product, d in self.distribute({rest: c}, self._power_of(a, n, most)).items():
                    _collect(out, product, d)
                if len(out) > most:
                    raise TooLarge("a product of sums")
            s = out
            if not again:
                return s

    def _opens(self, a: int, q: Fraction) -> bool:
        kind = self.atoms[a].kind
        return kind == "base" or (kind == "cos" and q >= 2)

    def _power_of(self, a: int, n: int, most: int) -> Sum:
        """a^n as a sum: S^n for a base S, (1 - sin²)^{n/2} for a cosine."""
        known = self._powers.get((a, n))
        if known is None:
            atom = self.atoms[a]
            inner = dict(atom.of)
            if atom.kind == "cos":
                sine = self.atom("sin", atom.of)
                inner, exponent = {UNIT: Fraction(1), ((sine, Fraction(2)),): Fraction(-1)}, n // 2
            else:
                exponent = n
            if comb(exponent + len(inner) - 1, len(inner) - 1) > most:
                raise TooLarge("a power of a sum")
            known = constant(1)
            for _ in range(exponent):
                known = self.distribute(known, inner)
            self._powers[(a, n)] = known
        return known

    def together(self, s: Sum, most: int = MAX_TERMS) -> tuple[Sum, Monomial]:
        """(N, D) with s = N·D, N without negative powers of bases and cosines, multiplied out."""
        denominator: Monomial = UNIT
        while True:
            lows: dict[int, Fraction] = {}
            for m in s:
                for a, q in m:
                    if q < 0 and self.atoms[a].kind in ("base", "cos"):
                        lows[a] = min(lows.get(a, Fraction(0)), Fraction(floor(q)))
            if not lows:
                return self.expand(s, most), denominator
            lift = tuple(sorted((a, -q) for a, q in lows.items()))
            _, denominator = self.times(denominator, tuple((a, -q) for a, q in lift))  # bases and cosines: no factor
            s = self.expand(self.distribute({lift: Fraction(1)}, s), most)

    def is_zero(self, s: Sum) -> bool:
        """True only if s = 0 wherever its powers exist (the denominators that are cleared do not vanish there)."""
        if not s:
            return True
        fewer = self._in_span(s)
        return not self.together(fewer, MAX_SUM)[0] or (fewer is not s and not self.together(s, MAX_SUM)[0])

    def _in_span(self, s: Sum) -> Sum:
        """A sum that vanishes only if s does: few long sums of which s is made as sums of new atoms t_1, t_2, ….

        Let the bases of s be B_k = c_k + Σ λ_kj t_j, t_j some of the B_k without their constants, and the terms of s
        that occur in the B_k Σ μ_j t_j; an atom that is a term of a B_k counts as one where it is a factor. What
        vanishes for all numbers t_j vanishes for these. s itself where the B_k are independent, short or many.
        """
        powers = {a: q for m in s for a, q in m if self.atoms[a].kind == "base"}
        bases = {a: {m: c for m, c in self.atoms[a].of if m} for a in powers}
        if not 1 < len(bases) <= _SPANNED or max(len(b) for b in bases.values()) < _LONG:
            return s
        own = {m for b in bases.values() for m in b}
        beside = (a for m in s if m not in own for a, _ in m if a not in bases)
        bases |= {a: self.single(a) for a in beside if ((a, Fraction(1)),) in own}
        if len(bases) > _SPANNED:
            return s
        rows = [*bases.values(), {m: c for m, c in s.items() if m in own}]
        self._work(len(rows) ** 2 * len(own))
        spanned = _spanned(rows)
        if spanned is None or spanned[0] == len(bases):
            return s
        units = [self.atom("span", j) for j in range(spanned[0])]
        forms: list[Sum] = [{((units[j], Fraction(1)),): c for j, c in row.items() if c} for row in spanned[1]]
        new: dict[int, int] = {}
        for a, form in zip(bases, forms, strict=False):
            constant_term = dict(self.atoms[a].of).get(UNIT, Fraction(0)) if a in powers else Fraction(0)
            new[a] = self.atom("base", key(self.add(form, constant(constant_term))))
        if len(set(new.values())) < len(new):
            return s
        out: Sum = dict(forms[-1])
        for m, c in s.items():
            if m not in own:
                k, n = self.monomial({new.get(a, a): q for a, q in m})
                _collect(out, n, c * k)
        return out

    def tidy(self, s: Sum) -> Sum:
        """s multiplied out, and N/B^k = Q/B^{k-1} + R/B^k for its denominators B; s itself where that is too large."""
        try:
            s = self.expand(s)
            groups: dict[Monomial, Sum] = {}
            for m, c in s.items():
                low = tuple((a, Fraction(floor(q))) for a, q in m if q < 0 and self.atoms[a].kind == "base")
                k, numerator = self.times(m, tuple((a, -q) for a, q in low))
                _collect(groups.setdefault(low, {}), numerator, c * k)
            if not any(groups):
                return s
            parts = [self._reduce(numerator, low) for low, numerator in groups.items()]
            return self.add(*parts)
        except TooLarge:
            return s

    def _reduce(self, numerator: Sum, denominator: Monomial) -> Sum:
        """numerator·denominator with each base B of the denominator divided out as often as it goes."""
        out: Sum = {}
        left = dict(denominator)
        for a, _ in denominator:
            while left[a] < 0:
                divided = self._divide(numerator, dict(self.atoms[a].of))
                if divided is None:
                    break
                numerator, remainder = divided
                self._gather(out, remainder, left)
                left[a] += 1
        self._gather(out, numerator, left)
        return out

    def _gather(self, out: Sum, s: Sum, exponents: dict[int, Fraction]) -> None:
        c, m = self.monomial(dict(exponents))
        for n, d in self.distribute({m: c}, s).items():
            _collect(out, n, d)

    # --- factors ------------------------------------------------------------------------------------------------------

    def split(self, s: Sum) -> tuple[Fraction, Monomial]:
        """c·M = s, M a product of powers of atoms and of irreducible sums (bases); c = 0 for a sum that vanishes."""
        if len(s) <= 1:
            return next(((c, m) for m, c in s.items()), (Fraction(0), UNIT))
        name = key(s)
        known = self._splits.get(name)
        if known is None:
            known = self._splits[name] = self._split(s)
        return known

    def _split(self, s: Sum) -> tuple[Fraction, Monomial]:
        denominator: Monomial = UNIT
        self._work(_SPLIT * len(s))
        with suppress(TooLarge):
            s, denominator = self.together(s)
        if not s:
            return Fraction(0), UNIT
        common = dict(next(iter(s)))
        for m in s:
            exponents = dict(m)
            for a in {*common, *exponents}:
                common[a] = min(common.get(a, Fraction(0)), exponents.get(a, Fraction(0)))
        shared = tuple(sorted((a, q) for a, q in common.items() if q))
        k, total = self.times(shared, denominator)
        lowered = self._lower(s, shared)
        c = content(lowered) * k
        if len(lowered) == 1:
            d, total = self.times(total, next(iter(lowered)))
            return c * d, total
        sign, factors = self._factors(scale(lowered, 1 / content(lowered)))
        c *= sign
        for factor, n in factors:
            d, total = self.times(total, ((self.atom("base", key(factor)), Fraction(n)),))
            c *= d
        return c, total

    def _lower(self, s: Sum, shared: Monomial) -> Sum:
        """s divided by the monomial all its terms share, exponent by exponent."""
        out: Sum = {}
        for m, c in s.items():
            exponents = dict(m)
            for a, q in shared:
                exponents[a] = exponents.get(a, Fraction(0)) - q
            out[tuple(sorted((a, q) for a, q in exponents.items() if q))] = c
        return out

    def _factors(self, s: Sum) -> tuple[Fraction, list[tuple[Sum, int]]]:
        """s = c·Π F^n, F irreducible, primitive, with positive leading coefficient; F = s if that is too large."""
        ring = _Ring.of(s) if len(s) <= FACTOR_TERMS else None
        if ring is None:
            return Fraction(1), [(s, 1)]
        polynomial = ring.polynomial(s)
        unit, found = polynomial.factor()
        again = ring.context.constant(unit)
        for factor, n in found:
            again *= factor ** int(n)
        if again != polynomial:
            return Fraction(1), [(s, 1)]
        c, out = Fraction(int(unit.numerator), int(unit.denominator)), []
        for factor, n in found:
            plain = ring.sum(factor)
            c *= content(plain) ** int(n)
            out.append((scale(plain, 1 / content(plain)), int(n)))
        return c, out

    def _divide(self, s: Sum, by: Sum) -> tuple[Sum, Sum] | None:
        """(Q, R) with s = Q·by + R, or None where either is no polynomial or nothing can be taken out."""
        ring = _Ring.of(s, by) if s and len(s) <= MAX_TERMS else None
        if ring is None:
            return None
        dividend, divisor = ring.polynomial(s), ring.polynomial(by)
        quotient, remainder = divmod(dividend, divisor)
        if quotient == 0 or quotient * divisor + remainder != dividend:
            return None
        return ring.sum(quotient), ring.sum(remainder)

    # --- back to expressions ------------------------------------------------------------------------------------------

    def expression(self, s: Sum) -> int:
        """The node of the builder that computes s."""
        apply = self.builder.apply
        total: int | None = None
        for m, c in s.items():
            node: int | None = None
            for a, q in m:
                value: int | Fraction = int(q) if q.denominator == 1 else q
                power = apply("powi" if isinstance(value, int) else "powr", self.atom_expression(a), value=value)
                node = power if node is None else apply("mul", node, power)
            term = self.builder.const(c) if node is None else apply("mul", self.builder.const(c), node)
            total = term if total is None else apply("add", total, term)
        return self.builder.const(0) if total is None else total

    def atom_expression(self, a: int) -> int:
        node = self._expressions.get(a)
        if node is None:
            node = self._expressions[a] = self._atom_expression(self.atoms[a])
        return node

    def _atom_expression(self, atom: Atom) -> int:
        apply = self.builder.apply
        match atom.kind:
            case "var":
                return self.builder.var(atom.of)
            case "pi":
                return apply("pi")
            case "int":
                return self.builder.const(atom.of)
            case "exp":
                return apply("exp", self.expression({atom.of: Fraction(1)}))
            case "neg" | "abs" | "log":
                return apply(atom.kind, self.atom_expression(atom.of))
            case "base":
                return self.expression(dict(atom.of))
            case "pow":
                return apply("pow", *(self.expression(dict(k)) for k in atom.of))
        op, _, whole = atom.kind.partition(" ")
        return apply(op, self.expression(dict(atom.of)), value=int(whole) if whole else None)

    def _work(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self.most:
            raise OutOfSteps("the comparison")


def _spanned(rows: list[Sum]) -> tuple[int, list[dict[int, Fraction]]] | None:
    """(r, for every row its coefficients in r of the rows but the last); None where the last is not in their span."""
    reduced: list[tuple[Monomial, Sum, dict[int, Fraction]]] = []  # pivot, row with 1 there, and what it is made of
    found: list[dict[int, Fraction]] = []
    for number, row in enumerate(rows):
        left, made = dict(row), dict[int, Fraction]()
        for pivot, other, parts in reduced:
            c = left.get(pivot)
            if c:
                for m, v in other.items():
                    _collect(left, m, -c * v)
                for j, v in parts.items():
                    made[j] = made.get(j, Fraction(0)) + c * v
        if left:
            if number == len(rows) - 1:
                return None
            pivot, unit = min(left), len(reduced)
            c = left[pivot]
            parts = {j: -v / c for j, v in made.items()} | {unit: 1 / c}
            reduced.append((pivot, scale(left, 1 / c), parts))
            made = {unit: Fraction(1)}
        found.append(made)
    return len(reduced), found


def _collect(out: Sum, m: Monomial, c: Fraction) -> None:
    total = out.get(m, 0) + c
    if total:
        out[m] = Fraction(total)
    else:
        out.pop(m, None)


@dataclass(frozen=True)
class _Ring:
    """Polynomials in t_a = a^{1/d_a}: the atoms of some sums, with d_a the denominators of their exponents."""

    atoms: tuple[int, ...]
    roots: tuple[int, ...]
    context: Any

    @classmethod
    def of(cls, *sums: Sum) -> _Ring | None:
        """None where an exponent is negative or its degree in t_a passes FACTOR_DEGREE."""
        roots: dict[int, int] = {}
        tops: dict[int, Fraction] = {}
        for a, q in _powers(sums):
            if q < 0:
                return None
            roots[a], tops[a] = lcm(roots.get(a, 1), q.denominator), max(tops.get(a, q), q)
        if any(tops[a] * roots[a] > FACTOR_DEGREE for a in roots):
            return None
        atoms = tuple(sorted(roots))
        context = flint.fmpq_mpoly_ctx.get([f"t{a}" for a in atoms], "lex")
        return cls(atoms, tuple(roots[a] for a in atoms), context)

    def polynomial(self, s: Sum) -> Any:
        rows = {}
        for m, c in s.items():
            exponents = dict(m)
            row = tuple(int(exponents.get(a, 0) * d) for a, d in zip(self.atoms, self.roots, strict=True))
            rows[row] = flint.fmpq(c.numerator, c.denominator)
        return self.context.from_dict(rows)

    def sum(self, polynomial: Any) -> Sum:
        out: Sum = {}
        for row, c in polynomial.to_dict().items():
            pairs = zip(self.atoms, row, self.roots, strict=True)
            m = tuple((a, Fraction(int(n), d)) for a, n, d in pairs if n)
            out[m] = Fraction(int(c.numerator), int(c.denominator))
        return out


def _powers(sums: Iterable[Sum]) -> Iterable[tuple[int, Fraction]]:
    return (pair for s in sums for m in s for pair in m)
