"""in-context: regressions that a network solves in its forward pass; on CSV data, too."""

from __future__ import annotations

import csv
import io
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, picture_path, read_eps, read_points, unshield
from attnfun.cli.records import kept, model_record, print_model
from attnfun.cli.render import EXIT, print_json, progress_bar
from attnfun.errors import InvalidRequest

if TYPE_CHECKING:
    from attnfun.kinds.in_context.view import BoundedPredictions

PANEL = "Networks"


def register(app: typer.Typer) -> None:
    app.command("in-context", rich_help_panel=PANEL)(in_context_command)


def in_context_command(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="linear, ridge, lasso, logistic; or a file saved by this command.", show_default=False
        ),
    ],
    dim: Annotated[int | None, typer.Option("--dim", metavar="D", help="Entries of an example (or --data).")] = None,
    examples: Annotated[
        int | None, typer.Option("--examples", metavar="N", help="Examples of a prompt, at most (or --data).")
    ] = None,
    eps: Annotated[str | None, typer.Option("--eps", metavar="NUMBER", help="Tolerance of predictions.")] = None,
    alpha: Annotated[float | None, typer.Option("--alpha", help="Penalty of ridge (default 1), lasso (0.1).")] = None,
    c: Annotated[float | None, typer.Option("--C", help="Logistic regression's C (default 1).")] = None,
    spectrum: Annotated[
        str | None,
        typer.Option("--spectrum", metavar="LOW:HIGH", help="Eigenvalues of XᵀX + alpha I, lasso and logistic XᵀX."),
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", metavar="L", help="Fix the depth.")] = None,
    algorithm: Annotated[
        str | None,
        typer.Option("--algorithm", help="linear and ridge: chebyshev, gd; lasso: accelerated, proximal."),
    ] = None,
    heads: Annotated[int | None, typer.Option("--heads", metavar="H", help="Heads of a sum, 1 to 8.")] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="float64 or float32.")] = "float64",
    x_range: Annotated[float | None, typer.Option("--x-range", help="Largest entry of an example.")] = None,
    y_range: Annotated[float | None, typer.Option("--y-range", help="Largest |y| (default 3).")] = None,
    query_range: Annotated[float | None, typer.Option("--query-range", help="Largest query entry (2.5).")] = None,
    accept: Annotated[str | None, typer.Option("--accept", help="proved, or sampled: measured is enough.")] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="CSV", help="Examples: a column y, the others are x.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", metavar="CSV", help="Queries: the same columns x.")] = None,
    outside: Annotated[
        bool, typer.Option("--outside", help="Predict for data outside the class too: their bounds alone are proved.")
    ] = False,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Save the network here.")] = None,
    png: Annotated[str | None, typer.Option("--png", metavar="[FILE]", help="Draw error against depth.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Build a network that solves a regression on the examples of its prompt, and prove how well.

    With --data the class is made to fit the data where an option does not say otherwise; with --query predictions are
    printed as CSV, each with a bound of its error that is proved for these very data. What is declared is a class of
    prompts: the network then serves all of them.

    \b
    [bold]Examples[/bold]
      attnfun in-context ridge --dim 8 --examples 64 --alpha 1 --spectrum 20:150 --eps 1e-6 -o ridge.safetensors --png
      attnfun in-context ridge --data train.csv --query new.csv --eps 1e-6
      attnfun in-context ridge.safetensors --data train.csv --query new.csv
      attnfun in-context lasso --dim 8 --examples 64 --spectrum 30:100 --eps 1e-6 --json
    """
    name = unshield(task)
    picture = picture_path(png, output)
    check_writable(output, picture)
    from attnfun import in_context, load

    if query is not None and data is None:
        raise InvalidRequest("--query needs --data: a prompt is examples and queries")
    columns, X, y = _examples(data)
    queries = None if query is None else read_points(query, columns)
    start = time.perf_counter()
    with progress_bar(f"in-context {name}") as progress:
        if name.endswith(".safetensors"):
            net = load(name)
            if net.target.kind != "in_context":
                raise InvalidRequest(f"{name} does not hold a network that solves a regression in context")
        else:
            asked: dict[str, Any] = {
                "dim": dim if dim is not None else (len(columns) or None),
                "examples": examples if examples is not None else (len(X) if data else None),
                "alpha": alpha,
                "C": c,
                "spectrum": _spectrum(spectrum),
                "x_range": x_range,
                "y_range": y_range,
                "query_range": query_range,
            }
            if data is not None:
                _fit(name, asked, X, y, queries)
            if asked["dim"] is None or asked["examples"] is None:
                raise InvalidRequest("give --dim and --examples, or --data")
            asked["query_range"] = 2.5 if asked["query_range"] is None else asked["query_range"]
            net = in_context(
                name,
                eps=None if eps is None else read_eps(eps),
                algorithm=algorithm,
                layers=layers,
                heads=heads,
                dtype=dtype,
                accept=accept,
                progress=progress,
                **asked,
            )
        progress("predicting the budget")
        record = model_record(net, seconds=time.perf_counter() - start)
    kept(net, record, output, picture)
    if queries is None:
        print_model(record, as_json)
        return EXIT[str(record["status"])]
    found = net.predict(X, y, queries, bound=True)
    if found.outside and not outside:
        raise InvalidRequest(found.outside)
    if as_json:
        record |= {"predictions": found.predictions, "bounds": found.bound, "reasons": found.reasons}
        print_json({**record, "outside": found.outside})
    else:
        _print_predictions(columns, queries, found)
    return EXIT[str(record["status"])]


def _spectrum(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    low, colon, high = text.partition(":")
    try:
        return (float(low), float(high)) if colon else _no_spectrum(text)
    except ValueError:
        return _no_spectrum(text)


def _no_spectrum(text: str) -> tuple[float, float]:
    raise InvalidRequest(f"--spectrum {text!r}: write LOW:HIGH, as in 20:150")


def _examples(path: str | None) -> tuple[list[str], Any, Any]:
    import numpy as np

    if path is None:
        return [], np.zeros((0, 0)), np.zeros(0)
    from attnfun.files import lines_of

    header = [name.strip() for name in next(csv.reader(lines_of(path)), [])]
    columns = [name for name in header if name != "y"]
    if "y" not in header or not columns:
        raise InvalidRequest(f"{path}: a column y and at least one other are needed in its header")
    table = np.array(read_points(path, [*columns, "y"]), dtype=np.float64).reshape(-1, len(columns) + 1)
    if not len(table):
        raise InvalidRequest(f"{path} has no rows")
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
        if low <= 1e-12 * high:
            raise InvalidRequest("the examples are linearly dependent: take ridge, or more examples")
        asked["spectrum"] = (low, high)


def _print_predictions(columns: list[str], queries: Any, found: BoundedPredictions) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*columns, "prediction", "bound"])
    for row, value, bound in zip(queries, found.predictions, found.bound, strict=True):
        writer.writerow([*(repr(float(v)) for v in row), repr(float(value)), repr(float(bound))])
    sys.stdout.write(buffer.getvalue())
    if found.outside:
        sys.stderr.write(f"outside the class: {found.outside}\n")
    for place, why in enumerate(found.reasons, 1):
        if why:
            sys.stderr.write(f"query {place}: {why}\n")
