"""Proofs of sequence networks: no bound below the worst error found, no forgery proved, verify from the file alone."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save as bytes_of

import attnfun as af
from attnfun.certify import Status
from attnfun.kinds.sequence.network import Apply, Gather, SequenceNetwork, Spread
from attnfun.kinds.sequence.target import Definition, SequenceMap
from attnfun.kinds.sequence.tokens import to_tokens
from attnfun.language import parse
from attnfun.search import Goal, certified
from products import few

from .spoiling import spoilt, worst_error

LINE = {"x": (-1.0, 1.0)}
PLANE = {"x": (0.2, 1.7), "y": (-1.0, 0.5)}
CASES: dict[str, dict[str, Any]] = {
    "mean": {"target": "sin(x*mean(x))", "tokens": 6, "domain": LINE, "eps": 1e-4},
    "max": {"target": "x - max(x)", "tokens": 6, "domain": LINE, "eps": 1e-3},
    "min": {"target": "x*min(x)", "tokens": 4, "domain": LINE, "eps": 1e-3},
    "swap": {"target": [["x_2"], ["x_1"], ["x_3"]], "tokens": 3, "domain": LINE, "eps": 1e-9},
    "rows": {"target": [["sin(x_1*x_2)"], ["x_3 - 0.3*x_1"], ["x_1*x_2"]], "tokens": 3, "domain": LINE, "eps": 1e-3},
    "softmax": {"target": "softmax_mean(3*x, sin(x))*x", "tokens": 4, "domain": LINE, "eps": 1e-4, "method": "deep"},
    "variance": {"target": "mean((x - mean(x))**2)", "tokens": 5, "domain": LINE, "eps": 1e-4},
    "spread": {"target": "mean(max(x) - min(x)) + x", "tokens": 3, "domain": LINE, "eps": 1e-3},
    "root": {"target": "sqrt(mean(x))", "tokens": 3, "domain": {"x": (0, 1)}, "eps": 1e-3},
    "plane": {"target": ["x/sum(x)", "max(y*x) + y_2"], "tokens": 4, "domain": PLANE, "eps": 1e-2, "method": "deep"},
    "partition": {"target": "sin(x*mean(x))", "tokens": 2, "domain": LINE, "eps": 0.1, "method": "partition"},
}


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    return {name: af.sequence(**request) for name, request in CASES.items()}


def exceeds(worst: float, bound: float) -> bool:
    """The target's own float64 rounding aside."""
    return not worst <= bound * (1 + 1e-9) + 4e-15


@pytest.mark.parametrize("name", few(CASES, 5))
def test_no_bound_is_below_the_worst_error_found(name: str, built: dict[str, Any]) -> None:
    net = built[name]
    low, high = net.certificate.error
    rng = np.random.default_rng(1)
    literal = net.literal()
    assert net.certificate.status is Status.PROVED and high <= net.request["eps"]
    worst = worst_error(net.network.run, net.target, rng)
    assert not exceeds(worst, high)
    assert not exceeds(worst_error(literal.run, net.target, rng, rounds=3), high)
    assert low <= high


@pytest.mark.parametrize(
    ("name", "size"), few(product([name for name in CASES if name != "partition"], [1e-12, 1e-6, 1e-3, 1e-1]), 5)
)
def test_bounds_hold_for_spoilt_weights(name: str, size: float, built: dict[str, Any]) -> None:
    net = built[name]
    rng = np.random.default_rng(int(-np.log10(size)))
    bad = spoilt(net.network, rng, size)
    certificate = certified(net.target, bad, Goal())
    worst = worst_error(bad.run, net.target, rng)
    assert not exceeds(worst, certificate.error[1])
    literal = to_tokens(bad)
    assert not exceeds(worst_error(literal.run, net.target, rng, rounds=3), certificate.error[1])
    judged = certified(net.target, bad, Goal(net.request["eps"]))
    assert (judged.status is Status.PROVED) <= (worst <= net.request["eps"] * (1 + 1e-9))


def forged(network: SequenceNetwork, stage: int, new: Any) -> SequenceNetwork:
    stages = list(network.stages)
    stages[stage] = new
    return replace(network, stages=tuple(stages))


