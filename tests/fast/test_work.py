"""What a point costs, in counted work: seconds are never asserted."""

from __future__ import annotations

import numpy as np
import pytest

import attnfun as af
from attnfun import fast
from attnfun.errors import InvalidRequest
from attnfun.language import inputs
from network.networks import partition

WAVES = "sin(3*x)+cos(2*y)*exp(x*y)"
SQUARE = {"x": (-1, 1), "y": (-1, 1)}


@pytest.mark.parametrize(
    ("target", "domain"),
    [("sin(3*x)", {"x": (-1, 1)}), (WAVES, SQUARE), ("sin(x)*cos(y+z)", {n: (-1, 1) for n in "xyz"})],
)
def test_a_bernstein_head_costs_an_exp_per_axis_at_most(target: str, domain: dict[str, tuple[float, float]]) -> None:
    net = af.compile(target, domain, eps=1e-3, method="bernstein")
    work = fast.taped(net.weights).work
    assert work.get("exps", 0) <= len(domain) and work.get("divisions", 0) <= len(domain)
    assert work["flops"] <= 3 * net.cost.keys + 40 * len(domain)


def test_a_composed_network_has_fewer_exps_than_half_its_keys() -> None:
    net = af.compile(WAVES, SQUARE, eps=1e-6, method="compose")
    assert fast.taped(net.weights).work.get("exps", 0) <= net.cost.keys / 2


def test_a_partition_looks_at_a_window_however_many_cells_it_has() -> None:
    few, many = (fast.taped(partition(side, 2)).work for side in (40, 400))
    assert few == many and few["exps"] <= 2 * 5


def test_a_network_is_taped_once_and_lets_go_of_it() -> None:
    net = af.compile("sin(3*x)", (-1, 1), eps=1e-3)
    assert fast.taped(net.weights) is fast.taped(net.weights)
    before = len(fast._TAPES)
    del net
    import gc

    gc.collect()
    assert len(fast._TAPES) < before


def test_large_calls_are_the_ones_that_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net = af.compile("sin(3*x)", (-1, 1), eps=1e-3)
    seen: list[int] = []
    plain = fast.play
    monkeypatch.setattr(fast, "play", lambda network, tape, X, threads: seen.append(len(X)) or plain(network, tape, X))
    for count in (1, fast.WORTH // net.cost.keys - 1, -(-fast.WORTH // net.cost.keys)):
        net(np.zeros(count))
    assert seen == [-(-fast.WORTH // net.cost.keys)]


def test_a_call_is_matched_to_its_target_once_and_a_wrong_one_is_refused_every_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = af.compile("sin(3*x)", (-1, 1), eps=1e-3)
    assert net(0.1) == net(x=0.1)
    looked: list[object] = []
    plain = inputs.signature
    monkeypatch.setattr(inputs, "signature", lambda takes: looked.append(takes) or plain(takes))
    for x in (0.2, 0.3):
        assert net(x) == net(x=x)
    assert not looked
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="there is no input y"):
            net(y=0.1)
