"""The train command: the architecture of a saved network with free weights, and both on one table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, picture_path
from attnfun.cli.render import console, facts, grid, literal, number, print_json, progress_bar
from attnfun.errors import InvalidRequest

PANEL = "Laboratory"
_FILE = "A network of any command that writes one, or of train."


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("train", rich_help_panel=PANEL)(train_command)


def train_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help=_FILE, show_default=False)],
    steps: Annotated[int, typer.Option("--steps", help="Steps of the optimiser.")] = 2000,
    seed: Annotated[int, typer.Option("--seed", help="Of the start and of the batches.")] = 0,
    start: Annotated[str, typer.Option("--start", help="random, or constructed: the weights of FILE.")] = "random",
    optimiser: Annotated[str, typer.Option("--optimiser", help="adam or adamw.")] = "adam",
    lr: Annotated[float, typer.Option("--lr", help="The largest rate.")] = 1e-2,
    schedule: Annotated[str, typer.Option("--schedule", help="one-cycle, constant, linear or cosine.")] = "one-cycle",
    batch: Annotated[int, typer.Option("--batch", help="Points of a step.")] = 512,
    polish: Annotated[int, typer.Option("--polish", help="Steps of LBFGS afterwards.")] = 0,
    patience: Annotated[int | None, typer.Option("--patience", help="Stop after so many steps without gain.")] = None,
    noise: Annotated[float, typer.Option("--noise", help="Noise on the inputs, in half-widths of the domain.")] = 0.0,
    widths: Annotated[
        str | None, typer.Option("--widths", metavar="W,W", help="Of a relation: ReLU towers of these hidden layers.")
    ] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="With --widths: the features of those towers.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="FILE", help="Go on from here, and keep the state here.")
    ] = None,
    out: Annotated[str | None, typer.Option("-o", "--out", metavar="FILE", help="Save the trained network.")] = None,
    png: Annotated[str | None, typer.Option("--png", metavar="[FILE]", help="Draw both errors on one axis.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Train the architecture of a network towards its target, from a random or the constructed start, and compare.

    Bounded by steps, never by seconds; the same seed gives the same weights on one machine. Errors are measured at the
    same points for both; a bound is shown where there is one, with what it is: no eps is asked of trained weights, so
    theirs is "bounded" at best, and that of FILE is as stored. Needs torch.

    \b
    [bold]Examples[/bold]
      attnfun train f.safetensors --steps 2000 --seed 0
      attnfun train f.safetensors --start constructed --lr 1e-5 -o g.safetensors --json
      attnfun train ridge.safetensors --steps 2000 --batch 64 --lr 3e-3
      attnfun train relation.safetensors --widths 64,64 --rank 8 -o towers.safetensors
      attnfun train f.safetensors --steps 100000 --polish 300 --checkpoint run.safetensors --png compared.png
    """
    picture = picture_path(png, "compared")
    check_writable(picture, out, checkpoint)
    if checkpoint is not None and checkpoint in (out, file):
        raise InvalidRequest(f"--checkpoint {checkpoint!r} is the file of a network: name another one")
    from attnfun import verbs
    from attnfun.learn import Progress
    from attnfun.learn.compare import compare
    from attnfun.learn.train import train

    net = verbs.load(file)
    try:
        hidden = None if widths is None else [int(width) for width in widths.split(",")]
    except ValueError:
        raise InvalidRequest(f"--widths {widths!r:.40}: whole numbers with commas, as in 64,64") from None
    with progress_bar("train") as progress:

        def news(at: Progress) -> None:
            progress(str(at), at.row.step / at.total)

        learned = train(
            net,
            steps=steps,
            seed=seed,
            start=start,
            optimiser=optimiser,
            lr=lr,
            schedule=schedule,
            batch=batch,
            polish=polish,
            patience=patience,
            noise=noise,
            widths=hidden,
            rank=rank,
            checkpoint=checkpoint,
            progress=news,
        )
        table = compare(net, learned)
    record: dict[str, Any] = {"status": learned.certificate.status.value, **table.to_json()}
    record |= {"stopped": learned.fit.stopped, "best_step": learned.fit.best_step, "seed": seed, "start": start}
    record |= {"history": [row.to_json() for row in learned.history]}
    if out:
        learned.save(out)
        record["file"] = out
    if picture:
        with progress_bar(f"draw {picture}"):
            table.plot(picture)
        record["png"] = picture
    if as_json:
        print_json(record)
        return 0
    _print(table, learned, {"saved": out, "drawn": picture})
    return 0


def _print(table: Any, learned: Any, files: dict[str, str | None]) -> None:
    from attnfun.learn.compare import bound_text

    screen = console()
    screen.print(literal(f"{table.target}  on  {table.domain}"))
    names = ("keys", "sup", "L2", "bound", "key norm", "seconds")
    columns = [("network", "left"), *((name, "right") for name in names)]
    body = [
        [
            literal(entry.name),
            number(entry.keys),
            *(number(v) for v in (entry.sup, entry.l2)),
            bound_text(entry, number),
            number(entry.key_norm_max),
            "–" if entry.seconds is None else f"{entry.seconds:.1f}",
        ]
        for entry in table.entries
    ]
    screen.print(grid(None, columns, body))
    if any(entry.status == "stored" for entry in table.entries):
        screen.print(literal("stored: as the file says, not verified"))
    fit, first, last = learned.fit, learned.history[0], learned.history[-1]
    why = {"steps": "", "patience": ", its first part ended by patience", "diverged": ", then it diverged"}[fit.stopped]
    rows = [("steps", literal(f"{fit.steps:,}{why}; least sup error on the probe at step {fit.best_step:,}"))]
    if first.key_norm_max is not None:
        norms = f"largest {number(first.key_norm_max)} at the start, {number(last.key_norm_max)} at the end"
        rows.append(("key norms", literal(norms)))
    certificate = learned.certificate
    rows.append((certificate.status.value, literal(certificate.reason or certificate.status.meaning)))
    rows += [(name, literal(path)) for name, path in files.items() if path]
    screen.print(facts("", rows))