def forgeries(built: dict[str, Any]) -> dict[str, tuple[SequenceNetwork, SequenceMap, float]]:
    """Networks that are not what they are said to be: none may be proved to meet its eps."""
    out: dict[str, tuple[SequenceNetwork, SequenceMap, float]] = {}

    def add(name: str, of: str, network: SequenceNetwork, target: SequenceMap | None = None) -> None:
        out[name] = (network, target or built[of].target, built[of].request["eps"])

    rows = built["rows"].network
    gather, apply = rows.stages
    assert isinstance(gather, Gather) and isinstance(apply, Apply)
    a, b = gather.heads
    add("fetched tokens exchanged", "rows", forged(rows, 0, Gather((
        replace(a, scores=b.scores), replace(b, scores=a.scores)))))  # fmt: skip
    add("networks exchanged", "rows", forged(rows, 1, replace(apply, of_token=(2, 1, 0))))
    add("names of heads exchanged", "rows", forged(rows, 0, Gather((
        replace(a, writes=b.writes), replace(b, writes=a.writes)))))  # fmt: skip
    one = apply.networks[0]
    swapped = replace(one, inputs=one.inputs[::-1]) if len(one.inputs) > 1 else one
    target = SequenceMap.read([["sin(x_1*x_2) + x_2/9"], ["x_3 - 0.3*x_1"], ["x_1*x_2"]], LINE, 3)
    add("another target", "rows", rows, target)
    add("inputs exchanged", "rows", forged(rows, 1, replace(apply, networks=(swapped, *apply.networks[1:]))), target)
    mean = built["mean"].network
    add("mean as sum", "mean", mean, SequenceMap.read("sin(x*sum(x))", LINE, 6))
    add("mean as max", "mean", mean, SequenceMap.read("sin(x*max(x))", LINE, 6))
    add("mean of a square", "mean", mean, SequenceMap.read("sin(x*mean(x**2))", LINE, 6))
    head = mean.stages[0].heads[0]  # type: ignore[union-attr]
    add("a mean that looks", "mean", forged(mean, 0, Gather((replace(head, key=np.array([0.5])),))))
    add("a mean of its own kind", "mean", forged(mean, 0, Gather((replace(head, value=np.array([[1.001]])),))))
    add("a mean with positions", "mean", forged(mean, 0, Gather((replace(head, scores=np.eye(6)),))))
    maximum = built["max"].network
    head = maximum.stages[0].heads[0]  # type: ignore[union-attr]
    add("a softer maximum", "max", forged(maximum, 0, Gather((replace(head, key=head.key / 2),))))
    add("a minimum", "max", forged(maximum, 0, Gather((replace(head, key=-head.key),))))
    add("no correction", "max", forged(maximum, 0, Gather((replace(head, offset=np.zeros(1)),))))
    swap = built["swap"].network
    head = swap.stages[0].heads[0]  # type: ignore[union-attr]
    order = np.full((3, 3), -900.0)
    order[[0, 1, 2], [0, 1, 2]] = 0.0
    add("no swap", "swap", forged(swap, 0, Gather((replace(head, scores=order),))))
    add("a soft swap", "swap", forged(swap, 0, Gather((replace(head, scores=head.scores / 90),))))
    part = built["partition"].network
    add("spread the wrong way", "partition", forged(part, 0, Spread(("x",), ((0,), (1,)))))
    add("fewer tokens", "mean", replace(mean, tokens=6), SequenceMap.read("sin(x*mean(x))", LINE, 5))
    wide = SequenceMap.read("sin(x*mean(x))", {"x": (-1, 1.5)}, 6)
    add("a wider box", "mean", mean, wide)
    add("a wider box, and the network says so", "mean", replace(mean, box=(np.array([-1.0]), np.array([1.5]))), wide)
    return out


def test_no_forgery_is_proved(built: dict[str, Any]) -> None:
    for name, (network, target, eps) in forgeries(built).items():
        certificate = certified(target, network, Goal(eps))
        assert certificate.status in (Status.UNDECIDED, Status.REFUTED), name


def test_a_fetched_token_does_not_pass_for_an_aggregate(built: dict[str, Any]) -> None:
    """A target whose definition bears the name of a coordinate that a copy writes: the mean, says the file."""
    box = built["swap"].target.box
    definition = Definition("x_source1", "mean", ("x",))
    graph = parse("x_source1", ["x_source1"])
    with pytest.raises(af.InvalidRequest, match="kept for tokens"):
        SequenceMap.from_json(SequenceMap(box, 3, (definition,), (graph,)).to_json())
    past_the_reader = SequenceMap(box, 3, (definition,), (graph,))
    for name in ("swap", "partition"):
        certificate = certified(past_the_reader, built[name].network, Goal())
        assert certificate.status is Status.UNDECIDED
    two = SequenceMap(box, 2, (definition,), (graph,))
    partition = af.sequence([["x_2"], ["x_1"]], 2, LINE, 0.2, method="partition").network
    assert certified(two, partition, Goal()).status is Status.UNDECIDED


