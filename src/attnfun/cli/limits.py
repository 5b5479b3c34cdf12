"""Limits and finite relations: what their commands do besides calling a verb."""

from collections.abc import Sequence
from typing import Any

from attnfun.cli.derive import Answer
from attnfun.cli.records import model_record
from attnfun.cli.render import Grid, Part, Whole, literal, number, status_text, viewed
from attnfun.errors import Infeasible, InvalidRequest, require

_MARKS = {"impossible": "[red]✗[/]", "constructed": "[green]●[/]", "unknown": "[dim]·[/]"}
VARIANTS = ("published", "inclusive", "optimal")


def energies(dim: int, rank: int = 1, bias: float = 0.0, degrees: int = 10) -> Answer:
    """The energies of the first degrees, and what a projection of this rank sees of each."""
    from attnfun import bounds

    if rank < 1 or degrees < 1 or dim > 4096:
        raise InvalidRequest(f"dim={dim}, rank={rank}, degrees={degrees}: dim up to 4,096, the others at least 1")
    found = bounds.energies(dim, bias)
    rows: list[dict[str, Any]] = []
    for degree, low, high, n in list(zip(found.degrees, found.low, found.high, found.counts, strict=True))[:degrees]:
        seen = bounds.seen_harmonics(dim, rank, int(degree))
        energy = {"energy": float(high), "energy_low": float(low)}
        rows.append({"degree": int(degree), **energy, "harmonics": n, "seen": seen})
    rest = max(0.0, 1 - sum(row["energy_low"] for row in rows))
    return Answer({"dim": dim, "rank": rank, "bias": bias, "rows": rows, "rest": rest})


def plan_page(record: dict[str, Any]) -> list[Part]:
    """A plan: its answer, a map of rank × heads a number of layers, and what stands behind them."""
    cells = record["cells"]
    heads = sorted({c["heads"] for c in cells})
    task = "{task}: dimension {dim}, context {context}, eps {eps}"
    parts = [*viewed(record, [["task", task + ", at most {budget} parameters", task], ["answer", "{answer}"]])]
    for layers in sorted({c["layers"] for c in cells}):
        places = {(c["rank"], c["heads"]): c for c in cells if c["layers"] == layers}
        rows = []
        for rank in sorted({rank for rank, _ in places}):
            row = [places.get((rank, h)) for h in heads]
            rows.append([rank, *(_MARKS[c["verdict"]] if c else "" for c in row), _reason(row)])
        name = f"{layers} layer{'s' * (layers > 1)}; heads across: ✗ impossible  ● constructed  · unknown"
        parts.append(Grid(["rank", *map(number, heads), "fewest heads"], rows, name))
    notes = [["constructed", "{constructions}"], ["hypotheses", "{hypotheses}"], ["sources", "{sources}"]]
    return [*parts, *viewed(record, [*notes, ["picture", "{png}"]])]


def _reason(row: Sequence[dict[str, Any] | None]) -> str:
    """What is known of a row: its first construction, or its last bound."""
    cells = [c for c in row if c]
    built = next((c for c in cells if c["verdict"] == "constructed"), None)
    bound = next((c for c in reversed(cells) if c["verdict"] == "impossible"), None)
    shown = built or bound
    return literal(shown["why"]) if shown else ""


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
    import time

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


def embedded(
    file: str,
    documents: Any = None,
    table: Sequence[int] | None = None,
    output: str | None = None,
    check: str | None = None,
    progress: Any = None,
    **rest: Any,
) -> Answer:
    """Both bounds of the dimension and the vectors; or whether the vectors of a file rank the relation exactly."""
    from attnfun.limits.embedding import embed_dim
    from attnfun.limits.embedding.files import check_ending, check_file, read_any

    if check is not None:
        ranking, dimension = check_file(check, read_any(file, documents))
        record: dict[str, Any] = {"file": file, "vectors": check, "status": "proved", "dimension": dimension}
        margin = ranking.margin if ranking.margin < float("inf") else None
        return Answer(record | {"gap": ranking.gap, "margin": margin})
    if output:
        check_ending(output)
    answer = embed_dim(file, documents=documents, table=table, progress=progress, **rest)
    record = {"file": file, **answer.record()} | ({"output": answer.save(output)} if output else {})
    found = record["obstruction"]["documents"]
    more = f" and {len(found) - 8:,} more" if len(found) > 8 else ""
    return Answer(record, said={"interval": _interval(answer.lower, answer.upper), "few": ", ".join(found[:8]) + more})


