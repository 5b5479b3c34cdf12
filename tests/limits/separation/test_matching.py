"""Triples by bits: the reduction by brute force, the protocol on real layers, the bound's numbers, the command."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.errors import InvalidRequest
from attnfun.kinds.matching.target import matches
from attnfun.limits.separation.disjointness import converse, disjointness_to_triples
from attnfun.limits.separation.matching import average_bits
from attnfun.network import TokenHead, TokenLayer, TokenNetwork


def test_sets_meet_iff_token_0_has_a_triple() -> None:
    for n in range(1, 6):
        for a in itertools.product((0, 1), repeat=n):
            for b in itertools.product((0, 1), repeat=n):
                x, M = disjointness_to_triples(a, b)
                assert len(x) == 2 * n + 1 and 20 * n == M
                assert matches(x, M, 3)[0] == any(p and q for p, q in zip(a, b, strict=True))
    random = np.random.default_rng(0)
    for _ in range(100):
        n = int(random.integers(6, 40))
        a, b = (random.random((2, n)) < 1 / math.sqrt(n)).astype(int)
        x, M = disjointness_to_triples(a, b)
        assert matches(x, M, 3)[0] == bool((a & b).any())


def test_a_network_for_triples_decides_disjointness() -> None:
    made = af.matching(9, 80, 3)
    for a in itertools.product((0, 1), repeat=4):
        x, _ = disjointness_to_triples(a, (1, 0, 1, 0))
        assert made.third_order(x)[0] > 0.8 or not (a[0] or a[2])
        assert made.decide(x)[0] == bool(a[0] or a[2])


def layer(random: np.random.Generator, width: int, heads: int, rank: int) -> TokenNetwork:
    shapes = ((width, 3), (width, 3), (width, rank), (rank, width))
    made = [TokenHead(f"h{h}", *(random.normal(size=s) / math.sqrt(width) for s in shapes)) for h in range(heads)]
    names = tuple(f"c{k}" for k in range(width))
    constants = random.uniform(-1, 1, (2, width))
    return TokenNetwork(names, (TokenLayer(tuple(made)),), constants, np.eye(width), names)


def test_two_parties_put_the_layer_together() -> None:
    random = np.random.default_rng(2)
    network = layer(random, 6, 4, 3)
    errors: dict[int, float] = {}
    for bits in (8, 16, 24, 40):
        for _ in range(20):
            X = random.uniform(-1, 1, (33, 6))
            told = converse(network, X[0], X[1:17], X[17:], bits)
            assert told.bits == 4 * (3 + 2) * bits
            errors[bits] = max(errors.get(bits, 0.0), told.error)
    assert errors[8] > errors[16] > errors[24] > errors[40]
    assert errors[24] <= 1e-6 and errors[40] <= 1e-10


def test_two_parties_run_the_network_that_finds_pairs() -> None:
    """Logits of 8192 cos(...): the ranges are large, and 24 bits still carry the decision."""
    made = af.matching(32, 101)
    random = np.random.default_rng(5)
    for _ in range(20):
        x = random.integers(0, 101, 32)
        tokens = made.encode(x)
        told = converse(made.network, tokens[0], tokens[1:16], tokens[16:], 24)
        assert told.error <= 1e-6 and (told.output[0] > 0.5) == made.exact(x)[0]


def test_what_alice_says_depends_on_her_tokens_alone() -> None:
    from attnfun.limits.separation.disjointness import _message

    random = np.random.default_rng(3)
    head = layer(random, 6, 1, 3).heads[0]
    X = random.uniform(-1, 1, (9, 6))
    one, two = (_message(head, X[0], X[1:5], 12, 1.0) for _ in range(2))
    assert one[:2] == two[:2] and np.array_equal(one[2], two[2])
    steps = (one[2] + np.abs(head.value).sum(axis=0)) / (2 * np.abs(head.value).sum(axis=0)) * (2**12 - 1)
    assert np.abs(steps - np.rint(steps)).max() < 1e-6  # one of 2^12 numbers


@pytest.mark.parametrize(
    ("tokens", "rank", "bits", "needed"),
    [(8192, 1, 8, 171), (8192, 64, 32, 2), (131072, 1, 32, 683), (131072, 64, 32, 32)],
)
def test_heads_needed(tokens: int, rank: int, bits: int, needed: int) -> None:
    found = af.bounds.matching(tokens=tokens, rank=rank, bits=bits, heads=needed - 1)
    assert found.heads_needed == needed == math.ceil(((tokens - 1) // 2) / (bits * (rank + 2)))
    assert found.excluded and not af.bounds.matching(tokens, rank, bits, needed).excluded
    assert (
        found.hypotheses
        and "2306.02896" in found.source
        and found.heads_needed * (rank + 2) * bits >= found.bits_needed
    )


def test_bits_of_the_queries_of_averages() -> None:
    assert average_bits(256, 8) == math.ceil(math.log2(math.comb(256, 8)))
    assert average_bits(5, 5) == 0 and average_bits(2, 1) == 1 and average_bits(4, 1) == 2
    assert average_bits(10**6, 10**3) > 10**4
    with pytest.raises(InvalidRequest):
        average_bits(4, 5)


@pytest.mark.parametrize("bad", [{"tokens": 0}, {"rank": 0}, {"bits": 1.5}, {"heads": -1}])
def test_bad_requests(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        af.bounds.matching(**{"tokens": 8, "rank": 1, "bits": 8, **bad})  # type: ignore[arg-type]


def test_bad_conversations() -> None:
    network = layer(np.random.default_rng(0), 4, 1, 2)
    X = np.zeros((3, 4))
    two_layers = TokenNetwork(
        network.coordinates, network.layers * 2, network.constants, network.readout, network.outputs
    )
    for arguments in (
        (two_layers, X[0], X, X, 8),
        (network, X[0], X, X, 0),
        (network, X[0], X[:0], X, 8),
        (network, X, X, X, 8),
        (network, X[0], X + 2, X, 8),
        (network, X[0], X + np.nan, X, 8),
    ):
        with pytest.raises(InvalidRequest):
            converse(*arguments)
    for a, b in (([1], [1, 0]), ([], []), ([2], [1])):
        with pytest.raises(InvalidRequest):
            disjointness_to_triples(a, b)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bounds", "matching", "--tokens", "8192", "--rank", "1", "--bits", "8"]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["heads_needed"] == 171 and record["excluded"] is None and record["published"]
    assert main([*words, "--heads", "16"]) == 0
    assert "impossible" in capsys.readouterr().out
    assert main(["bounds", "matching", "--tokens", "8192", "--rank", "0", "--bits", "8"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
