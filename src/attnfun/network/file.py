"""The file: safetensors with one JSON text under the metadata key "attnfun". Never a pickle.

| JSON key | what | protected by |
| --- | --- | --- |
| format | 3, or 4 for an MLP | hash |
| inputs, outputs, layers, dtype, labels | names; per head name, writes, key_names, number of axes; meanings | hash |
| target, domain | what the network is for | hash |
| claim | what was asked of it (`claim.py`): eps, whether it is relative, the norm, whether it was trained | hash |
| anything else: request, certificate, ... | may be deleted without harm to the rest | its own sha256 in seals |
| hash | sha256 of everything above it and of every tensor (name, dtype, shape, bytes) | itself |

Tensors are stored in the network's dtype under the names of `Network.arrays`, the box as float64 "box/low", "box/high".
The same network and meta give the same bytes; whatever is not exactly a network that `save` wrote is a DamagedFile in
one sentence (`sealed.py` is the container). The hash is a seal against damage, not against an author: who changes
weights *and* hash has another file, and `verify` proves or refutes that one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network import sealed
from attnfun.network.head import AnyArray, Axis, Head
from attnfun.network.labels import Labels
from attnfun.network.network import DTYPES, Layer, Network
from attnfun.network.relu import ReluBlock

FORMATS = {False: 3, True: 4}
"""By `Network.is_mlp`: heads of attention, or blocks of ReLU units."""
_OWN = ("format", "inputs", "outputs", "layers", "dtype", "labels")
_AXIS = ("query", "offset", "slopes", "biases")


def save(path: str | os.PathLike[str], network: Network, meta: Mapping[str, Any]) -> None:
    """Write `network` with `meta` (JSON values: target, domain, claim, request, certificate, ...), all or nothing."""
    sealed.write(path, structure_of(network), tensors_of(network), meta)


def load(path: sealed.Source, ignore: Collection[str] = ()) -> tuple[Network, dict[str, Any]]:
    """The network and the meta that were saved; keys in `ignore` (say "certificate") are neither checked nor returned.

    Raises DamagedFile for whatever `save` did not write, and InvalidRequest for a path that cannot be read.
    """
    return sealed.load(path, FORMATS.values(), _OWN, ignore, network_of, lambda n: (structure_of(n), tensors_of(n)))


def content_hash(network: Network, meta: Mapping[str, Any]) -> str:
    """sha256 of all that gives the file its meaning, see `sealed.content_hash`."""
    return sealed.content_hash(structure_of(network), tensors_of(network), meta)


def structure_of(network: Network) -> dict[str, Any]:
    layers = [[_described(head) for head in layer.heads] for layer in network.layers]
    return {
        "format": FORMATS[network.is_mlp],
        "inputs": list(network.inputs),
        "outputs": list(network.outputs),
        "layers": layers,
        "dtype": network.dtype,
        "labels": None if network.labels is None else network.labels.to_json(),
    }


def _described(head: Head | ReluBlock) -> dict[str, Any]:
    if isinstance(head, ReluBlock):
        return {"name": head.name, "writes": list(head.writes)}
    return {"name": head.name, "writes": list(head.writes), "key_names": head.key_names, "axes": len(head.axes)}


def tensors_of(network: Network) -> dict[str, AnyArray]:
    kind = np.dtype(network.dtype).newbyteorder("<")
    tensors = {name: np.ascontiguousarray(array, dtype=kind) for name, array in network.arrays()}
    tensors["box/low"], tensors["box/high"] = (np.ascontiguousarray(end, dtype="<f8") for end in network.box)
    return tensors


def network_of(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> Network:
    """A network from the structure in `own`; takes every tensor it needs out of `tensors` and wants none left."""
    dtype = own["dtype"]
    if dtype not in DTYPES:
        raise InvalidRequest(f"its dtype is {dtype!r}")

    def take(name: str, kind: str) -> AnyArray:
        if name not in tensors:
            raise InvalidRequest(f"tensor {name} is missing")
        array = tensors.pop(name)
        if array.dtype != np.dtype(kind):
            raise InvalidRequest(f"tensor {name} is {array.dtype}, not {kind}")
        return array

    layers = []
    for number, heads in enumerate(own["layers"]):
        built: list[Head | ReluBlock] = []
        for place, head in enumerate(heads):
            if own["format"] == FORMATS[True]:
                here = f"layer{number}/block{place}"
                axis = Axis(*(take(f"{here}/{part}", dtype) for part in _AXIS))
                require_texts((head["name"], *head["writes"]))
                built.append(ReluBlock(head["name"], axis, take(f"{here}/values", dtype), tuple(head["writes"])))
                continue
            here = f"layer{number}/head{place}"
            axes = []
            for k in range(head["axes"]):
                if f"{here}/axis{k}/query" not in tensors:
                    raise InvalidRequest(f"tensor {here}/axis{k}/query is missing")
                axes.append(Axis(*(take(f"{here}/axis{k}/{part}", dtype) for part in _AXIS)))
            names = (head["name"], head["key_names"], *head["writes"])
            require_texts(names)
            built.append(Head(names[0], tuple(axes), take(f"{here}/values", dtype), names[2:], names[1]))
        layers.append(Layer(tuple(built)))
    require_texts((*own["inputs"], *own["outputs"]))
    network = Network(
        inputs=tuple(own["inputs"]),
        layers=tuple(layers),
        readout=take("readout", dtype),
        readout_bias=take("readout_bias", dtype),
        outputs=tuple(own["outputs"]),
        box=(take("box/low", "float64"), take("box/high", "float64")),
        dtype=dtype,
        labels=None if own["labels"] is None else Labels.from_json(own["labels"], len(own["outputs"])),
    )
    if tensors:
        raise InvalidRequest(f"tensor {next(iter(tensors))} belongs to nothing")
    return network


def require_texts(names: tuple[Any, ...]) -> None:
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequest("a name in it is not text")
