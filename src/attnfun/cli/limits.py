"""Limits and finite relations: what their commands do besides calling a verb."""

from collections.abc import Sequence
from typing import Any

from attnfun.cli.derive import Answer
from attnfun.cli.render import Grid, Part, literal, number, viewed
from attnfun.errors import InvalidRequest

_MARKS = {"impossible": "[red]✗[/]", "constructed": "[green]●[/]", "unknown": "[dim]·[/]"}


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
