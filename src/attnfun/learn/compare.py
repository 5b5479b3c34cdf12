"""`compare`: constructed and learned networks for one target, on one table and one axis."""

import math
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.language.brief import Brief
from attnfun.language.numbers import at_most
from attnfun.learn.probe import Measured, key_norms, measured
from attnfun.model import Model
from attnfun.network import Network

_COLUMNS = ("name", "keys", "heads", "layers", "parameters", "sup", "l2", "bound", "key norm", "steps", "seconds")


@dataclass(frozen=True)
class Entry(Brief):
    """One network: its size, its errors measured on the points of the comparison, and the bound of its certificate.

    `status` says what `bound` is: `proved` and `conditional` bounds meet the eps that was asked for, a `bounded` one
    had no eps to meet, a `stored` one is as the file says, not verified. None where there is no bound.
    `key_norm_max` is the largest |W_Qᵀ k_j| of a network with keys, of one on tokens the largest norm of W_Q W_Kᵀ.
    `l2` is the root of the mean squared error at the uniform points (of all outputs together); `steps` and `seconds`
    are None for networks that were not trained.
    """

    name: str
    keys: int
    heads: int
    layers: int
    parameters: int
    sup: float
    l2: float
    bound: float | None
    status: str
    key_norm_max: float | None
    value_max: float
    steps: int | None
    seconds: float | None


@dataclass(frozen=True)
class Comparison(Brief):
    """Entries in the order given; as text, a table."""

    target: str
    domain: str
    points: int
    entries: tuple[Entry, ...]

    def to_json(self) -> dict[str, Any]:
        own: dict[str, Any] = {"target": self.target, "domain": self.domain, "points": self.points}
        return own | {"rows": [asdict(entry) for entry in self.entries]}

    def __str__(self) -> str:
        table = [_COLUMNS, *(_cells(entry) for entry in self.entries)]
        widths = [max(len(row[k]) for row in table) for k in range(len(_COLUMNS))]
        lines = [f"{self.target}  on  {self.domain}; errors measured at {self.points:,} points"]
        for row in table:
            cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Sup error, L2 error and bound of every network on one logarithmic axis."""
        from attnfun.plots.model import draw_comparison

        return draw_comparison(self.entries, f"{self.target[:70]}  on  {self.domain[:50]}", path)


def compare(*networks: Any, names: tuple[str, ...] | None = None) -> Comparison:
    """What each model costs and how far it is from the target of the first, measured for all at the same draws.

    `networks`: models of any kind, constructed, loaded or trained, all for one target on one domain. Measured errors
    are lower ends, never bounds; `bound` is the certificate's, where it has one.
    """
    if names is not None and len(names) != len(networks):
        raise InvalidRequest(f"{len(names)} names for {len(networks)} networks")
    strange = next((one for one in networks if not isinstance(one, Model)), None)
    require(networks and strange is None, "compare takes models that `compile`, `load` or `train` made, for one target")
    target = networks[0].target
    for other in networks[1:]:
        if not target.same(other.target):
            raise InvalidRequest(
                f"compare needs one target: {target.text[:60]} on {target.domain[:60]}, "
                f"not {other.target.text[:60]} on {other.target.domain[:60]}"
            )
    count = min(target.sample_size(one.weights) for one in networks)
    given = names or _distinct([_name(one) for one in networks])
    seen = [measured(one.target, one.weights, count) for one in networks]
    entries = [_entry(one, name, found, count) for one, name, found in zip(networks, given, seen, strict=True)]
    return Comparison(target.text, target.domain, seen[0].count, tuple(entries))


def _entry(model: Any, name: str, seen: Measured, uniform: int) -> Entry:
    certificate, cost, fit = model.certificate, model.cost, model.fit
    bound = certificate.details.get("output_error", certificate.error[1]) if certificate.bounds else None
    finite = bound if bound is not None and math.isfinite(bound) else None
    off = float(seen.errors.max()), float(np.sqrt(np.mean(seen.errors[:uniform] ** 2)))
    sizes = cost.keys, cost.heads, cost.layers, cost.parameters
    spent = (None, None) if fit is None else (fit.steps, fit.seconds)
    known = finite, certificate.status.value, _key_norm(model.weights), cost.max_value
    return Entry(name, *sizes, *off, *known, *spent)


def _key_norm(weights: Any) -> float | None:
    """The largest over the networks in the weights."""
    from attnfun.learn.weights import token_norms

    networks = getattr(weights, "networks", (weights,))
    found = [(key_norms if isinstance(one, Network) else token_norms)(one)[1] for one in networks]
    return max((top for top in found if top is not None), default=None)


def _name(model: Any) -> str:
    if model.fit is not None:
        return f"learned from {model.fit.start} start"
    made = model.certificate.construction or model.story.get("construction") or "network"
    return "learned, as stored" if model.trained or made == "learned" else f"constructed ({made})"


def _distinct(names: list[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}, {seen[name]}")
    return tuple(out)


def bound_text(entry: Entry) -> str:
    """The bound with what it is: alone only where it meets the eps that was asked for."""
    if entry.bound is None:
        return "–"
    return at_most(entry.bound, 3) + ("" if entry.status in ("proved", "conditional") else f" {entry.status}")


def _cells(entry: Entry) -> tuple[str, ...]:
    def number(value: float | None, text: str = ".2e") -> str:
        return "–" if value is None else format(value, text)

    whole = (f"{value:,}" for value in (entry.keys, entry.heads, entry.layers, entry.parameters))
    errors_ = number(entry.sup), number(entry.l2), bound_text(entry), number(entry.key_norm_max, ".3g")
    return entry.name, *whole, *errors_, number(entry.steps, ",d"), number(entry.seconds, ".1f")
