"""TrilinearForm: the view of a ternary relation's model; what is said of it, its training, what `diagnose` looks at."""

from functools import cached_property
from typing import Any

from attnfun.certify.certificate import Certificate
from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.view import Found, Ranked, told
from attnfun.kinds.relation.view import lesson as towers
from attnfun.kinds.relation.view import subjects as tower_subjects
from attnfun.kinds.ternary.target import Coefficients, Ternary, Trilinear
from attnfun.language import Box, Graph
from attnfun.learn.lesson import Ask, Lesson
from attnfun.network.head import Of
from attnfun.search import Goal, certified


class TrilinearForm(Ranked[Ternary]):
    """Σ_i a_i(x) b_i(y) c_i(z): `form(X, Y, Z)` for columns (n,) each; or three trained towers in its place."""

    graph, box = Of[Graph]("target"), Of[Box]("target")
    coefficients = Of[Coefficients]("weights")
    """Chebyshev coefficients (N, rank) of every side."""

    @property
    def error(self) -> float:
        """The proved bound, rounding included; of a form from a file it is proved when it is asked for."""
        return self._proof.error[1]

    @cached_property
    def _proof(self) -> Certificate:
        if self.certificate.verified:
            return self.certificate
        return certified(self.target, self.weights, Goal(self.request.get("eps")))


def explain(model: TrilinearForm) -> str:
    """In words: what it is, and what is proved or was seen of it."""
    weights, cost = model.weights, model.cost
    made = "Trained" if model.trained else "Built"
    if isinstance(weights, Trilinear):
        degrees = ", ".join(f"{len(side) - 1} in {name}" for side, name in zip(weights.coefficients, model.box.names))
        what = f"a form of {model.rank} terms, polynomials of degree {degrees}."
    else:
        what = f"{len(weights.networks)} towers, {model.rank} features, {cost.layers} layer(s), "
        what += f"{cost.parameters:,} parameters, {model.dtype}."
    least = [f"Any form needs at least {model.rank_lower} terms."] if model.rank_lower else []
    about = f"{model.target.text}  on  {model.target.domain}"
    return "\n".join([about, f"{made}: {what}", *least, told(model.certificate)])


def record(model: TrilinearForm) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    out: dict[str, Any] = {"rank": model.rank, "rank_lower": model.rank_lower}
    if isinstance(model.weights, Trilinear):
        out["degrees"] = [len(side) - 1 for side in model.weights.coefficients]
    return out


def subjects(model: TrilinearForm, eps: float | None) -> Found:
    """The heads of trained towers; a form has none."""
    if isinstance(model.weights, Trilinear):
        return "a trilinear form", [], ["It holds features of three sides: there is no head to look at."]
    return tower_subjects(model, eps)


def lesson(given: Any, ask: Ask[Ternary]) -> Lesson:
    """Other coefficients in the shape of a form; with `widths`, and of towers, as for a relation of two variables."""
    from attnfun.kinds.ternary.torch_trilinear import FormProblem

    target, own = ask.target, ask.weights_of(given)
    if not isinstance(own, Trilinear) or ask.widths is not None or ask.rank is not None:
        return towers(given, ask)
    ask.no_noise()
    problem = FormProblem(target, own.coefficients)
    if ask.start == "random":
        problem = FormProblem(target, problem.random(ask.recipe.seed))
    elif isinstance(ask.start, Trilinear) and ask.start.architecture == own.architecture:
        problem = FormProblem(target, ask.start.coefficients)
    else:
        raise InvalidRequest("a form starts at random, from the constructed one, or from another of its shape")
    return Lesson(target, problem, lambda sides: Trilinear(sides, target.box))
