"""Random heads of low rank: the closed form, its floor, and the bounds that nobody gets below; biased half-spaces."""

from __future__ import annotations

import math

import numpy as np
import pytest

import attnfun as af
from attnfun.kinds.neighbours import sphere
from attnfun.kinds.neighbours.build import random_heads
from products import few


@pytest.mark.parametrize("sampler", random_heads.SAMPLERS)
@pytest.mark.parametrize(("dim", "heads"), [(8, 16), pytest.param(16, 64, marks=pytest.mark.slow)])
def test_the_closed_form_is_the_error_of_the_network(dim: int, heads: int, sampler: str) -> None:
    net = af.neighbours(dim, 3, "random_heads", heads=heads, sampler=sampler, seed=1)
    seen = net.measured(5_000, seed=2)
    assert net.predicted.error is not None and net.limit is not None
    assert abs(seen.error - net.predicted.error) <= 4 * seen.error_se + net.predicted.uncertainty
    assert net.limit["lower"] <= net.predicted.error <= 0.5
    assert net.cost.heads == heads + 1 and net.cost.rank == 2


def test_the_overlap_with_the_target_by_samples() -> None:
    rng = np.random.default_rng(3)
    dim, cosine = 5, np.array([1.0, 0.6, 0.0, -0.3])
    z, y = sphere.uniform_points(rng, 150_000, dim), sphere.uniform_points(rng, 150_000, dim)
    found, tail = random_heads.overlap(dim, cosine)
    for c, b in zip(cosine, found, strict=True):
        k, q = np.eye(dim)[0], c * np.eye(dim)[0] + math.sqrt(1 - c * c) * np.eye(dim)[1]
        sample = np.sign(np.sum(z * y, axis=1)) * np.sign(z @ k) * np.sign(y @ q)
        assert abs(sample.mean() - b) <= 4.5 / math.sqrt(len(z)) + tail
    assert tail <= 1e-6


@pytest.mark.parametrize(("dim", "known"), few([(8, 0.1735), (16, 0.1780), (64, 0.1808)], 2))
def test_heads_with_equal_keys_and_queries_have_a_floor(dim: int, known: float) -> None:
    lam, energy = sphere.sign_coefficients(dim)
    t = sphere.uniform_points(np.random.default_rng(4), 100_000, dim)[:, 0]
    asin = np.arcsin(t)
    by_samples = 1 - np.mean(np.abs(asin)) ** 2 / np.mean(asin**2)  # the best multiple of asin for sign
    assert abs(2 * random_heads.floor(dim) - by_samples) <= 0.005
    assert abs(random_heads.floor(dim) - known) <= 0.6e-4
    sizes = (16, 256) if dim < 64 else (16,)
    errors = [af.neighbours(dim, 3, "random_heads", heads=heads).predicted.error for heads in sizes]
    assert all(error is not None and error >= random_heads.floor(dim) for error in errors)
    assert abs(float(energy.sum()) - 1) <= 0.02 and lam[0] > 0


def test_soft_heads_of_any_rank() -> None:
    for rank, sampler in ((2, "same"), (4, "independent"), (8, "same")):
        net = af.neighbours(8, 3, "random_heads", heads=12, rank=rank, sampler=sampler)
        seen = net.measured(8_000, seed=5)
        assert net.predicted.error is not None and net.limit is not None
        both = math.hypot(seen.error_se, net.predicted.uncertainty)
        assert abs(seen.error - net.predicted.error) <= 4.5 * both
        assert net.limit["lower"] <= net.predicted.error + 4.5 * both


@pytest.mark.parametrize("bias", [0.0, 0.3, -0.7])
def test_a_biased_half_space(bias: float) -> None:
    net = af.neighbours(8, 2, "biased", bias=bias, eps=1e-2)
    points = sphere.uniform_points(np.random.default_rng(6), 500, 2, 8)
    inner = np.sum(points[:, 0] * points[:, 1], axis=1)
    assert np.allclose(net(points), np.tanh(net.request["beta"] * (inner - bias) / 2), atol=1e-12)
    said, seen = net.predicted, net.measured(30_000, seed=7)
    assert said.error is not None and said.proved is not None
    assert abs(seen.error - said.error) <= 4 * seen.error_se
    assert said.error <= said.proved <= 1e-2 and net.cost.rank == 9
    assert net.limit is not None and net.limit["lower"] == af.bounds.rank(8, 4, 1, bias=bias).lower
    assert bias < -0.5 or net.limit["lower"] > 1e-2  # one head of half the rank does not get there
