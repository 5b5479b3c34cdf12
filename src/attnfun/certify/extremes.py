"""Errors of max and min: a tree of them errs by what one way through it errs, not by the sum of all of its steps.

Statement. Let a node of the program be b + φ, φ = relu(a − b) a labelled coordinate, and let e_a, e_b be the errors of
what the stream holds for a and b. The heads of φ see û with |û − (a + e_a − b − e_b)| ≤ m, they are within ε of relu
at û, and |a_φ| m + rounding come on top. Then the node is off by at most

    max(|e_a|, |e_b|) + ε + m + |a_φ| m + rounding,

for (b + e_b) + relu(û) lies within m of max(a + e_a, b + e_b), and max moves by no more than its arguments do. So for
a − relu(a − b) = min(a, b). Errors of other sums and multiples add.
"""

import math
from collections.abc import Mapping

from flint import arb

from attnfun.certify.reading import Reading
from attnfun.language.enclosures import abs_upper, upper
from attnfun.language.graph import arguments_first


class Extremes:
    """The errors of the nodes of one program, made of those of its labelled coordinates."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._known: dict[str, dict[int, float]] = {"computed": {}, "exact": {}}

    def __call__(self, node: int, kind: str, errors: Mapping[str, float], kinks: Mapping[str, float]) -> float:
        """A bound of the error of `node`, infinite where it is no affine form of coordinates with `errors`; `kinks`:
        ε + m + |a| m + rounding of every φ = relu(U). `kind` says which errors these are; none of them changes later.
        """
        known = self._known[kind]
        for i in arguments_first(node, self._needs, known):
            known[i] = self._error(i, known, errors, kinks)
        return known[node]

    def _needs(self, i: int) -> tuple[int, ...]:
        if i in self.reading.by_phi:
            return ()
        pair = self._pair(i)
        return self.reading.program.nodes[i].args if pair is None else pair[1:]

    def _pair(self, i: int) -> tuple[int, int, int] | None:
        """(φ, a, b) of a node max(a, b) = b + φ or min(a, b) = a − φ, φ = relu(a − b) labelled."""
        nodes = self.reading.program.nodes
        node = nodes[i]
        if node.op not in ("add", "sub"):
            return None
        for plain, phi in (node.args, node.args[::-1])[: 2 if node.op == "add" else 1]:
            label, kink = self.reading.by_phi.get(phi), nodes[phi]
            if label is None or label.further or kink.op != "relu" or kink.args != (label.argument,):
                continue
            inner = nodes[label.argument]
            if inner.op == "sub" and inner.args[1 if node.op == "add" else 0] == plain:
                return phi, inner.args[0], inner.args[1]
        return None

    def _error(
        self, i: int, known: Mapping[int, float], errors: Mapping[str, float], kinks: Mapping[str, float]
    ) -> float:
        node, label, pair = self.reading.program.nodes[i], self.reading.by_phi.get(i), self._pair(i)
        if label is not None:
            return errors.get(label.name, math.inf)
        if node.op == "var" or self.reading.is_constant(i):
            return 0.0
        if pair is not None and self.reading.by_phi[pair[0]].name in kinks:
            phi, a, b = pair
            return upper(arb(max(known[a], known[b])) + arb(kinks[self.reading.by_phi[phi].name]))
        if pair is not None:
            return upper(arb(known[pair[1] if node.op == "sub" else pair[2]]) + arb(self._of(pair[0], errors)))
        if node.op in ("add", "sub"):
            return upper(arb(known[node.args[0]]) + arb(known[node.args[1]]))
        if node.op == "neg":
            return known[node.args[0]]
        for factor, other in (node.args, node.args[::-1]) if node.op == "mul" else ():
            if self.reading.is_constant(factor):
                return upper(arb(abs_upper(self.reading.value(factor))) * arb(known[other]))
        return math.inf

    def _of(self, phi: int, errors: Mapping[str, float]) -> float:
        return errors.get(self.reading.by_phi[phi].name, math.inf)
