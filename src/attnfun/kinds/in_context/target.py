"""In-context tasks: a regression that a network solves for every data set of a declared class, read from its prompt.

| symbol | meaning |
| --- | --- |
| X (n, d), y (n,) | the examples, n ≤ `examples`, d = `dim` |
| q | a query, x of a point where y is asked for |
| λ | eigenvalues of XᵀX + alpha I for linear and ridge, of XᵀX for lasso and logistic; all within `spectrum` |

| task | minimises over w | prediction at q |
| --- | --- | --- |
| linear | ½\\|y − Xw\\|² | ⟨w, q⟩ |
| ridge | ½\\|y − Xw\\|² + ½ alpha \\|w\\|² | ⟨w, q⟩ |
| lasso | \\|y − Xw\\|²/(2n) + alpha \\|w\\|₁ | ⟨w, q⟩ |
| logistic | C Σ ln(1 + e^{−y_i ⟨w, x_i⟩}) + ½\\|w\\|², labels ±1 | 1/(1 + e^{−⟨w, q⟩}), the probability of +1 |

These are scikit-learn's LinearRegression, Ridge, Lasso and LogisticRegression, all without an intercept (append a
column of ones for one).

**The default class is that of standard normal examples.** Their singular values lie between √n − √d − t and
√n + √d + t, each end with probability at least 1 − e^{−t²/2} (Davidson and Szarek 2001); t is chosen for 1 %. All n d
entries are at most `x_range` = √(2 ln(2 n d/0.001)) with probability at least 99.9 %. So a standard normal data set is
refused with probability at most 2.1 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.errors import InvalidRequest, require
from attnfun.language.inputs import numbers
from attnfun.language.numbers import one_of, whole_number
from attnfun.language.target import Array, Target, settle
from attnfun.network.tokens import TokenNetwork, sample_size

ALGORITHMS = {
    "linear": ("chebyshev", "gd"),
    "ridge": ("chebyshev", "gd"),
    "lasso": ("accelerated", "proximal"),
    "logistic": ("triple-momentum",),
}
TASKS = tuple(ALGORITHMS)
_LINEAR = ("linear", "ridge")
_STRENGTHS = {"linear": 0.0, "ridge": 1.0, "lasso": 0.1, "logistic": 1.0}
EDGE = 1e-9  # of the largest eigenvalue: how far outside `spectrum` computed eigenvalues may lie; proofs cover it
_MARGIN = math.sqrt(2 * math.log(100))
_LIMIT = 1e100
_MOST_EXAMPLES, _MOST_DIM = 4_096, 256  # a token matrix attends to itself: memory grows with their squares


class OutsideSpectrum(InvalidRequest):
    """Examples whose eigenvalues are not those of the class; `declare` is a spectrum that has room for them, if any."""

    def __init__(self, text: str, declare: tuple[float, float] | None) -> None:
        super().__init__(text)
        self.declare = declare


@dataclass(frozen=True)
class InContextTask(Target):
    """What is asked: the task, and the class of prompts for which it is asked. `strength` is alpha, or logistic's C."""

    kind: ClassVar[str] = "in_context"
    draws_what: ClassVar[str] = "prompts with one query"

    task: str
    dim: int
    examples: int
    strength: float
    spectrum: tuple[float, float]
    x_range: float
    y_range: float = 3.0
    query_range: float = 2.5

    def __post_init__(self) -> None:
        check_strength(self.task, self.strength)
        dim, examples = _sizes(self.dim, self.examples)
        settle(self, {"dim": dim, "examples": examples})
        for name in ("x_range", "y_range", "query_range"):
            value = getattr(self, name)
            require(_is_number(value) and value > 0, f"{name}={value!r:.40}: a positive number is needed")
            settle(self, {name: float(value)})
        require(self.task != "logistic" or self.y_range == 1, "labels of logistic regression are ±1: y_range is 1")
        ends = tuple(self.spectrum) if np.iterable(self.spectrum) else ()
        require(len(ends) == 2, f"spectrum={self.spectrum!r:.40}: two numbers low, high are needed")
        low, high = ends
        good = _is_number(low) and _is_number(high) and 0 <= low <= high and (high if self.from_zero else low) > 0
        least = "0 <= low <= high and 0 < high" if self.from_zero else "0 < low <= high"
        require(good, f"spectrum=({low!r:.30}, {high!r:.30}): two numbers {least} are needed")
        require(low >= self.shift, f"spectrum: XᵀX + {self.shift:g} I has no eigenvalue below {self.shift:g}")
        settle(self, {"spectrum": (float(low), float(high)), "strength": float(self.strength)})

    @classmethod
    def make(
        cls,
        task: str,
        dim: int,
        examples: int,
        *,
        alpha: float | None = None,
        C: float | None = None,
        spectrum: Any = None,
        x_range: float | None = None,
        y_range: float | None = None,
        query_range: float = 2.5,
    ) -> InContextTask:
        """A task with the defaults filled in; what does not fit the task is refused."""
        given, other = (C, alpha) if task == "logistic" else (alpha, C)
        require(other is None, "logistic regression takes C, the other tasks take alpha")
        strength = _STRENGTHS.get(task, 0.0) if given is None else given
        check_strength(task, strength)
        dim, examples = _sizes(dim, examples)
        if spectrum is None:
            shift = float(strength if task in _LINEAR else 0.0)
            spectrum = normal_spectrum(dim, examples, shift, from_zero=task == "logistic")
        if y_range is None:
            y_range = 1.0 if task == "logistic" else 3.0
        reach = normal_range(dim, examples) if x_range is None else x_range
        return cls(task, dim, examples, strength, spectrum, reach, y_range, query_range)

    @property
    def shift(self) -> float:
        """What is added to XᵀX before its eigenvalues must be within `spectrum`."""
        return self.strength if self.task in _LINEAR else 0.0

    @property
    def from_zero(self) -> bool:
        """Whether the spectrum may begin at 0: logistic regression has the curvature of its penalty for certain."""
        return self.task == "logistic"

    @property
    def condition(self) -> float:
        """Of the objective."""
        low, high = self.spectrum
        return 1 + self.strength * high / 4 if self.from_zero else high / low

    @property
    def text(self) -> str:
        name = self.task if self.task == "lasso" else f"{self.task} regression"
        word = "C" if self.task == "logistic" else "alpha"
        return f"in-context {name}" + ("" if self.task == "linear" else f" ({word}={self.strength:g})")

    @property
    def domain(self) -> str:
        matrix = f"XᵀX + {self.shift:g} I" if self.shift else "XᵀX"
        most = "" if self.task == "lasso" else "at most "
        ys = "y = ±1" if self.task == "logistic" else f"|y| ≤ {self.y_range:g}"
        return (
            f"{most}{self.examples} examples in {self.dim} dimensions, eigenvalues of {matrix} in "
            f"[{self.spectrum[0]:g}, {self.spectrum[1]:g}], |x| ≤ {self.x_range:.4g}, {ys}, "
            f"queries ≤ {self.query_range:g} (entries)"
        )

    def token_coordinates(self) -> tuple[str, ...]:
        """What `prompt` writes into a token."""
        places = range(1, self.dim + 1)
        return (*(f"x{j}" for j in places), *(f"q{j}" for j in places), "y", "one", "data")

    def token_outputs(self) -> tuple[str, ...]:
        return ("prediction",)

    def examples_of(self, X: ArrayLike, y: ArrayLike, any_size: bool = False) -> tuple[Array, Array]:
        """X and y as arrays, of one prompt or (batch, examples, dim) of many, checked against the class in everything
        but the spectrum; with `any_size` the ranges are left out too, and what is checked is what the network needs.
        """
        x, t = _matrix(X, self.dim, "X"), _numbers(y, "y")
        rows = x.shape[-2]
        require(t.shape == x.shape[:-1], f"X has {rows} rows and y the shape {t.shape}: one number per row is needed")
        if rows > self.examples:
            raise InvalidRequest(
                f"{rows} examples, but the network was built for at most {self.examples}: "
                f"build it with examples={rows}, or give fewer"
            )
        if self.task == "lasso" and rows != self.examples:
            raise InvalidRequest(
                f"{rows} examples for a lasso of {self.examples}: its penalty is alpha times the number of examples, "
                f"so the number is part of the weights; build it with examples={rows}"
            )
        if not any_size:
            _within(x, self.x_range, "X", "x_range")
        if self.task == "logistic":
            require(bool(np.isin(t, (-1.0, 1.0)).all()), "labels must be -1 and 1")
        elif not any_size:
            _within(t, self.y_range, "y", "y_range")
        return x, t

    def queries_of(self, X_query: ArrayLike, any_size: bool = False) -> Array:
        q = _matrix(X_query, self.dim, "X_query")
        if not any_size:
            _within(q, self.query_range, "X_query", "query_range")
        return q

    def checked(self, X: ArrayLike, y: ArrayLike, X_query: ArrayLike) -> tuple[Array, Array, Array]:
        """Prompts of the class; InvalidRequest, with what would do, for any other."""
        (x, t), queries = self.examples_of(X, y), self.queries_of(X_query)
        if not self.covers(x):
            raise self._outside(x)
        return x, t, queries

    def eigenvalues(self, X: Array) -> tuple[Any, Any]:
        """The extreme eigenvalues of XᵀX + shift I, computed; of many prompts arrays of them."""
        values = np.linalg.eigvalsh(np.swapaxes(X, -1, -2) @ X)
        return np.maximum(values[..., 0], 0.0) + self.shift, values[..., -1] + self.shift

    def inside(self, X: Array) -> NDArray[np.bool_]:
        """Are the eigenvalues within `spectrum`, but for rounding? One of 0 is only if `spectrum` begins there."""
        low, high = self.eigenvalues(X)
        slack = EDGE * self.spectrum[1]
        good = (self.spectrum[0] - min(slack, self.spectrum[0] / 2) <= low) & (high <= self.spectrum[1] + slack)
        return np.asarray(good)

    def covers(self, X: Array) -> bool:
        return bool(self.inside(X).all())

    def _outside(self, x: Array) -> OutsideSpectrum:
        lows, highs = self.eigenvalues(x)
        low, high = float(np.min(lows)), float(np.max(highs))
        matrix = f"XᵀX + {self.shift:g} I" if self.shift else "XᵀX"
        text = (
            f"these examples have eigenvalues of {matrix} from {low:.4g} to {high:.4g}, outside the declared spectrum "
            f"({self.spectrum[0]:g}, {self.spectrum[1]:g})"
        )
        dependent = low <= 1e-9 * high
        if dependent and not self.from_zero:
            text += ": they are linearly dependent; take ridge with alpha above 0, or more examples"
            return OutsideSpectrum(text, None)
        bottom = 0.0 if dependent else max(min(_two_digits(low, math.floor), self.spectrum[0]), self.shift)
        ends = (bottom, max(_two_digits(high, math.ceil), self.spectrum[1]))
        return OutsideSpectrum(f"{text}; declare spectrum=({ends[0]:g}, {ends[1]:g})", ends)

    def alone(self, weights: Any) -> bool:
        """Whether every query has a prompt of its own: networks that were trained so have not learned another way."""
        return not isinstance(weights, TokenNetwork) or all(head.name == "learned" for head in weights.heads)

    def encode(self, weights: Any, X: ArrayLike, y: ArrayLike, X_query: ArrayLike) -> tuple[tuple[Array], bool]:
        """One prompt, X (n, dim), y (n,), X_query (queries, dim); or many, one query each: X (batch, n, dim),
        y (batch, n), X_query (batch, dim).

        Refuses with InvalidRequest, and with what would do, prompts outside the class: more examples than declared,
        entries outside the ranges, eigenvalues outside `spectrum`.
        """
        x, t, queries = self.checked(X, y, X_query)
        if x.ndim == 3 and queries.shape != (len(x), self.dim):
            raise InvalidRequest(f"{len(x)} prompts and queries of shape {queries.shape}: each prompt needs one query")
        return self.written(weights, x, t, queries)

    def written(self, weights: Any, x: Array, t: Array, queries: Array) -> tuple[tuple[Array], bool]:
        """What `encode` gives, unchecked: tokens, and whether every query stands in a prompt of its own."""
        apart = x.ndim == 3 or self.alone(weights)
        if apart:
            count, queries = len(queries), queries[:, None]
            x, t = np.broadcast_to(x, (count, *x.shape[-2:])), np.broadcast_to(t, (count, t.shape[-1]))
        return (prompt(weights.coordinates, self, x, t, queries),), apart

    def decode(self, outputs: Any, apart: bool) -> Array:
        """(queries,) predictions."""
        found = np.asarray(outputs, dtype=np.float64)[..., 2 * self.examples :, 0]
        return np.asarray(found[:, 0] if apart else found)

    def columns(self, weights: Any) -> tuple[list[str], list[str]]:
        told = "attnfun in-context FILE --data CSV --query CSV, or the list [X, y, X_query] in a .json file"
        raise InvalidRequest(f"{self.text} takes examples and queries: {told}")

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
        """A batch of full prompts, one query each, eigenvalues over the whole spectrum."""
        from attnfun.kinds.in_context.exact import draw_prompts

        return draw_prompts(self, rng, count)

    def exact(self, X: Array, y: Array, queries: Array) -> Array:
        """(batch,) predictions of the exact solver."""
        from attnfun.kinds.in_context.exact import exact_for_all

        return exact_for_all(self, X, y, queries)

    def sample_size(self, weights: Any) -> int:
        return sample_size(2 * self.examples + 1, weights.cost.heads)

    def fits(self, weights: Any) -> str:
        good = set(self.token_coordinates()) <= set(weights.coordinates) and len(weights.outputs) == 1
        return "" if good else "the file's network does not fit its task"


