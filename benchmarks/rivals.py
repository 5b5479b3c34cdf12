"""`make bench-rivals`: attnfun beside what one would take instead, and growth. Writes tables into docs/performance.md.

    python benchmarks/rivals.py [--size quick] [--jobs 2] [--output PAGE]

The page's tables are written between marks, its pictures beside it; what stands outside of the marks stays. Results lie
in build/rivals: a run that was stopped goes on, and what has not changed is not run again. Times are those of the
processor, so several jobs do not spoil them.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import contest
import growth
from attnfun.lab.studies.drawing import NETWORKS, labelled, legend_below, panels
from attnfun.lab.studies.runner import reproduce
from attnfun.lab.studies.study import Row, Rows
from attnfun.lab.studies.tables import median
from bench import asked, cell, replaced

ROOT = Path(__file__).parents[1]
OURS, LOOSE = "attnfun 1e-6", "attnfun 1e-3"
MARKS = ("o", "s", "^", "v", "D", "P", "X", "*")
SUITES = {"README": "of the README", "6+ variables": "of six and more variables"}
RIVALS = [way for way in contest.SEES if not way.startswith("attnfun")]


def grid(header: Sequence[str], lines: Sequence[Sequence[Any]], words: int = 1) -> list[str]:
    """A table of Markdown; columns after the first `words` hold numbers."""
    ruler = ["---"] * words + ["---:"] * (len(header) - words)
    return [f"| {' | '.join(map(cell, line))} |" for line in (header, ruler, *lines)]


def short(number: float | None) -> float | None:
    """Three digits; whole numbers from a hundred on."""
    digits = None if number is None else float(f"{number:.3g}")
    return digits if digits is None or digits < 100 else int(digits)


# ---------------------------------------------------------------- the contest


def of_ways(rows: Rows) -> list[str]:
    """A row a way: medians over the targets, and how many it computes within 1e-3 and 1e-6 of their range."""
    lines = []
    for way, here in rows.by("way"):
        done = here.known("worst")
        within = [sum(row["worst"] <= eps for row in done) for eps in (1e-3, 1e-6)]
        middles = [short(done.median(column)) for column in ("build", "numbers", "fresh", "worst", "time")]
        lines.append([way, here[0]["sees"], len(here), *middles, short(max(done.of("worst"))), *within])
    header = ["way", "sees", "targets", "seconds to build", "numbers stored", "error, fresh", "error, searched"]
    return grid([*header, "ns a point", "worst of all", "within 1e-3", "within 1e-6"], lines, 2)


def better(rows: Rows) -> list[str]:
    """A row a rival: on how many of its targets it is better than attnfun, in what."""
    lines = []
    ours, loose = ({row["target"]: row for row in rows.where(way=way)} for way in (OURS, LOOSE))
    for way in RIVALS:
        here = rows.where(way=way).known("worst")
        pairs = [(row, ours[row["target"]], loose[row["target"]]) for row in here if row["target"] in ours]
        counts = [
            sum(less(row, one, column) for row, one, _ in pairs) for column in ("worst", "build", "time", "numbers")
        ]
        at_all = [row["target"] for row, one, _ in pairs if all(less(row, one, c) for c in ("worst", "build", "time"))]
        counts.insert(1, sum(less(row, one, "worst") for row, _, one in pairs))
        lines.append([way, len(pairs), *counts, ", ".join(at_all[:6]) + (" …" if len(at_all) > 6 else "") or "–"])
    header = ["rival", "targets", "smaller error than at 1e-6", "than at 1e-3", "built sooner", "faster a point"]
    return grid([*header, "fewer numbers", "smaller error, sooner and faster on"], lines)


def less(row: Row, other: Row, column: str) -> bool:
    """By more than one in a hundred: the same weights err alike but for rounding."""
    return other[column] is None or row[column] < 0.99 * other[column]


def every(rows: Rows, column: str) -> list[str]:
    """A row a target, a column a way."""
    ways = rows.distinct("way")
    lines = []
    for target, here in rows.by("target"):
        values = {row["way"]: row[column] for row in here}
        lines.append([f"{target} ({here[0]['variables']})", *(short(values.get(way)) for way in ways)])
    return grid(["target (variables)", *ways], lines)


def contest_lines(rows: Rows) -> Iterator[str]:
    suites = ", ".join(f"{len(here.distinct('target'))} {SUITES.get(suite, suite)}" for suite, here in rows.by("suite"))
    head = f"{len(rows.distinct('target'))} targets: {suites}. Medians, but for the last three columns."
    yield f"{head} Errors are parts of a target's range."
    yield from (
        "",
        *of_ways(rows),
        "",
        "![Every target and every way: error against seconds, numbers, time](rivals.png)",
    )
    yield from ("", "### Where a rival is better", "")
    yield from (
        "On how many targets, by more than one in a hundred; the names are of those where it is so in all three.",
        "",
    )
    yield from better(rows)
    for row in rows.that(lambda row: row["note"] is not None):
        yield f"- {row['target']}, {row['way']}: {row['note']}"
    heads = {"worst": "Largest error that the search finds", "build": "Seconds to build", "time": "Nanoseconds a point"}
    for column, head in heads.items():
        yield from ("", f"### {head}", "", *every(rows, column))


def draw(table: Any) -> Any:
    figure, axes = panels(3, width=4.6, height=4.6)
    rows = Rows(table).known("worst").that(lambda row: row["worst"] > 0)
    columns = {"build": "seconds to build", "numbers": "numbers stored", "time": "nanoseconds a point"}
    for ax, (column, label) in zip(axes, columns.items()):
        for k, (way, here) in enumerate(rows.by("way")):
            look = {
                "color": NETWORKS[k % len(NETWORKS)],
                "marker": MARKS[(k + k // len(MARKS)) % len(MARKS)],
                "ls": "none",
            }
            errors = [max(row["worst"], 1e-16) for row in here]
            ax.plot([value or None for value in here.of(column)], errors, ms=3, alpha=0.35, **look)
            ax.plot([here.median(column) or None], [median(errors)], ms=9, mec="k", label=way, **look)
        labelled(ax, label, "", label, "largest error found / range", log="xy", legend=None)
    legend_below(figure, axes[0], 6)
    return figure


# ---------------------------------------------------------------- growth


def growth_lines(tables: dict[str, Rows]) -> Iterator[str]:
    for axis, rows in tables.items():
        along, each, _ = growth.AXES[axis]
        yield from (f"### {along[0].upper()}{along[1:]}", "", f"![{along}](growth-{axis}.png)", "")
        lines = []
        for family, here in rows.by("family"):
            for row in here:
                note = (row["note"] or "")[:100]
                lines.append([family, *(short(row[column]) for column in ("at", "keys", "build", "time")), note])
        yield from (*grid(["request", along, "keys", "seconds to build", f"ns {each}", ""], lines), "")


# ---------------------------------------------------------------- the page


def write(page: Path, tables: Mapping[str, Rows]) -> None:
    """The tables, between their marks."""
    grown = {axis: tables[name] for axis in growth.AXES if (name := f"growth-{axis}") in tables}
    text = replaced(page.read_text("utf-8"), "rivals", list(contest_lines(tables["rivals"])))
    page.write_text(replaced(text, "growth", list(growth_lines(grown))), "utf-8")


def main() -> int:
    options = asked(
        __doc__,
        size={"default": "full", "help": "tiny, quick or full"},
        jobs={"type": int, "default": 1, "help": "worker processes"},
        out={"type": Path, "default": ROOT / "build" / "rivals", "help": "where results are kept"},
    )
    studies = [contest.study(draw), *map(growth.study, growth.AXES)]

    def say(news: Any) -> None:
        print(news, file=sys.stderr, flush=True)

    outcomes = reproduce(studies, options.size, options.out, resume=True, jobs=options.jobs, progress=say)
    for outcome in outcomes:
        words = outcome.verdict.words if outcome.verdict else "; ".join(outcome.failures)
        print(f"{outcome.name}: {outcome.status}. {words}")
    if all(outcome.verdict for outcome in outcomes):
        page = options.output or ROOT / "docs" / "performance.md"
        write(page, {one.name: Rows(json.loads((one.folder / "table.json").read_text())) for one in outcomes})
        for one in outcomes:
            shutil.copy(one.folder / "figure.png", page.parent / f"{one.name}.png")
    return 0 if all(outcome.status == "holds" for outcome in outcomes) else 1


if __name__ == "__main__":  # under its own name, which workers can import
    from rivals import main as run

    sys.exit(run())
