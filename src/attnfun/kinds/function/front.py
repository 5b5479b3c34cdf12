"""`attnfun compile`: expressions that are typed, and tables in files; `attnfun interpolation`: by given sizes."""

import time
from collections.abc import Sequence
from typing import Any

from attnfun.cli.arguments import numbers, read_domain
from attnfun.cli.derive import Answer
from attnfun.errors import InvalidRequest, require

VARIANTS = ("published", "inclusive", "optimal")


def compiled(
    target: list[str] | None = None,
    domain: list[str] | None = None,
    table: str | None = None,
    kind: str = "linear",
    progress: Any = None,
    **rest: Any,
) -> Any:
    """The network of the expressions, or of the table in a CSV file."""
    from attnfun.kinds.function.verb import compile

    texts = target or []
    if table is not None:
        require(not texts, "--table takes no expression: the file is the target")
        return compile(read_table_file(table, kind), domain, **rest, progress=progress), {"name": table}
    require(kind == "linear", "--kind says what joins the numbers of a --table; there is none")
    require(texts, 'no expression: write for instance attnfun compile "sin(3*x)" --domain x=-1:1 --eps 1e-6')
    one: Any = texts[0] if len(texts) == 1 else texts
    return compile(one, domain or read_domain(()), **rest, progress=progress), {"name": "; ".join(texts)}


def read_table_file(path: str, kind: str) -> Any:
    """A CSV file with a header: a column for each coordinate, whose names are the variables, and last the value."""
    from attnfun.files import Table
    from attnfun.language.tabulated import table

    found = Table.read(path)
    names = found.header
    require(len(names) > 1, f"{path}: a column for every coordinate and one for the value are needed in its header")
    if any(_is_number(name) for name in names):
        raise InvalidRequest(f"{path}: its first line must name the columns, coordinates first and the value last")
    rows = numbers(found, names)
    require(rows, f"{path}: there are no rows below the header")
    points, values = [row[:-1] for row in rows], [row[-1] for row in rows]
    try:
        return table(points, values, kind=kind, names=names[:-1])
    except InvalidRequest as why:
        raise InvalidRequest(f"{path}: {str(why).removeprefix('table: ')}") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
