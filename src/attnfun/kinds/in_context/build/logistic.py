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

Bound. ¼|q| √(2 ln 2 C N) r^T, plus a floor of bias and rounding (`kinds/in_context/prove_logistic.py` proves all of
it). The penalty alone is counted as curvature: a class has prompts whose examples are all so certain that they add
none.

Failure mode. A large C: the depth grows like √(C high).
"""

import math

from attnfun.kinds.in_context.build.lasso import SLACK, iterations_for, roundings, stepped
from attnfun.kinds.in_context.build.richardson import choose
from attnfun.kinds.in_context.target import InContextTask
from attnfun.network import TokenHead, TokenLayer, TokenNetwork, rounded
from attnfun.network.named_coordinates import GAP, Stream

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
    return min(1 + iterations_for(math.sqrt(task.dim) * task.query_range / 4 * start, rate, eps), 10**9)


def build_logistic(
    task: InContextTask, iterations: int, _algorithm: str, dtype: str, heads: int | None, typical: bool, finer: int
) -> TokenNetwork:
    """The network of 2 · iterations + 1 layers; `finer` halves the scale of linearised sums so many times.

    The scale is the best for the bound of the whole class, or with `typical` for rounding as it comes.
    """
    s, d, N, C = Stream(task.dim, "xqwu", _UNITS), task.dim, task.examples, task.strength
    a, beta, gamma, delta, _ = _rates(task, dtype)
    scales = choose(4.0, dtype, roundings(task, typical), heads).finer(finer)  # p ≤ 1, and where all are 1 it is a tanh
    shut = {("one", d): -GAP, ("solver", d): GAP, ("null", d): GAP}

    def probability(block: str, gain: float, ahead: float, goal: str, name: str) -> TokenHead:
        """sigmoid of gain times the inner product with (1 + ahead) w − ahead w₋, which is u."""
        query, key = {(block, 0): gain, ("one", d): 1.0}, {("w", 0): 1 + ahead, ("u", 0): -ahead, **shut}
        return s.head(name, dtype, query, key, {("solver", 0): 1.0}, {(goal, 0): 1.0})

    def gradient(sigma: float, rho: float) -> TokenHead:
        query = {("solver", 0): sigma, ("one", 1): 1.0, ("null", 2): 1.0}
        key = {("p", 0): 1.0, ("y", 0): 0.5, ("one", 1): -GAP, ("data", 1): GAP, ("null", 2): 2 * GAP}
        output = {("w", 0): a * C * rho * N / sigma}
        return s.head(f"Σ y x p, scale {sigma:g}", dtype, query, key, {("x", 0): 1.0}, output)

    p = probability("x", -1.0, gamma, "p", "p = sigmoid(−⟨x, m⟩)")
    first = TokenLayer((p,), s.carry({("p", "p"): 0.0}))
    blocks = {("w", "w"): 1 + beta - a * (1 + gamma), ("u", "w"): a * gamma - beta, ("w", "u"): 1.0, ("u", "u"): 0.0}
    second = TokenLayer(tuple(gradient(*one) for one in scales.pairs), rounded(s.carry(blocks), dtype))
    last = TokenLayer((probability("q", 1.0, delta, "prediction", "sigmoid(⟨q, w⟩)"),))
    return stepped(s, (first, second) * iterations, last, dtype)
