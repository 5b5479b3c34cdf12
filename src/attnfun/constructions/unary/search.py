"""The fewest keys that meet ε: untuned layouts at falling resolution, then tuned ones, by bisection.

A candidate is judged on points four times as dense as those it was fitted on. It passes if its largest error there and
an estimate of what rounding will cost are together at most ε, and its largest value at most `cap` times the range of
the non-linear part of the target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from attnfun.constructions.unary.keys import Array, Keys
from attnfun.constructions.unary.layout import Layout, Problem, layouts
from attnfun.constructions.unary.project import Pieces, Sample, columns, solve, tune

_RIDGE = {"float64": 1 / 30, "float32": 1 / 10}
_CAP = {"float64": 100.0, "float32": 25.0}
_MOST = 400  # keys
_WORK = 6e8  # rough flops of all tuning
_TUNABLE = 64  # keys: past that, tuning costs more than it saves
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


def finish(p: Problem, pieces: Pieces, check: Sample, fit: Sample, polish: int = 4) -> Candidate:
    """Values for the stored (rounded) keys, evened out by Lawson's reweighting, judged on the check points.

    Keys that tuning pushed out of sight (never a billionth of ε in weight) are left out.
    """
    stored = tuple(_seen(k, check.u, 1e-9 * p.eps / p.span).stored(p.dtype) for k in pieces)
    ridge = _RIDGE[p.dtype] * p.eps / p.span
    phi = columns(stored, check, check.u)
    best: Candidate | None = None
    sample, weight = fit, fit.weight
    for _ in range(1 + polish):
        s = solve(stored, sample, ridge)
        error = float(np.abs(check.f - phi @ s.x).max())
        if best is None or error < best.error:
            largest = float(np.abs(s.x[:-2]).max()) if len(s.x) > 2 else 0.0
            best = Candidate(stored, s.x, error, _rounding(p, stored, check.u, phi, s.x), largest)
        r = np.abs(s.residual[: len(fit.u)] / sample.weight)
        top = float(r.max())
        if not top > 0 or not math.isfinite(top):
            break
        weight = weight * np.sqrt(0.1 + 0.9 * r / top)
        weight = weight / math.sqrt(float(weight @ weight))
        sample = Sample(fit.u, fit.f, weight, fit.middle, fit.half)
    assert best is not None
    return best


def _rounding(p: Problem, pieces: Pieces, u: Array, phi: Array, x: Array) -> float:
    """About what rounding in p.dtype costs: logits off by d_j move a head by E[|V − h| d].

    The rounding of the query is left out: it shifts u, and costs no more than f changes over a few units in the last
    place.
    """
    unit = 2.0**-53 if p.dtype == "float64" else 2.0**-24
    every = slice(None, None, max(1, len(u) // 300))
    u, phi = u[every], phi[every]
    total, at = np.zeros(len(u)), 0
    for keys in pieces:
        weight, v = phi[:, at : at + keys.size], x[at : at + keys.size]
        at += keys.size
        k, b, q = np.abs(keys.slopes), np.abs(keys.biases), np.abs(keys.query(u))[:, None]
        d = (10 * (1 + keys.size // 64) + 5 * (k * q + b)) * unit
        away = weight * np.abs(v - (weight @ v)[:, None])
        total += (away * d).sum(axis=1) + away.sum(axis=1) * (weight * d).sum(axis=1)
        total += 4 * (keys.size + 12) * unit * (weight @ np.abs(v))
    return float(total.max()) if len(pieces) else 0.0


def _seen(keys: Keys, u: Array, least: float) -> Keys:
    kept = keys.weights(u).max(axis=0) > least
    kept[: keys.fixed] = True
    return keys if kept.all() else replace(keys, slopes=keys.slopes[kept], biases=keys.biases[kept])


def passes(p: Problem, c: Candidate) -> bool:
    return c.error + c.rounding <= p.eps and c.largest <= _CAP[p.dtype] * p.span


def search(p: Problem, quick: bool) -> Candidate:
    """The best candidate found; the caller looks at its error, for it may miss ε."""
    families = layouts(p)
    if p.ladders:
        best = _first_untuned(p, families)
        if best is None or quick or best[1].keys > _TUNABLE:
            return best[1] if best is not None else _nearest(p, families)
        return _tuned(p, [families[best[0]]], best[1].keys, best[1].keys - best[1].keys // 5, False) or best[1]
    size = p.guess if not p.kinks else sum(k.size for k in families[0](0.1 * p.guess))
    if size <= _TUNABLE:
        tuned = _tuned(p, families, 2 * size + 8, size, quick)
        if tuned is not None:
            return tuned
    best = _first_untuned(p, families)
    return best[1] if best is not None else _nearest(p, families)


def _first_untuned(p: Problem, families: list[Layout]) -> tuple[int, Candidate] | None:
    """The untuned candidate with the fewest keys, and its layout."""
    best: tuple[int, Candidate] | None = None
    for i, layout in enumerate(families):
        found = _coarsest(p, layout, best[1].keys - 1 if best is not None else _MOST)
        if found is not None:
            best = (i, found)
    return best


def _nearest(p: Problem, families: list[Layout]) -> Candidate:
    return min((_untuned(p, layout, rho) for layout in families for rho in (2.0, 4.0)), key=lambda c: c.error)


def _untuned(p: Problem, layout: Layout, rho: float) -> Candidate:
    pieces = layout(rho)
    n = sum(k.size for k in pieces)
    return finish(p, pieces, p.sample(n, 4), p.sample(n), polish=0)


def hopeless(p: Problem, c: Candidate) -> bool:
    """Good but for rounding, and that by far: more keys would not mend it."""
    return c.error <= 0.5 * p.eps and c.rounding > 2 * p.eps


def _coarsest(p: Problem, layout: Layout, most: int) -> Candidate | None:
    """Bisection over the list of resolutions for the coarsest that passes with at most `most` keys."""
    low, high = -1, len(_RESOLUTIONS)
    while high > 0 and sum(k.size for k in layout(float(_RESOLUTIONS[high - 1]))) > most:
        high -= 1
    best: Candidate | None = None
    probe = high - 1 if most < _MOST else min(12, high - 1)
    while high - low > 1:
        c = _untuned(p, layout, float(_RESOLUTIONS[probe]))
        if passes(p, c):
            high, best = probe, c
        elif hopeless(p, c):
            return best
        else:
            low = probe
        probe = (low + high) // 2 if best is not None else min(probe + 6, high - 1)
    return best


def _tuned(p: Problem, families: list[Layout], most: int, first: int, quick: bool) -> Candidate | None:
    """The fewest keys with which some tuned start passes: from `first` up or down by quarters, then bisection."""
    ridge = _RIDGE[p.dtype] * p.eps / p.span
    best: Candidate | None = None
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
            pieces, used = tune(pieces, fit, ridge, 60 if n < 16 else 40, 0.75 * p.eps)
            work += 1e5 + used * len(fit.u) * n * n * 8.0
            c = finish(p, pieces, p.sample(n, 4), fit)
            if passes(p, c):
                won = c
                families = [families[i], *families[:i], *families[i + 1 :]]  # what worked is tried first from now on
                break
            if hopeless(p, c):
                work = _WORK
        if won is None:
            low = probe
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
    return best


def _sized(layout: Layout, n: int) -> Pieces:
    """The layout at the finest resolution with at most n keys."""
    low, high = 0.02, 200.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if sum(k.size for k in layout(middle)) <= n else (low, middle)
    return layout(low)
