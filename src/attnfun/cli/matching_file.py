"""`attnfun show` for the file of a network that matches."""

from __future__ import annotations

from typing import Any

from attnfun.cli.render import console, facts, literal, number, print_json, status_text
from attnfun.errors import InvalidRequest


def show_matching(net: Any, path: str, picture: str | None, as_json: bool) -> int:
    """Print what a file holds that matches pairs or triples; `net` is a Matching, proved when it was loaded."""
    if picture:
        raise InvalidRequest(f"{path} holds a network that matches whole numbers: there is no picture of it")
    record = {"name": net.certificate.target, **net.record(), "file": path}
    if as_json:
        print_json(record)
        return 0
    bound = f"≥ {number(record['match_at_least'], 4)} on a match, ≤ {number(record['other_at_most'], 4)} otherwise"
    rows = [
        ("target", literal(record["name"])),
        ("domain", literal(net.certificate.domain)),
        ("status", status_text(record["status"])),
        ("output", literal(f"{bound}, in {record['dtype']}")),
        ("size", literal(f"{record['heads']} head(s) of rank {record['rank']}, {record['parameters']:,} parameters")),
        ("logits", literal(f"up to {number(record['scale'])}, off by {number(record['logit_error'])} at most")),
        ("hypotheses", literal("\n".join(record["hypotheses"]))),
    ]
    console().print(facts("", rows))
    return 0
