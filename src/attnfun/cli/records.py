"""Models and certificates as the flat records that pages and JSON share."""

from collections.abc import Iterator, Sequence
from typing import Any

from attnfun.cli.render import Part, clean, literal, number, status_text, told, viewed

MOST_HEADS = 40
AS_STORED = "[bold]as stored in the file, not verified; `attnfun verify` proves it again[/]"
SIZES = ("layers", "heads", "rank", "keys", "parameters", "query_dim", "max_value")
_SHOWN: tuple[str, ...] = ("name", "target", "domain", "norm", "status", "error", "error_low", "eps", "parts", "proof")
_SHOWN += ("method", "witness", "reason", "hypotheses", "verified", "claimed", "dtype", "relative", "slack", "details")
_SHOWN += (*SIZES, "kind", "realise", "seconds", "file", "png", "explanation", "head_list", "steps")
_SHOWN += ("inputs", "coordinates", "hash")


def certificate_record(certificate: Any) -> dict[str, Any]:
    """A certificate in the command line's words: `error` is the upper end, `error_low` the witnessed lower one."""
    record: dict[str, Any] = clean(certificate.to_json())
    record["proof"] = record.pop("method")
    record["method"] = record.pop("construction") or None
    return record


def model_record(model: Any, name: str | None = None, seconds: float | None = None) -> dict[str, Any]:
    """What a command that makes or shows a model carries as JSON: certificate, sizes, what its kind adds."""
    own = model.record()
    record = {"name": name or model.target.text, **certificate_record(model.certificate), "kind": model.target.kind}
    record |= {name: getattr(model.cost, name) for name in SIZES} | {"slack": model.certificate.slack} | own
    if seconds is not None:
        record["seconds"] = round(seconds, 3)
    return dict(clean(record))


def model_page(record: dict[str, Any]) -> list[Part]:
    """A model's record as facts: the certificate, the sizes, whatever its kind tells besides; then its heads."""
    parts: list[Part] = [] if record.get("verified", True) else [AS_STORED]
    parts += [*certificate_facts(record), *_sizes(record)]
    named = {*_SHOWN, "band"} if isinstance(record.get("band"), str) else _SHOWN  # with the norm
    parts += [(key.replace("_", " "), told(value) or None) for key, value in record.items() if key not in named]
    parts += viewed(record, [["file", "{file}"], ["drawn", "{png}"]])
    parts += heads_page(record) if "explanation" in record else []
    return parts


def certificate_facts(record: dict[str, Any]) -> list[Part]:
    """The certificate as facts."""
    from attnfun.language.numbers import at_least, at_most

    status, relative = str(record["status"]), record.get("relative")
    low, high, eps = record["error_low"], record["error"], record["eps"]
    seen = "as stored, not verified" if status == "stored" else "witnessed"
    witnessed = status != "sampled"  # what was measured is told once, and bounds nothing from below either
    asked = number(eps)
    if relative:
        asked += f"  ({number(relative.get('fraction'))} of the target's range {number(relative.get('range'))})"
    parts: dict[str, float] = record.get("parts") or {}
    sum_of_parts = " + ".join(f"{literal(key)} {at_most(value, 3)}" for key, value in parts.items())
    first: list[Part] = [
        *viewed(record, [["target", "{target}"], ["domain", "{domain}"]]),
        ("norm", _norm(record)),
        ("status", status_text(status)),
        ("error", _error(record) + (f", in {record['dtype']}" if high is not None else "")),
        ("error is at least", f"{at_least(low)}  {seen}" if low and witnessed else None),
        ("slack", number(high / low) if low and high and witnessed else None),
        ("eps", asked if eps is not None else "none was asked for" if status == "bounded" else None),
        ("parts", sum_of_parts or None),
    ]
    rest = [["proof", "{proof}"], ["construction", "{method}"], ["witness", "{exactly}"], ["reason", "{reason}"]]
    exactly = ", ".join(map(repr, record.get("witness") or ()))
    return [*first, *viewed(record | {"exactly": exactly}, [*rest, ["hypotheses", "{hypotheses}"]])]


