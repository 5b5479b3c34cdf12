"""Sparse averages: within their bound for every set, margins as computed, thin heads against fat ones, refusals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.kinds.average.build import curve_keys
from attnfun.kinds.average.prove import prove_by_sparse_average
from attnfun.kinds.average.target import rule_of_thumb
from attnfun.kinds.average.weights import Coded, curve_query, encode_average, sparse_average_network
from attnfun.network import TokenLayer

CASES: list[dict[str, Any]] = [
    {"tokens": 64, "q": 4, "subsets": 100},
    {"tokens": 64, "q": 4, "subsets": 100, "width": 133, "eps": 1e-6},
    {"tokens": 256, "q": 8, "subsets": 50, "heads": 2, "width": 120},
    {"tokens": 32, "q": 4, "subsets": 100, "keys": "curve"},
    {"tokens": 16, "q": 2, "keys": "curve", "dim": 3},
    {"tokens": 64, "q": 8, "subsets": 60, "keys": "curve", "heads": 8},
    {"tokens": 12, "q": 11, "width": 300},
    {"tokens": 2, "q": 1, "keys": "curve", "z_range": (5, 9)},
]


@pytest.mark.parametrize("case", CASES)
def test_averages_are_within_the_proved_error(case: dict[str, Any]) -> None:
    made = af.sparse_average(**case)
    assert made.bound.error <= made.eps
    random = np.random.default_rng(1)
    low, high = made.z_range
    for start in range(0, len(made.subsets), made.tokens):
        sets = [made.subsets[(start + i) % len(made.subsets)] for i in range(made.tokens)]
        for z in (
            random.uniform(low, high, (made.tokens, made.dim)),
            np.where(random.random((made.tokens, made.dim)) < 0.5, low, high),
            np.repeat(np.where(np.isin(np.arange(made.tokens), sets[0]), low, high)[:, None], made.dim, axis=1),
        ):
            assert np.abs(made(z, sets) - made.exact(z, sets)).max() <= made.bound.error


def test_the_margin_of_random_signs_is_that_of_their_scores() -> None:
    made = af.sparse_average(64, 4, subsets=100, width=133)
    worst = -np.inf
    for s in made.subsets:
        w = np.linalg.pinv(made.codes[list(s)]) @ np.ones(4)
        worst = max(worst, float(np.delete(made.codes @ w, list(s)).max()))
    assert made.bound.margin == pytest.approx(1 - worst, abs=1e-9)
    assert rule_of_thumb(64, 4) == 67


def test_the_curve_separates_every_set_and_its_margin_collapses() -> None:
    margins = []
    for N in (8, 12, 16):
        keys = curve_keys(N, 2)
        worst = min(
            1 - float(np.delete(keys @ curve_query(N, np.array(s)), s).max())
            for s in itertools.combinations(range(N), 2)
        )
        margins.append(worst)
    assert margins[0] > margins[1] > margins[2] > 0
    fat, thin = af.sparse_average(16, 2, keys="curve"), af.sparse_average(16, 2, keys="curve", heads=2)
    assert fat.width * fat.heads == thin.width * thin.heads == 4
    assert thin.bound.margin > fat.bound.margin and thin.bits < fat.bits


def test_sets_that_were_not_given_are_proved_when_they_are_encoded() -> None:
    made = af.sparse_average(16, 2, subsets=[(0, 8)], keys="curve", eps=1e-3)
    z = np.linspace(-1, 1, 16)
    with pytest.raises(Infeasible):
        made(z, [(0, 1)] * 16)  # neighbours: a far smaller margin than the one set was made for
    good = [(i % 8, i % 8 + 8) for i in range(16)]
    assert np.abs(made(z, good) - made.exact(z, good)).max() <= made.eps


def test_too_few_coordinates_are_refused_with_a_width_that_does() -> None:
    with pytest.raises(Infeasible) as refused:
        af.sparse_average(1024, 8, subsets=50, width=60)
    assert refused.value.nearest is not None
    assert af.sparse_average(1024, 8, subsets=50, **refused.value.nearest).bound.margin > 0
    with pytest.raises(Infeasible):
        af.sparse_average(512, 16, subsets=[range(16)], keys="curve")


def test_spoilt_networks_and_queries_are_not_proved() -> None:
    made = af.sparse_average(16, 2, keys="curve")
    queries = np.array([[curve_query(16, np.array(s))] for s in made.subsets])
    proved = prove_by_sparse_average(made.network, made.codes, queries, made.subsets, made.z_range)
    assert proved == made.bound
    swapped = made.subsets[1:] + made.subsets[:1]
    for spoilt in (np.full_like(queries, np.nan), 0 * queries, -queries, queries[:, :, ::-1]):
        with pytest.raises(Undecided):
            prove_by_sparse_average(made.network, made.codes, spoilt, made.subsets, made.z_range)
    with pytest.raises(Undecided):
        prove_by_sparse_average(made.network, made.codes, queries, swapped, made.z_range)
    for other in (sparse_average_network(4, 2, 64.0, 2), sparse_average_network(4, 1, 63.0), af.matching(4, 5).network):
        with pytest.raises(Undecided):
            prove_by_sparse_average(other, made.codes, queries, made.subsets, made.z_range)
    nudged = queries + 1e-4 * np.random.default_rng(0).normal(size=queries.shape)
    loose = prove_by_sparse_average(made.network, made.codes, nudged, made.subsets, made.z_range)
    z = np.sign(np.random.default_rng(1).normal(size=(16, 1)))
    out = made.network.run(encode_average(made.codes, nudged[:16], z))
    assert proved.error < np.abs(out - made.exact(z, made.subsets[:16])).max() <= loose.error


def test_what_may_overflow_is_not_proved() -> None:
    made = af.sparse_average(16, 2, keys="curve")
    queries = np.array([[curve_query(16, np.array(s))] for s in made.subsets])
    single = [(name, array.astype(np.float32)) for name, array in made.network.heads[0].arrays.items()]
    head = replace(made.network.heads[0], **dict(single))
    short = replace(
        made.network,
        layers=(TokenLayer((head,)),),
        constants=made.network.constants.astype(np.float32),
        readout=made.network.readout.astype(np.float32),
        dtype="float32",
    )
    sharp = sparse_average_network(4, 1, 2.0**1020)
    for network, ends in ((short, (-1e50, 1e50)), (sharp, made.z_range), (made.network, (-1e308, 0.0))):
        with pytest.raises(Undecided):
            prove_by_sparse_average(network, made.codes, queries, made.subsets, ends)


def test_files_are_proved_anew_with_their_codes(tmp_path: Path) -> None:
    """What is stored is all that is read: other codes, sets or ranges are proved or not for what they are."""
    path = tmp_path / "mean.safetensors"
    z = np.random.default_rng(0).uniform(-1, 1, (16, 1))
    random = {"width": 40, "seed": 5, "subsets": 30}
    for options in ({"keys": "curve"}, random, {"q": 4, "heads": 2, "width": 60, "subsets": 20}):
        made = af.sparse_average(16, **{"q": 2, **options})
        made.save(path)
        again = af.load(path)
        sets = [made.subsets[k % len(made.subsets)] for k in range(16)]
        assert np.array_equal(again.codes, made.codes) and np.array_equal(again(z, sets), made(z, sets))
        assert again.record() == made.record() | {"status": "stored"} and af.verify(path) == made.certificate
    signs = np.where(np.arange(made.codes.size).reshape(made.codes.shape) % 2, 1.0, -1.0)  # all positions alike
    replace(made, weights=Coded(made.network, signs)).save(path)
    assert af.verify(path).status == "undecided"
    replace(made, target=replace(made.target, z_range=(-1e6, 1e6))).save(path)
    assert af.verify(path).status == "undecided" and af.verify(path, eps=1e6).status == "proved"
    replace(made, weights=Coded(made.network, made.codes[1:])).save(path)
    with pytest.raises(af.DamagedFile):
        af.load(path)


def test_torch_and_record() -> None:
    torch = pytest.importorskip("torch")
    made = af.sparse_average(32, 4, subsets=32, heads=2, width=60)
    z = np.random.default_rng(0).uniform(-1, 1, 32)
    with torch.no_grad():
        out = made.to_torch()(torch.tensor(made.encode(z, made.subsets))).numpy()
    assert np.abs(out - made.exact(z, made.subsets)).max() <= made.bound.error
    record = made.record()
    assert record["dimension"] == 60 and record["heads"] == 2 and record["error"] <= record["eps"]
    assert record["published"][0]["source"].endswith("2306.02896")


@pytest.mark.parametrize(
    "bad",
    [
        {"q": 16},
        {"q": 0},
        {"keys": "signs"},
        {"eps": 0},
        {"eps": float("nan")},
        {"heads": 3},
        {"subsets": [(0, 0)]},
        {"subsets": [(0, 16)]},
        {"subsets": [(0, 1, 2)]},
        {"subsets": "ab"},
        {"subsets": [0.5]},
        {"subsets": 0},
        {"z_range": (1, -1)},
        {"z_range": (0, float("inf"))},
        {"keys": "curve", "width": 7},
        {"tokens": 1000, "q": 4},
    ],
)
def test_bad_requests(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        af.sparse_average(**{"tokens": 16, "q": 2, **bad})


def test_bad_inputs() -> None:
    made = af.sparse_average(8, 2, width=60)
    sets = [(0, 1)] * 8
    for z, named in (
        (np.zeros(7), sets),
        (np.full(8, np.nan), sets),
        (np.full(8, 1.5), sets),
        (np.zeros(8), sets[:7]),
        (np.zeros(8), [(0, 8)] * 8),
    ):
        with pytest.raises(InvalidRequest):
            made(z, named)


@pytest.mark.parametrize("named", [(0, -8), (-8,), (8,), ()])
def test_sets_of_positions_that_are_not_there_prove_nothing(named: tuple[int, ...]) -> None:
    """-8 is position 0 again for an array of 8: two names of one position would halve what leaks."""
    codes = curve_keys(8, 1)
    query = np.array([[curve_query(8, np.array([0]))]])
    network = sparse_average_network(codes.shape[1], 1, 64.0)
    assert prove_by_sparse_average(network, codes, query, ((0,),), (-1.0, 1.0)).error < 0.1
    with pytest.raises(Undecided):
        prove_by_sparse_average(network, codes, query, (named,), (-1.0, 1.0))


def test_a_range_upside_down_proves_nothing() -> None:
    codes = curve_keys(8, 2)
    query = np.array([[curve_query(8, np.array([0, 1]))]])
    network = sparse_average_network(codes.shape[1], 1, 64.0)
    for ends in ((1.0, -1.0), (float("nan"), 1.0)):
        with pytest.raises(Undecided):
            prove_by_sparse_average(network, codes, query, ((0, 1),), ends)
