"""Prompts for the tests of in-context regressions: typical ones, and ones made to be as bad as a class allows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import hadamard

from attnfun.certify import Certificate
from attnfun.kinds.in_context.target import InContextTask, prompt
from attnfun.network import TokenHead, TokenLayer, TokenNetwork, store
from attnfun.network.claim import Claim
from attnfun.search import Goal, certified

UNSEEN = 7  # seed of example prompts that neither the budget nor the verdict looks at
Prompt = tuple[np.ndarray, np.ndarray, np.ndarray]


def judge(network: TokenNetwork, task: InContextTask, eps: float | None) -> Certificate:
    return certified(task, network, Goal(eps))


def write(path: Path, network: TokenNetwork, target: Any, **meta: Any) -> None:
    """A sealed file of these weights that says of itself what is given."""
    claim = {} if "claim" in meta else {"claim": Claim.made(meta.get("request", {}), math.inf).to_json()}
    store.write(path, "in_context", network, {"target": target, **claim, **meta})


def exact_ridge(X: np.ndarray, y: np.ndarray, queries: np.ndarray, alpha: float) -> np.ndarray:
    """qᵀ(XᵀX + αI)⁻¹Xᵀy, refined with residuals in extended precision."""
    A, wide = X.T @ X + alpha * np.eye(X.shape[1]), X.astype(np.longdouble)
    w = np.linalg.solve(A, X.T @ y).astype(np.longdouble)
    for _ in range(3):
        residual = wide.T @ (y.astype(np.longdouble) - wide @ w) - np.longdouble(alpha) * w
        w = w + np.linalg.solve(A, residual.astype(np.float64))
    return np.asarray(queries.astype(np.longdouble) @ w)


def ridge_error(network: TokenNetwork, task: InContextTask, one: Prompt) -> float:
    """The error of the network in its dtype, on data that this dtype holds."""
    X, y, queries = (part.astype(network.dtype).astype(np.float64) for part in one)
    got = network.run(prompt(network.coordinates, task, X, y, queries))[2 * task.examples :, 0]
    error = np.abs(got.astype(np.longdouble) - exact_ridge(X, y, queries, task.shift)).max()
    return float(error) if np.isfinite(error) else math.inf


def aligned(task: InContextTask, eigenvalues: np.ndarray) -> Prompt:
    """n and d powers of two: y along the first left singular vector, q along the right one, both as long as allowed."""
    n, d = task.examples, task.dim
    U, V = hadamard(n)[:, 1 : d + 1] / math.sqrt(n), hadamard(d) / math.sqrt(d)
    X = (U * np.sqrt(np.maximum(eigenvalues - task.shift, 0.0))) @ V.T
    return X, task.y_range * np.sign(U[:, 0]), task.query_range * np.sign(V[:, :1].T)


def hostile(task: InContextTask, rng: np.random.Generator) -> Prompt | None:
    """A random prompt at the edge of the class: extreme eigenvalues, spiky or spread examples, largest y and q."""
    n, d = task.examples, task.dim
    k = min(n, d)
    spiky = rng.random() < 0.4
    U = np.eye(n)[:, rng.permutation(n)[:k]] if spiky else np.linalg.qr(rng.normal(size=(n, k)))[0]
    V = np.eye(d)[:, rng.permutation(d)[:k]] if rng.random() < 0.4 else np.linalg.qr(rng.normal(size=(d, d)))[0][:, :k]
    low, high = task.spectrum
    values = rng.choice([low, high, rng.uniform(low, high)], size=k)
    X = (U * np.sqrt(np.maximum(values - task.shift, 0.0))) @ V.T
    if not task.covers(X) or np.abs(X).max() > task.x_range:
        return None
    along = task.y_range * np.sign(U[:, 0] + 1e-9 * rng.normal(size=n))
    y = along if rng.random() < 0.7 else task.y_range * np.eye(n)[rng.integers(n)]
    queries = task.query_range * np.sign(rng.normal(size=(5, d)))
    queries[0] = task.query_range * np.sign(V[:, 0] + 1e-12)
    return X, y, queries


def changed(network: TokenNetwork, rng: np.random.Generator, size: float) -> TokenNetwork:
    """Every output matrix, and some carries from q to v, multiplied by 1 + size · noise: the pattern stays."""
    d = (network.width - 6) // 5
    layers = []
    for layer in network.layers:
        heads = []
        for head in layer.heads:
            output = head.output * (1 + size * rng.normal())
            heads.append(TokenHead(head.name, head.query, head.key, head.value, output))
        carry = layer.carry
        if carry is not None and rng.random() < 0.5:
            carry = np.array(carry)
            carry[np.arange(d, 2 * d), np.arange(2 * d, 3 * d)] *= 1 + size * rng.normal()
        layers.append(TokenLayer(tuple(heads), carry))
    return with_layers(network, layers)


def with_layers(network: TokenNetwork, layers: list[TokenLayer]) -> TokenNetwork:
    return TokenNetwork(
        network.coordinates, tuple(layers), network.constants, network.readout, network.outputs, network.dtype
    )
