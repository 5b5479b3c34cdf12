"""All figures of all heads of a subject. Nothing here is a bound unless `Figures` says so.

What a fix does to the weights: the same network but for one head. Labels stay: they say what was meant.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.diagnosis import attention
from attnfun.diagnosis.findings import AxisCells, Figures, Fix
from attnfun.diagnosis.rounding import DTYPES, Dtype, in_dtype
from attnfun.diagnosis.subject import Judge, Subject, judge, tolerance, worst
from attnfun.errors import InvalidRequest
from attnfun.network import Axis, Head, Layer, Network, evaluate, evaluate_head
from attnfun.network.head import Array, rounded

_SCALES = tuple(4.0**k for k in range(-7, 6))
_SWEPT = 1 << 22  # keys of a head whose temperature is still varied
_FINE, _COARSE = 34, 6  # steps of the search for the best temperature
_REFIT = 600  # keys of a head whose values are fitted anew
_SOFT = (0.5, 1.0, 2.0, 4.0)  # sharpness c at which fitted values are tried
_DENSE = 1 << 16  # keys looked at one by one


def measure(
    subject: Subject, dtype: str | None = None, progress: Callable[[str, float], None] | None = None
) -> list[Figures]:
    """The figures of every attention head, layer by layer."""
    network, kind = subject.exact, DTYPES[dtype or subject.network.dtype]
    eps, how = tolerance(subject, np.asarray(evaluate(network, subject.X), dtype=np.float64))
    found = list[Figures]()
    for depth, layer in enumerate(network.layers):
        for place, head in enumerate(layer.attention):
            if subject.picks and head.name not in subject.picks:
                continue
            if progress is not None:
                progress(head.name, len(found) / len(network.heads))
            found.append(_figures(subject, depth, place, eps, how, kind))
    writes = [network.layers[f.layer].heads[f.place].writes for f in found]
    return _rivals(found, writes, subject.ideal is not None)


def _rivals(found: list[Figures], writes: list[tuple[str, ...]], labelled: bool) -> list[Figures]:
    """Heads share an error where they write one labelled coordinate, or where nothing is labelled: `rival_error`."""
    out = []
    for mine, coordinates in zip(found, writes, strict=True):
        left = [
            other.best_error * other.gain / mine.gain
            for other, theirs in zip(found, writes, strict=True)
            if other is not mine and other.best_error is not None and mine.gain > 0
            if not labelled or (other.layer == mine.layer and set(theirs) & set(coordinates))
        ]
        out.append(replace(mine, rival_error=min(left, default=None)))
    return out


def _figures(subject: Subject, depth: int, place: int, eps: float, how: str, dtype: Dtype) -> Figures:
    head, tokens = subject.exact.layers[depth].attention[place], subject.streams[depth]
    verdict = judge(subject, depth, place)
    queries = tuple(tokens @ axis.query.T + axis.offset for axis in head.axes)
    slopes = [_axis_slope(subject, head, axis, depth, verdict) for axis in head.axes]
    every = zip(head.axes, queries, slopes, strict=True)
    cells = tuple(attention.axis_cells(axis, q, slope) for axis, q, (slope, _) in every)
    seen = attention.attend(head, tokens)
    output = evaluate_head(head, tokens)
    allowed = eps / verdict.gain if verdict.gain > 0 else math.inf
    wanted = output if verdict.wanted is None else verdict.wanted
    mixture = float(evaluate_head(replace(head, values=np.abs(head.values)), tokens).max())
    square = evaluate_head(replace(head, values=head.values**2), tokens) - output**2
    deviation = float(np.sqrt(np.maximum(square, 0.0).max()))
    rounding, overflow = _rounding(head, verdict, dtype, seen)
    spread = float(head.spread.max())
    sharp = [c.sharpness for c in cells if c.sharpness is not None]
    mass = min(0.5, allowed / (2 * spread)) if spread > 0 and math.isfinite(allowed) and allowed > 0 else 0.5
    longest = max(*head.grid, *(c.owners for c in cells))  # p of the temperature bound
    needed = 2 * math.log(max(longest, 2) / mass)
    name = f"{subject.name}: {head.name}" if subject.name else head.name
    shown: dict[str, Any] = {"name": name, "layer": depth, "place": place, "keys": head.keys, "grid": head.grid}
    shown |= {"points": seen.points, "picks": head.name in subject.picks}
    shown |= {f"key_norm_{which}": norm for which, norm in zip(("mean", "max"), _norms(head), strict=True)}
    shown |= {f"effective_{which}": float(getattr(seen.effective, which)()) for which in ("mean", "min", "max")}
    shown |= {"top_weight": float(seen.top.mean()), "margin": float(np.median(seen.margin)), "cells": cells}
    shown |= {"size": float(np.abs(wanted).max()), "value_max": head.max_value, "value_spread": spread}
    shown |= {"mixture": mixture, "deviation": deviation, "gain": verdict.gain, "tolerance": allowed}
    shown |= {"eps": eps, "eps_how": how, "dtype": dtype.name, "roundoff": dtype.roundoff, "rounding": rounding}
    shown |= {"rounding_scale": dtype.roundoff * (mixture + seen.logit_size * deviation), "overflow": overflow}
    shown |= {"logit_size": seen.logit_size, "logit_max": seen.logit_max, "exp_limit": dtype.exp_limit}
    live = math.prod(int(one.sum()) for one in attention.alive(head, seen.peaks, allowed))
    shown |= {"dead": head.keys - live, "redundant": _redundant(head, queries, allowed)}
    shown |= {"sharpness": min(sharp) if len(sharp) == len(cells) else None, "sharpness_needed": needed}
    shown |= {"lipschitz": _norm([s for s, _ in slopes]), "lipschitz_how": slopes[0][1] if slopes else ""}
    own = Figures(**shown, staircase=_staircase(cells))
    if own.sharpness is not None and own.sharpness > 0:
        own = replace(own, scale_needed=needed / own.sharpness)
    elif own.margin > 0 and math.isfinite(own.margin):
        own = replace(own, scale_needed=math.log(2 * max(head.keys - 1, 1) / mass) / own.margin)
    return _compared(own, subject, head, verdict)


def _compared(own: Figures, subject: Subject, head: Head, verdict: Judge) -> Figures:
    """With the errors at this and at other temperatures, and with other values."""
    if verdict.truth is None:
        return own
    errors, tokens = verdict.errors, verdict.tokens

    def at(factor: float) -> float:
        with np.errstate(all="ignore"):
            found = subject.size(errors(evaluate_head(attention.scaled_head(head, factor), tokens)))
        return found if math.isfinite(found) else math.inf

    own = replace(own, error=at(1.0), hard_error=subject.size(errors(attention.hard(head, tokens))))
    if head.keys <= _SWEPT:
        fitting = [c / own.sharpness for c in (1.0, 5.0, 20.0)] if own.sharpness else []
        tried = {factor: at(factor) for factor in (*_SCALES, *(f for f in fitting if 0 < f < math.inf))}
        best = min(tried, key=lambda factor: tried[factor])
        steps = _FINE if head.keys * len(tokens) <= 1 << 24 else _COARSE
        if best != 1.0 or tried[1.0] > own.tolerance:
            tried |= _narrowed(at, best / 4, best * 4, steps)
        enough = 1.02 * min(tried.values())  # on a plateau, the factor nearest to what there is
        best = min((f for f in tried if tried[f] <= enough), key=lambda f: abs(math.log(f)), default=1.0)
        own = replace(own, best_scale=best, best_error=tried[best], sweep=tuple(sorted(tried.items())))
    if verdict.wanted is not None and head.keys <= min(_REFIT, len(tokens) // 3):
        scales = {0.5, 1.0, 2.0, 4.0} | ({c / own.sharpness for c in _SOFT} if own.sharpness else set())
        tried_fits = [one for factor in sorted(scales) for one in _fits(own, subject, head, verdict, factor)]
        enough = max(1.5 * min(tried_fits)[0], 0.5 * own.tolerance)  # of those that do, the one with the least values
        _, least, rounding, value, factor, ridge = min((t for t in tried_fits if t[0] <= enough), key=lambda t: t[3])
        own = replace(own, refit_scale=factor, refit_error=least, refit_rounding=rounding)
        own = replace(own, refit_value=value, refit_ridge=ridge)
    return own


def _narrowed(at: Callable[[float], float], low: float, high: float, steps: int) -> dict[float, float]:
    """The factors that a search for the least error tries, on a logarithmic axis, with their errors."""
    from scipy.optimize import minimize_scalar

    found: dict[float, float] = {}

    def error(t: float) -> float:
        found[math.exp(t)] = at(math.exp(t))
        return found[math.exp(t)]

    minimize_scalar(error, bounds=(math.log(low), math.log(high)), method="bounded", options={"maxiter": steps})
    return found


def _fits(own: Figures, subject: Subject, head: Head, verdict: Judge, factor: float) -> list[tuple[float, ...]]:
    """(error and rounding together, error, rounding, largest value, factor, ridge) of values fitted at every other
    point: the error at the other ones, the rounding predicted.
    """
    assert verdict.wanted is not None
    weights = attention.weights_of(attention.scaled_head(head, factor), verdict.tokens)
    out: list[tuple[float, ...]] = []
    for ridge in attention.RIDGES:
        values = attention.fit(weights[::2], verdict.wanted[::2], ridge)
        mixture = float((weights @ np.abs(values)).max())
        error = subject.size(verdict.errors(weights @ values)[1::2])
        rounding = own.roundoff * mixture * (1 + factor * own.logit_size)
        out.append((error + rounding, error, rounding, float(np.abs(values).max()), factor, ridge))
    return out


def _rounding(head: Head, verdict: Judge, dtype: Dtype, seen: attention.Attention) -> tuple[float, bool]:
    """How much the outputs move, in units of the head, if the head is computed in the dtype; does it overflow?"""
    step = max(1, len(verdict.tokens) * head.keys // (1 << (21 if dtype.name == "float64" else 27)))
    some = verdict.tokens[::step]
    with np.errstate(all="ignore"):
        found = in_dtype(head, some, dtype)
        if found is None or seen.logit_max > dtype.largest or not np.isfinite(found).all():
            return math.inf, True
        near = attention.extended(head, some) if dtype.name == "float64" else evaluate_head(head, some)
        clean = evaluate_head(head, verdict.tokens)
        moved = clean.copy()
        moved[::step] += found - near
        lost = worst(verdict.outputs(moved), verdict.outputs(clean)).max()
    return float(lost) / verdict.gain if verdict.gain > 0 else 0.0, False


def _norms(head: Head) -> tuple[float, float]:
    """Mean and largest norm of W_Qᵀ k_j; of product heads by axes: squares add up where axes read different inputs."""
    if head.keys <= _DENSE:
        norms = np.linalg.norm(head.dense_keys()[0] @ head.query_map[0], axis=1)
        return float(norms.mean()), float(norms.max())
    each = [np.linalg.norm(axis.slopes @ axis.query, axis=1) for axis in head.axes]
    squares = [float(np.mean(n**2)) for n in each], [float(np.max(n**2)) for n in each]
    return math.sqrt(sum(squares[0])), math.sqrt(sum(squares[1]))


def _redundant(head: Head, queries: tuple[Array, ...], allowed: float) -> int:
    single = 0
    for number, (axis, q) in enumerate(zip(head.axes, queries, strict=True)):
        values = np.moveaxis(head.values, number, 0).reshape(axis.keys, -1)
        pairs = attention.doubled(axis, q, values, 0.1 * allowed)
        single += pairs * head.keys // axis.keys
    return min(single, head.keys - 1)


def _axis_slope(subject: Subject, head: Head, axis: Axis, depth: int, verdict: Judge) -> tuple[float | None, str]:
    """How fast what is wanted of the head changes along an axis' query.

    The target's own bound where the head alone makes each output (one number each); else sampled, where what is wanted
    is a function of this query alone; else None.
    """
    network, d = subject.exact, len(subject.network.inputs)
    reads = network.readout[:, d:]
    alone = len(network.heads) == 1 and not network.readout[:, :d].any() and reads.shape[0] == reads.shape[1]
    if alone and subject.slopes is not None and np.array_equal(reads, np.diag(np.diag(reads))) and reads.any():
        unit = np.abs(np.diag(reads))[:, None]
        per = np.divide(subject.slopes, unit, out=np.zeros_like(subject.slopes), where=unit > 0)
        used = np.flatnonzero(np.abs(axis.query).max(axis=0) > 0)
        if axis.dim == 1 and len(used) == 1:
            slope = float(per[:, used[0]].max()) / abs(float(axis.query[0, used[0]]))
        else:
            least = float(np.linalg.svd(axis.query, compute_uv=False).min())
            slope = float(np.linalg.norm(per, axis=1).max()) / max(least, 1e-300)
        if math.isfinite(slope):
            return slope, subject.slopes_how
    one = len(head.axes) == 1 and axis.dim == 1
    if verdict.wanted is None or not one or not (network.labels is not None or (d == 1 and depth == 0)):
        return None, ""
    queries = (verdict.tokens @ axis.query.T + axis.offset)[:, 0]
    order = np.argsort(queries, kind="stable")
    q, w = queries[order], verdict.wanted[order]
    far = max(1, len(q) // 500)
    step = q[far:] - q[:-far]
    good = step > 1e-3 * max(float(np.ptp(q)), 1e-300)
    if not good.any():
        return None, ""
    change = np.abs(w[far:] - w[:-far]).max(axis=1)
    return float((change[good] / step[good]).max()), "sampled"


def _norm(slopes: list[float | None]) -> float | None:
    known = [s for s in slopes if s is not None]
    return math.sqrt(sum(s * s for s in known)) if known and len(known) == len(slopes) else None


def _staircase(cells: tuple[AxisCells, ...]) -> float | None:
    """½ Σ slope · widest cell, cells of several coordinates by their diagonal."""
    known = [c.slope * c.widest * math.sqrt(c.dim) for c in cells if c.slope is not None and c.widest is not None]
    return sum(known) / 2 if len(known) == len(cells) else None


def scaled(network: Network, layer: int, place: int, factor: float) -> Network:
    """The network with the logits of one head multiplied by `factor`."""
    return replaced(network, layer, place, attention.scaled_head(_head(network, layer, place), factor))


def dropped(network: Network, layer: int, place: int, axis: int, keep: NDArray[np.bool_]) -> Network:
    """The network with only the keys `keep` (a mask) of one axis of one head."""
    head = _head(network, layer, place)
    one = head.axes[axis]
    fewer = Axis(one.query, one.offset, one.slopes[keep], one.biases[keep])
    axes = (*head.axes[:axis], fewer, *head.axes[axis + 1 :])
    return replaced(network, layer, place, replace(head, axes=axes, values=np.compress(keep, head.values, axis=axis)))


def replaced(network: Network, layer: int, place: int, head: Head) -> Network:
    """The network with another head in one place, its weights rounded to the network's dtype."""
    dtype = network.dtype
    axes = tuple(Axis(a.query, a.offset, rounded(a.slopes, dtype), rounded(a.biases, dtype)) for a in head.axes)
    head = replace(head, axes=axes, values=rounded(head.values, dtype))
    heads = network.layers[layer].heads
    own = Layer((*heads[:place], head, *heads[place + 1 :]))
    return replace(network, layers=(*network.layers[:layer], own, *network.layers[layer + 1 :]))


