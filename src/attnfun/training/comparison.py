"""`compare`: constructed and learned networks for one target, on one table and one axis."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attnfun.approximant import Approximant
from attnfun.errors import InvalidRequest
from attnfun.learn.probe import errors, key_norms
from attnfun.lexicographic_head import LexicographicHead
from attnfun.network import Cost
from attnfun.network.head import Array
from attnfun.training.train import MEASURED, Learned, measuring_points, require_callable

_COLUMNS = ("name", "keys", "heads", "layers", "parameters", "sup", "l2", "bound", "key norm", "steps", "seconds")


@dataclass(frozen=True)
class Entry:
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
class Comparison:
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
        from attnfun.plots.compare import draw_comparison

        return draw_comparison(self.entries, f"{self.target[:70]}  on  {self.domain[:50]}", path)


def compare(*networks: Any, names: tuple[str, ...] | None = None) -> Comparison:
    """What each network costs and how far it is from the target of the first, measured for all at the same points.

    `networks`: what `compile`, `load`, `train` or a verb whose networks `train` takes returned, all for one target on
    one domain. Measured errors are lower ends, never bounds; `bound` is the certificate's, where it has one.
    """
    if names is not None and len(names) != len(networks):
        raise InvalidRequest(f"{len(names)} names for {len(networks)} networks")
    given = names or _distinct([_name(network) for network in networks])
    inner = [network.approximant if isinstance(network, Learned) else network for network in networks]
    if inner and not any(isinstance(one, Approximant) for one in inner):
        return _compare_models(networks, inner, given)
    if not inner:
        raise InvalidRequest("compare takes networks that `compile`, `load` or `train` returned, all for one target")
    strange = next((one for one in inner if not isinstance(one, Approximant)), None)
    if strange is not None:
        first = next(one for one in inner if isinstance(one, Approximant))
        raise InvalidRequest(
            f"compare needs one target: {first.target.text[:60]} is a function on a box, and a "
            f"{type(strange).__name__} is not for it"
        )
    target = networks[0].target
    for network in networks:
        require_callable(network.target)
    for other in networks[1:]:
        same = other.target.box == target.box and other.target.text == target.text
        if not same or len(other.target.outputs) != len(target.outputs):
            raise InvalidRequest(
                f"compare needs one target: {target.text[:60]} on {target.box.text}, "
                f"not {other.target.text[:60]} on {other.target.box.text}"
            )
    X = measuring_points(target.box)
    entries = []
    for network, one, name in zip(networks, inner, given, strict=True):
        error = errors(one.network, one.target, X)
        entries.append(_entry(network, one, name, error, error[:MEASURED], key_norms(one.network)[1]))
    return Comparison(target.text, target.box.text, len(X), tuple(entries))


def _compare_models(networks: tuple[Any, ...], inner: list[Any], names: tuple[str, ...]) -> Comparison:
    """The same for all other kinds (`measuring`)."""
    from attnfun.training.measuring import yardstick

    sticks = [yardstick(one) for one in inner]
    for other in sticks[1:]:
        if other.same != sticks[0].same:
            raise InvalidRequest(f"compare needs one target: {sticks[0].text[:60]}, not {other.text[:60]}")
    least = min(sticks, key=lambda stick: stick.count)
    entries = []
    for network, one, name in zip(networks, inner, names, strict=True):
        error = least.errors(one)
        entries.append(_entry(network, one, name, error, error, _token_norm(one)))
    return Comparison(least.text, least.domain, least.count, tuple(entries))


def _token_norm(one: Any) -> float | None:
    from attnfun.learn.token_weights import token_norms
    from attnfun.network import Network, TokenNetwork, TokenTransformer
    from attnfun.retrieval import Retrieval

    if isinstance(one, Retrieval) and one.relation.features_only:
        return None
    network = getattr(one, "network", None)
    if isinstance(network, (TokenNetwork, TokenTransformer)):
        return token_norms(network)[1]
    towers = network if isinstance(network, tuple) else (network,) if isinstance(network, Network) else _towers(one)
    return max((top for tower in towers if (top := key_norms(tower)[1]) is not None), default=None)


def _towers(one: Any) -> tuple[Any, ...]:
    """The networks of a constructed relation; none of anything else."""
    from attnfun.relations import RelationApproximant

    if not isinstance(one, RelationApproximant) or one.features_only:
        return ()
    return (one.left.network,) if one.stored.signs is not None else (one.left.network, one.right.network)


def _cost(one: Any) -> Cost:
    """Of a relation that of its towers; features without any have a rank alone."""
    found = getattr(one, "cost", None)
    if isinstance(found, Cost):
        return found
    from attnfun.training.models.tower import cost_of

    towers = _towers(one)
    return cost_of(towers) if towers else Cost(0, 0, one.rank, 0, 0, 0, 0.0, 0)


def _entry(network: Any, one: Any, name: str, error: Array, uniform: Array, norm: float | None) -> Entry:
    certificate, cost = getattr(one, "certificate", None), _cost(one)
    bound, status = None, "sampled" if certificate is None else certificate.status.value
    if certificate is not None and certificate.bounds:
        bound = certificate.error[1]
        if certificate.method == "retrieval":  # `error` is that of the scores; what is measured here is the output
            bound = certificate.details.get("output_error")
    elif isinstance(one, LexicographicHead):  # exact by construction: there is no number to show
        status = "proved"
    trained = network.fit if isinstance(network, Learned) else None
    return Entry(
        name,
        cost.keys,
        cost.heads,
        cost.layers,
        cost.parameters,
        float(error.max()),
        float(np.sqrt(np.mean(uniform**2))),
        bound,
        status,
        norm,
        cost.max_value,
        None if trained is None else trained.steps,
        None if trained is None else trained.seconds,
    )


def _name(network: Any) -> str:
    if isinstance(network, Learned):
        return f"learned from {network.start} start"
    if getattr(network, "request", None) and network.request.get("method") == "train":
        return "learned, as stored"
    certificate = getattr(network, "certificate", None)
    made = "" if certificate is None else certificate.construction
    made = made or getattr(network, "method", "") or "network"
    return "learned, as stored" if made == "learned" else f"constructed ({made})"


def _distinct(names: list[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}, {seen[name]}")
    return tuple(out)


def bound_text(entry: Entry, number: Callable[[float | None], str]) -> str:
    """The bound with what it is: alone only where it meets the eps that was asked for."""
    alone = entry.bound is None or entry.status in ("proved", "conditional")
    return number(entry.bound) + ("" if alone else f" {entry.status}")


def _cells(entry: Entry) -> tuple[str, ...]:
    def number(value: float | None, text: str = ".2e") -> str:
        return "–" if value is None else format(value, text)

    whole = (f"{value:,}" for value in (entry.keys, entry.heads, entry.layers, entry.parameters))
    errors_ = number(entry.sup), number(entry.l2), bound_text(entry, number), number(entry.key_norm_max, ".3g")
    return entry.name, *whole, *errors_, number(entry.steps, ",d"), number(entry.seconds, ".1f")
