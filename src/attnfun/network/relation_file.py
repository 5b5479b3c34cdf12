"""The file of a relation: safetensors with one JSON text under the metadata key "attnfun", format 3.

| JSON key | what | protected by |
| --- | --- | --- |
| format, target, blocks, mlp | 3; the relation; variables of every block; ReLU towers or not | hash |
| anything else: request, certificate | may be deleted without harm to the rest | nothing |
| hash | sha256 of the above and of every tensor | itself |

Tensors, all float64: block<k>/left, block<k>/right (or block<k>/signs instead of right for one tower), selection, the
boxes, and, if towers are realised, <side>/keys<v>/{map, slopes, biases}, <side>/values<k>, <side>/lines.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as _to_bytes

from attnfun.errors import AttnfunError, DamagedFile, InvalidRequest
from attnfun.network.features import Block, Features
from attnfun.network.file import _read as read_raw
from attnfun.network.file import write_all
from attnfun.network.head import AnyArray, Array
from attnfun.network.towers import Keys, TowerWeights

FORMAT = 3
Towers = tuple[TowerWeights, TowerWeights]


def is_relation_file(path: str | os.PathLike[str]) -> bool:
    """Does the file say that it holds a relation? Damaged files raise DamagedFile."""
    _, record = read_raw(Path(path))
    return record.get("format") == FORMAT


def save_relation(
    path: str | os.PathLike[str], target: Mapping[str, Any], features: Features, towers: Towers | None, meta: Mapping[str, Any]
) -> None:
    """Write features (and towers) with their target; `meta` holds request and certificate."""
    tensors = {name: np.ascontiguousarray(a, dtype="<f8") for name, a in _tensors(features, towers).items()}
    own = {
        "format": FORMAT,
        "target": dict(target),
        "blocks": [[list(b.left_vars), list(b.right_vars)] for b in features.blocks],
        "mlp": None if towers is None else towers[0].mlp,
    }
    record = {**meta, **own, "hash": _hash(own, tensors)}
    try:
        text = json.dumps(record, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"cannot save {path}: {error}") from None
    write_all(Path(path), _to_bytes(tensors, metadata={"attnfun": text}))


def load_relation(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Features, Towers | None, dict[str, Any]]:
    """(target, features, towers, the rest of the record); raises DamagedFile for what `save_relation` did not write."""
    where = Path(path)
    tensors, record = read_raw(where)
    try:
        if record.get("format") != FORMAT:
            raise DamagedFile("it holds no relation")
        own = {key: record[key] for key in ("format", "target", "blocks", "mlp")}
        if _hash(own, tensors) != record.get("hash"):
            raise DamagedFile("its content is not the one that was hashed")
        features, towers = _built(own, dict(tensors))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, AttnfunError) as error:
        raise DamagedFile(f"{where} is not a whole attnfun file: {error}") from None
    rest = {key: value for key, value in record.items() if key not in (*own, "hash")}
    return own["target"], features, towers, rest


def _hash(own: Mapping[str, Any], tensors: Mapping[str, AnyArray]) -> str:
    digest = hashlib.sha256(json.dumps(own, sort_keys=True, allow_nan=False).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name], dtype="<f8")
        digest.update(f"|{name}|{array.shape}|".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _tensors(features: Features, towers: Towers | None) -> dict[str, Array]:
    out: dict[str, Array] = {"selection": features.selection.astype(np.float64)}
    for name in ("left_box", "right_box"):
        low, high = getattr(features, name)
        out[f"{name}/low"], out[f"{name}/high"] = low, high
    for k, block in enumerate(features.blocks):
        out[f"block{k}/left"] = block.left
        if features.signs is None:
            out[f"block{k}/right"] = block.right
        else:
            out[f"block{k}/signs"] = features.signs[k]
    if towers is not None:
        one = features.signs is not None and towers[0] is towers[1]
        for side, tower in zip(("left",) if one else ("left", "right"), towers, strict=False):
            for v, keys in enumerate(tower.keys):
                out[f"{side}/keys{v}/map"] = np.array([keys.w, keys.c])
                out[f"{side}/keys{v}/slopes"], out[f"{side}/keys{v}/biases"] = keys.slopes, keys.biases
            for k, values in enumerate(tower.values):
                out[f"{side}/values{k}"] = values
            if tower.lines is not None:
                out[f"{side}/lines"] = tower.lines
    return out


def _built(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> tuple[Features, Towers | None]:
    def take(name: str) -> Array:
        array = tensors.pop(name)
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise DamagedFile(f"tensor {name} is not finite float64")
        return array

    places = [tuple(tuple(int(v) for v in side) for side in block) for block in own["blocks"]]
    symmetric = "block0/signs" in tensors
    blocks, signs = [], []
    for k, (left_vars, right_vars) in enumerate(places):
        left = take(f"block{k}/left")
        if symmetric:
            signs.append(take(f"block{k}/signs"))
            blocks.append(Block(left_vars, right_vars, left, left * signs[-1]))
        else:
            blocks.append(Block(left_vars, right_vars, left, take(f"block{k}/right")))
    chosen = take("selection")
    if not np.array_equal(chosen, np.floor(chosen)):
        raise DamagedFile("its selection is not made of whole numbers")
    boxes = [(take(f"{name}/low"), take(f"{name}/high")) for name in ("left_box", "right_box")]
    features = Features(
        tuple(blocks), chosen.astype(np.int64), boxes[0], boxes[1], tuple(signs) if symmetric else None
    )
    towers: Towers | None = None
    if own["mlp"] is not None:
        made = [
            _tower(side, len(box[0]), len(blocks), take, bool(own["mlp"]))
            for side, box in (("left", boxes[0]), ("right", boxes[1]))
            if f"{side}/values0" in tensors
        ]
        if len(made) == 1 and not symmetric:
            raise DamagedFile("a tower is missing")
        towers = (made[0], made[-1])
    if tensors:
        raise DamagedFile(f"tensor {next(iter(tensors))} belongs to nothing")
    return features, towers


def _tower(side: str, variables: int, blocks: int, take: Any, mlp: bool) -> TowerWeights:
    keys = []
    for v in range(variables):
        w, c = take(f"{side}/keys{v}/map")
        keys.append(Keys(float(w), float(c), take(f"{side}/keys{v}/slopes"), take(f"{side}/keys{v}/biases")))
    values = tuple(take(f"{side}/values{k}") for k in range(blocks))
    return TowerWeights(tuple(keys), values, take(f"{side}/lines") if mlp else None)
