"""The problem of a network on tokens; importing this file imports torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnfun.learn import Row
from attnfun.learn import weights as vectors
from attnfun.learn.lesson import Drawn, Held, Problem, digest
from attnfun.network import TokenArchitecture
from attnfun.network.head import Array, Of

_PROBE, _LEAST, _WORK, _FEW = 1000, 64, 1 << 19, 16
_CACHED, _KEPT = 1 << 16, 1 << 21  # softmax weights at a time, and those of a layer that are kept


@dataclass(frozen=True, eq=False)
class TokenProblem(Problem):
    """The weights of the shape of `task`, in the units of `weights.py`, towards what it wants.

    `begin`: the seed of a random start, or a network to start from. `held`: the arrays that are not free at all
    entries, by name, as (values, which entries are free); the others of their entries keep these values. The probe is
    the same for every run.
    """

    task: Drawn
    held: Held
    begin: int | vectors.Tokens

    chosen_by = Of[str]("task")  # type: ignore[assignment]
    architecture = Of[TokenArchitecture]("task")
    dtype = Of[str]("architecture")  # type: ignore[assignment]

    @cached_property
    def probe(self) -> tuple[Array, Array]:
        """Draws behind the rows of a history; never those of a batch."""
        tokens, values = self.task.draw(np.random.default_rng([20, 1]), _LEAST)
        more = min(_PROBE, self._affordable(tokens))
        return (tokens, values) if more <= _LEAST else self.task.draw(np.random.default_rng([20, 2]), more)

    def _affordable(self, tokens: Array, times: int = 1) -> int:
        """How many token matrices are `times` as much work as a probe may be."""
        side = tokens.shape[1] + self.architecture.constants
        return times * _WORK // (side * side * max(1, self.architecture.heads))

    @cached_property
    def units(self) -> tuple[Array, float]:
        """The scales of the coordinates, and the size of what is wanted."""
        finite = np.abs(self.probe[1][np.isfinite(self.probe[1])])
        return vectors.token_scales(self.probe[0]), float(vectors.power_of_two(float(finite.max(initial=0.0)) or 1.0))

    @cached_property
    def kept(self) -> tuple[Array, Array] | None:
        """(values, free): the vector that entries which are not free have, and which are; None where all are."""
        if not self.held:
            return None
        every = {name: (np.zeros(shape), np.ones(shape, dtype=bool)) for name, shape in self.architecture.layout()}
        every |= self.held
        whole, free = ({name: own[k] for name, own in every.items()} for k in (0, 1))
        values = {name: vectors.in_units(name, own, *self.units) for name, own in whole.items()}
        return vectors.joined(self.architecture, values), vectors.joined(self.architecture, free)

    @cached_property
    def origin(self) -> vectors.Tokens:
        """Where it starts, with what is held as it must be."""
        begun = self.begin
        if isinstance(begun, int):
            begun = vectors.random_tokens(self.architecture, *self.units, begun)
        return begun if self.kept is None else self.network(vectors.token_vector(begun, *self.units))

    def identity(self) -> dict[str, Any]:
        own = {"architecture": self.architecture.to_json(), "target": self.task.target.to_json()}
        start = digest(*(array for _, array in self.origin.arrays()))
        return {**own, "values": digest(*self.probe), "held": sorted(self.held), "start": start}

    def start(self) -> Array:
        return vectors.token_vector(self.origin, *self.units)

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        tokens, values = self.task.draw(rng, count, noise)
        good, (scales, size) = np.isfinite(values).all(axis=(1, 2)), self.units
        return self.tensors(tokens[good] / scales, values[good] / size)

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        """Fewer where a token matrix is much work: a polish runs through all of them again and again."""
        return self.batch(rng, min(count, max(_LEAST, self._affordable(self.probe[0], 8))), 0.0)

    def outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        return run(self.architecture, vectors.holding(self.kept, theta), inputs)[:, self.task.reads]

    def network(self, vector: Array | None) -> vectors.Tokens:
        whole = self.start() if vector is None else vectors.holding(self.kept, vector)
        return vectors.tokens_of(self.architecture, whole, *self.units)

    def measure(self, network: vectors.Tokens, step: int, phase: str) -> Row:
        """Norms are those of what is free: those of entries that are held say nothing of training."""
        tokens, values = self.probe
        with np.errstate(all="ignore"):
            out = np.asarray(network.run(tokens), dtype=np.float64)[:, self.task.reads]
            good = np.isfinite(values).all(axis=(1, 2))
            error = self.task.target.errors(out[good], values[good]) if good.any() else np.zeros((1, 1))
            free = network
            if self.kept is not None:
                vector = vectors.holding((np.zeros(1), self.kept[1]), vectors.token_vector(network, *self.units))
                free = vectors.tokens_of(self.architecture, vector, *self.units)
            *norms, value = vectors.token_norms(free)
            keys = vectors.token_effective_keys(network, tokens[:_FEW])
        return Row.of(step, phase, np.where(np.isnan(error), np.inf, error), norms, value, keys)


def run(architecture: TokenArchitecture, vector: Tensor, tokens: Tensor) -> Tensor:
    """(batch, n, width) in the units of the vector -> (batch, n, outputs): every token read out."""
    weights, Z = vectors.split(architecture, vector), tokens
    if architecture.constants:
        Z = torch.cat([Z, weights["constants"].expand(len(Z), *weights["constants"].shape)], dim=1)
    for number, layer in enumerate(architecture.layers):
        here, new = f"layer{number}", Z
        if layer.carry:
            new = Z @ weights[f"{here}/carry"]
        for shape in dict.fromkeys(layer.heads):
            alike = [k for k, own in enumerate(layer.heads) if own == shape]
            new = new + _heads(Z, weights, here, alike)
        Z = new
        if layer.ffn:
            inner, bias, outer = (weights[f"{here}/ffn/{part}"] for part in ("inner", "bias", "outer"))
            Z = Z + torch.relu(Z @ inner + bias) @ outer
    return Z[:, : tokens.shape[1]] @ weights["readout"]


def _heads(Z: Tensor, weights: dict[str, Tensor], here: str, heads: list[int]) -> Tensor:
    """What heads of one shape add to the stream, all at once: one product for their maps, one for their outputs."""
    parts = {p: [weights[f"{here}/head{k}/{p}"] for k in heads] for p in ("query", "key", "value", "output")}
    maps = torch.cat([*parts["query"], *parts["key"], *parts["value"]], dim=1)
    sizes = [len(heads) * parts[p][0].shape[1] for p in ("query", "key", "value")]
    query, key, value = (own.unflatten(2, (len(heads), -1)).transpose(1, 2) for own in (Z @ maps).split(sizes, dim=2))
    mixed = _Attended.apply(*(own.flatten(0, 1) for own in (query, key, value)))
    return mixed.unflatten(0, (len(Z), -1)).transpose(1, 2).flatten(2) @ torch.cat(parts["output"])


class _Attended(torch.autograd.Function):
    """softmax(Q Kᵀ) V of (m, n, r), (m, n, r), (m, n, p), a few of the m at a time in buffers that stay in cache.

    Few softmax weights are kept; many are computed again by the backward pass, which costs no more time than memory of
    their size does. Scores are held by key, then query, where a softmax over few keys is quicker. With P the weights, G
    the gradient of the output and D its inner products with the output, by token:

        dV = Pᵀ G,    dS = P ∘ (G Vᵀ − D),    dQ = dS K,    dK = dSᵀ Q
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        (m, n), out = query.shape[:2], torch.empty_like(value)
        kept = query.new_empty((m, n, n)) if m * n * n <= _KEPT else None
        for at, weights, _ in _Attended.pieces(query, key, kept):
            torch.bmm(weights.transpose(1, 2), value[at], out=out[at])
        ctx.save_for_backward(query, key, value, out, kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        query, key, value, out, kept = ctx.saved_tensors
        of_query, of_key, of_value = (torch.empty_like(own) for own in (query, key, value))
        grad = grad.contiguous()
        inner = (grad * out).sum(dim=2)[:, None]
        for at, weights, scores in _Attended.pieces(query, key, kept, known=kept is not None):
            torch.bmm(weights, grad[at], out=of_value[at])
            outer = torch.mul if value.shape[2] == 1 else torch.bmm  # of one column, which is no work for a product
            outer(value[at], grad[at].transpose(1, 2), out=scores).sub_(inner[at]).mul_(weights)
            torch.bmm(scores.transpose(1, 2), key[at], out=of_query[at])
            torch.bmm(scores, query[at], out=of_key[at])
        return of_query, of_key, of_value

    @staticmethod
    def pieces(
        query: Tensor, key: Tensor, kept: Tensor | None, known: bool = False
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """(which of the m, their softmax weights by key and query, a buffer of their shape); `kept` is where all the
        weights stand, or are to stand, if anywhere, and `known` whether they do.
        """
        m, n = query.shape[:2]
        step = max(1, _CACHED // (n * n))
        space = [query.new_empty((min(step, m), n, n)) for _ in range(2)]
        for k in range(0, m, step):
            at = slice(k, min(m, k + step))
            scores, weights = (own[: at.stop - k] for own in space)
            weights = weights if kept is None else kept[at]
            if not known:
                torch.bmm(key[at], query[at].transpose(1, 2), out=scores)
                torch.softmax(scores, dim=1, out=weights)
            yield at, weights, scores
