"""`ternary`: a relation of three variables as a trilinear form Σ_i a_i(x) b_i(y) c_i(z), with a proved error.

The terms come from two singular value decompositions: of the coefficients as a matrix x | (y, z), then of every right
vector as a matrix y | z (and with y or z first); the largest are kept.
The rank of every unfolding bounds the number of terms from below.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.certify.coefficients import Expansion
from attnfun.certify.stored import kept, read_back
from attnfun.certify.trilinear import prove_trilinear, trilinear_error, trilinear_rounding, trilinear_table
from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.expressions import Graph, parse
from attnfun.gate import Gate, require_sup
from attnfun.limits.relation_rank import rank_lower
from attnfun.network import Cost
from attnfun.network.claim import Claim
from attnfun.network.head import Array
from attnfun.network.sealed import Source
from attnfun.network.trilinear import FormShape, Sides, evaluate_trilinear, load_trilinear, save_trilinear
from attnfun.targets import Box, require_defined
from attnfun.targets.relation import Relation
from attnfun.targets.ternary import Ternary


@dataclass(frozen=True, eq=False)
class TrilinearForm:
    """Σ_i a_i(x) b_i(y) c_i(z): Chebyshev coefficients (N, rank) a side, and what is proved of calling it."""

    graph: Graph
    box: Box
    coefficients: Sides
    certificate: Certificate
    rank_lower: int
    request: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def target(self) -> Ternary:
        return Ternary(self.graph, self.box)

    @property
    def rank(self) -> int:
        return int(self.coefficients[0].shape[1])

    @property
    def architecture(self) -> FormShape:
        """How many coefficients a side has, and how many terms: what `train` fills with other coefficients."""
        a, b, c = (len(side) for side in self.coefficients)
        return FormShape(self.box.names, (a, b, c), self.rank)

    @property
    def cost(self) -> Cost:
        """A form has no heads: its coefficients are its parameters."""
        size = sum(side.size for side in self.coefficients)
        return Cost(0, 0, self.rank, 0, size, 0, max(float(np.abs(side).max()) for side in self.coefficients), size)

    @property
    def error(self) -> float:
        """The proved bound, rounding included; of a form from a file it is proved when it is asked for."""
        return self._proof.error[1]

    @cached_property
    def _proof(self) -> Certificate:
        if self.certificate.verified:
            return self.certificate
        require_defined(self.graph, self.box)
        return prove_trilinear(self.graph, self.box, self.coefficients, self.request.get("eps"))

    def __call__(self, X: ArrayLike, Y: ArrayLike, Z: ArrayLike) -> NDArray[Any]:
        """(n,) each → (n,)."""
        columns = []
        for side, name, low, high in zip((X, Y, Z), self.box.names, self.box.low, self.box.high, strict=True):
            x = np.asarray(side, dtype=np.float64).ravel()
            if not ((x >= low) & (x <= high)).all():
                raise InvalidRequest(f"a point lies outside {name}={low:g}:{high:g}")
            columns.append(x)
        if len({len(x) for x in columns}) != 1:
            raise InvalidRequest("x, y and z have unequal numbers of points")
        return evaluate_trilinear(
            self.coefficients, self.box.low_array, self.box.high_array, np.stack(columns, axis=1)
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Coefficients, relation, request and certificate in one safetensors file."""
        meta = {"rank_lower": self.rank_lower, **kept(self.request, self.certificate)}
        save_trilinear(path, self.target.to_json(), self.coefficients, meta)

    def record(self) -> dict[str, Any]:
        """What `attnfun ternary --json` prints."""
        certificate = self.certificate.to_json()
        certificate["proof"] = certificate.pop("method")
        certificate.pop("construction")
        first = {"status": certificate.pop("status"), "error": certificate.pop("error")}
        sizes = {"rank": self.rank, "rank_lower": self.rank_lower, "degrees": [len(s) - 1 for s in self.coefficients]}
        return {**first, **sizes, **certificate, "seconds": round(self.seconds, 3)}


