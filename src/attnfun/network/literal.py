"""The literal form: one linear layer, then attention layers of plain matrices, as the theorem states it.

    Z = [ X E_1 (+ Y E_2) + 1 c ;  T ]                            linear layer; T: the constant tokens (self form)
    Z <- Z + sum_h softmax( (Z W_Q)(S W_K)^T ) (S W_V) W_O        every layer; S = Z (self) or its memory
    output = the rows of X of Z, times the read-out

| form | query tokens | S, the tokens attended to |
| --- | --- | --- |
| self | the points and all constant tokens, one sequence | the same sequence |
| cross | the points | a constant second sequence, one for each layer |
| joint | the points (x, y) of two input sequences X and Y, which the linear layer copies into one token | as cross |

| coordinates of a token | point | constant token of head h, key j |
| --- | --- | --- |
| the residual stream, by name | x, then what heads write | 0 |
| "1" | 1 | 1 |
| slots of head h: key (r numbers), bias, value (p numbers) | 0, -G_h, 0 | k_j, b_j, v_j |
| slots of every other head g | 0, -G_g, 0 | 0, -G_g, 0 |

The query (q, 1) meets (k_j, b_j), so the logit is k_j . q + b_j, and -G_h for every token that is not h's. G_h puts
that at least `gap` (800 in float64, 110 in float32) below the largest logit of h over the box, so that exp underflows
to an exact zero: **shut out**. Soundness of G_h: over the box the stream stays in `Network.ranges`, so the query stays
in a box Q (both widened for rounding), and max_j l_j(q) >= max_j min_(q in Q) l_j(q), which is computed key by key and
lowered by its rounding. The slots of one head are zero in every other head's tokens, so heads do not see each other's
keys. Points are shut out too, so n points are one sequence: each comes out as if it were alone.

Failure mode: Infeasible, with the size, when the matrices would not fit (self needs tokens^2 weights per head);
InvalidRequest for an MLP, in which nothing attends. Points outside the box keep the formula but may lose the exact
zero.
"""

from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.language.brief import Brief
from attnfun.network.head import AnyArray, Array, Head, require_dtype, softmax
from attnfun.network.network import Layer, Network
from attnfun.network.plain import PlainHead

FORMS = ("self", "cross", "joint")
GAP = {"float64": 800.0, "float32": 110.0}
ENTRY_LIMIT = 1 << 26
"""The most entries any literal matrix may have (half a gigabyte in float64)."""
_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class LiteralLayer(Brief):
    """`memory` is the constant second sequence (tokens, S); None where the sequence attends to itself.

    Of a head: W_Q (D, r+1), W_K (S, r+1), W_V (S, p), W_O (p, D); D, S the widths of the tokens that ask and are asked.
    """

    heads: tuple[PlainHead, ...]
    memory: AnyArray | None


