"""Search: a construction proposes weights, the kind's prover judges them, and a miss is told to the construction.

A construction is a generator. It yields a `Proposal`; what comes back from the `yield` is the certificate of that
proposal, which misses eps; so it knows by how much, and proposes again with less, or something else, or gives up by
ending or by raising Infeasible. A proposal may say that a smaller one may follow (`more`): then the construction is
told of success too, and the last proposal that meets the goal counts. How it tightens is its own business; what counts
as success, and what is said when nothing succeeds, is decided here.
"""

import math
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from attnfun import fast
from attnfun.certify.certificate import Certificate, Status
from attnfun.certify.verdict import About, undecided, verdict
from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, require
from attnfun.kinds import find
from attnfun.language.enclosures import check_rounding
from attnfun.language.numbers import positive, whole_number
from attnfun.language.target import Target
from attnfun.network.head import require_dtype

Say = Callable[[str], None]
MET = (Status.PROVED, Status.CONDITIONAL)
_ALONE: ContextVar[bool] = ContextVar("one BLAS thread", default=False)


@dataclass(frozen=True)
class Goal:
    """What a proof is for: an eps (None: any bound), a norm, and the witness of a range that eps is a fraction of.

    `met`: the statuses that count as success.
    """

    eps: float | None = None
    norm: float = math.inf
    relative: Mapping[str, Any] | None = None
    met: tuple[Status, ...] = MET


@dataclass(frozen=True)
class Proposal:
    """Weights, the name of what made them, and what it has to tell; `more`: a smaller one may follow."""

    weights: Any
    construction: str
    story: Mapping[str, Any] = field(default_factory=dict)
    more: bool = False

    @property
    def told(self) -> dict[str, Any]:
        """The story that a model keeps, with the construction's name."""
        return {"construction": self.construction, **jsonable(self.story)}


Proposals = Generator[Proposal, Certificate, None]


def certified(target: Target, weights: Any, goal: Goal, construction: str = "", say: Say | None = None) -> Certificate:
    """The verdict on weights, from them and the target alone; AttnfunError where this process rounds otherwise."""
    check_rounding()
    kind = find(target.kind)
    about = About(target.text, target.domain, weights.dtype, goal.norm, construction, goal.relative, target.left_out)
    if not kind.prover:
        return verdict(undecided(kind.unproved), goal.eps, about)
    try:
        with one_thread():
            proof = kind.loaded("prover")(target, weights, goal, say or (lambda _text: None))
    except Undecided as why:
        proof = undecided(why)
    return verdict(proof, goal.eps, about)


def search(target: Target, proposals: Proposals, goal: Goal, say: Say) -> tuple[Proposal, Certificate]:
    """The first proposal whose certificate meets the goal, or the last that does where smaller ones may follow;
    Infeasible with the nearest eps where none does."""
    best: Certificate | None = None
    answer: Certificate | None = None
    found: tuple[Proposal, Certificate] | None = None
    while True:
        try:
            with one_thread():
                proposal = next(proposals) if answer is None else proposals.send(answer)
        except StopIteration:
            if found is not None:
                return found
            raise refusal(target, goal, best) from None
        answer = certified(target, proposal.weights, goal, proposal.construction, say)
        if answer.status in goal.met:
            found = proposal, answer
            if not proposal.more:
                return found
        elif best is None or answer.error[1] < best.error[1]:
            best = answer


def refusal(
    target: Target, goal: Goal, reached: Certificate | None, otherwise: Mapping[str, Any] | None = None
) -> Infeasible:
    """That eps could not be proved, what was reached, and the nearest eps, or else what else may be asked for."""
    if reached is None or goal.eps is None:
        return Infeasible(f"nothing could be built for {target.text[:120]}", otherwise)
    high = reached.error[1]
    nearest = {"eps": float(f"{high * 1.05:.2g}")} if high < 1e3 * goal.eps else otherwise
    return Infeasible(f"eps={goal.eps:.3g} for {target.text[:120]} could not be proved: {reached.reason}", nearest)


@contextmanager
def one_thread() -> Iterator[None]:
    """One BLAS thread and NumPy alone: a request gives the same bits on any number of cores, with numba or without.

    Nor does NumPy warn of what overflows: who finds an infinity or NaN refuses it, and says so.
    """
    if _ALONE.get():
        yield
        return
    token = _ALONE.set(True)
    try:
        blas = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
        with fast.off(), blas, np.errstate(all="ignore"):
            yield
    finally:
        _ALONE.reset(token)


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> Any:
    """The libraries of this process that have threads; looked for anew where modules were loaded since."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def check_request(eps: float, dtype: str = "float64", seed: int = 0, accept: str = "proved") -> None:
    """Refuse an eps, a dtype, a seed or a word for `accept` that means nothing."""
    positive("eps", eps)
    whole_number("seed", seed, 0)
    require_dtype(dtype)
    require(accept in ("proved", "sampled"), f"accept={accept!r}: write proved or sampled")


def read_norm(norm: float | str) -> float:
    """inf for "sup", else the number p ≥ 1."""
    if isinstance(norm, str) and norm.lower() in ("sup", "inf", "max"):
        return math.inf
    try:
        p = float(norm)
    except (TypeError, ValueError):
        p = math.nan
    require(p >= 1, f"norm={norm!r}: write 'sup' or a number p >= 1")
    return p


def jsonable(value: Any) -> Any:
    """Plain JSON values; infinities become text."""
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else str(value)
    return int(value) if isinstance(value, np.integer) else value
