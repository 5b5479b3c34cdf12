"""The ternary command: an expression in three variables in, a proved trilinear form out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, read_domain, read_eps, unshield
from attnfun.cli.records import AS_STORED, error_text, parts_text
from attnfun.cli.render import console, facts, literal, number, print_json, progress_bar, status_text
from attnfun.errors import InvalidRequest

PANEL = "Relations"


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("ternary", rich_help_panel=PANEL)(ternary_command)


def ternary_command(
    expression: Annotated[
        str, typer.Argument(metavar="EXPR", help="A relation of three variables.", show_default=False)
    ],
    domain: Annotated[
        list[str],
        typer.Option("--domain", metavar="x=LOW:HIGH", help="One interval a variable.", show_default=False),
    ],
    eps: Annotated[str, typer.Option("--eps", metavar="NUMBER", help="The sup-norm tolerance.", show_default=False)],
    output: Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Save it here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Functions a, b, c with |relation(x, y, z) − Σ a(x) b(y) c(z)| ≤ eps everywhere, proved, in few terms.

    \b
    [bold]Examples[/bold]
      attnfun ternary 'x*y + y*z + x*z' --domain 'x=0:1;y=0:1;z=0:1' --eps 1e-6
      attnfun ternary 'exp(-x*y*z)' --domain x=0:1 --domain y=0:1 --domain z=0:2 --eps 1e-8 -o t.safetensors --json
    """
    check_writable(output)
    tolerance = read_eps(eps)
    from attnfun.trilinear import ternary

    with progress_bar("ternary") as progress:
        found = ternary(unshield(expression), read_domain(domain), tolerance, progress=progress)
    record = found.record()
    if output:
        found.save(output)
        record["file"] = output
    return _answer(record, as_json)


def show_ternary(found: Any, path: str, png: str | None, as_json: bool) -> int:
    """What `attnfun show` prints of a trilinear form's file: the stored certificate and its sizes."""
    if png is not None:
        raise InvalidRequest(f"{path} holds a trilinear form; --png draws networks of functions")
    return _answer({**found.record(), "file": path}, as_json)


def _answer(record: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(record)
        return 0
    least = f"(any form needs at least {number(record['rank_lower'])}{'' if record['verified'] else ', as stored'})"
    rows = [
        ("relation", literal(str(record["target"]))),
        ("domain", literal(str(record["domain"]))),
        ("status", status_text(str(record["status"]))),
        ("error", error_text(record) if record["error"] is not None else None),
        ("terms", f"[bold]{number(record['rank'])}[/]  {least}"),
        ("degrees", ", ".join(number(n) for n in record["degrees"])),
        ("parts", parts_text(record)),
        ("hypotheses", literal("\n".join(record["hypotheses"])) if record["hypotheses"] else None),
        ("seconds", number(record["seconds"])),
        ("file", literal(record["file"]) if "file" in record else None),
    ]
    console().print(facts("" if record["verified"] else AS_STORED, rows))
    return 0
