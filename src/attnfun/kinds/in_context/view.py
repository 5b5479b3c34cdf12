"""InContextSolver: the view of a network that solves a regression in context, what `in_context` and `load` return; and
what is said and drawn of it."""

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest, require
from attnfun.kinds.in_context.exact import exact_predictions, example_prompts
from attnfun.kinds.in_context.prove import measured, predictions, prove
from attnfun.kinds.in_context.prove_prompt import prompt_bounds
from attnfun.kinds.in_context.target import ALGORITHMS, InContextTask, OutsideSpectrum, prompt
from attnfun.language.brief import Brief
from attnfun.language.numbers import at_most
from attnfun.language.target import Array
from attnfun.learn.lesson import Ask, Lesson, token_lesson
from attnfun.model import TokenModel
from attnfun.network import TokenNetwork, TokenTransformer
from attnfun.network.tokens import layer_output
from attnfun.plots import style
from attnfun.plots.model import draw_model
from attnfun.plots.picture import headed

_QUERIES = 512  # at a time
FINER = 8
_WIDE = np.longdouble
_DEPTHS = 14
_STORIES = {
    "linear": "Queries solve A v = q and a solver token A w = Xᵀy, by {steps} steps of {name} (condition number "
    "{kappa:.3g}); the last layer multiplies their residuals away.",
    "lasso": "{steps} proximal steps, each a gradient layer and a layer that soft-thresholds every coefficient, then "
    "one layer that predicts (condition number {kappa:.3g}).",
    "logistic": "{steps} accelerated gradient steps, each a layer of exact sigmoids and a layer that gathers the "
    "gradient, then one layer that predicts.",
}
_STORIES["ridge"] = _STORIES["linear"]


@dataclass(frozen=True)
class Budget(Brief):
    """Predicted errors of predictions (estimates), and on how many example prompts."""

    optimisation: float
    bias: float
    rounding: float
    total: float
    prompts: int


class BoundedPredictions(NamedTuple):
    """Predictions of one prompt, and what is proved of each: |prediction − exact prediction| ≤ bound."""

    predictions: Array
    bound: Array
    reasons: tuple[str, ...]  # why a bound is infinite; "" where it is not
    outside: str  # what of the prompt lies outside the declared class; "" where nothing does


