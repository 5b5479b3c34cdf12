"""The Certificate: what is proved of a network, by which method, under which hypotheses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from attnfun.errors import DamagedFile


class Status(StrEnum):
    """What may be said; `meaning` is the sentence a user reads."""

    PROVED = "proved"
    CONDITIONAL = "conditional"
    SAMPLED = "sampled"
    REFUTED = "refuted"
    UNDECIDED = "undecided"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Status.PROVED: "holds at every point of the domain, rounding included, under the printed hypotheses",
    Status.CONDITIONAL: "proved if the declared hypothesis about the target holds",
    Status.SAMPLED: "measured at finitely many points only; not a bound",
    Status.REFUTED: "a point of the domain was found where the error exceeds eps",
    Status.UNDECIDED: "neither proved nor refuted by the methods at hand",
}


@dataclass(frozen=True)
class Certificate:
    """|f − network| in `norm` lies in `error` = (low, high): low witnessed in balls, high proved (or, if sampled,
    measured).

    `low` is about the network in real arithmetic at one float64 point; `high` covers every point and rounding. `parts`
    splits `high`: "construction" (the network in real arithmetic, from the stored weights) and "rounding" (its
    evaluation in `dtype` by any route, from the real network), or "rounding at walls" (what evaluation adds to the
    bound of a partition: it may move walls, and so a value near one to the next cell's). `witness` is the point behind
    `low` (None for L^p norms).
    """

    status: Status
    error: tuple[float, float]
    eps: float | None
    norm: float
    dtype: str
    method: str
    target: str
    domain: str
    construction: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    hypotheses: tuple[str, ...] = ()
    witness: tuple[float, ...] | None = None
    relative: Mapping[str, Any] | None = None
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        low, high = self.error
        if not (0 <= low <= high):  # written so that NaN fails
            raise AssertionError(f"a certificate with low {low} above high {high} must never be issued")

    @property
    def slack(self) -> float:
        """Proved upper end over witnessed lower end; infinity where nothing was witnessed."""
        low, high = self.error
        return high / low if low > 0 else (1.0 if high == 0 else math.inf)

    def to_json(self) -> dict[str, Any]:
        low, high = self.error
        return {
            "status": self.status.value,
            "error_low": low,
            "error": high if math.isfinite(high) else None,
            "eps": self.eps,
            "norm": "sup" if math.isinf(self.norm) else self.norm,
            "dtype": self.dtype,
            "method": self.method,
            "construction": self.construction,
            "target": self.target,
            "domain": self.domain,
            "parts": {k: v for k, v in self.parts.items() if math.isfinite(v)},
            "hypotheses": list(self.hypotheses),
            "witness": list(self.witness) if self.witness is not None else None,
            "relative": dict(self.relative) if self.relative else None,
            "reason": self.reason,
            "details": dict(self.details),
        }

    @classmethod
    def stored(cls, data: Any, norm: float, dtype: str, target: str, domain: str) -> Certificate:
        """The certificate that a file holds, or one that says that it holds none."""
        if data is not None:
            return cls.from_json(data)
        nothing = Status.UNDECIDED, (0.0, math.inf), None, norm, dtype, "none", target, domain
        return cls(*nothing, reason="the file holds no certificate")

    @classmethod
    def from_json(cls, data: Any) -> Certificate:
        try:
            high = data["error"]
            norm = data["norm"]
            witness = data.get("witness")
            return cls(
                status=Status(data["status"]),
                error=(float(data["error_low"]), math.inf if high is None else float(high)),
                eps=None if data.get("eps") is None else float(data["eps"]),
                norm=math.inf if norm == "sup" else float(norm),
                dtype=str(data["dtype"]),
                method=str(data["method"]),
                target=str(data["target"]),
                domain=str(data["domain"]),
                construction=str(data.get("construction", "")),
                parts={str(k): float(v) for k, v in data.get("parts", {}).items()},
                hypotheses=tuple(str(h) for h in data.get("hypotheses", ())),
                witness=None if witness is None else tuple(float(v) for v in witness),
                relative=data.get("relative"),
                reason=data.get("reason"),
                details=data.get("details", {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise DamagedFile(f"the stored certificate cannot be read ({error})") from None
