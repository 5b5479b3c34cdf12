"""`make bench`: the table of what the project must show, measured in one run.

Sizes and ratios are the result; seconds depend on the machine and are printed for orientation only.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import attnfun as af

FRANKE = (
    "0.75*exp(-(9*x-2)**2/4-(9*y-2)**2/4)+0.75*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    "+0.5*exp(-(9*x-7)**2/4-(9*y-3)**2/4)-0.2*exp(-(9*x-4)**2-(9*y-7)**2)"
)


@dataclass(frozen=True)
class Case:
    name: str
    target: str
    domain: str
    eps: float
    options: dict[str, Any] = field(default_factory=dict)
    most_keys: int | None = None
    most_slack: float | None = None


CASES = (
    Case("sum2", "sin(3*x)+cos(2*y)*exp(x*y)", "x=-1:1;y=-1:1", 1e-6, {"method": "bernstein"}, 250, 1.6),
    Case("seed2d", "sin(x)+cos(y)", "x=-3:3;y=-3:3", 0.05, {"method": "partition"}, None, 1.6),
    Case("sin3x", "sin(3*x)", "x=-1:1", 1e-9, {}, 20, 1.3),
    Case("franke", FRANKE, "x=0:1;y=0:1", 1e-6, {}, 1000, 1.6),
    Case("three", "sin(x)+y*cos(z)", "x=-1:1;y=-1:1;z=-1:1", 1e-6, {}, 1500, 2.0),
    Case("million", "sin(x)+cos(y)", "x=-3:3;y=-3:3", 0.0062, {"method": "partition"}),
    Case("spike", "exp(-((x-0.123456)*1e4)**2)", "x=-1:1", 0.1),
)


def measure(case: Case) -> dict[str, Any]:
    """Compile, save, verify, attack with random points; a refusal is a result too."""
    row: dict[str, Any] = {
        "name": case.name,
        "eps": case.eps,
        "keys_allowed": case.most_keys,
        "slack_allowed": case.most_slack,
    }
    start = time.perf_counter()
    try:
        net = af.compile(case.target, domain=case.domain, eps=case.eps, **case.options)
    except af.AttnfunError as error:
        return row | {"status": type(error).__name__, "reason": str(error), "seconds": time.perf_counter() - start}
    row["seconds"] = time.perf_counter() - start
    low, high = net.certificate.error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.safetensors"
        net.save(path)
        start = time.perf_counter()
        again = af.verify(path)
        row |= {
            "verify_seconds": time.perf_counter() - start,
            "verified": str(again.status),
            "file_bytes": path.stat().st_size,
        }
    box_low, box_high = net.network.box
    X = np.random.default_rng(1).uniform(box_low, box_high, (20_000, len(box_low)))
    start = time.perf_counter()
    values = np.asarray(net(X)).reshape(len(X), -1)
    row["points_per_second"] = len(X) / (time.perf_counter() - start)
    seen = float(np.abs(values - net.target.values(X)).max())
    return row | {
        "status": str(net.certificate.status),
        "method": net.certificate.construction,
        "proof": net.certificate.method,
        "keys": net.cost.keys,
        "parameters": net.cost.parameters,
        "bound": high,
        "low": low,
        "slack": net.certificate.slack,
        "sampled": seen,
        "sound": seen <= high,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of the cases to run")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of a table")
    options = parser.parse_args()
    rows = []
    screen = Console(stderr=True)
    for case in CASES:
        if not options.only or case.name in options.only:
            with screen.status(case.name):
                rows.append(measure(case))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if options.json:
        print(json.dumps({"rows": rows, "peak_gib": memory}, indent=2))
    else:
        show(rows, memory)
    return 0 if all(row.get("sound", True) for row in rows) else 1


def show(rows: list[dict[str, Any]], memory: float) -> None:
    columns = ("name", "status", "method", "proof", "keys", "parameters", "eps", "bound", "low", "slack")
    times = ("seconds", "verify_seconds", "points_per_second")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (*columns, *times):
        table.add_column(column.replace("_", " "), justify="left" if column in columns[:4] else "right")
    for row in rows:
        cells = [cell(row.get(column)) for column in (*columns, *times)]
        cells[4] += limit(row.get("keys"), row["keys_allowed"])
        cells[9] += limit(row.get("slack"), row["slack_allowed"])
        table.add_row(*cells)
    screen = Console(width=None if sys.stdout.isatty() else 170)
    screen.print(table)
    for row in rows:
        if "reason" in row:
            screen.print(f"{row['name']}: {row['reason']}", style="dim", markup=False)
    screen.print(f"peak memory of the whole run {memory:.2f} GiB")


def limit(value: float | None, allowed: float | None) -> str:
    if value is None or allowed is None:
        return ""
    return f" [green]≤ {allowed:g}[/]" if value <= allowed else f" [red]> {allowed:g}[/]"


def cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