def _head(network: Network, layer: int, place: int) -> Head:
    head = network.layers[layer].heads[place]
    if not isinstance(head, Head):
        raise InvalidRequest("a block of ReLU units has no logits to fix")
    return head


def fixed(subject: Subject, f: Figures, fix: Fix) -> Network:
    """The subject's network with the fix done to the head of these figures.

    "scale", "refit" and "drop" are done here; more keys, another dtype or merged pairs are for a new construction.
    """
    network = subject.network
    head = _head(network, f.layer, f.place)
    if fix.action == "scale" and fix.factor is not None:
        return scaled(network, f.layer, f.place, fix.factor)
    if fix.action == "refit":
        verdict = judge(subject, f.layer, f.place)
        if verdict.wanted is None:
            raise InvalidRequest("it is not known what this head should write: its values cannot be fitted")
        new = attention.scaled_head(head, fix.factor or 1.0)
        weights, ridge = attention.weights_of(new, verdict.tokens), f.refit_ridge or attention.RIDGES[0]
        values = attention.fit(weights, verdict.wanted, ridge)
        return replaced(network, f.layer, f.place, replace(new, values=values.reshape(head.values.shape)))
    if fix.action == "drop":
        peaks = attention.attend(head, subject.streams[f.layer]).peaks
        for number, live in enumerate(attention.alive(head, peaks, f.tolerance)):
            network = dropped(network, f.layer, f.place, number, live)
        return network
    raise InvalidRequest(f"the fix {fix.action!r} is not one that is done to the weights: {fix.words}")
