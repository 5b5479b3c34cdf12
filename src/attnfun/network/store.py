"""Any frozen tree of arrays as one sealed file, and back.

Weights are frozen dataclasses of arrays, numbers, names and further such dataclasses. `taken_apart` writes such a tree
as JSON (its structure) and named tensors; `put_together` makes it again. What may stand where is said by the type
hints of the classes' fields and by nothing else, so a file cannot name a class that the hints do not: that is why no
class has a file format of its own.

| in the tree | in the structure |
| --- | --- |
| a dataclass | {"is": its name, field: …} |
| an array | {"tensor": its dtype}; the tensor's name is the path to it, as in layers/0/heads/1/query |
| a class with `to_json` and `from_json` | {"json": …} |
| the same dataclass a second time | {"same": the path to the first} |
| a tuple, a mapping from text | a list, {"map": …} |
| None, a truth value, a whole number, a finite number, text | itself; ±inf as {"float": "inf"} |

Arrays of a class whose `dtype` is float32 are float64 in memory and float32 in the file; they are read back as they
were, and so never stay in the file (`sealed.py`): they are copied once. A tree that is read must come apart into just
what was read (`sealed.load` compares), so whatever a class does to its fields on the way in cannot change what a file
means.
"""

import dataclasses
import math
import types
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from attnfun.errors import DamagedFile, intact, require
from attnfun.network import sealed
from attnfun.network.head import AnyArray, everywhere, held_by_float32

FORMAT = "attnfun 1"
_OWN = ("format", "kind", "weights", "dtype")
_TENSORS = {"float64": "<f8", "float32": "<f4", "int64": "<i8", "bool": "?"}
Json = Any
Tensors = dict[str, AnyArray]
T = TypeVar("T")


def write(path: sealed.Source, kind: str, weights: Any, meta: Mapping[str, Any]) -> None:
    """One sealed file: weights, and `meta` (target, claim, request, story, certificate) as JSON values."""
    structure, tensors = _record(kind, weights)
    sealed.write(path, structure, tensors, meta)


def hash_of(kind: str, weights: Any, meta: Mapping[str, Any]) -> str:
    """What a file of these weights and this meta is sealed with."""
    return sealed.content_hash(*_record(kind, weights), meta)


def read(source: sealed.Source, classes: Collection[type], ignore: Collection[str] = ()) -> tuple[Any, dict[str, Any]]:
    """(weights, meta) of a file; weights are of one of `classes`. Keys in `ignore` are neither checked nor given."""
    file = sealed.held(source)
    kind = str(file.record.get("kind"))

    def build(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> Any:
        return put_together(Union[tuple(classes)], own["weights"], tensors)  # noqa: UP007 - classes are values here

    return sealed.load(file, FORMAT, _OWN, ignore, build, lambda made: _record(kind, made))


def _record(kind: str, weights: Any) -> tuple[dict[str, Any], Tensors]:
    structure, tensors = taken_apart(weights)
    return {"format": FORMAT, "kind": kind, "weights": structure, "dtype": weights.dtype}, tensors


def fingerprint(tree: Any) -> str:
    """A sha256 of a tree: the same for equal structure and equal bits."""
    structure, tensors = taken_apart(tree)
    return sealed.content_hash({"tree": structure, "dtype": ""}, tensors, {})


def taken_apart(tree: Any) -> tuple[Json, Tensors]:
    """(structure, tensors) of a tree."""
    apart = _Apart()
    return apart.value(tree, "", "float64"), apart.tensors


def put_together(hint: Any, structure: Json, tensors: Tensors) -> Any:
    """The tree of a type; takes every tensor it needs out of `tensors` and wants none left. Raises DamagedFile."""
    together = _Together(tensors)
    made = together.value(hint, structure, "")
    if tensors:
        raise DamagedFile(f"tensor {next(iter(tensors))} belongs to nothing")
    return made


def revived(hint: Any, data: Json) -> Any:
    """A tree of dataclasses, tuples and plain values from what `dataclasses.asdict` and JSON make of it, by its types.

    What a class does not refuse is not refused here; KeyError or TypeError where parts are missing or of another form.
    """
    choices = _choices(hint)
    if data is None and type(None) in choices:
        return None
    choice: Any = next(one for one in choices if one is not type(None))
    if get_origin(choice) is tuple:
        inside = get_args(choice)
        hints = inside[:1] * len(data) if inside[1:] == (Ellipsis,) else inside
        return tuple(revived(one, part) for one, part in zip(hints, data, strict=True))
    if dataclasses.is_dataclass(choice):
        parts = {name: revived(own, data[name]) for name, own in _hints(cast(Any, choice)).items()}
        return cast(Any, choice)(**parts)
    return data


def _inside(path: str, name: object) -> str:
    return f"{path}/{name}" if path else str(name)


class _Apart:
    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self.seen: dict[int, tuple[str, Any]] = {}  # the object is kept, so that its id stays its own

    def value(self, tree: Any, path: str, dtype: str) -> Json:
        if tree is None or (isinstance(tree, (bool, int, str)) and not isinstance(tree, np.generic)):
            return tree
        if isinstance(tree, (float, np.generic)):
            return self._number(tree)
        if isinstance(tree, (tuple, list)):
            return [self.value(one, _inside(path, k), dtype) for k, one in enumerate(tree)]
        if isinstance(tree, Mapping):
            return {"map": {key: self.value(one, _inside(path, key), dtype) for key, one in tree.items()}}
        if isinstance(tree, np.ndarray):
            return {"tensor": self._tensor(tree, path, dtype)}
        if _as_json(type(tree)):
            return {"json": tree.to_json()}
        if id(tree) in self.seen:
            return {"same": self.seen[id(tree)][0]}
        self.seen[id(tree)] = path, tree
        own, kind = getattr(tree, "dtype", dtype), cast(Any, type(tree))
        parts = {name: self.value(getattr(tree, name), _inside(path, name), own) for name in _hints(kind)}
        return {"is": kind.__name__, **parts}

    def _number(self, value: Any) -> Json:
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, float) and not math.isfinite(plain):
            return {"float": str(plain)}
        return plain

    def _tensor(self, array: AnyArray, path: str, dtype: str) -> str:
        kind = array.dtype.name
        require(kind in _TENSORS, f"{path}: an array of {kind} is not stored")
        narrow = kind == "float64" and dtype == "float32" and everywhere(held_by_float32, array)
        self.tensors[path] = np.ascontiguousarray(array, dtype=_TENSORS["float32" if narrow else kind])
        return kind


