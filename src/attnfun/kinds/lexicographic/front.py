"""`attnfun preorder`: a preorder by its utility, or the lexicographic one, of a grid or of the continuum."""

from typing import Any

from attnfun.cli.derive import Answer
from attnfun.cli.records import model_record
from attnfun.cli.render import Whole, status_text
from attnfun.errors import Infeasible, InvalidRequest, require


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
