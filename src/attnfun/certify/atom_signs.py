"""What is known of the signs of atoms: proved in balls, following from the target being defined, or supposed.

| source | what it gives |
| --- | --- |
| facts | conditions the target itself sets (log a: a > 0, 1/a: a ≠ 0, sqrt a: a ≥ 0), true wherever it is defined |
| terms | a sum of terms of one sign has that sign |
| balls | `signs`, on the atom's own expression and on nodes that compute it up to known factors (hints) |
| suppositions | a ≥ 0 or a ≤ 0 while one of two cases is looked at, and what follows linearly from two of them |

Everything is a statement about the points of the box at which the target is defined and the suppositions hold.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import combinations
from typing import Final

from attnfun.certify.normal_form import UNIT, Forms, Monomial, Sum, TooLarge, scale
from attnfun.certify.signs import Sign, Signs
from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest
from attnfun.language.domain import Box
from attnfun.language.graph import reached

MAX_HINTS: Final = 3
_UNSEEN: Final = (Sign.UNKNOWN, False)
_PHRASES: Final = {"nonzero": "is not 0", "nonnegative": "is not negative", "positive": "is positive"}
_FACT_SIGNS: Final = {"positive": Sign.POSITIVE, "nonnegative": Sign.NONNEGATIVE}
_RANKS: Final = ("", "nonzero", "nonnegative", "positive")


class Knowledge:
    """Signs of the atoms of one comparison. `trusting`: conditions are taken as facts, not proved."""

    def __init__(self, box: Box) -> None:
        self.signs = Signs(box)
        self.forms = Forms(self.signs.builder)
        self.trusting = False
        self.learnt = False  # something was found out that earlier forms did not use
        self.supposed: list[Sum] = []
        self._facts: dict[tuple[bool, Monomial], str] = {}  # (c > 0, M): what c·M is
        self.nonzero: set[int] = set()
        self._admitted: set[int] = set()
        self._hints: dict[int, list[int]] = {}
        self._depths: dict[int, int] = {}
        self._signs: dict[int, tuple[Sign, bool]] = {}

    def forget_signs(self) -> None:
        """Work signs out anew from the facts (answers of balls are kept)."""
        self._signs.clear()

    def split(self, s: Sum, at: int | None) -> tuple[Fraction, Monomial]:
        """`Forms.split`; if s = (known)·(one sum), the node `at` that computes s tells the sign of that sum."""
        c, m = self.forms.split(s)
        bases = [(a, q) for a, q in m if self.forms.atoms[a].kind == "base"]
        if at is not None and len(s) > 1 and len(bases) == 1 and bases[0][1] == 1:
            a = bases[0][0]
            hints = self._hints.setdefault(a, [])
            rest = self.expression({tuple(pair for pair in m if pair[0] != a): c})
            hint = None if rest is None else self.build("div", at, rest)
            if hint is not None and hint not in hints and len(hints) < MAX_HINTS:
                hints.append(hint)
                if not self._signs.get(a, _UNSEEN)[0].strict:
                    self._signs.pop(a, None)
        return c, m

    def sign_of(self, s: Sum, at: int | None) -> Sign:
        c, m = self.split(s, at)
        return self.product_sign(c, m, at)

    def product_sign(self, c: Fraction, m: Monomial, at: int | None = None, strict: bool = True) -> Sign:
        """The sign of c·M from its atoms; then from the facts; then from the node `at` that computes it, in balls."""
        if not c:
            return Sign.NONNEGATIVE
        sign = Sign.POSITIVE if c > 0 else Sign.NEGATIVE
        for a, q in m:
            sign = sign.times(self._power_sign(a, q, strict))
        if sign.strict or (sign and not strict):
            return sign
        sign = max(sign, _FACT_SIGNS.get(self._facts.get((c > 0, m), ""), Sign.UNKNOWN), key=abs)
        if at is not None and not (sign.strict or (sign and not strict)):
            sign = max(sign, self.signs.of(at), key=abs)
        return sign

    def _power_sign(self, a: int, q: Fraction, strict: bool) -> Sign:
        if not strict and not (q.denominator == 1 and q % 2):
            return Sign.NONNEGATIVE
        sign = self.atom_sign(a, strict)
        if q.denominator == 1 and q % 2:
            return Sign.POSITIVE if sign == Sign.NONNEGATIVE and q < 0 else sign
        return Sign.POSITIVE if sign.strict or q < 0 or a in self.nonzero else Sign.NONNEGATIVE

    def atom_sign(self, a: int, strict: bool = True) -> Sign:
        """The sign of an atom; balls are asked only as far as the caller (`strict`: > 0 matters to him) needs."""
        sign, final = self._signs.get(a, (Sign.UNKNOWN, False))
        if not (final or sign.strict or (sign and not strict)):
            sign, final = self._find_sign(a, strict)
            if a in self.nonzero and sign:
                sign = Sign.POSITIVE if sign > 0 else Sign.NEGATIVE
            self._signs[a] = (sign, final)
        return sign

    def _find_sign(self, a: int, strict: bool) -> tuple[Sign, bool]:
        """The sign, and whether nothing more can be found out."""
        atom = self.forms.atoms[a]
        if atom.kind in ("int", "pi", "exp"):
            return Sign.POSITIVE, True
        if atom.kind == "abs":
            inner = self.atom_sign(atom.of) if strict else Sign.UNKNOWN
            return Sign.POSITIVE if inner.strict or atom.of in self.nonzero else Sign.NONNEGATIVE, strict
        if atom.kind == "neg":
            return -self.atom_sign(atom.of, strict), strict
        best = self._follows(a) if self.supposed else Sign.UNKNOWN
        for positive in (True, False):
            fact = _FACT_SIGNS.get(self._facts.get((positive, ((a, Fraction(1)),)), ""))
            if fact is not None and not best.strict:
                best = fact if positive else -fact
        if best.strict or (best and not strict):
            return best, best.strict
        if atom.kind == "base":
            signs = [self.product_sign(c, m) for m, c in atom.of]
            if all(s > 0 for s in signs) or all(s < 0 for s in signs):
                best = max(best, *signs, key=abs)
        own = self.expression({((a, Fraction(1)),): Fraction(1)})
        for node in (*self._hints.get(a, ()), own):
            if node is not None and not best.strict:
                best = max(best, self.signs.of(node), key=abs)
        return best, True

    def require(self, c: Fraction, m: Monomial, want: str, at: int | None) -> None:
        """Prove that c·M has the property `want`, or take it as a fact (`trusting`), or raise Undecided."""
        if want == "nonzero" and c and all(q < 0 or a in self.nonzero for a, q in m):
            return
        if self.trusting and c:
            self._take_as_fact(c, m, want)
            return
        sign = self.product_sign(c, m, at, strict=want != "nonnegative")
        if sign.strict if want == "nonzero" else sign >= (2 if want == "positive" else 1):
            if sign.strict:
                self._remember_nonzero(m)
            return
        what = self.text({m: c} if c else {})
        raise Undecided(f"could not prove that {what} {_PHRASES[want]} on the domain")

    def _take_as_fact(self, c: Fraction, m: Monomial, want: str) -> None:
        if _RANKS.index(self._facts.get((c > 0, m), "")) < _RANKS.index(want):
            self._facts[(c > 0, m)] = want
            self.learnt = True
            for a, _ in m:
                self._signs.pop(a, None)
        if want != "nonnegative":
            self._remember_nonzero(m)

    def _remember_nonzero(self, m: Monomial) -> None:
        """c·M ≠ 0 was proved, so no atom of M vanishes (one with a negative power never did)."""
        new = {a for a, _ in m if a not in self.nonzero and not self._signs.get(a, _UNSEEN)[0].strict}
        if new:
            self.nonzero |= new
            self.learnt = True
            for a in new:
                self._signs.pop(a, None)

    @contextmanager
    def supposing(self, a: int, positive: bool) -> Iterator[None]:
        """Within: only the points with a ≥ 0 (≤ 0) count. What is learnt there is forgotten afterwards."""
        kept = (self._facts, self.nonzero, self._admitted, self._hints)
        self._facts, self.nonzero, self._admitted = dict(self._facts), set(self.nonzero), set(self._admitted)
        self._hints = {b: list(hints) for b, hints in self._hints.items()}
        self._facts[(positive, ((a, Fraction(1)),))] = "nonnegative"
        self.supposed.append({((a, Fraction(1)),): Fraction(1 if positive else -1)})
        self.forget_signs()
        try:
            yield
        finally:
            self.supposed.pop()
            self._facts, self.nonzero, self._admitted, self._hints = kept
            self.forget_signs()

    def _follows(self, a: int) -> Sign:
        """The sign of a if ±a = λg + μh + c with λ, μ, c ≥ 0 for two suppositions g, h ≥ 0."""
        alone: Sum = {((a, Fraction(1)),): Fraction(1)}
        try:
            wanted, *given = (self.forms.expand(s) for s in (alone, *self.supposed))
        except TooLarge:
            return Sign.UNKNOWN
        pairs = [*combinations(given, 2), *((g, {}) for g in given)]
        for sign in (Sign.NONNEGATIVE, Sign.NONPOSITIVE):
            for g, h in pairs:
                left = _combination(scale(wanted, int(sign)), g, h)
                if left is not None:
                    return sign if not left else Sign(2 * int(sign))
        return Sign.UNKNOWN

    def impossible(self) -> bool:
        """Do balls prove that the last supposition g ≥ 0 excludes another, h ≥ 0: min(g, h) < 0 everywhere?"""
        *others, last = [self.expression(s) for s in self.supposed]
        smaller = [self.build("min", last, h) for h in others if last is not None and h is not None]
        return any(node is not None and self.signs.of(node) == Sign.NEGATIVE for node in smaller)

    def open_kink(self, s: Sum) -> int | None:
        """An atom a with |a| in s, at any depth, such that a itself has no kink in it; None if there is none."""
        atoms = reached((a for m in s for a, _ in m), self._inside)
        kinks = [self.forms.atoms[a].of for a in atoms if self.forms.atoms[a].kind == "abs"]
        return min(kinks, key=lambda a: (self._depth(a), a), default=None)

    def _inside(self, a: int) -> list[int]:
        kind, of = self.forms.atoms[a].kind, self.forms.atoms[a].of
        if kind in ("var", "pi", "int"):
            return []
        if kind in ("abs", "neg", "log"):
            return [of]
        if kind == "exp":
            return [b for b, _ in of]
        keys = of if kind == "pow" else (of,)
        return [b for name in keys for m, _ in name for b, _ in m]

    def _depth(self, a: int) -> int:
        """How deeply kinks are nested in an atom."""
        known = self._depths.get(a)
        if known is None:
            inner = max((self._depth(b) for b in self._inside(a)), default=0)
            known = self._depths[a] = inner + (self.forms.atoms[a].kind == "abs")
        return known

    def admitted(self, a: int) -> bool:
        """Is the atom, not defined everywhere, known to be defined: because the target uses it?"""
        if self.trusting:
            self._admitted.add(a)
        return a in self._admitted

    def build(self, op: str, *args: int) -> int | None:
        """A node for evaluation in balls only, or None where the builder refuses it."""
        try:
            return self.signs.builder.apply(op, *args)
        except (InvalidRequest, ValueError):
            return None

    def expression(self, s: Sum) -> int | None:
        try:
            return self.forms.expression(s)
        except (InvalidRequest, ValueError):
            return None

    def text(self, s: Sum, limit: int = 120) -> str:
        node = self.expression(s)
        if node is None:
            return f"a sum of {len(s)} terms"
        graph = self.signs.builder.graph([node])
        return graph.text(graph.outputs[0], limit)


def _combination(s: Sum, g: Sum, h: Sum) -> Fraction | None:
    """The constant c ≥ 0 with s = λg + μh + c for some λ, μ ≥ 0, or None; g and h are sums with a non-constant term."""
    zero = Fraction(0)
    rows = [m for m in {**g, **h} if m != UNIT]
    for i, m in enumerate(rows):
        for n in rows[i + 1 :] if h else rows[:1]:
            a, b, c, d = g.get(m, zero), h.get(m, zero), g.get(n, zero), h.get(n, Fraction(not h))
            determinant = a * d - b * c
            if not determinant:
                continue
            lam = (s.get(m, zero) * d - b * s.get(n, zero)) / determinant
            mu = (a * s.get(n, zero) - c * s.get(m, zero)) / determinant if h else zero
            if lam < 0 or mu < 0:
                return None
            rest = {m: s.get(m, zero) - lam * g.get(m, zero) - mu * h.get(m, zero) for m in {UNIT, *s, *g, *h}}
            left = rest.pop(UNIT)
            return left if left >= 0 and not any(rest.values()) else None
    return None
