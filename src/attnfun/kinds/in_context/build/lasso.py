"""Lasso in context by proximal gradient steps, two attention layers an iteration.

Statement. w⁺ = S_t(v − s Xᵀ(Xv − y)), v = (1 + ω) w − ω w₋, with S_t(w) = relu(w − t) − relu(−w − t) coordinate by
coordinate and t = s N alpha. *proximal*: ω = 0, s = 2/(low + high); *accelerated*: s = 1/high, ω = (√κ − 1)/(√κ + 1).

Source. Iterative soft thresholding: Daubechies, Defrise and De Mol (2004); accelerated: Beck and Teboulle (2009), here
with Nesterov's constant momentum for strongly convex functions.

Construction. A token "solver" carries w and w₋, a token "null" zeros. *Gradient layer*: the solver's query is σ(v,
−1), keys of examples are (x, y), values x, on mirrored tokens (`richardson.py`). *Threshold layer*: two heads a
coordinate attend to the two tokens, with logits β(w_j − t) and 0, values w_j − t and 0, and the same for −w_j: the
larger logit is that of the relu, and the other vanishes, so what is off is off exactly. The last layer reads ⟨q, w⟩
as the logit between a query and "solver", against "null": tanh of it, by Richardson heads.

Size. 2T + 1 layers for T iterations, 2d heads in a threshold layer, width 4d + 6, two constant tokens.

Bound. |w − w*| ≤ ρ^T |w*|, ρ = (κ−1)/(κ+1), for S_t moves no two points apart; accelerated: (1 − 1/√κ)^{T/2}
√2|y|/√low, which is the smaller one from κ = 16 or so on; plus a floor of bias, of the threshold (0.56/β a
coordinate) and of rounding (`kinds/in_context/prove_lasso.py` proves all of it).

Failure mode. Ill-conditioned data: the depth grows like √κ; a spectrum that reaches 0 has no rate. float32, where the
floor is about 1e-2.
"""

import math

import numpy as np

from attnfun.kinds.in_context.build.richardson import choose
from attnfun.kinds.in_context.target import InContextTask
from attnfun.network import TokenHead, TokenLayer, TokenNetwork, rounded
from attnfun.network.named_coordinates import GAP, Stream

_UNITS = ("y", "prediction", "one", "data", "solver", "null")
_BETA = {"float64": 2.0**48, "float32": 2.0**20}
SLACK = {"float64": 1e-8, "float32": 1e-5}  # so that what the stored numbers say fits the class, rounding included


def _rates(task: InContextTask, algorithm: str, dtype: str) -> tuple[float, float, float, float]:
    """(s, ω, the rate of an iteration, what it starts from), of w."""
    low, high = task.spectrum
    slack = SLACK[dtype]
    most = math.sqrt(task.examples) * task.y_range
    least = max(low - slack * high, low / 2)
    if algorithm == "proximal":
        return 2 / (low + high), 0.0, (high - low) / (high + low), most / math.sqrt(low)
    high *= 1 + slack
    root = math.sqrt(least / high)
    return 1 / high, (1 - root) / (1 + root), math.sqrt(1 - root), most * math.sqrt(2 / least)


def lasso_iterations(task: InContextTask, eps: float, algorithm: str) -> int:
    """Iterations after which rate^T |q| times what w starts from is below eps for the whole class."""
    _, _, rate, start = _rates(task, algorithm, "float64")
    return max(1, iterations_for(math.sqrt(task.dim) * task.query_range * start, rate, eps))


def iterations_for(size: float, rate: float, eps: float) -> int:
    """The least T with rate^T size ≤ eps; 10⁹ where that is past every number."""
    if not size < 1e300 * eps:
        return 10**9
    return 0 if rate < 1e-12 or size <= eps else max(1, math.ceil(math.log(eps / size) / math.log(rate)))


