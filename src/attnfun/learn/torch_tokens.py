"""The problem of a network on tokens; importing this file imports torch."""

import math
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
_CACHED, _PART = 1 << 17, 1 << 19  # softmax weights at a time, and entries of the widest layer of a part of a batch
_LOG2_E = 1 / math.log(2)
_SAFE = {torch.float64: 400.0, torch.float32: 50.0}  # the power of 2 is ordinary, and so are sums of such
_EVERY = slice(None)


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
        return run(self.architecture, vectors.holding(self.kept, theta), inputs, self.task.reads)

    def loss(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        layers = self.architecture.layers
        widest = max(
            [self.architecture.width, *(layer.ffn + sum(2 * r + p for r, p in layer.heads) for layer in layers)]
        )
        part = max(1, _PART // (widest * (inputs.shape[1] + self.architecture.constants)))
        loss: Tensor = _InParts.apply(theta, self.outputs, inputs, targets, part)  # type: ignore[no-untyped-call]
        return loss

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


class _InParts(torch.autograd.Function):
    """The mean squared error of `outputs(theta, inputs)`, and its slope, a part of the batch after the other.

    The slope of a part is worked out while what it needs is still in the cache, and nothing of it is kept. What a step
    takes of memory is then that of a part, however large the batch.
    """

    @staticmethod
    def forward(ctx: Any, theta: Tensor, outputs: Any, inputs: Tensor, targets: Tensor, size: int) -> Tensor:
        total, slope = targets.new_zeros(()), torch.zeros_like(theta)
        for x, y in zip(inputs.split(size), targets.split(size), strict=True):
            with torch.enable_grad():
                own = theta.detach().requires_grad_(ctx.needs_input_grad[0])
                error = ((outputs(own, x) - y) ** 2).sum()
            total += error.detach()
            if error.requires_grad:
                slope += torch.autograd.grad(error, own)[0]
        ctx.save_for_backward(slope / targets.numel())
        return total / targets.numel()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None, None, None


def run(architecture: TokenArchitecture, vector: Tensor, tokens: Tensor, reads: slice = _EVERY) -> Tensor:
    """(batch, n, width) in the units of the vector -> (batch, tokens read, outputs): the tokens `reads` read out.

    Inside, a column is a token, (batch, width, n): products of a few rows with many columns are the quick ones. The
    last layer moves the tokens that are read, and no other.
    """
    weights = vectors.split(architecture, vector)
    Z = torch.cat([tokens, weights["constants"].expand(len(tokens), *weights["constants"].shape)], dim=1)
    Z, last = Z.transpose(1, 2).contiguous(), len(architecture.layers) - 1
    for number, layer in enumerate(architecture.layers):
        here, own = f"layer{number}", _read(Z, tokens, reads) if number == last else Z
        new = _times(weights[f"{here}/carry"], own) if layer.carry else own
        for shape in dict.fromkeys(layer.heads):
            alike = [k for k, other in enumerate(layer.heads) if other == shape]
            new = new + _heads(own, Z, weights, here, alike)
        Z = new
        if layer.ffn:
            inner, bias, outer = (weights[f"{here}/ffn/{part}"] for part in ("inner", "bias", "outer"))
            Z = Z + _times(outer, torch.relu(_times(inner, Z) + bias[:, None]))
    return _times(weights["readout"], Z if last >= 0 else _read(Z, tokens, reads)).transpose(1, 2)


def _read(Z: Tensor, tokens: Tensor, reads: slice) -> Tensor:
    """The columns of the tokens that are read; none of a constant."""
    return Z[:, :, : tokens.shape[1]][:, :, reads]


def _times(map: Tensor, Z: Tensor) -> Tensor:
    """(width, c) of tokens (batch, width, n) -> (batch, c, n)."""
    return torch.bmm(map.T.expand(len(Z), *map.T.shape), Z)


def _heads(own: Tensor, Z: Tensor, weights: dict[str, Tensor], here: str, heads: list[int]) -> Tensor:
    """What heads of one shape add to the tokens `own`, all at once: two products for maps, one for outputs."""
    query, key, value, output = (
        [weights[f"{here}/head{k}/{part}"] for k in heads] for part in ("query", "key", "value", "output")
    )
    asked = torch.cat(query, dim=1)
    told = torch.cat([part for pair in zip(key, value, strict=True) for part in pair], dim=1)
    queries, tokens = (
        _times(maps, given).view(len(Z) * len(heads), -1, given.shape[2]) for maps, given in ((asked, own), (told, Z))
    )
    mixed = _Attended.apply(queries, tokens)
    return _times(torch.cat(output), mixed.view(len(Z), -1, own.shape[2]))


class _Attended(torch.autograd.Function):
    """Vᵀ softmax(K Qᵀ), over the keys, of queries (m, r, a) and of keys and values in one, (m, r + p, n): (m, p, a).

    A few of the m at a time, in buffers that stay in cache; the backward pass computes the weights again, which costs
    no more time than memory of their size does. Logits are those of 2: exp2 is much quicker than exp. They stand by
    key, then query, with E = 2^(logit − shift), L the sums of E over the keys, and the shift 0 wherever no logit can be
    large. With G the gradient of the output over L, and D its inner products with the output, by query:

        dV = G Eᵀ,    dS = E ∘ (Vᵀ G − D),    dQ = Kᵀ dS,    dK = Q dSᵀ
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, token: Tensor) -> Tensor:
        (m, r, a), one = query.shape, torch.ones_like(token[:, :1])
        key, value = torch.cat([token[:, :r], one], dim=1), torch.cat([token[:, r:], one], dim=1)
        asked = torch.cat([query * _LOG2_E, query.new_zeros((m, 1, a))], dim=1)
        sharp = not _largest(asked) * _largest(key[:, :r]) < _SAFE[query.dtype]
        sums = query.new_empty((m, value.shape[1], a))
        for at, E, _ in _Attended.pieces(asked, key):
            if sharp:
                top = E.amax(dim=1, keepdim=True)
                E -= top
                torch.neg(top[:, 0], out=asked[at, r])
            torch.bmm(value[at], E.exp2_(), out=sums[at])
        out, total = sums[:, :-1] / sums[:, -1:], sums[:, -1:]
        ctx.save_for_backward(asked, key, value, out, total)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        asked, key, value, out, total = ctx.saved_tensors
        r, grad = key.shape[1] - 1, grad / total
        grad = torch.cat([grad, -(grad * out).sum(dim=1, keepdim=True)], dim=1)
        of_query, of_key, of_value = (torch.empty_like(own) for own in (asked, key, value))
        for at, E, slope in _Attended.pieces(asked, key):
            E.exp2_()
            torch.bmm(grad[at], E.transpose(1, 2), out=of_value[at])
            torch.bmm(value[at].transpose(1, 2), grad[at], out=slope).mul_(E)
            torch.bmm(key[at], slope, out=of_query[at])
            torch.bmm(asked[at], slope.transpose(1, 2), out=of_key[at])
        return of_query[:, :r], torch.cat([of_key[:, :r] / _LOG2_E, of_value[:, :-1]], dim=1)

    @staticmethod
    def pieces(asked: Tensor, key: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """(which of the m, their logits by key and query, a buffer of their shape)."""
        (m, _, a), n = asked.shape, key.shape[2]
        step = max(1, _CACHED // max(1, n * a))
        space = [asked.new_empty((min(step, m), n, a)) for _ in range(2)]
        for k in range(0, m, step):
            at = slice(k, min(m, k + step))
            logits, spare = (own[: at.stop - k] for own in space)
            yield at, torch.bmm(key[at].transpose(1, 2), asked[at], out=logits), spare


def _largest(X: Tensor) -> float:
    """The largest Euclidean norm of a column."""
    return math.sqrt(float((X * X).sum(dim=1).amax())) if X.numel() else 0.0
