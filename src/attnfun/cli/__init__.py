"""The command line: argv in, one answer on stdout, at most one line on stderr, an exit code.

| code | meaning                              |
| ---- | ------------------------------------ |
| 0    | done, or proved                      |
| 1    | a fault in attnfun itself            |
| 2    | invalid request or damaged file      |
| 3    | infeasible: reason and nearest       |
| 4    | refuted                              |
| 5    | undecided                            |

`ATTNFUN_DEBUG=1` lets exceptions through with their traceback. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer

from attnfun.cli import (
    bounds,
    diagnose,
    finite_relations,
    in_context,
    interpolation,
    neighbours,
    networks,
    plan,
    preorder,
    report,
    reproduce,
    train,
)
from attnfun.cli.arguments import shield
from attnfun.cli.derive import derived, listed
from attnfun.cli.pipes import patient
from attnfun.cli.render import fail, failure
from attnfun.kinds import known

__all__ = ["application", "main"]

_ROOMS = (networks, interpolation, in_context, preorder, finite_relations, bounds, neighbours, plan, train, diagnose)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"attnfun {version('attnfun')}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    pass


@cache  # reading signatures takes longer than most commands
def application(asked: str) -> Any:
    """The command line: `asked` in full, of other verbs' commands the names and summaries; all in full for "*"."""
    app = typer.Typer(
        name="attnfun",
        help="A target and a tolerance in; softmax-attention weights and a proof out.",
        epilog="Every command takes --json and explains itself with examples under --help.",
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for kind in known():
        for command in kind.commands:
            made = derived(command) if asked in (command.name, "*") else listed(command)
            app.command(command.name, rich_help_panel=command.panel)(made)
    for room in (*_ROOMS, reproduce, report):
        room.register(app)
    return typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no exception escapes unless ATTNFUN_DEBUG is set."""
    tokens = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    debug = os.environ.get("ATTNFUN_DEBUG", "") not in ("", "0")
    named = next((token for token in tokens if not token.startswith("-")), "")
    command = application("*" if "_ATTNFUN_COMPLETE" in os.environ else named)
    with patient():
        try:
            with warnings.catch_warnings():
                if not debug:
                    warnings.simplefilter("ignore")
                code = command.main(args=shield(command, tokens), prog_name="attnfun", standalone_mode=False)
            return code if isinstance(code, int) else 0
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                raise
            return fail(failure(error), json_wanted="--json" in tokens)
