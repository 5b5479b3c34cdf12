"""Networks on sets with free weights, for the studies of DeepSets: sums over elements, over pairs; real or complex.

Points x_n of D complex coordinates on the unit circle. A *real* network reads cosines and sines and has two outputs,
the real and the imaginary part; a *holomorphic* one reads the complex coordinates, has complex weights, an entire
activation and one complex output: only that is what the lower bounds of `limits.separation.sets` are about.
Torch is imported when a function is called.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import attnfun as af
from attnfun.lab.studies.separations.layers import fresh_error

RATE, SAMPLES = 6e-3, 20_000


def trained_error(
    points: int, dim: int, way: str, features: int, width: int, activation: str, *, steps: int, batch: int, seed: int
) -> tuple[float, float]:
    """(mean, standard error) of |f − g|² on fresh sets after the descent; E|g|² = 1. NaN where it did not end well.

    `way`: "elements", "pairs" or "pair products"; `features` H are real, or complex where the activation is
    holomorphic.
    """
    torch = af.learn.require_torch()
    hard = af.limits.HardSet(points, dim)
    with af.learn.one_torch_thread():
        parameters, network = _network(torch, hard, way, features, width, activation, seed)

        def squares(count: int, source: Any) -> Any:
            x = _sets(torch, hard, count, source)
            return torch.view_as_real(network(x) - _target(hard, x)).square().sum(dim=-1)

        def loss(step: int) -> Any:
            return squares(batch, af.learn.generator(seed, 1, step)).mean()

        losses = af.learn.descend(parameters, loss, steps=steps, lr=RATE)
        return fresh_error(squares, SAMPLES, 2000, seed) if math.isfinite(losses[-1]) else (math.nan, math.nan)


def _sets(torch: Any, hard: af.limits.HardSet, count: int, source: Any) -> Any:
    """(count, N, D) complex64 points of the torus."""
    turns = torch.rand((count, hard.points, hard.dim), generator=source) * (2 * math.pi)
    return torch.polar(torch.ones_like(turns), turns)


def _target(hard: af.limits.HardSet, x: Any) -> Any:
    """g by pairs, as (batch,) complex."""
    w = x[:, :, None] * x[:, None]
    return ((1 + w).prod(dim=-1) - 1).sum(dim=(1, 2)) / math.sqrt(hard.divisor)


def _network(
    torch: Any, hard: af.limits.HardSet, way: str, H: int, w: int, activation: str, seed: int
) -> tuple[list[Any], Callable[[Any], Any]]:
    """(parameters, complex sets → complex outputs)."""
    entire, D = activation == "holomorphic", hard.dim
    inputs = (1 if entire else 2) * (2 * D if way == "pairs" else D)
    inner = _mlp(torch, (inputs, w, w, H), af.learn.generator(seed, 3), entire)
    outer = _mlp(torch, (H, w, w, 1 if entire else 2), af.learn.generator(seed, 4), entire)
    acts = {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "tanh": torch.tanh}
    act = (acts | {"holomorphic": lambda z: z + z.square() / 2})[activation]
    i, j = torch.triu_indices(hard.points, hard.points)
    times = torch.where(i == j, 1.0, 2.0)[:, None]  # x_i ∘ x_j is symmetric

    def network(x: Any) -> Any:
        if way == "pair products":
            x = x[:, i] * x[:, j]
        tokens = x if entire else torch.view_as_real(x).flatten(start_dim=2)
        if way == "pairs":
            n = tokens.shape[1]
            left, right = tokens[:, :, None].expand(-1, n, n, -1), tokens[:, None].expand(-1, n, n, -1)
            tokens = torch.cat([left, right], dim=-1).flatten(1, 2)
        features = _run(inner, tokens, act)
        if way == "pair products":
            features = features * times
        summed = features.sum(dim=1) / tokens.shape[1] ** 0.5
        out = _run(outer, summed, act)
        return out[:, 0] if entire else torch.view_as_complex(out.contiguous())

    return [part for layer in (*inner, *outer) for part in layer], network


def _mlp(torch: Any, sizes: Sequence[int], source: Any, entire: bool) -> list[tuple[Any, Any]]:
    """Weights uniform of variance 1/fan in (torch's own start, a third of it, is often caught), biases within 1/√fan.

    A polynomial activation grows: holomorphic networks start with a quarter of that variance in either part.
    """
    layers = []
    for fan, out in pairwise(sizes):
        parts = []
        for shape, size in (((fan, out), (3 / fan) ** 0.5), ((out,), fan**-0.5)):
            drawn = (2 * torch.rand((*shape, 2) if entire else shape, generator=source) - 1) * size
            parts.append((torch.view_as_complex(drawn / 2) if entire else drawn).requires_grad_())
        layers.append((parts[0], parts[1]))
    return layers


def _run(layers: Sequence[tuple[Any, Any]], x: Any, act: Callable[[Any], Any]) -> Any:
    for k, (weight, bias) in enumerate(layers):
        x = x @ weight + bias
        x = act(x) if k + 1 < len(layers) else x
    return x
