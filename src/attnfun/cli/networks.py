"""Networks: compile, verify, show, eval, export, suite. Heavy imports stay inside the commands."""

from __future__ import annotations

import csv
import io
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from attnfun.cli import in_context, suite
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
from attnfun.cli.matching_file import show_matching
from attnfun.cli.neighbours import show_neighbours
from attnfun.cli.records import (
    AS_STORED,
    certificate_record,
    cost_rows,
    head_rows,
    head_table,
    network_record,
    proof_rows,
    step_rows,
    step_table,
)
from attnfun.cli.relation import show_relation
from attnfun.cli.render import EXIT, VERDICT, console, facts, grid, literal, number, print_json, progress_bar
from attnfun.cli.retrieve import promise_rows, show_retrieval
from attnfun.cli.sequence import FlatSequence, sequence_command, show_sequence, show_sequence_model
from attnfun.cli.set_function import set_function_command
from attnfun.cli.ternary import show_ternary
from attnfun.cli.trained_file import show_trained
from attnfun.errors import InvalidRequest

PANEL = "Networks"

File = Annotated[
    str, typer.Argument(metavar="FILE", help="A network saved by compile (.safetensors).", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")]


def register(app: typer.Typer) -> None:
    """Hang the commands of this group on the app."""
    for name, command in (
        ("compile", compile_command),
        ("sequence", sequence_command),
        ("set-function", set_function_command),
        ("verify", verify_command),
        ("show", show_command),
        ("eval", eval_command),
        ("export", export_command),
        ("suite", suite.suite_command),
    ):
        app.command(name, rich_help_panel=PANEL)(command)


def compile_command(
    expressions: Annotated[
        list[str],
        typer.Argument(
            metavar="EXPR...", help="One expression an output, or one .safetensors of MLP weights.", show_default=False
        ),
    ],
    eps: Annotated[
        str,
        typer.Option("--eps", metavar="NUMBER", help="The tolerance: absolute, or see --relative.", show_default=False),
    ],
    domain: Annotated[
        list[str] | None,
        typer.Option(
            "--domain",
            metavar="x=LOW:HIGH",
            help="One interval a variable; for an MLP LOW:HIGH is for every input x1, x2, ... not named.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(help="auto, tangent, compose, relu_network, bernstein, interpolation, partition, affine."),
    ] = "auto",
    norm: Annotated[str, typer.Option("--norm", help="sup, or p >= 1 for the volume-normalised L^p norm.")] = "sup",
    relative: Annotated[bool, typer.Option("--relative", help="eps is a fraction of the target's range.")] = False,
    dtype: Annotated[
        str, typer.Option("--dtype", help="float64 or float32: construct for this arithmetic.")
    ] = "float64",
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same weights.")] = 0,
    accept: Annotated[
        str, typer.Option("--accept", help="proved, or sampled: take an unproved network too.")
    ] = "proved",
    realise: Annotated[
        str, typer.Option("--realise", help="attention, or mlp: ReLU units instead of softmax heads.")
    ] = "attention",
    prefer: Annotated[str, typer.Option("--prefer", help="keys, layers, or float32 (small values).")] = "keys",
    max_keys: Annotated[int | None, typer.Option("--max-keys", metavar="N", help="At most so many keys.")] = None,
    max_layers: Annotated[int | None, typer.Option("--max-layers", metavar="N", help="At most so many layers.")] = None,
    max_heads: Annotated[int | None, typer.Option("--max-heads", metavar="N", help="At most so many heads.")] = None,
    max_rank: Annotated[int | None, typer.Option("--max-rank", metavar="N", help="At most this rank a head.")] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Save the network here.")] = None,
    png: Annotated[str | None, typer.Option("--png", metavar="[FILE]", help="Draw it.")] = None,
    as_json: Json = False,
) -> int:
    """Build an attention network that meets eps, and prove that it does.

    \b
    [bold]Examples[/bold]
      attnfun compile 'sin(3*x)' --domain x=-1:1 --eps 1e-9
      attnfun compile 'cos(2*y)*exp(x*y)' --domain 'x=-1:1;y=-1:1' --eps 1e-6 -o f.safetensors --png
      attnfun compile '-x**2' 'x*y' --domain x=-1:1 --domain y=0:2 --eps 1e-6 --json
      attnfun compile 'sign(x)' --domain x=-1:1 --norm 2 --eps 0.05 --method partition
      attnfun compile 'x*y' --domain 'x=-1:1;y=-1:1' --eps 1e-3 --realise mlp
      attnfun compile model.safetensors --domain -1:1 --domain x3=0:5 --eps 1e-3 -o net.safetensors

    Weights of an MLP (0.weight, 0.bias, 2.weight, ..., as torch names them) are taken exactly, with a ReLU between all
    linear layers and none after the last.
    """
    texts = [unshield(text) for text in expressions]
    picture = picture_path(png, output)
    box, order, tolerance = read_domain(domain or ()), read_norm(norm), read_eps(eps)
    check_writable(output, picture)
    asked = {"max_keys": max_keys, "max_layers": max_layers, "max_heads": max_heads, "max_rank": max_rank}
    limits: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    from attnfun import verbs

    start = time.perf_counter()
    with progress_bar("compile") as progress:
        net = verbs.compile(
            texts[0] if len(texts) == 1 else texts,
            domain=box,
            eps=tolerance,
            method=method,
            norm=order,
            relative=relative,
            dtype=dtype,
            seed=seed,
            accept=accept,
            realise=realise,
            progress=progress,
            prefer=prefer,
            **limits,
        )
    record = network_record("; ".join(texts), net, time.perf_counter() - start)
    _write(net, record, output, picture)
    if as_json:
        print_json(record)
    else:
        screen = console()
        screen.print(facts("", [*proof_rows(record), *cost_rows(record), *_written(record)]))
    return EXIT[str(record["status"])]


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
        rows = [*proof_rows(record), *promise_rows(record)]
        console().print(facts("", [*rows, ("seconds", number(record["seconds"]))]))
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
    from attnfun.approximant import Approximant
    from attnfun.matcher import Matching
    from attnfun.neighbour_networks import Neighbours
    from attnfun.relations import RelationApproximant
    from attnfun.retrieval import Retrieval
    from attnfun.sequence_approximant import SequenceApproximant
    from attnfun.training.models.head import HeadModel
    from attnfun.training.models.retrieval import RetrievalModel
    from attnfun.training.models.sequence import SequenceModel
    from attnfun.training.models.token import TokenModel
    from attnfun.training.models.tower import TowerModel
    from attnfun.trilinear import TrilinearForm

    path = unshield(file)
    picture = picture_path(png, path)
    check_writable(picture)
    net: Any = verbs.load(path)
    if isinstance(net, SequenceApproximant):
        return show_sequence(net, path, picture, as_json)
    if isinstance(net, SequenceModel):
        return show_sequence_model(net, path, picture, as_json)
    if isinstance(net, RelationApproximant):
        return show_relation(net, path, png, as_json)
    if isinstance(net, Retrieval):
        return show_retrieval(net, path, png, as_json)
    if isinstance(net, TrilinearForm):
        return show_ternary(net, path, png, as_json)
    if isinstance(net, Neighbours):
        return show_neighbours(net, path, png, as_json)
    if isinstance(net, Matching):
        return show_matching(net, path, picture, as_json)
    if isinstance(net, (TowerModel, TokenModel, HeadModel, RetrievalModel)):
        return show_trained(net, path, picture, as_json)
    if not isinstance(net, Approximant):
        return in_context.show(net, path, picture, as_json)
    heads, steps = head_rows(net.network), step_rows(net)
    record = {**network_record(str(net.certificate.target), net), "file": path}
    record |= {"inputs": list(net.network.inputs), "outputs": list(net.network.outputs)}
    record |= {"coordinates": list(net.network.coordinates), "head_list": heads, "explanation": net.explain()}
    if steps:
        record["steps"] = steps
    _write(net, record, None, picture)
    if as_json:
        print_json(record)
        return 0
    screen = console()
    screen.print(
        facts(AS_STORED, [*proof_rows(record), *cost_rows(record)])
    )
    screen.print(step_table(steps, screen.width, net.network.words) if steps else head_table(heads))
    screen.print(literal(record["explanation"]))
    if picture:
        screen.print(facts("", [("drawn", literal(picture))]))
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
    from attnfun.sequence_approximant import SequenceApproximant
    from attnfun.training.models.sequence import SequenceModel

    net: Any = verbs.load(unshield(file))
    flat = isinstance(net, (SequenceApproximant, SequenceModel))
    net = FlatSequence(net) if flat else _function_of(net, unshield(file))
    names, outputs = list(net.network.inputs), list(net.network.outputs)
    rows = read_points(unshield(points), names) if points else [read_point(text, names) for text in at or ()]
    X = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    values = np.asarray(net(X, outside=outside), dtype=np.float64).reshape(len(X), len(outputs))
    columns, data = [*names, *outputs], np.concatenate([X, values], axis=1)
    truth = None
    if compare:
        truth = np.asarray(net.target.values(X), dtype=np.float64).reshape(values.shape)
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
    from attnfun.sequence_approximant import SequenceApproximant
    from attnfun.training.models.sequence import SequenceModel

    net: Any = verbs.load(unshield(file))
    if isinstance(net, (SequenceApproximant, SequenceModel)):
        raise InvalidRequest("export writes functions; a sequence network gives its torch module by .to_torch()")
    net = _function_of(net, unshield(file))
    with progress_bar(f"export to {to}"):
        report = export(net, output, to=to, dtype=dtype)
    record = {"status": "exported", "file": unshield(file), "output": output, **report}
    if as_json:
        print_json(record)
    else:
        rows = [(key.replace("_", " "), literal(number(value))) for key, value in record.items() if key != "status"]
        console().print(facts("exported, loaded back and compared", rows))
    return 0


def _function_of(net: Any, path: str) -> Any:
    """`net`, if it approximates a function; other kinds of networks have commands of their own."""
    from attnfun.approximant import Approximant
    from attnfun.matcher import Matching
    from attnfun.neighbour_networks import Neighbours
    from attnfun.relations import RelationApproximant
    from attnfun.retrieval import Retrieval
    from attnfun.training.models.head import HeadModel
    from attnfun.training.models.retrieval import RetrievalModel
    from attnfun.training.models.token import TokenModel
    from attnfun.training.models.tower import TowerModel
    from attnfun.trilinear import TrilinearForm

    if isinstance(net, (TowerModel, TokenModel, HeadModel, RetrievalModel)):
        raise InvalidRequest(f"{path} holds a trained model ({type(net).__name__}): load it in Python and call it")
    if isinstance(net, Retrieval):
        raise InvalidRequest(f"{path} holds a retrieval head: load it in Python, its call gives what it hands out")
    if isinstance(net, TrilinearForm):
        raise InvalidRequest(f"{path} holds a trilinear form: load it in Python, its call takes x, y and z")
    if isinstance(net, Neighbours):
        raise InvalidRequest(f"{path} finds neighbours: load it in Python and call it on points")
    if isinstance(net, Matching):
        raise InvalidRequest(f"{path} matches whole numbers: load it in Python, its call takes them")
    if isinstance(net, RelationApproximant):
        raise InvalidRequest(f"{path} holds two towers: load it in Python, its call gives the scores of all pairs")
    if not isinstance(net, Approximant):
        raise InvalidRequest(f"{path} solves a regression in context: attnfun in-context {path} --data CSV --query CSV")
    return net


def _write(net: Any, record: dict[str, Any], output: str | None, picture: str | None) -> None:
    """Save and draw; the record says where."""
    if output:
        net.save(output)
        record["file"] = output
    if picture:
        from attnfun.plots import draw

        with progress_bar(f"draw {picture}"):
            draw(net, picture)
        record["png"] = picture


def _written(record: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(label, literal(record[key])) for key, label in (("file", "saved"), ("png", "drawn")) if key in record]
