"""The file of a relation: `sealed.py`'s container, its structure below.

| JSON key | what |
| --- | --- |
| format | "relation 2" |
| target | the relation (hashed) |
| claim | what was asked of it (`claim.py`; hashed) |
| blocks, mlp | variables of every block; whether towers are ReLU units (null: features only) |
| inner | the structure (`file`) of the networks below the towers: one for both sides, or two; absent without them |
| request, certificate, method, rank_lower | may be deleted without harm to the rest |

Tensors, all float64: block<k>/left, block<k>/right (or block<k>/signs instead of right for one tower), selection, the
boxes, and, if towers are realised, <side>/keys<v>/{map, slopes, biases}, <side>/values<k>, <side>/lines; <side>/affine
and <side>/ramp<v> where an affine part is in the read-out; of towers of two layers <side>/scales and <side>/groups: the
group of every block, −1 for none, blocks in order within a group; of ReLU towers that multiply
<side>/template<t> and <side>/step<k>; those of network k below the towers under inner<k>/.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.network import sealed
from attnfun.network.features import Block, Features
from attnfun.network.file import network_of, structure_of, tensors_of
from attnfun.network.head import AnyArray, Array
from attnfun.network.network import Network
from attnfun.network.towers import Affine, Keys, Squares, TowerWeights

FORMAT = "relation 2"
Towers = tuple[TowerWeights, TowerWeights]
_OWN = ("format", "blocks", "mlp", "inner", "dtype")


def save_relation(
    path: str | os.PathLike[str],
    target: Mapping[str, Any],
    features: Features,
    towers: Towers | None,
    meta: Mapping[str, Any],
) -> None:
    """Write features (and towers) with their target; `meta` holds claim, request and certificate."""
    tensors = {name: np.ascontiguousarray(a, dtype="<f8") for name, a in _tensors(features, towers).items()}
    sealed.write(path, _structure(features, towers), tensors, {**meta, "target": dict(target)})


def load_relation(path: sealed.Source) -> tuple[dict[str, Any], Features, Towers | None, dict[str, Any]]:
    """(target, features, towers, the rest of the record); raises DamagedFile for what `save_relation` did not write."""
    (features, towers), meta = sealed.load(path, (FORMAT,), _OWN, (), _built, _parts)
    target = meta.pop("target", None)
    if not isinstance(target, dict):
        sealed.damaged(Path(path), "it has no relation")
    return target, features, towers, meta


def _parts(stored: tuple[Features, Towers | None]) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    features, towers = stored
    arrays = {name: np.ascontiguousarray(a, dtype="<f8") for name, a in _tensors(features, towers).items()}
    return _structure(features, towers), arrays


def _structure(features: Features, towers: Towers | None) -> dict[str, Any]:
    below = _below(towers)
    return {
        "format": FORMAT,
        "blocks": [[list(b.left_vars), list(b.right_vars)] for b in features.blocks],
        "mlp": None if towers is None else towers[0].mlp,
        **({"inner": [structure_of(network) for network in below]} if below else {}),
        "dtype": "float64",
    }


def _below(towers: Towers | None) -> list[Network]:
    """The networks below the towers, one that serves both sides once."""
    found = [tower.inner for tower in towers or () if tower.inner is not None]
    if len(found) == 1:
        raise InvalidRequest("both towers of a relation have a network below them, or none has")
    return found[:1] if found and found[0] is found[1] else found


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
        one = features.signs is not None and towers[0] is towers[1]  # a second one would not be read back
        for side, tower in zip(("left",) if one else ("left", "right"), towers, strict=False):
            for v, keys in enumerate(tower.keys):
                out[f"{side}/keys{v}/map"] = np.array([keys.w, keys.c])
                out[f"{side}/keys{v}/slopes"], out[f"{side}/keys{v}/biases"] = keys.slopes, keys.biases
            for k, values in enumerate(tower.values):
                out[f"{side}/values{k}"] = values
            if tower.lines is not None:
                out[f"{side}/lines"] = tower.lines
            if tower.squares is not None:
                for kind, arrays in (("template", tower.squares.templates), ("step", tower.squares.steps)):
                    out.update((f"{side}/{kind}{k}", array) for k, array in enumerate(arrays))
            if tower.affine is not None:
                out[f"{side}/affine"] = tower.affine.lines
                for v, ramp in enumerate(tower.affine.ramps):
                    out[f"{side}/ramp{v}"] = ramp
            if tower.scales is not None:
                out[f"{side}/scales"] = tower.scales
                out[f"{side}/groups"] = _group_of_blocks(tower, len(features.blocks))
    for k, network in enumerate(_below(towers)):
        out |= {f"inner{k}/{name}": array for name, array in tensors_of(network).items()}
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
    features = Features(tuple(blocks), chosen.astype(np.int64), boxes[0], boxes[1], tuple(signs) if symmetric else None)
    towers: Towers | None = None
    if own["mlp"] is not None:
        made = [
            _tower(side, len(box[0]), len(blocks), take, tensors, bool(own["mlp"]))
            for side, box in (("left", boxes[0]), ("right", boxes[1]))
            if f"{side}/values0" in tensors
        ]
        if len(made) != (1 if symmetric else 2):
            raise DamagedFile("a symmetric relation has one tower, any other has two")
        below = [_network(one, f"inner{k}/", tensors) for k, one in enumerate(own["inner"] or ())]
        if len(below) > 2:
            raise DamagedFile("a relation has at most two networks below its towers")
        if below:
            made = [dataclasses.replace(t, inner=n) for t, n in zip(made, (below[0], below[-1]), strict=False)]
        towers = (made[0], made[-1])
    if tensors:
        raise DamagedFile(f"tensor {next(iter(tensors))} belongs to nothing")
    return features, towers


def _network(structure: Mapping[str, Any], prefix: str, tensors: dict[str, AnyArray]) -> Network:
    mine = {name: tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
    return network_of(structure, {name.removeprefix(prefix): array for name, array in mine.items()})


def _tower(side: str, variables: int, blocks: int, take: Any, present: Collection[str], mlp: bool) -> TowerWeights:
    keys = []
    for v in range(variables):
        w, c = take(f"{side}/keys{v}/map")
        keys.append(Keys(float(w), float(c), take(f"{side}/keys{v}/slopes"), take(f"{side}/keys{v}/biases")))
    if f"{side}/template0" in present:
        counts = [sum(name.startswith(f"{side}/{kind}") for name in present) for kind in ("values", "template", "step")]
        own, templates, steps = (
            tuple(take(f"{side}/{kind}{k}") for k in range(count))
            for kind, count in zip(("values", "template", "step"), counts, strict=True)
        )
        if not mlp:
            raise DamagedFile("a tower of squares is made of ReLU units")
        return TowerWeights(tuple(keys), own, squares=Squares(templates, steps))
    if f"{side}/scales" not in present:
        values = tuple(take(f"{side}/values{k}") for k in range(blocks))
        affine = None
        if f"{side}/affine" in present:
            ramps = tuple(take(f"{side}/ramp{v}") for v in range(variables))
            affine = Affine(take(f"{side}/affine"), ramps)
        return TowerWeights(tuple(keys), values, take(f"{side}/lines") if mlp else None, affine=affine)
    scales, of = take(f"{side}/scales"), take(f"{side}/groups").tolist()
    groups = tuple(tuple(b for b, g in enumerate(of) if g == k) for k in range(len(scales)))
    if len(of) != blocks or mlp or sum(map(len, groups)) + of.count(-1.0) != blocks:
        raise DamagedFile("the groups of a tower are not those of its blocks")
    values = tuple(take(f"{side}/values{k}") for k in range(len(groups)))
    return TowerWeights(tuple(keys), values, None, groups, scales)


def _group_of_blocks(tower: TowerWeights, blocks: int) -> Array:
    out = np.full(blocks, -1.0)
    for k, group in enumerate(tower.groups):
        out[list(group)] = k
    return out


packed, unpacked, OWN = _parts, _built, _OWN  # for files that hold a relation among other things
