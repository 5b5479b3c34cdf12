"""Free weights in torch; importing this file imports torch.

`run` is the network of `network/head.py` in the units of `weights.py`: heads on a product grid stay factorised, so a
step over Π P_a keys costs what the small softmaxes and one contraction of the values cost.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from attnfun.learn.weights import layout
from attnfun.network import Architecture, HeadShape


def split(architecture: Architecture, vector: Tensor) -> dict[str, Tensor]:
    """The vector as the arrays of the layout, views of it."""
    parts = list(layout(architecture))
    pieces = vector.split([prod(shape) for _, shape in parts])
    return {name: piece.reshape(shape) for (name, shape), piece in zip(parts, pieces, strict=True)}


def run(architecture: Architecture, vector: Tensor, t: Tensor) -> Tensor:
    """(n, inputs) in the units of the vector -> (n, outputs)."""
    weights, stream = split(architecture, vector), t
    for number, layer in enumerate(architecture.layers):
        columns: list[list[Tensor]] = [[] for _ in range(architecture.widths[number + 1] - architecture.widths[number])]
        for place, head in enumerate(layer):
            out = _head(architecture, weights, f"layer{number}/{architecture.kind}{place}", head, stream)
            for k, column in enumerate(head.writes):
                columns[column].append(out[:, k])
        stream = torch.cat([stream, torch.stack([sum(terms[1:], terms[0]) for terms in columns], dim=1)], dim=1)
    return _columns(stream, architecture.readout) @ weights["readout"].T + weights["readout_bias"]


def _head(
    architecture: Architecture, weights: dict[str, Tensor], here: str, head: HeadShape, stream: Tensor
) -> Tensor:
    contracted = weights[f"{here}/values"]
    for k, axis in enumerate(head.axes):
        own = [weights[f"{here}/axis{k}/{part}"] for part in ("query", "offset", "slopes", "biases")]
        read = _columns(stream, axis.reads)
        logits = (read @ own[0].T + own[1]) @ own[2].T + own[3]
        active = torch.relu(logits) if architecture.kind == "block" else torch.softmax(logits, dim=1)
        if k == 0:
            contracted = active @ contracted.reshape(axis.keys, -1)
        else:
            contracted = torch.bmm(active[:, None, :], contracted.reshape(len(active), axis.keys, -1))[:, 0]
    return contracted


def _columns(stream: Tensor, reads: tuple[int, ...]) -> Tensor:
    """The coordinates that are read; a slice where they are neighbours, whose gradient costs less."""
    if reads and reads[-1] - reads[0] + 1 == len(reads):
        return stream[:, reads[0] : reads[-1] + 1]
    return stream[:, list(reads)]
