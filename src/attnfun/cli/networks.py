"""What commands of networks do besides calling a verb. Heavy imports stay inside.

Files of any kind: verify, show, eval, export. Sequence: maps that are typed, and maps that ship, one of them or all as
a table. In-context on CSV data: examples, queries, and a class of prompts that fits them.
"""

import csv
import inspect
import io
import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnfun.cli.arguments import numbers, read_domain, read_point, read_points
from attnfun.cli.derive import Answer
from attnfun.cli.records import certificate_record, head_rows, model_record, step_rows
from attnfun.cli.render import VERDICT, Grid, Whole, failure
from attnfun.errors import AttnfunError, InvalidRequest, require


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
    options = {"outside": outside} if outside != "raise" else {}
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
        Path(output).write_text(text, encoding="utf-8")
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


def mapped(
    expressions: list[str] | None = None,
    tokens: int | None = None,
    domain: list[str] | None = None,
    eps: float | None = None,
    rows: bool = False,
    example: str | None = None,
    small: bool = False,
    examples: bool = False,
    progress: Any = None,
    **rest: Any,
) -> Any:
    """The network of the expressions or of an example, or the table of all examples."""
    texts = expressions or []
    if examples:
        require(not (texts or example), "--examples takes no expression and no --example: it makes them all")
        return _table(progress)
    from attnfun.kinds.sequence.examples import example as named
    from attnfun.kinds.sequence.verb import sequence

    if example is not None:
        if texts or rows or domain or tokens is not None:
            raise InvalidRequest(f"--example {example} has its own expressions, tokens and domain")
        own = {} if eps is None else {"eps": eps}
        return sequence(**named(example).request(small) | own, **rest, progress=progress)
    require(not small, "--small goes with --example")
    require(texts, 'no expression: write for instance attnfun sequence "x-max(x)" --tokens 6 --domain x=-1:1')
    if tokens is None or eps is None:
        raise InvalidRequest(f"--{'tokens' if tokens is None else 'eps'} is missing")
    target: Any = [[part.strip() for part in text.split(";")] for text in texts] if rows else texts
    return sequence(target, tokens, domain or read_domain(()), eps, **rest, progress=progress)


def _table(progress: Any) -> Answer:
    """Every example by every construction, at its own size and at its small one."""
    from attnfun.kinds.sequence.build import METHODS
    from attnfun.kinds.sequence.examples import EXAMPLES

    cases = [(one, small, method) for one in EXAMPLES for small in (False, True) for method in METHODS]
    rows = []
    for done, (one, small, method) in enumerate(cases):
        progress(f"{one.name}, {method}", done / len(cases))
        rows.append(_case(one, small, method))
    return Answer({"rows": rows})


def _case(one: Any, small: bool, method: str) -> dict[str, Any]:
    import numpy as np

    from attnfun.kinds.sequence.prove import probes
    from attnfun.kinds.sequence.verb import sequence

    request = one.request(small)
    row = {"example": one.name, "tokens": request["tokens"], "eps": request["eps"], "method": method}
    start = time.perf_counter()
    try:
        net = sequence(**request, method=method)
    except AttnfunError as error:
        return {**row, **failure(error), "seconds": round(time.perf_counter() - start, 3)}
    X = probes(net.target, 1500, np.random.default_rng(1))
    measured = float(np.nanmax(np.abs(net(X) - net.target.values(X))))
    return {**row, **model_record(net, seconds=time.perf_counter() - start), "method": method, "measured": measured}


def solved(
    task: str,
    dim: int | None = None,
    examples: int | None = None,
    data: str | None = None,
    query: str | None = None,
    outside: bool = False,
    progress: Any = None,
    **rest: Any,
) -> Any:
    """The network, and predictions where there are queries."""
    from attnfun import in_context, load

    require(query is None or data is not None, "--query needs --data: a prompt is examples and queries")
    start = time.perf_counter()
    columns, X, y = _examples(data)
    queries = None if query is None else read_points(query, columns)
    if task.endswith(".safetensors"):
        net = load(task)
        require(net.target.kind == "in_context", f"{task} does not hold a network that solves a regression in context")
    else:
        asked = rest | {"dim": dim if dim is not None else (len(columns) or None)}
        asked["examples"] = examples if examples is not None else (len(X) if data else None)
        if data is not None:
            _fit(task, asked, X, y, queries)
        require(None not in (asked["dim"], asked["examples"]), "give --dim and --examples, or --data")
        asked["query_range"] = 2.5 if asked["query_range"] is None else asked["query_range"]
        net = in_context(task, progress=progress, **asked)
    if queries is None:
        return net
    own = model_record(net, seconds=time.perf_counter() - start)
    found = net.predict(X, y, queries, bound=True)
    require(outside or not found.outside, found.outside)
    record = {"predictions": found.predictions, "bounds": found.bound, "reasons": found.reasons}
    rows = [[*row, value, bound] for row, value, bound in zip(queries, found.predictions, found.bound, strict=True)]
    notes = [f"outside the class: {found.outside}"] if found.outside else []
    notes += [f"query {place}: {why}" for place, why in enumerate(found.reasons, 1) if why]
    text = as_csv([*columns, "prediction", "bound"], rows)
    return Answer(own | record | {"outside": found.outside}, net, text=text, notes=notes)


def _examples(path: str | None) -> tuple[list[str], Any, Any]:
    import numpy as np

    if path is None:
        return [], np.zeros((0, 0)), np.zeros(0)
    from attnfun.files import Table

    given = Table.read(path)
    columns = [name for name in given.header if name != "y"]
    require("y" in given.header and columns, f"{path}: a column y and at least one other are needed in its header")
    table = np.array(numbers(given, [*columns, "y"]), dtype=np.float64).reshape(-1, len(columns) + 1)
    require(len(table), f"{path} has no rows")
    return columns, table[:, :-1], table[:, -1]


def _fit(task: str, asked: dict[str, Any], X: Any, y: Any, queries: Any) -> None:
    """Fill in ranges and spectrum from the data, with a tenth to spare, where nothing was declared."""
    import numpy as np

    from attnfun.kinds.in_context.target import check_strength

    given = asked["C" if task == "logistic" else "alpha"]
    if given is not None:
        check_strength(task, given)
    for name, values, least in (("x_range", 2 * X, 5.0), ("y_range", y, 3.0), ("query_range", queries, 2.5)):
        if asked[name] is None and values is not None and not (name == "y_range" and task == "logistic"):
            asked[name] = max(least, 1.1 * float(np.abs(np.asarray(values)).max()))
    if asked["spectrum"] is None and X.shape[1] == asked["dim"]:
        values = np.linalg.eigvalsh(X.T @ X)
        shift = {"ridge": 1.0 if asked["alpha"] is None else asked["alpha"]}.get(task, 0.0)
        low, high = max(0.0, 0.9 * float(values[0])) + shift, 1.1 * float(values[-1]) + shift
        dependent = not low > 1e-12 * high
        steep = task == "logistic"  # its penalty is curvature enough
        require(steep or not dependent, "the examples are linearly dependent: take ridge, or more examples")
        asked["spectrum"] = (0.0 if dependent else low, high)