class InContextSolver(TokenModel[InContextTask]):
    """A network that solves `task` for every prompt of its class: `net(X, y, X_query)`, or `predict`."""

    @property
    def task(self) -> InContextTask:
        return self.target

    @overload
    def predict(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike, *, bound: Literal[False] = False) -> Array: ...
    @overload
    def predict(
        self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike, *, bound: Literal[True]
    ) -> BoundedPredictions: ...
    def predict(
        self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike, *, bound: bool = False
    ) -> Array | BoundedPredictions:
        """(queries,) predictions: builds the token matrix and runs the network, nothing else.

        Refuses with InvalidRequest, and with what would do, prompts outside the class: more examples than declared,
        entries outside the ranges, eigenvalues outside `spectrum`.

        With `bound` a `BoundedPredictions`: every prediction with a bound of its error that is proved for these very
        data (`prove_prompt.py`), infinite where the data do not determine it. That bound needs no class, so here a
        prompt outside it is run as long as the network can read it, and `outside` says what lies outside.
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
            predictions(self.network, self.task, x, t, queries[k : k + _QUERIES])
            for k in range(0, len(queries), _QUERIES)
        ]
        found = np.concatenate(parts)
        return BoundedPredictions(found, *prompt_bounds(self.task, x, t, queries, found), outside) if bound else found

    def tokens(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike) -> Array:
        """(2 · examples + queries, width): the prompt as the network, here and in torch, reads it."""
        return prompt(self.network.coordinates, self.task, *self._checked(X, y, X_query))

    def coefficients(self, X: ArrayLike, y: ArrayLike) -> Array:
        """(dim,) the w that the solver token holds after the last layer, read from the token matrix."""
        require(not self.alone, "a learned network holds no coefficients that are known: ask it for predictions")
        assert isinstance(self.network, TokenNetwork)
        states = self.network.stream(self.tokens(X, y, np.zeros((1, self.task.dim))))
        solver, dim = 2 * self.task.examples + 1, self.task.dim
        if self.task.task in ("linear", "ridge"):
            token, names = states[-1][solver].astype(np.float64), self.network.coordinates
            at = names.index("v1")
            return np.asarray(token[at : at + dim] / token[names.index("sign")])
        key = self.network.layers[-1].heads[0].key[:, :dim]  # what the last layer takes for w
        return np.asarray(states[-2][solver].astype(np.float64) @ key)

    def _checked(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike) -> tuple[Array, Array, Array]:
        """One prompt of the class; the refusal of another spectrum says how deep a network for it would be."""
        try:
            x, t, queries = self.task.checked(X, y, X_query)
        except OutsideSpectrum as why:
            from attnfun.kinds.in_context.build import depth

            eps = None if self.alone else self.request.get("eps") or self.certificate.error[1]
            if why.declare is None or not (isinstance(eps, (int, float)) and 0 < eps < math.inf):
                raise
            layers = depth(replace(self.task, spectrum=why.declare), self.algorithm, float(eps))
            raise InvalidRequest(f"{why}: about {layers} layers for {eps:.2g}") from None
        require(x.ndim == queries.ndim == 2, "one prompt at a time: X (rows, dim), y (rows,), X_query (queries, dim)")
        return x, t, queries

    @property
    def alone(self) -> bool:
        """Whether every query has a prompt of its own: networks that were trained so have not learned another way."""
        return self.task.alone(self.network)

    @property
    def algorithm(self) -> str:
        offered = ALGORITHMS[self.task.task]
        asked = self.request.get("algorithm")  # of a file, so it may be anything
        return asked if asked in offered else offered[0]

    @property
    def heads(self) -> int | None:
        """The number of Richardson heads that was asked for."""
        from attnfun.kinds.in_context.build import MOST_HEADS

        asked = self.request.get("heads")
        return asked if isinstance(asked, int) and 1 <= asked <= MOST_HEADS else None

    @property
    def iterations(self) -> int:
        """Steps of the algorithm: one a layer but the last, for lasso and logistic one every two layers."""
        layers = self.cost.layers
        return layers - 1 if self.task.task in ("linear", "ridge") else layers // 2

    @cached_property
    def budget(self) -> Budget:
        """What optimisation, bias and rounding are expected to cost, predicted on example prompts; not a bound.

        Of trained weights nothing is predicted.
        """
        from attnfun.kinds.in_context.build import build

        if self.alone:
            return Budget(0.0, 0.0, 0.0, 0.0, prompts=0)
        assert isinstance(self.network, TokenNetwork)
        limit = build(self.task, len(self.network.layers), self.algorithm, "float64", self.heads, finer=FINER)
        return predicted_budget(self.network, limit, self.task)


def predicted_budget(network: TokenNetwork, limit: TokenNetwork, task: InContextTask, count: int = 8) -> Budget:
    """What optimisation, bias and rounding cost on example prompts: predicted on prompts that nobody will ask about.

    The network as it is, the same weights in extended precision (the difference is rounding), and `limit`, the same
    network with scales 2^-8 of its own, in extended precision, where linearisation is exact for all purposes (the
    difference is bias; what is left is optimisation). Estimates, not bounds. The worst of the prompts is looked into:
    its parts, its total.
    """
    N, worst = 2 * task.examples, -1.0
    prompts = example_prompts(task, count, queries=24, seed=1)
    if not prompts:
        return Budget(0.0, 0.0, 0.0, 0.0, 0)
    for X, y, queries in prompts:
        tokens = prompt(network.coordinates, task, X, y, queries)
        got = task.decode(network.run(tokens), False)
        exact = exact_predictions(task, X, y, queries)
        total = float(np.abs(got - exact).max())
        if not total <= worst:
            worst, chosen = total, (tokens, exact, got)
    tokens, exact, got = chosen
    first = 0 if task.task == "logistic" else N  # elsewhere examples are only read
    wide, ideal = (_extended(net, tokens, first)[N : N + len(got)] for net in (network, limit))
    parts = [float(np.abs(a - b).max()) for a, b in pairwise((exact, ideal, wide, got))]
    return Budget(parts[0], parts[1], parts[2], worst, len(prompts))


def _extended(network: TokenNetwork, tokens: Array, first: int) -> np.ndarray:
    """The prediction of every token, in the widest arithmetic there is; tokens before `first` stay as they are."""
    Z = network.joined(network.given(tokens)[None]).astype(_WIDE)
    for layer in network.layers:
        Z = np.concatenate([Z[:, :first], layer_output(layer, Z, first)], axis=1)
    return np.asarray((Z @ network.readout.astype(_WIDE))[0, :, 0])


def explain(model: InContextSolver) -> str:
    """In words: what was built, what its layers do, what is proved of it and what is predicted."""
    c, cost, task, network = model.certificate, model.cost, model.task, model.network
    lines = [f"{task.text}: {task.domain}."]
    lines.append(
        f"Built: {cost.layers} layers, {cost.heads} heads, width {network.width}, {cost.keys} constant tokens,"
        f" {cost.parameters:,} parameters, {network.dtype}; prompts of {2 * task.examples} tokens and queries."
    )
    if model.alone:
        units = sum(network.units) if isinstance(network, TokenTransformer) else 0
        lines += [f"{units:,} ReLU units stand between its layers."] if units else []
        return "\n".join([*lines, "Its weights were trained.", f"{c.heading}: {c.unproved}."])
    lines.append(_STORIES[task.task].format(steps=model.iterations, name=model.algorithm, kappa=task.condition))
    order = ("optimisation", "bias", "rounding", "input")
    parts = ", ".join(f"{name} {at_most(c.parts[name], 3)}" for name in order if name in c.parts)
    bound = f", for every prompt of the class: predictions within {at_most(c.error[1], 3)} ({parts})."
    lines += c.told(bound, f"Hypotheses: {'; '.join(c.hypotheses)}.")
    b = model.budget
    if b.prompts:
        lines.append(
            f"Predicted on example prompts (an estimate): {b.total:.2g}, of which optimisation "
            f"{b.optimisation:.2g}, bias {b.bias:.2g}, rounding {b.rounding:.2g}."
        )
    return "\n".join(lines)


@style.picture
def picture(solver: InContextSolver) -> Any:
    """The error against the depth: optimisation, the floors of bias and rounding, what is proved and measured.

    Draw into `path` (.png, .pdf or .svg), if one is given, and return the matplotlib Figure. The same network at up to
    14 depths, to its own and a third beyond: measured on example prompts, and proved.
    """
    from attnfun.kinds.in_context.build import MOST_LAYERS, build

    if solver.alone:
        return draw_model(solver)  # depths are those of a construction
    task, own, network = solver.task, solver.cost.layers, solver.network
    assert isinstance(network, TokenNetwork)
    figure = style.sheet(11.5, 5.4)
    ax = figure.add_subplot()
    step = 1 if task.task in ("linear", "ridge") else 2
    first, last = 1 + step, min(own + max(2, own // 3) * step, MOST_LAYERS[task.task])
    chosen = np.unique(np.linspace(0, (last - first) // step, _DEPTHS).round().astype(int))
    shown, seen, proved = sorted({first + step * int(k) for k in chosen} | {own}), [], []
    for layers in shown:
        options = network.dtype, solver.heads, network.dtype == "float32"
        one = network if layers == own else build(task, layers, solver.algorithm, *options)
        seen.append(measured(one, task, 2, math.inf, search=False)[0])
        try:
            proved.append(prove(one, task).total)
        except Undecided:
            proved.append(math.nan)
    if np.isfinite(proved).any() and network.dtype == "float64":
        ax.semilogy(shown, proved, color=style.BOUND, lw=1.4, label="proved for the whole class")
    ax.semilogy(shown, seen, color=style.NETWORKS[0], marker="o", ms=3, lw=1.2, label="measured on example prompts")
    for k, part in enumerate(("optimisation", "bias", "rounding")):
        value = getattr(solver.budget, part)
        if value > 0 and part != "optimisation":
            ax.axhline(value, color=style.NETWORKS[k + 1], lw=0.9, ls=":", label=f"{part}, predicted: {value:.1e}")
    eps = solver.request.get("eps")
    if eps:
        ax.axhline(eps, color=style.FAINT, lw=0.9, ls="--", label=f"eps = {eps:g}")
    ax.axvline(own, color=style.FAINT, lw=0.9)
    style.legend(ax, fontsize=7)
    note = f"by {solver.algorithm}, condition number {task.condition:.3g}; the line stands at its {own} layers"
    style.title(ax, "Error by depth", note, "layers", "largest error of a prediction")
    return headed(figure, solver)


def record(model: InContextSolver) -> dict[str, Any]:
    """The algorithm and its steps, the task, and the predicted budget (of trained weights there is none)."""
    return {
        "iterations": model.iterations,
        "algorithm": "training" if model.alone else model.algorithm,
        "task": model.task.to_json(),
        "predicted": asdict(model.budget),
    }


def lesson(given: Any, ask: Ask[InContextTask]) -> Lesson:
    """The shape of `given` (a model or an architecture), all of it free, towards the asked task."""
    return token_lesson(given, ask, reads=slice(2 * ask.target.examples, None))