def _sizes(dim: Any, examples: Any) -> tuple[int, int]:
    return whole_number("dim", dim, 1, _MOST_DIM), whole_number("examples", examples, 1, _MOST_EXAMPLES)


def check_strength(task: str, strength: Any) -> None:
    """Refuse a task that is none, and an alpha, or a C, that the task has no meaning for."""
    one_of("task", task, TASKS)
    word = "C" if task == "logistic" else "alpha"
    positive = task in ("lasso", "logistic")
    good = _is_number(strength) and (strength > 0 if positive else strength >= 0)
    if not good or (task == "linear" and strength != 0):
        what = f"a number {'above' if positive else 'not below'} 0 is needed"
        what = "linear regression has alpha 0: ask for ridge" if task == "linear" else what
        raise InvalidRequest(f"{word}={strength!r:.40} for {task}: {what}")


def normal_spectrum(dim: int, examples: int, shift: float, from_zero: bool = False) -> tuple[float, float]:
    """The range of λ for standard normal examples, each end with probability at least 99 %."""
    small = max(0.0, math.sqrt(examples) - math.sqrt(dim) - _MARGIN) ** 2 + shift
    if small <= 0 and not from_zero:
        raise InvalidRequest(
            f"{examples} standard normal examples in {dim} dimensions may have eigenvalues near 0: declare "
            f"spectrum=(low, high), or take at least {math.ceil((math.sqrt(dim) + _MARGIN + 1) ** 2)} examples"
        )
    return small, (math.sqrt(examples) + math.sqrt(dim) + _MARGIN) ** 2 + shift


