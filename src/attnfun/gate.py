"""What a caller of `verify` expects of a file, compared with what the file says it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.language.domain import Box
from attnfun.language.mlp import input_box
from attnfun.network.claim import MEAN_SQUARE, Claim
from attnfun.search import check_request, read_norm


@dataclass(frozen=True)
class Gate:
    """Arguments of `verify`; what is None is not compared.

    A difference is an InvalidRequest that names both. `eps` is not compared: the verdict is about it, in the place of
    the file's own. It is absolute, in the file's norm.
    """

    target: Any = None
    eps: float | None = None
    domain: Any = None
    norm: float | str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        check_request(1.0 if self.eps is None else self.eps, "float64" if self.dtype is None else self.dtype, 0)

    def tolerance(self, claim: Claim, dtype: str) -> float | None:
        """The eps that the verdict is about, the caller's or the file's (of a relative one: None); norm and dtype are
        compared first.
        """
        wanted = self.norm if self.norm in (None, MEAN_SQUARE) else read_norm(self.norm)
        if wanted is not None and wanted != claim.norm:
            raise InvalidRequest(f"the file is about {claim.norm_text}, not about {Claim(None, wanted).norm_text}")
        if self.dtype is not None and self.dtype != dtype:
            raise InvalidRequest(f"the file's network runs in {dtype}, not in {self.dtype}")
        return claim.absolute if self.eps is None else float(self.eps)

    def compare_domain(self, box: Box | None) -> None:
        """Refuse another domain than `box`, variables in any order."""
        if self.domain is None:
            return
        if box is None:
            raise InvalidRequest("the file is not about an expression on a box: leave domain out")
        try:
            given = Box.parse(self.domain)
        except InvalidRequest:
            given = input_box(self.domain, box.dim)  # intervals without names, as an MLP takes them
        if _intervals(given) != _intervals(box):
            raise InvalidRequest(f"the file is about the domain {box.text}, not about {given.text}")


def _intervals(box: Box) -> set[tuple[str, float, float]]:
    return set(zip(box.names, box.low, box.high, strict=True))
