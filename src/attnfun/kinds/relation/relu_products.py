"""Towers of ReLU units in several variables: broken lines of one variable each, multiplied by squares.

Layer 1: a block of units for every variable, with an output for every column of its factor. Layer k + 1 multiplies what
is there for the first k factors with the next one, for every tuple of columns that a feature begins with:

    a b ≈ g (s(q⁺) − s(q⁻)),    q^± = λ a ± μ b,    s(q) = Σ_j v_j relu(k_j q + b_j) ≈ q² on [−1, 1],    4 g λ μ ≈ 1,

two copies of one *template* s, whose constant cancels. The last products are the features; blocks without a variable on
this side are constants in the read-out. Stored: units of layer 1, templates, and (λ, μ, g, template) of every product.
"""

from __future__ import annotations

import numpy as np

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.kinds.relation.features import Features, Index
from attnfun.kinds.relation.towers import TowerWeights, distinct, places_of
from attnfun.network.head import Array, Axis
from attnfun.network.network import Layer, Network
from attnfun.network.relu import ReluBlock

MOST_UNITS = 400_000
MOST_ENTRIES = 60_000_000


def chain(features: Features, side: str) -> tuple[int, ...]:
    """The blocks with a variable on this side, in order: what is multiplied."""
    return tuple(b for b in range(len(features.blocks)) if places_of(features, side, (b,)))


def constants(features: Features, side: str) -> Array:
    """(rank,) the factors of blocks without variables on this side."""
    out = np.ones(features.rank)
    for b, block in enumerate(features.blocks):
        if not places_of(features, side, (b,)):
            out = out * (block.left if side == "left" else block.right)[features.selection[:, b]]
    return out


def parents(features: Features, blocks: tuple[int, ...], k: int) -> tuple[Index, Index]:
    """For every tuple of the first k + 1 blocks: the place of its first k columns, and its last column."""
    found = distinct(features, blocks[: k + 1])[0]
    before = distinct(features, blocks[:k])[0]
    place = {tuple(row): i for i, row in enumerate(before.tolist())}
    return np.array([place[tuple(row[:-1])] for row in found.tolist()]), found[:, -1]


def squares_network(
    features: Features, side: str, weights: TowerWeights, names: tuple[str, ...], writes: tuple[str, ...]
) -> Network:
    """The network of this file; InvalidRequest where the weights do not fit the features."""
    squares = weights.squares
    assert squares is not None
    blocks, d = chain(features, side), len(names)
    single = all(len(places_of(features, side, (b,))) == 1 for b in blocks)
    if not single or len(blocks) < 2 or len(squares.steps) != len(blocks) - 1 or len(weights.values) != len(blocks):
        raise InvalidRequest("a tower of squares multiplies factors of one variable each")
    first, at = [], {}
    start = d
    for b, own in zip(blocks, weights.values, strict=True):
        (v,), columns = places_of(features, side, (b,)), features.blocks[b].columns
        if own.shape != (len(weights.keys[v].slopes), columns):
            raise InvalidRequest("the values of a tower do not fit its units")
        at[b] = start
        start += columns
        outputs = tuple(f"f{b + 1}_{c + 1}" for c in range(columns))
        first.append(ReluBlock(f"factor {b + 1}", weights.keys[v].axis(v, d), own, outputs))
    layers, width, before = [Layer(tuple(first))], start, at[blocks[0]]
    units = sum(block.keys for block in first)
    rows = distinct(features, blocks[:1])[0][:, 0]  # columns of the first block are read directly
    for k in range(1, len(blocks)):
        step, (parent, last) = squares.steps[k - 1], parents(features, blocks, k)
        if step.shape != (4, len(last)):
            raise InvalidRequest("the products of a tower do not fit its features")
        sizes = [squares.templates[int(t)].shape[1] for t in step[3]]
        units += 2 * sum(sizes)
        if units > MOST_UNITS or 2 * sum(sizes) * len(last) > MOST_ENTRIES or width * len(last) > MOST_ENTRIES:
            raise Infeasible(f"a tower of {units:,} ReLU units is out of reach", {"realise": "attention"})
        made = []
        for i, (one, other) in enumerate(zip(parent, last, strict=True)):
            left, right, gain = step[:3, i]
            slopes, biases, values = squares.templates[int(step[3, i])]
            query = np.zeros((2, width))
            query[:, before + (rows[one] if k == 1 else one)] = left
            query[0, at[blocks[k]] + other], query[1, at[blocks[k]] + other] = right, -right
            none = np.zeros(len(slopes))
            both = np.vstack([np.column_stack([slopes, none]), np.column_stack([none, slopes])])
            axis = Axis(query, np.zeros(2), both, np.concatenate([biases, biases]))
            own = gain * np.concatenate([values, -values])
            name = writes[i] if k == len(blocks) - 1 else f"p{k + 1}_{i + 1}"
            made.append(ReluBlock(f"product {k + 1}.{i + 1}", axis, own[:, None], (f"m{name}",)))
        layers.append(Layer(tuple(made)))
        before, width = width, width + len(made)
    readout = np.zeros((features.rank, width))
    place = distinct(features, blocks)[1]
    readout[np.arange(features.rank), before + place] = constants(features, side)
    box = features.left_box if side == "left" else features.right_box
    return Network(names, tuple(layers), readout, np.zeros(features.rank), writes, box)
