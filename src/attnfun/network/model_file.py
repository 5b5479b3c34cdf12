"""The file of a trained model that is made of networks: towers, a head over stored keys. `sealed.py`'s container.

| JSON key | what |
| --- | --- |
| format | "model 2" |
| networks | the structure (`file`) of every network, in order |
| tables | the names of other tensors, float64: keys, values |
| dtype | of the networks |
| target | what the model is for, by its "kind" (hashed) |
| claim | what was asked of it (`claim.py`; hashed) |
| request, certificate | may be deleted without harm to the rest |

Tensors: those of network k under network<k>/, those of a table under table/<name>.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network import sealed
from attnfun.network.file import network_of, structure_of, tensors_of
from attnfun.network.head import AnyArray, Array
from attnfun.network.network import Network

FORMAT = "model 2"
_OWN = ("format", "networks", "tables", "dtype")
Model = tuple[tuple[Network, ...], dict[str, Array]]


def save_model(
    path: str | os.PathLike[str], networks: tuple[Network, ...], tables: Mapping[str, Array], meta: Mapping[str, Any]
) -> None:
    """Write networks of one dtype and tables of finite numbers, with `meta` (target, claim, request, certificate)."""
    structure, tensors = _parts((networks, dict(tables)))
    sealed.write(path, structure, tensors, meta)


def load_model(path: sealed.Source, ignore: Collection[str] = ()) -> tuple[Model, dict[str, Any]]:
    """((networks, tables), meta); raises DamagedFile for whatever `save_model` did not write."""
    return sealed.load(path, (FORMAT,), _OWN, ignore, _built, _parts)


def _parts(model: Model) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    networks, tables = model
    if not networks or len({network.dtype for network in networks}) != 1:
        raise InvalidRequest("a model has at least one network, and one dtype")
    structure = {"format": FORMAT, "networks": [structure_of(one) for one in networks]}
    tensors: dict[str, AnyArray] = {}
    for k, network in enumerate(networks):
        tensors |= {f"network{k}/{name}": array for name, array in tensors_of(network).items()}
    for name, table in tables.items():
        array = np.ascontiguousarray(table, dtype="<f8")
        if not np.isfinite(array).all():
            raise InvalidRequest(f"the table {name} holds numbers that are not finite")
        tensors[f"table/{name}"] = array
    return {**structure, "tables": sorted(tables), "dtype": networks[0].dtype}, tensors


def _built(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> Model:
    networks = []
    for k, structure in enumerate(own["networks"]):
        prefix = f"network{k}/"
        mine = {name: tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        networks.append(network_of(structure, {name.removeprefix(prefix): array for name, array in mine.items()}))
    tables: dict[str, Array] = {}
    for name in own["tables"]:
        array = tensors.pop(f"table/{name}")
        if array.dtype != np.float64:
            raise InvalidRequest(f"the table {name} is not float64")
        tables[name] = array
    if tensors:
        raise InvalidRequest(f"tensor {next(iter(tensors))} belongs to nothing")
    return tuple(networks), tables
