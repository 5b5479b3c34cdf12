"""Pairs and triples: accuracy and margin at every size, adversarial tokens, the limits of the dtypes, forgeries."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from numpy.typing import NDArray

import attnfun as af
from attnfun.certify.view import Undecided
from attnfun.cli import main
from attnfun.errors import DamagedFile, Infeasible, InvalidRequest
from attnfun.kinds.matching.build_pairs import gap, least_scale, match2
from attnfun.kinds.matching.encoding import encode2
from attnfun.kinds.matching.prove import prove_by_matching
from attnfun.kinds.matching.target import Matches
from attnfun.kinds.matching.view import Matching
from attnfun.language import precision
from attnfun.language.circle import circle
from attnfun.network import TokenHead, TokenLayer, TokenNetwork
from products import few

PAIRS = [(8, 17), (32, 101), (32, 1009), (64, 10007)]
ODD = [(1, 2), (4, 2), (5, 3), (6, 4), (7, 10), (3, 10**7)]


def adversarial(N: int, M: int, seed: int = 0) -> NDArray[np.int64]:
    """Random tokens; sums at ±1 of 0 (none, or exactly one, at 0); all equal; duplicates; zeros and halves."""
    random = np.random.default_rng(seed)
    x = random.integers(0, M, 24)
    near = np.stack([x, *((-x + (1 if j % 2 else -1)) % M for j in range(1, N))], axis=1)
    one = near.copy()
    one[:, -1] = -x % M
    triples = near.copy()
    triples[:, 1:] = np.where(np.arange(1, N) % 2, x[:, None] // 2 + 1, -x[:, None] - x[:, None] // 2) % M
    equal = np.repeat(x[:, None], N, axis=1)
    doubled = np.repeat(random.integers(0, M, (8, (N + 1) // 2)), 2, axis=1)[:, :N]
    special = random.choice([0, M // 2, (M + 1) // 2, 1, M - 1], (40, N))
    return np.concatenate([random.integers(0, M, (24, N)), near, one, triples, equal, doubled, special])


def assert_right(made: Matching, x: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    truth = made.exact(x)
    assert (out[truth] >= made.bound.match).all()
    assert (out[~truth] <= made.bound.other).all()
    assert truth.any()


@pytest.mark.parametrize("self_allowed", [True, False])
@pytest.mark.parametrize(("N", "M"), PAIRS + ODD)
def test_every_output_is_on_its_side_of_the_proved_bounds(N: int, M: int, self_allowed: bool) -> None:
    made = af.matching(N, M, self_allowed=self_allowed)
    assert made.margin >= 0.3 and made.cost.layers == 1 and made.cost.rank <= 4
    x = adversarial(N, M) if N > 1 else np.arange(M)[:, None]
    out = made(x)
    truth = made.exact(x)
    assert (out[truth] >= made.bound.match).all() and (out[~truth] <= made.bound.other).all()
    if not (N == 1 and not self_allowed):
        assert truth.any()
    assert np.array_equal(made.decide(x), truth)


@pytest.mark.parametrize(("N", "M"), few([(8, 17), (32, 101), (4, 2), (12, 10007), (32, 1009), (3, 3)], 4))
def test_triples_by_pair_tokens_and_by_the_trilinear_form(N: int, M: int) -> None:
    made = af.matching(N, M, 3)
    assert made.margin >= 0.3 and made.trilinear is not None
    x = adversarial(N, M)[:: 8 if N == 32 else 2]
    assert_right(made, x, made(x))
    third = made.third_order(x)
    truth = made.exact(x)
    assert (third[truth] >= made.trilinear.match).all() and (third[~truth] <= made.trilinear.other).all()


def test_the_rank_is_two_between_tokens_and_one_more_for_the_null_token() -> None:
    made = af.matching(8, 17)
    head = made.network.heads[0]
    tokens = [0, 1]  # cos, sin
    assert np.linalg.matrix_rank((head.query @ head.key.T)[np.ix_(tokens, tokens)]) == 2
    assert made.cost.rank == 3 and made.cost.heads == 1 and made.cost.keys == 1


def test_the_proof_agrees_with_the_theorem() -> None:
    for N, M in PAIRS:
        made = af.matching(N, M)
        assert made.bound.scale == least_scale(N, M) >= 2 / gap(M) * np.log(4 * N)
        assert made.bound.match >= 4 * N / (4 * N + 1) * (1 - 1e-9) and made.bound.other <= 0.2


def test_encodings_are_within_their_hypothesis() -> None:
    random = np.random.default_rng(3)
    for dtype, u in (("float64", 2.0**-53), ("float32", 2.0**-24)):
        for M in (4, 7, 10007, 10**8 + 7):
            x = np.concatenate([random.integers(0, M, 50), [0, 1, M - 1, M // 4, M // 2]])
            for values, function in zip(circle(x, M, dtype), (arb.cos_pi_fmpq, arb.sin_pi_fmpq), strict=True):
                for k, v in zip(x.tolist(), values.tolist(), strict=True):
                    with precision(200):
                        true = function(fmpq(2 * k, M))
                        assert abs(true - v) <= 1.011 * u * abs(true) or (true == 0 and v == 0)
                    assert float(np.dtype(dtype).type(v)) == v


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_largest_modulus_of_a_dtype_holds_and_rounding_does_break_later(dtype: str) -> None:
    with pytest.raises(Infeasible) as refused:
        af.matching(8, 10**12, dtype=dtype)
    assert refused.value.nearest is not None
    largest = refused.value.nearest["modulus"]
    made = af.matching(8, largest, dtype=dtype)
    x = adversarial(8, largest)
    assert_right(made, x, made(x))
    later = 4 * largest  # no temperature helps there: a sum of 1 has the logit of a sum of 0
    x = adversarial(8, later)
    truth = Matches(8, later).exact(x) > 0.5
    for scale in (least_scale(8, later) * 2.0**k for k in range(4)):
        out = match2(later, scale, dtype=dtype).run(encode2(x, later, dtype=dtype))[..., 0]
        assert not np.array_equal(out > 0.5, truth)


def test_fewer_tokens_and_any_whole_numbers_do() -> None:
    made = af.matching(32, 101)
    assert made.decide([3, -3, 206]).tolist() == [True, True, False]
    assert made.decide(np.array([[98, 3]], dtype=np.uint8)).all()
    assert af.matching(4, 10, self_allowed=False).decide([0, 5, 5, 1]).tolist() == [False, True, True, False]
    assert af.matching(4, 10).decide([0, 5, 5, 1]).tolist() == [True, True, True, False]


@pytest.mark.parametrize(("order", "self_allowed"), [(2, True), (2, False), (3, True)])
def test_torch_runs_the_same_network(order: int, self_allowed: bool) -> None:
    torch = pytest.importorskip("torch")
    for M, dtype in ((101, "float64"), (1009, "float64"), (101, "float32")):
        made = af.matching(8, M, order, self_allowed=self_allowed, dtype=dtype)
        x = adversarial(8, M)
        with torch.no_grad():
            out = made.to_torch()(torch.tensor(made.encode(x)))[:, :8, 0].numpy().astype(np.float64)
        assert_right(made, x, out)


@pytest.mark.parametrize(("order", "self_allowed"), [(2, True), (2, False), (3, True)])
def test_a_spoilt_entry_is_never_proved(order: int, self_allowed: bool) -> None:
    """Every entry of every matrix, moved by a little or set: declined, or proved with numbers that still hold."""
    made = af.matching(4, 17, order, self_allowed=self_allowed)
    x = adversarial(4, 17)
    truth = made.exact(x)
    proved = 0
    for part in ("query", "key", "value", "output"):
        for place, head in enumerate(made.network.heads):
            for at in np.ndindex(head.arrays[part].shape):
                for change in (1e-9, 1.0, -3.0):
                    changed = head.arrays[part].copy()
                    changed[at] += change
                    heads = list(made.network.heads)
                    heads[place] = TokenHead(head.name, **{**head.arrays, part: changed})
                    network = replace(made.network, layers=(TokenLayer(tuple(heads)),))
                    try:
                        bound = prove_by_matching(network, 4, 17, order, self_allowed=self_allowed)
                    except Undecided:
                        continue
                    proved += 1
                    out = network.run(made.encode(x))[:, :4, 0]
                    assert (out[truth] >= bound.match).all() and (out[~truth] <= bound.other).all()
    assert proved  # moving b, or the heights of the second head, is allowed and counted


def test_logits_that_overflow_are_not_proved() -> None:
    made = af.matching(3, 6, self_allowed=False)
    first, second = made.network.heads
    key, at = first.key.copy(), made.network.coordinates.index
    key[at("cos"), 0], key[at("sin"), 1], key[at("null"), 2] = 2.0**988, -(2.0**988), 0.9 * 2.0**988
    for lift, proved in ((2.0**990, True), (np.finfo(np.float64).max, False)):
        key[at("null"), 3] = lift
        layer = TokenLayer((TokenHead(first.name, **{**first.arrays, "key": key}), second))
        network = replace(made.network, layers=(layer,))
        with np.errstate(all="ignore"):
            assert np.isfinite(network.run(made.encode([0, 3, 1]))).all() == proved
        if proved:
            assert prove_by_matching(network, 3, 6, 2, self_allowed=False).margin > 0
        else:
            with pytest.raises(Undecided):
                prove_by_matching(network, 3, 6, 2, self_allowed=False)


def test_other_networks_are_not_proved() -> None:
    made = af.matching(4, 17)
    carried = replace(made.network, layers=(replace(made.network.layers[0], carry=np.eye(5)),))
    renamed = replace(made.network, coordinates=("sin", "cos", "one", "null", "found"))
    double: TokenNetwork = replace(made.network, layers=made.network.layers * 2)
    scaled = replace(made.network, readout=2 * made.network.readout)
    null = replace(made.network, constants=np.zeros((1, 5)))
    for network in (carried, renamed, double, scaled, null):
        with pytest.raises(Undecided):
            prove_by_matching(network, 4, 17, 2)
    assert prove_by_matching(made.network, 4, 1009, 2).margin < 0  # another modulus: nothing is claimed


def test_files_are_proved_anew(tmp_path: Path) -> None:
    for order, self_allowed in ((2, True), (2, False), (3, True)):
        made = af.matching(8, 101, order, self_allowed=self_allowed)
        path = tmp_path / "match.safetensors"
        made.save(path)
        again = af.load(path)
        assert isinstance(again, Matching) and again.record() == made.record() | {"status": "stored"}
        found = af.verify(path)
        assert found == made.certificate and found.error[1] <= 0.2
        assert found.error[1] == pytest.approx(0.5 - made.margin, abs=1e-15)
        x = adversarial(8, 101)
        assert np.array_equal(again(x), made(x))
    replace(made, target=replace(made.target, modulus=10**6)).save(path)
    assert af.verify(path).status == "undecided"
    replace(made, target=replace(made.target, order=2)).save(path)
    with pytest.raises(DamagedFile):
        af.load(path)


def test_files_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "match.safetensors")
    made = af.matching(8, 101)
    made.save(path)
    assert main(["verify", path]) == 0 and main(["show", path]) == 0
    assert "match at least" in capsys.readouterr().out
    assert main(["show", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["margin"] == made.margin
    assert main(["eval", path, "--at", "x=1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"tokens": 0},
        {"tokens": True},
        {"modulus": 1},
        {"modulus": 2.5},
        {"order": 4},
        {"order": 3, "self_allowed": False},
        {"dtype": "float16"},
    ],
)
def test_bad_requests(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        af.matching(**{"tokens": 8, "modulus": 17, **bad})  # type: ignore[arg-type]


def test_too_much_is_refused() -> None:
    with pytest.raises(Infeasible):
        af.matching(10**6, 17)
    with pytest.raises(Infeasible):
        af.matching(1000, 17, 3)
    made = af.matching(4, 17)
    for x in ([0.5, 1.0], [[[1]]], [1, 2, 3, 4, 5], []):
        with pytest.raises(InvalidRequest):
            made(x)
    with pytest.raises(InvalidRequest):
        made.third_order([1, 2])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64])
def test_whole_numbers_of_any_width(dtype: Any) -> None:
    """A modulus may be larger than what the type of the tokens holds."""
    made = af.matching(4, 40_009)
    numbers = np.array([1, 0, 100, 7], dtype=dtype)
    assert np.array_equal(made.decide(numbers), made.exact(numbers.astype(np.int64)))
