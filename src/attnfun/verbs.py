"""The verbs: compile (a request to a proved network), load (a file), verify (prove a file again)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from attnfun.approximant import Approximant
from attnfun.certify import Certificate, Status, prove
from attnfun.certify.ranges import witnessed_range
from attnfun.certify.stored import read_back, story_of
from attnfun.errors import DamagedFile, Infeasible, InvalidRequest
from attnfun.file_kinds import kind_of
from attnfun.gate import Gate
from attnfun.network import Network, evaluate
from attnfun.network import load as load_file
from attnfun.network.claim import Claim
from attnfun.network.sealed import Source, held
from attnfun.targets import Box, Function, require_defined
from attnfun.targets.mlp import read_mlp

_SHARE, _TRIES = (
    0.97,
    4,
)  # of eps a construction may use at first (the rest is for the proof), and how often it is asked
_OPTIONS = {"temperature", "variant", "max_keys", "max_layers", "max_heads", "max_rank", "prefer"}
_FLOOR = {"float64": 2.0**-50, "float32": 2.0**-21}


def compile(
    target: Any,
    domain: Any,
    eps: float,
    *,
    method: str = "auto",
    norm: float | str = "sup",
    relative: bool = False,
    dtype: str = "float64",
    seed: int = 0,
    accept: str = "proved",
    realise: str = "attention",
    lipschitz: float | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Approximant:
    """A softmax-attention network within `eps` of `target` on `domain`, with its certificate.

    `target`: an expression, a list of expressions (several outputs), a function of NumPy arrays (traced; if it
    cannot be, a black box
    whose `lipschitz` constant must be declared: conditional certificate), or a ReLU network: a torch.nn.Sequential of
    Linear and ReLU, or the path of a safetensors file of weights, whose `domain` may be one pair (-1, 1) for all inputs
    or a list of pairs. `eps` is absolute, or with `relative` a
    fraction of the
    target's range. `norm`: "sup" or a number p ≥ 1. `method`: "auto" or a construction's name. `accept="sampled"`
    returns a network that
    could not be proved, marked as such, instead of raising Infeasible. `progress` is called with a word on each step.
    `realise="mlp"` builds the same program of steps with ReLU units instead of softmax heads: an MLP with skip
    connections, for comparison, proved in the same way (compose and affine only; units count as keys, blocks as heads).
    Options: `max_keys`, `max_layers`, `max_heads`, `max_rank` (of `cost.rank`) are kept or refused with the nearest
    request that fits; `prefer` "keys", "layers" or "float32" (small values); `temperature` (partition);
    `variant` (interpolation): "published", "inclusive" or "optimal".
    """
    unknown = set(options) - _OPTIONS
    if unknown:
        raise InvalidRequest(f"unknown option(s) {', '.join(sorted(unknown))}; there are {', '.join(sorted(_OPTIONS))}")
    say = progress or (lambda _text: None)
    power = read_norm(norm)
    check_request(eps, dtype, seed, accept)
    if realise not in ("attention", "mlp"):
        raise InvalidRequest(f"realise={realise!r}: write attention or mlp")
    mlp = read_mlp(target)
    box = Box.parse(domain) if mlp is None else mlp.box(domain)
    function = Function.read(target if mlp is None else mlp, box, lipschitz)
    asked: dict[str, Any] = {
        "eps": float(eps),
        "norm": "sup" if math.isinf(power) else power,
        "method": method,
        "dtype": dtype,
    }
    asked |= {"relative": bool(relative), "seed": int(seed), "realise": realise}
    say("is the target defined on the domain?")
    if function.graph is not None:
        require_defined(function.graph, box, continuous=math.isinf(power))
    shown = None
    if relative:
        eps, shown = _absolute(function, float(eps), dtype)
    if shown is None or shown["range"] > 0:
        _check_floor(function, eps, dtype)
    try:
        with one_thread():
            return _search(function, float(eps), power, dtype, int(seed), method, accept, shown, asked, options, say)
    except Infeasible as why:
        if shown is None or not shown["range"] > 0 or "eps" not in (why.nearest or {}):
            raise
        near = dict(why.nearest or {})  # an absolute eps; asked was for a fraction of the range
        raise Infeasible(str(why), {**near, "eps": float(f"{1.01 * near['eps'] / shown['range']:.3g}")}) from None


def one_thread() -> Any:
    """One BLAS thread: the matrices are small, and a request must give the same bits on any number of cores."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas")


