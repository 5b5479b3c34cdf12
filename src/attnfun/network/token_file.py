"""The file of a token network: `sealed.py`'s container, its structure below.

| JSON key | what |
| --- | --- |
| format | "tokens 3", or "tokens 4" with ReLU units between the layers (a `TokenTransformer`) |
| coordinates, outputs | names |
| layers | per layer the names of its heads, whether it has a carry and, in "tokens 4", whether it has units |
| dtype | of every tensor; tensors carry the names of `TokenNetwork.arrays`, `TokenTransformer.arrays` |
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, Literal, overload

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network import sealed
from attnfun.network.head import AnyArray
from attnfun.network.network import DTYPES
from attnfun.network.token_transformer import FeedForward, TokenTransformer
from attnfun.network.tokens import TokenHead, TokenLayer, TokenNetwork

FORMAT, WITH_UNITS = "tokens 3", "tokens 4"
FORMATS = (FORMAT, WITH_UNITS)
_OWN = ("format", "coordinates", "outputs", "layers", "dtype")
_HEAD = ("query", "key", "value", "output")
_UNITS = ("inner", "bias", "outer")
Tokens = TokenNetwork | TokenTransformer


def save_tokens(path: str | os.PathLike[str], network: Tokens, meta: Mapping[str, Any]) -> None:
    """Write `network` with `meta` (JSON values: target, claim, request, certificate, ...), all or nothing."""
    sealed.write(path, _structure(network), _tensors(network), meta)


@overload
def load_tokens(
    path: sealed.Source, ignore: Collection[str] = (), *, units: Literal[False] = False
) -> tuple[TokenNetwork, dict[str, Any]]: ...
@overload
def load_tokens(
    path: sealed.Source, ignore: Collection[str] = (), *, units: Literal[True]
) -> tuple[Tokens, dict[str, Any]]: ...
def load_tokens(
    path: sealed.Source, ignore: Collection[str] = (), *, units: bool = False
) -> tuple[Tokens, dict[str, Any]]:
    """The network and the meta that were saved; keys in `ignore` are neither checked nor returned.

    Networks with ReLU units, of which nothing is ever proved, are read with `units=True` only.
    Raises DamagedFile for whatever `save_tokens` did not write, InvalidRequest for a path that cannot be read.
    """
    formats = FORMATS if units else (FORMAT,)
    return sealed.load(path, formats, _OWN, ignore, _build, lambda n: (_structure(n), _tensors(n)))


def _structure(network: Tokens) -> dict[str, Any]:
    plain = network.attention if isinstance(network, TokenTransformer) else network
    layers: list[dict[str, Any]] = [
        {"heads": [h.name for h in one.heads], "carry": one.carry is not None} for one in plain.layers
    ]
    if isinstance(network, TokenTransformer):
        layers = [one | {"units": block is not None} for one, block in zip(layers, network.blocks, strict=True)]
    return {
        "format": WITH_UNITS if isinstance(network, TokenTransformer) else FORMAT,
        "coordinates": list(network.coordinates),
        "outputs": list(network.outputs),
        "layers": layers,
        "dtype": network.dtype,
    }


def _tensors(network: Tokens) -> dict[str, AnyArray]:
    kind = np.dtype(network.dtype).newbyteorder("<")
    return {name: np.ascontiguousarray(array, dtype=kind) for name, array in network.arrays()}


def _build(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> Tokens:
    """A network from the structure in `own`; takes every tensor it needs out of `tensors` and wants none left."""
    dtype = own["dtype"]
    if dtype not in DTYPES:
        raise InvalidRequest(f"its dtype is {dtype!r}")

    def take(name: str) -> AnyArray:
        if name not in tensors or tensors[name].dtype != np.dtype(dtype):
            raise InvalidRequest(f"tensor {name} is missing, or is not {dtype}")
        return tensors.pop(name)

    layers, blocks = [], list[FeedForward | None]()
    for number, layer in enumerate(own["layers"]):
        heads = []
        for place, name in enumerate(layer["heads"]):
            if not isinstance(name, str):
                raise InvalidRequest("a name in it is not text")
            heads.append(TokenHead(name, *(take(f"layer{number}/head{place}/{part}") for part in _HEAD)))
        layers.append(TokenLayer(tuple(heads), take(f"layer{number}/carry") if layer["carry"] is True else None))
        here = f"layer{number}/ffn"
        blocks.append(FeedForward(*(take(f"{here}/{part}") for part in _UNITS)) if layer.get("units") is True else None)
    names = (*own["coordinates"], *own["outputs"])
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequest("a name in it is not text")
    network = TokenNetwork(
        coordinates=tuple(own["coordinates"]),
        layers=tuple(layers),
        constants=take("constants"),
        readout=take("readout"),
        outputs=tuple(own["outputs"]),
        dtype=dtype,
    )
    if tensors:
        raise InvalidRequest(f"tensor {next(iter(tensors))} belongs to nothing")
    return TokenTransformer(network, tuple(blocks)) if own["format"] == WITH_UNITS else network
