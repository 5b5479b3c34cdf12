"""Inner networks: what a relation g(u(x), v(y)) loses when networks compute u and v below its towers.

| symbol | meaning |
| --- | --- |
| s, ŝ | the stream of the inner network in real arithmetic, and as computed in float64 |
| W, b | its read-out: û_k = fl(W_k ŝ + b_k), with |û_k − u_k(x)| ≤ δ on the box by its own certificate, proved anew |
| w, c | the query w u_k + c of the tower's head for variable k; in the stack A = fl(w W_k), o = fl(w b_k + c) |
| q̂ | the query as computed, fl(A ŝ + o); ũ_k = (q̂ − c)/w |

The head of the stack computes from q̂ = w ũ_k + c exactly, so it is the tower at ũ_k with no rounding of the query. By
`form_rounding` (any order of the sums) with |ŝ_n| ≤ size_n,

    |ũ_k − u_k| ≤ Δ_k = δ + form(W_k, b_k) + (Σ_n |A_n − w W_kn| size_n + |o − (w b_k + c)| + form(A, o))/|w|.

size_n: a head is an average of its values, in float64 too up to a factor 1 + γ_{4n+64} < 1 + 1e-6 (n keys; weights and
their sum carry n roundings each, rescaled sums some more) and n η for products that underflow.

Features and towers are certified on a box that holds the proved ranges of u and v widened by Δ, so at (ũ, ṽ) too;
with (u, v) in the same box, which is convex,

    |⟨φ̂, ψ̂⟩ − g(u, v)| ≤ |⟨φ̂, ψ̂⟩ − g(ũ, ṽ)| + Σ_k sup |∂_k g| Δ_k,

the suprema by balls for the gradient on sub-boxes (`language/gradient`: mean value inequality).
Without towers NumPy computes u and v, and Δ is what that loses (`numpy_rounding`).
Failure modes: Undecided where δ is not proved, where ũ may leave the box, where balls do not bound the gradient.
"""

import math
from weakref import WeakKeyDictionary

import numpy as np
from flint import arb

from attnfun.certify.certificate import Certificate, Status
from attnfun.certify.numpy_rounding import numpy_rounding
from attnfun.certify.rounding import LARGEST, form_rounding
from attnfun.certify.view import Array, Undecided, provided
from attnfun.errors import AttnfunError, present
from attnfun.kinds.function.prove import prove
from attnfun.kinds.relation.core import Core
from attnfun.kinds.relation.features import Features
from attnfun.kinds.relation.form import SIDES, Towers
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.towers import Keys, tower_network
from attnfun.language import BallAlgebra, GradientAlgebra, Graph, precision, run
from attnfun.language.domain import Box, sub_boxes
from attnfun.language.enclosures import abs_uppers, balls, upper
from attnfun.language.function import Function
from attnfun.network import Network
from attnfun.network.stack import stacked
from attnfun.search import Say

_CELLS = {1: 256, 2: 24, 3: 8, 4: 5, 5: 3, 6: 3}  # sub-boxes per axis for the gradient
_MOST_KEYS = 10**8
_NEITHER = "inner networks belong to both towers of a relation g(u(x), v(y)), or to none"
Assumed = tuple[str, ...]
_U = 2.0**-53
_proved: WeakKeyDictionary[Network, list[tuple[Graph, Box, Certificate]]] = WeakKeyDictionary()


def inner_part(relation: Relation, features: Features, towers: Towers, core: Core, say: Say) -> tuple[float, Assumed]:
    """(what networks for u and v below the towers add, their hypotheses); raises Undecided."""
    shifts, assumed = list[Array](), Assumed()
    if core.inner is None or core.ranges is None:
        raise Undecided(_NEITHER)
    every = zip(SIDES, relation.boxes, core.boxes, core.inner, core.ranges, towers, strict=True)
    for side, outside, box, graph, proved, tower in every:
        if tower.inner is None or tower.mlp:
            raise Undecided(_NEITHER)
        provided(tower.affine is None and not tower.groups, "a tower on a network is one head, and all that is read")
        certificate = inner_certificate(tower.inner, graph, outside, say)
        plain = tower_network(features, "left" if features.signs is not None else side, tower, box.names)
        moved = inner_shifts(tower.inner, plain, tower.keys, certificate)
        low, high = np.nextafter(proved.low_array - moved, -np.inf), np.nextafter(proved.high_array + moved, np.inf)
        if not ((low >= box.low_array) & (high <= box.high_array)).all():
            raise Undecided("an inner network may leave the box on which its features are proved")
        shifts.append(moved)
        assumed += certificate.hypotheses
    return _carried(core, np.concatenate(shifts)), assumed


def numpy_part(relation: Relation, core: Core) -> float:
    """What u and v lose where NumPy computes them and they are cut to the box of the features; raises Undecided.

    The cut is nearer to u than what was computed, for u lies in the box.
    """
    inner = present(core.inner, Undecided("there are no inner functions"))
    shifts = [numpy_rounding(graph, box) for graph, box in zip(inner, relation.boxes, strict=True)]
    return _carried(core, np.concatenate(shifts))


