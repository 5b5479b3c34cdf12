"""`attnfun plan`: which rank, heads and layers are impossible, constructed or unknown for a task."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, picture_path, read_eps
from attnfun.cli.render import console, facts, grid, literal, number, print_json, progress_bar

PANEL = "Limits"
_MARKS = {"impossible": "[red]✗[/]", "constructed": "[green]●[/]", "unknown": "[dim]·[/]"}


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("plan", rich_help_panel=PANEL)(plan_command)


def plan_command(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="furthest-neighbour, nearest-neighbour, matching, sparse-averaging or relation.",
            show_default=False,
        ),
    ],
    dim: Annotated[int, typer.Option("--dim", metavar="D", help="Width of the tokens.")] = 64,
    context: Annotated[int, typer.Option("--context", metavar="N", help="Tokens in the context.")] = 16,
    eps: Annotated[str, typer.Option("--eps", metavar="NUMBER", help="Error allowed.")] = "0.1",
    budget: Annotated[
        int | None,
        typer.Option("--budget", metavar="N", help="Most parameters of W_Q, W_K: 2 width rank heads layers."),
    ] = None,
    bits: Annotated[int, typer.Option("--bits", metavar="P", help="Bits of a number, for bounds by bits.")] = 32,
    order: Annotated[int, typer.Option("--order", help="matching: 2 for pairs, 3 for triples.")] = 3,
    q: Annotated[int, typer.Option("--q", metavar="Q", help="sparse-averaging: positions averaged over.")] = 4,
    matrix: Annotated[
        str | None, typer.Option("--matrix", metavar="FILE", help="relation: the scores, as CSV or .npy.")
    ] = None,
    setting: Annotated[
        str, typer.Option("--setting", help="neighbours: the setting of `attnfun bounds rank`.")
    ] = "softmax-any-v",
    png: Annotated[str | None, typer.Option("--png", metavar="FILE", help="Draw the map of rank × heads.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Many thin heads or few fat ones? Which rank, heads and layers are impossible, constructed, or unknown.

    \b
    [bold]Examples[/bold]
      attnfun plan furthest-neighbour --dim 64 --context 16 --eps 0.1
      attnfun plan matching --order 3 --context 8192 --bits 16 --png map.png
      attnfun plan sparse-averaging --q 8 --context 256 --eps 0.01 --json
      attnfun plan relation --matrix scores.csv --eps 0.05 --budget 100000
    """
    path = picture_path(png, f"plan-{task}.safetensors")
    check_writable(path)
    tolerance = read_eps(eps)
    from attnfun.limits.plan import plan

    with progress_bar("plan") as report:
        found = plan(
            task,
            dim=dim,
            context=context,
            eps=tolerance,
            budget=budget,
            bits=bits,
            order=order,
            q=q,
            matrix=matrix,
            setting=setting,
            progress=report,
        )
    record = found.record()
    if path:
        found.plot(path)
        record["png"] = path
    if as_json:
        print_json(record)
    else:
        _print(record)
    return 0


def _print(record: dict[str, Any]) -> None:
    cells = record["cells"]
    heads = sorted({c["heads"] for c in cells})
    places = {(c["layers"], c["rank"], c["heads"]): c for c in cells}
    screen = console()
    within = f", at most {record['budget']:,} parameters" if record["budget"] else ""
    problem = (
        f"{record['task']}: dimension {record['dim']:,}, context {record['context']:,}, eps {number(record['eps'])}"
    )
    screen.print(facts("", [("task", literal(problem + within)), ("answer", literal(record["answer"]))]))
    for layers in sorted({c["layers"] for c in cells}):
        rows = []
        for rank in sorted({c["rank"] for c in cells if c["layers"] == layers}):
            row = [places.get((layers, rank, h)) for h in heads]
            rows.append([f"{rank:,}", *(_MARKS[c["verdict"]] if c else "" for c in row), _reason(row)])
        columns = [("rank", "right"), *((f"{h:,}", "right") for h in heads), ("  fewest heads", "left")]
        name = f"{layers} layer{'s' * (layers > 1)}; heads across: ✗ impossible  ● constructed  · unknown"
        screen.print(grid(name, columns, rows))
    notes = [
        ("constructed", literal("\n".join(record["constructions"])) if record["constructions"] else None),
        ("hypotheses", literal("\n".join(record["hypotheses"]))),
        ("sources", literal("\n".join(record["sources"]))),
        ("picture", literal(record["png"]) if "png" in record else None),
    ]
    screen.print(facts("", notes))


def _reason(row: list[dict[str, Any] | None]) -> Any:
    """What is known of a row: its first construction, or its last bound."""
    cells = [c for c in row if c]
    built = next((c for c in cells if c["verdict"] == "constructed"), None)
    bound = next((c for c in reversed(cells) if c["verdict"] == "impossible"), None)
    shown = built or bound
    return literal(f"  {shown['why']}" if shown else "")
