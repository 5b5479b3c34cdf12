"""Networks: compile, verify, show, eval, export, suite. Heavy imports stay inside the commands."""

from __future__ import annotations

import csv
import io
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from attnfun.cli import suite
from attnfun.cli.arguments import (
    check_writable,
    picture_path,
    read_domain,
    read_eps,
    read_norm,
    read_point,
    read_points,
    unshield,
)
from attnfun.cli.records import (
    certificate_record,
    detail_rows,
    head_rows,
    head_table,
    kept,
    model_record,
    print_model,
    proof_rows,
    step_rows,
    step_table,
)
from attnfun.cli.render import VERDICT, console, facts, grid, literal, number, print_json, progress_bar
from attnfun.cli.sequence import sequence_command
from attnfun.errors import InvalidRequest

PANEL = "Networks"

File = Annotated[
    str, typer.Argument(metavar="FILE", help="A network saved by compile (.safetensors).", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")]


def register(app: typer.Typer) -> None:
    """Hang the commands of this group on the app."""
    for name, command in (
        ("sequence", sequence_command),
        ("verify", verify_command),
        ("show", show_command),
        ("eval", eval_command),
        ("export", export_command),
        ("suite", suite.suite_command),
    ):
        app.command(name, rich_help_panel=PANEL)(command)


def verify_command(
    file: File,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="EXPR", help="The target you expect; repeat for several outputs."),
    ] = None,
    eps: Annotated[
        str | None, typer.Option("--eps", metavar="NUMBER", help="The verdict is about this eps, not the file's own.")
    ] = None,
    domain: Annotated[
        list[str] | None, typer.Option("--domain", metavar="x=LOW:HIGH", help="The domain you expect.")
    ] = None,
    norm: Annotated[
        str | None, typer.Option("--norm", metavar="sup|P", help="The norm you expect.")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="The dtype you expect: float64 or float32.")] = None,
    as_json: Json = False,
) -> int:
    """Prove the bound again from the stored weights and target alone.

    No number of the stored certificate is read. The verdict is about --eps, or about the eps for which the file says it
    was made. Target, domain, norm and dtype that you give are compared with those of the file. Exit code 0 proved
    (conditional: under the hypothesis that is printed), 2 another target, domain, norm or dtype, 4 refuted (with a
    witness), 5 undecided, or bounded: a bound holds, but no eps was asked for.

    \b
    [bold]Examples[/bold]
      attnfun verify f.safetensors
      attnfun verify f.safetensors --target 'sin(3*x)+cos(2*y)*exp(x*y)' --domain 'x=-1:1;y=-1:1' --eps 1e-6
      attnfun verify trained.safetensors --eps 0.01
      attnfun verify f.safetensors --json
    """
    from attnfun import verbs

    path = unshield(file)
    expected_norm = None if norm is None else read_norm(norm)
    box, tolerance = read_domain(domain) if domain else None, None if eps is None else read_eps(eps)
    expected = [unshield(text) for text in target or ()]
    start = time.perf_counter()
    wanted = (expected[0] if len(expected) == 1 else expected) if expected else None
    with progress_bar("verify") as progress:
        certificate = verbs.verify(
            path, wanted, eps=tolerance, domain=box, norm=expected_norm, dtype=dtype, progress=progress
        )
    record = {"file": path, **certificate_record(certificate), "seconds": round(time.perf_counter() - start, 3)}
    status = str(record["status"])
    if as_json:
        print_json(record)
    else:
        rows = [*proof_rows(record), *detail_rows(record), ("seconds", number(record["seconds"]))]
        console().print(facts("", rows))
    if VERDICT[status]:
        why = record.get("reason") or getattr(certificate.status, "meaning", "")
        print(f"attnfun: {status}: {path}: {' '.join(str(why).split())}", file=sys.stderr)
    return VERDICT[status]


def show_command(
    file: File,
    png: Annotated[
        str | None, typer.Option("--png", metavar="[FILE]", help="Draw it (default: beside the network).")
    ] = None,
    as_json: Json = False,
) -> int:
    """Print what is in a file: target, certificate as stored, cost, heads; draw it with --png.

    The picture holds the partition, the key lattice or the keys as lines, the attention weights as the input moves, the
    target against the network, and the error under its bound; for a composed network the graph of its heads, with the
    share of the error that is born in each. Nothing is proved here: see verify.

    \b
    [bold]Examples[/bold]
      attnfun show f.safetensors
      attnfun show f.safetensors --png f.png
      attnfun show f.safetensors --json
    """
    from attnfun import verbs

    path = unshield(file)
    picture = picture_path(png, path)
    check_writable(picture)
    net: Any = verbs.load(path)
    record = {**model_record(net), "file": path, "explanation": net.explain()}
    heads, steps = head_rows(net.weights), step_rows(net)
    record |= {"head_list": heads} if heads else {}
    record |= {"steps": steps} if steps else {}
    words = getattr(net.weights, "words", ("head", "key"))
    table = step_table(steps, console().width, words) if steps else head_table(heads) if heads else None
    more = [one for one in (table, literal(record["explanation"])) if one is not None]
    print_model(kept(net, record, None, picture), as_json, more=more)
    return 0


