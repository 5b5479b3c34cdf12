"""Is a preorder continuous? Bisection for jumps that every utility has, and what finitely many comparisons can say.

Statement. Let a ≽ k_1 ≻ … ≻ k_m ≽ b. Then every utility u has u(a) − u(b) ≥ u(k_1) − u(k_m) > 0, so that its Lipschitz
constant is at least (u(k_1) − u(k_m))/|a − b|. That is exact, whatever the preorder; a jump is the limit |a − b| → 0.
Reported is such a chain with |a − b| ≤ 2^-45 of the box (in each coordinate) although the ends k_1 and k_m lie a
quarter of the box apart in some coordinate, or, where nothing lies between the classes of a and b, 2^-5.
Debreu's theorem is the reason to look: a complete, transitive, continuous preorder on a box has a continuous utility.

Search. (1) a ≻ y ≻ b by sampling, then bisection of the segment against y. In a continuous preorder y is then within
2^-45 of the segment's utilities, and only keys of nearly its utility lie between; across a jump whole chains do. Tried
are chains along each axis through y, and through keys met before. (2) a ≻ b with all midpoints indifferent to a or to
b: two classes that touch, of a preorder that has few. (3) The points at which parallel lines cross the class of y, to
the last float: ordered along the class, not at random, if y ties with them in a first criterion that is no coordinate
(a rotated lexicographic order). 18 strictly ordered of 32 in sequence do not happen at random (chance below 10^-7).

Resolution. x1 + τ x2 is told from the lexicographic order for τ ≥ 4·2^-45 ≈ 1.2e-13; below, and for utilities steeper
than 2^43 over the box, the witness stays true and the word "jump" is about this resolution. Chains have nine keys and
more, so that rounding noise of the oracle makes none.

Queries. Between two queries at which k_1 ≻ … ≻ k_m and the reverse hold, a query-continuous preorder has for every two
of these keys a query at which they are indifferent: {q : k ≽_q k'} and {q : k' ≽_q k} are closed and cover a connected
segment. That a whole chain flips within 2^-45 is rare, but no contradiction: (q − c)·k flips every chain at c and is
continuous. So it is reported as undecided.
Failure mode: jumps on thin sets, or seen only by keys that no chain meets, are not found.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cmp_to_key

import numpy as np

from attnfun.language.domain import Array
from attnfun.limits.preorders.probes import Finding, Witness, apart, asked, point, some_queries
from attnfun.limits.preorders.target import Preorder

RESOLUTION = 2.0**-45
_COARSEST = 2.0**-30
"""Narrow boxes far from 0 do not hold 2^45 floats; above this distance nothing is reported."""
_TOUCHING = 2.0**-5
"""Two classes are reported where no third is met below this length."""
_SAMPLE = 300
_LINKS = 9
_CLASS, _ORDERED = 32, 18
Jump = tuple[Array, Array, list[Array]]
"""a, b and a chain between them: what may be a jump."""


class _Probe:
    """Comparisons for one query, counted, and the keys met so far."""

    def __init__(self, preorder: Preorder, query: Array | None, rng: np.random.Generator) -> None:
        self.preorder, self.query, self.rng, self.asked, self.box = preorder, query, rng, 0, preorder.keys
        self.width = self.box.high_array - self.box.low_array

    def compare(self, a: Array, b: Array) -> int:
        """1 if a ≻ b, −1 if b ≻ a, else 0."""
        self.asked += 2
        return self.preorder.compare(self.query, a, b)

    def far(self, a: Array, b: Array) -> float:
        """The largest difference of a coordinate, as a share of the box."""
        return float(np.max(np.abs(a - b) / self.width))

    def bracket(self, a: Array, y: Array, b: Array, to: float) -> tuple[Array, Array] | None:
        """a ≻ y ≻ b bisected down to `to` of the box or to neighbouring floats; None if a point is as good as y."""
        while self.far(a, b) > to:
            m = a + (b - a) / 2
            if (m == a).all() or (m == b).all():
                break
            sign = self.compare(m, y)
            if sign == 0:
                return None
            a, b = (m, b) if sign > 0 else (a, m)
        return a, b

    def falls(self, chain: list[Array]) -> bool:
        return all(self.compare(hi, lo) > 0 for hi, lo in itertools.pairwise(chain))

    def witness(self, a: Array, b: Array, chain: list[Array]) -> Witness | None:
        if not self.far(a, b) <= _COARSEST:
            return None
        keys = tuple(point(k) for k in (a, b, *chain))
        found = Witness("jump", keys, asked(self.query), apart(a, b))
        return found if found.check(self.preorder) else None


def probe_keys(preorder: Preorder, seed: int, trials: int = 60) -> Finding:
    """Key-continuity: the first jump, or how many comparisons found none."""
    rng = np.random.default_rng([seed, 1])
    count = 0
    for query in some_queries(preorder, 4, rng):
        probe = _Probe(preorder, query, rng)
        share = trials if preorder.queries is None else max(1, trials // 4)
        searches = (search(probe, share) for search in (_by_chains, _by_classes, _along_class))
        for a, b, chain in itertools.chain.from_iterable(searches):
            witness = probe.witness(a, b, chain)
            if witness is not None:
                return Finding("violated", count + probe.asked, witness)
        count += probe.asked
    return Finding("sampled", count)


def _triple(probe: _Probe) -> tuple[Array, Array, Array] | None:
    """Random a ≻ y ≻ b."""
    a, y, b = probe.box.sample(3, probe.rng)
    for _ in range(3):  # bubble sort
        if probe.compare(a, y) < 0:
            a, y = y, a
        if probe.compare(y, b) < 0:
            y, b = b, y
    return (a, y, b) if probe.compare(a, y) > 0 and probe.compare(y, b) > 0 else None


def _by_chains(probe: _Probe, trials: int) -> Iterator[Jump]:
    met: list[Array] = []
    for _ in range(trials):
        triple = _triple(probe)
        if triple is None:
            continue
        a, y, b = triple
        ends = probe.bracket(a, y, b, RESOLUTION)
        if ends is None:
            continue
        a, b = ends
        for start in (y, *met[-2:]):
            for chain in _axis_chains(probe, start):
                inside = probe.compare(a, chain[0]) >= 0 and probe.compare(chain[-1], b) >= 0
                if inside and probe.falls(chain):
                    yield a, b, chain
        met.append(y)


def _axis_chains(probe: _Probe, y: Array) -> Iterator[list[Array]]:
    """Nine keys in a line through y along an axis, a quarter of the box or more, best first; both ways and whole."""
    for axis in range(probe.box.dim):
        low, high = probe.box.low[axis], probe.box.high[axis]
        for start, stop in ((low, high), (float(y[axis]), high), (low, float(y[axis]))):
            if stop - start < 0.25 * probe.width[axis]:
                continue
            chain = []
            for value in np.linspace(start, stop, _LINKS):
                key = y.copy()
                key[axis] = value
                chain.append(key)
            yield chain if probe.compare(chain[0], chain[-1]) > 0 else chain[::-1]


def _by_classes(probe: _Probe, trials: int) -> Iterator[Jump]:
    """Few classes, each met more than once, and a segment that holds keys as good as its ends only.

    A box is connected, so a continuous preorder has one class or a continuum of them. That each class is met again
    keeps out utilities that are rounded to a constant in parts of the box, as tanh is.
    """
    keys = sorted(probe.box.sample(_SAMPLE, probe.rng), key=cmp_to_key(probe.compare))
    classes = [[keys[0]]]
    for key in keys[1:]:
        if probe.compare(key, classes[-1][0]) == 0:
            classes[-1].append(key)
        else:
            classes.append([key])
    if len(classes) < 2 or min(len(c) for c in classes) < 2:
        return
    for _ in range(trials):
        low, high = np.sort(probe.rng.choice(len(classes), 2, replace=False))
        hi, lo = (c[probe.rng.integers(len(c))] for c in (classes[high], classes[low]))
        a, b = hi, lo
        while probe.far(a, b) > RESOLUTION:
            m = a + (b - a) / 2
            if (m == a).all() or (m == b).all():
                break
            upper, lower = probe.compare(m, hi), probe.compare(m, lo)
            if upper >= 0 or (lower > 0 and probe.rng.random() < 0.5):
                a = m
            else:
                b = m
            if upper * lower != 0:  # a third class: begin again with the shorter segment
                hi, lo = a, b
                if probe.far(hi, lo) < _TOUCHING:
                    break
        else:
            yield a, b, [hi, lo]


def _along_class(probe: _Probe, trials: int) -> Iterator[Jump]:
    """The class of y crossed by parallel lines: is its crossing ordered along the way?"""
    if probe.box.dim < 2:
        return
    budget = probe.asked + 400 * trials
    for _ in range(trials):
        triple = _triple(probe)
        if triple is None or probe.asked > budget:
            continue
        _, y, _ = triple
        other = _triple_around(probe, y)
        if other is None:
            continue
        ends = probe.bracket(other[0], y, other[1], RESOLUTION)
        if ends is None or probe.far(y, ends[0]) < 0.3:
            continue
        way = ends[0] - y
        for step in np.eye(probe.box.dim):
            tried = (_crossing(probe, y, y + t * way, step) for t in np.linspace(1 / _CLASS, 1, _CLASS))
            for side in zip(*(crossing for crossing in tried if crossing is not None)):
                for keys in (side, side[::-1]):
                    chain = _longest_fall(probe.compare, keys) if len(side) >= _ORDERED else []
                    if len(chain) >= _ORDERED and probe.far(chain[0], chain[-1]) >= 0.25:
                        yield *ends, chain


def _triple_around(probe: _Probe, y: Array) -> tuple[Array, Array] | None:
    """Random a ≻ y ≻ b for a given y."""
    above: Array | None = None
    below: Array | None = None
    for key in probe.box.sample(12, probe.rng):
        sign = probe.compare(key, y)
        above, below = (key if sign > 0 else above), (key if sign < 0 else below)
    return None if above is None or below is None else (above, below)


def _crossing(probe: _Probe, y: Array, base: Array, step: Array) -> tuple[Array, Array] | None:
    """Neighbouring floats above and below y on the line through `base`, looked for close to it first."""
    reach = 2.0**-44
    while reach < 2.0**-2:
        up, down = (np.clip(base + s * reach * probe.width * step, probe.box.low, probe.box.high) for s in (1, -1))
        first, second = probe.compare(up, y), probe.compare(down, y)
        if first * second < 0:
            return probe.bracket(up, y, down, 0.0) if first > 0 else probe.bracket(down, y, up, 0.0)
        reach *= 16
    return None


def _longest_fall(compare: Callable[[Array, Array], int], keys: Sequence[Array]) -> list[Array]:
    """A longest subsequence k_1 ≻ k_2 ≻ …, by the usual quadratic table."""
    best: list[list[int]] = []
    for j, key in enumerate(keys):
        tails = [best[i] for i in range(j) if compare(keys[i], key) > 0]
        best.append([*max(tails, key=len, default=[]), j])
    return [keys[i] for i in max(best, key=len, default=[])]


# ---------------------------------------------------------------- queries


def probe_queries(preorder: Preorder, seed: int, trials: int = 40) -> Finding:
    """Query-continuity: a chain of keys that flips at once is undecided, else so many comparisons found none."""
    if preorder.queries is None:
        return Finding("not probed", 0, reason="there are no queries")
    rng = np.random.default_rng([seed, 2])
    box, count = preorder.queries, 0
    width = box.high_array - box.low_array
    for _ in range(trials):
        p, q = box.sample(2, rng)
        K = preorder.keys.sample(12, rng)
        here, there = _Probe(preorder, p, rng), _Probe(preorder, q, rng)
        flips = [(a, b) for i, a in enumerate(K) for b in K[:i] if here.compare(a, b) * there.compare(a, b) < 0]
        count += here.asked + there.asked
        if not flips:
            continue
        a, b = flips[0] if here.compare(*flips[0]) > 0 else flips[0][::-1]
        while np.max(np.abs(p - q) / width) > RESOLUTION:
            m = p + (q - p) / 2
            if (m == p).all() or (m == q).all():
                break
            middle = _Probe(preorder, m, rng)
            sign = middle.compare(a, b)
            count += middle.asked
            if sign == 0:
                break
            p, q = (m, q) if sign > 0 else (p, m)
        else:
            here, there = _Probe(preorder, p, rng), _Probe(preorder, q, rng)
            between = [k for k in K if here.compare(a, k) > 0 and here.compare(k, b) > 0]
            between = [k for k in between if there.compare(b, k) > 0 and there.compare(k, a) > 0]
            count += here.asked + there.asked
            if between:
                keys = tuple(point(k) for k in (a, between[0], b))
                witness = Witness("flip", keys, (point(p), point(q)), apart(p, q))
                if witness.check(preorder):
                    return Finding("undecided", count, witness)
    return Finding("sampled", count)


def lexicographic_axes(preorder: Preorder, seed: int, probes: int = 400) -> tuple[tuple[int, int], ...] | None:
    """((axis, ±1), …) if the preorder of keys agreed with that lexicographic order in all probes; else None.

    First criteria are looked for one by one, among keys that tie in those before.
    """
    rng = np.random.default_rng([seed, 3])
    box, found = preorder.keys, list[tuple[int, int]]()
    query = some_queries(preorder, 1, rng)[0]
    while len(found) < box.dim:
        A, B = box.sample(probes, rng), box.sample(probes, rng)
        for axis, _ in found:
            B[:, axis] = A[:, axis]
        probe = _Probe(preorder, query, rng)
        order = np.array([probe.compare(a, b) for a, b in zip(A, B, strict=True)])
        free = [k for k in range(box.dim) if k not in {axis for axis, _ in found}]
        agreeing = [(k, s) for k in free for s in (1, -1) if (order == s * np.sign(A[:, k] - B[:, k])).all()]
        if not agreeing:
            return None
        found.append(agreeing[0])
    return tuple(found)


def misorder_probability(tau: float) -> float:
    """P(x1 + τ x2 misorders two uniform keys of the unit square, lexicographically compared), 0 ≤ τ ≤ 1.

    It does iff D1 = x1 − x1' and D2 have opposite signs and |D1| < τ|D2|. |D1|, |D2| have density 2(1 − s); with
    s = |D2|: P = ½ ∫ 2(1 − s) (2τs − τ²s²) ds = τ/3 − τ²/12.
    """
    if not (math.isfinite(tau) and 0 <= tau <= 1):
        raise ValueError(f"tau={tau!r}: between 0 and 1")
    return tau / 3 - tau * tau / 12
