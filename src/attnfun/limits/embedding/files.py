"""Embeddings on disk: integers, with the ids beside them.

| name ends in | what is written |
| --- | --- |
| `.safetensors` | int64 `queries` (queries × dimension), `documents`; metadata `attnfun`: JSON with ids and answer |
| `.npz` | `queries`, `documents`, `query_ids`, `document_ids` |
| `.npy` | `NAME.queries.npy`, `NAME.documents.npy`, and the ids in `NAME.ids.json` |

Written all or nothing, never a pickle. The certificate is the arrays themselves: whoever has the relation can check it.
"""

from __future__ import annotations

import io
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnfun.errors import DamagedFile, Infeasible, InvalidRequest
from attnfun.files import require_regular
from attnfun.limits.embedding.check import Ranking, check_embedding
from attnfun.limits.embedding.relevance import Relevance

if TYPE_CHECKING:
    from attnfun.limits.embedding.dimension import EmbeddingDimension

ENDINGS = (".safetensors", ".npz", ".npy")


def check_ending(path: str | os.PathLike[str]) -> None:
    if Path(path).suffix not in ENDINGS:
        raise InvalidRequest(f"cannot write {str(path)!r:.80}: an embedding is written as {', '.join(ENDINGS)}")


def save(path: str | os.PathLike[str], answer: EmbeddingDimension) -> list[str]:
    """Write the vectors; the names of the files. Raises Infeasible for integers beyond int64."""
    check_ending(path)
    target = Path(path)
    if any(array.dtype == object for array in (answer.queries, answer.documents)):
        what = f"its integers take {answer.bits} bits, and a file holds 63"
        nearest = {"dim": answer.dimension + 2}
        raise Infeasible(f"cannot write the embedding of dimension {answer.dimension}: {what}", nearest)
    arrays = {
        "queries": np.ascontiguousarray(answer.queries, np.int64),
        "documents": np.ascontiguousarray(answer.documents, np.int64),
    }
    ids = {"query_ids": list(answer.relation.query_ids), "document_ids": list(answer.relation.document_ids)}
    if target.suffix == ".safetensors":
        from safetensors.numpy import save as to_bytes

        text = json.dumps({"kind": "embedding", **ids, **answer.record()}, ensure_ascii=False, allow_nan=False)
        return [_write(target, to_bytes(arrays, metadata={"attnfun": text}))]
    if target.suffix == ".npz":
        stream = io.BytesIO()
        contents: dict[str, Any] = {**arrays, **{key: np.array(names) for key, names in ids.items()}}
        np.savez(stream, **contents)
        return [_write(target, stream.getvalue())]
    stem = target.with_suffix("")
    written = []
    for name, array in arrays.items():
        stream = io.BytesIO()
        np.save(stream, array, allow_pickle=False)
        written.append(_write(Path(f"{stem}.{name}.npy"), stream.getvalue()))
    written.append(_write(Path(f"{stem}.ids.json"), json.dumps(ids, ensure_ascii=False).encode()))
    return written


def load_embedding(path: str | os.PathLike[str]) -> tuple[Any, Any, dict[str, Any]]:
    """queries, documents and the metadata of a .safetensors that `save` wrote; `check_embedding` judges them."""
    from safetensors import SafetensorError, safe_open

    require_regular(path)
    try:
        with safe_open(os.fspath(path), framework="numpy") as stored:
            meta = json.loads((stored.metadata() or {})["attnfun"])
            return stored.get_tensor("queries"), stored.get_tensor("documents"), meta
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise DamagedFile(f"{str(path)!r:.80} is not an embedding that attnfun wrote: {error}") from None


def check_file(path: str | os.PathLike[str], relation: Relevance) -> tuple[Ranking, int]:
    """What the vectors of a file are worth for a relation, by their ids, and their dimension; Refuted if they fail.

    Vectors of queries and documents that the relation does not name are passed over; missing ones are refused.
    """
    queries, documents, meta = load_embedding(path)
    picked = []
    for array, ids, wanted in (
        (queries, meta.get("query_ids"), relation.query_ids),
        (documents, meta.get("document_ids"), relation.document_ids),
    ):
        place = {name: at for at, name in enumerate(ids)} if isinstance(ids, list) else {}
        if array.ndim != 2 or len(place) != len(array):
            raise DamagedFile(f"{str(path)!r:.80}: its ids and its vectors do not fit")
        missing = next((name for name in wanted if name not in place), None)
        if missing is not None:
            raise InvalidRequest(f"{str(path)!r:.80} has no vector for {missing!r:.60}")
        picked.append(array[[place[name] for name in wanted]])
    return check_embedding(relation, *picked), picked[0].shape[1]


def _write(target: Path, data: bytes) -> str:
    scratch = target.parent / f".attnfun-{secrets.token_hex(8)}.tmp"
    try:
        scratch.write_bytes(data)
        os.replace(scratch, target)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot write {str(target)!r}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        with suppress(OSError, ValueError):
            scratch.unlink()
    return str(target)
