"""The next doubles, against NumPy's own, at the numbers where a bit pattern is no neighbour."""

import numpy as np
import pytest

from attnfun.language.outward import next_above, next_below

_LARGEST, _LEAST = np.finfo(float).max, np.finfo(float).tiny
_SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, _LEAST, -_LEAST, _LARGEST, -_LARGEST, 1.0, -1.0]


@pytest.mark.parametrize("count", [0, 3, 5000])
@pytest.mark.parametrize("step, toward", [(next_below, -np.inf), (next_above, np.inf)])
@np.errstate(all="ignore")
def test_neighbours(step, toward, count):
    rng = np.random.default_rng(count)
    wild = rng.integers(-(2**63), 2**63 - 1, count).view(np.float64)
    x = rng.permutation(np.concatenate([_SPECIAL, rng.normal(size=count), wild]))
    near, chosen = np.nextafter(x, toward), rng.random(len(x)) < 0.5
    for given, wanted in ((x, near), (x[::-2], near[::-2]), (x[:, None] * np.ones(2), np.stack([near, near], axis=1))):
        assert np.array_equal(step(given), wanted, equal_nan=True)
    assert np.array_equal(np.signbit(step(x))[near == 0], np.signbit(near)[near == 0])
    assert np.array_equal(step(x, chosen), np.where(chosen, near, x), equal_nan=True)
