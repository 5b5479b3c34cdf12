"""Files of relations by soft cells, by slices and by separable terms: `sealed.py`'s container, their structure below.

| JSON key | what |
| --- | --- |
| format | "relation cells 2", "relation slices 2" or "relation terms 2" |
| target | the relation (hashed) |
| claim | what was asked of it (`claim.py`; hashed) |
| variables, symmetric, mlp | variables of both sides; whether one tower serves both; whether cells are ReLU units |
| networks | of separable terms: the structure (`file`) of one network for both sides, or of two |
| request, certificate, method, rank_lower | may be deleted without harm to the rest |

Tensors, all float64: the boxes, `signs` of a symmetric relation, and for cells <side>/keys<v>/{map, slopes, biases} and
<side>/values (and <side>/lines of ReLU units), for slices rows, columns, left_core, right_core (the right side only
where it is not the left one's), for separable terms those of network k under network<k>/.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnfun.errors import DamagedFile
from attnfun.expressions import Graph
from attnfun.network import sealed
from attnfun.network.cells import Cells
from attnfun.network.file import network_of, structure_of, tensors_of
from attnfun.network.head import AnyArray, Array
from attnfun.network.separable import Separable
from attnfun.network.slices import Slices
from attnfun.network.towers import Keys

CELLS, SLICES, TERMS = "relation cells 2", "relation slices 2", "relation terms 2"
_OWN = ("format", "variables", "symmetric", "mlp", "dtype")
_OWN_TERMS = (*_OWN, "networks")
Form = Cells | Slices | Separable
Names = tuple[tuple[str, ...], tuple[str, ...]]


def save_form(path: str | os.PathLike[str], target: Mapping[str, Any], form: Form, meta: Mapping[str, Any]) -> None:
    """Write cells or slices with their target; `meta` holds claim, request and certificate."""
    structure, tensors = _parts(form)
    sealed.write(path, structure, tensors, {**meta, "target": dict(target)})


def load_cells(path: sealed.Source) -> tuple[dict[str, Any], Cells, dict[str, Any]]:
    """(target, cells, the rest of the record); raises DamagedFile for what `save_form` did not write."""
    cells, meta = sealed.load(path, (CELLS,), _OWN, (), _cells, _parts)
    return _target(path, meta), cells, meta


def load_terms(path: sealed.Source) -> tuple[dict[str, Any], Separable, dict[str, Any]]:
    """(target, separable terms, the rest of the record); raises DamagedFile for what `save_form` did not write."""
    terms, meta = sealed.load(path, (TERMS,), _OWN_TERMS, (), _terms, _parts)
    return _target(path, meta), terms, meta


def load_slices(path: sealed.Source, graph: Graph, names: Names) -> tuple[dict[str, Any], Slices, dict[str, Any]]:
    """(target, slices, the rest of the record); `graph` and `names` are those of the relation that the file holds."""

    def built(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> Slices:
        return _slices(own, tensors, graph, names)

    slices, meta = sealed.load(path, (SLICES,), _OWN, (), built, _parts)
    return _target(path, meta), slices, meta


def target_of(file: sealed.Held) -> dict[str, Any]:
    """The relation that a file names, before anything else of it is believed."""
    return _target(file, dict(file.record))


def _target(path: sealed.Source, meta: dict[str, Any]) -> dict[str, Any]:
    target = meta.pop("target", None)
    if not isinstance(target, dict):
        sealed.damaged(Path(path), "it has no relation")
    return target


def _parts(form: Form) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    out: dict[str, Array] = {}
    for name in ("left_box", "right_box"):
        low, high = getattr(form, name)
        out[f"{name}/low"], out[f"{name}/high"] = low, high
    one = form.signs is not None
    if form.signs is not None:
        out["signs"] = form.signs
    more: dict[str, Any] = {}
    if isinstance(form, Separable):
        kind, networks = TERMS, (form.left,) if one else (form.left, form.right)
        more["networks"] = [structure_of(network) for network in networks]
        for k, network in enumerate(networks):
            out |= {f"network{k}/{name}": array for name, array in tensors_of(network).items()}
    elif isinstance(form, Cells):
        kind = CELLS
        sides = [("left", form.left_keys, form.left_values), ("right", form.right_keys, form.right_values)]
        for side, keys, values in sides[:1] if one else sides:
            for v, key in enumerate(keys):
                out[f"{side}/keys{v}/map"] = np.array([key.w, key.c])
                out[f"{side}/keys{v}/slopes"], out[f"{side}/keys{v}/biases"] = key.slopes, key.biases
            out[f"{side}/values"] = values
            lines = form.left_lines if side == "left" else form.right_lines
            if lines is not None:
                out[f"{side}/lines"] = lines
    else:
        kind = SLICES
        out |= {"rows": form.rows, "left_core": form.left_core}
        if not one:
            out |= {"columns": form.columns, "right_core": form.right_core}
    structure = {
        "format": kind,
        "variables": [len(form.left_box[0]), len(form.right_box[0])],
        "symmetric": one,
        "mlp": isinstance(form, Cells) and form.mlp,
        **more,
        "dtype": "float64",
    }
    return structure, {name: np.ascontiguousarray(a, dtype="<f8") for name, a in out.items()}


def _take(tensors: dict[str, AnyArray], name: str) -> Array:
    array = tensors.pop(name)
    if array.dtype != np.float64 or not np.isfinite(array).all():
        raise DamagedFile(f"tensor {name} is not finite float64")
    return array


def _common(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> tuple[Any, Array | None]:
    boxes = [(_take(tensors, f"{name}/low"), _take(tensors, f"{name}/high")) for name in ("left_box", "right_box")]
    if [len(box[0]) for box in boxes] != list(own["variables"]):
        raise DamagedFile("its boxes do not fit its variables")
    return boxes, _take(tensors, "signs") if own["symmetric"] else None


def _cells(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> Cells:
    boxes, signs = _common(own, tensors)
    keys: list[tuple[Keys, ...]] = []
    values: list[Array] = []
    lines: list[Array | None] = []
    for side, box in list(zip(("left", "right"), boxes, strict=True))[: 1 if signs is not None else 2]:
        mine = []
        for v in range(len(box[0])):
            w, c = _take(tensors, f"{side}/keys{v}/map")
            slopes, biases = _take(tensors, f"{side}/keys{v}/slopes"), _take(tensors, f"{side}/keys{v}/biases")
            mine.append(Keys(float(w), float(c), slopes, biases))
        keys.append(tuple(mine))
        values.append(_take(tensors, f"{side}/values"))
        lines.append(_take(tensors, f"{side}/lines") if own["mlp"] else None)
    _nothing_left(tensors)
    second = values[0] * signs if signs is not None else values[1]
    last = lines[-1]
    last = last * signs if signs is not None and last is not None else last
    return Cells(keys[0], keys[-1], values[0], second, boxes[0], boxes[1], signs, lines[0], last)


def _slices(own: Mapping[str, Any], tensors: dict[str, AnyArray], graph: Graph, names: Names) -> Slices:
    boxes, signs = _common(own, tensors)
    rows, left = _take(tensors, "rows"), _take(tensors, "left_core")
    columns = rows if signs is not None else _take(tensors, "columns")
    right = left * signs if signs is not None else _take(tensors, "right_core")
    _nothing_left(tensors)
    return Slices(graph, names, rows, columns, left, right, boxes[0], boxes[1], signs)


def _terms(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> Separable:
    boxes, signs = _common(own, tensors)
    networks = []
    for k, structure in enumerate(own["networks"]):
        mine = {name: tensors.pop(name) for name in list(tensors) if name.startswith(f"network{k}/")}
        networks.append(network_of(structure, {name.split("/", 1)[1]: array for name, array in mine.items()}))
    _nothing_left(tensors)
    if len(networks) != (2 if signs is None else 1):
        raise DamagedFile("a symmetric relation has one network, any other has two")
    terms = Separable(networks[0], networks[-1], signs)
    for ends, box in zip(boxes, (terms.left_box, terms.right_box), strict=True):
        if not all(np.array_equal(a, b) for a, b in zip(ends, box, strict=True)):
            raise DamagedFile("its boxes are not those of its networks")
    return terms


def _nothing_left(tensors: dict[str, AnyArray]) -> None:
    if tensors:
        raise DamagedFile(f"tensor {next(iter(tensors))} belongs to nothing")
