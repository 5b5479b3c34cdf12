"""The verdict: what a proof and an eps come to. The one place in which certificates are issued."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnfun.certify.certificate import Certificate, Status
from attnfun.language.numbers import at_most


@dataclass(frozen=True)
class Proof:
    """What a prover has to say of stored weights, whatever eps is.

    `high` bounds the error of every input, as computed; infinity where nothing is proved, and then `reason` says why.
    `low` is an error in real arithmetic, at `witness`; `seen` is what is left of it as computed (`low` itself unless
    given): that is what refutes. `parts` split `high`. `conditional`: the bound rests on a hypothesis about the target
    that the user declared. `measured`: `high` is a measurement and not a bound. `refuted` and `unmet` begin the
    sentences for a bound that misses eps: what was found at the witness, and a remark on the bound.
    """

    method: str
    high: float = math.inf
    low: float = 0.0
    seen: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    hypotheses: tuple[str, ...] = ()
    witness: tuple[float, ...] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    conditional: bool = False
    measured: bool = False
    reason: str | None = None
    refuted: str = ""
    unmet: str = ""


@dataclass(frozen=True)
class About:
    """What a certificate is about: the target and where, the norm, the dtype, the construction's name, the band about
    the target's jumps that is left out.
    """

    target: str
    domain: str
    dtype: str
    norm: float = math.inf
    construction: str = ""
    relative: Mapping[str, Any] | None = None
    band: str = ""


def verdict(proof: Proof, eps: float | None, about: About) -> Certificate:
    """A certificate: `proof` judged by `eps`, None where none was asked for."""
    status, reason = Status.SAMPLED, proof.reason
    if not proof.measured:
        status = status_of(
            proof.high, eps, proof.low if proof.seen is None else proof.seen, conditional=proof.conditional
        )
        if status is Status.REFUTED and proof.refuted:
            reason = f"{proof.refuted}, above eps {eps:.3g}"
        elif status in (Status.REFUTED, Status.UNDECIDED):
            reason = proof.reason or above(proof.high, eps) + (proof.unmet if proof.high < math.inf else "")
        else:
            reason = None
    found = {name: getattr(proof, name) for name in ("method", "parts", "hypotheses", "witness", "details")}
    error = min(proof.low, proof.high), proof.high
    return Certificate(status=status, error=error, eps=eps, reason=reason, **found, **vars(about))


def undecided(why: object, method: str = "none") -> Proof:
    """Nothing is proved, and why."""
    return Proof(method, reason=str(why))


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
    """Why a bound is not a proof of eps, in words."""
    if not high < math.inf or eps is None:
        return "no finite bound could be proved"
    return f"the proved bound {at_most(high, 3)} is above eps {eps:.3g}"
