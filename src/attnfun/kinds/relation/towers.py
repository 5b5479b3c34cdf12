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
(slope, offset) of the columns in the read-out.

MLP, several variables, one a block: broken lines of one variable each, multiplied by squares (`Squares`).
Layer 1: a block of units for every variable, with an output for every column of its factor. Layer k + 1 multiplies what
is there for the first k factors with the next one, for every tuple of columns that a feature begins with:

    a b ≈ g (s(q⁺) − s(q⁻)),    q^± = λ a ± μ b,    s(q) = Σ_j v_j relu(k_j q + b_j) ≈ q² on [−1, 1],    4 g λ μ ≈ 1,

two copies of one *template* s, whose constant cancels. The last products are the features; blocks without a variable on
this side are constants in the read-out. Stored: units of layer 1, templates, and (λ, μ, g, template) of every product.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnfun.certify.view import LineAxis
from attnfun.errors import Infeasible, InvalidRequest, feasible, require
from attnfun.kinds.relation.features import Features, Half, Index
from attnfun.language.brief import Brief
from attnfun.network.head import Array, Axis, Head, freeze
from attnfun.network.network import Layer, Network
from attnfun.network.relu import ReluBlock

MOST_KEYS = 200_000
MOST_VALUES = 40_000_000
MOST_GROUPS = 10
MOST_UNITS = 400_000
MOST_ENTRIES = 60_000_000
MOST_READOUT = 60_000_000  # the read-out is a matrix: features × coordinates of the stream


@dataclass(frozen=True, eq=False)
class Keys(Brief):
    """Logits (or hidden units) slopes_j (w x + c) + biases_j of one variable."""

    w: float
    c: float
    slopes: Array
    biases: Array

    def __post_init__(self) -> None:
        freeze(self)
        if self.slopes.ndim != 1 or self.slopes.shape != self.biases.shape or not len(self.slopes):
            raise InvalidRequest("the keys of a tower have unequal slopes and biases")

    def line(self, variable: int = 0) -> LineAxis:
        """As proofs see it."""
        return LineAxis(variable, self.w, self.c, self.slopes, self.biases)

    def axis(self, variable: int, width: int) -> Axis:
        query = np.zeros((1, width))
        query[0, variable] = self.w
        return Axis(query, np.array([self.c]), self.slopes[:, None], self.biases)


@dataclass(frozen=True, eq=False)
class Affine(Brief):
    """Parts of the features in the read-out: (rank, variables + 1) slopes, then offsets; a ramp of every variable."""

    lines: Array
    ramps: tuple[Array, ...]

    def __post_init__(self) -> None:
        freeze(self)


@dataclass(frozen=True, eq=False)
class Squares(Brief):
    """How an MLP multiplies: `templates`, broken lines (3, units) of slopes, biases and values near u² on [−1, 1], and
    for every product but the first factor of it `steps`, (4, tuples) of two reading weights, a gain and a template.
    """

    templates: tuple[Array, ...]
    steps: tuple[Array, ...]

    def __post_init__(self) -> None:
        freeze(self)
        require(all(a.ndim == 2 and len(a) == 3 and a.size for a in self.templates), "a template is no broken line")
        kinds = np.arange(len(self.templates))
        if not all(a.ndim == 2 and len(a) == 4 and np.isin(a[3], kinds).all() for a in self.steps):
            raise InvalidRequest("the products of a tower do not fit their templates")


@dataclass(frozen=True, eq=False)
class TowerWeights(Brief):
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
        freeze(self)
        fits = self.scales is None or (self.lines is None and self.scales.shape == (len(self.groups),))
        require(fits and (self.scales is None) == (not self.groups), "the groups of a tower do not fit their scales")
        if self.squares is not None and (self.lines is not None or self.groups or self.affine is not None):
            raise InvalidRequest("a tower that multiplies by squares has nothing else")
        if self.affine is not None and (self.lines is not None or self.groups):
            raise InvalidRequest("only towers of one head leave an affine part to the read-out")

    @property
    def mlp(self) -> bool:
        below = self.inner is not None and self.inner.is_mlp
        return self.lines is not None or self.squares is not None or below

    def axes(self, places: Sequence[int]) -> tuple[Axis, ...]:
        return tuple(self.keys[v].axis(v, len(self.keys)) for v in places)

    def shape(self, places: Sequence[int]) -> tuple[int, ...]:
        """How many keys these variables have."""
        return tuple(len(self.keys[v].slopes) for v in places)


def corners(m: int) -> tuple[Array, Array]:
    """((2^m, m) the corners of the cube, (2^m,) the products of their signs)."""
    sigma = np.array(list(itertools.product((1.0, -1.0), repeat=m)))
    return sigma, sigma.prod(axis=1)


