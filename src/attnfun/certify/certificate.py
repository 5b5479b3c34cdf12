"""The Certificate: what is proved of a network, by which method, under which hypotheses."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from attnfun.errors import DamagedFile, intact
from attnfun.language.brief import Brief
from attnfun.language.numbers import at_least, at_most
from attnfun.network.claim import MEAN_SQUARE, Claim


class Status(StrEnum):
    """What may be said; `meaning` is the sentence a user reads."""

    PROVED = "proved"
    BOUNDED = "bounded"
    CONDITIONAL = "conditional"
    SAMPLED = "sampled"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    STORED = "stored"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Status.PROVED: "within eps at every point of the domain, rounding included, under the printed hypotheses",
    Status.BOUNDED: "the bound holds at every point of the domain, rounding included, under the printed hypotheses; no "
    "eps was asked for, so nothing says that it is small enough",
    Status.CONDITIONAL: "proved if a printed hypothesis holds that is more than how numbers are rounded: a constant "
    "that you declared, functions that are given exactly, or arithmetic without rounding",
    Status.SAMPLED: "measured at finitely many points only; not a bound",
    Status.REFUTED: "a point of the domain was found where the error exceeds eps",
    Status.UNDECIDED: "neither proved nor refuted by the methods at hand",
    Status.STORED: "as stored in the file, not verified",
}


@dataclass(frozen=True)
class Certificate(Brief):
    """|f − network| in `norm` lies in `error` = (low, high): low witnessed in balls, high proved (or, if sampled,
    measured).

    `low` is about the network in real arithmetic at one float64 point; `high` covers every point and rounding. `parts`
    splits `high`: "construction" (the network in real arithmetic, from the stored weights) and "rounding" (its
    evaluation in `dtype` by any route, from the real network), or "rounding at walls" (what evaluation adds to the
    bound of a partition: it may move walls, and so a value near one to the next cell's). `witness` is the point behind
    `low` (None for L^p norms).

    `construction` names what made the weights where that is known: `verify`, which reads weights and target alone, does
    not know it, and two certificates are compared without it.

    With a `band` about the jumps of the target it says nothing of the points in it.

    What a file says of itself is not a proof: a certificate that was read has the status `stored`, and `claimed` is the
    status that the file gives it. So whatever asks for a proof by its status does not take a stored one for it.
    """

    _shown = (
        *("status", "claimed", "error", "eps", "norm", "dtype"),
        *("method", "construction", "parts", "reason", "target", "domain", "band"),
    )

    status: Status
    error: tuple[float, float]
    eps: float | None
    norm: float
    dtype: str
    method: str
    target: str
    domain: str
    construction: str = field(default="", compare=False)
    parts: Mapping[str, float] = field(default_factory=dict)
    hypotheses: tuple[str, ...] = ()
    witness: tuple[float, ...] | None = None
    relative: Mapping[str, Any] | None = None
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    claimed: Status | None = None
    band: str = ""

    def __post_init__(self) -> None:
        low, high = self.error
        if (self.claimed is not None) != (self.status is Status.STORED):
            raise AssertionError("a certificate claims another status than its own exactly if it was stored")
        if not (0 <= low <= high):  # written so that NaN fails
            raise AssertionError(f"a certificate with low {low} above high {high} must never be issued")

    @property
    def slack(self) -> float:
        """Proved upper end over witnessed lower end; infinity where nothing was witnessed."""
        low, high = self.error
        return high / low if low > 0 else (1.0 if high == 0 else math.inf)

    @property
    def verified(self) -> bool:
        """Whether it was made here from weights and target, rather than read from a file."""
        return self.status is not Status.STORED

    @property
    def word(self) -> str:
        """What `error[1]` is: proved to be within eps, a bound that is not, a measurement, or what a file says."""
        words = {Status.PROVED: "proved", Status.CONDITIONAL: "conditional", Status.SAMPLED: "measured"}
        return Status.STORED.meaning if self.status is Status.STORED else words.get(self.status, "bounded")

    @property
    def heading(self) -> str:
        """How a sentence about it begins."""
        if self.verified:
            return self.status.value.capitalize()
        return "As stored, not verified" + (" (sampled)" if self.measured else "")

    @property
    def sentence(self) -> str:
        """What is known of the error, in one sentence."""
        low, high = self.error
        asked = "no eps was asked for" if self.eps is None else f"eps was {self.eps:.4g}"
        if self.status is Status.REFUTED:
            return f"{self.heading}: the error is at least {at_least(low)} at a point of the domain{self.off}; {asked}."
        if not (self.bounds or self.measured) or math.isinf(high):
            return f"{self.heading}: {(self.reason or self.status.meaning).rstrip('.')}."
        if self.measured:
            return f"{self.heading}: {self.norm_name}{self.off} of about {high:.4g} was measured, which is not a bound."
        seen = f", and {at_least(low)} is reached" if low > 0 else ""
        return f"{self.heading}: the {self.norm_name}{self.off} is at most {at_most(high)}{seen}; {asked}."

    @property
    def off(self) -> str:
        """Of which points nothing is said, in words; empty where it is about the whole domain."""
        return f" off the band {self.band}" if self.band else ""

    @property
    def parts_told(self) -> str:
        """What the bound is the sum of."""
        return ", ".join(f"{name} {at_most(part, 3)}" for name, part in self.parts.items())

    @property
    def norm_name(self) -> str:
        """error, L^2 error, or what a kind calls the mean that it is about."""
        power = "error" if math.isinf(self.norm) else f"L^{self.norm:g} error"
        return f"{self.details['norm']} error" if self.details.get("norm") == MEAN_SQUARE else power

    @property
    def bounds(self) -> bool:
        """Whether `error[1]` bounds the error of every input, or is said by the file to do so."""
        return (self.claimed or self.status) in (Status.PROVED, Status.BOUNDED, Status.CONDITIONAL)

    @property
    def measured(self) -> bool:
        """Whether `error[1]` is, or is said by the file to be, a measurement and not a bound."""
        return Status.SAMPLED in (self.status, self.claimed)

    def told(self, *proved: str) -> list[str]:
        """`proved`, sentences of a bound, the first after the heading; or the heading and why there is none."""
        return [self.heading + proved[0], *proved[1:]] if self.bounds else [f"{self.heading}: {self.unproved}."]

    @property
    def unproved(self) -> str:
        """Why nothing, or no more, is proved."""
        return self.reason or self.status.meaning

    def to_json(self) -> dict[str, Any]:
        """As a record; `verified` is false, and `claimed` the status in the file, where it was read from one."""
        own: dict[str, Any] = {"status": self.status.value, **self._facts(), "verified": self.verified}
        return own if self.claimed is None else {**own, "claimed": self.claimed.value}

    def to_file(self) -> dict[str, Any]:
        """What a file keeps: `stored` reads it back."""
        return {"status": (self.claimed or self.status).value, **self._facts()}

    def _facts(self) -> dict[str, Any]:
        low, high = self.error
        return {
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
            **({"band": self.band} if self.band else {}),
        }

    @classmethod
    def stored(cls, data: Any, claim: Claim, dtype: str, target: str, domain: str, band: str = "") -> Certificate:
        """The certificate that a file holds, or one that says that it holds none.

        What it is about is not read from it: the caller has that from the hashed part of the file.
        """
        try:
            none: dict[str, Any] = {"status": Status.UNDECIDED, "error": (0.0, math.inf)}
            facts = none if data is None else _read(data)
            facts |= {"norm": 2.0 if isinstance(claim.norm, str) else claim.norm, "dtype": dtype}
            facts |= {"target": target, "domain": domain, "band": band}
            if data is None:
                facts |= {"eps": claim.absolute, "method": "none", "reason": "the file holds no certificate"}
            elif claim.relative:
                facts["relative"] = {**(facts["relative"] or {}), "fraction": claim.eps}
            else:
                facts |= {"relative": None, "eps": claim.eps}
            return cls(**facts)
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError, OverflowError) as error:
            raise DamagedFile(f"the stored certificate cannot be read ({error})") from None


def _read(data: Any) -> dict[str, Any]:
    """What a file says in a certificate; an error of Python's own where it is not as it is written."""
    claimed = Status(data["status"])
    if claimed is Status.STORED:
        raise ValueError("it was stored as a stored one")
    high, norm = data["error"], data["norm"]
    witness, reason, details = data.get("witness"), data.get("reason"), data.get("details", {})
    _check_details(reason, details)
    return {
        "status": Status.STORED,
        "claimed": claimed,
        "error": (float(data["error_low"]), math.inf if high is None else float(high)),
        "eps": None if data.get("eps") is None else float(data["eps"]),
        "norm": math.inf if norm == "sup" else float(norm),
        **{name: str(data[name]) for name in ("dtype", "method", "target", "domain")},
        "construction": str(data.get("construction", "")),
        "parts": {str(k): float(v) for k, v in data.get("parts", {}).items()},
        "hypotheses": tuple(str(h) for h in data.get("hypotheses", ())),
        "witness": None if witness is None else tuple(float(v) for v in witness),
        "relative": None if data.get("relative") is None else dict(data["relative"]),
        "reason": reason,
        "details": details,
    }


def _check_details(reason: Any, details: Any) -> None:
    """Refuse what sentences and pictures about a stored certificate could not read."""
    steps, coordinates = details.get("steps", []), details.get("coordinates", {})
    texts = [reason or "", *(step[key] for step in steps for key in ("name", "function"))]
    numbers = [*coordinates.values(), *(step[key] for step in steps for key in ("own", "total"))]
    numbers += [step.get(key, 0) for step in steps for key in ("carried", "rounding")]
    if not (all(isinstance(text, str) for text in texts) and all(type(n) in (int, float) for n in numbers)):
        raise ValueError("its details are not as they are written")
    if not all(abs(n) <= sys.float_info.max for n in numbers):
        raise ValueError("a number in its details is none")


def read_back(
    meta: Mapping[str, Any], dtype: str, text: str, domain: str, band: str = ""
) -> tuple[Certificate, dict[str, Any], Claim]:
    """The certificate as stored, not verified; the request, in which the claim has the last word; the claim."""
    claim = Claim.of(meta)
    certificate = Certificate.stored(meta.get("certificate"), claim, dtype, text, domain, band)
    return certificate, claim.request(meta.get("request")), claim


def story_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What the file tells of its making; DamagedFile where that is no record."""
    story = meta.get("story") or {}
    intact(isinstance(story, dict) and isinstance(story.get("methods", {}), dict), "the file's story cannot be read")
    return dict(story)
