"""Networks and certificates as the flat records that tables and JSON share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnfun.cli.render import (
    clean,
    console,
    facts,
    grid,
    literal,
    number,
    print_json,
    progress_bar,
    shortened,
    status_text,
)

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


def model_record(model: Any, name: str | None = None, seconds: float | None = None) -> dict[str, Any]:
    """What a command that makes or shows a model carries as JSON: certificate, sizes, what its kind adds."""
    own = model.record()
    record = {"name": name or model.target.text, **certificate_record(model.certificate), "kind": model.target.kind}
    record |= {name: getattr(model.cost, name) for name in SIZES} | {"slack": model.certificate.slack} | own
    if seconds is not None:
        record["seconds"] = round(seconds, 3)
    return dict(clean(record))


SIZES = ("layers", "heads", "rank", "keys", "parameters", "query_dim", "max_value")
_SHOWN: tuple[str, ...] = ("name", "target", "domain", "norm", "status", "error", "error_low", "eps", "parts", "proof")
_SHOWN += ("method", "witness", "reason", "hypotheses", "verified", "claimed", "dtype", "relative", "slack", "details")
_SHOWN += (*SIZES, "kind", "realise", "seconds", "file", "png", "explanation", "head_list", "steps")
_SHOWN += ("inputs", "coordinates")


def model_rows(record: dict[str, Any]) -> list[tuple[str, Any]]:
    """A model's record as rows of one fact table: the certificate, the sizes, whatever its kind tells besides."""
    told = [(key.replace("_", " "), _told(value)) for key, value in record.items() if key not in _SHOWN]
    written = [(label, literal(record[key])) for key, label in (("file", "file"), ("png", "drawn")) if key in record]
    return [*proof_rows(record), *cost_rows(record), *told, *written]


def _told(value: Any) -> Any:
    """Any JSON value in a cell."""
    if value is None or value in ("", [], {}):
        return None
    if isinstance(value, dict):
        inside = [(key, _told(one)) for key, one in value.items()]
        return literal("\n".join(f"{key.replace('_', ' ')}: {text}" for key, text in inside if text is not None))
    if isinstance(value, list):
        parts = [str(text) for text in map(_told, value) if text is not None]
        return literal(("\n" if any(isinstance(one, (dict, str)) for one in value) else ", ").join(parts))
    return literal(number(value))


def print_model(record: dict[str, Any], as_json: bool, title: str = "", more: Sequence[Any] = ()) -> None:
    """JSON, or the fact table and what else there is to print."""
    if as_json:
        print_json(record)
        return
    screen = console()
    screen.print(facts(title if record.get("verified", True) else AS_STORED, model_rows(record)))
    for one in more:
        screen.print(one)


def kept(model: Any, record: dict[str, Any], output: str | None, picture: str | None) -> dict[str, Any]:
    """Save and draw; the record says where."""
    if output:
        model.save(output)
        record["file"] = output
    if picture:
        with progress_bar(f"draw {picture}"):
            model.plot(picture)
        record["png"] = picture
    return record


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
        ("norm", _norm(record)),
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


def _norm(record: dict[str, Any]) -> Any:
    """What the error is measured by: a name among the details says more than the number."""
    named = (record.get("details") or {}).get("norm")
    if named is not None:
        return literal(str(named))
    return "sup" if record["norm"] == "sup" else f"L^{number(record['norm'])} (volume-normalised)"


def detail_rows(record: dict[str, Any]) -> list[tuple[str, Any]]:
    """What a certificate promises besides its error: the numbers among its details."""
    details = record.get("details") or {}
    return [(key.replace("_", " "), _told(value)) for key, value in details.items() if isinstance(value, (int, float))]


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
    """One record a head of a network over fixed keys: its layer, its readable name, its keys and what it writes."""
    from attnfun.network import Network

    return [] if not isinstance(network, Network) else [
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
    from attnfun.network import Network
    from attnfun.plots.anatomy import anatomy

    whole = anatomy(net) if isinstance(getattr(net, "network", None), Network) else None
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
