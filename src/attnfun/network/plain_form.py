"""Networks in plain form: of points, in the three forms of the theorem, and of tokens.

In the cross and joint forms every head has its own keys, so none is shut out; the query (q, 1) meets (k_j, b_j).
In the self form all constant tokens stand in one sequence with the points (`literal.py`).
"""

import numpy as np

from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.network.head import Head
from attnfun.network.literal import ENTRY_LIMIT, FORMS, literal, one_hot, split_inputs
from attnfun.network.network import Layer, Network
from attnfun.network.plain import KeyNames, Plain, PlainHead, PlainLayer, PlainUnits, Term
from attnfun.network.tokens import OnTokens


def of_network(network: Network, dtype: str, form: str = "cross", second: tuple[str, ...] = ()) -> Plain:
    """A network on points. `second` names the columns of the joint form's second input."""
    require(form in FORMS, f"the form must be one of {', '.join(FORMS)}, not {form!r}")
    if network.is_mlp and (form != "cross" or second):
        raise InvalidRequest(f"this network is an MLP, not attention: it has no {form} form; leave the form out")
    inputs = split_inputs(network, form, second)
    places = [[network.inputs.index(name) for name in names] for names in inputs]
    columns = [k for own in places for k in own]
    common = {
        "inputs": inputs,
        "outputs": network.outputs,
        "proved": network.dtype,
        "dtype": dtype,
        "reads": "points",
        "box": (network.low[columns], network.high[columns]),
    }
    if form == "self":
        own = literal(network, "self", dtype=dtype)
        return Plain(
            coordinates=own.coordinates,
            terms=(Term(embed=own.embed[0]),),
            layers=tuple(PlainLayer(layer.heads) for layer in own.layers),
            readout=own.readout,
            constant=own.constant,
            tokens=own.tokens,
            **common,  # type: ignore[arg-type]
        )
    width = len(network.coordinates)
    make = _units if network.is_mlp else _heads
    return Plain(
        coordinates=network.coordinates,
        terms=tuple(Term(k, embed=one_hot(own, width)) for k, own in enumerate(places)),
        layers=tuple(make(network, number, layer) for number, layer in enumerate(network.layers)),
        readout=network.readout.T,
        readout_bias=network.readout_bias,
        **common,  # type: ignore[arg-type]
    )


def _heads(network: Network, number: int, layer: Layer) -> PlainLayer:
    return PlainLayer(tuple(_head(network, number, head) for head in layer.attention))


def _head(network: Network, number: int, head: Head) -> PlainHead:
    r, width = head.query_dim, len(network.coordinates)
    entries = head.keys * max(r + 1, head.outputs)
    if entries > ENTRY_LIMIT:
        raise Infeasible(f"layer {number} in plain form: a head of {head.keys} keys needs {entries} numbers")
    (Q, c), (keys, biases) = head.query_map, head.dense_keys()
    query = np.zeros((width, r + 1))
    query[: head.width, :r] = Q.T
    return PlainHead(
        head.name,
        query,
        np.concatenate([keys, biases[:, None]], axis=1),
        head.values.reshape(-1, head.outputs),
        one_hot([network.coordinates.index(name) for name in head.writes], width),
        np.append(c, 1.0),
        constant=True,
        key_names=KeyNames(head.key_names, head.grid),
    )


def _units(network: Network, number: int, layer: Layer) -> PlainLayer:
    """All blocks of a layer side by side; every unit reads its own block's query."""
    width, sizes = len(network.coordinates), [block.keys for block in layer.heads]
    U, E = sum(sizes), sum(block.query_dim for block in layer.heads)
    if U * max(E, width) > ENTRY_LIMIT:
        raise Infeasible(f"layer {number} in plain form: {U} units need more than {ENTRY_LIMIT} numbers")
    query, offset = np.zeros((width, E)), np.zeros(E)
    inner, outer, at, start = np.zeros((E, U)), np.zeros((U, width)), 0, 0
    for block in layer.heads:
        (axis,), mine, own = block.axes, slice(at, at + block.query_dim), slice(start, start + block.keys)
        query[: block.width, mine], offset[mine] = axis.query.T, axis.offset
        inner[mine, own] = axis.slopes.T
        outer[own, [network.coordinates.index(name) for name in block.writes]] = block.values
        at, start = mine.stop, own.stop
    bias = np.concatenate([block.axes[0].biases for block in layer.heads])
    return PlainLayer((), None, PlainUnits(inner, bias, outer, query, offset))


def of_tokens(network: OnTokens, dtype: str) -> Plain:
    """A network on tokens: what it takes is the token matrix itself."""
    own, layers = network.attention, []
    for layer, block in zip(own.layers, network.blocks, strict=True):
        heads = tuple(PlainHead(h.name, h.query, h.key, h.value, h.output) for h in layer.heads)
        units = None if block is None else PlainUnits(block.inner, block.bias, block.outer)
        layers.append(PlainLayer(heads, layer.carry, units))
    return Plain(
        inputs=(own.coordinates,),
        coordinates=own.coordinates,
        terms=(Term(),),
        layers=tuple(layers),
        readout=own.readout,
        outputs=own.outputs,
        proved=own.dtype,
        dtype=dtype,
        reads="tokens",
        tokens=own.constants if len(own.constants) else None,
    )
