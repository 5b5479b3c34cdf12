"""The sealed container behind every file: safetensors with one JSON record under the metadata key "attnfun".

The record has parts of three kinds: *own* (the structure; what the tensors are), *hashed* (what the network is for
and what was asked of it), and the rest, each with a sha256 of its own in "seals", which may be deleted without harm.
"hash" is the sha256 of own, hashed and every tensor (name, dtype, shape, bytes).

A file is opened once and its bytes are read once (`attnfun.files`). What kind it is, what it holds and what is proved
of it all come from these bytes (`Held`), so a file that is exchanged meanwhile changes nothing. Nothing is allocated
that the file's own length does not cover, and whatever was not written here is a DamagedFile in one sentence.

Tensors of LARGE bytes or more are not copied out of the bytes of their file. These bytes were read into memory, or
where the reader says so (`mapped`) they are a map of the file. A map is for what is not proved: whoever writes into the
file itself changes it (`files.Mapped`). So `verify` reads.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as to_bytes

from attnfun.errors import AttnfunError, DamagedFile, InvalidRequest, require
from attnfun.files import Mapped, map_behind, read_bytes, read_or_map, write_whole
from attnfun.network.head import AnyArray

T = TypeVar("T")
HASHED = ("target", "domain", "claim")
FILE_LIMIT = 4 << 30
HEADER_LIMIT = 64 << 20
LARGE = 64 << 20
_KINDS: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind) for name, kind in zip(("F64", "F32", "I64", "BOOL"), ("<f8", "<f4", "<i8", "?"), strict=True)
}
_WRITTEN = [_KINDS[name] for name in ("I64", "F64", "F32", "BOOL")]
"""The order in which the library puts the types of tensors."""
_SEALS = ("hash", "seals")


@dataclass(frozen=True, eq=False)
class Held:
    """A file that was read: where it was, its tensors, its JSON record. Nothing is checked but the container."""

    where: Path
    tensors: Mapping[str, AnyArray]
    record: Mapping[str, Any]

    def __fspath__(self) -> str:
        return os.fspath(self.where)

    __str__ = __fspath__

    @property
    def format(self) -> Any:
        """What the file says it is."""
        return self.record.get("format")

    def in_memory(self) -> "Held":
        """The same, with no tensor left in the file."""
        own = {
            name: array if map_behind(array) is None else _fixed(array.copy()) for name, array in self.tensors.items()
        }
        return replace(self, tensors=own)


Source = str | os.PathLike[str]
"""A path, or a file that was read (`Held`, which is a path too): it is not opened again."""


def held(source: Source, mapped: bool = False) -> Held:
    """The file, read unless it was; `mapped`: large tensors may stay in the file."""
    return source if isinstance(source, Held) else Held(Path(source), *read(Path(source), mapped))


def write(
    path: str | os.PathLike[str], structure: Mapping[str, Any], tensors: Mapping[str, AnyArray], meta: Mapping[str, Any]
) -> None:
    """Write a record of `structure` and `meta` with `tensors`, all or nothing.

    Raises InvalidRequest for meta that JSON cannot hold (NaN and infinities included) and for a path that cannot be
    written; a file that was there before is then still there.
    """
    target = Path(path)
    own = {key: value for key, value in meta.items() if key != "dtype"}
    seals = {key: digest_of(value) for key, value in own.items() if key not in HASHED}
    record = {**own, **structure, "hash": content_hash(structure, tensors, meta), "seals": seals}
    text, size = canonical(record), sum(array.nbytes for array in tensors.values())
    if size < LARGE:
        write_whole(target, to_bytes(dict(tensors), metadata={"attnfun": text}))
        return
    order = sorted(tensors, key=lambda name: (_WRITTEN.index(tensors[name].dtype), name))
    head = _header({name: tensors[name] for name in order}, text)
    size += len(head)
    require(size <= FILE_LIMIT, f"cannot save {target}: {size} bytes, where a file has {FILE_LIMIT} at most")
    write_whole(target, (head, *(_bytes_of(tensors[name]) for name in order)))


def _header(tensors: Mapping[str, AnyArray], text: str) -> bytes:
    """What the library writes before tensors in this order; it would take copies of them."""
    header: dict[str, Any] = {"__metadata__": {"attnfun": text}}
    names, at = {kind: name for name, kind in _KINDS.items()}, 0
    for name, array in tensors.items():
        shape, places = list(array.shape), [at, at + array.nbytes]
        header[name] = {"dtype": names[array.dtype], "shape": shape, "data_offsets": places}
        at += array.nbytes
    data = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    data += b" " * (-len(data) % 8)
    return len(data).to_bytes(8, "little") + data


def _bytes_of(array: AnyArray) -> memoryview:
    """Its bytes in the order of C; no copy of an array that is in that order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def load(
    source: Source,
    written: str,
    own: Collection[str],
    ignore: Collection[str],
    build: Callable[[Mapping[str, Any], dict[str, AnyArray]], T],
    parts: Callable[[T], tuple[dict[str, Any], dict[str, AnyArray]]],
) -> tuple[T, dict[str, Any]]:
    """What `build` makes of the file's own parts and tensors, and its meta; seals and hash are checked, and that the
    result has just these `parts` (structure and tensors). Keys in `ignore` are neither checked nor returned.

    Raises DamagedFile for whatever `write` did not write, and InvalidRequest for a path that cannot be read.
    """
    file = held(source)
    where, tensors, record = file.where, dict(file.tensors), file.record
    if file.format != written:
        damaged(where, f"its format is {file.format!r}, and {written} is what is read here")
    mine = {key: record.get(key) for key in (*own, *_SEALS)}
    meta = {key: value for key, value in record.items() if key not in mine and key not in ignore}
    seals = mine["seals"]
    if not isinstance(seals, dict):
        damaged(where, "it has no seals")
    for key, value in meta.items():
        if key not in HASHED and seals.get(key) != digest_of(value):
            damaged(where, f"its {key} is not the one that was written")
    try:
        built = build(mine, tensors)
        structure, arrays = parts(built)
        same = {key: mine[key] for key in structure} == structure
        same = same and content_hash(structure, arrays, meta) == mine["hash"]
    except AttnfunError as error:
        damaged(where, str(error), error)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        damaged(where, "its structure and its tensors do not fit together", error)
    if not same:
        damaged(where, "its content is not the one that was hashed")
    return built, {**meta, "dtype": structure["dtype"]}


