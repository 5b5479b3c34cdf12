"""The file of a token network: `sealed.py`'s container, its structure below.

| JSON key | what |
| --- | --- |
| format | "tokens 1" |
| coordinates, outputs | names |
| layers | per layer the names of its heads, and whether it has a carry |
| dtype | of every tensor; tensors carry the names of `TokenNetwork.arrays` |
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network import sealed
from attnfun.network.head import AnyArray
from attnfun.network.network import DTYPES
from attnfun.network.token_transformer import TokenTransformer
from attnfun.network.tokens import TokenHead, TokenLayer, TokenNetwork

FORMAT = "tokens 1"
_OWN = ("format", "coordinates", "outputs", "layers", "dtype")
_HEAD = ("query", "key", "value", "output")


def save_tokens(
    path: str | os.PathLike[str], network: TokenNetwork | TokenTransformer, meta: Mapping[str, Any]
) -> None:
    """Write `network` with `meta` (JSON values: target, request, certificate, ...), all or nothing."""
    if isinstance(network, TokenTransformer):
        raise InvalidRequest("a network with feed-forward units has no file: keep its to_torch().state_dict()")
    sealed.write(path, _structure(network), _tensors(network), meta)


def load_tokens(path: str | os.PathLike[str], ignore: Collection[str] = ()) -> tuple[TokenNetwork, dict[str, Any]]:
    """The network and the meta that were saved; keys in `ignore` are neither checked nor returned.

    Raises DamagedFile for whatever `save_tokens` did not write, InvalidRequest for a path that cannot be read.
    """
    return sealed.load(path, (FORMAT,), _OWN, ignore, _build, lambda n: (_structure(n), _tensors(n)))


def _structure(network: TokenNetwork) -> dict[str, Any]:
    layers = [{"heads": [h.name for h in one.heads], "carry": one.carry is not None} for one in network.layers]
    return {
        "format": FORMAT,
        "coordinates": list(network.coordinates),
        "outputs": list(network.outputs),
        "layers": layers,
        "dtype": network.dtype,
    }


def _tensors(network: TokenNetwork) -> dict[str, AnyArray]:
    kind = np.dtype(network.dtype).newbyteorder("<")
    return {name: np.ascontiguousarray(array, dtype=kind) for name, array in network.arrays()}


def _build(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> TokenNetwork:
    """A network from the structure in `own`; takes every tensor it needs out of `tensors` and wants none left."""
    dtype = own["dtype"]
    if dtype not in DTYPES:
        raise InvalidRequest(f"its dtype is {dtype!r}")

    def take(name: str) -> AnyArray:
        if name not in tensors or tensors[name].dtype != np.dtype(dtype):
            raise InvalidRequest(f"tensor {name} is missing, or is not {dtype}")
        return tensors.pop(name)

    layers = []
    for number, layer in enumerate(own["layers"]):
        heads = []
        for place, name in enumerate(layer["heads"]):
            if not isinstance(name, str):
                raise InvalidRequest("a name in it is not text")
            heads.append(TokenHead(name, *(take(f"layer{number}/head{place}/{part}") for part in _HEAD)))
        layers.append(TokenLayer(tuple(heads), take(f"layer{number}/carry") if layer["carry"] is True else None))
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
    return network
