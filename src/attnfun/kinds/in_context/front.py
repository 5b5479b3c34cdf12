"""`attnfun in-context` on CSV data: examples, queries, and a class of prompts that fits them."""

import time
from typing import Any

from attnfun.cli.arguments import numbers, read_points
from attnfun.cli.derive import Answer
from attnfun.cli.networks import as_csv
from attnfun.cli.records import model_record
from attnfun.errors import require
from attnfun.kinds.in_context.target import check_strength


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
