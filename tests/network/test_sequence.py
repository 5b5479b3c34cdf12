"""Sequence networks: stages, plain self-attention and torch say the same; files come back and damage is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.errors import DamagedFile, Infeasible, InvalidRequest
from attnfun.kinds.sequence.network import Apply, Gather, GatherHead, SequenceNetwork, Spread
from attnfun.kinds.sequence.prove import probes
from attnfun.kinds.sequence.tokens import to_tokens
from attnfun.network.store import fingerprint
from products import few

LINE = {"x": (-1.0, 1.0)}
PLANE = {"x": (0.2, 1.7), "y": (-1.0, 0.5)}
CASES: dict[str, dict[str, Any]] = {
    "mean": {"target": "sin(x*mean(x))", "tokens": 6, "domain": LINE, "eps": 1e-4},
    "max": {"target": "x - max(x)", "tokens": 6, "domain": LINE, "eps": 1e-4},
    "swap": {"target": [["x_2"], ["x_1"], ["x_3"]], "tokens": 3, "domain": LINE, "eps": 1e-9},
    "rows": {"target": [["sin(x_1*x_2)"], ["x_3 - 0.3*x_1"], ["x_1*x_2"]], "tokens": 3, "domain": LINE, "eps": 1e-3},
    "affine rows": {"target": [["x_1 - 0.7*x_2"], ["x_1 + x_2 + 0.3"]], "tokens": 2, "domain": LINE, "eps": 1e-9},
    "constant rows": {"target": [["1"], ["2"]], "tokens": 2, "domain": LINE, "eps": 1e-9},
    "deep": {"target": "mean((x - mean(x))**2)", "tokens": 5, "domain": LINE, "eps": 1e-4},
    "many": {"target": ["x*sum(x)", "max(y*x) + y_2"], "tokens": 4, "domain": PLANE, "eps": 1e-2, "method": "deep"},
    "deep rows": {
        "target": [["sin(x_1*x_2)"], ["abs(x_2)"]], "tokens": 2, "domain": LINE, "eps": 1e-2, "method": "deep",
    },
    "affine inside": {"target": "softmax_mean(2*x + 1, x)/3 + mean(3*x - 1)", "tokens": 4, "domain": LINE, "eps": 1e-9},
    "partition": {"target": "sin(x*mean(x))", "tokens": 2, "domain": LINE, "eps": 0.1, "method": "partition"},
    "partition of rows": {
        "target": [["x_2/2 + x_1"], ["x_1/3"]], "tokens": 2, "domain": LINE, "eps": 0.2, "method": "partition",
    },
    "one softmax": {"target": "x - max(x)", "tokens": 4, "domain": LINE, "eps": 1e-2, "method": "one-layer-softmax"},
}  # fmt: skip
SINGLE = ("mean", "max", "rows", "deep")


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    nets = {name: af.sequence(**request) for name, request in CASES.items()}
    for name in SINGLE:
        nets[f"{name} in float32"] = af.sequence(**CASES[name] | {"eps": 2e-3}, dtype="float32")
    return nets


NAMES = [*CASES, *(f"{name} in float32" for name in SINGLE)]


@pytest.mark.parametrize("name", few(NAMES, 9))
def test_plain_self_attention_is_the_same_network(name: str, built: dict[str, Any]) -> None:
    net = built[name]
    literal = net.literal()
    X = probes(net.target, 100, np.random.default_rng(2))
    apart = np.abs(net(X) - literal.run(X)).max()
    assert apart <= 2 * net.certificate.parts["rounding"] + 64 * np.finfo(net.network.dtype).eps
    assert np.abs(literal.run(X) - net.target.values(X)).max() <= net.certificate.error[1]
    assert len(literal.network.layers) == net.cost.layers
    assert len(literal.network.heads) == net.cost.heads


@pytest.mark.parametrize("name", NAMES)
def test_torch_runs_one_attention_a_layer_and_keeps_the_bound(
    name: str, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    net = built[name]
    module = net.to_torch()
    X = probes(net.target, 60, np.random.default_rng(3))
    calls = []
    real = torch.nn.functional.scaled_dot_product_attention

    def counted(*args: Any, **options: Any) -> Any:
        assert set(options) == {"scale"} and options["scale"] == 1.0 and len(args) == 3
        calls.append(1)
        return real(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    seen = module(torch.tensor(X)).double().numpy()
    assert len(calls) == net.cost.layers
    assert np.abs(seen - net.target.values(X)).max() <= net.certificate.error[1]
    assert module(torch.tensor(X[0])).shape == net.target.values(X[:1])[0].shape
    with pytest.raises(InvalidRequest, match="of shape"):
        module(torch.zeros(2, net.target.tokens + 1, net.target.box.dim))


def test_constant_tokens_keep_an_empty_stream_and_given_tokens_do_not_see_them(built: dict[str, Any]) -> None:
    for name in ("rows", "many", "deep"):
        net = built[name]
        literal = net.literal()
        X = probes(net.target, 4, np.random.default_rng(0))[:1]
        n = net.target.tokens
        places = [literal.network.coordinates.index(c) for c in net.network.coordinates]
        for Z in literal.network.stream(literal.tokens(X)[0]):
            assert not Z[n:, places].any()


def test_an_equivariant_network_has_no_positions_and_commutes_with_permutations(built: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    for name in ("mean", "max", "deep", "affine inside", "one softmax"):
        net = built[name]
        assert net.target.equivariant
        assert not any(c.startswith("position") for c in net.literal().network.coordinates)
        X = probes(net.target, 200, rng)
        order = rng.permutation(net.target.tokens)
        apart = np.abs(net(X[:, order]) - net(X)[:, order]).max()
        assert apart <= 2 * net.certificate.parts["rounding"] + 64 * np.finfo(np.float64).eps


@pytest.mark.parametrize("name", ["memory", "null", "position", "stage"])
def test_no_name_of_a_target_meets_one_of_the_token_matrix(name: str) -> None:
    net = af.sequence(f"{name} - mean({name})", tokens=3, domain={name: (-1, 1)}, eps=1e-6)
    X = probes(net.target, 20, np.random.default_rng(6))
    assert np.abs(net.literal().run(X) - net.target.values(X)).max() <= net.certificate.error[1]


def test_positions_matter_where_entries_are_named(built: dict[str, Any]) -> None:
    net = built["swap"]
    X = probes(net.target, 50, np.random.default_rng(5))
    assert np.array_equal(net(X), X[:, [1, 0, 2]])
    assert "position 3" in net.literal().network.coordinates


@pytest.mark.parametrize("name", ["rows", "partition", "max in float32", "many"])
def test_a_file_comes_back_bit_for_bit(name: str, built: dict[str, Any], tmp_path: Path) -> None:
    net, path = built[name], tmp_path / "s.safetensors"
    net.save(path)
    back = af.load(path)
    assert isinstance(back, af.SequenceApproximant)
    assert back.target == net.target and back.certificate.to_file() == net.certificate.to_file()
    X = probes(net.target, 40, np.random.default_rng(6))
    assert np.array_equal(back(X), net(X))
    back.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_damage_is_noticed(built: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    built["rows"].save(path)
    data = path.read_bytes()
    whole = af.load(path)
    seal = fingerprint(whole.weights)
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(data), 60):
        changed = bytearray(data)
        changed[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(changed))
        try:
            back = af.load(path)
        except (DamagedFile, InvalidRequest):
            continue
        same = [getattr(one, part) for part in ("request", "story", "target") for one in (back, whole)]
        same += [back.certificate.to_file(), whole.certificate.to_file(), fingerprint(back.weights), seal]
        assert same[::2] == same[1::2], f"byte {at} was changed and nobody saw"  # 1e-15 and 1E-15 are one in JSON
    for cut in (0, 7, 100, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises(DamagedFile):
            af.load(path)


def test_embeddings_that_do_not_fit_are_refused(built: dict[str, Any]) -> None:
    literal = built["rows"].literal()
    (A, B), n = literal.terms[0], len(literal.constant)
    nan = np.full_like(A, np.nan)
    for terms in ((), ((A[:1], B),), ((A, B[:, 1:]),), ((A, B[:0]),), ((A, B), (A[:, :1], B)), ((nan, B),)):
        with pytest.raises(InvalidRequest, match="embedding"):
            replace(literal, terms=terms)
    for constant in (
        literal.constant[:-1],
        literal.constant[:, 1:],
        literal.constant[:0],
        np.full((n, B.shape[1]), np.inf),
    ):
        with pytest.raises(InvalidRequest, match="embedding"):
            replace(literal, constant=constant)
    for box in ((np.zeros(1), np.zeros(1)), (np.zeros(2), np.ones(2)), (np.array([-np.inf]), np.ones(1))):
        with pytest.raises(InvalidRequest, match="box"):
            replace(built["rows"].network, box=box)


def test_networks_that_do_not_fit_are_refused(built: dict[str, Any]) -> None:
    network: SequenceNetwork = built["rows"].network
    gather, apply = network.stages
    assert isinstance(gather, Gather) and isinstance(apply, Apply)
    with pytest.raises(InvalidRequest, match="reads 1 of 3"):
        replace(network, stages=(gather, gather, apply))
    with pytest.raises(InvalidRequest, match="repeat"):
        replace(network, stages=(gather, apply, apply))
    with pytest.raises(InvalidRequest, match="not there"):
        replace(network, stages=(apply,))
    with pytest.raises(InvalidRequest, match="scores of shape"):
        head = replace(gather.heads[0], scores=np.zeros((2, 2)))
        replace(network, stages=(Gather((head, *gather.heads[1:])), apply))
    with pytest.raises(InvalidRequest, match="not finite"):
        head = replace(gather.heads[0], key=np.array([np.nan]))
        replace(network, stages=(Gather((head, *gather.heads[1:])), apply))
    with pytest.raises(InvalidRequest, match="spread stage comes first"):
        replace(network, stages=(gather, Spread(("x",), ((0,), (1,), (2,))), apply))
    with pytest.raises(InvalidRequest, match="equally many"):
        Spread(("x",), ((0,), (5,)))
    with pytest.raises(InvalidRequest, match="shapes"):
        GatherHead("h", ("a",), None, np.zeros(2), np.zeros((3, 1)), np.zeros(1))
    with pytest.raises(InvalidRequest, match="for every token"):
        replace(apply, of_token=(0, 0, 0))


def test_a_literal_form_past_memory_is_refused_with_its_size() -> None:
    net = af.sequence("x*mean(x)", tokens=2, domain=LINE, eps=0.01, method="partition")
    assert net.cost.keys > 8192
    with pytest.raises(Infeasible, match="tokens of width"):
        net.literal()
    with pytest.raises(Infeasible):
        to_tokens(net.network)