class _Together:
    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.seen: dict[str, Any] = {}

    def value(self, hint: Any, data: Json, path: str) -> Any:
        for choice in _choices(hint):
            made = self._one(choice, data, path)
            if made is not _OTHER:
                return made
        if isinstance(data, dict) and isinstance(data.get("same"), str) and len(data) == 1:
            found = self.seen.get(data["same"])
            if found is not None and any(isinstance(found, get_origin(c) or c) for c in _choices(hint)):
                return found
        raise DamagedFile(f"{path or 'its weights'}: what stands there cannot be")

    def _one(self, hint: Any, data: Json, path: str) -> Any:
        """The value of this one type, or _OTHER where data is not of the form in which that is written."""
        origin, inside = get_origin(hint), get_args(hint)
        if hint is Any:
            return data
        if hint is float:
            far = isinstance(data, dict) and data.get("float") in ("inf", "-inf")
            return float(data["float"]) if far else float(data) if type(data) in (int, float) else _OTHER
        if hint in (type(None), bool, int, str):
            return data if type(data) is hint else _OTHER
        if origin is Literal:
            return data if any(type(data) is type(one) and data == one for one in inside) else _OTHER
        if origin is tuple and isinstance(data, list):
            hints = inside[:1] * len(data) if inside[1:] == (Ellipsis,) else inside
            intact(len(hints) == len(data), f"{path}: {len(data)} parts, where {len(hints)} are needed")
            return tuple(self.value(h, one, _inside(path, k)) for k, (h, one) in enumerate(zip(hints, data)))
        if origin is tuple or not isinstance(data, dict):
            return _OTHER
        if origin is np.ndarray:
            whole = set(data) == {"tensor"} and isinstance(data["tensor"], str)
            return self._array(data["tensor"], path) if whole else _OTHER
        if origin in _MAPPINGS:
            if set(data) != {"map"} or not isinstance(data["map"], dict):
                return _OTHER
            return {key: self.value(inside[1], one, _inside(path, key)) for key, one in data["map"].items()}
        if _as_json(hint):
            return hint.from_json(data["json"]) if "json" in data else _OTHER
        if data.get("is") != getattr(hint, "__name__", None):
            return _OTHER
        fields = _hints(hint)
        intact(set(data) == {"is", *fields}, f"{path or 'its weights'}: not the parts of a {hint.__name__}")
        made = hint(**{name: self.value(own, data[name], _inside(path, name)) for name, own in fields.items()})
        self.seen[path] = made
        return made

    def _array(self, dtype: str, path: str) -> AnyArray:
        intact(path in self.tensors and dtype in _TENSORS, f"tensor {path} is missing")
        array = self.tensors.pop(path)
        if array.dtype.name not in (dtype, "float32" if dtype == "float64" else dtype):
            raise DamagedFile(f"tensor {path} is not {dtype}")
        made = array.astype(dtype, copy=False)
        made.setflags(write=False)  # what nobody can write to is not copied again
        return made


_MAPPINGS = (dict, Mapping)
_OTHER: Any = object()


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """The types of the fields that a class is made of."""
    require(dataclasses.is_dataclass(cls), f"{cls.__name__} is not stored: a tree of weights is made of dataclasses")
    hints = get_type_hints(cls)
    return {one.name: hints[one.name] for one in dataclasses.fields(cls) if one.init}


def _as_json(cls: Any) -> bool:
    return isinstance(cls, type) and hasattr(cls, "to_json") and hasattr(cls, "from_json")


def _choices(hint: Any) -> tuple[Any, ...]:
    hint = getattr(get_origin(hint) or hint, "__value__", hint)  # what an alias stands for: NumPy 2.5's NDArray is one
    inside = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(c for one in inside for c in (_choices(one) if one is not hint else (one,)))
