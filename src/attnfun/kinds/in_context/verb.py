"""`in_context`: a regression that a softmax-attention network solves in its forward pass."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnfun.certify.certificate import Status
from attnfun.certify.verdict import Proof, verdict
from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.kinds.in_context.build import MOST_HEADS, MOST_LAYERS, best, build, depth
from attnfun.kinds.in_context.exact import example_prompts
from attnfun.kinds.in_context.prove import prove
from attnfun.kinds.in_context.target import ALGORITHMS, InContextTask
from attnfun.kinds.in_context.view import InContextSolver
from attnfun.language.numbers import at_most, whole_number
from attnfun.model import about
from attnfun.network import TokenNetwork
from attnfun.search import Goal, Say, certified, check_request, one_thread


def in_context(
    task: str,
    dim: int,
    examples: int,
    *,
    alpha: float | None = None,
    C: float | None = None,
    spectrum: Sequence[float] | None = None,
    eps: float | None = None,
    algorithm: str | None = None,
    layers: int | None = None,
    heads: int | None = None,
    dtype: str = "float64",
    x_range: float | None = None,
    y_range: float | None = None,
    query_range: float = 2.5,
    accept: str | None = None,
    progress: Say | None = None,
) -> InContextSolver:
    """A softmax-attention network that solves a regression on the examples of its prompt, for a whole class of prompts.

    `task`: "linear", "ridge" (penalty `alpha`), "lasso" (`alpha`) or "logistic" (`C`). The class: at most `examples`
    examples of `dim` entries up to `x_range`, |y| up to `y_range`, queries up to `query_range`, eigenvalues of
    XᵀX + alpha I (lasso, logistic: XᵀX) within `spectrum`; defaults are those of standard normal examples. For logistic
    regression `spectrum` may begin at 0: its examples may be linearly dependent.
    `eps` is absolute, on predictions. `layers` fixes the depth; without it the depth is the one at which eps is proved.
    `algorithm`: "chebyshev" or "gd" for linear and ridge, "accelerated" or "proximal" for lasso; by default the one
    that takes the fewest layers. `heads` fixes the Richardson heads of a sum (1 to 8); without it 4 at
    most, and 8 where only they prove eps.
    `accept`: "proved", the default, or "sampled": measured on example prompts, on hard ones and on those that a search
    finds is enough, and the certificate then says `sampled`.
    Raises Infeasible, with the nearest request that would do, where eps is not reached.
    """
    ranges: dict[str, Any] = {"x_range": x_range, "y_range": y_range, "query_range": query_range}
    asked = InContextTask.make(task, dim, examples, alpha=alpha, C=C, spectrum=spectrum, **ranges)
    wanted = "proved" if accept is None else accept
    require(eps is not None or layers is not None, "give eps, the tolerance of predictions, or layers, the depth")
    check_request(1.0 if eps is None else eps, dtype, accept=wanted)
    eps = None if eps is None else float(eps)
    layers = None if layers is None else whole_number("layers", layers, 1, MOST_LAYERS[task])
    heads = None if heads is None else whole_number("heads", heads, 1, MOST_HEADS)
    offered = ALGORITHMS[task]
    require(algorithm in (None, *offered), f"algorithm={algorithm!r:.30} for {task}: write {' or '.join(offered)}")
    if wanted == "sampled" and not example_prompts(asked, 1):
        raise InvalidRequest(
            f"nothing can be measured: normal examples with eigenvalues up to {asked.spectrum[1]:g} do not fit "
            f"x_range={asked.x_range:.4g}; declare a larger x_range"
        )
    name = algorithm or best(asked, eps)
    making = _Making(asked, eps, name, heads, dtype, wanted, layers, progress or (lambda _text: None))
    with one_thread():
        return making.at(layers) if layers is not None else making.deep_enough()


@dataclass(frozen=True)
class _Making:
    """One request, and the two ways to a network: at a given depth, or at the least depth that will do."""

    task: InContextTask
    eps: float | None
    algorithm: str
    heads: int | None
    dtype: str
    wanted: str
    asked_layers: int | None
    say: Say

    @property
    def within(self) -> float:
        """The eps that was asked for; infinity where any bound will do."""
        return math.inf if self.eps is None else self.eps

    def _build(self, layers: int) -> TokenNetwork:
        typical = self.wanted == "sampled" and self.dtype == "float32"
        return build(self.task, layers, self.algorithm, self.dtype, self.heads, typical)

    def _try(self, network: TokenNetwork) -> InContextSolver:
        """A network, proved, or where that is enough measured (called by its name, if it is within eps); else its
        certificate says why not.
        """
        self.say(f"{len(network.layers)} layers")
        by = f"{self.task.task} by {self.algorithm}"
        found = certified(self.task, network, Goal(self.eps), by, self.say)
        worst = found.details.get("measured", math.inf)
        if found.status is Status.UNDECIDED and self.wanted == "sampled" and worst < math.inf and worst <= self.within:
            seen = Proof("sampling", worst, worst, details=found.details, measured=True, reason=found.reason)
            found = verdict(seen, self.eps, about(self.task, network, by))
        request = {"eps": self.eps, "algorithm": self.algorithm, "layers": self.asked_layers, "heads": self.heads}
        return InContextSolver(self.task, network, found, request | {"accept": self.wanted}, {"construction": by})

    def at(self, layers: int) -> InContextSolver:
        made = self._try(self._build(layers))
        found, high = made.certificate, made.certificate.error[1]
        if found.status in (Status.PROVED, Status.BOUNDED, Status.SAMPLED):
            return made
        if self.eps is None:
            raise Infeasible(f"nothing can be {self.wanted} of {layers} layers for {self.task.domain}: {found.reason}")
        try:
            deep = self.deep_enough()
            more = {"heads": deep.heads} if deep.heads != self.heads else {}
            nearest: dict[str, Any] = {"layers": deep.cost.layers} | more
        except Infeasible as why:
            nearest = {"eps": float(f"{1.05 * high:.2g}")} if math.isfinite(high) else dict(why.nearest or {})
        low, top = self.task.spectrum
        why_not = found.reason or f"{high:.3g} is proved"
        raise Infeasible(
            f"{layers} layers do not reach eps={self.eps:.3g} for spectrum ({low:g}, {top:g}), condition number "
            f"{self.task.condition:.3g}: {why_not}",
            nearest,
        )

    def _shallower(self) -> dict[str, Any]:
        """A request whose depth is one that is built: another algorithm, a larger lowest eigenvalue, a smaller C."""
        task, limit = self.task, 0.8 * MOST_LAYERS[self.task.task]
        if self.algorithm != best(task, self.eps):
            return {"algorithm": best(task, self.eps)}
        (low, high), C = task.spectrum, task.strength
        if task.task == "logistic":
            while C > 1e-12 and depth(replace(task, strength=C), self.algorithm, self.within) > limit:
                C /= 2
            return {"C": float(f"{C:.2g}")}
        while low < high / 2 and depth(replace(task, spectrum=(low, high)), self.algorithm, self.within) > limit:
            low *= 2
        return {"spectrum": [float(f"{low:.3g}"), high]}

    def _too_deep(self, layers: int, limit: int) -> Infeasible:
        would = {"lasso": "a narrower spectrum", "logistic": "a smaller C or a larger eps"}
        return Infeasible(
            f"eps={self.eps:.3g} at condition number {self.task.condition:.3g} takes {layers:,} layers, more than "
            f"{limit:,}; {would.get(self.task.task, 'a larger alpha or a narrower spectrum')} would do",
            self._shallower(),
        )

    def _floor(self, why: str | None, near: float) -> Infeasible:
        other = "" if self.wanted == "sampled" else "; accept='sampled' is content with a measured error"
        return Infeasible(
            f"eps={self.eps:.3g} for {self.task.text} is below the floor of bias and rounding in {self.dtype}: "
            f"{why}{other}",
            {"eps": float(f"{near * 1.1:.2g}")} if near < math.inf else {"accept": "sampled"},
        )

    def _proved_at(self, layers: int, limit: int) -> TokenNetwork:
        """The network of the least depth from `layers` on at which eps is proved, of two layers per step."""
        below, jump, before, best = layers - 2, 2, math.inf, None
        while layers - below > 2 or best is None:
            at = layers if best is None else below + (layers - below) // 4 * 2
            if at > limit:
                raise self._too_deep(at, limit)
            network = self._build(at)
            try:
                bound = prove(network, self.task)
            except Undecided as why:
                raise self._floor(str(why), math.inf) from None
            floor = bound.bias + bound.rounding + bound.input
            if bound.total <= self.within:
                layers, best = at, network
            elif best is not None:
                below = at
            elif not (floor < self.within or floor < 0.9 * before):
                raise self._floor(f"the proved bound {at_most(bound.total, 3)} is above eps {self.eps:.3g}", floor)
            else:
                below, layers, jump, before = at, at + jump, 2 * jump, floor
        return best

    def _reached(self, layers: int) -> tuple[float, InContextSolver | None, str | None]:
        """(proved, or where that is enough measured, of so many layers; the network that meets eps; why not)."""
        network = self._build(layers)
        if self.wanted == "proved":
            try:
                high = prove(network, self.task).total
            except Undecided as why:
                return math.inf, None, str(why)
            if high <= self.within:
                return high, self._try(network), None
            return high, None, f"the proved bound {at_most(high, 3)} is above eps {self.eps:.3g}"
        made = self._try(network)
        found = made.certificate
        if found.status in (Status.PROVED, Status.SAMPLED):
            return found.error[1], made, None
        seen = found.status is Status.REFUTED
        return found.error[0] if seen else found.details.get("measured", math.inf), None, found.reason

    def deep_enough(self) -> InContextSolver:
        best, limit = math.inf, MOST_LAYERS[self.task.task]
        layers, step, enough = depth(self.task, self.algorithm, self.within), 1, 0
        if self.task.task not in ("linear", "ridge"):
            if self.wanted == "proved":
                return self._try(self._proved_at(layers, limit))
            step, enough = 2, layers
            layers = min(layers, limit) // 6 * 2 + 3  # the bound of the whole class is far from what is seen
        for _ in range(24):
            if layers > limit:
                raise self._too_deep(layers, limit)
            reached, made, why = self._reached(layers)
            if made is not None:
                return made
            if layers >= enough and not reached < 0.8 * best:
                break
            best = min(best, reached)
            layers += max(step, step * (layers // (20 if step == 1 else 8)))
        if self.wanted == "proved" and self.heads is None and min(best, reached) < 8 * self.within:
            return replace(self, heads=MOST_HEADS).deep_enough()  # eight times is more than they can gain
        raise self._floor(why, min(best, reached))
