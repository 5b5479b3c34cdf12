"""The figures of one head, and what they say: which failure it is, how grave, and how to fix it.

**Figures.** Lengths of cells are in units of the head's query, errors and tolerances in units of what the head writes.
A figure that could not be had is None. What is *exact* comes from the weights alone; what is *sampled* was seen at
`points` inputs and is not a bound; a *predicted* figure is a formula in the others.

**Findings** are pure functions of `Figures`.

| kind | the figures that make it |
| --- | --- |
| fuzzy partition | too large an error, values of the target's size, and a sharper softmax takes off 30 % or more |
| staircase | too large an error, weights nearly one-hot; the one-hot limit errs alike, or a softer softmax less |
| temperature off | too large an error, values that cancel (fitted for another R), and another R explains it |
| values too large for the dtype | rounding eats the tolerance, and 4 times what comes out, or more, is added up |
| logits too large for the dtype | rounding eats the tolerance without such values, or weights or logits overflow |
| unfitted values | too large an error that no temperature fixes, but other values for the same keys do |
| too few keys | too large an error that neither temperature nor values fix |
| soft pick | a head that is to pick one key gives it less than half its weight on average |
| dead keys, redundant keys | keys that could be left out, or merged |
| idle head | nothing the head writes reaches the outputs |
| healthy | none of the grave ones; says in which regime the head works |

Severity: "serious" where a tolerance that was asked for is missed (without one: where the error is over a tenth of the
range), "warning" where the stand-in is missed, "note" else.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from attnfun.diagnosis.rounding import DTYPES
from attnfun.language.brief import Brief


@dataclass(frozen=True)
class AxisCells:
    """The cells {q : key j has the largest logit} of one axis.

    `form`: "gaussian" (logits are −R|q − v_j|²/2 up to what all keys share, so that there are centres v_j and one R),
    "max-affine" (one query coordinate, cells of the upper envelope of the lines, walls of different sharpness), or
    "none". `width` is the median distance of neighbouring centres (gaussian) or the median width of a cell, `widest`
    the largest that the inputs meet, `sharpness` c = R·width², in the max-affine case the median of (difference of
    neighbouring slopes)·(width of the cell), which is the same number for gaussian keys. `slope`: how fast the target
    changes along this query, where the axis reads one input.
    """

    form: str
    keys: int
    owners: int
    R: float | None = None
    width: float | None = None
    widest: float | None = None
    sharpness: float | None = None
    slope: float | None = None
    dim: int = 1


@dataclass(frozen=True)
class Figures(Brief):
    """One head, measured.

    | figure | what | how |
    | --- | --- | --- |
    | key_norm_mean, key_norm_max | norms of W_Qᵀ k_j, the gradients of the logits | exact |
    | effective_mean, _min, _max | exp(entropy of the attention weights) | sampled |
    | top_weight | the largest weight, averaged over the inputs | sampled |
    | margin | median of the largest logit minus the second | sampled |
    | cells, sharpness | `AxisCells`; the least c of any axis | exact on the sampled range of the query |
    | sharpness_needed | 2 ln(p/ε₀): from this c on the mass outside two neighbours is at most ε₀ | predicted |
    | scale_needed | what keys and biases must be multiplied by for that; without cells by the margin | predicted |
    | lipschitz | of the target; `lipschitz_how` proved, declared or sampled | |
    | staircase | ½ Σ slope·widest cell, or ½ L h √r: what a hard look-up loses | predicted |
    | resolution | staircase / tolerance: h against eps / L | predicted |
    | size | the largest |wanted output| of the head, or |output| where nothing is known to be wanted | sampled |
    | value_max | the largest |V| | exact |
    | mixture | sup of Σ w_j |V_j|: what is added up to get an output | sampled |
    | deviation | sup of (Σ w_j |V_j − output|²)^½: what a wrong logit is multiplied by | sampled |
    | gain | how much an error of the head moves the network's outputs | exact in the last layer, else sampled |
    | eps, tolerance | what was asked of the network (`eps_how`), and eps / gain | |
    | error | the largest |output − wanted|, in real arithmetic | sampled |
    | hard_error | the same of the one-hot limit R → ∞ | sampled |
    | best_scale, best_error | the factor on keys and biases with the least error, and that error | sampled |
    | sweep | (factor, error) of all factors that were tried | sampled |
    | rival_error | the least that is left if another head that shares the error gets its best factor | sampled |
    | refit_scale, refit_error, refit_value, … | the same with values fitted anew, at points not fitted to | sampled |
    | rounding | the largest |output in `dtype` − output in float64| | sampled |
    | rounding_scale | u (mixture + logit_size · deviation): what rounded weights may cost | predicted |
    | logit_size | the largest |k||q| + |b| of keys that matter: logits are off by u times this | sampled |
    | wall_shift | u · logit_size / c: how far rounded logits move a wall, in cells | predicted |
    | logit_max, overflow | the largest |logit|; whether a weight or a logit leaves the dtype's range | sampled |
    | dead | keys whose largest weight moves the output by less than a hundredth of the tolerance | sampled |
    | redundant | keys whose weight stays in a fixed ratio to another's: two that could be one | exact |
    """

    name: str
    layer: int
    place: int
    keys: int
    grid: tuple[int, ...]
    points: int
    picks: bool
    key_norm_mean: float
    key_norm_max: float
    effective_mean: float
    effective_min: float
    effective_max: float
    top_weight: float
    margin: float
    cells: tuple[AxisCells, ...]
    size: float
    value_max: float
    value_spread: float
    mixture: float
    deviation: float
    gain: float
    tolerance: float
    eps: float
    eps_how: str
    dtype: str
    roundoff: float
    rounding: float
    rounding_scale: float
    logit_size: float
    logit_max: float
    exp_limit: float
    overflow: bool
    dead: int
    redundant: int
    sharpness: float | None = None
    sharpness_needed: float | None = None
    scale_needed: float | None = None
    lipschitz: float | None = None
    lipschitz_how: str = ""
    staircase: float | None = None
    error: float | None = None
    hard_error: float | None = None
    best_scale: float | None = None
    best_error: float | None = None
    rival_error: float | None = None
    refit_scale: float | None = None
    refit_error: float | None = None
    refit_value: float | None = None
    refit_ridge: float | None = None
    refit_rounding: float = 0.0
    sweep: tuple[tuple[float, float], ...] = ()

    @property
    def cancellation(self) -> float:
        """What is added up against what comes out: 1 for values like the target's, large where big values cancel."""
        return self.mixture / self.size if self.size > 0 else (1.0 if self.mixture == 0 else float("inf"))

    @property
    def resolution(self) -> float | None:
        """How many times narrower cells would have to be for a hard look-up within the tolerance."""
        return self.staircase / self.tolerance if self.staircase is not None and self.tolerance > 0 else None

    @property
    def wall_shift(self) -> float | None:
        return self.roundoff * self.logit_size / self.sharpness if self.sharpness else None

    def to_json(self) -> dict[str, Any]:
        more = {"cancellation": self.cancellation, "wall_shift": self.wall_shift, "resolution": self.resolution}
        return asdict(self) | more


