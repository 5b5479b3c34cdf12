"""Records as pages, by sentences with gaps: what a `commands.toml` says under `view`.

| entry                                              | is shown as                                                  |
| -------------------------------------------------- | ------------------------------------------------------------ |
| `"a sentence with a {field}"`                      | a paragraph                                                  |
| `["name", "sentence", "other sentence"]`           | a fact: the first sentence whose fields are all there        |
| `{table = "field", title = "", columns = ["key"]}` | a table of the records in that field; `name=key` renames one |

A gap is `{field}`, `{field[inner]}`, or either with a colon and how it is written: digits (`{lower:4}`), `count` (short
however long the number is), `some` (nothing for 0), `log10` (the number of which this is the logarithm), `yes|no`
(words for a truth value), `status` (in its colour), what stands between the entries of a list (`{sizes: × }`), or a
format of Python's. Lists of records in a gap are written line by line, by the sentences under `items`. A sentence with
a field that is missing, None or empty is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attnfun.cli.render import Grid, Part, Whole, literal, number, status_text

Items = Mapping[str, Sequence[str]]


class Nothing(LookupError):
    """A field that has nothing to say."""


class Gap:
    """A value that a sentence asks for."""

    def __init__(self, value: Any, sentences: Sequence[str] = ()) -> None:
        self.value, self.sentences = value, sentences

    def __getitem__(self, key: str) -> Gap:
        return Gap((self.value or {})[int(key) if isinstance(self.value, list) else key])

    def __format__(self, how: str) -> str:
        value = self.value
        if value is None or value in ("", [], {}) or (how == "some" and not value):
            raise Nothing
        if isinstance(value, bool) and "|" in how:
            return how.split("|")[not value]
        if how == "some":
            return number(value)
        if how == "status":
            return status_text(value)
        if how and isinstance(value, (list, tuple)):
            return how.join(map(told, value))
        if how == "count" and value < 10**9:
            return f"{value:,}"
        if how in ("count", "log10"):
            log = math.log10(value) if how == "count" else value
            return f"{10 ** (log % 1):.2f}e{int(log)}" if log >= 9 else f"{round(10**log):,}"
        if self.sentences:
            return "\n".join(filter(None, (filled(self.sentences, one) for one in value)))
        if how:
            return number(value, int(how)) if how.isdigit() else format(value, how)
        return told(value)


def told(value: Any) -> str:
    """Any JSON value in words; "" for none."""
    if isinstance(value, Whole):
        return value
    if isinstance(value, Mapping):
        inside = ((key.replace("_", " "), told(one)) for key, one in value.items())
        return "\n".join(f"{literal(key)}: {text}" for key, text in inside if text)
    if isinstance(value, (list, tuple)):
        between = "\n" if any(isinstance(one, (Mapping, str)) for one in value) else ", "
        return between.join(filter(None, map(told, value)))
    return "" if value is None else literal(number(value))


def filled(sentences: Sequence[str], record: Mapping[str, Any], items: Items | None = None) -> str | None:
    """The first of the sentences whose gaps can all be filled."""
    gaps = {key: Gap(value, (items or {}).get(key, ())) for key, value in record.items()}
    for sentence in sentences:
        try:
            return sentence.format_map(gaps)
        except LookupError:
            continue
    return None


def viewed(record: Mapping[str, Any], view: Iterable[Any], items: Items | None = None) -> Iterator[Part]:
    """The parts of a page of this record."""
    for entry in view:
        if isinstance(entry, str):
            yield filled([entry], record, items) or ""
        elif isinstance(entry, Mapping):
            yield from _table(record, **entry)
        else:
            name = filled(entry[:1], record)
            if name is not None:
                yield name, filled(entry[1:], record, items)


def _table(record: Mapping[str, Any], table: str, columns: Sequence[str], title: str = "") -> Iterator[Part]:
    named = [column.rpartition("=") for column in columns]
    rows = record.get(table) or ()
    shown = {
        (name or gap.partition(":")[0].replace("_", " ")).format_map(record): [_cell(row, gap) for row in rows]
        for name, _, gap in named
        if any(row.get(gap.partition(":")[0]) is not None for row in rows)
    }
    if rows:
        yield Grid(list(shown), list(zip(*shown.values(), strict=True)), filled([title], record) or "")


def _cell(row: Mapping[str, Any], gap: str) -> Any:
    """A text, or a number that is written out."""
    text = filled([f"{{{gap}}}"], row) or "–"
    return text if isinstance(row.get(gap.partition(":")[0]), (str, list, tuple)) else Whole(text)