def normal_range(dim: int, examples: int) -> float:
    """No entry of standard normal examples is larger, with probability at least 99.9 %."""
    return math.sqrt(2 * math.log(2 * dim * examples / 1e-3))


def prompt(coordinates: Sequence[str], task: InContextTask, X: Array, y: Array, queries: Array) -> Array:
    """(…, 2 examples + queries, width) tokens of one prompt or of many: (x, y) and (−x, −y) of every example, zeros up
    to `examples`, the queries.

    Written by name: "x1" … "xd" and "y" in examples, "q1" … "qd" in queries, "one" (1 in every token), "data" (1 in
    examples, padding included); every other coordinate starts at 0.
    """
    place = {name: k for k, name in enumerate(coordinates)}
    try:
        xs, qs = ([place[f"{letter}{j + 1}"] for j in range(task.dim)] for letter in "xq")
        at_y, at_one, at_data = (place[name] for name in ("y", "one", "data"))
    except KeyError as error:
        raise InvalidRequest(f"the network has no coordinate {error} for its prompt") from None
    n, N = X.shape[-2], task.examples
    tokens = np.zeros((*X.shape[:-2], 2 * N + queries.shape[-2], len(coordinates)))
    tokens[..., :n, xs], tokens[..., N : N + n, xs] = X, -X
    tokens[..., :n, at_y], tokens[..., N : N + n, at_y] = y, -y
    tokens[..., 2 * N :, qs] = queries
    tokens[..., at_one] = 1.0
    tokens[..., : 2 * N, at_data] = 1.0
    return tokens