LOOKS_LIKE = 1.5  # values up to this many times the target's size look like function values
EXPLAINS = 0.7  # an error that another temperature lowers to this share is the temperature's
APART = 1.4  # factors on keys nearer to 1 than this are no fix
ONE_HOT, FEW = 0.8, 1.5  # mean of the largest weight, effective keys
MANY_TIMES = 64.0
CANCELS = 4.0
ROOM = 0.3  # of the tolerance that rounding may take
FAR = 100.0  # size of logits from which their offset may be to blame
GRAVE = ("serious", "warning")
_OF_ROUNDING = (
    "dtype rounding rounding_scale tolerance value_max mixture size cancellation logit_size logit_max wall_shift "
    "overflow error refit_scale refit_error refit_value"
)
_OF_ERRORS = (
    "error tolerance eps eps_how hard_error best_scale best_error rival_error top_weight effective_mean sharpness "
    "sharpness_needed value_max size staircase lipschitz refit_scale refit_error"
)


@dataclass(frozen=True)
class Fix(Brief):
    """`action`: "scale" (keys and biases times `factor`), "refit" (and values fitted anew), "dtype" (`factor` None),
    "keys" (`factor` times as many an axis), "drop" (dead keys), "merge" or "none".
    """

    action: str
    words: str
    factor: float | None = None


@dataclass(frozen=True)
class Finding(Brief):
    """What was seen in one head: `figures` are those that made it, `words` the sentence, `fixes` the best first."""

    kind: str
    severity: str
    head: str
    words: str
    fixes: tuple[Fix, ...]
    figures: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        fix = " Fix: " + "; or ".join(m.words for m in self.fixes) + "." if self.fixes else ""
        return f"{self.kind} ({self.severity}): {self.words}.{fix}"


