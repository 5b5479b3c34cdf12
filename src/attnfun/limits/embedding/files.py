"""Relations and embeddings on disk.

**Relevance** is read from these:

| file | how it is recognised | what it says |
| --- | --- | --- |
| TREC qrels | four fields, by tabs or spaces: query, iteration, document, grade | grades above 0 are relevant |
| TSV | two or three fields by tabs: query, document[, grade]; a first line that names the columns is skipped | same |
| CSV matrix | commas; rows are queries, columns documents; a first line and a first column of ids may stand | same |
| .npy | a matrix of numbers | same |

A pair that is listed twice with the same judgement counts once, with two judgements it is refused. Blank lines and
lines that begin with # are skipped. Documents that are only judged irrelevant belong to the collection.

**Embeddings** are written as integers, with the ids beside them:

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
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from attnfun.errors import DamagedFile, Infeasible, InvalidRequest, require
from attnfun.files import csv_rows, read_bytes, read_text, require_regular, write_whole
from attnfun.limits.embedding.check import Ranking, check_embedding
from attnfun.limits.embedding.relevance import Relevance, grade

if TYPE_CHECKING:
    from attnfun.limits.embedding.dimension import EmbeddingDimension

_BROKEN = (OSError, ValueError, EOFError, MemoryError, SyntaxError, TypeError, KeyError, TokenError)  # of a .npy
_MATRIX_LIMIT = 4 << 30
_QUERY_HEADERS = {"query", "query-id", "query_id", "queryid", "qid", "topic", "id", ""}
ENDINGS = (".safetensors", ".npz", ".npy")


def read_any(relation: Any, documents: Any = None) -> Relevance:
    """The relation of a path or of values, in its declared collection."""
    if isinstance(documents, (str, os.PathLike)):
        documents = read_documents(documents)
    known = isinstance(relation, (str, os.PathLike))
    return read_relevance(relation, documents) if known else Relevance.of(relation, documents)


def read_relevance(path: str | os.PathLike[str], documents: Any = None) -> Relevance:
    """The relation of a file; InvalidRequest in one sentence, with the line, for what is none."""
    name = os.fspath(path)
    if Path(name).suffix == ".npy":
        return Relevance.from_matrix(load_matrix(name)).within(documents)
    lines = _lines(name)
    first = lines[0][1]
    try:
        if "\t" not in first and "," in first:
            queries, columns, values = _cells([line for _, line in lines])
            return Relevance.from_matrix(values, queries, columns).within(documents)
        return Relevance.from_pairs(_judgements(lines), documents)
    except InvalidRequest as error:
        raise InvalidRequest(f"{name!r:.80}: {error}") from None


def read_documents(text: str | os.PathLike[str]) -> int | list[str]:
    """`--documents`: a number, or a file with an id a line."""
    name = os.fspath(text)
    if name.strip().isdecimal():
        return int(name)
    ids = [line.strip() for line in _text(name).split("\n") if line.strip()]
    require(ids, f"{name!r:.80}: the file lists no documents")
    return ids


def load_matrix(path: str | os.PathLike[str]) -> Any:
    """A matrix of numbers from .npy or CSV (a first line, and a first column, of names may stand)."""
    name = os.fspath(path)
    if Path(name).suffix == ".npy":
        try:
            return np.lib.format.read_array(io.BytesIO(read_bytes(name, _MATRIX_LIMIT)), allow_pickle=False)
        except _BROKEN as error:
            raise InvalidRequest(f"cannot read {name!r:.80}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return _cells([line for _, line in _lines(name)])[2]
    except InvalidRequest as error:
        raise InvalidRequest(f"{name!r:.80}: {error}") from None


def _text(name: str) -> str:
    """The text, with \\n for every end of a line; ids may hold what `splitlines` would cut at besides."""
    return read_text(name).replace("\r\n", "\n").replace("\r", "\n")


def _lines(name: str) -> list[tuple[int, str]]:
    """The lines that say something, with their numbers."""
    every = enumerate(_text(name).split("\n"), 1)
    found = [(number, line) for number, line in every if line.strip() and not line.startswith("#")]
    require(found, f"{name!r:.80}: the file is empty")
    return found


def _judgements(lines: list[tuple[int, str]]) -> list[tuple[Any, ...]]:
    def fields(line: str) -> list[str]:
        cut = [part.strip() for part in line.split("\t")] if "\t" in line else line.split()
        return cut if len(cut) > 1 else line.split()

    width = len(fields(lines[0][1]))
    if width not in (2, 3, 4):
        what = "query, document[, grade] by tabs, or the four fields of qrels, are needed"
        raise InvalidRequest(f"line {lines[0][0]}: {what}")
    out: list[tuple[Any, ...]] = []
    for at, (number, line) in enumerate(lines):
        parts = fields(line)
        if len(parts) != width or not all(parts):
            what = f"{len(parts)} fields, where the first line has {width}, or an empty one"
            raise InvalidRequest(f"line {number}: {what}")
        if at == 0 and parts[0].lower() in _QUERY_HEADERS and (width == 2 or not _is_number(parts[-1])):
            continue
        judged = () if width == 2 else (grade(parts[-1], f"line {number}"),)
        out.append((parts[0], parts[2 if width == 4 else 1], *judged))
    require(out, "there is a header and nothing below it")
    return out


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cells(lines: list[str]) -> tuple[list[str] | None, list[str] | None, Any]:
    """Row names, column names and numbers of a CSV."""
    rows = [row for _, row in csv_rows(lines, "its lines")]
    first = rows[0]
    titled = len(first) > 1 and first[0].lower() in _QUERY_HEADERS  # then numbers beside it are ids of documents
    header = rows.pop(0) if titled or not all(_is_number(cell) for cell in first[1:] or first) else None
    require(rows, "there is a header and nothing below it")
    named = any(not _is_number(row[0]) for row in rows) or (
        header is not None and (header[0].lower() in _QUERY_HEADERS or len(header) == len(rows[0]) - 1)
    )
    names = [row[0] for row in rows] if named else None
    body = [row[1:] if named else row for row in rows]
    width = len(body[0])
    titles = header[1:] if header is not None and named and len(header) == width + 1 else header
    if titles is not None and len(titles) != width:
        raise InvalidRequest(f"the first line names {len(titles)} columns, the rows have {width}")
    values = np.empty((len(body), width))
    for at, row in enumerate(body, 1):
        require(len(row) == width, f"row {at} has {len(row)} cells, the first has {width}")
        values[at - 1] = [grade(cell, f"row {at}") for cell in row]
    return names, titles, values


def check_ending(path: str | os.PathLike[str]) -> None:
    require(Path(path).suffix in ENDINGS, f"cannot write {str(path)!r:.80}: an embedding ends in {', '.join(ENDINGS)}")


def save(path: str | os.PathLike[str], answer: EmbeddingDimension) -> list[str]:
    """Write the vectors; the names of the files. Raises Infeasible for integers beyond int64."""
    check_ending(path)
    target = Path(path)
    if any(array.dtype == object for array in (answer.queries, answer.documents)):
        what = f"its integers take {answer.bits} bits, and a file holds 63"
        nearest = {"dim": answer.dimension + 2}
        raise Infeasible(f"cannot write the embedding of dimension {answer.dimension}: {what}", nearest)
    arrays = {n: np.ascontiguousarray(getattr(answer, n), np.int64) for n in ("queries", "documents")}
    ids = {"query_ids": list(answer.relation.query_ids), "document_ids": list(answer.relation.document_ids)}
    if target.suffix == ".safetensors":
        from safetensors.numpy import save as to_bytes

        text = json.dumps({"kind": "embedding", **ids, **answer.record()}, ensure_ascii=False, allow_nan=False)
        return [write_whole(target, to_bytes(arrays, metadata={"attnfun": text}))]
    if target.suffix == ".npz":
        contents: dict[str, Any] = {**arrays, **{key: np.array(names) for key, names in ids.items()}}
        np.savez(stream := io.BytesIO(), **contents)
        return [write_whole(target, stream.getvalue())]
    stem = target.with_suffix("")
    written = []
    for name, array in arrays.items():
        np.save(stream := io.BytesIO(), array, allow_pickle=False)
        written.append(write_whole(Path(f"{stem}.{name}.npy"), stream.getvalue()))
    written.append(write_whole(Path(f"{stem}.ids.json"), json.dumps(ids, ensure_ascii=False).encode()))
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
    for array, kind in ((queries, "query_ids"), (documents, "document_ids")):
        ids, wanted = meta.get(kind), getattr(relation, kind)
        place = {name: at for at, name in enumerate(ids)} if isinstance(ids, list) else {}
        if array.ndim != 2 or len(place) != len(array):
            raise DamagedFile(f"{str(path)!r:.80}: its ids and its vectors do not fit")
        missing = next((name for name in wanted if name not in place), None)
        require(missing is None, f"{str(path)!r:.80} has no vector for {missing!r:.60}")
        picked.append(array[[place[name] for name in wanted]])
    return check_embedding(relation, *picked), picked[0].shape[1]
