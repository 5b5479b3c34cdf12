"""The figures of one head: all that findings are made of.

Lengths of cells are in units of the head's query, errors and tolerances in units of what the head writes. A figure that
could not be had is None. What is *exact* comes from the weights alone; what is *sampled* was seen at `points` inputs
and is no bound; a *predicted* figure is a formula in the others.
"""

from dataclasses import asdict, dataclass
from typing import Any


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
class Figures:
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
