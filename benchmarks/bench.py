"""What the benchmarks share: their options, and their rows as they come: Markdown or JSON, on screen and in a file."""

import argparse
import json
import resource
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from attnfun.parts import at_least, at_most

Row = dict[str, Any]
UPPER = ("proved bound", "proved", "e proved", "regret ≤", "TV ≤", "error ≤")
LOWER = ("no such layer below",)
"""Columns of bounds: no digit that is left out makes one of them say more than was proved."""


def asked(doc: str | None, **more: dict[str, Any]) -> argparse.Namespace:
    """The options that every benchmark has, and those of this one."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the table here too")
    parser.add_argument("--section", help="write it between the marks of this name of that page")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    for name, settings in more.items():
        parser.add_argument(f"--{name}", **settings)
    return parser.parse_args()


def cell(value: Any, name: str = "") -> str:
    if value is None:
        return "–"
    if isinstance(value, float) and name in (*UPPER, *LOWER):
        return at_most(value, 3) if name in UPPER else at_least(value, 3)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}" if isinstance(value, float) else str(value)


def table(
    options: argparse.Namespace,
    rows: Iterable[Row],
    columns: Iterable[str] = (),
    before: Callable[[list[Row]], list[str]] = lambda rows: [],
    after: Callable[[list[Row]], list[str]] = lambda rows: [],
) -> int:
    """Print the rows, each when it is there, and write the page; 1 where a row is not `sound`, else 0.

    columns  those that are shown; left out, all of the first row
    before   lines above the table in the file, from all rows; `after`: lines below it, printed too
    """
    names, done, lines = list(columns), [], list[str]()

    def say(line: str) -> None:
        lines.append(line)
        if not options.json:
            print(line, flush=True)

    for row in rows:
        names = names or list(row)
        if not done:
            right = ["---:" if isinstance(row.get(name), int | float) else "---" for name in names]
            say(f"| {' | '.join(names)} |")
            say(f"| {' | '.join(right)} |")
        done.append(row)
        say(f"| {' | '.join(cell(row.get(name), name) for name in names)} |")
    for line in after(done):
        say(line)
    if options.json:
        print(json.dumps({"rows": done, "peak_gib": memory()}, indent=2))
    if options.output and options.section:
        page = replaced(options.output.read_text("utf-8"), options.section, [*before(done), *lines])
        options.output.write_text(page, "utf-8")
    elif options.output:
        options.output.write_text("\n".join([*before(done), *lines]) + "\n", "utf-8")
    return 0 if all(row.get("sound", True) for row in done) else 1


def replaced(page: str, name: str, lines: Sequence[str]) -> str:
    """The page with these lines between the marks of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"the page has no {begin} … {end}")
    return "\n".join([before + begin, "", *lines, "", end + after])


def memory() -> float:
    """GiB, the most of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