def content_hash(structure: Mapping[str, Any], tensors: Mapping[str, AnyArray], meta: Mapping[str, Any]) -> str:
    """sha256 over structure, target, domain, claim and every tensor: all that gives the file its meaning.

    Not over the certificate or the rest of the request, so that both can be replaced or deleted.
    """
    for key in meta:
        require(key == "dtype" or key not in {*structure, *_SEALS}, f"meta must not use the name {key!r}")
    if meta.get("dtype", structure["dtype"]) != structure["dtype"]:
        raise InvalidRequest(f"meta says dtype {meta['dtype']!r}, the network {structure['dtype']!r}")
    digest = hashlib.sha256()
    _feed(digest, canonical({**{key: meta[key] for key in HASHED if key in meta}, **structure}).encode())
    for name, array in sorted(tensors.items()):
        _feed(digest, f"{name} {array.dtype.str} {list(array.shape)}".encode())
        if (source := map_behind(array)) is not None:
            source.require_unchanged()
        _feed(digest, _bytes_of(array))
    return digest.hexdigest()


def _feed(digest: Any, data: Any) -> None:
    """Length first, so that no two different sequences of parts hash alike."""
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


def digest_of(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def canonical(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"meta cannot be written as JSON: {error}") from error


def read(where: Path, mapped: bool = False) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """The tensors and the JSON record of a safetensors file, every length checked before it is used."""
    data = read_or_map(where, FILE_LIMIT, LARGE) if mapped else read_bytes(where, FILE_LIMIT)
    if not len(data):
        damaged(where, "it is empty")
    length = int.from_bytes(data[:8], "little")
    if len(data) < 10 or not 2 <= length <= min(HEADER_LIMIT, len(data) - 8):
        damaged(where, "it is not a safetensors file, or it was cut")
    header = _json(where, data[8 : 8 + length], "header")
    texts = header.pop("__metadata__", None)
    if not isinstance(texts, dict) or set(texts) != {"attnfun"} or not isinstance(texts["attnfun"], str):
        damaged(where, "it is a safetensors file without an attnfun network")
    try:
        small = isinstance(data, bytes) and len(data) < LARGE
        arrays = _copied(bytes(data)) if small else _placed(data, 8 + length, header)
    except (ValueError, KeyError, TypeError, OverflowError, SafetensorError) as error:
        why = " ".join(str(error).split())[:80]
        damaged(where, f"it was cut, or a tensor has an impossible type, shape or place ({why})", error)
    return arrays, _json(where, texts["attnfun"].encode(), "metadata")


def _copied(data: bytes) -> dict[str, AnyArray]:
    """Every tensor. The library sees to it that lengths and shapes meet, and that tensors neither overlap nor leave
    gaps; it copies each out of the file's own bytes.
    """
    tensors: dict[str, AnyArray] = {}
    for name, entry in deserialize(data):
        kind = _KINDS[entry["dtype"]]
        array = np.frombuffer(entry["data"], dtype=kind).reshape(entry["shape"])
        tensors[name] = _fixed(array.astype(kind.newbyteorder("=")))
    return tensors


def _placed(data: bytes | Mapped, start: int, header: Mapping[str, Any]) -> dict[str, AnyArray]:
    """Every tensor of a large file, of which the library would make copies: large ones where they lie, the others
    copied. Checked here is what the library checks: in the order of their places, each tensor begins where the one
    before it ends, the first at 0, and the last ends with the file; each is as long as its type and shape say.
    """
    at, end = 0, len(data) - start
    if data[8:9] != b"{":
        raise ValueError("the header begins with something else than an object")
    tensors: dict[str, AnyArray] = {}
    for name, entry in sorted(header.items(), key=lambda item: _whole(item[1]["data_offsets"], end)):
        (first, last), shape, kind = entry["data_offsets"], _whole(entry["shape"], end), _KINDS[entry["dtype"]]
        count = math.prod(shape)
        if set(entry) != {"dtype", "shape", "data_offsets"} or first != at or last - first != count * kind.itemsize:
            raise ValueError(f"tensor {name!r:.30} is not there")
        array = np.frombuffer(data, kind, count, start + first).reshape(shape)
        stays = array.nbytes >= LARGE and array.flags.aligned
        tensors[name], at = _fixed(array.astype(kind.newbyteorder("="), copy=not stays)), last
    if at != end:
        raise ValueError(f"{end - at} bytes are left")
    return tensors


def _whole(numbers: Any, most: int) -> list[int]:
    """Numbers of a header, each of 0..most, so that no product of them is a large computation."""
    if (
        not isinstance(numbers, list)
        or len(numbers) > 32
        or not all(type(n) is int and 0 <= n <= most for n in numbers)
    ):
        raise ValueError("places and shapes are lists of whole numbers")
    return numbers


def _fixed(array: AnyArray) -> AnyArray:
    array.setflags(write=False)
    return array


def _json(where: Path, data: bytes, what: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("a key is there twice")
        return result

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a number")

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        damaged(where, f"its {what} cannot be read", error)
    if not isinstance(value, dict):
        damaged(where, f"its {what} cannot be read")
    return value


def damaged(where: Path, why: str, cause: BaseException | None = None) -> NoReturn:
    raise DamagedFile(f"{where} is not a whole attnfun file: {why}") from cause
