"""The verdict: which status a proved bound, a witnessed error and an eps come to."""

from __future__ import annotations

import math
from dataclasses import replace

from attnfun.certify.certificate import Certificate, Status


def status_of(high: float, eps: float | None, low: float = 0.0, *, conditional: bool = False) -> Status:
    """`high` bounds the error everywhere, `low` is an error that was witnessed; both hold for the network as computed.

    Without an eps nothing can be met: a finite bound is `bounded` and no more. NaN is neither a bound nor a witness.
    `conditional`: the bound rests on a hypothesis about the target that the user declared.
    """
    if eps is None:
        return Status.BOUNDED if high < math.inf else Status.UNDECIDED
    if high <= eps:
        return Status.CONDITIONAL if conditional else Status.PROVED
    return Status.REFUTED if low > eps else Status.UNDECIDED


def above(high: float, eps: float | None) -> str:
    """Why a bound is no proof of eps, in words."""
    if not high < math.inf or eps is None:
        return "no finite bound could be proved"
    return f"the proved bound {high:.3g} is above eps {eps:.3g}"


def decided(found: Certificate, eps: float | None) -> Certificate:
    """A certificate with a bound for every input, judged by another eps; its lower end must hold as computed."""
    status = status_of(found.error[1], eps, found.error[0])
    why = above(found.error[1], eps) if status in (Status.UNDECIDED, Status.REFUTED) else None
    return replace(found, status=status, eps=eps, reason=found.reason if found.error[1] == math.inf else why)
