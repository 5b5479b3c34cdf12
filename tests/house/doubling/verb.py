"""The verb: propose weights, have them proved."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnfun.model import Model
from attnfun.network import Axis, Head, Layer, Network
from attnfun.search import Goal, Proposal, Proposals, search
from house.doubling.target import Doubling


def doubling(slope: float, eps: float) -> Model[Doubling, Any]:
    target = Doubling(slope)
    proposal, certificate = search(target, _proposals(slope), Goal(eps), lambda _text: None)
    return Model(target, proposal.weights, certificate, {"eps": eps}, proposal.told)


def _proposals(slope: float) -> Proposals:
    axis = Axis(np.array([[1.0]]), np.zeros(1), np.array([[-slope], [slope]]), np.zeros(2))
    head = Head("tanh", (axis,), np.array([[-1.0], [1.0]]), ("y",), "two keys")
    box = (np.array([-1.0]), np.array([1.0]))
    yield Proposal(Network(("x",), (Layer((head,)),), np.array([[0.0, 1.0]]), np.zeros(1), ("y",), box), "two keys")
