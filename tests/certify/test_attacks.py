"""Attacks on the checker: each tries to have something false proved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Certificate, Status, ellipse, moments, nodes
from attnfun.certify.moments import prove_by_moments
from attnfun.certify.nodes import prove_by_nodes
from attnfun.certify.view import Undecided, view
from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.kinds.function.prove import prove
from attnfun.language import enclosures
from attnfun.network import Network
from certify.hunting import (
    BOUNDS,
    assert_sound,
    errors,
    flip,
    formula_rounding,
    function,
    line_network,
    rewrite,
    with_arrays,
    worst_error,
    zero_network,
)
from modes import MODES, arithmetic
from products import few
from stored import load, save

SPIKE = "exp(-((x - 0.123456)*1e4)**2)"


@pytest.fixture(scope="module")
def sine() -> af.Approximant:
    return af.compile("sin(3*x)", "x=-1:1", 1e-9, method="bernstein")


@pytest.fixture(scope="module")
def plane() -> af.Approximant:
    return af.compile("sin(3*x) + cos(2*y)*exp(x*y)", "x=-1:1;y=-1:1", 1e-6, method="bernstein")


@pytest.fixture(scope="module")
def stairs() -> af.Approximant:
    return af.compile("abs(x) + y/3", "x=-1:1;y=-1:1", 0.2, method="partition")


# ---------------------------------------------------------------- the target


@pytest.mark.parametrize(
    "target",
    [
        "1e-8/((x - 0.1)**2 + 1e-8)",  # boundary values of |f| alone would prove 9e-6; the error is 1
        "1e-12/((x - 0.1)**2 + 1e-12)",
        SPIKE,
        "exp(-((x - 0.123456)*1e7)**2)",
        "1e-6/(1.000001 - x)",
        "max(0, 1 - 1e6*abs(x - 0.123456))",
        "1/(1 + exp(-1e5*(x - 0.7))) * 1/(1 + exp(1e5*(x - 0.70005)))",
        "sqrt((x - 0.1)**2 + 1e-12)",
    ],
)
def test_a_zero_network_is_never_proved_close_to_a_narrow_feature(target: str) -> None:
    f = function(target)
    certificate = prove(zero_network(f), f, eps=0.1)
    assert certificate.status in (Status.REFUTED, Status.UNDECIDED), certificate
    for low, high in ([0.0999, 0.1001], [0.12345, 0.12346], [0.7, 0.70005], [0.999, 1.0]):
        X = np.linspace(low, high, 2001)[:, None]
        if certificate.error[1] < math.inf:
            assert errors(zero_network(f), f, X).max() <= certificate.error[1] * (1 + 1e-9)


def test_narrow_features_in_two_variables() -> None:
    f = function("1e-6/((x - 0.1)**2 + (y + 0.2)**2 + 1e-6)", "x=-1:1;y=-1:1")
    certificate = prove(zero_network(f), f, eps=0.5)
    assert certificate.status in (Status.REFUTED, Status.UNDECIDED)
    assert certificate.error[1] >= 1


def test_the_spike_is_seen_against_weights_made_without_it(
    sine: af.Approximant, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = function(f"sin(3*x) + {SPIKE}")
    certificate = prove(sine.network, f, eps=1e-3)
    assert certificate.status not in BOUNDS
    if certificate.status is Status.REFUTED:
        assert certificate.witness is not None
        assert errors(sine.network, f, np.array([certificate.witness]))[0] > 1e-3
    monkeypatch.setattr(ellipse, "_BOUNDARY_BOXES", 1000)
    whole = prove(sine.network, f)
    assert whole.status is Status.UNDECIDED or whole.error[1] >= 1


@pytest.mark.parametrize(("target", "eps"), [("1/(1.0001 - x)", 0.1), ("1/(1.1 - x)", 1e-3), ("1/(1.5 - x)", 1e-6)])
def test_poles_just_outside(target: str, eps: float) -> None:
    try:
        net = af.compile(target, "x=-1:1", eps, accept="sampled")
    except af.Infeasible:
        return
    assert_sound(
        net.certificate if net.certificate.status in BOUNDS else prove(net.network, net.target), net.network, net.target
    )


@pytest.mark.parametrize(
    "target", few(["sqrt(x**2)", "log(x**2 + 1e-9)", "sqrt(x**2 + 1e-9)", "(x**2)**0.25", "atan(1e4*x)"], 2)
)
def test_branch_cuts_are_no_place_to_continue_across(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ellipse, "_FAMILY_BOXES", 3000)
    f = function(target)
    low, high = f.box.low_array, f.box.high_array
    with enclosures.precision(128):
        for rho in (1.01, 1.1, 2.0):
            assert not ellipse.prove_analytic(f.expression, f.box.names, low, high, np.array([rho]))
    with pytest.raises(Undecided):
        prove_by_nodes(view(zero_network(f), low, high), f.expression, f.box.names, 1.0, 1.0)
    assert_sound(prove(zero_network(f), f), zero_network(f), f)


@pytest.mark.parametrize(
    "target", ["1/x", "log(x)", "sqrt(x - 0.5)", "sign(x)", "tan(2*x)", "asin(2*x)", "x**-3", "x**0.5"]
)
def test_undefined_targets_are_never_proved(target: str) -> None:
    f = function(target)
    certificate = prove(zero_network(f), f, eps=1e9)
    assert certificate.status is Status.UNDECIDED and certificate.error[1] == math.inf


# ---------------------------------------------------------------- the weights


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", ["values", "axis0/biases", "axis0/slopes", "axis0/query", "axis0/offset", "readout"])
def test_weights_that_are_no_numbers_are_refused(sine: af.Approximant, part: str, bad: float, tmp_path: Path) -> None:
    name = part if part == "readout" else f"layer0/head0/{part}"
    array = dict(sine.network.arrays())[name].copy()
    array.reshape(-1)[-1] = bad
    with pytest.raises(InvalidRequest):
        with_arrays(sine.network, {name: array})
    forged = object.__new__(Network)  # past the constructor's own check
    forged.__dict__.update(sine.network.__dict__)
    arrays = dict(sine.network.arrays()) | {name: array}
    object.__setattr__(forged, "arrays", lambda: iter(arrays.items()))
    assert prove(forged, sine.target, eps=1e-3).status is Status.UNDECIDED
    path = tmp_path / "f.safetensors"
    sine.save(path)

    def poison(_record: Any, tensors: dict[str, Any]) -> None:
        tensors[name] = array

    with pytest.raises(DamagedFile):
        af.verify(rewrite(path, tmp_path / "g.safetensors", poison))


def _flips(network: Network) -> Iterator[tuple[str, int, int]]:
    rng = np.random.default_rng(5)
    for name, array in network.arrays():
        for index in {0, array.size // 2, int(rng.integers(array.size))}:
            for bit in (0, 12, 26, 33, 40, 46, 50, 51, 52, 53, 55, 58, 61, 62, 63):
                yield name, index, bit


@pytest.mark.parametrize("which", ["sine", "stairs"])
def test_bit_flips_are_never_proved_past_the_worst_error(which: str, request: pytest.FixtureRequest) -> None:
    net: af.Approximant = request.getfixturevalue(which)
    arrays = dict(net.network.arrays())
    seen: dict[Status, int] = {}
    for number, (name, index, bit) in enumerate(_flips(net.network)):
        if number % 4:
            continue
        changed = flip(arrays[name], index, bit)
        if not np.isfinite(changed).all():
            continue
        network = with_arrays(net.network, {name: changed})
        certificate = prove(network, net.target, eps=net.certificate.eps)
        seen[certificate.status] = seen.get(certificate.status, 0) + 1
        worst, _ = worst_error(network, net.target, points=500, rounds=12)
        if certificate.status in BOUNDS:
            assert worst <= certificate.error[1] + formula_rounding(net.target), (name, index, bit)
        elif certificate.status is Status.REFUTED:
            x = np.array([certificate.witness])
            assert net.target.box.contains(x).all()
            rounding = 1e-9 * certificate.error[0] + certificate.parts.get("rounding", 0.0)
            assert errors(network, net.target, x)[0] >= certificate.error[0] - rounding - formula_rounding(net.target)
    assert seen[Status.PROVED] > 5 and seen[Status.REFUTED] > 20, seen


@pytest.mark.parametrize("bit", [0, 20, 30, 40, 51, 52, 62, 63])
def test_bit_flips_of_one_value_in_two_variables(plane: af.Approximant, bit: int) -> None:
    name = "layer0/head0/values"
    values = dict(plane.network.arrays())[name]
    middle = int(np.ravel_multi_index([v // 2 for v in values.shape], values.shape))
    network = with_arrays(plane.network, {name: flip(values, middle, bit)})
    certificate = prove(network, plane.target, eps=1e-6)
    assert_sound(certificate, network, plane.target)
    if bit <= 20:
        assert certificate.status is Status.PROVED
    elif bit >= 40:
        assert certificate.status is Status.REFUTED


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("layer0/head0/axis0/biases", lambda a: a + 1e-7 * (np.arange(len(a)) == 3)),
        ("layer0/head0/axis0/biases", lambda a: a + (np.arange(len(a)) == 3)),
        ("layer0/head0/axis0/query", lambda a: a * (1 + 1e-6)),
        ("layer0/head0/axis0/slopes", lambda a: 2 * a),
        ("layer0/head0/axis0/slopes", lambda a: a[::-1]),
        ("layer0/head0/axis1/offset", lambda a: a + 1e-3),
        ("layer0/head0/values", lambda a: -a),
        ("layer0/head0/values", lambda a: np.zeros_like(a)),
        ("readout_bias", lambda a: a + 1e-5),
    ],
)
def test_tampered_weights_of_two_variables(plane: af.Approximant, name: str, change: Any) -> None:
    network = with_arrays(plane.network, {name: change(dict(plane.network.arrays())[name])})
    certificate = prove(network, plane.target, eps=1e-6)
    seen = assert_sound(certificate, network, plane.target)
    if seen > 1e-6:
        assert certificate.status not in BOUNDS


@pytest.mark.parametrize("tau", few([1e3, 1e6, 1e12, 1e300], 2))
def test_huge_slopes(tau: float) -> None:
    f = function("0.5")
    network = line_network([0.0, tau, 2 * tau], [0.0, 0.7, 0.0], [0.0, 0.5, 1.0])
    certificate = prove(network, f, eps=0.1)
    assert_sound(certificate, network, f)
    assert certificate.status not in BOUNDS
    beyond = prove(network, f, eps=10.0)
    assert_sound(beyond, network, f)


def test_logits_that_overflow_are_not_proved() -> None:
    f = function("0.5", "x=-1e10:1e10")
    network = line_network([0.0, 1e300], [0.0, 0.0], [0.0, 1.0], "x=-1e10:1e10")
    certificate = prove(network, f, eps=10.0)
    assert certificate.status is Status.UNDECIDED  # the evaluation gives NaN


def test_all_values_zero() -> None:
    for target, expected in (("0", Status.PROVED), ("sin(x)", Status.REFUTED), ("1e-7*x", Status.PROVED)):
        f = function(target)
        network = line_network([0.0, 1.0, 2.0], [0.0, math.log(2), 0.0], [0.0, 0.0, 0.0])
        certificate = prove(network, f, eps=1e-6)
        assert certificate.status is expected
        assert_sound(certificate, network, f)


@pytest.mark.parametrize("size", [1e10, 1e15, 1e100])
def test_huge_values_that_cancel(size: float) -> None:
    """Two heads of ±size whose sum is 0 in real arithmetic: rounding is what is left, and it must be in the bound."""
    one = line_network([0.0, 1.0], [0.0, 0.0], [size, 2 * size])
    head = one.layers[0].heads[0]
    other = with_arrays(one, {"layer0/head0/values": -head.values}).layers[0].heads[0]
    layer = type(one.layers[0])((head, type(head)("other", other.axes, other.values, ("w",))))
    network = Network(one.inputs, (layer,), np.array([[0.0, 1.0, 1.0]]), one.readout_bias, one.outputs, one.box)
    f = function("0")
    certificate = prove(network, f, eps=1e-3)
    assert_sound(certificate, network, f)
    if certificate.status in BOUNDS:
        assert certificate.parts["rounding"] >= 1e-17 * size
    assert size < 1e12 or certificate.status is Status.UNDECIDED


def test_values_that_alternate_hugely() -> None:
    values = np.array([1e15 * (-1) ** j for j in range(12)])
    network = line_network(np.arange(12.0), [math.log(math.comb(11, j)) for j in range(12)], values)
    f = function("0")
    for eps in (1e-3, 1e16):
        certificate = prove(network, f, eps=eps)
        assert_sound(certificate, network, f)
        assert certificate.status in BOUNDS or eps < 1


def test_a_wrong_answer_of_a_method_cannot_become_a_certificate() -> None:
    for error in ((1.0, 0.5), (math.nan, 1.0), (0.0, math.nan), (-1.0, 1.0)):
        with pytest.raises(AssertionError):
            Certificate(Status.PROVED, error, 1.0, math.inf, "float64", "forged", "x", "x=-1:1")


# ---------------------------------------------------------------- searches that stop early


@pytest.mark.parametrize("cap", few([0, 8, 9, 20, 60], 3))
def test_a_bisection_that_stops_early_is_undecided(monkeypatch: pytest.MonkeyPatch, cap: int) -> None:
    monkeypatch.setattr(moments, "_INTERVALS", cap)
    monkeypatch.setattr(ellipse, "_BOUNDARY_BOXES", 1000)  # bounds on ellipses fail with more boxes too, later
    net = af.compile("abs(x)", "x=-1:1", 0.2, method="bernstein", accept="sampled")
    f = function(f"sin(3*x) + 2*{SPIKE}")
    seen = view(net.network, f.box.low_array, f.box.high_array)
    try:
        bound = prove_by_moments(seen, f.graph, f.box.names, 1.0, 2.27, np.array([[0.5]]))
    except Undecided as why:
        assert "not decided" in str(why)
    else:  # every interval was below 2.27: then that is a bound
        assert cap > 20
        near = np.linspace(0.1233, 0.1236, 5001)[:, None]
        assert errors(net.network, f, near).max() <= bound.high
    certificate = prove(net.network, f, eps=0.05)
    assert certificate.status not in BOUNDS


def test_caps_on_boxes_and_nodes_leave_it_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    f = function("1/(1.5 + x*y)", "x=-1:1;y=-1:1")
    net = af.compile(f.text, f.box.text, 1e-2, method="bernstein")
    seen = view(net.network, f.box.low_array, f.box.high_array)
    assert prove_by_nodes(seen, f.graph, f.box.names, 1e-2, 1e-2).high < 0.02
    with monkeypatch.context() as patch:
        patch.setattr(ellipse, "_FAMILY_BOXES", 5)
        with pytest.raises(Undecided):
            prove_by_nodes(seen, f.graph, f.box.names, 1e-2, 1e-2)
    with monkeypatch.context() as patch:
        patch.setattr(nodes, "_CAP", {1: 3, 2: 3})
        with pytest.raises(Undecided):
            prove_by_nodes(seen, f.graph, f.box.names, 1e-2, 1e-2)


# ---------------------------------------------------------------- the surroundings


def test_flint_settings_of_others_neither_matter_nor_suffer(sine: af.Approximant, stairs: af.Approximant) -> None:
    before = flint.ctx.prec, flint.ctx.cap
    expected = [prove(n.network, n.target, eps=n.certificate.eps).error for n in (sine, stairs)]
    try:
        for bits, cap in ((2, 1), (10, 3), (53, 10), (1000, 50)):
            flint.ctx.prec, flint.ctx.cap = bits, cap
            found = [prove(n.network, n.target, eps=n.certificate.eps).error for n in (sine, stairs)]
            assert found == expected
            assert (flint.ctx.prec, flint.ctx.cap) == (bits, cap)
            f = function("sin(x*1000)")
            prove(zero_network(f), f, eps=1e-3)
            assert (flint.ctx.prec, flint.ctx.cap) == (bits, cap)
    finally:
        flint.ctx.prec, flint.ctx.cap = before


@pytest.mark.parametrize("mode", MODES)
def test_another_arithmetic_is_noticed(mode: str, sine: af.Approximant) -> None:
    why = "flushed to zero" if mode == "flush" else "not to nearest"
    with arithmetic(mode), pytest.raises(af.AttnfunError, match=why):
        prove(sine.network, sine.target, eps=1e-3)
    assert prove(sine.network, sine.target, eps=1e-3).status is Status.PROVED


# ---------------------------------------------------------------- the file


@pytest.fixture
def saved(sine: af.Approximant, tmp_path: Path) -> Path:
    path = tmp_path / "f.safetensors"
    sine.save(path)
    return path


def _resaved(path: Path, out: Path, change: Any) -> Path:
    """Load, change meta and network, save again: hash and seals fit."""
    network, meta = load(path)
    network, meta = change(network, dict(meta))
    save(out, network, meta)
    return out


def test_a_flipped_bit_anywhere_is_an_error(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    rng = np.random.default_rng(0)
    places = [0, 3, 7, 8, 9, 40, len(data) - 1, *rng.integers(0, len(data), 120)]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        bad = tmp_path / "bad.safetensors"
        bad.write_bytes(bytes(changed))
        with pytest.raises(DamagedFile):
            af.load(bad)
        try:
            certificate = af.verify(bad)
        except DamagedFile:
            continue
        assert certificate.error == af.verify(saved).error  # the flip was in the stored certificate, which is not read


def test_forged_numbers_of_the_stored_certificate_are_not_read(saved: Path, tmp_path: Path) -> None:
    honest = af.verify(saved)

    def forge(network: Network, meta: dict[str, Any]) -> Any:
        meta["certificate"] |= {
            "error": 1e-30,
            "error_low": 0.0,
            "eps": 1e-29,
            "status": "proved",
            "parts": {"rounding": 0.0},
        }
        meta["certificate"] |= {"witness": [7.0], "method": "trust me", "details": {"nodes": [1]}, "target": "cos(x)"}
        return network, meta

    assert af.verify(_resaved(saved, tmp_path / "g.safetensors", forge)) == honest

    def unsealed(record: Any, _tensors: Any) -> None:
        record["certificate"]["error"] = 1e-30

    assert af.verify(rewrite(saved, tmp_path / "h.safetensors", unsealed)) == honest
    with pytest.raises(DamagedFile):
        af.load(tmp_path / "h.safetensors")


def test_changed_weights_with_a_fitting_hash_are_refuted(saved: Path, tmp_path: Path) -> None:
    def change(network: Network, meta: dict[str, Any]) -> Any:
        values = dict(network.arrays())["layer0/head0/values"].copy()
        values[len(values) // 2] += 1e-3
        return with_arrays(network, {"layer0/head0/values": values}), meta

    forged = _resaved(saved, tmp_path / "g.safetensors", change)
    certificate = af.verify(forged)
    assert certificate.status is Status.REFUTED
    net = af.load(forged)  # the stored certificate is what the file says, verify is what is so
    x = np.array([certificate.witness])
    assert net.target.box.contains(x).all()
    assert errors(net.network, net.target, x)[0] > certificate.eps
    assert repr(float(x[0, 0])) in (certificate.reason or "")


@pytest.mark.parametrize("target", ["sin(3*x) + 1e-6", "cos(3*x)", "sin(3*x) + 1e-8*x", "sin(3*x)"])
def test_another_target_in_the_file_is_the_one_that_is_judged(saved: Path, tmp_path: Path, target: str) -> None:
    other = function(target)

    def change(network: Network, meta: dict[str, Any]) -> Any:
        return network, meta | {"target": other.to_json()}

    forged = _resaved(saved, tmp_path / "g.safetensors", change)
    certificate = af.verify(forged)
    assert certificate.target == other.text
    assert certificate.status is (Status.PROVED if target == "sin(3*x)" else Status.REFUTED)
    if target != "sin(3*x)":
        with pytest.raises(InvalidRequest, match="the file is about"):
            af.verify(forged, "sin(3*x)")


def test_the_text_beside_the_graph_is_not_believed(saved: Path, tmp_path: Path) -> None:
    def change(network: Network, meta: dict[str, Any]) -> Any:
        return network, meta | {"target": function("cos(3*x)").to_json() | {"text": "sin(3*x)"}}

    certificate = af.verify(_resaved(saved, tmp_path / "g.safetensors", change))
    assert certificate.target == "cos(3*x)" and certificate.status is Status.REFUTED


@pytest.mark.parametrize("domain", ["x=-2:1", "x=-1:1.0001", "y=-1:1"])
def test_another_domain_in_the_file_is_no_way_out(saved: Path, tmp_path: Path, domain: str) -> None:
    def change(network: Network, meta: dict[str, Any]) -> Any:
        return network, meta | {"target": meta["target"] | {"domain": domain}}

    with pytest.raises(DamagedFile):
        af.verify(_resaved(saved, tmp_path / "g.safetensors", change))


def test_a_wider_domain_with_everything_made_to_fit(saved: Path, tmp_path: Path) -> None:
    def change(network: Network, meta: dict[str, Any]) -> Any:
        wide = Network(
            network.inputs,
            network.layers,
            network.readout,
            network.readout_bias,
            network.outputs,
            (np.array([-2.0]), np.array([2.0])),
        )
        return wide, meta | {"target": meta["target"] | {"domain": "x=-2:2"}}

    certificate = af.verify(_resaved(saved, tmp_path / "g.safetensors", change))
    assert certificate.status is Status.REFUTED
    assert certificate.witness is not None and abs(certificate.witness[0]) <= 2


def test_a_larger_eps_in_the_claim_only_moves_the_verdict(saved: Path, tmp_path: Path) -> None:
    honest = af.verify(saved)

    def change(network: Network, meta: dict[str, Any]) -> Any:
        return network, meta | {"claim": meta["claim"] | {"eps": 5.0}}

    certificate = af.verify(_resaved(saved, tmp_path / "g.safetensors", change))
    assert certificate.eps == 5.0 and certificate.error[1] >= honest.error[0]
    assert_sound(certificate, af.load(saved).network, af.load(saved).target)
    for eps in (-1, 0, "a", None, True, [1]):

        def spoil(network: Network, meta: dict[str, Any], eps: Any = eps) -> Any:
            return network, meta | {"claim": meta["claim"] | {"eps": eps}}

        try:
            found = af.verify(_resaved(saved, tmp_path / "g.safetensors", spoil))
        except DamagedFile:
            assert eps is not None
            continue
        assert eps is None and found.status is Status.BOUNDED


@pytest.mark.parametrize("data", [b"", b"\x80\x04K\x01.", b"x" * 7, b"\xff" * 64, b"\x10" + b"\0" * 7 + b"{" * 16])
def test_files_that_are_none(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(data)
    for verb in (af.load, af.verify):
        with pytest.raises(DamagedFile):
            verb(path)


def test_cut_files(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    for length in (1, 8, 100, len(data) // 2, len(data) - 1):
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        with pytest.raises(DamagedFile):
            af.verify(path)


def test_an_independent_verify_of_a_relative_request(tmp_path: Path) -> None:
    net = af.compile("100*sin(3*x)", "x=-1:1", 1e-6, relative=True)
    path = tmp_path / "f.safetensors"
    net.save(path)
    certificate = af.verify(path)
    assert certificate == net.certificate
    assert certificate.relative is not None and certificate.eps == pytest.approx(1e-6 * certificate.relative["range"])
