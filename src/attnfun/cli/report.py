"""The report command: one HTML page of the studies in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnfun.cli.arguments import check_writable
from attnfun.cli.render import console, literal, print_json

PANEL = "Laboratory"


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("report", rich_help_panel=PANEL)(report_command)


def report_command(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What reproduce wrote.", show_default=False)],
    out: Annotated[
        str | None, typer.Option("-o", "--out", metavar="FILE", help="The page; else DIR/report.html.")
    ] = None,
    markdown: Annotated[
        str | None, typer.Option("--markdown", metavar="FILE", help="Write a summary in words and numbers too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Write one self-contained HTML page of all studies in DIR: figures, verdicts, tables, how to run each again.

    The page needs no network and no scripts. Studies that failed, were not finished or not run are named.

    \b
    [bold]Examples[/bold]
      attnfun report attnfun-studies
      attnfun report results -o studies.html --markdown studies.md
    """
    check_writable(out, markdown)
    from attnfun.lab.studies.report import read, report

    found = read(folder)
    page = report(folder, out, markdown=markdown)
    files = {"html": str(page), **({"markdown": markdown} if markdown else {})}
    if as_json:
        verdicts = {one.name: one.badge for one in found.found}
        print_json({"status": "done", **files, "studies": verdicts, "missing": list(found.missing)})
        return 0
    screen = console()
    screen.print(literal(found.sentence()))
    for path in files.values():
        screen.print(literal(f"{path}  ({Path(path).stat().st_size / 1e6:.1f} MB)"), soft_wrap=True)
    return 0