def _search(
    function: Function,
    eps: float,
    norm: float,
    dtype: str,
    seed: int,
    method: str,
    accept: str,
    relative: dict[str, Any] | None,
    asked: dict[str, Any],
    options: dict[str, Any],
    say: Callable[[str], None],
) -> Approximant:
    """Plan, build, prove; on a miss leave the proof more room, then the next construction, then refuse with what was
    reached.
    """
    from attnfun.constructions import Plan, Request, choose  # here, so that `verify` never loads a construction

    limits = _limits(options)
    extra = {k: v for k, v in options.items() if k in ("temperature", "variant")}

    def asking(share: float, attempt: int = 0) -> Request:
        kind = asked["realise"]
        return Request(
            function, eps * share, norm, dtype, seed, realise=kind, attempt=attempt, options=extra, **limits
        )

    best: tuple[Plan, Network, Certificate] | None = None
    methods: dict[str, str] = {}
    tried: set[str] = set()
    while True:
        say("sizes of the constructions")
        try:
            choice = choose(asking(_SHARE), method, frozenset(tried))
        except Infeasible as why:
            if best is None:
                raise
            del why
            break
        methods |= choice.reasons
        construction, plan = choice.plans[0]
        tried.add(construction.name)
        share, failure, before = _SHARE, "", math.inf
        for attempt in range(_TRIES):
            request = asking(share, attempt)
            if attempt:
                try:
                    plan = construction.plan(request)
                except Infeasible:
                    break
            what = "units" if request.realise == "mlp" else "keys"
            say(f"building {plan.keys:,} {what} ({construction.name})")
            try:
                network = construction.build(request, plan)
            except InvalidRequest as why:  # weights the dtype cannot hold: this construction fails, not the request
                failure = str(why)
                break
            certificate = prove(
                network, function, norm=norm, eps=eps, construction=construction.name, relative=relative, report=say
            )
            if certificate.status in (Status.PROVED, Status.CONDITIONAL):
                return Approximant(function, network, certificate, asked, _jsonable({**plan.story, "methods": methods}))
            if best is None or certificate.error[1] < best[2].error[1]:
                best = (plan, network, certificate)
            failure = f"{plan.keys:,} {what}, not proved ({certificate.reason})"
            if certificate.error[0] > 1.5 * eps:
                break  # its sizing missed something; less eps will not mend that
            reached = certificate.error[1]  # ask for as much less as the proof was over, a little more each time
            room, lost = eps / reached, certificate.parts.get("rounding", 0.0)
            if dtype == "float32":  # of which only what is not rounding shrinks
                if reached > 0.99 * before:
                    break
                room = max((eps - lost) / (reached - lost), 0.3 * room) if lost < 0.9 * eps else room
            elif lost > eps or (reached > 10 * eps and reached > 0.5 * before):
                break  # less eps mends neither rounding nor a proof that is far off and comes no nearer
            before = reached
            share *= min(0.9, 0.95 * room) if reached < 100 * eps else 0.6
        methods[construction.name] = f"{construction.name}: {failure}"
        if method != "auto":
            break
    if best is None:
        raise Infeasible("; ".join(methods.values()))
    plan, network, certificate = best
    if accept == "sampled":
        story = _jsonable({**plan.story, "methods": methods})
        return Approximant(function, network, _sampled(function, network, certificate), asked, story)
    reached = certificate.error[1]
    nearest = {"eps": float(f"{reached * 1.05:.2g}")} if reached < 1e3 * eps else {"accept": "sampled"}
    raise Infeasible(f"eps={eps:.3g} for {function.text[:120]} could not be proved: {certificate.reason}", nearest)


def _sampled(function: Function, network: Network, certificate: Certificate) -> Certificate:
    """What was measured, called by its name."""
    X = function.box.probe(20_000, np.random.default_rng(0))
    error = np.abs(evaluate(network, X).astype(np.float64) - function.values(X))
    if math.isinf(certificate.norm):
        high = float(np.nanmax(error))
    else:
        high = float(np.nanmean(np.nanmax(error[:20_000], axis=1) ** certificate.norm) ** (1 / certificate.norm))
    fields = {
        k: getattr(certificate, k) for k in ("eps", "norm", "dtype", "target", "domain", "construction", "relative")
    }
    return Certificate(Status.SAMPLED, (high, high), method="sampling", reason=certificate.reason, **fields)


