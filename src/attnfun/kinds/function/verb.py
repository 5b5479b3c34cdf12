"""`compile`: a function and a tolerance in, a proved network out."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnfun.certify.certificate import Certificate
from attnfun.certify.extension import joined_gap, require_joined
from attnfun.certify.verdict import Proof, verdict
from attnfun.errors import AttnfunError, Infeasible, InvalidRequest, feasible, require
from attnfun.kinds.function.view import Approximant
from attnfun.language.arrays import values_at
from attnfun.language.definedness import require_defined
from attnfun.language.function import FLOOR, Function
from attnfun.language.numbers import one_of, whole_number
from attnfun.language.pieces import has_pieces
from attnfun.model import about
from attnfun.search import Goal, Proposal, Proposals, Say, check_request, one_thread, read_norm, refusal, search

if TYPE_CHECKING:  # loaded by `compile` alone: `verify` and the command line never load a construction
    from attnfun.kinds.function.build import Request

_SHARE, _TRIES = 0.97, 4
"""Of eps a construction may use at first (the rest is for the proof), and how often it is asked."""
_NARROW = {"float64": 1e-6, "float32": 1e-2}  # of what the arguments of signs reach: a band that can be met
_OPTIONS = {"temperature", "variant", "max_keys", "max_layers", "max_heads", "max_rank", "prefer"}


def compile(
    target: Any,
    domain: Any = None,
    eps: float = math.nan,
    *,
    method: str = "auto",
    norm: float | str = "sup",
    relative: bool = False,
    dtype: str = "float64",
    seed: int = 0,
    accept: str = "proved",
    realise: str = "attention",
    lipschitz: float | None = None,
    band: float | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Approximant:
    """A softmax-attention network within `eps` of `target` on `domain`, with its certificate.

    `target`: an expression, a list of expressions (several outputs), a function of NumPy arrays (traced; if it cannot
    be, a black box whose `lipschitz` constant must be declared: conditional certificate), or a ReLU network: a
    torch.nn.Sequential of Linear and ReLU, or the path of a safetensors file of weights, whose `domain` may be one pair
    (-1, 1) for all inputs or a list of pairs; or numbers on a grid (`table`, and SciPy's CubicSpline,
    PchipInterpolator, RegularGridInterpolator, …), whose `domain` is that of the grid unless a part of it is given.
    `eps` is absolute, or with `relative` a fraction of the target's range. `norm`: "sup" or a number p ≥ 1. `method`:
    "auto" or a construction's name. `accept="sampled"` returns a network that could not be proved, marked as such,
    instead of raising Infeasible. `progress` is called with a word on each step. `realise="mlp"` builds the same
    program of steps with ReLU units instead of softmax heads: an MLP with skip connections, for comparison, proved in
    the same way (compose and affine only; units count as keys, blocks as heads). A target that jumps has no network in
    the sup norm; `band` δ asks for eps only where the argument of every sign and the two sides of every comparison's
    difference are at least δ in size. Options: `max_keys`, `max_layers`, `max_heads`, `max_rank` (of `cost.rank`) are
    kept or refused with the nearest request that fits; `prefer` "keys", "layers" or "float32" (small values);
    `temperature` (partition); `variant` "published", "inclusive" or "optimal" (interpolation), "uniform", "graded" or
    "power" (partition).
    """
    from attnfun.kinds.function.build import Request

    unknown = set(options) - _OPTIONS
    require(not unknown, f"unknown option(s) {', '.join(sorted(unknown))}; there are {', '.join(sorted(_OPTIONS))}")
    say = progress or (lambda _text: None)
    power = read_norm(norm)
    check_request(eps, dtype, seed, accept)
    one_of("realise", realise, ("attention", "mlp"))
    function = Function.on(target, domain, lipschitz)
    if band is None:
        function = _loosened(function, power, float(eps), relative, dtype)
    else:
        require(math.isinf(power), f"band={band!r:.30}: in an L^p norm jumps need none; leave band or norm out")
        function = function.outside(band)
    named = "sup" if math.isinf(power) else power
    asked: dict[str, Any] = {"eps": float(eps), "norm": named, "method": method, "dtype": dtype}
    asked |= {"relative": bool(relative), "seed": int(seed), "realise": realise}
    asked |= {} if band is None else {"band": function.band}
    say("is the target defined on the domain?")
    if function.graph is not None:
        _require_defined(function, math.isinf(power) and band is None, dtype)
    shown = None
    if relative:
        eps, shown = function.absolute(float(eps), dtype)
    if shown is None or shown["range"] > 0:
        _check_floor(function, eps, dtype)
    require_joined(function, power, float(eps))
    between, _ = function.between
    why = f"the data leave functions through them {between:.4g} apart from the middle one, so eps={eps:g} cannot be met"
    feasible(between < eps, why, {"eps": float(f"{1.2 * between:.3g}")})
    room = float(eps) - joined_gap(function, power) - between
    goal = Goal(float(eps), power, shown)
    extra: dict[str, Any] = {k: options.pop(k) for k in ("temperature", "variant") if k in options}
    more = {"realise": realise, "options": extra, **_limits(options)}
    request = Request(function, room * _SHARE, power, dtype, int(seed), **more)
    proposals = _Proposals(request, goal, method, say)
    try:
        with one_thread():
            try:
                found, certificate = search(function, proposals.generate(), goal, say)
            except Infeasible:
                if accept != "sampled" or proposals.best is None:
                    raise
                found, certificate = proposals.best
                certificate = _measured(function, found.weights, goal, certificate)
    except Infeasible as why:
        if shown is None or not shown["range"] > 0 or "eps" not in (why.nearest or {}):
            raise
        near = dict(why.nearest or {})  # an absolute eps; asked was for a fraction of the range
        raise Infeasible(str(why), {**near, "eps": float(f"{1.01 * near['eps'] / shown['range']:.3g}")}) from None
    return Approximant(function, found.weights, certificate, asked, found.told)


def _loosened(function: Function, norm: float, eps: float, relative: bool, dtype: str) -> Function:
    """The function with jumps of at most a quarter of eps left out, where none is left then: rounded coefficients."""
    if not math.isinf(norm) or function.graph is None or not has_pieces(function.graph):
        return function
    with suppress(AttnfunError):
        size = function.absolute(eps, dtype)[0] if relative else eps
        loose = function.loosened(size / 4)
        if not has_pieces(loose.formula) and loose.pieces.gap <= size / 2:
            return loose
    return function


@dataclass
class _Proposals:
    """Plans, builds, and on a miss leaves the proof more room; then the next construction. `best` is what came nearest
    and its certificate."""

    request: Request
    goal: Goal
    method: str
    say: Say
    best: tuple[Proposal, Certificate] | None = None
    methods: dict[str, str] = field(default_factory=dict)

    def generate(self) -> Proposals:
        from attnfun.kinds.function.build import choose

        tried: set[str] = set()
        while True:
            self.say("sizes of the constructions")
            try:
                choice = choose(self.request, self.method, frozenset(tried))
            except Infeasible:
                if self.best is None:
                    raise
                break
            self.methods |= choice.reasons
            construction, plan = choice.plans[0]
            tried.add(construction.name)
            failure = yield from self._tightened(construction, plan)
            self.methods[construction.name] = f"{construction.name}: {failure}"
            if self.method != "auto":
                break
        if self.best is None:
            raise Infeasible("; ".join(self.methods.values()))
        raise refusal(self.request.function, self.goal, self.best[1], {"accept": "sampled"})

    def _tightened(self, construction: Any, plan: Any) -> Generator[Proposal, Certificate, str]:
        """One construction, asked for as much less as its proof was over; says why it failed."""
        assert self.goal.eps is not None
        between, _ = self.request.function.between
        eps, share, failure, before, keys = self.goal.eps - between, _SHARE, "", math.inf, 0
        for attempt in range(_TRIES):
            request = replace(self.request, eps=eps * share, attempt=attempt)
            if attempt:
                try:
                    plan = construction.plan(request)
                except Infeasible:
                    break
            what = "units" if request.realise == "mlp" else "keys"
            self.say(f"building {plan.keys:,} {what} ({construction.name})")
            try:
                network = construction.build(request, plan)
            except InvalidRequest as why:  # weights the dtype cannot hold: this construction fails, not the request
                return str(why)
            proposal = Proposal(network, construction.name, {**plan.story, "methods": self.methods})
            certificate = yield proposal
            if self.best is None or certificate.error[1] < self.best[1].error[1]:
                self.best = proposal, certificate
            failure = f"{plan.keys:,} {what}, not proved ({certificate.reason})"
            if certificate.error[0] > 1.5 * eps:
                break  # its sizing missed something; less eps will not help
            reached = certificate.error[1] - between  # as much less as the proof was over, a little more each time
            room, lost = eps / reached, certificate.parts.get("rounding", 0.0)
            if request.dtype == "float32":  # of which only what is not rounding shrinks
                if reached > 0.99 * before and lost > 0.1 * eps and plan.keys > keys:
                    break
                room = max((eps - lost) / (reached - lost), 0.3 * room) if lost < 0.9 * eps else room
            elif lost > eps or (reached > 10 * eps and reached > 0.5 * before) or (attempt and reached == math.inf):
                break  # less eps helps neither rounding nor a proof that is far off and comes no nearer
            before, keys = reached, plan.keys
            share *= min(0.9, 0.95 * room) if reached < 100 * eps else 0.6
        return failure


def _require_defined(function: Function, continuous: bool, dtype: str) -> None:
    """Refuse what is not defined, and what only jumps with a band that will do."""
    try:
        require_defined(function.formula, function.box, continuous=continuous)
    except AttnfunError as why:
        jump = why
        try:
            require_defined(function.formula, function.box, continuous=False)
        except AttnfunError:
            raise jump from None
        X = function.box.probe(512, np.random.default_rng(0))
        with np.errstate(all="ignore"):
            sizes = [np.abs(values_at(a, function.box.names, X)) for a in function.arguments]
        reach = max((float(np.max(v[np.isfinite(v)], initial=0.0)) for v in sizes), default=0.0)
        nearest = {"band": float(f"{_NARROW[dtype] * reach:.0e}")} if 0 < reach < 1e300 else None
        raise Infeasible(str(jump), nearest) from None


def _measured(function: Function, network: Any, goal: Goal, missed: Certificate) -> Certificate:
    """What was measured, called by its name."""
    X = function.box.probe(20_000, np.random.default_rng(0))
    X = X[function.off_band(X)]
    error = np.abs(network.run(X).astype(np.float64) - function.values(X))
    if math.isinf(goal.norm):
        high = float(np.nanmax(error))
    else:
        high = float(np.nanmean(np.nanmax(error[:20_000], axis=1) ** goal.norm) ** (1 / goal.norm))
    seen = Proof("sampling", high, high, measured=True, reason=missed.reason)
    return verdict(seen, goal.eps, about(function, network, missed.construction, goal.norm, goal.relative))


def _limits(options: dict[str, Any]) -> dict[str, Any]:
    """The limits and preferences of a request, checked."""
    limits = {k: v for k, v in options.items() if k != "prefer" and v is not None}
    prefer = options.get("prefer", "keys")
    one_of("prefer", prefer, ("keys", "layers", "float32"))
    return {**{k: whole_number(k, v, 0) for k, v in limits.items()}, "prefer": prefer}


def _check_floor(function: Function, eps: float, dtype: str) -> None:
    """Refuse what the dtype cannot hold, before any work."""
    with np.errstate(all="ignore"):
        values = function.values(function.box.probe(512, np.random.default_rng(0)))
    finite = np.abs(values[np.isfinite(values)])
    size = float(finite.max()) if len(finite) else 1.0
    if eps < FLOOR[dtype] * size:
        why = f"eps={eps:g} is below what {dtype} can hold for values of size {size:.3g}; "
        raise InvalidRequest(why + f"the least is about {FLOOR[dtype] * size:.1g}")
