"""`attnfun interpolation`: the truncated linear function by given sizes."""

import time
from collections.abc import Sequence
from typing import Any

from attnfun.cli.derive import Answer
from attnfun.errors import require

VARIANTS = ("published", "inclusive", "optimal")


def interpolated(
    low: float = -2.0,
    high: float = 3.0,
    points: Sequence[int] = (8, 16, 32, 64, 128),
    heads: Sequence[int] | None = None,
    variant: str = "all",
    dtype: str = "float64",
    progress: Any = None,
) -> Answer:
    """A table of truncated linear heads by size and variant, and its picture."""
    require(variant in (*VARIANTS, "all"), f"--variant {variant!r}: write {', '.join(VARIANTS)} or all")
    from attnfun.kinds.function.interpolation import Row, interpolation_table

    start = time.perf_counter()
    variants = VARIANTS if variant == "all" else (variant,)

    def news(row: Row) -> None:
        progress(f"{row.variant}, {row.keys} keys")

    rows = interpolation_table(low, high, points, heads=heads, variants=variants, dtype=dtype, progress=news)
    record: dict[str, Any] = {"status": "proved", "low": low, "high": high, "dtype": dtype}
    record |= {"rows": [row.record() for row in rows], "seconds": round(time.perf_counter() - start, 3)}

    def draw(path: str) -> None:
        from attnfun.kinds.function.interpolation import draw_rates

        draw_rates(rows, low, high, path)

    return Answer(record, draw=draw)