def _error(record: dict[str, Any]) -> str:
    """The upper end with what it is: never ≤ before a measurement, never proved where it is not."""
    from attnfun.language.numbers import at_most

    status, high = str(record["status"]), record["error"]
    if high is None:
        return "no finite bound"
    size = f"[bold]{at_most(high)}[/]"
    if "sampled" in (status, record.get("claimed")):
        return f"about {size}  measured, not a bound" + ("; as stored, not verified" if status == "stored" else "")
    words = {"proved": "proved", "conditional": "conditional", "stored": "as stored, not verified"}
    return f"≤ {size}  {words.get(status, 'bounded')}"


def _norm(record: dict[str, Any]) -> str:
    """What the error is measured by: a name among the details says more than the number."""
    named = (record.get("details") or {}).get("norm")
    if named is not None:
        return literal(str(named))
    if isinstance(record.get("band"), str):  # of a function; a relation tells of its own
        return f"sup, off the band {literal(record['band'])}"
    return "sup" if record["norm"] == "sup" else f"L^{number(record['norm'])} (volume-normalised)"


def verdict_page(record: dict[str, Any]) -> list[Part]:
    """A certificate alone, and what it promises besides its error: the numbers among its details."""
    details = (record.get("details") or {}).items()
    promised: list[Part] = [(key.replace("_", " "), told(one)) for key, one in details if isinstance(one, (int, float))]
    return [*certificate_facts(record), *promised, ("seconds", number(record["seconds"]))]


def _sizes(record: dict[str, Any]) -> list[Part]:
    words = ("layer", "block", "unit") if record.get("realise") == "mlp" else ("layer", "head", "key")
    counts = zip((record["layers"], record["heads"], record["keys"]), words, strict=True)
    size = ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts)
    facts = [("size", f"{size}, rank {number(record['rank'])}"), ("parameters", number(record["parameters"]))]
    return [*facts, ("largest value", number(record.get("max_value"))), *viewed(record, [["seconds", "{seconds}"]])]


def head_rows(network: Any) -> list[dict[str, Any]]:
    """One record per head of a network over fixed keys: its layer, its readable name, its keys and what it writes."""
    from attnfun.network import Network

    rows = []
    for depth, layer in enumerate(network.layers if isinstance(network, Network) else (), start=1):
        for head in layer.heads:
            row = {"layer": depth, "name": head.name, "keys": int(head.keys), "lattice": list(head.grid)}
            rows.append(row | {"rank": int(head.rank), "writes": list(head.writes), "keys_are": head.key_names})
    return rows


def step_rows(net: Any) -> list[dict[str, Any]]:
    """One record per coordinate of a composed network, none for others; `function` names earlier heads h1, h2, …"""
    from attnfun.network import Network
    from attnfun.plots.anatomy import anatomy

    whole, rows = anatomy(net) if isinstance(getattr(net, "network", None), Network) else None, []
    for step in whole.steps if whole is not None else ():
        row = {"layer": step.layer, "head": step.tag, "function": step.function, "name": step.name, "keys": step.keys}
        row |= {"pieces": len(step.heads), "range": [step.low, step.high], "ends": list(step.ends)}
        rows.append(row | {"own": step.own, "share": step.share, "reads": list(step.reads)})
    return rows


def heads_page(record: dict[str, Any]) -> Iterator[Part]:
    """What each head does: of a composed network its range, and how much of the proved bound is born in it."""
    head, key = ("block", "unit") if record.get("realise") == "mlp" else ("head", "key")
    every: Sequence[dict[str, Any]] = record.get("steps") or record.get("head_list") or ()
    several = f"{head}s" if len(every) <= MOST_HEADS else f"{head}s (the first {MOST_HEADS} of {len(every):,})"
    columns = ["head=name", "layer", "keys", "lattice: × ", "rank", "writes:, "]
    if "steps" in record:
        columns = [
            f"{head}=head",
            "layer",
            "function",
            f"{key}s=keys",
            "pieces",
            "range=ends: to ",
            "own error=own:at most",
        ]
        columns += ["share:.1%", "meaning"]
    rows = [one | {"meaning": "" if one["name"] == one.get("function") else one["name"]} for one in every[:MOST_HEADS]]
    yield from viewed({"rows": rows}, [{"table": "rows", "columns": columns, "title": several}])
    yield literal(record["explanation"])
