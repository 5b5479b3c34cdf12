"""`make float32`: the shipped suites built for float32: how many are proved, how many measure well in torch.

Two figures. *proved*: the target compiled with dtype="float32" at 1e-4 of its range, with its certificate. *measured*:
the best of the networks asked for at 1e-4, 3e-5 and 1e-5 of the range, whether proved or not, run by torch in float32
at random points of the box that are float32 numbers, and compared with the expression at those points in float64. The
second is a measurement and no bound; it stops at the first network that is within 1e-5.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import attnfun as af
from attnfun.cli.suite import read_suite, select
from attnfun.kinds.function.view import Approximant

PROVED_AT = 1e-4
MEASURED_WITHIN = 1e-5
ASKED = (1e-4, 3e-5, 1e-5)
SUITES = ("classic", "feynman", "genz")


def measured(net: Approximant, points: int) -> float:
    """The largest error of `to_torch()` in float32 at random float32 points of the box."""
    import torch

    torch.set_num_threads(1)
    box = net.target.box
    X = np.random.default_rng(1).uniform(box.low_array, box.high_array, (points, box.dim)).astype(np.float32)
    low, high = box.low_array.astype(np.float32), box.high_array.astype(np.float32)
    low = np.where(low < box.low_array, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > box.high_array, np.nextafter(high, np.float32(-np.inf)), high)
    X = np.clip(X, low, high)
    with torch.no_grad():
        found = net.to_torch("float32")(torch.tensor(X)).numpy().astype(np.float64).reshape(points, -1)
    truth = np.asarray(net.target.values(X.astype(np.float64))).reshape(points, -1)
    return float(np.abs(found - truth).max())


def row_of(case: dict[str, str], points: int) -> dict[str, Any]:
    row: dict[str, Any] = {"suite": case["suite"], "name": case["name"], "status": "", "bound": None, "measured": None}
    start = time.perf_counter()
    for eps in ASKED:
        try:
            net = af.compile(
                case["formula"], domain=case["domain"], eps=eps, relative=True, dtype="float32", accept="sampled"
            )
        except af.AttnfunError as error:
            row["status"] = row["status"] or type(error).__name__
            row.setdefault("reason", str(error))
            continue
        record = net.certificate
        assert record.eps is not None
        whole = record.eps / eps
        error = measured(net, points) / whole
        if record.status is af.Status.PROVED and error * whole > record.error[1]:
            row["unsound"] = True
        if eps == PROVED_AT:
            row |= {"status": str(record.status), "keys": net.cost.keys, "seconds": time.perf_counter() - start}
            row["bound"] = record.error[1] / whole if record.status is af.Status.PROVED else None
            if record.reason:
                row["reason"] = record.reason
        if row["measured"] is None or error < row["measured"]:
            row |= {"measured": error, "measured_at": eps}
        if error <= MEASURED_WITHIN:
            break
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names or patterns joined by commas, or a count of rows spread evenly")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--points", type=int, default=20_000, help="random points a target")
    parser.add_argument("--output", type=Path, help="write the table as Markdown")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    options = parser.parse_args()
    cases = select([case for name in SUITES for case in read_suite(name)], options.only)
    screen = Console(stderr=True)
    rows = []
    with ProcessPoolExecutor(options.jobs) as pool, screen.status("") as status:
        for row in pool.map(row_of, cases, [options.points] * len(cases)):
            rows.append(row)
            status.update(f"{len(rows)} of {len(cases)}, {row['name']}")
    if options.output:
        options.output.write_text("\n".join(markdown(rows)) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows)
    return 1 if any(row.get("unsound") for row in rows) else 0


def figures(rows: list[dict[str, Any]]) -> list[str]:
    proved = sum(row["bound"] is not None for row in rows)
    within = sum(row["measured"] is not None and row["measured"] <= MEASURED_WITHIN for row in rows)
    return [
        f"{proved} of {len(rows)} proved at {PROVED_AT:g} of the range in float32",
        f"{within} of {len(rows)} within {MEASURED_WITHIN:g} of the range as measured in torch float32",
    ]


def cell(value: Any) -> str:
    return "–" if value is None else f"{value:.2g}" if isinstance(value, float) else str(value)


COLUMNS = ("suite", "name", "status", "bound", "keys", "measured", "measured_at")


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        table.add_column(column.replace("_", " "), justify="left" if column in COLUMNS[:3] else "right")
    for row in rows:
        table.add_row(*(cell(row.get(column)) for column in COLUMNS))
    screen = Console(width=None if sys.stdout.isatty() else 140)
    screen.print(table)
    for row in rows:
        if row["bound"] is None:
            screen.print(f"{row['name']}: {row.get('reason', '')[:300]}", style="dim", markup=False)
    for line in figures(rows):
        screen.print(line)


def markdown(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["# The suites in float32", "", *(f"* {line}." for line in figures(rows)), ""]
    lines.append("Bounds and errors are fractions of the range; *measured at* is the ε asked for of the one measured.")
    lines += ["", "| suite | target | status | proved bound | keys | measured | measured at |"]
    lines.append("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    lines += ["| " + " | ".join(cell(row.get(column)) for column in COLUMNS) + " |" for row in rows]
    missed = [row for row in rows if row["bound"] is None]
    if missed:
        lines += ["", "Not proved:", ""]
        lines += [f"* {row['name']}: {row.get('reason', '')[:400]}" for row in missed]
    return lines


if __name__ == "__main__":
    sys.exit(main())