def check_request(eps: float, dtype: str, seed: int, accept: str = "proved") -> None:
    """Refuse an eps, a dtype, a seed or a word for `accept` that means nothing."""
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.floating, np.integer)):
        raise InvalidRequest(f"eps={eps!r} is not a number")
    if (isinstance(eps, int) and abs(eps) > 2**1000) or not (math.isfinite(eps) and eps > 0):
        raise InvalidRequest(f"eps={eps!r:.30}: a positive finite tolerance is needed")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidRequest(f"seed={seed!r:.30}: a whole number that is not negative is needed")
    if not isinstance(dtype, str) or dtype not in _FLOOR:
        raise InvalidRequest(f"dtype={dtype!r}: write float64 or float32")
    if accept not in ("proved", "sampled"):
        raise InvalidRequest(f"accept={accept!r}: write proved or sampled")


def _limits(options: dict[str, Any]) -> dict[str, Any]:
    """The limits and preferences of a request, checked."""
    out: dict[str, Any] = {}
    for name in ("max_keys", "max_layers", "max_heads", "max_rank"):
        value = options.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
                raise InvalidRequest(f"{name}={value!r}: a whole number is needed")
            out[name] = int(value)
    prefer = options.get("prefer", "keys")
    if prefer not in ("keys", "layers", "float32"):
        raise InvalidRequest(f"prefer={prefer!r}: write keys, layers or float32")
    return out | {"prefer": prefer}


def read_norm(norm: float | str) -> float:
    """inf for "sup", else the number p ≥ 1."""
    if isinstance(norm, str) and norm.lower() in ("sup", "inf", "max"):
        return math.inf
    try:
        p = float(norm)
    except (TypeError, ValueError):
        p = math.nan
    if not p >= 1:
        raise InvalidRequest(f"norm={norm!r}: write 'sup' or a number p >= 1")
    return p


def _check_floor(function: Function, eps: float, dtype: str) -> None:
    """Refuse what the dtype cannot hold, before any work."""
    with np.errstate(all="ignore"):
        values = function.values(function.box.probe(512, np.random.default_rng(0)))
    finite = np.abs(values[np.isfinite(values)])
    size = float(finite.max()) if len(finite) else 1.0
    if eps < _FLOOR[dtype] * size:
        raise InvalidRequest(
            f"eps={eps:g} is below what {dtype} can hold for values of size {size:.3g}; "
            f"the least is about {_FLOOR[dtype] * size:.1g}"
        )


def _absolute(function: Function, eps: float, dtype: str) -> tuple[float, dict[str, Any]]:
    """eps times a witnessed range of the target: never too lax, because the two witness points attain it."""
    if eps < _FLOOR[dtype]:
        raise InvalidRequest(
            f"eps={eps:g} relative is below what {dtype} can hold; the least is about {_FLOOR[dtype]:.1g}"
        )
    if function.graph is None:
        raise InvalidRequest("relative=True needs an expression: the range of a black box cannot be witnessed")
    width, above, below = witnessed_range(function)
    if width == 0:  # constant: exact up to the rounding of the constant itself
        value = float(np.abs(function.values(function.box.low_array[None])).max())
        return max(4 * _FLOOR[dtype] * value, 1e-300), {"fraction": eps, "range": 0.0}
    return eps * width, {"fraction": eps, "range": width, "at maximum": list(above), "at minimum": list(below)}


def _jsonable(value: Any) -> Any:
    """Plain JSON values; infinities become text."""
    if isinstance(value, dict):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else str(value)
    return int(value) if isinstance(value, np.integer) else value


