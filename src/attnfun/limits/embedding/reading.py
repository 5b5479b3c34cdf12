"""Relevance from files.

| file | how it is recognised | what it says |
| --- | --- | --- |
| TREC qrels | four fields, by tabs or spaces: query, iteration, document, grade | grades above 0 are relevant |
| TSV | two or three fields by tabs: query, document[, grade]; a first line that names the columns is skipped | same |
| CSV matrix | commas: a row a query, a column a document; a first line and a first column of ids may stand | same |
| .npy | a matrix of numbers | same |

A pair that is listed twice with the same judgement counts once, with two judgements it is refused. Blank lines and
lines that begin with # are skipped. Documents that are only judged irrelevant belong to the collection.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.files import read_bytes, read_text
from attnfun.limits.embedding.relevance import Relevance, grade

_BROKEN = (OSError, ValueError, EOFError, MemoryError, SyntaxError, TypeError, KeyError, TokenError)  # of a .npy
_MATRIX_LIMIT = 4 << 30
_QUERY_HEADERS = {"query", "query-id", "query_id", "queryid", "qid", "topic", "id", ""}


def read_relevance(path: str | os.PathLike[str], documents: Any = None) -> Relevance:
    """The relation of a file; InvalidRequest in one sentence, with the line, for what is none."""
    name = os.fspath(path)
    if Path(name).suffix == ".npy":
        return Relevance.from_matrix(load_matrix(name)).within(documents)
    lines = [
        (number, line)
        for number, line in enumerate(_text(name).split("\n"), 1)
        if line.strip() and not line.startswith("#")
    ]
    if not lines:
        raise InvalidRequest(f"{name!r:.80}: the file is empty")
    first = lines[0][1]
    try:
        if "\t" not in first and "," in first:
            return _matrix([line for _, line in lines]).within(documents)
        return Relevance.from_pairs(_judgements(lines), documents)
    except InvalidRequest as error:
        raise InvalidRequest(f"{name!r:.80}: {error}") from None


def read_documents(text: str | os.PathLike[str]) -> int | list[str]:
    """`--documents`: a number, or a file with an id a line."""
    name = os.fspath(text)
    if name.strip().isdecimal():
        return int(name)
    ids = [line.strip() for line in _text(name).split("\n") if line.strip()]
    if not ids:
        raise InvalidRequest(f"{name!r:.80}: the file lists no documents")
    return ids


def load_matrix(path: str | os.PathLike[str]) -> Any:
    """A matrix of numbers from .npy or CSV (a first line, and a first column, of names may stand)."""
    name = os.fspath(path)
    if Path(name).suffix == ".npy":
        try:
            return np.lib.format.read_array(io.BytesIO(read_bytes(name, _MATRIX_LIMIT)), allow_pickle=False)
        except _BROKEN as error:
            raise InvalidRequest(f"cannot read {name!r:.80}: {getattr(error, 'strerror', None) or error}") from None
    lines = [line for line in _text(name).split("\n") if line.strip() and not line.startswith("#")]
    if not lines:
        raise InvalidRequest(f"{name!r:.80}: the file is empty")
    try:
        return _cells(lines)[2]
    except InvalidRequest as error:
        raise InvalidRequest(f"{name!r:.80}: {error}") from None


def _text(name: str) -> str:
    """The text, with \\n for every end of a line; ids may hold what `splitlines` would cut at besides."""
    return read_text(name).replace("\r\n", "\n").replace("\r", "\n")


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
        if at == 0 and _is_header(parts):
            continue
        if width == 2:
            out.append((parts[0], parts[1]))
            continue
        document = parts[2] if width == 4 else parts[1]
        out.append((parts[0], document, grade(parts[-1], f"line {number}")))
    if not out:
        raise InvalidRequest("there is a header and nothing below it")
    return out


def _is_header(parts: list[str]) -> bool:
    if parts[0].lower() not in _QUERY_HEADERS:
        return False
    return len(parts) == 2 or not _is_number(parts[-1])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _matrix(lines: list[str]) -> Relevance:
    queries, documents, values = _cells(lines)
    return Relevance.from_matrix(values, queries, documents)


def _cells(lines: list[str]) -> tuple[list[str] | None, list[str] | None, Any]:
    """Row names, column names and numbers of a CSV."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    first = rows[0]
    titled = len(first) > 1 and first[0].lower() in _QUERY_HEADERS  # then numbers beside it are ids of documents
    header = rows.pop(0) if titled or not all(_is_number(cell) for cell in first[1:] or first) else None
    if not rows:
        raise InvalidRequest("there is a header and nothing below it")
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
        if len(row) != width:
            raise InvalidRequest(f"row {at} has {len(row)} cells, the first has {width}")
        values[at - 1] = [grade(cell, f"row {at}") for cell in row]
    return names, titles, values
