"""Networks for the inner functions of a relation g(u(x), v(y)): compiled, so that its towers start at x and y.

δ, the tolerance of u and v, is a small share of eps divided by Σ sup |∂_k g|; the box of the features is widened by as
much as the networks may stray. Nothing here is a proof: `prove_inner` proves what comes of it.
"""

import dataclasses
import math
from contextlib import suppress

import numpy as np

from attnfun.certify.view import Undecided, provided
from attnfun.errors import AttnfunError
from attnfun.kinds.relation.core import Core
from attnfun.kinds.relation.form import Towers
from attnfun.kinds.relation.prove_inner import gradient_bounds, inner_certificate, remember, stream_sizes
from attnfun.kinds.relation.target import Relation
from attnfun.language import Box, Graph
from attnfun.network import Network
from attnfun.search import Say

Inner = tuple[Network, Network]
_BUDGETS = (0.004, 0.1)  # of eps, for all inner functions together
_MOST_NODES = 400  # operations of an inner function past which compiling it takes minutes
_WIDER = 1e-3  # of its range a variable's box may grow at most: the features pay for it


def inner_networks(asked: Relation, core: Core, eps: float, say: Say) -> tuple[Core, Inner] | None:
    """(the core on boxes as much wider as the networks may stray, networks for u, v); None: they do not compile."""
    assert core.inner is not None
    if max(len(graph.nodes) for graph in core.inner) > _MOST_NODES:
        return None
    low, high = core.joint.low_array, core.joint.high_array
    slope = float(gradient_bounds(core.graph, core.joint.names, low, high).sum())
    if not (math.isfinite(slope) and slope > 0):
        return None
    thin = _WIDER * float(np.min(high - low))
    for budget in _BUDGETS:
        try:
            return _compiled(asked, core, min(budget * eps / slope, 0.3 * thin), thin, say)
        except (AttnfunError, Undecided) as why:
            say(f"inner networks: {why}")
    return None


def on_top(towers: Towers, inner: Inner | None) -> Towers:
    """The towers with their networks below them; one tower stays one."""
    if inner is None:
        return towers
    left = dataclasses.replace(towers[0], inner=inner[0])
    return (left, left) if towers[0] is towers[1] else (left, dataclasses.replace(towers[1], inner=inner[1]))


def _compiled(asked: Relation, core: Core, delta: float, thin: float, say: Say) -> tuple[Core, Inner]:
    assert core.inner is not None
    u, v = core.inner
    say("a network for the inner function u")
    left = function_network(u, asked.left, delta, say)
    names = dict(zip(asked.right.names, asked.left.names, strict=True)) if asked.left.dim == asked.right.dim else {}
    same = (asked.left.low, asked.left.high) == (asked.right.low, asked.right.high)
    if names and same and v.renamed(names) == u:
        right = left  # the same function: its inputs are read in order, whatever they are called
    else:
        say("a network for the inner function v")
        right = function_network(v, asked.right, delta, say)
    sides = zip((left, right), core.inner, asked.boxes, core.boxes, strict=True)
    boxes = [_widened(network, graph, outside, box, thin) for network, graph, outside, box in sides]
    if asked.symmetric:
        boxes[1] = Box(core.right.names, boxes[0].low, boxes[0].high)
    return dataclasses.replace(core, left=boxes[0], right=boxes[1]), (left, right)


def function_network(graph: Graph, box: Box, delta: float, say: Say, realise: str = "attention") -> Network:
    """A network for the outputs of `graph` on `box`, each within `delta`; raises Infeasible."""
    from attnfun.kinds.function.verb import compile

    found = None
    if box.dim > 4:  # of so many variables `auto` would size partitions first, for nothing
        with suppress(AttnfunError):
            found = compile(graph, box, delta, method="compose", realise=realise, progress=say)
    if found is None:
        found = compile(graph, box, delta, realise=realise, progress=say)
    remember(found.network, graph, box, found.certificate)
    return found.network


def _widened(network: Network, graph: Graph, outside: Box, box: Box, thin: float) -> Box:
    """`box` with room for the network's error and for the rounding of the queries that read it."""
    error = inner_certificate(network, graph, outside).error[1]
    size, low, high = stream_sizes(network), [], []
    for k in range(box.dim):
        far = float(np.abs(network.readout[k]) @ size) + abs(float(network.readout_bias[k]))
        far += max(abs(box.low[k]), abs(box.high[k]))
        pad = 1.01 * error + 16 * (len(size) + 8) * 2.0**-53 * far
        provided(pad <= thin, "an inner network strays too far from its function")
        low.append(math.nextafter(box.low[k] - pad, -math.inf))
        high.append(math.nextafter(box.high[k] + pad, math.inf))
    return Box(box.names, tuple(low), tuple(high))
