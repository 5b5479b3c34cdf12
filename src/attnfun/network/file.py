"""The file: safetensors with one JSON text under the metadata key "attnfun". Never a pickle.

| JSON key | what | protected by |
| --- | --- | --- |
| format | 1, or 2 for an MLP | hash |
| inputs, outputs, layers, dtype, labels | names; per head name, writes, key_names, number of axes; meanings | hash |
| target, domain, norm | what the network is for | hash |
| anything else: request, certificate, ... | may be deleted without harm to the rest | its own sha256 in seals |
| hash | sha256 of everything above it and of every tensor (name, dtype, shape, bytes) | itself |

Tensors are stored in the network's dtype under the names of `Network.arrays`, the box as float64 "box/low", "box/high".
The same network and meta give the same bytes. Files are read by the few lines below, from bytes read once: nothing is
allocated that the file's own length does not cover, and whatever is not exactly a network that `save` wrote is a
DamagedFile in one sentence. The hash is a seal against damage, not against an author: who changes weights *and* hash
has another file, and `verify` proves or refutes that one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from safetensors.numpy import save as _to_bytes

from attnfun.errors import AttnfunError, DamagedFile, InvalidRequest
from attnfun.network.head import AnyArray, Axis, Head
from attnfun.network.labels import Labels
from attnfun.network.network import DTYPES, Layer, Network
from attnfun.network.relu import ReluBlock

FORMATS = {False: 1, True: 2}
"""By `Network.is_mlp`: attention is written as ever; blocks of ReLU units, by name and writes alone, came later."""
HASHED = ("target", "domain", "norm")
FILE_LIMIT = 4 << 30
HEADER_LIMIT = 64 << 20
_KINDS: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4")}
_OWN = ("format", "inputs", "outputs", "layers", "dtype", "labels", "hash", "seals")
_AXIS = ("query", "offset", "slopes", "biases")


def save(path: str | os.PathLike[str], network: Network, meta: Mapping[str, Any]) -> None:
    """Write `network` with `meta` (JSON values: target, domain, norm, request, certificate, ...), all or nothing.

    Raises InvalidRequest for meta that JSON cannot hold (NaN and infinities included) and for a path that cannot be
    written; a file that was there before is then still there.
    """
    target = Path(path)
    record = {
        **{key: value for key, value in meta.items() if key != "dtype"},
        **_structure(network),
        "hash": content_hash(network, meta),
        "seals": {key: _digest(value) for key, value in meta.items() if key not in (*HASHED, "dtype")},
    }
    write_all(target, _to_bytes(dict(_tensors(network)), metadata={"attnfun": _canonical(record)}))


def write_all(target: Path, data: bytes) -> None:
    """All of `data` or nothing: a file that was there before is still there if this fails (InvalidRequest)."""
    if len(data) > FILE_LIMIT:
        raise InvalidRequest(f"cannot save {target}: {len(data)} bytes are more than a file may have ({FILE_LIMIT})")
    scratch = target.parent / f".attnfun-{secrets.token_hex(8)}.tmp"
    try:
        with open(scratch, "xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(scratch, target)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot write {str(target)!r}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        with suppress(OSError, ValueError):
            scratch.unlink()


def load(path: str | os.PathLike[str], ignore: Collection[str] = ()) -> tuple[Network, dict[str, Any]]:
    """The network and the meta that were saved; keys in `ignore` (say "certificate") are neither checked nor returned.

    Raises DamagedFile for whatever `save` did not write, and InvalidRequest for a path that cannot be read.
    """
    where = Path(path)
    tensors, record = _read(where)
    if type(record.get("format")) is not int or record["format"] not in FORMATS.values():
        known = " or ".join(map(str, FORMATS.values()))
        _damaged(where, f"format {record.get('format')!r} is not {known}, those that this version reads")
    own = {key: record.get(key) for key in _OWN}
    meta = {key: value for key, value in record.items() if key not in _OWN and key not in ignore}
    seals = own["seals"]
    if not isinstance(seals, dict):
        _damaged(where, "it has no seals")
    for key, value in meta.items():
        if key not in HASHED and seals.get(key) != _digest(value):
            _damaged(where, f"its {key} is not the one that was written")
    try:
        network = _build(own, tensors)
        structure = _structure(network)
        matches = {key: own[key] for key in structure} == structure
        same = matches and content_hash(network, meta) == own["hash"]
    except AttnfunError as error:
        _damaged(where, str(error), error)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        _damaged(where, "its structure and its tensors do not fit together", error)
    if not same:
        _damaged(where, "its content is not the one that was hashed")
    return network, {**meta, "dtype": network.dtype}


def content_hash(network: Network, meta: Mapping[str, Any]) -> str:
    """sha256 over structure, labels, dtype, target, domain, norm and every tensor: all that gives the file its meaning.

    Not over the certificate or the request, so that both can be replaced or deleted.
    """
    for key in meta:
        if key in _OWN and key != "dtype":
            raise InvalidRequest(f"meta must not use the name {key!r}")
    if meta.get("dtype", network.dtype) != network.dtype:
        raise InvalidRequest(f"meta says dtype {meta['dtype']!r}, the network {network.dtype!r}")
    digest = hashlib.sha256()
    _feed(digest, _canonical({**{key: meta[key] for key in HASHED if key in meta}, **_structure(network)}).encode())
    for name, array in sorted(_tensors(network).items()):
        _feed(digest, f"{name} {array.dtype.str} {list(array.shape)}".encode())
        _feed(digest, array.tobytes())
    return digest.hexdigest()


def _feed(digest: Any, data: bytes) -> None:
    """Length first, so that no two different sequences of parts hash alike."""
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def _canonical(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"meta cannot be written as JSON: {error}") from error


def _structure(network: Network) -> dict[str, Any]:
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


def _tensors(network: Network) -> dict[str, AnyArray]:
    kind = np.dtype(network.dtype).newbyteorder("<")
    tensors = {name: np.ascontiguousarray(array, dtype=kind) for name, array in network.arrays()}
    tensors["box/low"], tensors["box/high"] = (np.ascontiguousarray(end, dtype="<f8") for end in network.box)
    return tensors


def _build(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> Network:
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
                _strings((head["name"], *head["writes"]))
                built.append(ReluBlock(head["name"], axis, take(f"{here}/values", dtype), tuple(head["writes"])))
                continue
            here = f"layer{number}/head{place}"
            axes = []
            for k in range(head["axes"]):
                if f"{here}/axis{k}/query" not in tensors:
                    raise InvalidRequest(f"tensor {here}/axis{k}/query is missing")
                axes.append(Axis(*(take(f"{here}/axis{k}/{part}", dtype) for part in _AXIS)))
            names = (head["name"], head["key_names"], *head["writes"])
            _strings(names)
            built.append(Head(names[0], tuple(axes), take(f"{here}/values", dtype), names[2:], names[1]))
        layers.append(Layer(tuple(built)))
    _strings((*own["inputs"], *own["outputs"]))
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


def _strings(names: tuple[Any, ...]) -> None:
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequest("a name in it is not text")


def _read(where: Path) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """The tensors and the JSON record of a safetensors file, every length checked before it is used."""
    try:
        info = os.stat(where)
        if not stat.S_ISREG(info.st_mode):
            raise InvalidRequest(f"cannot read {where}: not a file")
        if info.st_size > FILE_LIMIT:
            _damaged(where, f"{info.st_size} bytes are more than a network has")
        data = where.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"cannot read {where}: {error.strerror or error}") from error
    except ValueError as error:
        raise InvalidRequest(f"cannot read {str(where)!r}: {error}") from error
    if not data:
        _damaged(where, "it is empty")
    length = int.from_bytes(data[:8], "little")
    if len(data) < 10 or not 2 <= length <= min(HEADER_LIMIT, len(data) - 8):
        _damaged(where, "it is not a safetensors file, or it was cut")
    header = _json(where, data[8 : 8 + length], "header")
    texts = header.pop("__metadata__", None)
    if not isinstance(texts, dict) or set(texts) != {"attnfun"} or not isinstance(texts["attnfun"], str):
        _damaged(where, "it is a safetensors file without an attnfun network")
    return _arrays(where, header, memoryview(data)[8 + length :]), _json(where, texts["attnfun"].encode(), "metadata")


def _arrays(where: Path, header: Mapping[str, Any], body: memoryview) -> dict[str, AnyArray]:
    tensors: dict[str, AnyArray] = {}
    covered = 0
    entries: list[tuple[int, int, str, np.dtype[Any], tuple[int, ...]]] = []
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            _damaged(where, f"tensor {name!r} is not described")
        kind, shape, span = _KINDS.get(str(entry["dtype"])), entry["shape"], entry["data_offsets"]
        whole = isinstance(shape, list) and isinstance(span, list) and len(span) == 2 and len(shape) <= 32
        if kind is None or not whole or not all(type(size) is int and 0 <= size <= len(body) for size in shape + span):
            _damaged(where, f"tensor {name!r} has an impossible type, shape or place")
        if span[1] - span[0] != math.prod(shape) * kind.itemsize:
            _damaged(where, f"tensor {name!r} has {span[1] - span[0]} bytes, its shape {shape} asks for another number")
        entries.append((span[0], span[1], name, kind, tuple(shape)))
    for start, end, name, kind, shape in sorted(entries, key=lambda entry: entry[:3]):
        if start != covered:
            _damaged(where, "its tensors overlap or leave gaps")
        array = np.frombuffer(body[start:end], dtype=kind).reshape(shape).astype(kind.newbyteorder("="))
        array.setflags(write=False)
        tensors[name] = array
        covered = end
    if covered != len(body):
        _damaged(where, "it was cut, or has something behind its end")
    return tensors


def _json(where: Path, data: bytes, what: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("a key is there twice")
        return result

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number")

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        _damaged(where, f"its {what} cannot be read", error)
    if not isinstance(value, dict):
        _damaged(where, f"its {what} cannot be read")
    return value


def _damaged(where: Path, why: str, cause: BaseException | None = None) -> NoReturn:
    raise DamagedFile(f"{where} is not a whole attnfun file: {why}") from cause
