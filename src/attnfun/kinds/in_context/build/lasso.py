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

from __future__ import annotations

import math

import numpy as np

from attnfun.kinds.in_context.build.richardson import choose
from attnfun.network.blocks import GAP, Stream
from attnfun.network import TokenHead, TokenLayer, TokenNetwork, rounded
from attnfun.kinds.in_context.target import InContextTask

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
    size = math.sqrt(task.dim) * task.query_range * start
    if not size < 1e300 * eps:
        return 10**9
    return 1 if rate < 1e-12 or size <= eps else max(1, math.ceil(math.log(eps / size) / math.log(rate)))


def build_lasso(
    task: InContextTask,
    iterations: int,
    algorithm: str,
    dtype: str = "float64",
    heads: int | None = None,
    typical: bool = False,
    finer: int = 0,
) -> TokenNetwork:
    """The network of 2 · iterations + 1 layers; `finer` halves the scale of linearised sums so many times.

    The scale is the best for the bound of the whole class, or with `typical` for rounding as it comes.
    """
    s, d, N = Stream(task.dim, "xqwu", _UNITS), task.dim, task.examples
    step, ahead, _, start = _rates(task, algorithm, dtype)
    threshold, beta = float(rounded(np.array([step * N * task.strength]), dtype)[0]), _BETA[dtype]
    noise = math.sqrt(2 * N) if typical else (2 * N + 32) * math.sqrt(d)
    scales = choose(math.sqrt(2 * N) * task.y_range, dtype, noise, heads).finer(finer)

    def gradient() -> TokenLayer:
        made = []
        for sigma, rho in zip(scales.sigma, scales.rho, strict=True):
            query = s.matrix(
                d + 3,
                {("w", 0): (1 + ahead) * sigma, ("u", 0): -ahead * sigma},
                {("solver", d): -sigma, ("one", d + 1): 1.0, ("null", d + 2): 1.0},
            )
            units = {("y", d): 1.0, ("one", d + 1): -GAP, ("data", d + 1): GAP, ("null", d + 2): 2 * GAP}
            key = s.matrix(d + 3, {("x", 0): 1.0}, units)
            output = s.matrix(d, {("w", 0): -step * rho * N / sigma}, {}).T
            made.append(
                TokenHead(
                    f"Σ x(⟨x, w⟩ − y), scale {sigma:g}",
                    *s.rounded((query, key, s.matrix(d, {("x", 0): 1.0}, {}), output), dtype),
                )
            )
        blocks = {("w", "w"): 1 + ahead, ("u", "w"): -ahead, ("w", "u"): 1.0, ("u", "u"): 0.0}
        return TokenLayer(tuple(made), rounded(s.carry(blocks), dtype))

    def thresholding() -> TokenLayer:
        made = []
        for j in range(d):
            name = f"w{j + 1}"
            for sign, what in ((1.0, "above"), (-1.0, "below")):
                query = s.matrix(4, {}, {(name, 0): sign * beta, ("one", 1): 1.0, ("one", 2): 1.0, ("null", 3): 1.0})
                units = {("solver", 0): 1.0, ("solver", 1): -beta * threshold, ("one", 2): -2 * GAP}
                units |= {("solver", 2): 2 * GAP, ("null", 2): 2 * GAP, ("null", 3): 2 * GAP}
                value = s.matrix(1, {}, {(name, 0): 1.0, ("solver", 0): -sign * threshold})
                output = s.matrix(1, {}, {(name, 0): 1.0}).T
                parts = s.rounded((query, s.matrix(4, {}, units), value, output), dtype)
                made.append(TokenHead(f"{name} {what} the threshold", *parts))
        return TokenLayer(tuple(made), s.carry({("w", "w"): 0.0}))

    def read() -> TokenLayer:
        made = []
        most = math.sqrt(d) * task.query_range * start
        scale = choose(4 * most, dtype, 16.0).finer(finer)  # tanh has larger coefficients than sinh
        for sigma, rho in zip(scale.sigma, scale.rho, strict=True):
            query = s.matrix(d + 1, {("q", 0): 2 * sigma}, {("one", d): 1.0})
            key = s.matrix(d + 1, {("w", 0): 1.0}, {("one", d): -GAP, ("solver", d): GAP, ("null", d): GAP})
            value = s.matrix(1, {}, {("solver", 0): 1.0, ("null", 0): -1.0})
            output = s.matrix(1, {}, {("prediction", 0): rho / sigma}).T
            made.append(TokenHead(f"predict, scale {sigma:g}", *s.rounded((query, key, value, output), dtype)))
        return TokenLayer(tuple(made))

    pair = (gradient(), thresholding())
    solvers = np.zeros((2, s.width))
    solvers[:, s.at("one")] = 1.0
    solvers[0, s.at("solver")] = solvers[1, s.at("null")] = 1.0
    readout = s.matrix(1, {}, {("prediction", 0): 1.0})
    layers = (*(pair * iterations), read())
    return TokenNetwork(s.names, layers, rounded(solvers, dtype), readout, ("prediction",), dtype)
