"""Networks on tokens trained on a fixed sample: they learn, shared layers are one, same seed, same bits."""

from __future__ import annotations

import numpy as np
import pytest

from attnfun.errors import InvalidRequest
from attnfun.network import TokenArchitecture

pytest.importorskip("torch")

RNG = np.random.default_rng(0)
TOKENS = RNG.uniform(-1, 1, size=(150, 3, 4))
VALUES = TOKENS.mean(axis=1, keepdims=True)[:, :, :1] * np.ones((1, 3, 1))
SHAPE = TokenArchitecture.plain(("a", "b", "c", "d"), ("f",), layers=2, heads=2, rank=2, width=4)


@pytest.mark.parametrize("shared", [False, True])
def test_it_learns_and_the_same_seed_gives_the_same_bits(shared: bool) -> None:
    from attnfun.learn import fit_sample

    def error(steps: int, seed: int) -> float:
        network = fit_sample(SHAPE, TOKENS, VALUES, steps=steps, seed=seed, lr=1e-2, shared=shared)
        return float(np.mean((network.run(TOKENS) - VALUES) ** 2))

    assert error(100, 1) < error(1, 1) / 4
    assert error(6, 1) == error(6, 1) != error(6, 2)


def test_layers_that_share_weights_are_equal() -> None:
    from attnfun.learn import fit_sample

    for shared in (False, True):
        network = fit_sample(SHAPE, TOKENS, VALUES, steps=5, seed=0, shared=shared)
        weights = dict(network.arrays())
        pairs = [(a, weights[name.replace("layer0", "layer1")]) for name, a in weights.items() if "layer0" in name]
        assert len(pairs) == 8 and all(np.array_equal(a, b) for a, b in pairs) == shared


def test_layers_of_two_shapes_cannot_share() -> None:
    from dataclasses import replace

    from attnfun.learn import fit_sample

    other = replace(SHAPE, layers=(SHAPE.layers[0], replace(SHAPE.layers[1], heads=SHAPE.layers[1].heads[:1])))
    with pytest.raises(InvalidRequest, match="one shape"):
        fit_sample(other, TOKENS, VALUES, steps=1, seed=0, shared=True)
