"""The further of two points by a vote of rank-1 heads, then a look-up.

Statement. Candidates x_1, x_2 carry the index +1, −1. Layer 1: H heads (H odd) with random directions q_h choose by
−(x·q_h)(q_h·y), hard, and write the index of their choice, over H, to the query's scratch. Layer 2, one head: logits
index · scratch, values x. Given t = ⟨z, y⟩, z = (x_1−x_2)/|x_1−x_2|, a vote is right with probability
1/2 + arcsin|t|/π, independently over directions; so, averaged over directions,

    P(right) = 1 − E_t P(Bin(H, 1/2 + arcsin|t|/π) < H/2),          E|target − output|² = 2 P(wrong).

Source: Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153) for the construction; accuracy derived here.
Derivation. sign(q·z) sign(q·y) = sign(z·y) unless q falls between the two hyperplanes. A wrong vote puts out the other
point, |x_1−x_2|² away, whose mean 2 is independent of all signs.
Size: 2 layers, H + 1 heads; rank 2 in layer 1 (1 in cross-attention: the second shuts the query out), 1 in layer 2.
Bound: none is proved of the drawn directions. The integral is the mean over draws, and the network is one draw: its own
error differs from it, and is measured. Closed approximation 1 − arctan((π/2)√(d/H))/π; the error is about √(d/H), so ε
costs about d/ε² heads. "H above d²" is exponentially good only given a margin |t| of order 1/√d (`accuracy(...,
margin)`).
Failure mode: near ties, which have density √(2d/π), are decided by chance.
"""

import math

import numpy as np
from scipy import special

from attnfun.kinds.neighbours import sphere
from attnfun.kinds.neighbours.measure import OVER_DRAWS, Prediction
from attnfun.kinds.neighbours.pattern import HARD, look_up, looking, pointing
from attnfun.language.domain import Array
from attnfun.network import TokenNetwork
from attnfun.network.named_coordinates import GAP, Stream


def directions(dim: int, heads: int, seed: int) -> Array:
    return sphere.uniform_points(np.random.default_rng([seed, 1]), heads, dim)


def build(dim: int, heads: int, nearest: bool, seed: int) -> TokenNetwork:
    stream = Stream(dim, "xq", ("index", "query", "one", "scratch"))
    value, output = np.zeros((stream.width, 1)), np.zeros((1, stream.width))
    value[stream.at("index"), 0], output[0, stream.at("scratch")] = 1.0, 1.0 / heads
    beta = HARD if nearest else -HARD
    votes = tuple(
        looking(stream, f"vote {h + 1}", beta * q[:, None], q[:, None], value, output)
        for h, q in enumerate(directions(dim, heads, seed))
    )
    return pointing(stream, nearest, votes, [look_up(stream, heads * GAP)])


def accuracy(dim: int, heads: int, margin: float = 0.0) -> tuple[float, float]:
    """P(right) over points and draws of the directions, given |t| ≥ margin, and what fewer nodes change of it; heads
    must be odd.
    """
    k = (heads + 1) / 2

    def right(t: Array) -> Array:
        return np.asarray(special.betainc(k, k, 0.5 + np.arcsin(np.minimum(1.0, np.abs(t))) / math.pi))

    if margin == 0:
        return sphere.mean(dim, right, scale=1 / math.sqrt(heads * dim))
    # by t = margin + (1 − margin) v², smooth at the ends
    found = []
    for nodes in (24, 12):
        v, w = sphere.panels(np.concatenate([[0.0], 2.0 ** -np.arange(12, -1, -1.0)]), nodes)
        t = margin + (sphere.reach(dim) - margin) * v * v
        weight = w * 2 * v * sphere.density(dim, t)
        found.append(float(np.sum(weight * right(t)) / np.sum(weight)))
    return found[0], abs(found[0] - found[1])


def closed_accuracy(dim: int, heads: int) -> float:
    """1 − arctan((π/2)√(d/H))/π, an approximation."""
    return 1 - math.atan(math.pi / 2 * math.sqrt(dim / heads)) / math.pi


def predict(dim: int, heads: int) -> Prediction:
    (right, doubt), margin = accuracy(dim, heads), 0.5 / math.sqrt(dim)
    details = {"closed_accuracy": closed_accuracy(dim, heads), "accuracy_given_margin": accuracy(dim, heads, margin)[0]}
    details["margin"] = margin
    how = "an integral by quadrature: the mean over draws of the directions, not the error of those drawn for this"
    how += " network, which is measured (uncertainty: what fewer nodes change)"
    return Prediction(2 * (1 - right), how, 2 * doubt, accuracy=right, details=details, of=OVER_DRAWS)


def heads_for(dim: int, eps: float, most: int) -> int | None:
    """The least odd H, to about 1 %, whose error is at most eps in the mean over draws; None past `most`."""
    heads = 1
    while not 2 * (1 - accuracy(dim, heads)[0]) <= eps:
        heads = max(heads + 2, int(heads * 1.01) | 1)
        if heads > most:
            return None
    return heads
