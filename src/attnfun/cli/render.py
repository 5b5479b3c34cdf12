"""What the user sees: tables and JSON on stdout, progress and failures on stderr.

**Views.** Records as pages, by sentences with gaps: what a `commands.toml` says under `view`.

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

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from attnfun.errors import AttnfunError, Infeasible, NoUtility, Refuted, how_to_install

EXIT = dict.fromkeys(("proved", "conditional", "bounded", "sampled", "stored"), 0)
EXIT |= {"error": 1, "invalid": 2, "infeasible": 3, "refuted": 4, "undecided": 5}
VERDICT = EXIT | {"bounded": 5, "sampled": 5, "stored": 5}
"""Exit codes of `verify`, which is asked whether eps is met: a bound without an eps and a measurement do not say so."""
STYLE = {"proved": "bold green", "conditional": "green"}
STYLE |= dict.fromkeys(("bounded", "sampled", "undecided", "stored"), "yellow")


def failure(error: BaseException) -> dict[str, Any]:
    """Any exception as a record: status, reason, and nearest where one is known."""
    status, reason, more = "invalid", " ".join(str(error).split()), dict[str, Any]()
    if isinstance(error, Infeasible):
        status, witness = "infeasible", getattr(error, "witness", None)
        found = None if witness is None else witness.record() if isinstance(error, NoUtility) else vars(witness)
        more = {"nearest": error.nearest, "witness": found and dict(found)}
    elif isinstance(error, Refuted):
        status = "refuted"
    elif hasattr(error, "format_message"):  # the option parser's own errors
        reason = " ".join(str(error.format_message()).split())  # empty where the help was shown instead
        reason = reason or "a command is needed; the help lists them"
    elif isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError | PermissionError):
        reason = f"{error.filename!r}: {(error.strerror or reason).lower()}"
    elif isinstance(error, ModuleNotFoundError):
        advice = how_to_install((error.name or "").split(".")[0])
        reason = f"this needs the package {error.name!r}, which is not installed; install it with: {advice}"
    elif isinstance(error, Interrupted | KeyboardInterrupt):
        status, reason = "error", reason or "interrupted"
    elif isinstance(error, MemoryError):
        status, reason = "infeasible", "not enough memory for this request"
    elif not isinstance(error, AttnfunError | OSError):
        status, fault = "error", f"{type(error).__name__}: {reason} (ATTNFUN_DEBUG=1 shows where)"
        reason = f"a fault in attnfun: {fault}"
    return {"status": status, "reason": reason} | {name: one for name, one in more.items() if one}


class Interrupted(Exception):
    """Ctrl-C, with the sentence that says how to go on, where something was kept."""

    def __init__(self, how: str | None = None) -> None:
        super().__init__("interrupted" + (f"; {how}" if how else ""))


def fail(record: Mapping[str, Any], json_wanted: bool) -> int:
    """Report a failure record and return its exit code."""
    nearest = record.get("nearest")
    tail = f" (nearest: {', '.join(f'{k}={_plain(v)}' for k, v in nearest.items())})" if nearest else ""
    print(f"attnfun: {record['status']}: {record['reason']}{tail}", file=sys.stderr)
    if json_wanted:
        print_json(record)
    return EXIT.get(str(record["status"]), 1)


def print_json(record: Mapping[str, Any]) -> None:
    """One JSON object on stdout. JSON has no infinity and no NaN: they become null."""
    print(json.dumps(clean(record), indent=2, ensure_ascii=False))


def clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(v) for v in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return str(getattr(value, "value", value))
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return clean(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) else str(value)


def _plain(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def number(value: Any, digits: int = 3) -> str:
    """A number for a table: 1,024 · 6.61e-07 · – where there is none."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def console(stderr: bool = False) -> Any:
    from rich.console import Console

    screen = Console(stderr=stderr, highlight=False, emoji=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:  # a file or a pipe: room for whole table rows
        screen.width = 140
    return screen


def status_text(status: str) -> str:
    if status == "stored":
        return f"[{STYLE[status]}]as stored, not verified[/]"
    return f"[{STYLE.get(status, 'bold red')}]{status}[/]"


class Whole(str):
    """What is never folded: a number that is written out, at the right of its column, or the path of a file."""


@dataclass(frozen=True)
class Grid:
    """A table: names of columns, and rows of values. Numbers are shown by `number`; texts are ours, with markup."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""


Part = str | tuple[str, Any] | Grid
"""What a page is made of: a paragraph; a fact with its name, left out where it is None; a table. Texts hold markup."""


def page(parts: Iterable[Part]) -> None:
    """Print the parts on stdout, facts that follow each other as one table. Nothing is cut, however narrow it is."""
    screen, facts = console(), []
    for part in [*parts, ""]:
        if isinstance(part, tuple):
            facts += [part] if part[1] is not None else []
            continue
        if facts:
            screen.print(_facts(facts, screen.width))
            facts = []
        if isinstance(part, Grid):
            _print_grid(screen, part)
        elif part:
            screen.print(part, soft_wrap=isinstance(part, Whole))


def _facts(rows: Sequence[tuple[str, Any]], width: int) -> Any:
    """Names beside their values, or above them on a narrow screen."""
    from rich import box
    from rich.table import Table

    beside = width >= 60
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    for style in ("dim", "") if beside else ("",):
        table.add_column(style=style, no_wrap=style == "dim", overflow="fold")
    for name, value in rows:
        told = shown(value)
        table.add_row(*((name, told) if beside else (f"[dim]{name}[/]\n{told}" if name else told,)))
    return table


def _print_grid(screen: Any, grid: Grid) -> None:
    """As few tables as the width allows, the first column in each: texts are folded, and no number is ever cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [[shown(value) for value in row] for row in grid.rows]
    words = [any(isinstance(one, str) and not isinstance(one, Whole) for one in column) for column in zip(*grid.rows)]
    long = [max(Text.from_markup(one).cell_len for one in column) for column in zip(grid.columns, *cells, strict=True)]
    least = [min(n, max(8, screen.width // 4)) if text else n for n, text in zip(long, words, strict=True)]
    groups: list[list[int]] = [[0]]
    for k in range(1, len(grid.columns)):
        if sum(least[j] + 2 for j in (*groups[-1], k)) > screen.width and len(groups[-1]) > 1:
            groups.append([0])
        groups[-1].append(k)
    for places in groups:
        title = grid.title if places is groups[0] else None
        table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
        table.pad_edge, table.collapse_padding = False, True
        for k in places:
            side = "left" if words[k] else "right"
            table.add_column(grid.columns[k], justify=side, overflow="fold", no_wrap=not words[k])  # type: ignore[arg-type]
        for row in cells:
            table.add_row(*(row[k] for k in places))
        screen.print(table)


def shown(value: Any) -> str:
    """A value in a cell: texts are markup, everything else is written out."""
    return value if isinstance(value, str) else literal(number(value))


def literal(text: str) -> str:
    """Text that is shown as it is: brackets in an expression are not markup, and no character of a file moves the
    cursor or changes colours.
    """
    from rich.markup import escape

    return str(escape("".join(c if c.isprintable() or c == "\n" else "�" for c in text)))


@contextmanager
def progress_bar(label: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A bar on stderr while the block runs, gone afterwards, silent when stderr is no terminal.

    The callback takes a sentence, a fraction in [0, 1], or both; `step=True` moves a counted bar on by one.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    counted = () if total is None else (MofNCompleteColumn(),)
    bar = (BarColumn(bar_width=30), *counted, TimeElapsedColumn())
    columns = (SpinnerColumn(), *bar, TextColumn("{task.description}"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(literal(shortened(label, 70)), total=total)

        def report(*news: Any, step: bool = False) -> None:
            for item in news:
                if isinstance(item, str):
                    progress.update(task, description=literal(shortened(f"{label}: {item}", 70)))
                elif isinstance(item, int | float) and math.isfinite(item) and total is None:
                    progress.update(task, total=1.0, completed=max(0.0, min(1.0, float(item))))
            if step:
                progress.advance(task)

        yield report


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


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
        if how in ("at most", "at least"):
            from attnfun.language.numbers import at_least, at_most

            return (at_most if how == "at most" else at_least)(float(value))
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
