"""The problem of a network on tokens; importing this file imports torch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnfun.learn.probe import Row
from attnfun.learn.token_lesson import TokenTask
from attnfun.learn.token_weights import (
    Tokens,
    in_units,
    random_tokens,
    token_effective_keys,
    token_layout,
    token_norms,
    token_scales,
    token_vector,
    tokens_of,
)
from attnfun.learn.weights import power_of_two
from attnfun.network import TokenArchitecture
from attnfun.network.head import Array

_PROBE, _LEAST, _WORK, _FEW = 1000, 64, 1 << 19, 16


@dataclass(frozen=True, eq=False)
class TokenUnits:
    """The units of `token_weights.py` for one task, and its probe: the same for every run.

    `held`: the arrays that are not free at all entries, by name, as (values, which entries are free); the others of
    their entries keep these values.
    """

    architecture: TokenArchitecture
    task: TokenTask
    held: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)

    @cached_property
    def probe(self) -> tuple[Array, Array]:
        """Draws behind the rows of a history; never those of a batch."""
        tokens, values = self.task.draw(np.random.default_rng([20, 1]), _LEAST)
        side = tokens.shape[1] + self.architecture.constants
        more = min(_PROBE, _WORK // (side * side * max(1, self.architecture.heads)))
        return (tokens, values) if more <= _LEAST else self.task.draw(np.random.default_rng([20, 2]), more)

    @cached_property
    def scales(self) -> Array:
        return token_scales(self.probe[0])

    @cached_property
    def size(self) -> float:
        finite = np.abs(self.probe[1][np.isfinite(self.probe[1])])
        return float(power_of_two(float(finite.max()) or 1.0)) if finite.size else 1.0

    @cached_property
    def kept(self) -> tuple[Array, Array] | None:
        """(values, free): the vector that entries which are not free have, and which are; None where all are."""
        if not self.held:
            return None
        values, free = [], []
        for name, shape in token_layout(self.architecture):
            own, mask = self.held.get(name, (np.zeros(shape), np.ones(shape, dtype=bool)))
            values.append(in_units(name, own, self.scales, self.size).reshape(-1))
            free.append(mask.reshape(-1))
        return np.concatenate(values), np.concatenate(free)

    def random(self, seed: int) -> Tokens:
        """A random start."""
        return self.holding(random_tokens(self.architecture, self.scales, self.size, seed))

    def holding(self, network: Tokens) -> Tokens:
        """The network with what is held as it must be."""
        if self.kept is None:
            return network
        values, free = self.kept
        vector = np.where(free, token_vector(network, self.scales, self.size), values)
        return tokens_of(self.architecture, vector, self.scales, self.size)


@dataclass(frozen=True, eq=False)
class TokenProblem:
    """A `Problem` (`problem.py`): the weights of `architecture` towards what `task` wants."""

    units: TokenUnits
    origin: Tokens

    @property
    def architecture(self) -> TokenArchitecture:
        return self.units.architecture

    @property
    def chosen_by(self) -> str:
        return self.units.task.chosen_by

    @property
    def dtype(self) -> str:
        return self.architecture.dtype

    def identity(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for _, array in self.origin.arrays():
            digest.update(np.ascontiguousarray(array).tobytes())
        wanted = np.ascontiguousarray(np.concatenate([part.reshape(-1) for part in self.units.probe]))
        return {
            "architecture": self.architecture.to_json(),
            **self.units.task.to_json(),
            "values": hashlib.sha256(wanted.tobytes()).hexdigest(),
            "held": sorted(self.units.held),
            "start": digest.hexdigest(),
        }

    def start(self) -> Array:
        return token_vector(self.origin, self.units.scales, self.units.size)

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        tokens, values = self.units.task.draw(rng, count, noise)
        good = np.isfinite(values).all(axis=(1, 2))
        dtype = getattr(torch, self.dtype)
        return (
            torch.tensor(tokens[good] / self.units.scales, dtype=dtype, device="cpu"),
            torch.tensor(values[good] / self.units.size, dtype=dtype, device="cpu"),
        )

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        """Fewer where a token matrix is much work: a polish runs through all of them again and again."""
        side = self.units.probe[0].shape[1] + self.architecture.constants
        fewer = max(_LEAST, 8 * _WORK // (side * side * max(1, self.architecture.heads)))
        return self.batch(rng, min(count, fewer), 0.0)

    def loss(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        free = theta if self._kept is None else torch.where(self._kept[1], theta, self._kept[0])
        return torch.mean((self.units.task.read(run(self.architecture, free, inputs)) - targets) ** 2)

    @cached_property
    def _kept(self) -> tuple[Tensor, Tensor] | None:
        if self.units.kept is None:
            return None
        values, free = self.units.kept
        return torch.tensor(values, dtype=getattr(torch, self.dtype)), torch.tensor(free)

    def network(self, vector: Array | None) -> Tokens:
        whole = self.start() if vector is None else vector
        if vector is not None and self.units.kept is not None:
            whole = np.where(self.units.kept[1], vector, self.units.kept[0])
        return tokens_of(self.architecture, whole, self.units.scales, self.units.size)

    def _free_part(self, network: Tokens) -> Tokens:
        """Without the entries that are held, whose norms say nothing of training."""
        if self.units.kept is None:
            return network
        vector = np.where(self.units.kept[1], token_vector(network, self.units.scales, self.units.size), 0.0)
        return tokens_of(self.architecture, vector, self.units.scales, self.units.size)

    def measure(self, network: Tokens, step: int, phase: str) -> Row:
        tokens, values = self.units.probe
        with np.errstate(all="ignore"):
            out = self.units.task.read(np.asarray(network.run(tokens), dtype=np.float64))
            good = np.isfinite(values).all(axis=(1, 2))
            error = self.units.task.errors(out[good], values[good]) if good.any() else np.zeros((1, 1))
            error = np.where(np.isnan(error), np.inf, error)
            loss, sup = float(np.mean(error**2)), float(error.max())
            mean, top, value = token_norms(self._free_part(network))
            keys = token_effective_keys(network, tokens[:_FEW])
        return Row(step, phase, loss, sup, mean, top, value, keys)


def run(architecture: TokenArchitecture, vector: Tensor, tokens: Tensor) -> Tensor:
    """(batch, n, width) in the units of the vector -> (batch, n, outputs): every token read out."""
    parts = list(token_layout(architecture))
    pieces = vector.split([prod(shape) for _, shape in parts])
    weights = {name: piece.reshape(shape) for (name, shape), piece in zip(parts, pieces, strict=True)}
    Z = tokens
    if architecture.constants:
        Z = torch.cat([Z, weights["constants"].expand(len(Z), *weights["constants"].shape)], dim=1)
    for number, layer in enumerate(architecture.layers):
        here, new = f"layer{number}", Z
        if layer.carry:
            new = Z @ weights[f"{here}/carry"]
        for heads in _alike(layer.heads):
            new = new + _heads(Z, weights, here, heads)
        Z = new
        if layer.ffn:
            inner, bias, outer = (weights[f"{here}/ffn/{part}"] for part in ("inner", "bias", "outer"))
            Z = Z + torch.relu(Z @ inner + bias) @ outer
    result: Tensor = Z[:, : tokens.shape[1]] @ weights["readout"]
    return result


def _alike(heads: tuple[tuple[int, int], ...]) -> list[list[int]]:
    """The heads of a layer, those of one shape together."""
    groups: dict[tuple[int, int], list[int]] = {}
    for k, shape in enumerate(heads):
        groups.setdefault(shape, []).append(k)
    return list(groups.values())


def _heads(Z: Tensor, weights: dict[str, Tensor], here: str, heads: list[int]) -> Tensor:
    """What heads of one shape add to the stream, all at once."""
    maps = [
        torch.stack([weights[f"{here}/head{k}/{part}"] for k in heads]) for part in ("query", "key", "value", "output")
    ]
    wide = Z[:, None]
    logits = (wide @ maps[0]) @ (wide @ maps[1]).transpose(2, 3)
    mixed = torch.softmax(logits, dim=3) @ (wide @ maps[2])
    return (mixed @ maps[3]).sum(dim=1)