def load(path: str | os.PathLike[str]) -> Any:
    """The Approximant of a file, or what another kind of file holds (`file_kinds`: a SequenceApproximant, a
    RelationApproximant, a Retrieval, a TrilinearForm, an InContextSolver, …); damaged or foreign files raise
    DamagedFile. Its certificate is the stored one, not proved anew, and says so: its status is `stored`.
    """
    file = held(path)
    kind = kind_of(file)
    if kind is not None:
        return kind.loaded(file)
    network, meta = load_file(file)
    function = _function(network, meta)
    certificate, request, _ = read_back(meta, network.dtype, function.text, function.box.text)
    return Approximant(function, network, certificate, request, story_of(meta))


def verify(
    path: str | os.PathLike[str],
    target: Any = None,
    *,
    eps: float | None = None,
    domain: Any = None,
    norm: float | str | None = None,
    dtype: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Certificate:
    """Prove the bound again from the stored weights and the stored target alone; no number of the stored certificate is
    read.

    `target` (an expression, or the Python function of a black box), `domain`, `norm` and `dtype` are what you expect:
    they are compared with what the file says, and a difference is an InvalidRequest. The verdict is about `eps`, which
    is absolute; if it is not given, about the eps for which the file says it was made (its absolute value, recomputed
    for relative requests). Without either a finite bound is `bounded`, never `proved`: trained networks have no eps.
    """
    gate = Gate(target, eps, domain, norm, dtype)
    file = held(path)
    kind = kind_of(file)
    again = _verify_function if kind is None else kind.verifier
    if again is None:
        assert kind is not None
        raise InvalidRequest(kind.proof)
    with one_thread():
        return cast(Certificate, again(file, gate, progress))


def _verify_function(file: Source, gate: Gate, progress: Callable[[str], None] | None) -> Certificate:
    network, meta = load_file(file, ignore=("certificate",))
    function, claim = _function(network, meta), Claim.of(meta)
    if isinstance(claim.norm, str):
        raise DamagedFile(f"the file says that it is about {claim.norm_text}, which is no norm of functions")
    eps, relative = gate.tolerance(claim, network.dtype), None
    gate.compare_domain(function.box)
    if gate.target is not None:
        function = _compared(function, gate)
    if gate.eps is None and claim.relative and claim.eps is not None:
        if function.graph is not None:
            require_defined(function.graph, function.box, continuous=False)
        eps, relative = _absolute(function, claim.eps, network.dtype)
    name = "learned" if claim.trained else _construction(network)
    return prove(
        network, function, norm=claim.norm, eps=eps, construction=name, relative=relative, report=progress
    )


def _construction(network: Network) -> str:
    """The construction a stored network came from: interpolation names its keys, compose and relu_network, which make
    the other labels, name coordinates differently; other heads bear its name.
    """
    if network.heads and all(getattr(head, "key_names", "").startswith("interpolation") for head in network.heads):
        return "interpolation"
    if network.labels is not None:
        units = all(re.fullmatch(r"unit \d+\.\d+", label.name) for label in network.labels.coordinates)
        return "relu_network" if units else "compose"
    return network.heads[0].name if network.heads else "affine"


def _function(network: Network, meta: dict[str, Any]) -> Function:
    try:
        box = Box.parse(str(meta["domain"]))
    except (KeyError, InvalidRequest):
        raise DamagedFile("the file's domain cannot be read") from None
    function = Function.from_json(meta.get("target"), box)
    same_box = np.array_equal(network.low, box.low_array) and np.array_equal(network.high, box.high_array)
    if network.inputs != box.names or len(network.outputs) != len(function.outputs) or not same_box:
        raise DamagedFile("the file's network does not fit its target or its domain")
    return function


def _compared(function: Function, gate: Gate) -> Function:
    if function.graph is None:
        if not callable(gate.target):
            raise InvalidRequest("the file's target is a black box; pass the Python function itself")
        return Function(
            None,
            function.box,
            function.outputs,
            Function.read(_opaque(gate.target), function.box, function.lipschitz).call,
            function.lipschitz,
        )

    def read(target: Any) -> tuple[Any, str]:
        other = Function.read(target, function.box)
        return other.expression, other.text

    gate.compare(function.box, function.text, function.expression, read)
    return function


def _opaque(target: Any) -> Any:
    """The same function, untraceable: a stored black box is judged as one."""

    def call(*columns: Any) -> Any:
        return target(*[np.array(c) if isinstance(c, np.ndarray) else float(c) for c in columns])

    return call