def findings(f: Figures) -> tuple[Finding, ...]:
    """All that is to be said of one head, the gravest first; never empty."""
    if not f.gain > 0:
        words = f"nothing that {f.name} writes reaches the outputs"
        fix = Fix("none", "leave the head out")
        return (Finding("idle head", "warning", f.name, words, (fix,), {"gain": f.gain}),)
    found = [one for one in (_dtype(f), _error(f), _pick(f)) if one is not None]
    grave = any(one.severity in GRAVE for one in found)
    found += [one for one in (_dead(f), _redundant(f)) if one is not None]
    if not grave:
        found.insert(0, _healthy(f))
    return gravest_first(found)


def gravest_first(found: Iterable[Finding]) -> tuple[Finding, ...]:
    order = ("serious", "warning", "healthy", "note")
    return tuple(sorted(found, key=lambda one: order.index(one.severity)))


def regime(f: Figures) -> str:
    """How the head works, right or wrong."""
    if _one_hot(f):
        return "look-up: nearly all weight is on one key"
    share = f"about {_n(f.effective_mean)} keys share an input"
    if f.value_max <= LOOKS_LIKE * f.size:
        return f"soft look-up: {share}, with values of the size of the target's"
    return f"mixing: {share}, with fitted values that cancel"


def _one_hot(f: Figures) -> bool:
    return f.top_weight >= ONE_HOT and f.effective_mean <= FEW


def _severity(f: Figures, amount: float) -> str:
    if not amount > f.tolerance:
        return "note"
    return "serious" if f.eps_how == "asked" or amount > 10 * f.tolerance else "warning"


def _dtype(f: Figures) -> Finding | None:
    """Rounding: what was measured in the dtype, and what rounded weights explain of the error."""
    stored = f.error is not None and f.error > f.tolerance and f.rounding_scale >= ROOM * f.error
    stored = stored and not (f.best_error is not None and f.error is not None and f.best_error <= EXPLAINS * f.error)
    moved = f.wall_shift is not None and f.wall_shift > ROOM and f.value_max <= LOOKS_LIKE * f.size
    eaten = not f.rounding <= ROOM * f.tolerance
    if not (eaten or stored or moved or f.overflow):
        return None
    amount = max(f.rounding, f.error if stored and f.error is not None else 0.0)
    what = f"{f.dtype} loses up to {_n(amount)} of an allowed {_n(f.tolerance)}"
    grave = "serious" if f.overflow else _severity(f, amount)
    grave = "warning" if grave == "note" and eaten else grave
    better, heavy = _wider(f), f.overflow and _values_overflow(f)
    if heavy:
        words = f"values up to {_n(f.value_max)}, or sums of them, leave the range of {f.dtype}"
    elif f.overflow:
        words = f"a weight or a logit (up to {_n(f.logit_max)}) leaves the range of {f.dtype}"
    elif f.cancellation >= CANCELS:
        words = (
            f"{what}: values up to {_n(f.value_max)} are mixed to get numbers up to {_n(f.size)}, "
            f"{_n(f.cancellation)} times more is added up than comes out"
        )
    else:
        words = (
            f"{what}: logits are differences of numbers up to {_n(f.logit_size)}, "
            f"so they are off by {_n(f.roundoff * f.logit_size)} and cell walls move"
        )
    fixes = [Fix("dtype", f"run it in {better}")] if better else []
    if not heavy and (f.overflow or f.cancellation < CANCELS):
        kind = "logits too large for the dtype"
        if f.best_scale is not None and f.best_scale < 1 / APART:
            lower = f"multiply keys and biases by {_n(f.best_scale)}"
            fixes.insert(0, Fix("scale", lower, f.best_scale))
        if f.logit_size > FAR:
            fixes.append(Fix("none", "centre the domain: measure inputs from the middle of the box"))
    else:
        kind = "values too large for the dtype"
        if _refit_helps(f, EXPLAINS * amount) and f.refit_value is not None and f.refit_value < f.value_max / CANCELS:
            fixes.append(_refit(f))
        fixes.append(Fix("none", "sharper or gaussian keys with small fitted values, as compile makes for float32"))
    return Finding(kind, grave, f.name, words, tuple(fixes), _picked(f, _OF_ROUNDING))


