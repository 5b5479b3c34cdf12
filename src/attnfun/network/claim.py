"""What a file says was asked for: the part of the request that is hashed with the weights.

Without an eps a bound, however large, would answer nothing; so eps, whether it is a fraction of the target's range,
the norm, and whether the weights were trained rather than constructed, stand in the file under "claim". The dtype is
part of every file's structure, which is hashed too. The rest of the request decides nothing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnfun.errors import DamagedFile

MEAN_SQUARE = "mean square"
"""The norm of networks whose eps is that of a mean squared error (`neighbours`)."""


@dataclass(frozen=True)
class Claim:
    """`eps` is None for a network that was asked for without one; `norm` is inf, p ≥ 1 or MEAN_SQUARE."""

    eps: float | None
    norm: float | str = math.inf
    relative: bool = False
    trained: bool = False

    @classmethod
    def made(cls, request: Mapping[str, Any], norm: float | str = math.inf) -> Claim:
        """That of a request in a norm."""
        eps = request.get("eps")
        named = None if eps is None else float(eps)
        return cls(named, norm, bool(request.get("relative")), request.get("method") == "train")

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Claim:
        """The claim of a file's meta; DamagedFile where it holds none."""
        data = meta.get("claim")
        if not isinstance(data, dict) or set(data) != {"eps", "norm", "relative", "trained"}:
            raise DamagedFile("the file does not say what was asked for")
        eps, norm = data["eps"], data["norm"]
        if eps is not None and not (type(eps) in (int, float) and 0 < eps <= sys.float_info.max):
            raise DamagedFile("what the file says was asked for has no usable eps")
        known = norm in ("sup", MEAN_SQUARE) or (type(norm) in (int, float) and 1 <= norm <= sys.float_info.max)
        if not known or type(data["relative"]) is not bool or type(data["trained"]) is not bool:
            raise DamagedFile("what the file says was asked for cannot be read")
        order = math.inf if norm == "sup" else norm if norm == MEAN_SQUARE else float(norm)
        return cls(None if eps is None else float(eps), order, data["relative"], data["trained"])

    def to_json(self) -> dict[str, Any]:
        norm = "sup" if self.norm == math.inf else self.norm
        return {"eps": self.eps, "norm": norm, "relative": self.relative, "trained": self.trained}

    def request(self, stored: Any) -> dict[str, Any]:
        """A stored request with what is claimed in the place of its own words for it."""
        out = dict(stored) if isinstance(stored, dict) else {}
        own = self.to_json()
        if self.trained or out.get("method") == "train":
            out["method"] = "train" if self.trained else ""
        usual = (None, "sup", MEAN_SQUARE, False)
        return out | {key: own[key] for key in ("eps", "norm", "relative") if key in out or own[key] not in usual}

    @property
    def absolute(self) -> float | None:
        """eps where it stands for itself, None where it is a fraction of a range or was not given."""
        return None if self.relative else self.eps

    @property
    def order(self) -> float:
        """The p of the norm; 2 for a mean square."""
        return 2.0 if isinstance(self.norm, str) else self.norm

    @property
    def norm_text(self) -> str:
        if isinstance(self.norm, str):
            return f"the {self.norm}"
        return "the sup norm" if math.isinf(self.norm) else f"the L^{self.norm:g} norm"
