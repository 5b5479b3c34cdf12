"""What a caller of `verify` expects of a file, compared with what the file says it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.network.claim import Claim
from attnfun.targets import Box
from attnfun.targets.mlp import input_box


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
        from attnfun.verbs import check_request

        check_request(1.0 if self.eps is None else self.eps, "float64" if self.dtype is None else self.dtype, 0)

    def tolerance(self, claim: Claim, dtype: str) -> float | None:
        """The eps that the verdict is about, the caller's or the file's (of a relative one: None); norm and dtype are
        compared first.
        """
        from attnfun.verbs import read_norm

        wanted = None if self.norm is None else read_norm(self.norm)
        if wanted is not None and wanted != claim.norm:
            raise InvalidRequest(f"the file is about {claim.norm_text}, not about {Claim(None, wanted).norm_text}")
        if self.dtype is not None and self.dtype != dtype:
            raise InvalidRequest(f"the file's network runs in {dtype}, not in {self.dtype}")
        return claim.absolute if self.eps is None else float(self.eps)

    def compare(self, box: Box, text: str, own: Any, read: Callable[[Any], tuple[Any, str]]) -> None:
        """Refuse another domain than `box`, variables in any order, and a target that `read` does not find to be `own`;
        `read` gives what is compared, and its text.
        """
        self.compare_domain(box)
        if self.target is not None:
            other, said = read(self.target)
            if other != own:
                raise InvalidRequest(f"the file is about {text[:150]}, not about {said[:150]}")

    def compare_domain(self, box: Box) -> None:
        if self.domain is None:
            return
        try:
            given = Box.parse(self.domain)
        except InvalidRequest:
            given = input_box(self.domain, box.dim)  # intervals without names, as an MLP takes them
        if _intervals(given) != _intervals(box):
            raise InvalidRequest(f"the file is about the domain {box.text}, not about {given.text}")

    def no_expression(self, why: str) -> None:
        """Refuse target and domain for a file that has neither as an expression on a box."""
        for name in ("target", "domain"):
            if getattr(self, name) is not None:
                raise InvalidRequest(f"{why}: leave {name} out")


def _intervals(box: Box) -> set[tuple[str, float, float]]:
    return set(zip(box.names, box.low, box.high, strict=True))


def require_sup(claim: Claim) -> None:
    """Refuse a file that claims another norm than the one its kind is proved in, or a fraction of a range."""
    if claim.relative:
        raise DamagedFile("the file says that its eps is a fraction of a range, which is for functions only")
    if claim.norm != math.inf:
        raise DamagedFile(f"the file says that it is about {claim.norm_text}, and its kind is about the sup norm")
