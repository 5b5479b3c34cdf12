"""A relevance relation: which documents each query must rank above all others.

| name | what |
| --- | --- |
| m, n | number of queries, of documents |
| row R_i | the set of documents relevant to query i |
| split {R_i, rest} | what a query does to the documents; a trivial one has an empty side and asks for nothing |
| core | the relation between distinct, nontrivial rows and distinct documents: it has the same dimensions |

Two documents that are relevant to the same queries may share a vector, and so may two queries with the same row. An
embedding of the core is therefore one of the relation, and the converse is clear.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest, require
from attnfun.language.brief import Brief
from attnfun.language.domain import Array as Array

Indices = NDArray[np.int64]
_MOST_DOCUMENTS = 50_000_000
"""Of a declared collection: each has a name and a vector."""


@dataclass(frozen=True)
class Relevance(Brief):
    """Queries and documents by id, and for each query the sorted indices of its relevant documents."""

    query_ids: tuple[str, ...]
    document_ids: tuple[str, ...]
    rows: tuple[Indices, ...]

    def __post_init__(self) -> None:
        require(self.query_ids and self.document_ids, "a relevance relation needs at least one query and one document")

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.query_ids), len(self.document_ids)

    @property
    def relevant(self) -> int:
        """The number of relevant pairs."""
        return sum(len(row) for row in self.rows)

    @cached_property
    def nontrivial(self) -> tuple[int, ...]:
        """The queries that ask for something: at least one document is relevant, and at least one is not."""
        return tuple(i for i, row in enumerate(self.rows) if 0 < len(row) < len(self.document_ids))

    @cached_property
    def core(self) -> Core:
        asking = np.array(self.nontrivial, np.int64)
        row_of_query = np.full(len(self.rows), -1, np.int64)
        row_of_query[asking], first = _numbered([self.rows[i] for i in asking])
        queries = asking[first]
        core_of_document, documents = _numbered(transpose([self.rows[i] for i in queries], len(self.document_ids)))
        rows = tuple(np.unique(core_of_document[self.rows[i]]) for i in queries)
        return Core(len(documents), rows, queries, documents, row_of_query, core_of_document)

    @classmethod
    def from_pairs(cls, pairs: Iterable[Sequence[Any]], documents: Iterable[Any] | int | None = None) -> Relevance:
        """(query, document) or (query, document, grade); relevant if grade > 0, judged irrelevant pairs count as known.

        `documents`: the collection, as ids or as a number; a number adds nameless documents that no query wants.
        """
        queries: dict[str, dict[str, bool]] = {}
        seen: dict[str, None] = {}
        for pair in pairs:
            if not 2 <= len(pair) <= 3:
                what = "give (query, document) or (query, document, grade)"
                raise InvalidRequest(f"relevance {tuple(pair)!r:.60}: {what}")
            query, document = str(pair[0]), str(pair[1])
            relevant = len(pair) == 2 or grade(pair[2], f"{query}, {document}") > 0
            row = queries.setdefault(query, {})
            if row.setdefault(document, relevant) != relevant:
                raise InvalidRequest(f"query {query!r:.40}, document {document!r:.40}: judged relevant and irrelevant")
            seen.setdefault(document)
        relevant_only = {query: [d for d, yes in row.items() if yes] for query, row in queries.items()}
        return cls._named(relevant_only, collection(seen, documents))

    @classmethod
    def _named(cls, known: Mapping[str, Iterable[str]], ids: tuple[str, ...]) -> Relevance:
        place = {name: j for j, name in enumerate(ids)}
        rows = [np.array(sorted({place[d] for d in row}), np.int64) for row in known.values()]
        return cls(tuple(known), ids, tuple(rows))

    @classmethod
    def from_matrix(
        cls, matrix: Any, query_ids: Sequence[Any] | None = None, document_ids: Sequence[Any] | None = None
    ) -> Relevance:
        """Queries × documents; an entry above 0 is relevant. NaN is refused."""
        grades = read_matrix(matrix, "relevance")
        m, n = grades.shape
        queries = names(query_ids, m, "q", "query")
        documents = names(document_ids, n, "d", "document")
        return cls(queries, documents, tuple(np.flatnonzero(row > 0).astype(np.int64) for row in grades))

    @classmethod
    def of(cls, relation: Any, documents: Any = None) -> Relevance:
        """Anything that says what is relevant: a Relevance, {query: documents}, pairs, a matrix."""
        if isinstance(relation, Relevance):
            return relation.within(documents)
        if isinstance(relation, Mapping):
            known = {str(q): [str(d) for d in row] for q, row in relation.items()}
            return cls._named(known, collection(dict.fromkeys(d for row in known.values() for d in row), documents))
        if hasattr(relation, "toarray"):
            relation = relation.toarray()
        if not isinstance(relation, np.ndarray):
            if isinstance(relation, (str, bytes)) or not isinstance(relation, Iterable):
                raise InvalidRequest(f"relation={relation!r:.40}: give pairs, a matrix, or documents by query")
            relation = list(relation)
            pairs_like = all(isinstance(p, (tuple, list)) and 2 <= len(p) <= 3 for p in relation)
            if pairs_like and any(isinstance(x, str) for p in relation for x in p[:2]):
                return cls.from_pairs(relation, documents)
        return cls.from_matrix(relation).within(documents)

    def within(self, documents: Iterable[Any] | int | None) -> Relevance:
        """The same relation in a declared collection that holds its documents."""
        if documents is None:
            return self
        ids = collection(self.document_ids, documents)
        place = {name: j for j, name in enumerate(ids)}
        moved = np.array([place[name] for name in self.document_ids], np.int64)
        return Relevance(self.query_ids, ids, tuple(np.sort(moved[row]) for row in self.rows))


@dataclass(frozen=True)
class Core:
    """Distinct nontrivial rows over distinct documents, and where each query and document of the relation went."""

    n: int
    rows: tuple[Indices, ...]
    queries: Indices  # a query of the relation for each row
    documents: Indices  # a document of the relation for each core document
    row_of_query: Indices  # −1 for trivial queries
    core_of_document: Indices

    @property
    def m(self) -> int:
        return len(self.rows)

    @cached_property
    def dense(self) -> NDArray[np.bool_]:
        table = np.zeros((self.m, self.n), np.bool_)
        for i, row in enumerate(self.rows):
            table[i, row] = True
        return table

    @cached_property
    def columns(self) -> tuple[Indices, ...]:
        return transpose(self.rows, self.n)

    def widen(self, queries: Any, documents: Any) -> tuple[Any, Any]:
        """Vectors of the core as vectors of the relation; trivial queries get 0."""
        padded = np.concatenate([queries, np.zeros((1, queries.shape[1]), queries.dtype)])
        return padded[self.row_of_query], documents[self.core_of_document]


def _numbered(lines: Sequence[Indices]) -> tuple[Indices, Indices]:
    """Numbers that are equal for equal lines, as they first appear, and where each number does so."""
    seen: dict[bytes, int] = {}
    numbers = np.array([seen.setdefault(line.tobytes(), len(seen)) for line in lines], np.int64)
    return numbers, np.unique(numbers, return_index=True)[1].astype(np.int64)


def places(order: Indices) -> Indices:
    """Where each element stands in an order."""
    return np.argsort(order)


def transpose(rows: Sequence[Indices], n: int) -> tuple[Indices, ...]:
    """For each document the sorted rows that hold it."""
    lengths = np.array([len(row) for row in rows], np.int64)
    held = np.concatenate(rows) if len(rows) else np.zeros(0, np.int64)
    owner = np.repeat(np.arange(len(rows), dtype=np.int64), lengths)
    order = np.argsort(held, kind="stable")
    return tuple(np.split(owner[order], np.cumsum(np.bincount(held, minlength=n))[:-1]))


def read_matrix(matrix: Any, what: str) -> Any:
    """Numbers in rows and columns, none of them complex, NaN or infinite; whole ones stay what they are."""
    try:
        array = np.asarray(matrix)
        if array.dtype.kind == "c":  # a conversion would drop the imaginary parts
            raise ValueError("complex ones are refused")
        array = array if array.dtype.kind in "biu" else array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"a {what} matrix holds numbers: {error}") from None
    require(array.ndim == 2 and 0 not in array.shape, f"a {what} matrix has rows and columns, not shape {array.shape}")
    require(array.dtype.kind != "f" or np.isfinite(array).all(), f"a {what} matrix has no NaN and no infinities")
    return array


def grade(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidRequest(f"{where}: the grade {str(value)!r:.30} is not a finite number")
    return number


def collection(seen: Iterable[str], documents: Iterable[Any] | int | None) -> tuple[str, ...]:
    """The ids of all documents: those seen first, then the rest of the declared collection."""
    known = tuple(seen)
    if documents is None:
        return known
    if isinstance(documents, (int, np.integer)) and not isinstance(documents, bool):
        if documents < len(known):
            what = f"{len(known):,} documents are named, more than the {documents:,} declared"
            raise InvalidRequest(f"documents={documents}: {what}")
        require(documents <= _MOST_DOCUMENTS, f"documents={documents:.6g}: at most {_MOST_DOCUMENTS:,} can be declared")
        taken = set(known)
        free = (name for name in map("document {}".format, itertools.count(1)) if name not in taken)
        return (*known, *itertools.islice(free, documents - len(known)))
    if isinstance(documents, (str, bool)) or not isinstance(documents, Iterable):
        raise InvalidRequest(f"documents={documents!r:.40}: give their number, or their ids")
    declared = [str(d) for d in documents]
    if (twice := _twice(declared)) is not None:
        raise InvalidRequest(f"the collection lists document {twice!r:.40} twice")
    missing = set(known) - set(declared)
    if missing:
        raise InvalidRequest(f"document {min(missing)!r:.40} is judged but not in the declared collection")
    return tuple(declared)


def names(given: Sequence[Any] | None, count: int, letter: str, what: str) -> tuple[str, ...]:
    if given is None:
        return tuple(f"{letter}{i + 1}" for i in range(count))
    found = tuple(str(name) for name in given)
    require(len(found) == count, f"{len(found)} {what} ids for {count}")
    if (twice := _twice(found)) is not None:
        raise InvalidRequest(f"two {what} ids are {twice!r:.40}")
    return found


def _twice(ids: Sequence[str]) -> str | None:
    """The first id that is there more than once."""
    counts = Counter(ids)
    return next((name for name in ids if counts[name] > 1), None)