def _wider(f: Figures) -> str | None:
    """The first wider dtype that holds the numbers and, as predicted, leaves room; the widest that holds them else."""
    wider = {"bfloat16": ("float32", "float64"), "float16": ("float32", "float64"), "float32": ("float64",)}
    holds = [n for n in wider.get(f.dtype, ()) if max(f.value_max * f.keys, f.logit_max) <= DTYPES[n].largest]
    room = [n for n in holds if f.rounding_scale / f.roundoff * DTYPES[n].roundoff <= ROOM * f.tolerance]
    return next(iter((*room, *holds[::-1])), None)


def _values_overflow(f: Figures) -> bool:
    """Whether values alone explain that numbers leave the dtype's range, or that of its sums."""
    dtype = DTYPES[f.dtype]
    sums = DTYPES[dtype.runs_in].largest
    return f.logit_max <= dtype.largest and (f.value_max > dtype.largest or f.value_max * f.keys > sums)


def _error(f: Figures) -> Finding | None:
    if f.error is None or not f.error > f.tolerance:
        return _could_be_softer(f)
    if f.rounding_scale >= ROOM * f.error and not (f.best_error or math.inf) <= EXPLAINS * f.error:
        return None  # rounded weights explain it: see _dtype
    grave, shown = _severity(f, f.error), _picked(f, _OF_ERRORS)
    scale = f.best_scale if f.best_scale is not None else 1.0
    helps = f.best_error is not None and f.best_error <= EXPLAINS * f.error
    off = f"it is off by {_n(f.error)} where {_n(f.tolerance)} is allowed"
    if not helps and f.rival_error is not None and f.rival_error <= EXPLAINS * f.error:
        return None  # another head explains it
    if helps and f.rival_error is not None and f.best_error is not None and f.rival_error < 0.95 * f.best_error:
        return None
    c = ""
    if f.sharpness is not None and f.sharpness_needed is not None:
        c = f" (c = R·h² is {_n(f.sharpness)}; {_n(f.sharpness_needed)} would settle it)"
    like = f.value_max <= LOOKS_LIKE * f.size
    if helps and scale > APART and like:
        words = f"{off}, its values look like the target's, but {_n(f.effective_mean)} keys share an input{c}: a blur"
        return Finding("fuzzy partition", grave, f.name, words, _fixes(f, sharper=True), shown)
    flat = f.hard_error is not None and 0.8 * f.hard_error <= f.error <= 1.25 * f.hard_error
    if _one_hot(f) and (flat or (helps and scale < 1 / APART)):
        words = f"{off}, and its weights are nearly one-hot (the largest is {f.top_weight:.2f} on average): steps, "
        words += f"of which hard ones cost {_n(f.hard_error or 0.0)}"
        if f.staircase is not None:
            words += f" and L·h/2 = {_n(f.staircase)} at most (L {f.lipschitz_how})"
        return Finding("staircase", grave, f.name, words, _fixes(f, sharper=False), shown)
    if helps and (scale > APART or scale < 1 / APART):
        way = "softer" if scale > 1 else "sharper"
        words = f"{off}, and it is {way} than its values were fitted for"
        enough = f.best_error is not None and f.best_error <= f.tolerance
        fitted = () if enough or not _refit_helps(f, EXPLAINS * (f.best_error or f.error)) else (_refit(f),)
        return Finding("temperature off", grave, f.name, words, (_scale(f), *fitted), shown)
    if _refit_helps(f, EXPLAINS * f.error):
        words = f"{off}; no temperature fixes that, but its keys can do {_n(f.refit_error or 0)} with other values"
        return Finding("unfitted values", grave, f.name, words, (_refit(f),), shown)
    values = "" if f.refit_error is None else ", nor do other values for these keys"
    words = f"{off}, and no other temperature fixes that{values}"
    more = Fix("none", "more keys, or longer training; `attnfun compile` sizes a head for an eps")
    fixes = tuple(m for m in _fixes(f, sharper=False) if m.action == "keys") if like else (more,)
    return Finding("too few keys", grave, f.name, words, fixes or (more,), shown)


def _could_be_softer(f: Figures) -> Finding | None:
    """A head that is good enough and could be better for nothing."""
    if f.error is None or f.best_error is None or f.best_scale is None or f.eps_how != "asked":
        return None
    if not (_one_hot(f) and f.best_scale < 1 / APART and f.best_error <= 0.5 * f.error):
        return None
    words = f"its steps are small enough: it is off by {_n(f.error)} where {_n(f.tolerance)} is allowed"
    return Finding("staircase", "note", f.name, words, (_scale(f),), _picked(f, _OF_ERRORS))


