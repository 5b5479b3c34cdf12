"""What commands of networks do besides calling a verb. Heavy imports stay inside.

Files of any kind: verify, show, eval, export. A front of one kind's verb stands in the folder of the kind.
"""

import csv
import inspect
import io
import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnfun.cli.arguments import read_point, read_points
from attnfun.cli.derive import Answer
from attnfun.cli.records import certificate_record, head_rows, model_record, step_rows
from attnfun.cli.render import VERDICT, Grid, Whole
from attnfun.errors import InvalidRequest, require
from attnfun.files import write_whole


def verified(file: str, target: list[str] | None = None, progress: Any = None, **rest: Any) -> Answer:
    """The verdict about a file, with an exit code of its own."""
    from attnfun import verbs

    wanted = (target[0] if len(target) == 1 else target) if target else None
    start = time.perf_counter()
    found = verbs.verify(file, wanted, progress=progress, **rest)
    record = {"file": file, **certificate_record(found), "seconds": round(time.perf_counter() - start, 3)}
    code = VERDICT[str(record["status"])]
    why = " ".join(str(record.get("reason") or getattr(found.status, "meaning", "")).split())
    notes = [f"attnfun: {record['status']}: {file}: {why}"] if code else []
    return Answer(record, notes=notes, code=code)


def shown(file: str) -> Answer:
    """What is in a file; nothing is proved."""
    from attnfun import verbs

    net: Any = verbs.load(file)
    record = {**model_record(net), "file": file, "hash": net.hash, "explanation": net.explain()}
    for name, rows in (("head_list", head_rows(net.weights)), ("steps", step_rows(net))):
        record |= {name: rows} if rows else {}
    return Answer(record, net, code=0)


def evaluated(
    file: str,
    points: str | None = None,
    at: list[str] | None = None,
    outside: str = "raise",
    threads: int = 1,
    compare: bool = False,
    table: bool | None = None,
    output: str | None = None,
) -> Answer:
    """A network's values at points, as CSV or as a table."""
    require((points is None) != (not at), "give the points either as --at x=0.3,y=1 or as one CSV or JSON file")
    import numpy as np

    from attnfun import verbs

    net: Any = verbs.load(file)
    taken = inspect.signature(net.target.encode).parameters
    kind = net.target.kind
    require(outside == "raise" or "outside" in taken, f"--outside {outside}: inputs of the kind {kind} are never cut")
    options: dict[str, Any] = {"threads": threads} | ({"outside": outside} if outside != "raise" else {})
    record: dict[str, Any] = {"status": str(net.certificate.status), "verified": net.certificate.verified}
    if points and points.endswith(".json"):
        inputs, names, X = _arguments(points, taken), [], None
        values = np.asarray(net(*inputs, **options), dtype=np.float64)
        shape, outputs = values.shape, []
    else:
        names, outputs = net.target.columns(net.weights)
        rows = read_points(points, names) if points else [read_point(text, names) for text in at or ()]
        X = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
        inputs = net.target.of_columns(X)
        values, shape = np.asarray(net(*inputs, **options), dtype=np.float64), (len(X), len(outputs))
        record |= {"inputs": names, "outputs": outputs, "points": X}
    found = {"values": values.reshape(shape)}
    if compare:
        found["target_values"] = np.asarray(net.target.exact(*inputs), dtype=np.float64).reshape(shape)
        found["errors"] = np.abs(found["values"] - found["target_values"])
    low, high = net.certificate.error
    record |= {"error": high, "error_low": low}
    record |= {name: one[:, 0] if len(outputs) == 1 else one for name, one in found.items()}
    width = math.prod(shape[1:])
    flat = [one.reshape(-1, width) if width else np.zeros((0, 0)) for one in found.values()]
    outputs = outputs or ([f"output{k + 1}" for k in range(width)] if width > 1 else ["output"])
    columns = [*names, *outputs]
    if compare:
        columns += [f"target {name}" for name in outputs] + [f"|error {name}|" for name in outputs]
    data = np.concatenate(flat if X is None else [X, *flat], axis=1)
    if not output and (sys.stdout.isatty() if table is None else table):
        return Answer(record, parts=[Grid(columns, [[Whole(f"{v:.12g}") for v in line] for line in data])], code=0)
    text = as_csv(columns, data)
    if output:
        write_whole(output, text.encode())
    return Answer(record, text="" if output else text, code=0)


def _arguments(path: str, taken: Mapping[str, inspect.Parameter]) -> list[Any]:
    """The arguments of a call from a JSON list of them, as arrays."""
    import numpy as np

    from attnfun.files import read_text

    try:
        given = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path}: not JSON ({error})") from None
    require(isinstance(given, list) and given, f"{path}: a list of a call's arguments is needed, as [[[0.1, 0.2]]]")
    needed = [name for name, one in list(taken.items())[1:] if one.default is one.empty]
    some = any(one.kind is one.VAR_POSITIONAL for one in taken.values())
    require(some or len(given) == len(needed), f"{path}: {len(given)} arguments; {', '.join(needed)} are needed")
    try:
        arrays = [np.array(one) for one in given]
    except ValueError:
        raise InvalidRequest(f"{path}: the rows of an argument are not equally long") from None
    require(all(array.dtype.kind in "if" for array in arrays), f"{path}: arguments are numbers, or lists of numbers")
    return arrays


def as_csv(columns: Sequence[str], rows: Iterable[Iterable[float]]) -> str:
    """Numbers with all their digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[repr(float(v)) for v in row] for row in rows])
    return buffer.getvalue()


def exported(file: str, output: str, to: str = "torch", dtype: str | None = None) -> Answer:
    """The network for another runtime, loaded back and compared."""
    from attnfun import verbs
    from attnfun.export import export

    report = export(verbs.load(file), output, to=to, dtype=dtype)
    return Answer({"status": "exported", "file": file, "output": output, **report})
