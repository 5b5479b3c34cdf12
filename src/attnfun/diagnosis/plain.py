"""What is looked at in a network on a box: its heads at points of the box, judged by the function it is for."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from attnfun.diagnosis.rounding import DTYPES
from attnfun.diagnosis.subject import Subject
from attnfun.errors import AttnfunError, InvalidRequest, require
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.slopes import slope_bounds
from attnfun.network import Network
from attnfun.network.head import Array

POINTS, GRID, FEWER, LARGE = 1500, 2001, 600, 200_000
_SLOPES = 300  # boxes spent on the Lipschitz constant


def looked_at(
    network: Network, what: Function | Box, eps: float | None, norm: float = math.inf
) -> tuple[str, list[Subject], list[str]]:
    """(about, subjects, remarks) of a network that is for a function, or of which nothing is known but its box."""
    box = what if isinstance(what, Box) else what.box
    about = f"a network on {box.text}" if isinstance(what, Box) else f"{what.text[:120]}  on  {box.text}"
    if network.inputs != box.names:
        raise InvalidRequest(f"the network reads {', '.join(network.inputs)}, the domain has {', '.join(box.names)}")
    if network.is_mlp:
        return about, [], ["It is an MLP: its nonlinearities are ReLU units, and nothing in it attends."]
    if not network.heads:
        return about, [], ["The target is affine: the residual stream carries it, and there is no head to look at."]
    X = _inputs(box, network, norm)
    if isinstance(what, Box):
        return about, [Subject("", network, X, eps=eps, norm=norm)], []
    if len(what.outputs) != len(network.outputs):
        raise InvalidRequest(f"the target has {len(what.outputs)} outputs, the network {len(network.outputs)}")
    known = what.graph is not None or what.call is not None
    slopes, how = _slopes(what)
    subject = Subject("", network, X, what.values if known else None, slopes, how, eps, norm)
    missing = [] if known else ["The target is a Python function that is not in the file: give it as target."]
    return about, [subject], missing


def of_another(network: Network, target: Any, box: Box) -> tuple[Network, Function]:
    """The network without labels, which are those of another target, and the function it is to be judged by."""
    require(target is not None, "the target is a Python function that is not in the file; pass it as target")
    try:
        function = Function.read(target, box)
    except InvalidRequest:
        if not callable(target) or isinstance(target, Function):
            raise
        # Untraceable: nothing is proved here, so no declared constant is needed.
        function = Function.read(target, box, lipschitz=math.sqrt(np.finfo(np.float64).max))
    return replace(network, labels=None), function


def of_tokens(model: Any, _eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """Remarks and no subject, for every kind whose weights are, or hold, a network on tokens."""
    network = getattr(model.weights, "network", model.weights)
    plain, units = network.attention, sum(network.units)
    largest = max((float(np.abs(array).max()) for head in plain.heads for array in head.arrays.values()), default=0.0)
    kept = DTYPES[plain.dtype].roundoff * largest
    remarks = [
        f"Its heads attend over the tokens of the prompt: keys are data, there are no fixed ones to diagnose; "
        f"layers: {len(plain.layers)}, weights up to {largest:.3g}, kept by {plain.dtype} within {kept:.1g}."
    ]
    if units:
        remarks.append(f"{units:,} ReLU units stand between its layers, and are not looked at.")
    return f"a network on tokens ({type(model).__name__})", [], remarks


def _inputs(box: Box, network: Network, norm: float = math.inf) -> Array:
    count = POINTS if network.cost.keys <= LARGE else FEWER
    rng = np.random.default_rng([41, box.dim])
    if not math.isinf(norm):
        return box.sample(2 * count, rng)
    X = box.probe(count, rng)
    return X if box.dim > 1 else np.concatenate([X, np.linspace(box.low[0], box.high[0], GRID)[:, None]])


def _slopes(function: Function) -> tuple[Array | None, str]:
    """Proved bounds of the partial derivatives, or what was declared."""
    if function.graph is None:
        if function.lipschitz is None or function.lipschitz > 1e100:
            return None, ""
        d = function.box.dim
        return np.full((len(function.outputs), d), function.lipschitz / math.sqrt(d)), "declared"
    try:
        return slope_bounds(function.graph, function.box, budget=_SLOPES), "proved"
    except AttnfunError:
        return None, ""
