"""A step of `compose` with two or three arguments: one tensor head, the Bernstein head of `bernstein.py`.

Where a node has no recipe of one variable, or none that is as small or as shallow, one head on the product grid of its
arguments takes it whole: φ = g(U_1, …, U_d), the U's affine in the variables and in other heads.
Size: a product of degrees, so it pays for two or three smooth arguments.  Bound: *nodes*, by `certify/steps.py`.
Failure mode: Infeasible past `MOST_KEYS` estimated keys, and where g is not defined a little beyond its arguments.
"""

import math
from dataclasses import replace

import numpy as np

from attnfun.errors import AttnfunError, Infeasible, InvalidRequest
from attnfun.kinds.function.build.bernstein import Bernstein, rough_keys
from attnfun.kinds.function.build.compose_program import Ranges, argument_names
from attnfun.kinds.function.build.plan import Request
from attnfun.kinds.function.build.unary.pieces import Fit
from attnfun.language import Graph
from attnfun.language.definedness import require_defined
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.network import Head

ARGUMENTS = (2, 3)
MOST_KEYS = 1500
_MARGIN = 1e-6  # of the width of a range: how far beyond it g must be defined


def tensor_keys(g: Graph, ranges: Ranges, eps: float = 1e-7) -> float:
    """Estimated keys of a head for g on the product of `ranges`, `eps` a fraction of g's range there."""
    function = _function(g, ranges)
    with np.errstate(all="ignore"):
        values = function.values(function.box.probe(256, np.random.default_rng(0)))
    if not np.isfinite(values).all():
        raise Infeasible("compose: a step is not defined on the ranges of its arguments")
    return rough_keys(Request(function, eps * max(float(np.ptp(values)), 1e-300), math.inf, "float64"))


def require_room(g: Graph, ranges: Ranges) -> None:
    """Infeasible unless g is defined a little beyond its ranges, where errors of the arguments may take it."""
    wide = tuple((a - _MARGIN * (b - a), b + _MARGIN * (b - a)) for a, b in ranges)
    try:
        require_defined(g, _function(g, wide).box)
    except AttnfunError as why:
        raise Infeasible(f"compose: a tensor step needs room around its arguments ({why})") from None


def fit_tensor(g: Graph, ranges: Ranges, tolerance: float, request: Request) -> Fit:
    """The smallest Bernstein head within `tolerance` of g on the product of `ranges`."""
    own = replace(request, function=_function(g, ranges), eps=tolerance, max_keys=min(request.max_keys, 4 * MOST_KEYS))
    bernstein = Bernstein()
    (head,) = bernstein.build(own, bernstein.plan(own)).heads
    assert isinstance(head, Head)
    return Fit((replace(head, key_names=", ".join(f"degree {{{k}}}" for k in range(len(ranges)))),))


def _function(g: Graph, ranges: Ranges) -> Function:
    names = argument_names(len(ranges))
    if not all(a < b for a, b in ranges):
        raise Infeasible("compose: an argument of a step does not vary on the box")
    try:
        box = Box(names, tuple(a for a, _ in ranges), tuple(b for _, b in ranges))
    except InvalidRequest as why:
        raise Infeasible(f"compose: the argument of a step is not bounded on the box ({why})") from None
    return Function(g, box, ("g",))
