"""The file of a sequence network: `sealed.py`'s container, its structure below.

| JSON key | what |
| --- | --- |
| format | "sequence 2" |
| inputs, outputs, tokens, dtype | names and sizes |
| stages | per stage its kind and names; networks as `file.py` writes them, their tensors under 'stage1/network0/' |
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network import file as single
from attnfun.network import sealed
from attnfun.network.head import AnyArray
from attnfun.network.network import DTYPES
from attnfun.network.sequence import Apply, Gather, GatherHead, SequenceNetwork, Spread, Stage

FORMAT = "sequence 2"
_OWN = ("format", "inputs", "outputs", "tokens", "stages", "dtype")
_NETWORK = ("format", "inputs", "outputs", "layers", "dtype", "labels")


def save_sequence(path: str | os.PathLike[str], network: SequenceNetwork, meta: Mapping[str, Any]) -> None:
    """Write `network` with `meta` (JSON values: target, domain, claim, request, certificate, ...), all or nothing."""
    sealed.write(path, _structure(network), _tensors(network), meta)


def load_sequence(path: sealed.Source, ignore: Collection[str] = ()) -> tuple[SequenceNetwork, dict[str, Any]]:
    """The network and the meta that were saved; keys in `ignore` are neither checked nor returned.

    Raises DamagedFile for whatever `save_sequence` did not write, InvalidRequest for a path that cannot be read.
    """
    return sealed.load(path, (FORMAT,), _OWN, ignore, _build, lambda n: (_structure(n), _tensors(n)))


def _structure(network: SequenceNetwork) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "inputs": list(network.inputs),
        "outputs": list(network.outputs),
        "tokens": network.tokens,
        "stages": [_described(stage) for stage in network.stages],
        "dtype": network.dtype,
    }


def _described(stage: Stage) -> dict[str, Any]:
    if isinstance(stage, Gather):
        heads = [{"name": h.name, "writes": list(h.writes), "scores": h.scores is not None} for h in stage.heads]
        return {"kind": "gather", "heads": heads}
    if isinstance(stage, Spread):
        return {"kind": "spread", "inputs": list(stage.inputs), "sources": [list(row) for row in stage.sources]}
    return {
        "kind": "apply",
        "networks": [single.structure_of(network) for network in stage.networks],
        "of_token": list(stage.of_token),
        "writes": list(stage.writes),
    }


def _tensors(network: SequenceNetwork) -> dict[str, AnyArray]:
    kind = np.dtype(network.dtype).newbyteorder("<")
    tensors = {name: np.ascontiguousarray(array, dtype=kind) for name, array in network.arrays()}
    for number, stage in enumerate(network.stages):
        if isinstance(stage, Apply):
            for place, one in enumerate(stage.networks):
                own = single.tensors_of(one)
                tensors |= {f"stage{number}/network{place}/{name}": array for name, array in own.items()}
    return tensors


def _build(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> SequenceNetwork:
    dtype = own["dtype"]
    if dtype not in DTYPES:
        raise InvalidRequest(f"its dtype is {dtype!r}")

    def take(name: str) -> AnyArray:
        if name not in tensors or tensors[name].dtype != np.dtype(dtype):
            raise InvalidRequest(f"tensor {name} is missing, or is not {dtype}")
        return tensors.pop(name)

    stages: list[Stage] = []
    for number, stage in enumerate(own["stages"]):
        if stage["kind"] == "gather":
            heads = []
            for place, head in enumerate(stage["heads"]):
                here = f"stage{number}/head{place}"
                single.require_texts((head["name"], *head["writes"]))
                scores = take(f"{here}/scores") if head["scores"] is True else None
                rest = (take(f"{here}/{part}") for part in ("key", "value", "offset"))
                heads.append(GatherHead(head["name"], tuple(head["writes"]), scores, *rest))
            stages.append(Gather(tuple(heads)))
        elif stage["kind"] == "spread":
            single.require_texts(tuple(stage["inputs"]))
            stages.append(Spread(tuple(stage["inputs"]), tuple(tuple(row) for row in stage["sources"])))
        elif stage["kind"] == "apply":
            single.require_texts(tuple(stage["writes"]))
            networks = []
            for place, record in enumerate(stage["networks"]):
                here = f"stage{number}/network{place}/"
                mine = {name: tensors.pop(name) for name in list(tensors) if name.startswith(here)}
                if set(record) != set(_NETWORK) or record["format"] not in single.FORMATS.values():
                    raise InvalidRequest("a network in it is not described")
                networks.append(single.network_of(record, {name.removeprefix(here): a for name, a in mine.items()}))
            if not all(type(i) is int for i in stage["of_token"]):
                raise InvalidRequest("its tokens have no networks")
            stages.append(Apply(tuple(networks), tuple(stage["of_token"]), tuple(stage["writes"])))
        else:
            raise InvalidRequest(f"a stage of it is of kind {stage['kind']!r}")
    single.require_texts((*own["inputs"], *own["outputs"]))
    network = SequenceNetwork(tuple(own["inputs"]), own["tokens"], tuple(stages), tuple(own["outputs"]), dtype)
    if tensors:
        raise InvalidRequest(f"tensor {next(iter(tensors))} belongs to nothing")
    return network
