"""`attnfun bounds matching`: the heads that one layer needs for triples, by bits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnfun.cli.render import console, facts, literal, number, print_json


def matching_command(
    tokens: Annotated[int, typer.Option("--tokens", metavar="N", help="Tokens in the context.", show_default=False)],
    rank: Annotated[int, typer.Option("--rank", metavar="R", help="Width of a head's values.", show_default=False)],
    bits: Annotated[int, typer.Option("--bits", metavar="P", help="Bits of a number.", show_default=False)],
    heads: Annotated[int | None, typer.Option("--heads", metavar="H", help="Also: are so many heads too few?")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")] = False,
) -> int:
    """The heads that one layer needs to find three tokens that sum to 0, by the bits it can carry.

    \b
    [bold]Examples[/bold]
      attnfun bounds matching --tokens 8192 --rank 1 --bits 8
      attnfun bounds matching --tokens 131072 --rank 64 --bits 32 --heads 16 --json
    """
    from attnfun import bounds

    record = bounds.matching(tokens, rank, bits, heads).record()
    if as_json:
        print_json(record)
    else:
        _print(record)
    return 0


def _print(record: dict[str, Any]) -> None:
    problem = f"triples among {record['tokens']:,} tokens, heads of value width {record['rank']:,}, "
    problem += f"{record['bits']:,}-bit numbers, one layer"
    verdict = {None: None, True: "[bold red]impossible[/]", False: "not excluded (which is no construction)"}
    quoted = [f"{q['name']}: {q['statement']} → {number(q['value'])} ({q['caveat']})" for q in record["published"]]
    rows = [
        ("problem", literal(problem)),
        ("heads", f"≥ [bold]{record['heads_needed']:,}[/]  for {record['bits_needed']:,} bits must pass"),
        (f"{number(record['heads'])} heads", verdict[record["excluded"]]),
        ("hypotheses", literal("\n".join(record["hypotheses"]))),
        ("source", literal(record["source"])),
        ("quoted, no bounds", literal("\n".join(quoted))),
    ]
    console().print(facts("", rows))