def build_lasso(
    task: InContextTask, iterations: int, algorithm: str, dtype: str, heads: int | None, typical: bool, finer: int
) -> TokenNetwork:
    """The network of 2 · iterations + 1 layers; `finer` halves the scale of linearised sums so many times.

    The scale is the best for the bound of the whole class, or with `typical` for rounding as it comes.
    """
    s, d, N = Stream(task.dim, "xqwu", _UNITS), task.dim, task.examples
    step, ahead, _, start = _rates(task, algorithm, dtype)
    threshold, beta = float(rounded(np.array([step * N * task.strength]), dtype)[0]), _BETA[dtype]
    scales = choose(math.sqrt(2 * N) * task.y_range, dtype, roundings(task, typical), heads).finer(finer)
    shut = {("one", d): -GAP, ("solver", d): GAP, ("null", d): GAP}

    def gradient(sigma: float, rho: float) -> TokenHead:
        query = {("w", 0): (1 + ahead) * sigma, ("u", 0): -ahead * sigma, ("solver", d): -sigma}
        query |= {("one", d + 1): 1.0, ("null", d + 2): 1.0}
        key = {("x", 0): 1.0, ("y", d): 1.0, ("one", d + 1): -GAP, ("data", d + 1): GAP, ("null", d + 2): 2 * GAP}
        name, output = f"Σ x(⟨x, w⟩ − y), scale {sigma:g}", {("w", 0): -step * rho * N / sigma}
        return s.head(name, dtype, query, key, {("x", 0): 1.0}, output)

    def threshold_at(name: str, sign: float) -> TokenHead:
        query = {(name, 0): sign * beta, ("one", 1): 1.0, ("one", 2): 1.0, ("null", 3): 1.0}
        key = {("solver", 0): 1.0, ("solver", 1): -beta * threshold, ("one", 2): -2 * GAP}
        key |= {("solver", 2): 2 * GAP, ("null", 2): 2 * GAP, ("null", 3): 2 * GAP}
        what = f"{name} {'above' if sign > 0 else 'below'} the threshold"
        return s.head(what, dtype, query, key, {(name, 0): 1.0, ("solver", 0): -sign * threshold}, {(name, 0): 1.0})

    def read(sigma: float, rho: float) -> TokenHead:
        query, key = {("q", 0): 2 * sigma, ("one", d): 1.0}, {("w", 0): 1.0, **shut}
        value, output = {("solver", 0): 1.0, ("null", 0): -1.0}, {("prediction", 0): rho / sigma}
        return s.head(f"predict, scale {sigma:g}", dtype, query, key, value, output)

    blocks = {("w", "w"): 1 + ahead, ("u", "w"): -ahead, ("w", "u"): 1.0, ("u", "u"): 0.0}
    first = TokenLayer(tuple(gradient(*one) for one in scales.pairs), rounded(s.carry(blocks), dtype))
    second = [threshold_at(f"w{j + 1}", sign) for j in range(d) for sign in (1.0, -1.0)]
    most = math.sqrt(d) * task.query_range * start
    scale = choose(4 * most, dtype, 16.0).finer(finer)  # tanh has larger coefficients than sinh
    last = TokenLayer(tuple(read(*one) for one in scale.pairs))
    return stepped(s, (first, TokenLayer(tuple(second), s.carry({("w", "w"): 0.0}))) * iterations, last, dtype)


def roundings(task: InContextTask, typical: bool) -> float:
    """Of a sum over the examples, relative to its scaled signal."""
    return math.sqrt(2 * task.examples) if typical else (2 * task.examples + 32) * math.sqrt(task.dim)


def stepped(s: Stream, steps: tuple[TokenLayer, ...], last: TokenLayer, dtype: str) -> TokenNetwork:
    """The network of these layers, with a token "solver" and a token "null"."""
    tokens = s.matrix(2, {}, {("one", 0): 1.0, ("one", 1): 1.0, ("solver", 0): 1.0, ("null", 1): 1.0}).T
    readout = s.matrix(1, {}, {("prediction", 0): 1.0})
    return TokenNetwork(s.names, (*steps, last), tokens, readout, ("prediction",), dtype)
