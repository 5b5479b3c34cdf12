"""The exp of the compiled kernels against its bound, `attnfun.fast.exp_bound`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from flint import arb

from attnfun.fast.compiled import exps
from attnfun.fast.exp_bound import EXP_ROUNDOFFS, LN2, LOG2_E, MAGIC, REACH
from attnfun.language import precision

Values = npt.NDArray[np.float64]


def off(x: npt.NDArray[np.floating]) -> npt.NDArray[np.longdouble]:
    """By how many u exp(x) is off, as long doubles see it (their exp is good to 2^-63)."""
    out = np.empty_like(x)
    exps(x, out)
    true = np.exp(x.astype(np.longdouble))
    return np.abs(out.astype(np.longdouble) / true - 1) / (2.0**-53 if x.dtype == np.float64 else 2.0**-24)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_within_its_bound_where_the_cells_end(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    reach, kind = REACH[dtype], np.dtype(dtype)
    most = int(reach * LOG2_E)
    ends = ((rng.integers(-most, most, 40_000) + 0.5) * np.log(2)).astype(kind)
    steps = np.array([np.nextafter(ends, kind.type(np.inf)), np.nextafter(ends, kind.type(-np.inf)), ends]).ravel()
    tiny = (rng.uniform(-1, 1, 40_000) * 2.0 ** rng.integers(-60, 0, 40_000)).astype(kind)
    x = np.concatenate([steps, tiny, rng.uniform(-reach, reach, 40_000).astype(kind), kind.type([reach, -reach, 0])])
    assert off(np.clip(x, -reach, reach)).max() <= EXP_ROUNDOFFS


@pytest.mark.slow
def test_it_is_within_its_bound_at_every_float32() -> None:
    last = int(np.float32(REACH["float32"]).view(np.int32))
    for sign in (np.float32(1), np.float32(-1)):
        for begin in range(0, last + 1, 1 << 23):
            bits = np.arange(begin, min(begin + (1 << 23), last + 1), dtype=np.int32)
            x = sign * bits.view(np.float32)
            out = np.empty_like(x)
            exps(x, out)
            assert (np.abs(out / np.exp(x.astype(np.float64)) - 1)).max() <= EXP_ROUNDOFFS * 2.0**-24


def test_its_constants_are_what_the_proof_says() -> None:
    for dtype, bits, leading in (("float64", 86, 42), ("float32", 38, 16)):
        high, low = (float(np.dtype(dtype).type(part)) for part in LN2[dtype])
        with precision(200):
            assert abs(arb(2).log() - arb(high) - arb(low)) < arb(2) ** -bits
        assert (high * 2.0**leading) % 1 == 0, "n h is exact"
        assert MAGIC[dtype] == 1.5 * 2.0 ** (52 if dtype == "float64" else 23)