@dataclass(frozen=True, eq=False)
class Literal(Brief):
    """A network as matrices alone. `embed` has one matrix (columns, D) for each input sequence; `constant` is c."""

    form: str
    inputs: tuple[tuple[str, ...], ...]
    coordinates: tuple[str, ...]
    embed: tuple[AnyArray, ...]
    constant: AnyArray
    tokens: AnyArray
    layers: tuple[LiteralLayer, ...]
    readout: AnyArray
    dtype: str

    def run(self, *sequences: npt.ArrayLike) -> AnyArray:
        """(n, d) points -> (n, outputs); in the joint form the two sequences (n, d_1), (n, d_2)."""
        points = self._points(sequences)
        constant = max((len(self.tokens if m.memory is None else m.memory) for m in self.layers), default=1)
        step = max(1, _BLOCK // constant)
        if self.form == "self" and len(self.layers) > 1:
            step = max(1, constant // 4, isqrt(_BLOCK) - constant)
        parts = [self._forward(points[start : start + step], None) for start in range(0, len(points), step)]
        return np.concatenate(parts) if parts else np.zeros((0, self.readout.shape[1]), dtype=self.dtype)

    def attention(self, *sequences: npt.ArrayLike) -> tuple[tuple[AnyArray, ...], ...]:
        """The attention matrices (tokens that ask, tokens asked) by layer and head, for a few points."""
        seen: list[list[AnyArray]] = []
        self._forward(self._points(sequences), seen)
        return tuple(tuple(layer) for layer in seen)

    def _points(self, sequences: tuple[npt.ArrayLike, ...]) -> AnyArray:
        arrays = [np.asarray(sequence, dtype=self.dtype) for sequence in sequences]
        shapes = [array.shape for array in arrays]
        fits = len(arrays) == len(self.embed) and all(
            array.ndim == 2 and array.shape[1] == len(names) for array, names in zip(arrays, self.inputs, strict=True)
        )
        if not fits or len({shape[0] for shape in shapes}) != 1:
            wanted = ", ".join(f"(n, {len(names)})" for names in self.inputs)
            raise InvalidRequest(f"the {self.form} form takes points of shape {wanted}, not {shapes}")
        total = np.zeros((len(arrays[0]), len(self.constant)), dtype=self.dtype)
        for array, matrix in zip(arrays, self.embed, strict=True):
            total = total + array @ matrix
        return total + self.constant

    def _forward(self, points: AnyArray, seen: list[list[AnyArray]] | None) -> AnyArray:
        """In the last layer only the rows that are read out are worked out, unless all are to be seen."""
        Z = np.concatenate([points, self.tokens])
        for number, layer in enumerate(self.layers):
            S = Z if layer.memory is None else layer.memory
            if seen is None and number == len(self.layers) - 1:
                Z = Z[: len(points)]
            weights = [softmax((Z @ head.query) @ (S @ head.key).T) for head in layer.heads]
            if seen is not None:
                seen.append(weights)
            change = np.zeros_like(Z)
            for head, weight in zip(layer.heads, weights, strict=True):
                change += (weight @ (S @ head.value)) @ head.output
            Z = Z + change
        return Z[: len(points)] @ self.readout


def shut_out(network: Network, layer: Layer, head: Head, dtype: str | None = None) -> float:
    """-G_h: a logit at least the dtype's gap below the largest one of `head` on the whole box, rounding included.

    A number of `dtype`, in which the literal form will run; the network's own unless given.
    """
    run = dtype or network.dtype
    unit = float(np.finfo(run).eps)
    low, high = (end[: layer.width] for end in network.ranges)
    middle, radius = (low + high) / 2, (high - low) / 2
    size = _magnitudes(network)[: layer.width]
    # A computed head may leave [min V, max V] by the rounding of its sums, here generously by 4 unit a key.
    most = max((h.keys for h in network.heads), default=1)
    radius = radius + size * unit * 4 * (most + 8)
    size = size + radius
    least, magnitude = 0.0, 0.0
    for axis in head.axes:
        centre = axis.query @ middle + axis.offset
        reach = np.abs(axis.query) @ radius + unit * 8 * (np.abs(axis.query) @ size + np.abs(axis.offset))
        logits = axis.slopes @ centre + axis.biases - np.abs(axis.slopes) @ reach
        bound = np.abs(axis.slopes) @ (np.abs(centre) + reach) + np.abs(axis.biases)
        logits = logits - unit * 8 * (axis.dim + layer.width) * bound
        best = int(np.argmax(logits))
        least += float(logits[best])
        magnitude += float(bound[best])
    margin = 1.0 + 16 * unit * (len(head.axes) + 2) * (magnitude + GAP[run])
    with np.errstate(over="ignore"):
        result = float(np.floor(np.dtype(run).type(min(least, 0.0) - GAP[run] - 2 * margin)))
    if not np.isfinite(result):
        raise Infeasible(f"the logits of head {head.name!r} are too large to shut anything out below them in {run}")
    return result


def _magnitudes(network: Network) -> Array:
    """Per coordinate the sum of max |V| over its heads, or max |x| of an input: what rounding is relative to."""
    sizes = list(np.maximum(np.abs(network.low), np.abs(network.high)))
    for layer in network.layers:
        total = dict.fromkeys(layer.writes, 0.0)
        for head in layer.heads:
            sizes_of = np.abs(head.values).reshape(-1, head.outputs).max(axis=0)
            for name, largest in zip(head.writes, sizes_of, strict=True):
                total[name] += float(largest)
        sizes.extend(total.values())
    return np.array(sizes)


def literal(network: Network, form: str = "self", second: tuple[str, ...] = (), dtype: str | None = None) -> Literal:
    """`network` as plain matrices in the given form and dtype (its own unless given).

    `second` names the inputs that are columns of the joint form's sequence Y, in its order.
    """
    run = dtype or network.dtype
    require_dtype(run)
    require(form in FORMS, f"the form must be one of {', '.join(FORMS)}, not {form!r}")
    require(not network.is_mlp, "this network is an MLP, not attention: it has no literal form; to_torch() runs it")
    inputs = split_inputs(network, form, second)
    stream = (*network.coordinates, "1")
    for layer in network.layers:
        _check_size(network, form, layer)
    if form == "self":
        heads = [(layer, head) for layer in network.layers for head in layer.attention]
        slots, names, tokens, closed = _memory(network, heads, run, offset=len(stream))
        width = len(stream) + len(names)
        tokens = np.concatenate([np.zeros((len(tokens), len(stream))), tokens], axis=1)
        tokens[:, len(stream) - 1] = 1.0
        coordinates = (*stream, *names)
        constant = np.concatenate([np.zeros(len(stream) - 1), [1.0], closed])
    else:
        coordinates, width = stream, len(stream)
        tokens = np.zeros((0, width))
        constant = np.concatenate([np.zeros(width - 1), [1.0]])
    layers, first = [], 0
    for layer in network.layers:
        memory: Array | None = None
        if form == "self":
            own, first = slots[first : first + len(layer.heads)], first + len(layer.heads)
        else:
            own, _, memory, _ = _memory(network, [(layer, head) for head in layer.attention], run, offset=0)
        asked = width if memory is None else memory.shape[1]
        built = (_head(network, head, at, width, asked, run) for head, at in zip(layer.attention, own, strict=True))
        layers.append(LiteralLayer(tuple(built), None if memory is None else _cast(memory, run)))
    embed = tuple(_cast(one_hot([network.inputs.index(name) for name in names], width), run) for names in inputs)
    readout = np.zeros((width, len(network.outputs)))
    readout[: len(stream) - 1], readout[len(stream) - 1] = network.readout.T, network.readout_bias
    first_layer = embed, _cast(constant, run), _cast(tokens, run)
    return Literal(form, inputs, coordinates, *first_layer, tuple(layers), _cast(readout, run), run)


def one_hot(columns: list[int], width: int) -> Array:
    """(columns, width) with a 1 in each row, in its column."""
    matrix = np.zeros((len(columns), width))
    matrix[range(len(columns)), columns] = 1.0
    return matrix


def split_inputs(network: Network, form: str, second: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The names of the columns of each input sequence; InvalidRequest unless `second` fits the form."""
    if form != "joint":
        require(not second, f"the {form} form has one input sequence; second={list(second)} asks for the joint form")
        return (network.inputs,)
    first = tuple(name for name in network.inputs if name not in second)
    if not second or not first or not set(second) <= set(network.inputs) or len(set(second)) != len(second):
        raise InvalidRequest(f"second={list(second)} must name some, but not all, of the inputs {list(network.inputs)}")
    return first, tuple(second)


def _check_size(network: Network, form: str, layer: Layer) -> None:
    heads = network.heads if form == "self" else layer.heads
    keys = sum(head.keys for head in heads)
    width = sum(head.query_dim + 1 + head.outputs for head in heads)
    square = keys * keys if form == "self" and len(network.layers) > 1 else 0  # the last layer asks for few rows
    entries = max(keys * (width + len(network.coordinates) + 1), square)
    if entries > ENTRY_LIMIT:
        why = f"the {form} form over {keys} keys needs a matrix of {entries} entries; {ENTRY_LIMIT} is the limit"
        raise Infeasible(why, {"form": "cross"} if form == "self" else None)


def _memory(
    network: Network, heads: list[tuple[Layer, Head]], dtype: str, offset: int
) -> tuple[list[tuple[int, int, int, int]], list[str], Array, Array]:
    """Slots (start, bias, value, end) of each head, names of the slot coordinates, the tokens, and the closed slots."""
    slots, names, start = [], [], offset
    for _, head in heads:
        r, p = head.query_dim, head.outputs
        slots.append((start, start + r, start + r + 1, start + r + 1 + p))
        names += [f"{head.name}: key {i}" for i in range(r)] + [f"{head.name}: bias"]
        names += [f"{head.name}: value of {name}" for name in head.writes]
        start += r + 1 + p
    closed = np.zeros(start - offset)
    for (layer, head), (_, bias, _, _) in zip(heads, slots, strict=True):
        closed[bias - offset] = shut_out(network, layer, head, dtype)
    tokens = np.repeat(closed[None, :], sum(head.keys for _, head in heads), axis=0)
    row = 0
    for (_, head), (begin, bias, value, end) in zip(heads, slots, strict=True):
        rows = slice(row, row + head.keys)
        tokens[rows, begin - offset : bias - offset], tokens[rows, bias - offset] = head.dense_keys()
        tokens[rows, value - offset : end - offset] = head.values.reshape(-1, head.outputs)
        row += head.keys
    return slots, names, tokens, closed


def _head(network: Network, head: Head, at: tuple[int, ...], width: int, asked: int, dtype: str) -> PlainHead:
    begin, _, value, _ = at
    r, one = head.query_dim, len(network.coordinates)
    Q, c = head.query_map
    W_Q = np.zeros((width, r + 1))
    W_Q[: head.width, :r], W_Q[one, :r], W_Q[one, r] = Q.T, c, 1.0
    W_K, W_V = np.eye(asked, r + 1, -begin), np.eye(asked, head.outputs, -value)
    W_O = one_hot([network.coordinates.index(name) for name in head.writes], width)
    query, key, value_, output = (_cast(matrix, dtype) for matrix in (W_Q, W_K, W_V, W_O))
    return PlainHead(head.name, query, key, value_, output)


def _cast(matrix: Array, dtype: str) -> AnyArray:
    result = matrix.astype(dtype)
    result.setflags(write=False)
    return result
