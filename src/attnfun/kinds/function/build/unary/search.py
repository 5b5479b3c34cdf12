"""The fewest keys that meet ε: untuned layouts at falling resolution, then tuned ones, by bisection.

A candidate is judged on points four times as dense as those it was fitted on. It passes if its largest error there and
an estimate of what rounding will cost are together at most ε, and its largest value at most `cap` times the range of
the non-linear part of the target.

In float32 rounding is most of the cost, and a few keys more than the fit needs make it a tenth: the ridge on the values
is then no smaller than a few roundings, logits are levelled and values centred, and where nothing passes the candidate
of least cost is returned, for the steps of a composition may lend each other room.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from attnfun.errors import feasible
from attnfun.kinds.function.build.unary.keys import Array, Keys
from attnfun.kinds.function.build.unary.layout import MANY, MOST, Layout, Problem, layouts, refusal, remeshed
from attnfun.kinds.function.build.unary.project import Pieces, Sample, columns, solve, spans, tune

_RIDGE = {"float64": 1 / 30, "float32": 1 / 10}
_LEAST = {"float64": 0.0, "float32": 8 * 2.0**-24}  # of the ridge: about what rounding costs a unit of value
_GOAL = {"float64": 0.75, "float32": 0.4}  # of eps, where tuning stops
_CAP = {"float64": 100.0, "float32": 25.0}
_HOPELESS = 3  # times as many keys as are tried: a guess beyond that ends the search before it begins
_PROVABLE = 45_000  # operations times pieces of the mesh: the budget of a proof by Taylor forms
_WORK = 6e8  # rough flops of all tuning
TUNABLE = 64  # keys: past that, tuning costs more than it saves
_RESOLUTIONS = 0.3 * 1.12 ** np.arange(60)


@dataclass(frozen=True)
class Candidate:
    """Pieces with their values and affine part: f ≈ Σ heads + offset + slope·u."""

    pieces: Pieces
    x: Array  # values in a row, then offset and slope
    error: float
    rounding: float  # an estimate, for sizing
    largest: float

    @property
    def keys(self) -> int:
        return sum(k.size for k in self.pieces)

    @property
    def cost(self) -> float:
        return self.error + self.rounding


def finish(p: Problem, pieces: Pieces, check: Sample, fit: Sample, polish: int = 4) -> Candidate:
    """Values for the stored (rounded) keys, evened out by Lawson's reweighting, judged on the check points.

    Keys that tuning pushed out of sight (never a billionth of ε in weight) are left out.
    """
    kept = [_seen(k, check.u, 1e-9 * p.eps / p.span) for k in pieces]
    if not all(k.size for k in kept):  # logits that are no numbers: an argument too small or too large for float64
        return Candidate(pieces, np.zeros(sum(k.size for k in pieces) + 2), math.inf, math.inf, math.inf)
    stored = tuple((k.levelled(check.u) if p.dtype == "float32" else k).stored(p.dtype) for k in kept)
    ridge = _ridge(p)
    phi = columns(stored, check, check.u)
    best: Candidate | None = None
    sample, weight = fit, fit.weight
    for _ in range(1 + polish):
        s = solve(stored, sample, ridge)
        error = float(np.abs(check.f - phi @ s.x).max())
        if best is None or error < best.error:
            x = _centred(stored, phi, s.x) if p.dtype == "float32" else s.x
            largest = float(np.abs(x[:-2]).max()) if len(x) > 2 else 0.0
            best = Candidate(stored, x, error, _rounding(p, stored, check.u, phi, x), largest)
        r = np.abs(s.residual[: len(fit.u)] / sample.weight)
        top = float(r.max())
        if not top > 0 or not math.isfinite(top):
            break
        weight = weight * np.sqrt(0.1 + 0.9 * r / top)
        weight = weight / math.sqrt(float(weight @ weight))
        sample = replace(fit, weight=weight)
    assert best is not None
    return best


def _ridge(p: Problem) -> float:
    return max(_RIDGE[p.dtype] * p.eps / p.span, _LEAST[p.dtype])


def _centred(pieces: Pieces, phi: Array, x: Array) -> Array:
    """The values of every piece shifted so that its range is about ±; the offset takes up the shifts."""
    x = x.copy()
    for _, span in spans(pieces):
        head = phi[:, span] @ x[span]
        shift = float(head.max() + head.min()) / 2
        x[span] -= shift
        x[-2] += shift
    return x


def _rounding(p: Problem, pieces: Pieces, u: Array, phi: Array, x: Array) -> float:
    """About what rounding in p.dtype costs: logits off by d_j move a head by E[|V − h| d].

    The rounding of the query is left out: it shifts u, and costs no more than f changes over a few units in the last
    place.
    """
    unit = 2.0**-53 if p.dtype == "float64" else 2.0**-24
    every = slice(None, None, max(1, len(u) // 300))
    u, phi = u[every], phi[every]
    total = np.zeros(len(u))
    for keys, span in spans(pieces):
        weight, v = phi[:, span], x[span]
        q = keys.query(u)[:, None]
        logits = q * keys.slopes + keys.biases
        gap = logits.max(axis=1, keepdims=True) - logits
        d = (10 * (1 + keys.size // 64) + np.abs(q * keys.slopes) + np.abs(logits) + 2 * gap) * unit
        head = weight @ v
        total += (weight * np.abs(v - head[:, None]) * d).sum(axis=1)
        total += (keys.size + 8) * unit * (weight @ np.abs(v) + np.abs(head))
    return float(total.max()) if len(pieces) else 0.0


def _seen(keys: Keys, u: Array, least: float) -> Keys:
    kept = keys.weights(u).max(axis=0) > least
    kept[: keys.fixed] = True
    return keys if kept.all() else replace(keys, slopes=keys.slopes[kept], biases=keys.biases[kept])


def passes(p: Problem, c: Candidate) -> bool:
    return c.error + c.rounding <= p.eps and c.largest <= _CAP[p.dtype] * p.span


def search(p: Problem, quick: bool) -> Candidate:
    """The best candidate found; the caller looks at its error, for it may miss ε.

    A smooth function for which the mesh counts far more keys than are ever tried is refused before any search, and so
    is one of so many operations that no proof would look at each of its cells.
    """
    why, most = "", 0
    if not (p.ladders or p.kinks) and p.guess > _HOPELESS * MOST:
        why = f"tangent: about {p.guess:,} keys or more would be needed for {p.eps:.2g} on an interval of width "
        why += f"{p.high - p.low:.3g}, and at most {MOST} are tried: it would have to be {p.guess / MOST:.2g} times "
        why += "shorter or more"
    elif len(p.mesh) * len(p.graph.nodes) > _PROVABLE:
        most = _PROVABLE // len(p.graph.nodes)
        why = f"tangent: {len(p.graph.nodes):,} operations on {len(p.mesh):,} pieces of the interval are past the "
        why += f"{_PROVABLE:,} that are budgeted for a proof"
    if why:
        fits = (lambda eps: len(remeshed(p, eps)) <= most) if most else None
        raise refusal(why, float(np.ptp(p.sample(1).f)) / 2, p.eps, fits)
    families = layouts(p)
    if p.ladders:
        best = _first_untuned(p, families)
        if best is None or quick or best[1].keys > TUNABLE:
            return best[1] if best is not None else _nearest(p, families)
        tuned = _tuned(p, [families[best[0]]], best[1].keys, best[1].keys - best[1].keys // 5, False)
        return tuned if tuned is not None and passes(p, tuned) else best[1]
    size = p.guess if not p.kinks else sum(k.size for k in families[0](0.1 * p.guess))
    tuned = _tuned(p, families, 2 * size + 8, size, quick) if size <= TUNABLE else None
    if tuned is not None and passes(p, tuned):
        return tuned
    if tuned is not None and p.dtype == "float32" and tuned.error <= p.eps:
        return tuned  # all but rounding
    many = len(p.kinks) > MANY
    best = _first_untuned(p, families[:1] if many else families)
    if best is not None:
        return best[1]
    feasible(not many, f"tangent: {len(p.kinks)} kinks, for which {MOST} keys are not enough at {p.eps:.2g}")
    nearest = _nearest(p, families)
    return tuned if tuned is not None and tuned.cost < nearest.cost else nearest


def _first_untuned(p: Problem, families: list[Layout]) -> tuple[int, Candidate] | None:
    """The untuned candidate with the fewest keys, and its layout."""
    best: tuple[int, Candidate] | None = None
    for i, layout in enumerate(families):
        found = _coarsest(p, layout, best[1].keys - 1 if best is not None else MOST)
        if found is not None:
            best = (i, found)
    return best


def _nearest(p: Problem, families: list[Layout]) -> Candidate:
    single = p.dtype == "float32"
    resolutions = (1.0, 1.5, 2.0, 3.0) if single else (2.0, 4.0)
    tried = (_untuned(p, pieces) for layout in families for pieces in _within(layout, resolutions))
    return min(tried, key=lambda c: c.cost if single else c.error)


def _within(layout: Layout, resolutions: tuple[float, ...]) -> Iterator[Pieces]:
    """The layout at the resolutions, up to the first with more keys than are tried, which is made coarser."""
    for rho in resolutions:
        pieces = layout(rho)
        if sum(k.size for k in pieces) > MOST:
            yield _sized(layout, MOST)
            return
        yield pieces


def _untuned(p: Problem, pieces: Pieces) -> Candidate:
    n = sum(k.size for k in pieces)
    return finish(p, pieces, p.sample(n, 4), p.sample(n), polish=0)


def hopeless(p: Problem, c: Candidate) -> bool:
    """Good but for rounding, and that by far: more keys would not help (in float32 they might)."""
    return p.dtype == "float64" and c.error <= 0.5 * p.eps and c.rounding > 2 * p.eps


def _too_slow(p: Problem, before: Candidate, now: Candidate, most: int) -> bool:
    if not 0 < now.error < before.error < math.inf or now.keys <= before.keys:
        return False
    rate = math.log(before.error / now.error) / (now.keys - before.keys)
    return math.log(now.error / p.eps) > 3 * rate * (most - now.keys)


def _coarsest(p: Problem, layout: Layout, most: int) -> Candidate | None:
    """Bisection over the list of resolutions for the coarsest that passes with at most `most` keys.

    Errors fall like exp(−r keys) at best. Where r of two that failed, taken thrice, is too little for `most`, none is
    looked for.
    """
    low, high = -1, len(_RESOLUTIONS)
    while high > 0 and sum(k.size for k in layout(float(_RESOLUTIONS[high - 1]))) > most:
        high -= 1
    best: Candidate | None = None
    before: Candidate | None = None
    probe = high - 1 if most < MOST else min(12, high - 1)
    while high - low > 1:
        c = _untuned(p, layout(float(_RESOLUTIONS[probe])))
        if passes(p, c):
            high, best = probe, c
        elif hopeless(p, c) or (best is None and before is not None and _too_slow(p, before, c, most)):
            return best
        else:
            low, before = probe, c
        probe = (low + high) // 2 if best is not None else min(probe + 6, high - 1)
    return best


def _tuned(p: Problem, families: list[Layout], most: int, first: int, quick: bool) -> Candidate | None:
    """The fewest keys with which some tuned start passes: from `first` up or down by quarters, then bisection.

    If none does, the candidate of least cost.
    """
    ridge = _ridge(p)
    best: Candidate | None = None
    nearest: Candidate | None = None
    low, high, work = 1, most + 1, 0.0
    probe = min(max(first, 2), most)
    while high - low > 1 and work < _WORK:
        won = None
        for i, layout in enumerate(families if best is None else families[: 3 if probe < 12 else 2]):
            pieces = _sized(layout, probe)
            n = sum(k.size for k in pieces)
            if n > probe:
                continue
            fit = p.sample(n)
            pieces, used = tune(pieces, fit, ridge, 60 if n < 16 else 40, _GOAL[p.dtype] * p.eps)
            work += 1e5 + used * len(fit.u) * n * n * 8.0
            c = finish(p, pieces, p.sample(n, 4), fit)
            if passes(p, c):
                won = c
                families = [families[i], *families[:i], *families[i + 1 :]]  # what worked is tried first from now on
                break
            if nearest is None or c.cost < nearest.cost:
                nearest = c
            if hopeless(p, c):
                work = _WORK
        if won is None:
            low = probe
            near = nearest if p.dtype == "float32" and best is None else None
            if near is not None and near.error <= 0.5 * p.eps and probe > 1.5 * near.keys + 2:
                break  # more keys have stopped helping
        else:
            best, high = won, won.keys
            if quick:
                break
        if best is None:
            probe = min(probe + max(1, probe // 4), high - 1)
        elif low == 1:
            probe = min(high - 1, high - high // 5)
        else:
            probe = (low + high) // 2
    return best if best is not None else nearest


def _sized(layout: Layout, n: int) -> Pieces:
    """The layout at the finest resolution with at most n keys."""
    low, high = 0.02, 200.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if sum(k.size for k in layout(middle)) <= n else (low, middle)
    return layout(low)
