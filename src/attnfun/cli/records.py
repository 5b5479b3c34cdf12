"""Networks and certificates as the flat records that tables and JSON share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnfun.cli.render import clean, literal, number, status_text


def certificate_record(certificate: Any) -> dict[str, Any]:
    """A certificate in the command line's words: `error` is the proved upper end, `error_low` the witnessed one."""
    record: dict[str, Any] = clean(certificate.to_json())
    record["proof"] = record.pop("method")
    record["method"] = record.pop("construction") or None
    return record


def network_record(name: str, net: Any, seconds: float | None = None) -> dict[str, Any]:
    """What `compile --json` and each row of `suite --json` carry."""
    cost = net.cost
    record = {"name": name, **certificate_record(net.certificate)}
    record |= {
        "layers": cost.layers,
        "heads": cost.heads,
        "rank": cost.rank,
        "keys": cost.keys,
        "parameters": cost.parameters,
        "query_dim": cost.query_dim,
        "max_value": cost.max_value,
        "slack": net.certificate.slack,
    }
    if seconds is not None:
        record["seconds"] = round(seconds, 3)
    return clean(record)


def proof_rows(record: dict[str, Any]) -> list[tuple[str, Any]]:
    """The certificate as rows of a fact table."""
    status, relative = str(record["status"]), record.get("relative")
    bound = "measured" if status == "sampled" else "proved"
    low, high, eps = record["error_low"], record["error"], record["eps"]
    asked = number(eps)
    if relative:
        asked += f"  ({number(relative.get('fraction'))} of the target's range {number(relative.get('range'))})"
    return [
        ("target", literal(str(record["target"]))),
        ("domain", literal(str(record["domain"]))),
        ("norm", "sup" if record["norm"] == "sup" else f"L^{number(record['norm'])} (volume-normalised)"),
        ("status", status_text(status)),
        (
            "error",
            f"≤ [bold]{number(high, 4)}[/]  {bound}, in {record['dtype']}" if high is not None else "no finite bound",
        ),
        ("error is at least", f"{number(low, 4)}  witnessed" if low else None),
        ("slack", number(high / low) if low and high else None),
        ("eps", asked if eps is not None else None),
        ("parts", _parts(record)),
        ("proof", literal(str(record["proof"]))),
        ("construction", record.get("method")),
        ("witness", literal(", ".join(f"{v!r}" for v in record["witness"])) if record.get("witness") else None),
        ("reason", literal(str(record["reason"])) if record.get("reason") else None),
        ("hypotheses", literal("\n".join(record["hypotheses"])) if record.get("hypotheses") else None),
    ]


def _parts(record: dict[str, Any]) -> str | None:
    parts: dict[str, float] = record.get("parts") or {}
    return " + ".join(f"{key} {number(value)}" for key, value in parts.items()) or None


def cost_rows(record: dict[str, Any]) -> list[tuple[str, Any]]:
    def plural(count: int, word: str) -> str:
        return f"{count:,} {word}{'' if count == 1 else 's'}"

    size = ", ".join(plural(record[f"{word}s"], word) for word in ("layer", "head", "key"))
    return [
        ("size", f"{size}, rank {number(record['rank'])}"),
        ("parameters", number(record["parameters"])),
        ("largest value", number(record.get("max_value"))),
        ("seconds", number(record["seconds"]) if "seconds" in record else None),
    ]


def head_rows(network: Any) -> list[dict[str, Any]]:
    """One record a head: its layer, its readable name, its keys and what it writes."""
    return [
        {
            "layer": depth,
            "name": head.name,
            "keys": int(head.keys),
            "lattice": [len(axis.biases) for axis in head.axes],
            "rank": int(head.rank),
            "writes": list(head.writes),
            "keys_are": head.key_names,
        }
        for depth, layer in enumerate(network.layers, start=1)
        for head in layer.heads
    ]


def join(names: Sequence[str]) -> str:
    return ", ".join(names)
