"""Small studies that belong to no paper, to run the runner with; what must vary lies in their units."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Any

from attnfun.lab.studies.drawing import panels
from attnfun.lab.studies.study import HOLDS, REFUTED, Row, Study, Table, Unit, Verdict
from attnfun.lab.studies.tables import Rows


def units(size: Mapping[str, Any]) -> list[Unit]:
    return [{"n": n, **size["extra"]} for n in range(size["units"])]


def run(unit: Unit) -> list[Row]:
    time.sleep(unit.get("sleep", 0.0))
    if unit["n"] == unit.get("raises"):
        raise ValueError("this one\nraises")
    if unit["n"] == unit.get("dies"):
        os._exit(1)
    root = math.sqrt(unit["n"] + 0.1)
    times = {"seconds": time.perf_counter()}
    return [{"n": unit["n"], "root": k * root, "worst": math.nan if k else None, **times} for k in range(2)]


def judge(table: Table) -> Verdict:
    total = sum(Rows(table).of("root"))
    return Verdict(
        HOLDS if total <= 1e6 else REFUTED, "The <roots> are small.", f"They add up to {total:.3f} & no more."
    )


def draw(table: Table) -> Any:
    figure, [ax] = panels()
    ax.plot(Rows(table).of("n"), Rows(table).of("root"))
    return figure


def study(name: str = "made-up", count: int = 6, needs: tuple[str, ...] = (), **extra: Any) -> Study:
    """`count` units of `sleep` seconds; unit `raises` raises, unit `dies` ends its process."""
    size = {"units": count, "extra": extra}
    return Study(
        name=name,
        title="Roots <of> numbers",
        claim="Square roots & their sums are small.",
        source="Nobody 2000.",
        columns={"n": "a number", "root": "k times its root", "worst": "NaN, now and then", "seconds": "a clock"},
        sizes={"tiny": size, "quick": size, "full": {**size, "units": 2 * count}},
        units=units,
        run=run,
        judge=judge,
        draw=draw,
        timings=("seconds",),
        needs=needs,
        group="open-questions",
    )