def _carried(core: Core, moved: Array) -> float:
    """Σ_k sup |∂_k g| moved_k over the core's box, rounded up."""
    slopes = gradient_bounds(core.graph, core.joint.names, core.joint.low_array, core.joint.high_array)
    total = float(slopes @ moved) * (1 + (len(moved) + 4) * _U)
    provided(math.isfinite(total), "the slopes of the relation in its inner functions are not bounded")
    return total


def inner_certificate(inner: Network, graph: Graph, box: Box, report: Say | None = None) -> Certificate:
    """What is proved of `inner` as a network for the outputs of `graph` on `box`, variables in order.

    Proved from the weights; remembered for this very network object, whose arrays cannot be written to.
    """
    if len(inner.inputs) != box.dim or len(inner.outputs) != len(graph.outputs):
        raise Undecided("an inner network does not fit its inner function")
    names = dict(zip(box.names, inner.inputs, strict=True))
    try:
        same = Box(inner.inputs, box.low, box.high)
        asked = graph.renamed(names)
    except AttnfunError as why:
        raise Undecided(f"an inner network: {why}") from None
    known = _proved.setdefault(inner, [])
    for before, where, certificate in known:
        if before == asked and where == same:
            return certificate
    function = Function.of(asked, same, inner.outputs)
    certificate = prove(inner, function, report=report)
    known.append((asked, same, certificate))
    return certificate


def remember(network: Network, graph: Graph, box: Box, certificate: Certificate) -> None:
    """Keep what `prove` has just found of this very network object, variables named alike."""
    _proved.setdefault(network, []).append((graph, box, certificate))


def inner_shifts(inner: Network, outer: Network, keys: tuple[Keys, ...], certificate: Certificate) -> Array:
    """(outputs of `inner`,) Δ_k for the tower `outer` on top of it, whose variable k has `keys[k]`."""
    if certificate.status not in (Status.PROVED, Status.BOUNDED):
        raise Undecided(f"an inner network could not be proved: {certificate.reason}")
    try:
        whole = stacked(inner, outer)
    except AttnfunError as why:
        raise Undecided(str(why)) from None
    size, fresh = stream_sizes(inner), np.zeros(len(inner.coordinates), dtype=bool)
    shifts = np.zeros(len(keys))
    (head,) = whole.layers[-1].attention
    (plain,) = outer.layers[0].attention
    read = [int(np.flatnonzero(axis.query[0])[0]) for axis in plain.axes]
    with precision(128):
        for k, own in enumerate(keys):
            row, offset = inner.readout[k], float(inner.readout_bias[k])
            total = arb(certificate.error[1]) + arb(_form(row, offset, size, fresh))
            if k in read:
                axis = head.axes[read.index(k)]
                provided(own.w != 0 and math.isfinite(own.w), "an inner network: the head above does not read it")
                off = abs(arb(float(axis.offset[0])) - (arb(own.w) * arb(offset) + arb(own.c)))
                for a, r, s in zip(axis.query[0], row, size, strict=True):
                    off = off + abs(arb(float(a)) - arb(own.w) * arb(float(r))) * arb(float(s))
                lost = _form(axis.query[0], float(axis.offset[0]), size, fresh)
                total = total + (off + arb(lost)) / abs(arb(own.w))
            elif len(own.slopes) != 1:
                raise Undecided("an inner network: the head above does not read it")
            shifts[k] = upper(total)
    provided(np.isfinite(shifts).all(), "an inner network: what reads it may overflow")
    return shifts


def stream_sizes(network: Network) -> Array:
    """(coordinates,) a bound of every coordinate of the final stream as computed in float64."""
    if network.is_mlp or network.dtype != "float64" or network.cost.keys > _MOST_KEYS:
        raise Undecided("an inner network must be one of softmax heads in float64")
    low, high = network.ranges
    sizes = np.maximum(np.abs(low), np.abs(high))
    made = np.arange(len(sizes)) >= len(network.inputs)
    return np.asarray(np.where(made, sizes * (1 + 1e-6) + 1e-290, sizes))


def _form(row: Array, offset: float, size: Array, fresh: Array) -> float:
    carried = float(np.abs(row) @ size) + abs(offset)
    if not carried < LARGEST["float64"]:
        return math.inf
    return form_rounding(row, offset, size, fresh, carried * (1 + 1e-9), "float64")


def gradient_bounds(graph: Graph, names: tuple[str, ...], low: Array, high: Array) -> Array:
    """(variables,) sup |∂_k g| over the box, infinite where balls cannot tell."""
    d = len(names)
    if d not in _CELLS:
        return np.full(d, math.inf)
    edges = [np.linspace(a, b, _CELLS[d] + 1) for a, b in zip(low, high, strict=True)]
    for edge, a, b in zip(edges, low, high, strict=True):
        edge[0], edge[-1] = a, b
    lefts, rights = sub_boxes(edges)
    with precision(64):
        boxes = {n: balls(lefts[:, k], rights[:, k]) for k, n in enumerate(names)}
        algebra = GradientAlgebra(BallAlgebra(sharp=True), d)
        dual = run(graph, algebra, algebra.variables(list(names), boxes))[0]
        found = np.zeros(d)
        for k, partial in enumerate(dual.partials or ()):
            if partial is not None:
                found[k] = np.max(np.atleast_1d(abs_uppers(np.asarray(partial, dtype=object))))
    return np.asarray(np.where(np.isnan(found), math.inf, found))