def _is_number(value: Any) -> bool:
    good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return good and bool(abs(value) < _LIMIT)


def _numbers(value: ArrayLike, name: str) -> Array:
    array = numbers(value, name)
    require(bool(np.isfinite(array).all()), f"{name} has entries that are not finite")
    return array


def _matrix(value: ArrayLike, dim: int, name: str) -> Array:
    array = _numbers(value, name)
    array = array[None] if array.ndim == 1 and len(array) == dim else array
    if array.ndim not in (2, 3) or array.shape[-1] != dim or not array.size:
        raise InvalidRequest(f"{name} has shape {np.shape(value)}: (rows, {dim}) is needed, at least one row")
    return array


def _within(array: Array, reach: float, name: str, option: str) -> None:
    largest = float(np.abs(array).max())
    if not largest <= reach:
        raise InvalidRequest(
            f"{name} has an entry of size {largest:.4g}, outside the declared {option}={reach:.4g}; "
            f"build the network with {option}={_two_digits(largest, _up):.4g}, or scale the data"
        )


def _two_digits(value: float, rounding: Callable[[float], int]) -> float:
    step = 10.0 ** (math.floor(math.log10(value)) - 1) if value else 0.0
    return value if step == 0 else float(f"{rounding(value / step) * step:.6g}")


def _up(value: float) -> int:
    return math.ceil(value - 1e-9)
