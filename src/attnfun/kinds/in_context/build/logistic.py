"""Logistic regression in context by accelerated gradient steps, two attention layers an iteration.

Statement. With labels ±1 let x̃_i = y_i x_i. The optimum of f(w) = C Σ ln(1 + e^{−⟨w, x̃_i⟩}) + ½|w|² is approached by

    w⁺ = (1 + β) w − β w₋ − a ∇f(m),    m = (1 + γ) w − γ w₋,    ∇f(m) = m − C Σ_i x̃_i p_i,    p_i = σ(−⟨x̃_i, m⟩),

and read as (1 + δ) w − δ w₋: *triple momentum*, L = 1 + C high/4, r = 1 − 1/√L, a = (1 + r)/L, β = r²/(2 − r), γ =
β/(1 + r), δ = r²/(1 − r²), with the rate r.

Source. Nesterov (1983); Van Scoy, Freeman and Lynch (2018) for triple momentum.

Construction. Of a mirrored pair ±(x_i, y_i) one token is (x̃_i, 1), the other (−x̃_i, −1): no product is needed.
*Probability layer*: every example attends to the solver token with the logit −⟨x, m⟩ and to a token "null" with 0: a
softmax of two keys, exactly the sigmoid: p_i in one token of the pair, 1 − p_i in the other. *Gradient layer*: the
solver attends to examples with the logit s(p + y/2), which is s/2 ± s p_i on a pair, so mirrored values x sum to
x̃_i p_i (`richardson.py`). The last layer reads σ(⟨q, w⟩), again exactly.

Size. 2T + 1 layers for T iterations, width 4d + 7, two constant tokens.

Bound. ¼|q| √(2 ln 2 C N) r^T, plus a floor of bias and rounding (`kinds/in_context/prove_logistic.py` proves all of it).
The penalty alone is counted as curvature: a class has prompts whose examples are all so certain that they add none.

Failure mode. A large C: the depth grows like √(C high).
"""

from __future__ import annotations

import math

import numpy as np

from attnfun.kinds.in_context.build.lasso import SLACK
from attnfun.kinds.in_context.build.richardson import choose
from attnfun.network.blocks import GAP, Stream
from attnfun.network import TokenHead, TokenLayer, TokenNetwork, rounded
from attnfun.kinds.in_context.target import InContextTask

_UNITS = ("y", "prediction", "one", "data", "p", "solver", "null")


def _rates(task: InContextTask, dtype: str) -> tuple[float, float, float, float, float]:
    """(a, β, γ, δ) and the rate of convergence."""
    top = (1 + task.strength * task.spectrum[1] / 4) * (1 + SLACK[dtype])
    r = 1 - math.sqrt((1 - SLACK[dtype]) / top)
    beta = r**2 / (2 - r)
    return (1 + r) / top, beta, beta / (1 + r), r**2 / (1 - r**2), r


def logistic_iterations(task: InContextTask, eps: float) -> int:
    """Iterations after which what w starts from, times r^T |q|/4, is below eps for the whole class."""
    rate = _rates(task, "float64")[-1]
    start = math.sqrt(max(2 * math.log(2) * rate, 0.2785) * task.strength * task.examples)
    size = math.sqrt(task.dim) * task.query_range / 4 * start
    if not size < 1e300 * eps:
        return 10**9
    return 1 if rate < 1e-12 or size <= eps else 1 + max(1, math.ceil(math.log(eps / size) / math.log(rate)))


def build_logistic(
    task: InContextTask,
    iterations: int,
    dtype: str = "float64",
    heads: int | None = None,
    typical: bool = False,
    finer: int = 0,
) -> TokenNetwork:
    """The network of 2 · iterations + 1 layers; `finer` halves the scale of linearised sums so many times.

    The scale is the best for the bound of the whole class, or with `typical` for rounding as it comes.
    """
    s, d, N, C = Stream(task.dim, "xqwu", _UNITS), task.dim, task.examples, task.strength
    a, beta, gamma, delta, _ = _rates(task, dtype)
    noise = math.sqrt(2 * N) if typical else (2 * N + 32) * math.sqrt(d)
    scales = choose(4.0, dtype, noise, heads).finer(finer)  # p ≤ 1, and where all are 1 it is a tanh
    shut = {("one", d): -GAP, ("solver", d): GAP, ("null", d): GAP}

    def probability(block: str, gain: float, ahead: float, goal: str, name: str) -> TokenHead:
        """sigmoid of gain times the inner product with (1 + ahead) w − ahead w₋, which is u."""
        query = s.matrix(d + 1, {(block, 0): gain}, {("one", d): 1.0})
        key = s.matrix(d + 1, {("w", 0): 1 + ahead, ("u", 0): -ahead}, shut)
        parts = (query, key, s.matrix(1, {}, {("solver", 0): 1.0}), s.matrix(1, {}, {(goal, 0): 1.0}).T)
        return TokenHead(name, *s.rounded(parts, dtype))

    def gradient() -> TokenLayer:
        made = []
        for sigma, rho in zip(scales.sigma, scales.rho, strict=True):
            query = s.matrix(3, {}, {("solver", 0): sigma, ("one", 1): 1.0, ("null", 2): 1.0})
            units = {("p", 0): 1.0, ("y", 0): 0.5, ("one", 1): -GAP, ("data", 1): GAP, ("null", 2): 2 * GAP}
            output = s.matrix(d, {("w", 0): a * C * rho * N / sigma}, {}).T
            parts = (query, s.matrix(3, {}, units), s.matrix(d, {("x", 0): 1.0}, {}), output)
            made.append(TokenHead(f"Σ y x p, scale {sigma:g}", *s.rounded(parts, dtype)))
        blocks = {
            ("w", "w"): 1 + beta - a * (1 + gamma),
            ("u", "w"): a * gamma - beta,
            ("w", "u"): 1.0,
            ("u", "u"): 0.0,
        }
        return TokenLayer(tuple(made), rounded(s.carry(blocks), dtype))

    p = probability("x", -1.0, gamma, "p", "p = sigmoid(−⟨x, m⟩)")
    first = TokenLayer((p,), s.carry({}, {("p", "p"): 0.0}))
    last = TokenLayer((probability("q", 1.0, delta, "prediction", "sigmoid(⟨q, w⟩)"),))
    solvers = np.zeros((2, s.width))
    solvers[:, s.at("one")] = 1.0
    solvers[0, s.at("solver")] = solvers[1, s.at("null")] = 1.0
    readout = s.matrix(1, {}, {("prediction", 0): 1.0})
    layers = (*((first, gradient()) * iterations), last)
    return TokenNetwork(s.names, layers, solvers, readout, ("prediction",), dtype)