@pytest.mark.parametrize("target", ["y", "mean(y)", "y_1", "y*max(y)"])
def test_points_that_the_dtype_cannot_hold_are_never_proved(target: str) -> None:
    """x is infinite in float32, and nothing reads it: 0 times infinity is no 0."""
    domain = {"x": (0, 1e39), "y": (0, 1)}
    wide = SequenceMap.read(target, domain, 3)
    good = af.sequence(target, tokens=3, domain=domain | {"x": (0, 1)}, eps=1e-2, dtype="float32")
    assert certified(good.target, good.network, Goal()).status is Status.BOUNDED
    stretched = replace(good.network, box=(wide.box.low_array, wide.box.high_array))
    judged = certified(wide, stretched, Goal())
    assert judged.status is Status.UNDECIDED and "cannot hold" in (judged.reason or "")
    with pytest.raises(af.Infeasible, match="cannot hold"):
        af.sequence(target, tokens=3, domain=domain, eps=1e-2, dtype="float32")


def test_a_coordinate_that_overflows_is_never_proved_even_if_nothing_reads_it() -> None:
    request: dict[str, Any] = {"tokens": 3, "domain": {"x": (0, 1e36), "y": (0, 1)}, "eps": 1e-2, "dtype": "float32"}
    plain, mean = af.sequence("y", **request), af.sequence("mean(x)", **request | {"eps": 1e35})
    target = replace(mean.target, rows=plain.target.rows)  # the mean is defined, and no row uses it
    (head,) = mean.network.stages[0].heads
    for offset, proved in ((0.0, True), (float(np.finfo(np.float32).max), False)):
        gather = Gather((replace(head, offset=np.array([offset])),))
        network = replace(plain.network, stages=(gather, *plain.network.stages))
        assert (certified(target, network, Goal()).status is Status.BOUNDED) is proved


def test_a_network_for_a_smaller_box_is_not_proved(built: dict[str, Any]) -> None:
    """Its literal form shuts tokens out for inputs of its own box only."""
    small = replace(built["mean"].network, box=(np.array([-0.5]), np.array([1.0])))
    judged = certified(built["mean"].target, small, Goal())
    assert judged.status is Status.UNDECIDED and "smaller box" in (judged.reason or "")


def test_a_refutation_comes_with_a_sequence(built: dict[str, Any]) -> None:
    network, target, eps = forgeries(built)["mean as max"]
    certificate = certified(target, network, Goal(eps))
    assert certificate.status is Status.REFUTED and certificate.witness is not None
    X = np.array(certificate.witness).reshape(1, 6, 1)
    assert np.abs(network.run(X) - target.values(X)).max() > eps


def test_verify_reads_nothing_of_the_stored_certificate(built: dict[str, Any], tmp_path: Path) -> None:
    for name in ("mean", "swap", "variance"):
        net, path = built[name], tmp_path / f"{name}.safetensors"
        net.save(path)
        first = af.verify(path)
        assert first.status is Status.PROVED
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        record = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["attnfun"])
        del record["certificate"]
        path.write_bytes(bytes_of(tensors_of(data), metadata={"attnfun": json.dumps(record)}))
        again = af.verify(path)
        assert again.error == first.error and again.status is Status.PROVED
        assert af.load(path).certificate.status is Status.UNDECIDED


def test_a_file_with_changed_weights_is_judged_by_them(built: dict[str, Any], tmp_path: Path) -> None:
    """Hash and all: another file, and another verdict."""
    net = built["max"]
    head = net.network.stages[0].heads[0]
    bad = forged(net.network, 0, Gather((replace(head, key=head.key / 10),)))
    replace(net, weights=bad).save(tmp_path / "bad.safetensors")
    assert af.verify(tmp_path / "bad.safetensors").status is Status.REFUTED


def test_verify_compares_with_the_target_it_is_given(built: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    built["mean"].save(path)
    assert af.verify(path, "sin(x*mean(x))").status is Status.PROVED
    with pytest.raises(af.InvalidRequest, match="the file is about"):
        af.verify(path, "sin(x*max(x))")
