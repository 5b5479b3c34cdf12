"""The file of a retrieval head: `sealed.py`'s container; a relation with its towers, and what the head adds.

| JSON key | what |
| --- | --- |
| format | "retrieval 2" |
| target | the utility, a relation (hashed) |
| claim | what was asked of it (`claim.py`; hashed) |
| outputs, ids | names of the values' columns; names of the keys, or null |
| request, certificate, study, method, rank_lower | may be deleted without harm to the rest |

Tensors, all float64: those of a relation (`relation_file.py`), and retrieval/points, vectors, values, beta.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnfun.errors import DamagedFile
from attnfun.network import sealed
from attnfun.network.features import Features
from attnfun.network.head import AnyArray
from attnfun.network.relation_file import OWN, Towers, packed, unpacked
from attnfun.network.retrieval import RetrievalWeights

FORMAT = "retrieval 2"
_OWN = (*OWN, "outputs", "ids")
_NAMES = ("points", "vectors", "values", "beta")


@dataclass(frozen=True, eq=False)
class StoredRetrieval:
    """All that a file holds but its target and its report."""

    features: Features
    towers: Towers | None
    weights: RetrievalWeights
    ids: tuple[str, ...] | None


def save_retrieval(
    path: str | os.PathLike[str], target: Mapping[str, Any], stored: StoredRetrieval, meta: Mapping[str, Any]
) -> None:
    """Write the head with its utility; `meta` holds claim, request, certificate and study."""
    structure, tensors = _parts(stored)
    sealed.write(path, structure, tensors, {**meta, "target": dict(target)})


def load_retrieval(path: sealed.Source) -> tuple[dict[str, Any], StoredRetrieval, dict[str, Any]]:
    """(target, head, the rest of the record); raises DamagedFile for what `save_retrieval` did not write."""
    stored, meta = sealed.load(path, (FORMAT,), _OWN, (), _built, _parts)
    target = meta.pop("target", None)
    if not isinstance(target, dict):
        sealed.damaged(Path(path), "it has no utility")
    return target, stored, meta


def _parts(stored: StoredRetrieval) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    structure, tensors = packed((stored.features, stored.towers))
    structure |= {"format": FORMAT, "outputs": list(stored.weights.outputs)}
    structure |= {"ids": None if stored.ids is None else list(stored.ids)}
    own = stored.weights
    for name, array in zip(_NAMES, (own.points, own.vectors, own.values, np.array([own.beta])), strict=True):
        tensors[f"retrieval/{name}"] = np.ascontiguousarray(array, dtype="<f8")
    return structure, tensors


def _built(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> StoredRetrieval:
    points, vectors, values, beta = (tensors.pop(f"retrieval/{name}") for name in _NAMES)
    if any(a.dtype != np.float64 for a in (points, vectors, values, beta)) or beta.shape != (1,):
        raise DamagedFile("its keys are not float64")
    features, towers = unpacked(own, tensors)
    outputs, ids = own["outputs"], own["ids"]
    if not isinstance(outputs, list) or not all(isinstance(name, str) for name in outputs):
        raise DamagedFile("its outputs have no names")
    weights = RetrievalWeights(points, vectors, values, float(beta[0]), tuple(outputs))
    if ids is not None and (len(ids) != weights.keys or not all(isinstance(name, str) for name in ids)):
        raise DamagedFile("its keys and their names are not equally many")
    return StoredRetrieval(features, towers, weights, None if ids is None else tuple(ids))
