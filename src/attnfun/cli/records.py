"""Networks and certificates as the flat records that tables and JSON share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnfun.cli.render import clean, grid, literal, number, shortened, status_text

MOST_HEADS = 40


def certificate_record(certificate: Any) -> dict[str, Any]:
    """A certificate in the command line's words: `error` is the upper end, `error_low` the witnessed lower one."""
    record: dict[str, Any] = clean(certificate.to_json())
    record["proof"] = record.pop("method")
    record["method"] = record.pop("construction") or None
    return record


AS_STORED = "as stored in the file, not verified; `attnfun verify` proves it again"


def error_text(record: dict[str, Any]) -> str:
    """The upper end with what it is: never ≤ before a measurement, never proved where it is not."""
    status, high = str(record["status"]), record["error"]
    if high is None:
        return "no finite bound"
    size = f"[bold]{number(high, 4)}[/]"
    if "sampled" in (status, record.get("claimed")):
        return f"about {size}  measured, no bound" + ("; as stored, not verified" if status == "stored" else "")
    words = {"proved": "proved", "conditional": "conditional", "stored": "as stored, not verified"}
    return f"≤ {size}  {words.get(status, 'bounded')}"


def network_record(name: str, net: Any, seconds: float | None = None) -> dict[str, Any]:
    """What `compile --json` and each row of `suite --json` carry."""
    cost = net.cost
    record = {"name": name, **certificate_record(net.certificate)}
    record |= {
        "realise": "mlp" if net.network.is_mlp else "attention",
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
    low, high, eps = record["error_low"], record["error"], record["eps"]
    seen = "as stored, not verified" if status == "stored" else "witnessed"
    asked = number(eps)
    if relative:
        asked += f"  ({number(relative.get('fraction'))} of the target's range {number(relative.get('range'))})"
    return [
        ("target", literal(str(record["target"]))),
        ("domain", literal(str(record["domain"]))),
        ("norm", "sup" if record["norm"] == "sup" else f"L^{number(record['norm'])} (volume-normalised)"),
        ("status", status_text(status)),
        ("error", error_text(record) + (f", in {record['dtype']}" if high is not None else "")),
        ("error is at least", f"{number(low, 4)}  {seen}" if low else None),
        ("slack", number(high / low) if low and high else None),
        ("eps", literal(asked) if eps is not None else "none was asked for" if status == "bounded" else None),
        ("parts", parts_text(record)),
        ("proof", literal(str(record["proof"]))),
        ("construction", literal(str(record["method"])) if record.get("method") else None),
        ("witness", literal(", ".join(f"{v!r}" for v in record["witness"])) if record.get("witness") else None),
        ("reason", literal(str(record["reason"])) if record.get("reason") else None),
        ("hypotheses", literal("\n".join(record["hypotheses"])) if record.get("hypotheses") else None),
    ]


def parts_text(record: dict[str, Any]) -> Any:
    """What the bound is made of; the names may be a file's."""
    parts: dict[str, float] = record.get("parts") or {}
    return literal(" + ".join(f"{key} {number(value)}" for key, value in parts.items())) if parts else None


def cost_rows(record: dict[str, Any]) -> list[tuple[str, Any]]:
    def plural(count: int, word: str) -> str:
        return f"{count:,} {word}{'' if count == 1 else 's'}"

    words = ("layer", "block", "unit") if record.get("realise") == "mlp" else ("layer", "head", "key")
    counts = (record["layers"], record["heads"], record["keys"])
    size = ", ".join(plural(count, word) for count, word in zip(counts, words, strict=True))
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


def step_rows(net: Any) -> list[dict[str, Any]]:
    """One record a coordinate of a composed network, none for others; `function` names earlier heads h1, h2, …"""
    from attnfun.plots.anatomy import anatomy

    whole = anatomy(net)
    if whole is None:
        return []
    return [
        {
            "layer": step.layer,
            "head": step.tag,
            "function": step.function,
            "name": step.name,
            "keys": step.keys,
            "pieces": len(step.heads),
            "range": [step.low, step.high],
            "ends": list(step.ends),
            "own": step.own,
            "share": step.share,
            "reads": list(step.reads),
        }
        for step in whole.steps
    ]


def step_table(steps: Sequence[dict[str, Any]], width: int, words: tuple[str, str] = ("head", "key")) -> Any:
    """The steps as a table: what each head does, on which range, and how much of the proved bound is born in it."""
    head, keys = words[0], f"{words[1]}s"
    columns = [("layer", "right"), (head, "left"), ("function", "left"), (keys, "right"), ("pieces", "right")]
    columns += [("range", "left"), ("own error", "right"), ("share", "right"), ("meaning", "left")]
    cells = [
        {
            "layer": str(step["layer"]),
            head: step["head"],
            "function": literal(shortened(step["function"], 22 if width < 100 else 36)),
            keys: number(step["keys"]),
            "pieces": str(step["pieces"]),
            "range": " … ".join(step["ends"]),
            "own error": number(step["own"]),
            "share": "–" if step["share"] is None else f"{step['share']:.1%}",
            "meaning": literal("" if step["name"] == step["function"] else step["name"]),
        }
        for step in steps[:MOST_HEADS]
    ]
    if width < 100:
        columns = [column for column in columns if column[0] != "meaning"]
    title = f"{head}s" if len(steps) <= MOST_HEADS else f"{head}s (the first {MOST_HEADS} of {len(steps):,})"
    return grid(title, columns, [[row[name] for name, _ in columns] for row in cells])


def head_table(heads: Sequence[dict[str, Any]]) -> Any:
    """Heads of any network: keys, lattice, rank, what they write."""
    columns = [("layer", "right"), ("head", "left"), ("keys", "right"), ("lattice", "left"), ("rank", "right")]
    return grid(
        "heads" if len(heads) <= MOST_HEADS else f"heads (the first {MOST_HEADS} of {len(heads):,})",
        [*columns, ("writes", "left")],
        [
            (
                str(head["layer"]),
                literal(head["name"]),
                number(head["keys"]),
                " × ".join(number(n) for n in head["lattice"]),
                str(head["rank"]),
                literal(", ".join(head["writes"])),
            )
            for head in heads[:MOST_HEADS]
        ],
    )


def join(names: Sequence[str]) -> str:
    return ", ".join(names)