def _fixes(f: Figures, sharper: bool) -> tuple[Fix, ...]:
    fixes = []
    assert f.error is not None
    if f.best_scale is not None and (f.best_scale > APART if sharper else f.best_scale < 1 / APART):
        fixes.append(_scale(f))
    if _refit_helps(f, max(EXPLAINS * (f.best_error if f.best_error is not None else f.error), f.tolerance / 2)):
        fixes.append(_refit(f))
    least = min(v for v in (f.error, f.best_error) if v is not None)
    if least > f.tolerance:
        factor = float(math.ceil(least / f.tolerance)) if f.tolerance > 0 else math.inf
        more = f"about {_n(factor)} times as many keys per axis" if factor <= MANY_TIMES else "far more keys"
        fixes.append(Fix("keys", f"{more}, or fitted values (method='bernstein')", factor))
    return tuple(fixes)


def _scale(f: Figures) -> Fix:
    assert f.best_scale is not None and f.best_error is not None
    c = "" if f.sharpness is None else f" (c = {_n(f.sharpness * f.best_scale)})"
    words = f"multiply keys and biases by {_n(f.best_scale)}{c}: it is then off by {_n(f.best_error)}"
    return Fix("scale", words, f.best_scale)


def _refit(f: Figures) -> Fix:
    scale = "" if f.refit_scale in (None, 1.0) else f"multiply keys and biases by {_n(f.refit_scale or 1)} and "
    size = "" if f.refit_value is None else f", with values up to {_n(f.refit_value)}"
    off = (f.refit_error or 0.0) + f.refit_rounding
    return Fix("refit", f"{scale}fit the values anew: it is then off by about {_n(off)}{size}", f.refit_scale)


def _refit_helps(f: Figures, least: float) -> bool:
    if f.refit_error is None or f.refit_value is None:
        return False
    return f.refit_error + f.refit_rounding <= least


def _pick(f: Figures) -> Finding | None:
    if not f.picks or f.top_weight >= 0.5:
        return None
    words = f"it is to pick one of {f.keys:,} keys, and gives the best {f.top_weight:.2g} of its weight on average"
    factor = f.scale_needed
    fix = Fix("scale", f"multiply keys and biases (beta) by {_n(factor or math.inf)}", factor)
    return Finding("soft pick", "warning", f.name, words, (fix,), _picked(f, "top_weight margin scale_needed"))


def _dead(f: Figures) -> Finding | None:
    if not f.dead:
        return None
    words = f"{f.dead:,} of {f.keys:,} keys never get enough weight to matter, as far as {f.points:,} inputs show"
    grave = "warning" if f.dead > f.keys / 2 else "note"
    return Finding("dead keys", grave, f.name, words, (Fix("drop", "leave them out"),), _picked(f, "dead keys"))


def _redundant(f: Figures) -> Finding | None:
    if not f.redundant:
        return None
    words = f"{f.redundant:,} of {f.keys:,} keys keep a fixed ratio to another key's weight"
    fix = Fix("merge", "merge each pair: bias ln(e^b1 + e^b2), value the weighted mean")
    return Finding("redundant keys", "note", f.name, words, (fix,), _picked(f, "redundant keys"))


def _healthy(f: Figures) -> Finding:
    words = regime(f)
    known = f.error is not None or f.picks
    if f.picks:
        words = f"it picks: the best of {f.keys:,} keys has {f.top_weight:.2f} of the weight on average"
    elif f.error is not None and f.error > f.tolerance:
        words += f"; the network is off by {_n(f.error * f.gain)} where {_n(f.eps)} is allowed, but not by this head"
    elif f.error is not None:
        words += f"; off by {_n(f.error)} where {_n(f.tolerance)} is allowed"
    else:
        words += "; what it is for is not known here, so whether that is too soft or too coarse cannot be told"
        if f.scale_needed is not None and f.scale_needed > 1:
            words += f" (a hard look-up would need keys and biases {_n(f.scale_needed)} times as large)"
    shown = _picked(f, "top_weight effective_mean value_max size error tolerance rounding")
    kind, severity = ("healthy", "healthy") if known else ("not judged", "note")
    return Finding(kind, severity, f.name, words, (), shown)


def _picked(f: Figures, names: str) -> dict[str, Any]:
    return {name: getattr(f, name) for name in names.split() if getattr(f, name) is not None}


def _n(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e5 else f"{value:.3g}"
