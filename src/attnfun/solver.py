"""`in_context`: a regression that a softmax-attention network solves in its forward pass; the object it returns."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate, Status
from attnfun.certify.in_context_prompt import prompt_bounds
from attnfun.certify.in_context_verdict import judge, predictions, prove
from attnfun.certify.stored import kept, read_back
from attnfun.certify.view import Undecided
from attnfun.errors import DamagedFile, Infeasible, InvalidRequest
from attnfun.gate import Gate, require_sup
from attnfun.network import (
    Cost,
    TokenArchitecture,
    TokenNetwork,
    TokenTransformer,
    load_tokens,
    save_tokens,
    tokens_to_torch,
)
from attnfun.network.claim import Claim
from attnfun.network.sealed import Source
from attnfun.rehearsal import FINER, Budget, rehearse
from attnfun.targets.in_context import InContextTask, prompt
from attnfun.targets.in_context_exact import example_prompts

if TYPE_CHECKING:
    import torch

KIND = "in-context"
_QUERIES = 512  # at a time
_LARGEST = 1e300  # tolerance


class BoundedPredictions(NamedTuple):
    """Predictions of one prompt, and what is proved of each: |prediction − exact prediction| ≤ bound."""

    predictions: NDArray[np.float64]
    bound: NDArray[np.float64]
    reasons: tuple[str, ...]  # why a bound is infinite; "" where it is not
    outside: str  # what of the prompt lies outside the declared class; "" where nothing does


@dataclass(frozen=True, eq=False)
class InContextSolver:
    """A network that solves `task` for every prompt of its class, with what is proved or measured of it."""

    task: InContextTask
    network: TokenNetwork | TokenTransformer
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)

    @overload
    def predict(
        self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike, *, bound: Literal[False] = False
    ) -> NDArray[np.float64]: ...
    @overload
    def predict(
        self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike, *, bound: Literal[True]
    ) -> BoundedPredictions: ...
    def predict(
        self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike, *, bound: bool = False
    ) -> NDArray[np.float64] | BoundedPredictions:
        """(queries,) predictions: builds the token matrix and runs the network, nothing else.

        Refuses with InvalidRequest, and with what would do, prompts outside the class: more examples than declared,
        entries outside the ranges, eigenvalues outside `spectrum`.

        With `bound` a `BoundedPredictions`: every prediction with a bound of its error that is proved for these very
        data (`certify/in_context_prompt.py`), infinite where the data do not determine it. That bound needs no class,
        so here a prompt outside it is run as long as the network can read it, and `outside` says what lies outside.
        """
        outside = ""
        try:
            x, t, queries = self._checked(X, y, X_query)
        except InvalidRequest as error:
            if not bound:
                raise
            outside, (x, t) = str(error), self.task.examples_of(X, y, any_size=True)
            queries = self.task.queries_of(X_query, any_size=True)
        parts = [
            predictions(self.network, self.task, x, t, queries[k : k + _QUERIES], self.alone)
            for k in range(0, len(queries), _QUERIES)
        ]
        found = np.concatenate(parts)
        return BoundedPredictions(found, *prompt_bounds(self.task, x, t, queries, found), outside) if bound else found

    def tokens(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike) -> NDArray[np.float64]:
        """(2 · examples + queries, width): the prompt as the network, here and in torch, reads it."""
        return prompt(self.network.coordinates, self.task, *self._checked(X, y, X_query))

    def coefficients(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """(dim,) the w that the solver token holds after the last layer, read from the token matrix."""
        if self.alone:
            raise InvalidRequest("a learned network holds no coefficients that are known: ask it for predictions")
        assert isinstance(self.network, TokenNetwork)
        x, t, queries = self._checked(X, y, np.zeros((1, self.task.dim)))
        states = self.network.stream(prompt(self.network.coordinates, self.task, x, t, queries))
        solver, dim = 2 * self.task.examples + 1, self.task.dim
        if self.task.task in ("linear", "ridge"):
            token, names = states[-1][solver].astype(np.float64), self.network.coordinates
            at = names.index("v1")
            return np.asarray(token[at : at + dim] / token[names.index("sign")])
        key = self.network.layers[-1].heads[0].key[:, :dim]  # what the last layer takes for w
        return np.asarray(states[-2][solver].astype(np.float64) @ key)

    def _checked(
        self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        x, t = self.task.examples_of(X, y)
        queries = self.task.queries_of(X_query)
        if not self.task.covers(x):
            raise InvalidRequest(self._outside(x))
        return x, t, queries

    def _outside(self, x: NDArray[np.float64]) -> str:
        from attnfun.constructions.in_context import depth

        low, high = self.task.eigenvalues(x)
        matrix = f"XᵀX + {self.task.shift:g} I" if self.task.shift else "XᵀX"
        text = (
            f"these examples have eigenvalues of {matrix} from {low:.4g} to {high:.4g}, outside the declared spectrum "
            f"({self.task.spectrum[0]:g}, {self.task.spectrum[1]:g})"
        )
        if low <= 1e-9 * high:
            return f"{text}: they are linearly dependent; take ridge with alpha above 0, or more examples"
        bottom = max(min(_two_digits(low, math.floor), self.task.spectrum[0]), self.task.shift)
        ends = (bottom, max(_two_digits(high, math.ceil), self.task.spectrum[1]))
        eps = None if self.alone else self.request.get("eps") or self.certificate.error[1]
        if not (isinstance(eps, (int, float)) and 0 < eps < math.inf):
            return f"{text}; declare spectrum=({ends[0]:g}, {ends[1]:g})"
        layers = depth(replace(self.task, spectrum=ends), self.algorithm, float(eps))
        return f"{text}; declare spectrum=({ends[0]:g}, {ends[1]:g}): about {layers} layers for {eps:.2g}"

    @property
    def alone(self) -> bool:
        """Whether every query has a prompt of its own: networks that were trained so have not learned another way."""
        return self.request.get("method") == "train" or isinstance(self.network, TokenTransformer)

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    @property
    def algorithm(self) -> str:
        from attnfun.constructions.in_context import ALGORITHMS

        offered = ALGORITHMS[self.task.task]
        asked = self.request.get("algorithm")  # of a file, so it may be anything
        return asked if asked in offered else offered[0]

    @property
    def heads(self) -> int | None:
        """The number of Richardson heads that was asked for."""
        from attnfun.constructions.in_context import MOST_HEADS

        asked = self.request.get("heads")
        return asked if isinstance(asked, int) and 1 <= asked <= MOST_HEADS else None

    @property
    def iterations(self) -> int:
        """Steps of the algorithm: one a layer but the last, for lasso and logistic one every two layers."""
        layers = self.cost.layers
        return layers - 1 if self.task.task in ("linear", "ridge") else layers // 2

    @property
    def cost(self) -> Cost:
        return self.network.cost

    @cached_property
    def budget(self) -> Budget:
        """What optimisation, bias and rounding are expected to cost, predicted on example prompts; not a bound.

        Of trained weights nothing is predicted.
        """
        from attnfun.constructions.in_context import build

        if self.alone:
            return Budget(0.0, 0.0, 0.0, 0.0, prompts=0)
        assert isinstance(self.network, TokenNetwork)
        limit = build(self.task, len(self.network.layers), self.algorithm, "float64", self.heads, finer=FINER)
        return rehearse(self.network, limit, self.task)

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """The same network as a module on token matrices (see `tokens`): one attention call a layer."""
        return tokens_to_torch(self.network, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, task, request and certificate to one safetensors file."""
        target = {"kind": KIND, **self.task.to_json()}
        save_tokens(path, self.network, {"target": target, **kept(self.request, self.certificate)})

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The error against the depth: optimisation, the floors of bias and rounding, what is proved and measured."""
        from attnfun.plots.in_context import draw_in_context

        if self.alone:
            raise InvalidRequest("the picture is that of a construction; this network was trained")
        return draw_in_context(self, path)  # type: ignore[arg-type]  # a constructed one has no ReLU units

    def explain(self) -> str:
        """In words: what was built, what its layers do, what is proved of it and what is predicted."""
        c, cost, task = self.certificate, self.cost, self.task
        lines = [f"{task.text}: {task.domain}."]
        lines.append(
            f"Built: {cost.layers} layers, {cost.heads} heads, width {self.network.width}, {cost.keys} constant tokens,"
            f" {cost.parameters:,} parameters, {self.network.dtype}; prompts of {2 * task.examples} tokens and queries."
        )
        if self.alone:
            units = sum(self.network.units) if isinstance(self.network, TokenTransformer) else 0
            lines += [f"{units:,} ReLU units stand between its layers."] if units else []
            return "\n".join([*lines, "Its weights were trained.", f"{c.heading}: {c.reason or c.status.meaning}."])
        lines.append(_STORIES[task.task].format(steps=self.iterations, name=self.algorithm, kappa=task.condition))
        if c.bounds:
            order = ("optimisation", "bias", "rounding", "input")
            parts = ", ".join(f"{name} {c.parts[name]:.2g}" for name in order if name in c.parts)
            lines.append(f"{c.heading}, for every prompt of the class: predictions within {c.error[1]:.3g} ({parts}).")
            lines.append(f"Hypotheses: {'; '.join(c.hypotheses)}.")
        else:
            lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
        b = self.budget
        if b.prompts:
            lines.append(
                f"Predicted on example prompts (an estimate): {b.total:.2g}, of which optimisation "
                f"{b.optimisation:.2g}, bias {b.bias:.2g}, rounding {b.rounding:.2g}."
            )
        return "\n".join(lines)


_STORIES = {
    "linear": "Queries solve A v = q and a solver token A w = Xᵀy, by {steps} steps of {name} (condition number "
    "{kappa:.3g}); the last layer multiplies their residuals away.",
    "lasso": "{steps} proximal steps, each a gradient layer and a layer that soft-thresholds every coefficient, then "
    "one layer that predicts (condition number {kappa:.3g}).",
    "logistic": "{steps} accelerated gradient steps, each a layer of exact sigmoids and a layer that gathers the "
    "gradient, then one layer that predicts.",
}
_STORIES["ridge"] = _STORIES["linear"]


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
    progress: Callable[[str], None] | None = None,
) -> InContextSolver:
    """A softmax-attention network that solves a regression on the examples of its prompt, for a whole class of prompts.

    `task`: "linear", "ridge" (penalty `alpha`), "lasso" (`alpha`) or "logistic" (`C`). The class: at most `examples`
    examples of `dim` entries up to `x_range`, |y| up to `y_range`, queries up to `query_range`, eigenvalues of
    XᵀX + alpha I (lasso, logistic: XᵀX) within `spectrum`; defaults are those of standard normal examples.
    `eps` is absolute, on predictions. `layers` fixes the depth; without it the depth is the one at which eps is proved.
    `algorithm`: "chebyshev" or "gd" for linear and ridge, "accelerated" or "proximal" for lasso; by default the one
    that takes the fewest layers. `heads` fixes the Richardson heads of a sum (1 to 8); without it 4 at
    most, and 8 where only they prove eps.
    `accept`: "proved", the default, or "sampled": measured on example prompts, on hard ones and on those that a search
    finds is enough, and the certificate then says `sampled`.
    Raises Infeasible, with the nearest request that would do, where eps is not reached.
    """
    say = progress or (lambda text: None)
    asked = InContextTask.make(
        task,
        dim,
        examples,
        alpha=alpha,
        C=C,
        spectrum=spectrum,
        x_range=x_range,
        y_range=y_range,
        query_range=query_range,
    )
    name = _check(asked, eps, layers, heads, dtype, algorithm, accept)
    wanted = accept or "proved"
    if wanted == "sampled" and not example_prompts(asked, 1):
        raise InvalidRequest(
            f"nothing can be measured: normal examples with eigenvalues up to {asked.spectrum[1]:g} do not fit "
            f"x_range={asked.x_range:.4g}; declare a larger x_range"
        )
    request = {"eps": eps, "algorithm": name, "layers": layers, "heads": heads, "accept": wanted}
    made = _Making(asked, eps, name, heads, dtype, wanted, request, say)
    return made.at(layers) if layers is not None else made.deep_enough()


@dataclass(frozen=True)
class _Making:
    """One request, and the two ways to a network: at a given depth, or at the least depth that will do."""

    task: InContextTask
    eps: float | None
    algorithm: str
    heads: int | None
    dtype: str
    wanted: str
    request: Mapping[str, Any]
    say: Callable[[str], None]

    def _build(self, layers: int) -> TokenNetwork:
        from attnfun.constructions.in_context import build

        typical = self.wanted == "sampled" and self.dtype == "float32"
        return build(self.task, layers, self.algorithm, self.dtype, self.heads, typical)

    def _try(self, layers: int) -> InContextSolver:
        self.say(f"{layers} layers")
        network = self._build(layers)
        name, sampled = f"{self.task.task} by {self.algorithm}", self.wanted == "sampled"
        certificate = judge(network, self.task, self.eps, name, search=sampled)
        if certificate.status is Status.UNDECIDED and sampled:
            worst = certificate.details.get("measured", math.inf)
            if worst < math.inf and (self.eps is None or worst <= self.eps):
                certificate = replace(
                    certificate, status=Status.SAMPLED, error=(worst, worst), method="sampling", parts={}
                )
        return InContextSolver(self.task, network, certificate, self.request)

    def at(self, layers: int) -> InContextSolver:
        made = self._try(layers)
        if made.certificate.status in (Status.PROVED, Status.BOUNDED, Status.SAMPLED):
            return made
        if self.eps is None:
            raise Infeasible(
                f"nothing can be {self.wanted} of {layers} layers for {self.task.domain}: {made.certificate.reason}"
            )
        nearest: dict[str, Any] = {}
        high = made.certificate.error[1]
        try:
            deep = self.deep_enough()
            nearest["layers"] = deep.cost.layers
            nearest |= {"heads": deep.heads} if deep.heads != self.heads else {}
        except Infeasible as why:
            nearest = {"eps": float(f"{1.05 * high:.2g}")} if math.isfinite(high) else dict(why.nearest or {})
        low, top = self.task.spectrum
        why_not = made.certificate.reason or f"{high:.3g} is proved"
        raise Infeasible(
            f"{layers} layers do not reach eps={self.eps:.3g} for spectrum ({low:g}, {top:g}), condition number "
            f"{self._condition:.3g}: {why_not}",
            nearest,
        )

    def _shallower(self) -> dict[str, Any]:
        """A request whose depth is one that is built: another algorithm, a larger lowest eigenvalue, a smaller C."""
        from attnfun.constructions.in_context import MOST_LAYERS, best, depth

        assert self.eps is not None
        task, limit = self.task, 0.8 * MOST_LAYERS[self.task.task]
        if self.algorithm != best(task, self.eps):
            return {"algorithm": best(task, self.eps)}
        (low, high), C = task.spectrum, task.strength
        if task.task == "logistic":
            while C > 1e-12 and depth(replace(task, strength=C), self.algorithm, self.eps) > limit:
                C /= 2
            return {"C": float(f"{C:.2g}")}
        while low < high / 2 and depth(replace(task, spectrum=(low, high)), self.algorithm, self.eps) > limit:
            low *= 2
        return {"spectrum": [float(f"{low:.3g}"), high]}

    def _too_deep(self, layers: int, limit: int) -> Infeasible:
        would = {"lasso": "a narrower spectrum", "logistic": "a smaller C or a larger eps"}
        return Infeasible(
            f"eps={self.eps:.3g} at condition number {self._condition:.3g} takes {layers:,} layers, more than "
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

    def _proved_at(self, layers: int, limit: int) -> int:
        """The least depth from `layers` on at which eps is proved, of a network of two layers a step."""
        assert self.eps is not None
        below, jump, before, high = layers - 2, 2, math.inf, 0
        while layers - below > 2 or not high:
            at = layers if not high else below + (layers - below) // 4 * 2
            if at > limit:
                raise self._too_deep(at, limit)
            try:
                bound = prove(self._build(at), self.task)
            except Undecided as why:
                raise self._floor(str(why), math.inf) from None
            floor = bound.bias + bound.rounding + bound.input
            if bound.total <= self.eps:
                layers = high = at
            elif high:
                below = at
            elif not (floor < self.eps or floor < 0.9 * before):
                raise self._floor(f"the proved bound {bound.total:.3g} is above eps {self.eps:.3g}", floor)
            else:
                below, layers, jump, before = at, at + jump, 2 * jump, floor
        return high

    def deep_enough(self) -> InContextSolver:
        from attnfun.constructions.in_context import MOST_HEADS, MOST_LAYERS, depth

        assert self.eps is not None
        best, limit = math.inf, MOST_LAYERS[self.task.task]
        step = 1 if self.task.task in ("linear", "ridge") else 2
        layers = depth(self.task, self.algorithm, self.eps)
        if step == 2 and self.wanted == "proved":
            return self._try(self._proved_at(layers, limit))
        enough = layers if step == 2 else 0
        if step == 2:  # the bound of the whole class is far from what is seen
            layers = min(layers, limit) // 6 * 2 + 3
        for _ in range(24):
            if layers > limit:
                raise self._too_deep(layers, limit)
            made = self._try(layers)
            found = made.certificate
            if found.status in (Status.PROVED, Status.SAMPLED):
                return made
            reached = found.error[1]
            if self.wanted == "sampled":
                seen = found.status is Status.REFUTED
                reached = found.error[0] if seen else found.details.get("measured", math.inf)
            if layers >= enough and not reached < 0.8 * best:
                break
            best = min(best, reached)
            layers += max(step, step * (layers // (20 if step == 1 else 8)))
        if self.wanted == "proved" and self.heads is None and min(best, reached) < 8 * self.eps:
            finest = replace(self, heads=MOST_HEADS, request={**self.request, "heads": MOST_HEADS})
            return finest.deep_enough()  # eight times is more than they can gain
        raise self._floor(found.reason, min(best, reached))

    @property
    def _condition(self) -> float:
        """Of the objective: logistic regression has the penalty's curvature for certain, and no other."""
        logistic = self.task.task == "logistic"
        return 1 + self.task.strength * self.task.spectrum[1] / 4 if logistic else self.task.condition