def eval_command(
    file: File,
    points: Annotated[
        str | None, typer.Argument(metavar="[CSV]", help="Points, one a row; '-' reads stdin.", show_default=False)
    ] = None,
    at: Annotated[
        list[str] | None, typer.Option("--at", metavar="x=0.3,y=1", help="One point; may be repeated.")
    ] = None,
    outside: Annotated[
        str, typer.Option("--outside", help="Points outside the domain: raise, clamp or allow.")
    ] = "raise",
    compare: Annotated[
        bool, typer.Option("--compare", help="Add the target's value and the error at each point.")
    ] = False,
    table: Annotated[
        bool | None, typer.Option("--table/--csv", help="A table, or CSV (default: a table on a terminal).")
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the CSV here.")] = None,
    as_json: Json = False,
) -> int:
    """Evaluate a network at points given one by one or as the columns of a CSV file.

    \b
    [bold]Examples[/bold]
      attnfun eval f.safetensors --at x=0.3,y=1
      attnfun eval f.safetensors points.csv -o values.csv
      attnfun eval f.safetensors points.csv --compare --json
    """
    check_writable(output)
    if (points is None) == (not at):
        raise InvalidRequest("give the points either as --at x=0.3,y=1 or as one CSV file")
    import numpy as np

    from attnfun import verbs

    net: Any = verbs.load(unshield(file))
    names, outputs = net.target.columns(net.weights)
    rows = read_points(unshield(points), names) if points else [read_point(text, names) for text in at or ()]
    X = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    inputs = net.target.of_columns(X)
    values = np.asarray(net(*inputs, **({"outside": outside} if outside != "raise" else {})), dtype=np.float64)
    values = values.reshape(len(X), len(outputs))
    columns, data = [*names, *outputs], np.concatenate([X, values], axis=1)
    truth = None
    if compare:
        truth = np.asarray(net.target.exact(*inputs), dtype=np.float64).reshape(values.shape)
        data = np.concatenate([data, truth, np.abs(values - truth)], axis=1)
        columns += [f"target {name}" for name in outputs] + [f"|error {name}|" for name in outputs]
    if as_json:
        flat = len(outputs) == 1
        record: dict[str, Any] = {
            "status": str(net.certificate.status),
            "verified": net.certificate.verified,
            "inputs": names,
            "outputs": outputs,
            "points": X,
        }
        record["values"] = values[:, 0] if flat else values
        if truth is not None:
            record["target_values"] = truth[:, 0] if flat else truth
            record["errors"] = np.abs(values - truth)[:, 0] if flat else np.abs(values - truth)
        print_json({**record, "error": net.certificate.error[1], "error_low": net.certificate.error[0]})
    elif output or not (sys.stdout.isatty() if table is None else table):
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([[repr(float(v)) for v in line] for line in data])
        if output:
            Path(output).write_text(buffer.getvalue(), encoding="utf-8")
        else:
            sys.stdout.write(buffer.getvalue())
    else:
        body = [[f"{v:.12g}" for v in line] for line in data]
        console().print(grid(None, [(name, "right") for name in columns], body))
    return 0


def export_command(
    file: File,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="OUT", help="The file to write.", show_default=False)
    ],
    to: Annotated[
        str, typer.Option("--to", help="torch: a torch.export program (.pt2) with a dynamic batch.")
    ] = "torch",
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="float64 or float32 (default: the network's own).")
    ] = None,
    as_json: Json = False,
) -> int:
    """Write the network for another runtime, load it back and compare.

    \b
    [bold]Examples[/bold]
      attnfun export f.safetensors --to torch -o f.pt2
      python -c "import torch; print(torch.export.load('f.pt2').module()(torch.zeros(5, 2).double()))"
    """
    check_writable(output)
    from attnfun import verbs
    from attnfun.export import export

    net: Any = verbs.load(unshield(file))
    with progress_bar(f"export to {to}"):
        report = export(net, output, to=to, dtype=dtype)
    record = {"status": "exported", "file": unshield(file), "output": output, **report}
    if as_json:
        print_json(record)
    else:
        rows = [(key.replace("_", " "), literal(number(value))) for key, value in record.items() if key != "status"]
        console().print(facts("exported, loaded back and compared", rows))
    return 0