def ternary(
    target: str,
    domain: Mapping[str, Sequence[float]] | str | Sequence[str],
    eps: float,
    *,
    progress: Callable[[str], None] | None = None,
) -> TrilinearForm:
    """The trilinear form of few terms with |target − form| ≤ eps on the box of three variables, called in float64.

    Proved for the stored coefficients, rounding included; `rank_lower` terms at least are needed by any such form.
    """
    from attnfun.verbs import check_request, one_thread

    start, say = time.perf_counter(), progress or (lambda _text: None)
    check_request(eps, "float64", 0)
    box = Box.parse(domain)
    if box.dim != 3:
        raise InvalidRequest(f"a ternary relation has three variables, not {box.dim}")
    graph = parse(target, box.names)
    require_defined(graph, box)
    with one_thread():
        say("coefficients of the relation")
        try:
            found = trilinear_table(graph, box, 1e-2 * float(eps))
        except Undecided as why:
            raise Infeasible(f"{target[:120]}: {why}") from None
        tried = []
        for first in range(3):
            say(f"fewest terms, {box.names[first]} first")
            tried.append(_fewest(found, _terms(found.table, first), float(eps)))
        ways = [terms for terms in tried if terms is not None]
        if not ways:
            raise Infeasible(f"eps={eps:.3g} for {target[:120]}: all terms together are not proved to reach it")
        stored = min(ways, key=lambda terms: terms[0].shape[1])
        least = 0
        for k in range(3):
            say("a lower bound on the terms")
            least = max(least, rank_lower(Relation(graph, *_halves(box, (k,))), float(eps)))
        certificate = prove_trilinear(graph, box, stored, float(eps), found)
    if not least <= stored[0].shape[1]:
        raise AssertionError(f"a lower bound {least} above a proved rank {stored[0].shape[1]} must never be issued")
    return TrilinearForm(graph, box, stored, certificate, least, {"eps": float(eps)}, time.perf_counter() - start)


def load_form(path: Source) -> TrilinearForm:
    """The form of a file; its certificate and its least number of terms are the stored ones, not proved anew."""
    target, stored, rest = load_trilinear(path)
    asked, least = Ternary.from_json(target), rest.get("rank_lower")
    certificate, request, _ = read_back(rest, "float64", asked.text, asked.box.text)
    return TrilinearForm(asked.graph, asked.box, stored, certificate, least if type(least) is int else 0, request)


def verify_form(path: Source, gate: Gate, _progress: Any = None) -> Certificate:
    """Prove the bound again from the stored coefficients and relation; no number of the certificate is read."""
    target, stored, rest = load_trilinear(path)
    asked, claim = Ternary.from_json(target), Claim.of(rest)
    require_sup(claim)
    eps = gate.tolerance(claim, "float64")

    def read(given: Any) -> tuple[Any, str]:
        other = Relation.read(given, *_halves(asked.box))
        return other.graph, other.text

    gate.compare(asked.box, asked.text, asked.graph, read)
    require_defined(asked.graph, asked.box)
    found = prove_trilinear(asked.graph, asked.box, stored, eps)
    return replace(found, construction="learned") if claim.trained else found


def _halves(box: Box, first: Sequence[int] = (0,)) -> tuple[Box, Box]:
    """The box of the variables `first`, and that of the others."""
    sides = list(first), [k for k in range(box.dim) if k not in first]
    left, right = (
        Box(tuple(box.names[i] for i in s), tuple(box.low[i] for i in s), tuple(box.high[i] for i in s)) for s in sides
    )
    return left, right


def _fewest(found: Expansion, terms: Sides, eps: float) -> Sides | None:
    """The fewest of the terms, largest first, whose proved error is within eps; None if all of them are not."""

    def taken(count: int) -> Sides:
        a, b, c = (np.ascontiguousarray(t[:, :count]) for t in terms)
        return a, b, c

    def good(count: int) -> bool:
        stored = taken(count)
        try:
            error = trilinear_error(found.table, found.error, stored)
        except Undecided:  # too many to be compared
            return False
        return error + trilinear_rounding(stored) <= eps * (1 - 1e-12)

    few, many = 0, terms[0].shape[1]
    if not good(many):
        return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if good(middle) else (middle, many)
    return taken(many)


def _terms(table: Array, first: int) -> Sides:
    """All terms of the two decompositions, the first one cutting off variable `first`; largest first."""
    order = [first, *(k for k in range(3) if k != first)]
    sides = _nested(np.transpose(table, order))
    a, b, c = (sides[order.index(k)] for k in range(3))
    return a, b, c


def _nested(table: Array) -> Sides:
    n, m, p = table.shape
    U, s, W = np.linalg.svd(table.reshape(n, m * p), full_matrices=False)
    sides: list[list[Array]] = [[], [], []]
    sizes = []
    for i in range(len(s)):
        V, t, Z = np.linalg.svd(W[i].reshape(m, p), full_matrices=False)
        for j in range(len(t)):
            size = s[i] * t[j]
            root = size ** (1 / 3)
            for side, vector in zip(sides, (U[:, i], V[:, j], Z[j]), strict=True):
                side.append(root * vector)
            sizes.append(size)
    order = np.argsort(-np.array(sizes))
    kept = order[: max(1, int(np.count_nonzero(np.array(sizes) > 1e-17 * max(max(sizes), math.ulp(0.0)))))]
    a, b, c = (np.stack(side, axis=1)[:, kept] for side in sides)
    return a, b, c
