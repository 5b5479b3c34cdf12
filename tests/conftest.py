"""Property tests draw the same examples in every run: a failure is a change of the code, not of the dice.

Linear algebra has one thread: the workers of a run share the cores, and idle threads of a pool spin. The variables are
read when NumPy and torch are first imported, so they come before any other import.
"""

from __future__ import annotations

import gc
import os

for _pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_pool, "1")

from collections import defaultdict  # noqa: E402

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


def pytest_collection_finish() -> None:
    """What was imported and collected lives until the end: the garbage collector need not walk it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the seeds of a test the first quarter is quick, the rest is slow."""
    seeded: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if "seed" in getattr(getattr(item, "callspec", None), "params", ()):
            seeded[item.nodeid.partition("[")[0]].append(item)
    for cases in seeded.values():
        seeds = sorted({item.callspec.params["seed"] for item in cases})  # type: ignore[attr-defined]
        quick = seeds[: -(-len(seeds) // 4)]
        for item in cases:
            if item.callspec.params["seed"] not in quick:  # type: ignore[attr-defined]
                item.add_marker(pytest.mark.slow)
