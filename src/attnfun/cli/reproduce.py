"""The reproduce command: studies of the papers' claims, run, judged and written to a folder."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.render import console, fail, grid, literal, number, print_json, progress_bar, shortened
from attnfun.errors import InvalidRequest

PANEL = "Laboratory"
STYLE = {"holds": "bold green", "holds with limits": "bold yellow", "refuted": "bold red", "failed": "bold red"}


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("reproduce", rich_help_panel=PANEL)(reproduce_command)


def reproduce_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...|all", help="Studies; --list shows them.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The small size, which is the default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The large size: --list says how long.")] = False,
    out: Annotated[str, typer.Option("-o", "--out", metavar="DIR", help="Write DIR/NAME/.")] = "attnfun-studies",
    resume: Annotated[bool, typer.Option("--resume", help="Keep the units that are done.")] = False,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Processes; else one a core.", show_default=False)] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ADDRESS", help="Run the units on a dask scheduler's workers.")
    ] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Leave out studies whose packages are not installed.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="Names, claims, needs and times; nothing is run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Run studies: each tests one claim and leaves a table, a picture and a verdict that is a function of the table.

    A run that was killed goes on with --resume and loses at most the units under way. Units that fail leave their study
    without a verdict, and the exit code is 1. Then: attnfun report DIR.

    \b
    [bold]Examples[/bold]
      attnfun reproduce --list
      attnfun reproduce interpolation-rate
      attnfun reproduce all --quick --out results --resume
      attnfun reproduce rank-heads two-candidates --full --cluster tcp://HOST:8786
    """
    if show:
        return _list(names, as_json)
    if quick and full:
        raise InvalidRequest("--quick and --full: write one of them")
    if not names:
        raise InvalidRequest("no study is named: write a name, several, or all (attnfun reproduce --list shows them)")
    if "all" in names and len(names) > 1:
        raise InvalidRequest(f"all, and {' '.join(name for name in names if name != 'all')}: write one or the other")
    if jobs is not None and cluster is not None:
        raise InvalidRequest("--jobs counts processes of this machine: leave it out with --cluster")
    from attnfun.lab.studies import runner

    asked: str | list[str] = "all" if names == ["all"] else names
    with progress_bar("reproduce") as progress:

        def news(at: runner.Progress) -> None:
            progress(str(at), at.done / max(at.total, 1))

        try:
            outcomes = runner.reproduce(
                asked,
                "full" if full else "quick",
                out,
                resume=resume,
                jobs=jobs,
                cluster=cluster,
                skip_missing=skip_missing,
                progress=news,
            )
        except KeyboardInterrupt:
            fail({"status": "error", "reason": f"interrupted; --resume goes on with what is in {out}"}, as_json)
            return 130
    failed = [outcome for outcome in outcomes if outcome.verdict is None]
    ran = [outcome.name for outcome in outcomes]
    skipped = [study.name for study in runner.chosen(asked) if study.name not in ran]
    if as_json:
        record = {"status": "error" if failed else "done", "out": out, "skipped": skipped}
        print_json({**record, "studies": [outcome.to_json() for outcome in outcomes]})
    else:
        _print(outcomes)
        if skipped:
            console().print(literal(f"left out, for want of packages: {', '.join(skipped)}"))
    return 1 if failed else 0


def _print(outcomes: list[Any]) -> None:
    screen = console()
    for outcome in outcomes:
        screen.print(f"[bold]{outcome.name}[/]  [{STYLE[outcome.status]}]{outcome.status}[/]")
        if outcome.verdict:
            screen.print(literal(outcome.verdict.words))
        for failure in outcome.failures[:5]:
            screen.print(literal(shortened(failure, 280)), style="dim")
        if len(outcome.failures) > 5:
            screen.print(literal(f"and {len(outcome.failures) - 5} more units"), style="dim")
        kept = f", {outcome.kept} of them from an earlier run" if outcome.kept else ""
        done = f"{outcome.rows:,} rows of {outcome.units:,} units{kept}; {outcome.cpu_seconds:,.1f} s of CPU"
        screen.print(literal(f"{outcome.size}: {done}"), style="dim")
        screen.print(literal(f"{outcome.folder}/"), style="dim", soft_wrap=True)
        screen.print()
    if len(outcomes) > 1:
        kinds = [outcome.status for outcome in outcomes]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in STYLE if kind in kinds)
        screen.print(literal(f"{len(outcomes)} studies: {counts}"))


def _list(names: list[str] | None, as_json: bool) -> int:
    from attnfun.lab.studies import runner

    studies = runner.chosen(names or "all")
    if as_json:
        shown = ("name", "group", "title", "claim", "source", "needs", "full_time")
        print_json({"studies": [{key: getattr(study, key) for key in shown} for study in studies]})
        return 0
    screen = console()
    columns = [
        ("study", "left"),
        ("units: quick", "right"),
        ("full", "right"),
        ("needs", "left"),
        ("a full run", "left"),
    ]
    for group in dict.fromkeys(study.group for study in studies):
        body = []
        for study in (one for one in studies if one.group == group):
            counts = [number(len(study.units(study.parameters(size)))) for size in ("quick", "full")]
            needs = ", ".join(study.needs) or "–"
            body.append([study.name, *counts, needs, literal(study.full_time or "–")])
        screen.print(grid(group, columns, body))
        for study in (one for one in studies if one.group == group):
            screen.print(literal(f"{study.name}: {study.claim}"), style="dim")
        screen.print()
    return 0
