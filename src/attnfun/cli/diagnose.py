"""The diagnose command: what every head of a file does, what is wrong with it, and the mend."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.arguments import check_writable, picture_path, read_domain, read_eps
from attnfun.cli.render import console, facts, grid, literal, number, print_json, progress_bar
from attnfun.errors import InvalidRequest

PANEL = "Laboratory"
_COLOURS = {"serious": "bold red", "warning": "yellow", "note": "dim", "healthy": "green"}
_COLUMNS = ("keys", "effective", "c = R·h²", "needed", "key norm", "max |V|", "max |f|", "error", "allowed", "rounding")
_MOST = 40  # rows of the table


def register(app: typer.Typer) -> None:
    """Hang the command on the app."""
    app.command("diagnose", rich_help_panel=PANEL)(diagnose_command)


def diagnose_command(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file of attnfun, or tensors K, V, … of a head.", show_default=False)
    ],
    domain: Annotated[
        list[str] | None, typer.Option("--domain", metavar="x=LOW:HIGH", help="Where to look, if not as the file says.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="EXPR", help="What it is for, if the file does not say.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="Judge it in float64, float32, float16 or bfloat16.")
    ] = None,
    eps: Annotated[
        str | None, typer.Option("--eps", help="Judge by this tolerance; else the file's, else 1 % of the range.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if a finding is serious.")] = False,
    png: Annotated[str | None, typer.Option("--png", metavar="[FILE]", help="Draw the head in most need.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """Say what every attention head over fixed keys does, which failure it shows, and the mend.

    Effective keys, sharpness against what its cells would need, resolution against the target's Lipschitz constant,
    norms, rounding; findings such as a fuzzy partition, a staircase, or values too large for the dtype. Everything is
    measured at sampled inputs; nothing here is a proof. A plain safetensors file of one head has tensors K (keys, a row
    each) and V, and may have b, W_Q, b_Q, beta; it needs --domain. Exit code 0 whatever is found, unless --strict.

    \b
    [bold]Examples[/bold]
      attnfun diagnose f.safetensors
      attnfun diagnose f.safetensors --dtype bfloat16 --json
      attnfun diagnose head.safetensors --domain x=-1:1 --domain y=0:1 --target 'sin(3*x)*y' --eps 0.01 --png
    """
    picture = picture_path(png, file)
    check_writable(picture)
    tolerance = None if eps is None else read_eps(eps)
    from attnfun.diagnosis import verb as diagnostics

    with progress_bar("diagnose") as progress:
        found = diagnostics.diagnose(
            file,
            domain=None if domain is None else read_domain(domain),
            target=target,
            dtype=dtype,
            eps=tolerance,
            progress=lambda name, share: progress(name, share),
        )
    if picture:
        if not found.heads:
            raise InvalidRequest(f"{file}: there is no head over fixed keys to draw")
        with progress_bar(f"draw {picture}"):
            found.plot(picture)
    code = 1 if strict and found.serious else 0
    if as_json:
        print_json({"status": "diagnosed", "file": file, **found.to_json()} | ({"png": picture} if picture else {}))
        return code
    _print(found, picture)
    return code


def _print(found: Any, picture: str | None) -> None:
    screen = console()
    screen.print(literal(found.about))
    if found.heads:
        columns = [("head", "left"), *((name, "right") for name in _COLUMNS)]
        screen.print(grid(None, columns, [_row(head.figures) for head in found.heads[:_MOST]]))
        if len(found.heads) > _MOST:
            screen.print(literal(f"… and {len(found.heads) - _MOST} more heads (--json has them all)"))
    shown = [one for one in found.findings if one.severity != "healthy"] or list(found.findings[:1])
    for one in shown[:_MOST]:
        screen.print(literal(f"{one.kind} ({one.severity}), {one.head}"), style=_COLOURS[one.severity])
        screen.print(literal(f"  {one.words[0].upper()}{one.words[1:]}."))
        for mend in one.mends:
            screen.print(literal(f"  Mend: {mend.words}."))
    if found.heads and shown[0].severity != "healthy":
        well = sum(head.findings[0].severity == "healthy" for head in found.heads)
        if well:
            screen.print(literal(f"{well} of {len(found.heads)} heads healthy"), style=_COLOURS["healthy"])
    for remark in found.remarks:
        screen.print(literal(remark))
    rows: list[tuple[str, Any]] = []
    if found.heads:
        rows.append(("measured", literal(f"{found.dtype}, at {found.points:,} sampled inputs; no figure is a bound")))
    if found.error is not None:
        eps = "" if found.eps is None else f", eps {number(found.eps)}"
        rows.append(("network", literal(f"error {number(found.error)} at these inputs{eps}")))
    rows += [("drawn", literal(picture))] if picture else []
    if rows:
        screen.print(facts("", rows))


def _row(f: Any) -> list[Any]:
    allowed = None if f.tolerance == float("inf") else f.tolerance
    numbers = (f.effective_mean, f.sharpness, f.sharpness_needed if f.sharpness is not None else None, f.key_norm_max)
    more = (f.value_max, f.size, f.error, allowed, f.rounding)
    name = f.name if len(f.name) <= 34 else f.name[:33] + "…"
    return [literal(f"{f.layer + 1} {name}"), number(f.keys), *(number(v) for v in (*numbers, *more))]
