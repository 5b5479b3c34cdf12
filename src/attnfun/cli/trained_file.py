"""`attnfun show` for the files of trained models: towers, heads, networks of a sampler, heads over a table."""

from __future__ import annotations

from typing import Any

from attnfun.cli.records import certificate_record, cost_rows, proof_rows
from attnfun.cli.render import clean, console, facts, literal, print_json
from attnfun.errors import InvalidRequest


def show_trained(net: Any, path: str, picture: str | None, as_json: bool) -> int:
    """Print what such a file holds; the certificate is the stored one."""
    if picture:
        raise InvalidRequest(f"{path} holds a trained model, of which there is no picture")
    cost = net.cost
    record = {"name": net.target.text, **certificate_record(net.certificate), "kind": type(net).__name__, "file": path}
    record |= {"layers": cost.layers, "heads": cost.heads, "rank": cost.rank, "keys": cost.keys}
    record |= {"parameters": cost.parameters, "query_dim": cost.query_dim, "max_value": cost.max_value}
    record["explanation"] = net.explain()
    if as_json:
        print_json(dict(clean(record)))
        return 0
    console().print(facts("as stored in the file, not verified", [*proof_rows(record), *cost_rows(record)]))
    console().print(literal(record["explanation"]))
    return 0
