"""Two keys of slopes ±s: softmax of (−s x, s x), values −1 and 1, is tanh(s x)."""

from __future__ import annotations

import numpy as np

from attnfun.network import Axis, Head, Layer, Network
from attnfun.search import Proposal, Proposals


def proposals(slope: float) -> Proposals:
    axis = Axis(np.array([[1.0]]), np.zeros(1), np.array([[-slope], [slope]]), np.zeros(2))
    head = Head("tanh", (axis,), np.array([[-1.0], [1.0]]), ("y",), "two keys")
    box = (np.array([-1.0]), np.array([1.0]))
    yield Proposal(Network(("x",), (Layer((head,)),), np.array([[0.0, 1.0]]), np.zeros(1), ("y",), box), "two keys")
