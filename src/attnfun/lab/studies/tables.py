"""Rows: a table as its study's judge and picture read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attnfun as af

Row = dict[str, Any]
Column = str | Callable[[Row], Any]  # a column's name, or what is computed of a row


class Rows(list[Row]):
    """A list of rows with questions. Comparisons are written so that NaN is a fault."""

    def where(self, **wanted: Any) -> Rows:
        """The rows whose columns have the wanted values; of a tuple any of its items is wanted."""
        kinds = {column: value if isinstance(value, tuple) else (value,) for column, value in wanted.items()}
        return self.that(lambda row: all(row[column] in values for column, values in kinds.items()))

    def that(self, test: Callable[[Row], bool]) -> Rows:
        return Rows(row for row in self if test(row))

    def fails(self, test: Callable[[Row], bool]) -> Rows:
        """The rows for which the test is not seen to hold."""
        return Rows(row for row in self if not test(row))

    def known(self, *columns: str) -> Rows:
        """The rows that have a value in each of these columns."""
        return self.that(lambda row: all(row[column] is not None for column in columns))

    def above(self, small: str, large: str, spread: str = "") -> Rows:
        """The rows in which `small` ≤ `large` is not seen to hold, NaN included; rows without one are left out.

        spread  the column of a standard error, three of which are allowed
        """
        known = self.known(small, large)
        return known.fails(lambda row: row[small] <= row[large] + (3 * row[spread] if spread else 0))

    def lost(self, column: str) -> Rows:
        """The rows that have no finite number from 0 on there."""
        return self.fails(lambda row: 0 <= row[column] < math.inf)

    def of(self, column: Column) -> list[Any]:
        return [row[column] if isinstance(column, str) else column(row) for row in self]

    def distinct(self, column: Column) -> list[Any]:
        """The column's values in the order of first use."""
        return list(dict.fromkeys(self.of(column)))

    def by(self, *columns: Column) -> list[tuple[Any, ...]]:
        """(value, value, …, rows) for every combination of the columns' values, in the order of first use."""
        groups: dict[tuple[Any, ...], Rows] = {}
        for key, row in zip(zip(*(self.of(column) for column in columns), strict=True), self, strict=True):
            groups.setdefault(key, Rows()).append(row)
        return [(*key, rows) for key, rows in groups.items()]

    def sorted(self, column: Column) -> Rows:
        return Rows(row for _, row in sorted(zip(self.of(column), self, strict=True), key=lambda pair: pair[0]))

    def first(self) -> Rows:
        """The first row, if there is one."""
        return Rows(self[:1])

    def last(self) -> Rows:
        return Rows(self[-1:])

    def best(self, column: Column) -> Row:
        """The row with the least value there."""
        values = self.of(column)
        return self[values.index(min(values))]

    def median(self, column: Column) -> float:
        return median(self.of(column))

    def slope(self, x: Column, y: Column) -> float:
        return slope(self.of(x), self.of(y))

    def span(self, column: Column, form: str = ".2g", to: str = " to ") -> str:
        """“least to largest”."""
        values = self.of(column)
        return f"{min(values):{form}}{to}{max(values):{form}}"

    def middle(self, column: Column, form: str = ".2g", to: str = " to ") -> str:
        """“median (least to largest)”."""
        return f"{self.median(column):{form}} ({self.span(column, form, to)})"

    def say(self, text: str, **more: Any) -> list[str]:
        """What the text says of every row: its fields are columns."""
        return [text.format(**row, **more) for row in self]


class Told(float):
    """A number of a row. In a text `{proved:≤2}` is an upper bound of two digits, `{least:≥3}` a lower one of three."""

    def __format__(self, form: str) -> str:
        if form[:1] in ("≤", "≥"):
            return (af.parts.at_most if form[0] == "≤" else af.parts.at_least)(float(self), int(form[1:]))
        return format(float(self), form)


def read(table: Iterable[Row]) -> Rows:
    """The rows of a table, floats as `Told`."""
    return Rows({name: Told(v) if isinstance(v, float) else v for name, v in row.items()} for row in table)


def median(numbers: Iterable[float]) -> float:
    """NaN of nothing, and where one of them is NaN: sorted, it would stand anywhere."""
    found = sorted(numbers)
    if not found or any(math.isnan(number) for number in found):
        return math.nan
    half = len(found) // 2
    return found[half] if len(found) % 2 else (found[half - 1] + found[half]) / 2


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Least-squares slope of log y against log x: the exponent of a power law; NaN where a number is not positive."""
    if len(xs) < 2 or not all(0 < v < math.inf for v in (*xs, *ys)):
        return math.nan
    u, v = [math.log(x) for x in xs], [math.log(y) for y in ys]
    a, b = sum(u) / len(u), sum(v) / len(v)
    spread = sum((x - a) ** 2 for x in u)
    return sum((x - a) * (y - b) for x, y in zip(u, v, strict=True)) / spread if spread else math.nan
