"""Lexicographic grids: the limits of every format by its own arithmetic, and networks that pick the best key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.kinds.lexicographic.prove import proof
from attnfun.kinds.lexicographic.target import BestKey
from attnfun.limits.grids import BITS, grid_limits, tied_pair, utility


def grid(levels: int, coordinates: int, start: int = 0, stop: int | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Keys number start to stop, worst first; all of them unless told."""
    numbers = np.arange(start, levels**coordinates if stop is None else stop)
    return np.stack(np.unravel_index(numbers, (levels,) * coordinates), axis=1)


def rises_by_one(levels: int, coordinates: int, dtype: str, centred: bool = False) -> bool:
    """Is u of neighbours 1 apart? Of all of them, or of both ends, the middle and random places of a large grid."""
    total = levels**coordinates
    ranges = [(0, total)]
    if total > 20_000:
        starts = [0, total // 2 - 5000, total - 10_000, *np.random.default_rng(0).integers(0, total - 10_000, 5)]
        ranges = [(int(s), int(s) + 10_000) for s in starts]
    steps = (np.diff(utility(grid(levels, coordinates, *r), levels, dtype, centred).astype(np.float64)) for r in ranges)
    return all(bool((step == 1).all()) for step in steps)


@pytest.mark.parametrize(("dtype", "largest"), [("bfloat16", 16), ("float16", 45), ("float32", 4096)])
def test_the_largest_square_is_exact_and_the_next_is_not(dtype: str, largest: int) -> None:
    assert grid_limits(dtype).one_number == largest
    assert rises_by_one(largest, 2, dtype)
    assert not rises_by_one(largest + 1, 2, dtype)


def test_the_largest_square_of_float64() -> None:
    P = grid_limits("float64").one_number
    assert P * P <= 2**53 < (P + 1) ** 2 and 9.4e7 < P < 9.5e7
    top = [(P - 1, P - 2), (P - 1, P - 1)]
    assert np.diff(utility(top, P, "float64")) == 1 and utility(top, P, "float64")[1] == P * P - 1


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("coordinates", [2, 3, 4, 7])
def test_beyond_the_limit_two_keys_tie(dtype: str, coordinates: int) -> None:
    P = grid_limits(dtype, coordinates).one_number
    assert tied_pair(P, coordinates, dtype) is None
    for levels in (P + 1, P + 2, 3 * P, 2 ** BITS[dtype], 2 ** BITS[dtype] + 1):
        pair = tied_pair(levels, coordinates, dtype)
        assert pair is not None and pair[0] > pair[1] and max(max(pair)) < levels
        u = utility(pair, levels, dtype)
        assert u[0] == u[1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("coordinates", [2, 3, 4])
def test_the_sign_is_one_bit_more(dtype: str, coordinates: int) -> None:
    limits = grid_limits(dtype, coordinates)
    P = limits.centred
    assert limits.one_number <= P and P**coordinates <= 2 ** (limits.bits + 1) + 1 < (P + 1) ** coordinates
    assert rises_by_one(P, coordinates, dtype, centred=True)


def test_the_formats_agree_with_torch() -> None:
    torch = pytest.importorskip("torch")
    for dtype in ("bfloat16", "float16", "float32"):
        kind = getattr(torch, dtype)
        for P in (16, 17, 45, 46, 90):
            keys = torch.tensor(grid(P, 2))
            x = keys.to(kind)
            theirs = (x[:, 0] * torch.tensor(P, dtype=kind) + x[:, 1]).double().numpy()
            assert np.array_equal(utility(keys.numpy(), P, dtype).astype(np.float64), theirs)


def test_the_gap_is_the_best_of_all_utilities() -> None:
    limits = grid_limits("float64", 3, 7)
    u = utility(grid(7, 3), 7, "float64")
    assert limits.gap == pytest.approx(np.diff(u).min() / (u[-1] - u[0]), rel=1e-15)


# ---------------------------------------------------------------- networks


def hard_keys(P: int, k: int, n: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Distinct keys that share leading coordinates with the best, are one level below it, and anything afterwards."""
    best = rng.integers(max(0, P - 3), P, k)
    keys = np.tile(best, (n, 1))
    for row in keys:
        cut = rng.integers(0, k)
        row[cut] = max(0, row[cut] - rng.integers(0, 2))
        row[cut + 1 :] = rng.choice([0, P - 1, int(rng.integers(0, P))], k - cut - 1)
    keys = np.unique(np.concatenate([keys, rng.integers(0, P, (3, k))]), axis=0)
    return rng.permutation(keys)


EXACT = [
    ("float32", 2, "one head", 4096),
    ("float32", 3, "one head", 256),
    ("float64", 2, "one head", 94_906_265),
    ("float32", 1, "cascade", 100),
    ("float32", 2, "cascade", 2),
    ("float32", 2, "cascade", 100_000),
    ("float32", 2, "cascade", 2**23),
    ("float32", 5, "cascade", 2**23 - 1),
    ("float64", 3, "cascade", 2**52),
]


@pytest.mark.parametrize(("dtype", "coordinates", "method", "levels"), EXACT)
def test_the_best_key_is_copied_exactly_here_and_in_torch(
    dtype: str, coordinates: int, method: str, levels: int
) -> None:
    torch = pytest.importorskip("torch")
    head = af.lexicographic(levels, coordinates, dtype=dtype, method=method)
    module = head.to_torch()
    rng = np.random.default_rng(levels)
    for _ in range(60):
        keys = hard_keys(levels, coordinates, int(rng.integers(1, 40)), rng)
        best = np.array(max(map(tuple, keys)), dtype=np.float64)
        assert np.array_equal(head(keys), best)
        assert np.array_equal(head.network.run(head.tokens(keys)), np.tile(best, (len(keys), 1)))
        assert np.array_equal(module(torch.tensor(head.tokens(keys))).double().numpy(), np.tile(best, (len(keys), 1)))


def test_one_head_fails_in_float32_where_the_cascade_does_not() -> None:
    """The network for P = 100,000, made in float64 and run in float32 by torch."""
    torch = pytest.importorskip("torch")
    P, rng = 100_000, np.random.default_rng(0)
    one = af.lexicographic(P, 2, dtype="float64", method="one head")
    cascade = af.lexicographic(P, 2, dtype="float32")
    assert cascade.method == "cascade"
    wrong = 0
    for _ in range(30):
        x1, x2 = int(rng.integers(1, P)), int(rng.integers(1, P - 1))
        keys = np.array([[x1, x2], [x1, x2 + 1], [x1 - 1, P - 1]])
        seen = one.to_torch("float32")(torch.tensor(one.tokens(keys)))[0].double().numpy()
        wrong += not np.array_equal(seen, keys[1])
        assert np.array_equal(cascade(keys), keys[1])
    assert wrong > 20


@pytest.mark.parametrize(("method", "levels"), [("one head", 50), ("cascade", 100_000)])
def test_equal_best_keys_and_one_key(method: str, levels: int) -> None:
    head = af.lexicographic(levels, 2, method=method)
    keys = np.array([[levels - 1, 7]] * 5 + [[levels - 1, 6], [0, levels - 1]])
    assert np.allclose(head(keys), [levels - 1, 7], rtol=7 * 2.0**-24, atol=0)
    assert np.array_equal(head([[3, 4]]), [3, 4])


def test_the_winner_weight_is_below_the_true_one() -> None:
    """The weight of the last head at temperatures low enough to see it, in float64."""
    from attnfun.kinds.lexicographic import pattern as heads
    from attnfun.kinds.lexicographic.prove import winner_weight

    for betas in heads.BETA.values():
        for single in (True, False):
            for n in (1, 2, 1000):
                weight = winner_weight(4000, 2, betas[not single], n, single)
                assert 0.999 < weight <= 1 and (weight < 1) == (n > 1)
    head = af.lexicographic(10**5, 2)
    assert head.winner_weight(1000) <= head.winner_weight(2)
    soft = {"float64": (6.0, 28.0)}
    keys = np.array([[2, 1], [2, 0], [1, 2], [0, 2]])
    kept = dict(heads.BETA)
    try:
        heads.BETA.update(soft)
        for single, build in ((True, heads.one_head), (False, heads.cascade)):
            network = build(3, 2, "float64")
            stream = network.stream(BestKey(3, 2).encode(network, keys)[0][0])[-2]
            last = network.layers[-1].heads[0]
            logits = (stream @ last.query) @ (stream @ last.key).T
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            bound = winner_weight(3, 2, soft["float64"][not single], 4, single)
            assert 0.5 < bound <= weights[: len(keys), 0].min() < 1
    finally:
        heads.BETA.update(kept)


# ---------------------------------------------------------------- the prover


@pytest.mark.parametrize(
    ("levels", "coordinates", "method"),
    [(3, 2, "one head"), (3, 1, "cascade"), (3, 3, "cascade"), (100_000, 2, "cascade")],
)
def test_a_file_is_proved_exact_from_its_entries_and_no_other_entry_is(
    levels: int, coordinates: int, method: str, tmp_path: Path
) -> None:
    head, path = af.lexicographic(levels, coordinates, method=method), tmp_path / "l.safetensors"
    head.save(path)
    again = af.load(path)
    assert type(again) is type(head) and again.method == method and again.winner_weight(9) == head.winner_weight(9)
    assert af.verify(path) == head.certificate and head.certificate.error == (0.0, 0.0)
    network, target = head.weights, head.target
    arrays = dict(network.arrays())
    for name, array in arrays.items():
        for at in np.ndindex(array.shape):
            changed = array.copy()
            changed[at] += changed[at] if abs(changed[at]) > 2 else 1.0  # what float32 holds
            found = proof(target, _with(network, name, changed))
            assert found.high == np.inf and found.reason


def _with(network: Any, name: str, array: Any) -> Any:
    """The network with one array in the place of its own."""
    parts = name.split("/")
    if len(parts) == 1:
        return replace(network, **{name: array})
    layers, number = list(network.layers), int(parts[0][5:])
    head = replace(layers[number].heads[0], **{parts[-1]: array}) if len(parts) == 3 else None
    changed: dict[str, Any] = {"carry": array} if head is None else {"heads": (head,)}
    layers[number] = replace(layers[number], **changed)
    return replace(network, layers=tuple(layers))


def test_a_grid_that_the_network_does_not_hold_is_not_proved() -> None:
    """The entries fit; the bits do not."""
    from attnfun.kinds.lexicographic.pattern import cascade, one_head

    assert proof(BestKey(4096, 2), one_head(4096, 2, "float32")).high == 0
    for network, target in (
        (one_head(4097, 2, "float64"), BestKey(4096, 2)),
        (cascade(7, 2, "float32"), BestKey(8, 2)),
        (cascade(2**22, 3, "float32"), BestKey(2**22, 2)),
        (af.matching(4, 5).network, BestKey(5, 1)),
    ):
        assert proof(target, network).high == np.inf
    P = 2**12 + 1  # a head of float32 that cannot tell 2^24 from 2^24 + 1, though it stores its entries exactly
    grid_ = BestKey(P, 2)
    network = one_head(P, 2, "float32")
    assert proof(grid_, network).reason
    best, worse = tied_pair(P, 2, "float32") or ((0,), (0,))
    assert not np.array_equal(grid_.decode(network.run(grid_.encode(network, [best, worse])[0][0]), None), best)


def test_equal_best_keys_are_exact_as_long_as_their_sum_is() -> None:
    for levels, copies in ((4096, 4000), (2**23, 2), (100_000, 167)):
        head = af.lexicographic(levels, 2)
        keys = [[levels - 1, levels - 2]] * copies + [[levels - 1, 0]]
        assert np.array_equal(head(keys), keys[0])
        assert f"{2**24 // (levels - 1):,} times" in head.certificate.hypotheses[2]


@pytest.mark.parametrize(
    ("request_", "nearest"),
    [
        ({"levels": 4097, "method": "one head"}, {"method": "cascade"}),
        ({"levels": 2**23 + 1}, {"dtype": "float64"}),
        ({"levels": 2**53, "dtype": "float64"}, {"levels": 2**52}),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(request_: dict[str, Any], nearest: dict[str, Any]) -> None:
    with pytest.raises(af.Infeasible) as why:
        af.lexicographic(**request_)
    assert why.value.nearest == nearest
    assert af.lexicographic(**(request_ | nearest)).record()["status"] == "proved"


@pytest.mark.parametrize(
    "request_",
    [
        {"levels": 0},
        {"levels": 2.5},
        {"levels": True},
        {"levels": 5, "coordinates": 0},
        {"levels": 5, "dtype": "float16"},
        {"levels": 5, "method": "magic"},
    ],
)
def test_requests_that_are_none(request_: dict[str, Any]) -> None:
    with pytest.raises(af.InvalidRequest):
        af.lexicographic(**request_)


@pytest.mark.parametrize("keys", [[[0, 10]], [[-1, 0]], [[0.5, 0]], [[0]], [], [["a", "b"]], [[np.nan, 0]], 5])
def test_keys_that_are_none(keys: Any) -> None:
    with pytest.raises(af.InvalidRequest):
        af.lexicographic(10, 2)(keys)