def ranked(matrix: str, eps: float, progress: Any = None) -> Answer:
    """The rank within eps, from below and from above."""
    from attnfun.limits.score_rank import rank_of

    answer = rank_of(matrix, eps, progress=progress)
    return Answer({"file": matrix, **answer.record()}, answer, said={"interval": _interval(answer.lower, answer.rank)})


def _interval(low: int, high: int) -> str:
    return f"{low}" if low == high else f"between {low} and {high}"


def preferred(
    utility: str | None = None,
    left: list[str] | None = None,
    right: list[str] | None = None,
    eps: float | None = None,
    lexicographic: str | None = None,
    coordinates: int = 2,
    dtype: str = "float32",
    method: str = "auto",
    seed: int = 0,
    progress: Any = None,
) -> Answer:
    """A preorder by its utility, or the lexicographic order of a grid or of the continuum."""
    require((utility is None) != (lexicographic is None), "give --utility EXPR or --lexicographic P, one of them")
    if lexicographic is not None:
        require(not (left or right or eps), "--left, --right and --eps belong to --utility")
        if lexicographic.strip().lower() == "continuum":
            raise _continuum(coordinates, seed, progress)
        return _grid(lexicographic, coordinates, dtype, method)
    require(right, "no keys: give every key variable its interval, as in --right k=0:1")
    from attnfun.limits.preorders.verb import preorder

    report = preorder(utility=utility, right=right, left=left, seed=seed, progress=progress)
    report.require()
    record, said = report.record(), dict[str, Any]()
    said |= {name: finding.text for name, finding in report.findings.items()}
    if eps is not None:
        record["relation"] = model_record(report.relation(eps, progress=progress))
        said["within"] = eps
    return Answer(record, said={**said, "colour": Whole(status_text(report.status))}, code=0)


def _grid(text: str, coordinates: int, dtype: str, method: str) -> Answer:
    """What holds a grid of so many levels, and the network that picks its best key."""
    try:
        levels = int(text)
    except ValueError:
        raise InvalidRequest(f"--lexicographic {text!r}: a whole number of levels, or continuum") from None
    from attnfun.kinds.lexicographic.verb import lexicographic
    from attnfun.limits.grids import grid_limits
    from attnfun.network.network import DTYPES

    limits = grid_limits(dtype, coordinates, levels)
    head = lexicographic(levels, coordinates, dtype=dtype, method=method) if dtype in DTYPES else None
    if not any((limits.fits or {}).values()):
        why = f"{levels:,} levels in {coordinates} coordinates: {dtype} holds {limits.one_number:,} in one number"
        raise Infeasible(why, {"levels": limits.one_number})
    record = {"status": "proved", "method": None, **limits.record()} if head is None else head.record()
    return Answer(record, said={"bits": limits.bits})


def _continuum(coordinates: int, seed: int, progress: Any) -> Exception:
    """The order of the unit cube has no utility: the refusal, with its witness."""
    require(2 <= coordinates <= 8, f"--coordinates {coordinates}: 2 to 8 on the continuum; one coordinate is a utility")
    from attnfun.limits.preorders.verb import preorder

    def lexicographic_order(a: Any, b: Any) -> bool:
        return tuple(a) >= tuple(b)

    box = {f"x{i + 1}": (0, 1) for i in range(coordinates)}
    preorder(lexicographic_order, right=box, seed=seed, net=False, progress=progress).require()
    return AssertionError("the lexicographic order of a cube passed as continuous")
