"""The bound of stored weights: read from them, true for what they are, and for no other pattern."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify.view import Undecided
from attnfun.kinds.neighbours.measure import measured
from attnfun.kinds.neighbours.prove import proof, read
from attnfun.network import TokenHead, TokenLayer, TokenNetwork
from attnfun.network.claim import Claim
from attnfun.search import Goal, certified
from stored import load, save

PROVED: list[dict[str, Any]] = [
    {"dim": 5, "points": 4, "method": "full_rank"},
    {"dim": 4, "points": 3, "method": "full_rank", "which": "nearest"},
    {"dim": 4, "points": 5, "method": "scores", "which": "nearest"},
    {"dim": 4, "points": 3, "method": "scores"},
    {"dim": 5, "points": 3, "method": "tally"},
    {"dim": 4, "points": 3, "method": "tally", "which": "nearest"},
    {"dim": 4, "points": 2, "method": "biased", "bias": -0.3},
]


@cache
def _made(options: tuple[tuple[str, Any], ...]) -> af.Neighbours:
    return af.neighbours(**dict(options))


def made(**options: Any) -> af.Neighbours:
    """The network of a request, built once."""
    return _made(tuple(sorted(options.items())))


def ids(case: dict[str, Any]) -> str:
    return f"{case['method']}-{case.get('which', '')}{case['points']}"


def with_array(network: TokenNetwork, name: str, array: np.ndarray) -> TokenNetwork:
    """The network with one array changed, by its name."""
    if name in ("constants", "readout"):
        return replace(network, **{name: array})
    at, *rest = name.split("/")
    number = int(at.removeprefix("layer"))
    layer = network.layers[number]
    if rest == ["carry"]:
        layer = TokenLayer(layer.heads, array)
    else:
        place = int(rest[0].removeprefix("head"))
        parts = dict(layer.heads[place].arrays) | {rest[1]: array}
        heads = [*layer.heads[:place], TokenHead("changed", **parts), *layer.heads[place + 1 :]]
        layer = TokenLayer(tuple(heads), layer.carry)
    return replace(network, layers=(*network.layers[:number], layer, *network.layers[number + 1 :]))


@pytest.mark.parametrize("case", PROVED, ids=ids)
@pytest.mark.parametrize("seed", range(2))
def test_the_numbers_of_a_network_are_read_back_and_bound_what_is_measured(case: dict[str, Any], seed: int) -> None:
    beta = float(np.exp(np.random.default_rng(seed).uniform(0.5, 5)))
    beta = 1e-3 * beta if case["method"] == "tally" else beta
    net = af.neighbours(**case, beta=beta)
    found = read(net.target, net.network)
    assert found.pattern == case["method"] and found.numbers["beta"] == beta
    assert net.certificate.status == "bounded" and net.certificate.error == (0.0, found.bound)
    assert net.predicted.proved is not None and found.bound == pytest.approx(net.predicted.proved, rel=1e-6)
    seen = net.measured(4000, seed=seed)
    assert seen.error <= found.bound + 4 * seen.error_se


@pytest.mark.parametrize("case", PROVED, ids=ids)
def test_an_entry_outside_the_pattern_is_never_proved(case: dict[str, Any]) -> None:
    """Entries of every array are changed, zeros among them: another number of the pattern, or no bound at all."""
    rng = np.random.default_rng(3)
    net = made(**case, eps=0.3)
    for name, array in net.network.arrays():
        if not array.size:
            continue
        for _ in range(3):
            changed = np.array(array)
            at = tuple(int(rng.integers(n)) for n in array.shape)
            changed[at] = changed[at] * 1.5 if changed[at] and rng.random() < 0.5 else changed[at] + 0.5
            forged = with_array(net.network, name, changed)
            try:
                found = read(net.target, forged)
            except Undecided:
                continue
            seen = measured(net.target, forged, 1000)
            assert seen.error <= found.bound + 4 * seen.error_se, (name, at)


@pytest.mark.parametrize(
    ("case", "name", "row"),
    [
        (PROVED[1], "layer0/head0/query", "p1"),
        (PROVED[2], "layer1/head0/key", "query"),
        (PROVED[6], "layer0/head0/key", "query"),
    ],
    ids=["nearest", "scores", "biased"],
)
def test_heads_that_see_the_query_are_not_proved(case: dict[str, Any], name: str, row: str) -> None:
    net = af.neighbours(**case, beta=20.0)
    array = dict(net.network.arrays())[name]
    assert isinstance(read(net.target, net.network).bound, float)
    names = net.network.coordinates
    rows = [k for k, label in enumerate(names) if label == row or (row == "p1" and label[0] == "p")]
    weaker = np.array(array)
    weaker[rows] = np.where(array[rows] < 0, -30.0, array[rows])
    forged = with_array(net.network, name, weaker)
    with pytest.raises(Undecided):
        read(net.target, forged)


def test_constant_tokens_carries_and_layers_of_another_kind_are_no_pattern() -> None:
    for case in PROVED:
        net = made(**case, eps=0.3)
        token = np.full((1, net.network.width), 0.25)
        more = replace(net.network, constants=np.concatenate([net.network.constants, token]))
        carry = 0.5 * np.eye(net.network.width)
        last = net.network.layers[-1]
        moved = replace(net.network, layers=(*net.network.layers[:-1], TokenLayer(last.heads, carry)))
        longer = replace(net.network, layers=(*net.network.layers, last))
        for forged in (more, moved, longer):
            with pytest.raises(Undecided):
                read(net.target, forged)


def test_another_target_than_the_one_it_was_built_for_is_not_proved() -> None:
    net = af.neighbours(5, 3, "tally", eps=0.1)
    for target in (
        replace(net.target, which="nearest"),
        replace(net.target, points=4),
        replace(net.target, every=True),
    ):
        found = proof(target, net.network, Goal(0.1, 2.0), lambda _: None)
        assert found.measured or not found.high <= 0.1
    half = af.neighbours(4, 2, "biased", bias=0.25, eps=0.01)
    other = replace(half.target, bias=0.4)
    found = read(other, half.network)
    assert found.numbers["threshold_error"] == pytest.approx(0.15)
    assert measured(other, half.network, 20_000).error <= found.bound


def test_a_warm_head_has_no_bound_and_is_refused_with_one_that_has() -> None:
    with pytest.raises(af.Infeasible, match="inverse temperature") as refused:
        af.neighbours(4, 4, beta=0.5)
    assert af.neighbours(4, 4, **refused.value.nearest).certificate.bounds


def test_a_bound_above_eps_and_a_measurement_above_eps_prove_nothing() -> None:
    net = af.neighbours(4, 4, beta=20.0)
    small = certified(net.target, net.network, Goal(net.certificate.error[1] / 2, 2.0))
    assert small.status == "undecided" and small.error == net.certificate.error
    drawn = af.neighbours(4, 3, "random_heads", heads=3)
    low = certified(drawn.target, drawn.network, Goal(1e-3, 2.0))
    assert low.status == "undecided" and low.error[1] == float("inf") and "eps 0.001" in (low.reason or "")


def test_resealed_weights_are_judged_for_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    cold, warm = (made(dim=4, points=4, beta=beta) for beta in (300.0, 30.0))
    cold.save(path)
    _, meta = load(path)
    meta["claim"] = Claim.made({"eps": 2 * cold.certificate.error[1]}, "mean square").to_json()
    save(path, cold.network, meta, "neighbours")
    assert af.verify(path).status == "conditional"
    save(path, warm.network, meta, "neighbours")
    verdict = af.verify(path)
    assert verdict.status == "undecided" and verdict.error == warm.certificate.error
    assert af.load(path).certificate.status == "stored"
    for claim in (meta["claim"] | {"norm": "sup"}, meta["claim"] | {"norm": 2.0}, None):
        save(path, cold.network, meta | {"claim": claim}, "neighbours")
        with pytest.raises(af.DamagedFile):
            af.verify(path)


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 2},
        {"dim": "4"},
        {"dim": 5},
        {"points": 2},
        {"points": 10**9},
        {"which": "middle"},
        {"every": 1},
        {"bias": 0.5},
        {"bias": "0"},
        {"more": 1},
    ],
)
def test_forged_points_are_damage_in_one_sentence(change: dict[str, Any], tmp_path: Path) -> None:
    path, net = tmp_path / "n.safetensors", made(dim=4, points=4, beta=30.0, which="nearest")
    net.save(path)
    weights, meta = load(path)
    for target in (meta["target"] | change, [1], None, {}):
        save(path, weights, meta | {"target": target}, "neighbours")
        for verb in (af.load, af.verify):
            with pytest.raises(af.DamagedFile) as why:
                verb(path)
            assert "\n" not in str(why.value)


@pytest.mark.parametrize("predicted", [[1], {"error": "x", "how": ""}, {"error": 1.0}, {"error": 1.0, "how": 3}, "no"])
def test_a_forged_prediction_is_damage_in_one_sentence(predicted: Any, tmp_path: Path) -> None:
    path, net = tmp_path / "n.safetensors", made(dim=4, points=4, beta=30.0)
    net.save(path)
    weights, meta = load(path)
    save(path, weights, meta | {"story": meta["story"] | {"predicted": predicted}}, "neighbours")
    with pytest.raises(af.DamagedFile, match="predicted"):
        _ = af.load(path).predicted


def test_no_construction_is_imported_by_load_call_and_verify(tmp_path: Path) -> None:
    code = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if ".build" in name: raise ImportError(name)
sys.meta_path.insert(0, Block())
import attnfun as af, numpy as np
for path in sys.argv[1:]:
    model = af.load(path)
    model(*model.target.draw(np.random.default_rng(0), 2)), model.cost, repr(model)
    print(af.verify(path).status)
"""
    solver = af.in_context("ridge", 2, 6, alpha=1.0, spectrum=(4, 12), eps=1e-2)
    files = {str(tmp_path / f"{k}.safetensors"): made(**case, eps=0.3) for k, case in enumerate(PROVED)}
    files[str(tmp_path / "solver.safetensors")] = solver
    for path, net in files.items():
        net.save(path)
    ran = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == [net.certificate.status.value for net in files.values()], ran.stderr
