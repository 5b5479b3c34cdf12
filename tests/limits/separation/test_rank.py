"""Bounds of rank and heads: tables, order, monotony, Monte Carlo of the upper bound, bad input."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.special import eval_gegenbauer

import attnfun as af
from attnfun.cli import main
from attnfun.errors import InvalidRequest
from attnfun.limits.separation.energies import energies
from attnfun.limits.separation.harmonics import harmonics, seen_harmonics
from attnfun.limits.separation.rank import SETTINGS
from limits.separation.closed_forms import sign_coefficient
from products import THOROUGH

TABLE = {  # (d, r): (lower, upper) for H = 1, 16, 256, 4096
    (8, 1): ((0.9142, 0.9142), (0.3042, 0.5124), (0.1815, 0.2408), (0.1079, 0.1355)),
    (8, 2): ((0.8258, 0.8258), (0.2459, 0.3772), (0.1193, 0.1663), (0.0653, 0.0863)),
    (8, 4): ((0.6334, 0.6334), (0.1126, 0.2129), (0.0406, 0.0708), (0.0157, 0.0261)),
    (8, 8): ((0.0, 0.0),) * 4,
    (16, 1): ((0.9588, 0.9588), (0.3409, 0.6587), (0.3059, 0.3510), (0.2141, 0.2383)),
    (16, 2): ((0.9173, 0.9173), (0.3337, 0.5343), (0.2236, 0.2913), (0.1700, 0.1971)),
    (16, 4): ((0.8327, 0.8327), (0.2941, 0.4104), (0.1713, 0.2200), (0.1247, 0.1450)),
    (16, 8): ((0.6507, 0.6507), (0.1681, 0.2598), (0.0948, 0.1249), (0.0588, 0.0728)),
    (64, 1): ((0.9900, 0.9900), (0.8396, 0.8700), (0.3578, 0.4845), (0.3486, 0.3592)),
    (64, 2): ((0.9799, 0.9799), (0.6790, 0.7814), (0.3560, 0.4253), (0.3194, 0.3345)),
    (64, 4): ((0.9599, 0.9599), (0.3576, 0.6681), (0.3462, 0.3829), (0.2489, 0.2900)),
    (64, 8): ((0.9195, 0.9195), (0.3538, 0.5492), (0.2845, 0.3308), (0.2342, 0.2481)),
    (64, 32): ((0.6628, 0.6628), (0.2148, 0.2952), (0.1484, 0.1748), (0.1168, 0.1290)),
}
NEEDED = {  # (d, r): heads for 0.5, 0.3, 0.2, 0.1, 0.05, two digits
    (16, 1): ("1.3e+01", "3.0e+02", "7.9e+03", "1.9e+07", "1.8e+11"),
    (16, 8): ("2.0e+00", "3.0e+00", "8.0e+00", "1.9e+02", "1.1e+04"),
    (64, 1): ("5.0e+01", "2.5e+04", "2.3e+07", "1.6e+18", "6.6e+33"),
    (64, 8): ("7.0e+00", "2.0e+02", "1.3e+04", "2.4e+12", "1.3e+25"),
    (64, 32): ("2.0e+00", "4.0e+00", "2.3e+01", "3.7e+04", "2.5e+10"),
    (512, 1): ("4.0e+02", "1.3e+07", "5.6e+14", "2.5e+42", "1.2e+107"),
    (512, 64): ("7.0e+00", "2.9e+02", "4.6e+05", "4.0e+20", "2.8e+63"),
    (512, 256): ("2.0e+00", "5.0e+00", "3.2e+01", "5.8e+06", "2.2e+23"),
}


@pytest.mark.parametrize(("dim", "rank"), TABLE)
def test_brackets_of_the_scalar_problem(dim: int, rank: int) -> None:
    for heads, (lower, upper) in zip((1, 16, 256, 4096), TABLE[dim, rank], strict=True):
        found = af.bounds.rank(dim=dim, rank=rank, heads=heads)
        assert found.upper is not None
        assert abs(found.lower - lower) <= 0.6e-4 and abs(found.upper - upper) <= 0.6e-4


@pytest.mark.parametrize(("dim", "rank"), NEEDED)
def test_heads_needed(dim: int, rank: int) -> None:
    for eps, digits in zip((0.5, 0.3, 0.2, 0.1, 0.05), NEEDED[dim, rank], strict=True):
        found = af.bounds.rank(dim, rank, 1, eps=eps)
        assert found.heads_needed is not None and found.heads_sufficient is not None
        assert f"{found.heads_needed:.1e}" == digits
        assert found.heads_needed <= found.heads_sufficient
        assert af.bounds.rank(dim, rank, found.heads_needed).lower < eps
        assert af.bounds.rank(dim, rank, found.heads_needed - 1).lower >= eps * (1 - 1e-9)
        assert (af.bounds.rank(dim, rank, found.heads_sufficient).upper or 0.0) <= eps


LAYER = {  # (d, r): half the scalar bound in dimension d−1, and any values; H = 1, 16, 256, 4096, from degrees ≤ 401
    (8, 1): ((0.4503, 0.1446, 0.0777, 0.0422), (0.3004, 0.0926, 0.0527, 0.0305)),
    (16, 4): ((0.4104, 0.1410, 0.0822, 0.0573), (0.1593, 0.1000, 0.0664, 0.0473)),
    (64, 8): ((0.4591, 0.1767, 0.1404, 0.1164), (0.1775, 0.1533, 0.1206, 0.0988)),
    (64, 32): ((0.3284, 0.1058, 0.0724, 0.0574), (0.0944, 0.0719, 0.0585, 0.0485)),
}


@pytest.mark.parametrize(("dim", "rank"), LAYER)
def test_bounds_of_the_layer(dim: int, rank: int) -> None:
    scalar, general = LAYER[dim, rank]
    for heads, one, other in zip((1, 16, 256, 4096), scalar, general, strict=True):
        first = af.bounds.rank(dim, rank, heads, setting="layer-scalar-v")
        second = af.bounds.rank(dim, rank, heads, setting="layer-any-v")
        assert abs(first.lower - one) <= 0.6e-4 and abs(second.lower - other) <= 0.6e-4
        assert first.upper is None and second.upper is None
        assert 0 <= second.lower <= first.lower <= 0.5
        itself = af.bounds.rank(dim, rank, heads, setting="layer-any-v", attends_self=True)
        assert itself.lower <= second.lower


def test_softmax_settings_exceed_their_truncated_sums() -> None:
    """The published values stop at degree 61; every further degree only adds."""
    for dim, rank, heads, scalar, general in (
        (64, 1, 1, 0.472, 0.467),
        (64, 4, 16, 0.156, 0.155),
        (64, 32, 2, 0.140, 0.069),
        (16, 4, 4, 0.151, 0.133),
        (8, 1, 64, 0.115, 0.084),
    ):
        one = af.bounds.rank(dim, rank, heads, setting="softmax-scalar-v").lower
        other = af.bounds.rank(dim, rank, heads, setting="softmax-any-v").lower
        rest = 0.5 * (1 - energies(dim).high[energies(dim).degrees <= 61].sum())
        assert scalar - 1e-3 <= one <= scalar + rest + 1e-3
        assert general - 1e-3 <= other <= general + rest + 1e-3


@pytest.mark.drawn
def test_order_and_monotony() -> None:
    rng = np.random.default_rng(1)
    for _ in range(6 if THOROUGH else 2):
        dim = int(rng.integers(3, 60))
        rank = int(rng.integers(1, dim + 2))
        heads = int(2 ** rng.uniform(0, 30))
        for setting in SETTINGS:
            found = af.bounds.rank(dim, rank, heads, setting=setting)
            assert 0 <= found.lower <= found.largest
            assert found.lower >= af.bounds.rank(dim, rank, heads + 1, setting=setting).lower
            assert found.lower >= af.bounds.rank(dim, rank + 1, heads, setting=setting).lower * (1 - 1e-11)
            if found.upper is not None:
                assert found.lower <= found.upper
        one = af.bounds.rank(dim, rank, 1)
        last = int(energies(dim).degrees[-1])  # higher degrees are between the factor of this one and their limit
        apart = energies(dim).rest[1] * (seen_harmonics(dim, rank, last) / harmonics(dim, last))
        assert one.upper is not None and abs(one.upper - one.lower) <= 1e-10 + apart


def test_lower_bound_is_below_the_exact_sum() -> None:
    """Against rationals: Σ over the computed degrees of e_low (1 − H M/N)₊, a part of the bound."""
    from fractions import Fraction

    for dim, rank, heads in ((5, 2, 3), (8, 7, 1), (16, 3, 1000), (64, 30, 12)):
        found = energies(dim)
        exact = Fraction(0)
        for degree, high in zip(found.degrees[:200], found.high[:200], strict=True):
            left = 1 - Fraction(heads * seen_harmonics(dim, rank, int(degree)), harmonics(dim, int(degree)))
            exact += Fraction(float(high)) * max(left, Fraction(0))
        rest = Fraction(float(found.high[200:].sum())) * (1 + Fraction(1, 10**10)) + Fraction(found.rest[1])
        assert Fraction(af.bounds.rank(dim, rank, heads).lower) <= exact + rest


@pytest.mark.parametrize(("dim", "heads"), [(8, 1), (8, 64), (16, 16)])
def test_random_directions_reach_the_upper_bound(dim: int, heads: int) -> None:
    """Mean squared error of Σ_ℓ λ c N Σ_h P_ℓ(q_h·z) P_ℓ(q_h·y) over random directions, by its closed form."""
    rng = np.random.default_rng(0)
    degrees = range(1, 60, 2)
    lam = np.array([sign_coefficient(dim, k) for k in degrees])
    N = np.array([float(harmonics(dim, k)) for k in degrees])
    c = N / (N + heads - 1)
    errors = []
    for _ in range(24):
        q = rng.standard_normal((heads, dim))
        q /= np.linalg.norm(q, axis=1, keepdims=True)
        inner = np.clip(q @ q.T, -1, 1)
        total = 0.0
        for i, k in enumerate(degrees):
            P = eval_gegenbauer(k, dim / 2 - 1, inner) / eval_gegenbauer(k, dim / 2 - 1, 1.0)
            # ‖λ(Id − c Σ Π_h)‖² with tr Π_h = 1, tr Π_g Π_h = P(q_g·q_h)²
            total += lam[i] ** 2 * (N[i] - 2 * c[i] * heads + c[i] ** 2 * float((P**2).sum()))
        errors.append(total)
    known = sum(N * lam**2)
    upper = af.bounds.rank(dim, 1, heads).upper
    assert upper is not None
    spread = 3 * np.std(errors) / math.sqrt(len(errors)) + 1e-9
    # degrees past 59 have factors between that of degree 61 and 1
    assert np.mean(errors) - spread <= upper <= np.mean(errors) + spread + (1 - known)


def test_any_number_of_heads_in_any_dimension() -> None:
    for rank in (1, 2048, 4095, 4096, 5000):
        for heads in (0, 1, 10**200, 10**5000):
            found = af.bounds.rank(4096, rank, heads)
            assert found.upper is not None and 0 <= found.lower <= found.upper <= 1
    assert af.bounds.rank(4096, 1, 10**5000).lower == 0.0
    found = energies(4096)
    untouched = [e for e, n in zip(found.low, found.counts, strict=True) if n > 10**310]
    assert af.bounds.rank(4096, 1, 10**300).lower >= sum(untouched) * (1 - 1e-8) > 0


def test_biased_half_spaces_need_heads_of_even_degree_too() -> None:
    plain, biased = (af.bounds.rank(16, 1, 16, bias=b).lower for b in (0.0, 0.3))
    assert plain != biased and 0 < biased < 1
    assert af.bounds.rank(16, 16, 1, bias=0.3).lower == 0.0


def test_energies_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bounds", "energies", "--dim", "16", "--rank", "4", "--degrees", "3", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [r["degree"] for r in record["rows"]] == [1, 3, 5]
    assert [r["seen"] for r in record["rows"]] == [af.bounds.seen_harmonics(16, 4, k) for k in (1, 3, 5)]
    assert [r["harmonics"] for r in record["rows"]] == [af.bounds.harmonics(16, k) for k in (1, 3, 5)]
    assert abs(sum(r["energy"] for r in record["rows"]) + record["rest"] - 1) <= 1e-12
    assert main(["bounds", "energies", "--dim", "4096", "--bias", "0.01", "--degrees", "400"]) == 0
    assert "all other degrees" in capsys.readouterr().out
    assert main(["bounds", "energies", "--dim", "1"]) == 2 and main(["bounds", "energies", "--dim", "9999"]) == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"dim": 1},
        {"dim": 5000},
        {"dim": 8.5},
        {"rank": 0},
        {"heads": -1},
        {"heads": True},
        {"eps": 0.0},
        {"eps": float("nan")},
        {"setting": "layers"},
        {"bias": 0.2, "setting": "layer-any-v"},
        {"attends_self": True},
        {"dim": 2, "setting": "layer-any-v"},
        {"bias": 1.0},
    ],
)
def test_bad_requests(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        af.bounds.rank(**{"dim": 8, "rank": 2, "heads": 4, **bad})  # type: ignore[arg-type]


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    words = ["bounds", "rank", "--dim", "64", "--rank", "8", "--heads", "16", "--eps", "0.1"]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    expected = af.bounds.rank(dim=64, rank=8, heads=16, eps=0.1)
    assert record["lower"] == expected.lower and record["upper"] == expected.upper
    assert record["heads_needed"] == expected.heads_needed and record["setting"] == "scalar"
    assert record["hypotheses"] and "2407.16153" in record["source"] and record["published"]
    picture = f"{tmp_path}/map.png"
    assert main(words) == 0
    assert "2.36e12" in capsys.readouterr().out
    assert main(["bounds", "rank", "--dim", "8", "--rank", "2", "--heads", "16", "--png", picture]) == 0
    capsys.readouterr()
    with open(picture, "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    assert main(["bounds", "rank", "--dim", "64", "--rank", "0", "--heads", "16"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["bounds", "rank", "--dim", "4096", "--rank", "8", "--heads", "16", "--eps", "1e-4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["heads_needed_log10"] > 4000


@pytest.mark.parametrize("asked", [{"setting": "layer-scalar-v", "attends_self": True}, {"setting": "layer-any-v"}])
def test_a_rank_of_values_is_for_any_values_that_attend_to_the_query(asked: dict[str, Any]) -> None:
    """Values c I have full rank: fewer would give a bound above what such a layer is held to."""
    full = af.bounds.rank(8, 1, 1, setting="layer-any-v", attends_self=True).lower
    assert full < af.bounds.rank(8, 1, 1, setting="layer-any-v", attends_self=True, value_rank=1).lower
    with pytest.raises(InvalidRequest, match="value_rank"):
        af.bounds.rank(8, 1, 1, value_rank=1, **asked)
