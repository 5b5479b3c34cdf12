"""The command line: argv in, one answer on stdout, at most one line on stderr, an exit code.

| code | meaning                              |
| ---- | ------------------------------------ |
| 0    | done, or proved                      |
| 1    | a fault in attnfun itself            |
| 2    | invalid request or damaged file      |
| 3    | infeasible: reason and nearest       |
| 4    | refuted                              |
| 5    | undecided                            |
| 130  | interrupted by Ctrl-C                |

`ATTNFUN_DEBUG=1` lets exceptions through with their traceback. Nothing heavy is imported before a command runs.
"""

import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer

from attnfun.cli.arguments import shield
from attnfun.cli.derive import derived, listed
from attnfun.cli.pipes import patient
from attnfun.cli.render import Interrupted, fail, failure
from attnfun.kinds import commands, declared, known

__all__ = ["application", "main"]

CTRL_C = 130  # what shells say of a command that was stopped by it, and Typer of its own parsing


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"attnfun {version('attnfun')}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    pass


def _group(**options: Any) -> typer.Typer:
    style = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich", context_settings=style, **options)


@cache  # reading signatures takes longer than most commands
def application(asked: str) -> Any:
    """The command line: `asked` in full, of other commands the names and summaries; all in full for "*"."""
    words = declared("attnfun.cli")["groups"]
    app = _group(name="attnfun", help=words["attnfun"], epilog=words["epilog"])
    app.callback()(_root)
    groups: dict[str, typer.Typer] = {"": app}
    for package in (*(kind.commands for kind in known() if kind.commands), "attnfun.cli"):
        for command in commands(package):
            group, _, name = command.name.rpartition(" ")
            if group not in groups:
                groups[group] = _group(help=words[group], add_completion=False, no_args_is_help=True)
                app.add_typer(groups[group], name=group, rich_help_panel=command.panel)
            made = derived(command) if asked in (command.name, "*") else listed(command)
            groups[group].command(name, rich_help_panel=None if group else command.panel)(made)
    return typer.main.get_command(app)


def _asked(tokens: Sequence[str]) -> str:
    """The command that these tokens name: its name, or the names of its group and of itself."""
    names = [token for token in tokens if not token.startswith("-")]
    first = names[0] if names else ""
    return " ".join(names[:2]) if first in declared("attnfun.cli")["groups"] else first


def _typed_so_far() -> list[str]:
    """The words of a command line that a shell wants to have completed."""
    return os.environ.get("_TYPER_COMPLETE_ARGS", os.environ.get("COMP_WORDS", "")).split()[1:]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no exception escapes unless ATTNFUN_DEBUG is set."""
    tokens = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    debug, json_wanted = os.environ.get("ATTNFUN_DEBUG", "") not in ("", "0"), "--json" in tokens
    with patient():
        try:
            command = application(_asked(_typed_so_far() if "_ATTNFUN_COMPLETE" in os.environ else tokens))
            with warnings.catch_warnings():
                if not debug:
                    warnings.simplefilter("ignore")
                code = command.main(args=shield(command, tokens), prog_name="attnfun", standalone_mode=False)
            if code == CTRL_C:
                raise KeyboardInterrupt
            return code if isinstance(code, int) else 0
        except (Exception, KeyboardInterrupt) as error:
            stopped = isinstance(error, Interrupted | KeyboardInterrupt)
            if debug and not stopped:
                raise
            code = fail(failure(error), json_wanted)
            return CTRL_C if stopped else code
