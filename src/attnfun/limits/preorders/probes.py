"""Is a comparison oracle a preorder? Completeness, reflexivity and transitivity probed; violations as witnesses.

Statement. R(a, b) = "a is at least as good as b" is a complete preorder iff R(a, a), R(a, b) or R(b, a), and R(a, b)
with R(b, c) imply R(a, c). Only such an R has a utility. Each violation involves at most three keys and one query: a
`Witness`, whose `check` asks the oracle again. The full table of m keys takes m² comparisons and settles all m³
triples of them, so that is what is asked: keys spread over the box, keys that share coordinates, keys close to each
other.

A finding is "violated" with a witness, or "sampled": no violation in so many probes, which proves nothing. An oracle
that answers the same question differently is not a relation and is refused.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest
from attnfun.language.domain import Array, Box
from attnfun.limits.preorders.target import Preorder
from attnfun.limits.record import Record, texts

_KEYS = 28
"""Keys of one table: 784 comparisons, 21,952 triples."""

Point = tuple[float, ...]


@dataclass(frozen=True)
class Witness(Record):
    """Keys (and queries) whose comparisons show that there is no (continuous) utility.

    | kind | keys | what the oracle says |
    | --- | --- | --- |
    | irreflexive | a | not a ≽ a |
    | incomplete | a, b | neither a ≽ b nor b ≽ a |
    | cycle | a, b, c | a ≻ b ≻ c ≻ a |
    | intransitive | a, b, c | a ≽ b ≽ c and not a ≽ c |
    | jump | a, b, k_1, …, k_m | a ≽ k_1 ≻ … ≻ k_m ≽ b with a and b `distance` apart |
    | flip | k_1, …, k_m | k_1 ≻ … ≻ k_m for the first query, the reverse for the second, `distance` apart |
    """

    also: ClassVar[tuple[str, ...]] = ("statement",)

    kind: str
    keys: tuple[Point, ...]
    queries: tuple[Point, ...] = ()
    distance: float | None = None

    @property
    def statement(self) -> str:
        return str(texts("witness")[self.kind]).format(d=self.distance or 0.0, m=len(self.keys))

    def check(self, preorder: Preorder) -> bool:
        """Ask again: do the comparisons say what the table says? Of a utility expression they are proved in balls."""
        if preorder.graph is None:
            return self._holds(preorder.weakly)

        def certain(query: Array | None, a: Array, b: Array) -> bool:
            low, high = preorder.gap(query, a, b)
            if not (low >= 0 or high < 0):
                raise _OpenError
            return low >= 0

        try:
            return self._holds(certain)
        except _OpenError:
            return False

    def _holds(self, weakly: Callable[[Array | None, Array, Array], bool]) -> bool:
        least, most, asks = _SHAPES.get(self.kind, (1, 0, 0))
        if not least <= len(self.keys) <= most or (asks == 2) != (len(self.queries) == 2):
            return False
        keys = [np.array(k) for k in self.keys]
        queries: list[Array | None] = [np.array(q) for q in self.queries] or [None]

        def falls(q: Array | None, chain: Sequence[Array]) -> bool:
            return all(weakly(q, hi, lo) and not weakly(q, lo, hi) for hi, lo in itertools.pairwise(chain))

        q, (a, *rest) = queries[0], keys
        if self.kind == "irreflexive":
            return not weakly(q, a, a)
        if self.kind == "incomplete":
            return not weakly(q, a, rest[0]) and not weakly(q, rest[0], a)
        if self.kind == "cycle":
            return falls(q, [*keys, a])
        if self.kind == "intransitive":
            return weakly(q, a, rest[0]) and weakly(q, *rest) and not weakly(q, a, rest[1])
        if self.kind == "flip":
            return falls(q, keys) and falls(queries[1], keys[::-1]) and self._near(*queries)
        b, *chain = rest
        return falls(q, chain) and weakly(q, a, chain[0]) and weakly(q, chain[-1], b) and self._near(a, b)

    def _near(self, a: Array | None, b: Array | None) -> bool:
        """Is `distance` what the points say?"""
        return a is not None and b is not None and self.distance == apart(a, b)


_SHAPES = {"irreflexive": (1, 1, 1), "incomplete": (2, 2, 1), "cycle": (3, 3, 1), "intransitive": (3, 3, 1)}
_SHAPES |= {"jump": (4, 1000, 1), "flip": (3, 1000, 2)}
"""Fewest and most keys, and queries (1: at most one)."""


class _OpenError(Exception):
    """Balls could not settle a comparison."""


@dataclass(frozen=True)
class Finding:
    """What was found about one property: violated or undecided (with a witness), sampled, proved, not probed."""

    status: str
    probes: int
    witness: Witness | None = None
    reason: str = ""

    @property
    def text(self) -> str:
        if self.status == "sampled":
            return f"sampled: no violation found in {self.probes:,} probes"
        return f"{self.status}: {self.reason or (self.witness.statement if self.witness else '')}"

    def record(self) -> dict[str, Any]:
        told = {"status": self.status, "probes": self.probes, "reason": self.text}
        return told | ({"witness": self.witness.record()} if self.witness else {})


def apart(a: Array, b: Array) -> float:
    """The largest difference of a coordinate."""
    return float(np.max(np.abs(a - b)))


def point(x: Array) -> Point:
    return tuple(float(v) for v in x)


def asked(query: Array | None) -> tuple[Point, ...]:
    return () if query is None else (point(query),)


def some_queries(preorder: Preorder, count: int, rng: np.random.Generator) -> list[Array | None]:
    """Queries to probe at: corners, the centre, random ones; [None] where there are none."""
    if preorder.queries is None:
        return [None]
    points = preorder.queries.probe(count, rng)
    return [points[i] for i in rng.permutation(len(points))[:count]]


def key_sets(box: Box, rng: np.random.Generator) -> Iterator[Array]:
    """Keys over the box, keys that share coordinates, keys close to each other."""
    width = box.high_array - box.low_array
    yield box.sample(_KEYS, rng)
    levels = rng.integers(0, 4, (_KEYS, box.dim)) / 3
    yield np.clip(box.low_array + width * levels, box.low_array, box.high_array)
    centre = box.sample(1, rng)
    scale = 10.0 ** rng.uniform(-4, -1)
    yield np.clip(centre + scale * width * rng.uniform(-1, 1, (_KEYS, box.dim)), box.low_array, box.high_array)


def table(preorder: Preorder, query: Array | None, K: Array) -> NDArray[np.bool_]:
    """R[i, j] = K_i ≽ K_j, every pair."""
    if preorder.graph is not None:
        u = preorder.values(query, K)
        return np.asarray(u[:, None] >= u[None, :])
    return np.array([[preorder.weakly(query, a, b) for b in K] for a in K])


def probe_order(preorder: Preorder, seed: int, rounds: int = 2) -> dict[str, Finding]:
    """Findings for reflexivity, completeness and transitivity, each with its first witness or its number of probes."""
    rng = np.random.default_rng(seed)
    found: dict[str, Witness] = {}
    counts = dict.fromkeys(("reflexive", "complete", "transitive"), 0)
    for _ in range(rounds):
        for query in some_queries(preorder, 2, rng):
            for K in key_sets(preorder.keys, rng):
                R = table(preorder, query, K)
                counts["reflexive"] += len(K)
                counts["complete"] += len(K) * (len(K) - 1) // 2
                counts["transitive"] += len(K) ** 3
                for name, witness in _violations(R, K, query):
                    found.setdefault(name, witness)
        if found:
            break
    for witness in found.values():
        if not witness.check(preorder):
            raise InvalidRequest(
                f"prefers answered differently when it was asked again ({witness.kind} at {witness.keys}):"
                " a comparison must depend on its arguments alone"
            )
    return {name: Finding("violated" if name in found else "sampled", counts[name], found.get(name)) for name in counts}


def _violations(R: NDArray[np.bool_], K: Array, query: Array | None) -> Iterator[tuple[str, Witness]]:
    q = asked(query)
    own = np.flatnonzero(~R.diagonal())
    if len(own):
        yield "reflexive", Witness("irreflexive", (point(K[own[0]]),), q)
    off = ~R & ~R.T & ~np.eye(len(K), dtype=bool)
    if off.any():
        i, j = np.argwhere(off)[0]
        yield "complete", Witness("incomplete", (point(K[i]), point(K[j])), q)
    strict = R & ~R.T
    for kind, first, second, third in (("cycle", strict, strict, strict.T), ("intransitive", R, R, ~R)):
        ends = (first.astype(np.int64) @ second.astype(np.int64) > 0) & third
        np.fill_diagonal(ends, False)
        if ends.any():
            i, k = np.argwhere(ends)[0]
            j = int(np.flatnonzero(first[i] & second[:, k])[0])
            yield "transitive", Witness(kind, (point(K[i]), point(K[j]), point(K[k])), q)
            return
