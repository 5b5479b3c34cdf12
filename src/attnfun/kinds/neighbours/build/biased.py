"""A biased half-space, sign(⟨z, y⟩ − b), by one head of full rank and a positional bias.

Statement. Tokens z and y, and a constant token. One head at y: logits β⟨z, y⟩ at z and βb at the constant token, which
a positional coordinate carries; y itself is shut out; values +1 and −1. It puts out tanh(β(⟨z, y⟩ − b)/2), and for
independent uniform z, y the relative error of sign(⟨z, y⟩ − b) is exactly 4 E σ(−β|t − b|)², t of density f.

Source: Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153) treat biased targets with positional encodings; this form and
its error are derived here. Heads of lower rank: `limits.separation.rank` with the same bias.
Size: 1 layer, 1 head of rank d + 1 (entries, and one column for bias and mask), 1 constant token.
Bound (proved, real arithmetic): `bounds.biased_error`; to first order in 1/β it is 4 (2 ln 2 − 1) f(b)/β.
Failure mode: |b| ≥ 1 leaves nothing to decide and is refused.
"""

import numpy as np
from scipy import special

from attnfun.kinds.neighbours import pattern, sphere
from attnfun.kinds.neighbours.bounds import LOSS, biased_error
from attnfun.kinds.neighbours.measure import Prediction
from attnfun.network import TokenNetwork
from attnfun.network.named_coordinates import GAP

_LOSS = 4 * LOSS


def build(dim: int, bias: float, beta: float) -> TokenNetwork:
    return pattern.biased(dim, beta, beta * bias, 2 * beta + GAP)


def predict(dim: int, bias: float, beta: float) -> Prediction:
    error, doubt = sphere.mean(dim, lambda t: 4 * special.expit(-beta * np.abs(t - bias)) ** 2, bias, 0.1 / beta)
    first = _LOSS * float(sphere.density(dim, np.array([bias]))[0]) / beta
    how = "the exact integral, by quadrature (uncertainty: what fewer nodes change)"
    details = {"beta": beta, "first_order": first}
    return Prediction(error, how, doubt, biased_error(dim, beta), accuracy=1.0, details=details)


def beta_for(dim: int, eps: float) -> float:
    return _LOSS * sphere.peak(dim) / eps * (1 + 1e-6)