def _check(
    task: InContextTask,
    eps: float | None,
    layers: int | None,
    heads: int | None,
    dtype: str,
    algorithm: str | None,
    accept: str | None,
) -> str:
    from attnfun.constructions.in_context import ALGORITHMS, MOST_HEADS, MOST_LAYERS, best

    if eps is None and layers is None:
        raise InvalidRequest("give eps, the tolerance of predictions, or layers, the depth")
    if eps is not None and (isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 < eps < _LARGEST):
        raise InvalidRequest(f"eps={eps!r:.30}: a positive finite tolerance is needed")
    for name, value, most in (("layers", layers, MOST_LAYERS[task.task]), ("heads", heads, MOST_HEADS)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
            raise InvalidRequest(f"{name}={value!r:.30}: a whole number from 1 to {most} is needed")
    if dtype not in ("float64", "float32"):
        raise InvalidRequest(f"dtype={dtype!r}: write float64 or float32")
    if accept not in (None, "proved", "sampled"):
        raise InvalidRequest(f"accept={accept!r}: write proved or sampled")
    offered = ALGORITHMS[task.task]
    if algorithm is not None and algorithm not in offered:
        raise InvalidRequest(f"algorithm={algorithm!r:.30} for {task.task}: write {' or '.join(offered)}")
    return algorithm or best(task, eps)


def _two_digits(value: float, rounding: Callable[[float], int]) -> float:
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    if step == 0:
        return value
    return float(f"{rounding(value / step) * step:.6g}")


def is_in_context(meta: Mapping[str, Any]) -> bool:
    target = meta.get("target")
    return isinstance(target, dict) and target.get("kind") == KIND


def load_in_context(path: Source) -> InContextSolver:
    """The solver of a file; its certificate is the stored one, not proved anew."""
    network, meta = load_tokens(path, units=True)
    task = _stored_task(path, network, meta)
    certificate, request, _ = read_back(meta, network.dtype, task.text, task.domain)
    return InContextSolver(task, network, certificate, request)


def verify_in_context(path: Source, gate: Gate, _progress: Any = None) -> Certificate:
    """Judge the file again from its weights and its task; no number of the stored certificate is read."""
    network, meta = load_tokens(path, ignore=("certificate",), units=True)
    task, claim = _stored_task(path, network, meta), Claim.of(meta)
    gate.no_expression("the file holds a network that solves a regression in context: it has no expression")
    require_sup(claim)
    eps = gate.tolerance(claim, network.dtype)
    if isinstance(network, TokenTransformer):
        about = eps, math.inf, network.dtype, "none", task.text, task.domain, "learned"
        why = "it has ReLU units between its layers, and nothing is proved of those"
        return Certificate(Status.UNDECIDED, (0.0, math.inf), *about, reason=why)
    return judge(network, task, eps, "learned" if claim.trained else task.task, alone=claim.trained)


def _stored_task(
    path: Source, network: TokenNetwork | TokenTransformer, meta: Mapping[str, Any]
) -> InContextTask:
    if not is_in_context(meta):
        raise DamagedFile(f"{Path(path)} holds a token network, but not one that solves a regression in context")
    task = InContextTask.from_json({key: value for key, value in meta["target"].items() if key != "kind"})
    needed = {f"{block}{j + 1}" for block in "xq" for j in range(task.dim)} | {"y", "one", "data"}
    if not needed <= set(network.coordinates) or len(network.outputs) != 1:
        raise DamagedFile("the file's network does not fit its task")
    return task
