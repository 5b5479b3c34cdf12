"""Towers: the two networks whose inner product is a relation, and the factors from which their weights come.

Attention. Variable k has keys of its own, slopes and biases, and its query w x_k + c. A tower is *one head* on the
product of these keys: its softmax is the product of the small ones, so with the values

    V[j, i] = Π_b V_b[j_b, S_ib]      (b: blocks of the features, S: their selection)

coordinate i of the head is Π_b (Σ_j weights_j V_b[j, S_ib]), a product of functions of few variables each, exactly.
Only the V_b are stored; `tower_network` multiplies them out. An affine part of every feature may be left to the
read-out, which has the variables in the residual stream (`Affine`): with ramps R_k, for which a head is near x_k,

    V[j, i] = Π_b V_b[j_b, S_ib] − offset_i − Σ_k slope_ik R_k[j_k],     φ_i = head_i + Σ_k slope_ik x_k + offset_i.

The head is then of the size of what is curved in the feature, and so is its rounding: float32 towers are closer.

Attention in two layers, where that product has too many keys: the blocks fall into `groups` of few variables each.
Layer 1 has a head for every group g, on the product of its variables' keys, with an output p_gc for every tuple c of
columns that some feature takes from the group. Layer 2 has a head for every feature, whose keys are the corners σ of
the cube {−1, 1}^m, m groups, with logits Σ_g σ_g p_g and values S_i Πσ_g. A sum over corners factorises, so

    Σ_σ e^{σ·p} Πσ / Σ_σ e^{σ·p} = Π_g (e^{p_g} − e^{−p_g})/(e^{p_g} + e^{−p_g}) = Π_g tanh p_g,

a product without error. p_gc is near atanh(δ_g Π_{b∈g} P_bc), δ_g = `scales`[g], and S_i = Π_g 1/δ_g, times the
factors of blocks without a variable on this side. Stored are the keys, the values of layer 1 and the scales.

MLP, one variable: one block of ReLU units relu(k_j (w x + c) + b_j) with values (units, columns), and the affine parts
(slope, offset) of the columns in the read-out. MLP, several variables, one a block: `relu_products`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.kinds.relation.features import Features, Index
from attnfun.network.head import Array, Axis, Head, frozen
from attnfun.network.network import Layer, Network
from attnfun.network.relu import ReluBlock

MOST_KEYS = 200_000
MOST_VALUES = 40_000_000
MOST_GROUPS = 10
MOST_READOUT = 60_000_000  # the read-out is a matrix: features × coordinates of the stream


@dataclass(frozen=True, eq=False)
class Keys:
    """Logits (or hidden units) slopes_j (w x + c) + biases_j of one variable."""

    w: float
    c: float
    slopes: Array
    biases: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "slopes", frozen(self.slopes))
        object.__setattr__(self, "biases", frozen(self.biases))
        if self.slopes.ndim != 1 or self.slopes.shape != self.biases.shape or not len(self.slopes):
            raise InvalidRequest("the keys of a tower have unequal slopes and biases")

    def axis(self, variable: int, width: int) -> Axis:
        query = np.zeros((1, width))
        query[0, variable] = self.w
        return Axis(query, np.array([self.c]), self.slopes[:, None], self.biases)


@dataclass(frozen=True, eq=False)
class Affine:
    """Parts of the features in the read-out: (rank, variables + 1) slopes, then offsets; a ramp of every variable."""

    lines: Array
    ramps: tuple[Array, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", frozen(self.lines))
        object.__setattr__(self, "ramps", tuple(frozen(r) for r in self.ramps))


@dataclass(frozen=True, eq=False)
class Squares:
    """How an MLP multiplies: `templates`, broken lines (3, units) of slopes, biases and values near u² on [−1, 1], and
    for every product but the first factor of it `steps`, (4, tuples) of two reading weights, a gain and a template.
    """

    templates: tuple[Array, ...]
    steps: tuple[Array, ...]

    def __post_init__(self) -> None:
        for name in ("templates", "steps"):
            object.__setattr__(self, name, tuple(frozen(a) for a in getattr(self, name)))
        if not all(a.ndim == 2 and len(a) == 3 and a.size for a in self.templates):
            raise InvalidRequest("a template of a tower is no broken line")
        for a in self.steps:
            known = a.ndim == 2 and len(a) == 4 and np.isin(a[3], np.arange(len(self.templates))).all()
            if not known:
                raise InvalidRequest("the products of a tower do not fit their templates")


@dataclass(frozen=True, eq=False)
class TowerWeights:
    """One side: keys of every variable, values of every block, (keys_1, …, keys_a, columns).

    `lines` (2, columns) makes it a tower of ReLU units: slopes and offsets of the affine parts.
    `groups` (places of blocks) and `scales` (a group each) make it one of two layers of attention; `values` then belong
    to the groups, (keys of their variables..., tuples), tuples in the order of `distinct`.
    `inner` is the network below it, whose outputs are the core's variables (`stack`); None where these are the
    relation's own or come from outside.
    """

    keys: tuple[Keys, ...]
    values: tuple[Array, ...]
    lines: Array | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    scales: Array | None = None
    affine: Affine | None = None
    squares: Squares | None = None
    inner: Network | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(frozen(v) for v in self.values))
        for name in ("lines", "scales"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(getattr(self, name)))
        if self.scales is not None and (self.lines is not None or self.scales.shape != (len(self.groups),)):
            raise InvalidRequest("the groups of a tower do not fit their scales")
        if self.squares is not None and (self.lines is not None or self.groups or self.affine is not None):
            raise InvalidRequest("a tower that multiplies by squares has nothing else")
        if self.affine is not None and (self.lines is not None or self.groups):
            raise InvalidRequest("only towers of one head leave an affine part to the read-out")
        if (self.scales is None) != (not self.groups):
            raise InvalidRequest("the groups of a tower do not fit their scales")

    @property
    def mlp(self) -> bool:
        below = self.inner is not None and self.inner.is_mlp
        return self.lines is not None or self.squares is not None or below


def places_of(features: Features, side: str, blocks: tuple[int, ...]) -> list[int]:
    """The variables of these blocks on one side, in order."""
    own = [features.blocks[b] for b in blocks]
    return [v for block in own for v in (block.left_vars if side == "left" else block.right_vars)]


def distinct(features: Features, blocks: tuple[int, ...]) -> tuple[Index, Index]:
    """((n, blocks) the tuples of columns that features take from these blocks, (rank,) which of them each takes)."""
    found, place = np.unique(features.selection[:, list(blocks)], axis=0, return_inverse=True)
    return found, place.reshape(-1)


def corners(m: int) -> tuple[Array, Array]:
    """((2^m, m) the corners of the cube, (2^m,) the products of their signs)."""
    sigma = np.array(list(itertools.product((1.0, -1.0), repeat=m)))
    return sigma, sigma.prod(axis=1)


def product_scales(features: Features, side: str, weights: TowerWeights) -> Array:
    """(rank,) S_i as layer 2 has them: one division a group and one product a block without variables, in order."""
    assert weights.scales is not None
    out = np.ones(features.rank)
    for scale in weights.scales:
        out = out / scale
    for b in range(len(features.blocks)):
        if not places_of(features, side, (b,)):
            block = features.blocks[b]
            out = out * (block.left if side == "left" else block.right)[features.selection[:, b]]
    return out


def require_room(features: Features, groups: tuple[tuple[int, ...], ...], d: int) -> None:
    """Infeasible unless a network of two layers with these groups can be written down."""
    rank, m = features.rank, len(groups)
    width = d + sum(len(distinct(features, group)[0]) for group in groups)
    if rank * (width * (m + 1) + rank) > MOST_READOUT or rank * 2**m > MOST_VALUES:
        raise Infeasible(f"a tower of {rank:,} products of {m} factors is out of reach", {"features_only": True})


def group_heads(features: Features, side: str, weights: TowerWeights) -> tuple[Head, ...]:
    """Layer 1 of a tower of two layers: a head for every group; it writes g<group>_<tuple>."""
    named = [b for group in weights.groups for b in group]
    alive = [b for b in range(len(features.blocks)) if places_of(features, side, (b,))]
    d = len(features.left_box[0] if side == "left" else features.right_box[0])
    fits = sorted(named) == alive and len(weights.values) == len(weights.groups) and len(weights.keys) == d
    fits = fits and all(group and group == tuple(sorted(group)) for group in weights.groups)
    if not fits or not 2 <= len(weights.groups) <= MOST_GROUPS:
        raise InvalidRequest("the groups of a tower do not hold the blocks once each")
    require_room(features, weights.groups, d)
    heads = []
    for g, (group, own) in enumerate(zip(weights.groups, weights.values, strict=True)):
        places, tuples = places_of(features, side, group), len(distinct(features, group)[0])
        shape = tuple(len(weights.keys[v].slopes) for v in places)
        if own.shape != (*shape, tuples):
            raise InvalidRequest("the values of a tower do not fit its keys")
        if math.prod(shape) > MOST_KEYS or own.size > MOST_VALUES:
            raise Infeasible(f"a head of {' × '.join(map(str, shape))} keys is out of reach", {"features_only": True})
        axes = tuple(weights.keys[v].axis(v, d) for v in places)
        heads.append(Head(f"group {g + 1}", axes, own, tuple(f"g{g + 1}_{c + 1}" for c in range(tuples))))
    return tuple(heads)


def _product_network(
    features: Features, side: str, weights: TowerWeights, names: tuple[str, ...], writes: tuple[str, ...]
) -> Network:
    first = Layer(group_heads(features, side, weights))
    d, m, rank = len(names), len(weights.groups), features.rank
    width = d + len(first.writes)
    sigma, parity = corners(m)
    read, start = np.zeros((rank, m), dtype=np.int64), d
    for g, group in enumerate(weights.groups):
        tuples, place = distinct(features, group)
        read[:, g] = start + place
        start += len(tuples)
    scales, none = product_scales(features, side, weights), np.zeros(len(sigma))
    heads = []
    for i in range(rank):
        query = np.zeros((m, width))
        query[np.arange(m), read[i]] = 1.0
        axis = Axis(query, np.zeros(m), sigma, none)
        heads.append(Head(f"product {i + 1}", (axis,), (parity * scales[i])[:, None], writes[i : i + 1]))
    readout = np.hstack([np.zeros((rank, width)), np.eye(rank)])
    box = features.left_box if side == "left" else features.right_box
    return Network(names, (first, Layer(tuple(heads))), readout, np.zeros(rank), writes, box)


def tower_network(features: Features, side: str, weights: TowerWeights, names: tuple[str, ...]) -> Network:
    """The tower as a network of `rank` outputs and one layer, or two with groups; inputs are the core's variables."""
    low, high = features.left_box if side == "left" else features.right_box
    d, rank = len(names), features.rank
    if len(weights.keys) != d or len(low) != d:
        raise InvalidRequest("the weights of a tower do not fit its features")
    writes = tuple(f"phi{i + 1}" if side == "left" else f"psi{i + 1}" for i in range(rank))
    if weights.squares is not None:
        from attnfun.kinds.relation.relu_products import squares_network

        return squares_network(features, side, weights, names, writes)
    if weights.groups:
        return _product_network(features, side, weights, names, writes)
    if len(weights.values) != len(features.blocks):
        raise InvalidRequest("the weights of a tower do not fit its features")
    readout = np.hstack([np.zeros((rank, d)), np.eye(rank)])
    box = (low, high)
    if weights.lines is not None:
        columns = features.blocks[0].columns
        fits = weights.values[0].shape == (len(weights.keys[0].slopes), columns) and weights.lines.shape == (2, columns)
        if d != 1 or len(features.blocks) != 1 or not fits:
            raise InvalidRequest("a tower of ReLU units has one variable, units and lines for every column")
        picked = features.selection[:, 0]
        units = ReluBlock("features", weights.keys[0].axis(0, 1), weights.values[0][:, picked], writes)
        readout[:, 0] = weights.lines[0, picked]
        return Network(names, (Layer((units,)),), readout, weights.lines[1, picked], writes, box)
    places = [v for block in features.blocks for v in (block.left_vars if side == "left" else block.right_vars)]
    sizes = [len(weights.keys[v].slopes) for v in places]
    if math.prod(sizes) > MOST_KEYS or math.prod(sizes) * rank > MOST_VALUES:
        raise Infeasible(
            f"a tower of {' × '.join(map(str, sizes))} keys and {rank} features is out of reach",
            {"features_only": True},
        )
    values = np.ones((1, rank))
    for k, (block, own) in enumerate(zip(features.blocks, weights.values, strict=True)):
        mine = block.left_vars if side == "left" else block.right_vars
        if own.shape != (*(len(weights.keys[v].slopes) for v in mine), block.columns):
            raise InvalidRequest("the values of a tower do not fit its keys")
        chosen = own.reshape(-1, block.columns)[:, features.selection[:, k]]
        values = (values[:, None, :] * chosen[None]).reshape(-1, rank)
    bias = np.zeros(rank)
    if weights.affine is not None:
        lines, ramps = weights.affine.lines, weights.affine.ramps
        if lines.shape != (rank, d + 1) or [r.shape for r in ramps] != [k.slopes.shape for k in weights.keys]:
            raise InvalidRequest("the affine part of a tower does not fit its features")
        shaped = values.reshape(*sizes, rank) - lines[:, d]
        for place, v in enumerate(places):
            at = [-1 if i == place else 1 for i in range(len(places) + 1)]
            shaped = shaped - ramps[v].reshape(at) * lines[:, v]
        values, readout[:, :d], bias = shaped.reshape(-1, rank), lines[:, :d], lines[:, d]
    used = [v for v in places if len(weights.keys[v].slopes) > 1] or places[:1]
    shape = [len(weights.keys[v].slopes) for v in used]
    axes = tuple(weights.keys[v].axis(v, d) for v in used)
    head = Head("features", axes, values.reshape(*shape, rank), writes)
    return Network(names, (Layer((head,)),), readout, bias, writes, box)