def product_scales(half: Half, weights: TowerWeights) -> Array:
    """(rank,) S_i as layer 2 has them: one division per group and one product per block without variables, in order."""
    assert weights.scales is not None
    out = np.ones(half.rank)
    for scale in weights.scales:
        out = out / scale
    return math.prod(half.constants(), start=out)


def require_room(half: Half, groups: tuple[tuple[int, ...], ...]) -> None:
    """Infeasible unless a network of two layers with these groups can be written down."""
    rank, m = half.rank, len(groups)
    width = len(half.box[0]) + sum(len(half.distinct(group)[0]) for group in groups)
    if rank * (width * (m + 1) + rank) > MOST_READOUT or rank * 2**m > MOST_VALUES:
        raise Infeasible(f"a tower of {rank:,} products of {m} factors is out of reach", {"features_only": True})


def group_heads(half: Half, weights: TowerWeights) -> tuple[Head, ...]:
    """Layer 1 of a tower of two layers: a head for every group; it writes g<group>_<tuple>."""
    named, d = sorted(b for group in weights.groups for b in group), len(half.box[0])
    fits = named == list(half.alive) and len(weights.values) == len(weights.groups) and len(weights.keys) == d
    fits = fits and all(group and group == tuple(sorted(group)) for group in weights.groups)
    require(fits and 2 <= len(weights.groups) <= MOST_GROUPS, "the groups of a tower do not hold the blocks once each")
    require_room(half, weights.groups)
    heads = []
    for g, (group, own) in enumerate(zip(weights.groups, weights.values, strict=True)):
        places, tuples = half.variables(group), len(half.distinct(group)[0])
        shape = weights.shape(places)
        require(own.shape == (*shape, tuples), "the values of a tower do not fit its keys")
        if math.prod(shape) > MOST_KEYS or own.size > MOST_VALUES:
            raise Infeasible(f"a head of {' × '.join(map(str, shape))} keys is out of reach", {"features_only": True})
        writes = tuple(f"g{g + 1}_{c + 1}" for c in range(tuples))
        heads.append(Head(f"group {g + 1}", weights.axes(places), own, writes))
    return tuple(heads)


def parents(half: Half, k: int) -> tuple[Index, Index]:
    """For every tuple of the first k + 1 living blocks: the place of its first k columns, and its last column."""
    found, before = half.distinct(half.alive[: k + 1])[0], half.distinct(half.alive[:k])[0]
    place = {tuple(row): i for i, row in enumerate(before.tolist())}
    return np.array([place[tuple(row[:-1])] for row in found.tolist()]), found[:, -1]


# ---------------------------------------------------------------- the networks

Made = tuple[tuple[Layer, ...], Array, Array]
"""Layers, the read-out and its bias."""


def tower_network(features: Features, side: str, weights: TowerWeights, names: tuple[str, ...]) -> Network:
    """The tower as a network of `rank` outputs and one layer, or two with groups; inputs are the core's variables."""
    half, d = features.half(side), len(names)
    require(len(weights.keys) == d and len(half.box[0]) == d, "the weights of a tower do not fit its features")
    writes = tuple(f"phi{i + 1}" if side == "left" else f"psi{i + 1}" for i in range(half.rank))
    if weights.squares is not None:
        made = _by_squares(half, weights, weights.squares, writes)
    elif weights.groups:
        made = _by_corners(half, weights, writes)
    elif len(weights.values) != len(half.tables):
        raise InvalidRequest("the weights of a tower do not fit its features")
    elif weights.lines is not None:
        made = _by_units(half, weights, weights.lines, writes)
    else:
        made = _by_one_head(half, weights, writes)
    return Network(names, *made, writes, half.box)


def _identity(width: int, rank: int) -> Array:
    """The read-out of what was written last."""
    return np.hstack([np.zeros((rank, width)), np.eye(rank)])


def _by_corners(half: Half, weights: TowerWeights, writes: tuple[str, ...]) -> Made:
    first = Layer(group_heads(half, weights))
    d, m, rank = len(half.box[0]), len(weights.groups), half.rank
    width = d + len(first.writes)
    sigma, parity = corners(m)
    read, start = np.zeros((rank, m), dtype=np.int64), d
    for g, group in enumerate(weights.groups):
        tuples, place = half.distinct(group)
        read[:, g] = start + place
        start += len(tuples)
    scales, none = product_scales(half, weights), np.zeros(len(sigma))
    heads = []
    for i in range(rank):
        query = np.zeros((m, width))
        query[np.arange(m), read[i]] = 1.0
        axis = Axis(query, np.zeros(m), sigma, none)
        heads.append(Head(f"product {i + 1}", (axis,), (parity * scales[i])[:, None], writes[i : i + 1]))
    return (first, Layer(tuple(heads))), _identity(width, rank), np.zeros(rank)


