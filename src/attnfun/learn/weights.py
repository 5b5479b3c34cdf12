"""Free weights as one vector, in units in which training is well scaled, and back to a Network.

    t = (x − centre) / half,    network = scale · (its read-out in the stream of t)

`half` and `scale` are powers of two, so these changes of unit are exact; only a centre other than 0 rounds, in the
offsets and in the bias of the read-out. A query map has entries for the coordinates it reads and no others.

A random start, in these units: keys, biases and values standard normal, as in the experiments that trained heads are
compared with; a query of as many dimensions as it reads coordinates starts as the identity, any other as a normal
matrix over √(coordinates); the read-out gives what the layers write ±1/√(their number), the inputs nothing, and its
bias is the mean of the target.

**Networks on tokens**, in units in which their tokens are of size 1.

    Z' = Z / scales,    W_Q' = scales W_Q,    W_O' = W_O / scales,    C' = scales C / scales,    R' = scales R / size

The scales are powers of two, so the change of units is exact. A random start, in these units: W_Q and W_K normal over
√width and the fourth root of the rank (logits of size 1), W_V normal over √width, W_O normal over √(values · heads ·
layers), carries the identity, units as wide networks have them (He) and their outputs small, constant tokens standard
normal, the read-out normal over √width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import numpy as np

from attnfun.errors import require
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.learn.descend import descend, generator, one_torch_thread, require_torch
from attnfun.learn.probe import effective, probe_points
from attnfun.network import Architecture, Axis, Head, Layer, Network, ReluBlock, TokenArchitecture, rounded
from attnfun.network.architecture import Shape
from attnfun.network.head import Array
from attnfun.network.tokens import FeedForward, TokenHead, TokenLayer, TokenNetwork, TokenTransformer, attention_terms


@dataclass(frozen=True, eq=False)
class Units:
    """Centre and half-width of the inputs, size of the outputs."""

    centre: Array
    half: Array
    scale: float

    @classmethod
    def on(cls, box: Box, size: float) -> Units:
        """Of a box, for outputs of this size; an interval without width counts as one of half-width 1."""
        low, high = box.low_array, box.high_array
        half = power_of_two(np.where(high > low, (high - low) / 2, 1.0))
        return cls(low / 2 + high / 2, half, float(power_of_two(size or 1.0)))

    @classmethod
    def of(cls, function: Function, points: Array) -> Units:
        with np.errstate(all="ignore"):
            values = np.abs(function.values(points))
        return cls.on(function.box, float(values[np.isfinite(values)].max(initial=0.0)))


def power_of_two(size: Array | float) -> Array:
    """The powers of two nearest to positive numbers, kept where their inverses are ordinary doubles."""
    return np.ldexp(1.0, np.clip(np.round(np.log2(size)), -1000, 1000).astype(int))


def joined(shape: Shape, arrays: Mapping[str, Array]) -> Array:
    """The arrays of the layout as one vector."""
    return np.concatenate([arrays[name].reshape(-1) for name, _ in shape.layout()])


def split(shape: Shape, vector: Any) -> dict[str, Any]:
    """A vector, NumPy's or torch's, as the arrays of the layout, views of it."""
    parts = list(shape.layout())
    sizes = [prod(size) for _, size in parts]
    pieces = np.split(vector, np.cumsum(sizes[:-1])) if isinstance(vector, np.ndarray) else vector.split(sizes)
    return {name: piece.reshape(size) for (name, size), piece in zip(parts, pieces, strict=True)}


def holding(kept: tuple[Array, Any] | None, vector: Any) -> Any:
    """A vector, NumPy's or torch's, with the held values where entries are not free; `kept` is (values, free)."""
    if kept is None:
        return vector
    if isinstance(vector, np.ndarray):
        return np.where(kept[1], vector, kept[0])
    import torch

    return torch.where(torch.tensor(kept[1]), vector, torch.tensor(kept[0], dtype=vector.dtype))


def vector_of(network: Network, architecture: Architecture, units: Units) -> Array:
    """The weights of a network in these units, as those of an architecture that holds its own."""
    d, arrays = len(network.inputs), {}
    for number, (layer, shapes) in enumerate(zip(network.layers, architecture.layers, strict=True)):
        for place, (head, shape) in enumerate(zip(layer.heads, shapes, strict=True)):
            here = f"layer{number}/{architecture.kind}{place}"
            for k, (axis, own) in enumerate(zip(head.axes, shape.axes, strict=True)):
                query = axis.query.copy()
                query[:, :d] *= units.half
                arrays[f"{here}/axis{k}/query"] = query[:, list(own.reads)]
                arrays[f"{here}/axis{k}/offset"] = axis.offset + axis.query[:, :d] @ units.centre
                arrays[f"{here}/axis{k}/slopes"], arrays[f"{here}/axis{k}/biases"] = axis.slopes, axis.biases
            arrays[f"{here}/values"] = head.values
    readout = network.readout / units.scale
    arrays["readout_bias"] = network.readout_bias / units.scale + readout[:, :d] @ units.centre
    if pure(architecture):  # its values are as large as the target, its read-out is the identity
        readout = network.readout.copy()
        arrays["layer0/head0/values"] = arrays["layer0/head0/values"] / units.scale
    readout[:, :d] *= units.half
    arrays["readout"] = readout[:, list(architecture.readout)]
    return joined(architecture, arrays)


def network_of(architecture: Architecture, vector: Array, box: Box, units: Units) -> Network:
    """The network with these weights, in its dtype; InvalidRequest where a weight is not finite."""
    arrays, d, dtype = split(architecture, vector), len(architecture.inputs), architecture.dtype

    def kept(array: Array) -> Array:
        with np.errstate(over="ignore"):
            return rounded(array, dtype)

    layers = []
    for number, shapes in enumerate(architecture.layers):
        heads: list[Head | ReluBlock] = []
        for place, shape in enumerate(shapes):
            here = f"layer{number}/{architecture.kind}{place}"
            axes = []
            for k, own in enumerate(shape.axes):
                query = np.zeros((own.dim, architecture.widths[number]))
                query[:, list(own.reads)] = arrays[f"{here}/axis{k}/query"]
                query[:, :d] /= units.half
                query = kept(query)
                offset = kept(arrays[f"{here}/axis{k}/offset"] - query[:, :d] @ units.centre)
                slopes, biases = arrays[f"{here}/axis{k}/slopes"], arrays[f"{here}/axis{k}/biases"]
                axes.append(Axis(query, offset, kept(slopes), kept(biases)))
            names = tuple(f"{architecture.kind} {number + 1}.{w + 1}" for w in shape.writes)
            values = kept(arrays[f"{here}/values"])
            if architecture.kind == "block":
                heads.append(ReluBlock("learned", axes[0], values, names))
            else:
                keys = "key " + ", ".join(f"{{{k}}}" for k in range(len(axes)))
                heads.append(Head("learned", tuple(axes), values, names, keys))
        layers.append(Layer(tuple(heads)))
    readout = np.zeros((len(architecture.outputs), architecture.widths[-1]))
    readout[:, list(architecture.readout)] = arrays["readout"]
    readout[:, :d] /= units.half
    readout = kept(readout * units.scale)
    bias = kept(arrays["readout_bias"] * units.scale - readout[:, :d] @ units.centre)
    ends = box.low_array, box.high_array
    if pure(architecture):
        (head,) = layers[0].attention
        with np.errstate(over="ignore", invalid="ignore"):
            values = kept(head.values @ readout[:, d:].T + bias)
        layers = [Layer((Head(head.name, head.axes, values, head.writes, head.key_names),))]
        readout, bias = np.eye(len(bias), architecture.widths[-1], d), np.zeros(len(bias))
    return Network(architecture.inputs, tuple(layers), readout, bias, architecture.outputs, ends, dtype)


def pure(architecture: Architecture) -> bool:
    """One head whose values can be the outputs: it averages, so any affine read-out of it alone goes into its values.

    Networks of this shape are written so, as the theorems have them and as *cells* wants them.
    """
    d, outputs = len(architecture.inputs), len(architecture.outputs)
    alone = architecture.kind == "head" and len(architecture.heads) == 1 and architecture.widths[-1] == d + outputs
    return alone and architecture.readout == tuple(range(d, d + outputs))


def unlabelled(network: Network, box: Box) -> Network:
    """The very weights of `network` on `box`, without the names and labels that say what a construction meant."""
    units = Units(np.zeros(box.dim), np.ones(box.dim), 1.0)
    return network_of(network.architecture, vector_of(network, network.architecture, units), box, units)


def random_network(architecture: Architecture, function: Function, seed: int) -> Network:
    """A network of this shape on the box of `function`; the same seed gives the same bits."""
    rng = np.random.default_rng([seed, 0])
    points = probe_points(function.box)
    units = Units.of(function, points)
    arrays: dict[str, Array] = {}
    for name, shape in architecture.layout():
        kind = name.rsplit("/", 1)[-1]
        if kind == "query":
            square = shape[0] == shape[1]
            arrays[name] = np.eye(shape[0]) if square else rng.standard_normal(shape) / np.sqrt(max(1, shape[1]))
        elif kind == "offset":
            arrays[name] = np.zeros(shape)
        elif kind == "readout":
            written = np.array(architecture.readout) >= len(architecture.inputs)
            arrays[name] = rng.choice((-1.0, 1.0), size=shape) * written / np.sqrt(max(1, written.sum()))
        elif kind == "readout_bias":
            with np.errstate(all="ignore"):
                mean = np.mean(function.values(points), axis=0) / units.scale
            arrays[name] = np.where(np.isfinite(mean), mean, 0.0)
        else:
            arrays[name] = rng.standard_normal(shape)
    return network_of(architecture, joined(architecture, arrays), function.box, units)


Tokens = TokenNetwork | TokenTransformer


def token_scales(tokens: Array) -> Array:
    """(width,) a power of two near the largest entry of each coordinate of given tokens; 1 where all are 0."""
    size = np.abs(tokens).max(axis=tuple(range(tokens.ndim - 1)))
    return np.where(size > 0, power_of_two(np.where(size > 0, size, 1.0)), 1.0)


def in_units(name: str, array: Array, scales: Array, size: float, back: bool = False) -> Array:
    """An array in the units of the vector, or `back` in those of the network."""
    kind = name.rsplit("/", 1)[-1]
    up, down = (1 / scales, scales) if back else (scales, 1 / scales)
    if kind in ("query", "key", "value", "inner"):
        return array * up[:, None]
    if kind in ("output", "outer", "constants"):
        return array * down
    if kind == "carry":
        return array * up[:, None] * down
    return array * up[:, None] * (size if back else 1 / size) if kind == "readout" else array


def token_vector(network: Tokens, scales: Array, size: float) -> Array:
    """The weights of a network in these units."""
    arrays = {name: in_units(name, own, scales, size) for name, own in network.arrays()}
    return joined(network.architecture, arrays)


def tokens_of(architecture: TokenArchitecture, vector: Array, scales: Array, size: float) -> Tokens:
    """The network with these weights, in its dtype; InvalidRequest where a weight is not finite."""
    with np.errstate(all="ignore"):
        parts, dtype = split(architecture, vector), architecture.dtype
        arrays = {name: rounded(in_units(name, own, scales, size, back=True), dtype) for name, own in parts.items()}

    def made(cls: Any, here: str, *name: str) -> Any:
        return cls(*name, *(arrays[f"{here}/{field.name}"] for field in fields(cls) if field.type == "Array"))

    layers, blocks = [], []
    for number, layer in enumerate(architecture.layers):
        here = f"layer{number}"
        heads = tuple(made(TokenHead, f"{here}/head{k}", "learned") for k in range(len(layer.heads)))
        layers.append(TokenLayer(heads, arrays.get(f"{here}/carry")))
        blocks.append(made(FeedForward, f"{here}/ffn") if layer.ffn else None)
    names, ends = (architecture.coordinates, architecture.outputs), (arrays["constants"], arrays["readout"])
    plain = TokenNetwork(names[0], tuple(layers), *ends, names[1], architecture.dtype)
    return TokenTransformer(plain, tuple(blocks)) if architecture.has_units else plain


def random_tokens(architecture: TokenArchitecture, scales: Array, size: float, seed: int) -> Tokens:
    """A network of this shape; the same seed gives the same bits."""
    rng, W, depth, parts = np.random.default_rng([seed, 0]), architecture.width, len(architecture.layers), []
    for name, shape in architecture.layout():
        kind = name.rsplit("/", 1)[-1]
        if kind == "carry":
            parts.append(np.eye(W).reshape(-1))
            continue
        heads = len(architecture.layers[int(name[5 : name.index("/")])].heads) if "/" in name else 1
        spread = {
            **dict.fromkeys(("query", "key"), W**-0.5 * shape[-1] ** -0.25),
            **dict.fromkeys(("value", "readout"), W**-0.5),
            "output": (shape[0] * heads * depth) ** -0.5 if shape[0] else 0.0,
            "inner": (2 / W) ** 0.5,
            "bias": 0.0,
            "outer": (shape[0] * depth) ** -0.5 if shape[0] else 0.0,
            "constants": 1.0,
        }[kind]
        parts.append(spread * rng.standard_normal(shape).reshape(-1))
    return tokens_of(architecture, np.concatenate(parts), scales, size)


def token_norms(network: Tokens) -> tuple[float | None, float | None, float]:
    """Mean and largest spectral norm of W_Q W_Kᵀ over the heads (an inverse temperature), largest entry of W_V W_O."""
    plain = network.attention
    if not plain.heads:
        return None, None, 0.0
    norms, value = [], 0.0
    for head in plain.heads:
        small = head.product
        finite = bool(np.isfinite(small).all())  # of anything else LAPACK complains on the terminal
        norms.append(float(np.linalg.norm(small, 2)) if finite else math.inf)
        value = max(value, float(np.abs(head.value @ head.output).max()))
    return float(np.mean(norms)), max(norms), value


def token_effective_keys(network: Tokens, tokens: Array) -> float | None:
    """exp(entropy) of the attention weights, averaged over given tokens and heads; None with ReLU units between."""
    if isinstance(network, TokenTransformer) or not network.heads:
        return None
    Z, n, counts = network.joined(network.given(tokens)), tokens.shape[1], []
    for layer, state in zip(network.layers, network.states(Z), strict=False):
        for head in layer.heads:
            terms = attention_terms(head, state)[:, :n].astype(np.float64)
            counts.append(float(effective(terms / terms.sum(axis=2, keepdims=True)).mean()))
    return float(np.mean(counts))


def fit_sample(
    architecture: TokenArchitecture,
    tokens: Array,
    values: Array,
    *,
    steps: int,
    seed: int,
    lr: float = 3e-3,
    batch: int = 64,
    shared: bool = False,
) -> Tokens:
    """Adam on the mean squared error of (samples, n, width) tokens against (samples, read, outputs) values.

    For studies whose targets are dear to draw anew at every step: `af.train` draws fresh token matrices and looks at a
    probe a hundred times; here the sample is given, and nothing is looked at on the way.

    The last `read` tokens are read. `shared` gives all layers, which must have one shape, the same weights. Where
    weights stop being finite the start is returned. The same seed gives the same bits on one machine.
    """
    torch = require_torch()
    depth = len(architecture.layers)
    require(not shared or len(set(architecture.layers)) == 1, "layers that share their weights have one shape")
    with one_torch_thread():
        from attnfun.learn.torch_tokens import run

        scales, size = token_scales(tokens), float(power_of_two(float(np.abs(values).max()) or 1.0))
        origin = random_tokens(architecture, scales, size, seed)
        kind = getattr(torch, architecture.dtype)
        Z, Y = torch.tensor(tokens / scales, dtype=kind), torch.tensor(values / size, dtype=kind)
        begin = torch.tensor(token_vector(origin, scales, size), dtype=kind)
        block = sum(prod(shape) for name, shape in architecture.layout() if name.startswith("layer0/"))
        if shared:
            begin = torch.cat([begin[:block], begin[depth * block :]])
        free = begin.clone().requires_grad_(True)

        def whole() -> Any:
            return torch.cat([free[:block]] * depth + [free[block:]]) if shared else free

        def loss(step: int) -> Any:
            at = torch.randint(len(Z), (batch,), generator=generator(seed, 1, step))
            out = run(architecture, whole(), Z[at])[:, -Y.shape[1] :]
            return torch.mean((out - Y[at]) ** 2)

        descend([free], loss, steps=steps, lr=lr)
        final = whole().detach().numpy().astype(np.float64)
    return tokens_of(architecture, final, scales, size) if np.isfinite(final).all() else origin
