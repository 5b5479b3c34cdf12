"""Lasso in context by proximal gradient steps, two attention layers an iteration.

Statement. w⁺ = S_t(m − (η/n) Xᵀ(Xm − y)), m = (1 + ω) w − ω w₋, with S_t(w) = relu(w − t) − relu(−w − t) coordinate by
coordinate and t = η alpha. *proximal*: ω = 0, η/n = 2/(low + high); *accelerated*: η/n = 1/high,
ω = (√κ − 1)/(√κ + 1).

Source. Iterative soft thresholding: Daubechies, Defrise and De Mol (2004); accelerated: Beck and Teboulle (2009), here
with Nesterov's constant momentum for strongly convex functions.

Construction. Two solver tokens, "plus" and "minus", carry the same w and w₋, and a token "null" zeros. *Gradient
layer*: their query is σ(m, −1), keys of examples are (x, y), values x, on mirrored tokens (`richardson.py`).
*Threshold layer*: one head a coordinate attends to the three tokens with logits β(w_j − t), 0 and β(−w_j − t) and
values w_j − t, 0 and w_j + t: the largest logit is that of S_t(w_j), and the others vanish, so what is off is off
exactly. The last layer reads ⟨q, w⟩ as the logit between a query and "plus", against "null": tanh of it, by Richardson
heads.

Size. 2T + 1 layers for T iterations, d heads in a threshold layer, width 4d + 7, three constant tokens.

Bound. Proximal: |w − w*| ≤ ((κ−1)/(κ+1))^T |w*|, for S_t moves no two points apart; accelerated: about (1 − 1/√κ)^T
once the support is found. The threshold is off by at most 0.28/β; bias and rounding are measured, not proved.

Failure mode. A coefficient within about 1/β of the threshold; float32, where β is small.
"""

from __future__ import annotations

import math

import numpy as np

from attnfun.constructions.in_context.richardson import choose
from attnfun.constructions.in_context.stream import GAP, Stream
from attnfun.network import TokenHead, TokenLayer, TokenNetwork, rounded
from attnfun.targets.in_context import InContextTask

_UNITS = ("y", "prediction", "one", "data", "plus", "minus", "null")
_BETA = {"float64": 2.0**40, "float32": 2.0**18}


def lasso_iterations(task: InContextTask, eps: float, algorithm: str) -> int:
    """Iterations after which rate^T |q| |w*| is below eps for the whole class, |w*| ≤ |y|/√low."""
    rate = (task.condition - 1) / (task.condition + 1) if algorithm == "proximal" else 1 - task.condition**-0.5
    size = math.sqrt(task.dim * task.examples / task.spectrum[0]) * task.query_range * task.y_range
    return 1 if rate < 1e-12 or size <= eps else max(1, math.ceil(math.log(eps / size) / math.log(rate)))


def build_lasso(
    task: InContextTask,
    iterations: int,
    algorithm: str,
    dtype: str = "float64",
    heads: int | None = None,
    finer: int = 0,
) -> TokenNetwork:
    """The network of 2 · iterations + 1 layers; `finer` halves the scale of linearised sums so many times."""
    s, d, N = Stream(task.dim, "xqwu", _UNITS), task.dim, task.examples
    step, ahead = 2 / sum(task.spectrum), 0.0  # η/n, ω
    if algorithm == "accelerated":
        root = math.sqrt(task.condition)
        step, ahead = 1 / task.spectrum[1], (root - 1) / (root + 1)
    threshold, beta = step * N * task.strength, _BETA[dtype]
    scales = choose(2 * task.y_range, dtype, math.sqrt(2 * N), heads).finer(finer)

    def gradient() -> TokenLayer:
        made = []
        for sigma, rho in zip(scales.sigma, scales.rho, strict=True):
            query = s.matrix(
                d + 3,
                {("w", 0): (1 + ahead) * sigma, ("u", 0): -ahead * sigma},
                {("plus", d): -sigma, ("minus", d): -sigma, ("one", d + 1): 1.0, ("null", d + 2): 1.0},
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
        far = 64 * beta * max(1.0, threshold)
        made = []
        for j in range(d):
            name = f"w{j + 1}"
            query = s.matrix(3, {}, {(name, 0): beta, ("one", 1): 1.0, ("one", 2): 1.0})
            units = {("plus", 0): 1.0, ("minus", 0): -1.0}
            units |= {("plus", 1): -beta * threshold, ("minus", 1): -beta * threshold}
            units |= {("one", 2): -far, ("plus", 2): far, ("minus", 2): far, ("null", 2): far}
            value = s.matrix(1, {}, {(name, 0): 1.0, ("plus", 0): -threshold, ("minus", 0): threshold})
            output = s.matrix(1, {}, {(name, 0): 1.0}).T
            parts = s.rounded((query, s.matrix(3, {}, units), value, output), dtype)
            made.append(TokenHead(f"soft threshold of {name}", *parts))
        return TokenLayer(tuple(made), s.carry({("w", "w"): 0.0}))

    def read() -> TokenLayer:
        made = []
        scale = choose(4 * task.y_range, dtype, 8.0).finer(finer)
        for sigma, rho in zip(scale.sigma, scale.rho, strict=True):
            query = s.matrix(d + 1, {("q", 0): 2 * sigma}, {("one", d): 1.0})
            key = s.matrix(d + 1, {("w", 0): 1.0}, {("one", d): -GAP, ("plus", d): GAP, ("null", d): GAP})
            value = s.matrix(1, {}, {("plus", 0): 1.0, ("null", 0): -1.0})
            output = s.matrix(1, {}, {("prediction", 0): rho / sigma}).T
            made.append(TokenHead(f"predict, scale {sigma:g}", *s.rounded((query, key, value, output), dtype)))
        return TokenLayer(tuple(made))

    pair = (gradient(), thresholding())
    solvers = np.zeros((3, s.width))
    solvers[:, s.at("one")] = 1.0
    for row, unit in enumerate(("plus", "minus", "null")):
        solvers[row, s.at(unit)] = 1.0
    readout = s.matrix(1, {}, {("prediction", 0): 1.0})
    layers = (*(pair * iterations), read())
    return TokenNetwork(s.names, layers, rounded(solvers, dtype), readout, ("prediction",), dtype)