def _by_units(half: Half, weights: TowerWeights, lines: Array, writes: tuple[str, ...]) -> Made:
    columns = half.tables[0].shape[-1]
    fits = weights.values[0].shape == (*weights.shape((0,)), columns) and lines.shape == (2, columns)
    if len(weights.keys) != 1 or len(half.tables) != 1 or not fits:
        raise InvalidRequest("a tower of ReLU units has one variable, units and lines for every column")
    picked, readout = half.selection[:, 0], _identity(1, half.rank)
    units = ReluBlock("features", weights.axes((0,))[0], weights.values[0][:, picked], writes)
    readout[:, 0] = lines[0, picked]
    return (Layer((units,)),), readout, lines[1, picked]


def _by_one_head(half: Half, weights: TowerWeights, writes: tuple[str, ...]) -> Made:
    places, d, rank = half.variables(range(len(half.tables))), len(weights.keys), half.rank
    sizes = weights.shape(places)
    text, keys = f"a tower of {' × '.join(map(str, sizes))} keys and {rank} features is out of reach", math.prod(sizes)
    feasible(keys <= MOST_KEYS and keys * rank <= MOST_VALUES, text, {"features_only": True})
    values, readout, bias = np.ones((1, rank)), _identity(d, rank), np.zeros(rank)
    for k, (P, mine, own) in enumerate(zip(half.tables, half.places, weights.values, strict=True)):
        require(own.shape == (*weights.shape(mine), P.shape[-1]), "the values of a tower do not fit its keys")
        chosen = own.reshape(-1, P.shape[-1])[:, half.selection[:, k]]
        values = (values[:, None, :] * chosen[None]).reshape(-1, rank)
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
    head = Head("features", weights.axes(used), values.reshape(*weights.shape(used), rank), writes)
    return (Layer((head,)),), readout, bias


def _by_squares(half: Half, weights: TowerWeights, squares: Squares, writes: tuple[str, ...]) -> Made:
    blocks, start = half.alive, len(weights.keys)
    single = all(len(half.places[b]) == 1 for b in blocks)
    if not single or len(blocks) < 2 or len(squares.steps) != len(blocks) - 1 or len(weights.values) != len(blocks):
        raise InvalidRequest("a tower of squares multiplies factors of one variable each")
    first, at = [], {}
    for b, own in zip(blocks, weights.values, strict=True):
        columns = half.tables[b].shape[-1]
        require(own.shape == (*weights.shape(half.places[b]), columns), "the values of a tower do not fit its units")
        at[b] = start
        start += columns
        outputs = tuple(f"f{b + 1}_{c + 1}" for c in range(columns))
        first.append(ReluBlock(f"factor {b + 1}", weights.axes(half.places[b])[0], own, outputs))
    layers, width, before = [Layer(tuple(first))], start, at[blocks[0]]
    units = sum(block.keys for block in first)
    rows = half.distinct(blocks[:1])[0][:, 0]  # columns of the first block are read directly
    for k in range(1, len(blocks)):
        step, (parent, last) = squares.steps[k - 1], parents(half, k)
        require(step.shape == (4, len(last)), "the products of a tower do not fit its features")
        count = 2 * sum(squares.templates[int(t)].shape[1] for t in step[3])
        units += count
        if units > MOST_UNITS or count * len(last) > MOST_ENTRIES or width * len(last) > MOST_ENTRIES:
            raise Infeasible(f"a tower of {units:,} ReLU units is out of reach", {"realise": "attention"})
        made = []
        for i, (one, other) in enumerate(zip(parent, last, strict=True)):
            left, right, gain = step[:3, i]
            slopes, biases, values = squares.templates[int(step[3, i])]
            query = np.zeros((2, width))
            query[:, before + (rows[one] if k == 1 else one)] = left
            query[:, at[blocks[k]] + other] = right, -right
            none = np.zeros(len(slopes))
            both = np.vstack([np.column_stack([slopes, none]), np.column_stack([none, slopes])])
            axis = Axis(query, np.zeros(2), both, np.concatenate([biases, biases]))
            own = gain * np.concatenate([values, -values])
            name = writes[i] if k == len(blocks) - 1 else f"p{k + 1}_{i + 1}"
            made.append(ReluBlock(f"product {k + 1}.{i + 1}", axis, own[:, None], (f"m{name}",)))
        layers.append(Layer(tuple(made)))
        before, width = width, width + len(made)
    readout = np.zeros((half.rank, width))
    place = half.distinct(blocks)[1]
    readout[np.arange(half.rank), before + place] = math.prod(half.constants(), start=np.ones(half.rank))
    return tuple(layers), readout, np.zeros(half.rank)
