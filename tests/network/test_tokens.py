"""Plain self-attention on token matrices: NumPy, torch and the file say the same; bad shapes are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.network import TokenHead, TokenLayer, TokenNetwork, tokens
from attnfun.network.tokens import layer_output
from stored import load, save


def random_tokens(seed: int, dtype: str = "float64", constants: int = 3) -> TokenNetwork:
    rng = np.random.default_rng(seed)
    width = 5

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(dtype).astype(np.float64) * 0.5

    def head(name: str, r: int, p: int) -> TokenHead:
        return TokenHead(name, weights(width, r), weights(width, r), weights(width, p), weights(p, width))

    layers = (
        TokenLayer((head("a", 2, 1), head("b", 3, 2))),
        TokenLayer((head("c", 1, 4),), weights(width, width)),
        TokenLayer((head("d", 5, 5), head("e", 2, 1), head("f", 1, 1))),
    )
    names = tuple(f"z{i}" for i in range(width))
    return TokenNetwork(names, layers, weights(constants, width), weights(width, 2), ("u", "v"), dtype)


def by_hand(network: TokenNetwork, X: np.ndarray) -> np.ndarray:
    Z = np.concatenate([X, network.constants])
    for layer in network.layers:
        new = Z @ (np.eye(network.width) if layer.carry is None else layer.carry)
        for head in layer.heads:
            A = np.exp((Z @ head.query) @ (Z @ head.key).T)
            new = new + (A / A.sum(axis=1, keepdims=True)) @ (Z @ head.value) @ head.output
        Z = new
    return Z[: len(X)] @ network.readout


@pytest.mark.parametrize("constants", [0, 3])
def test_run_is_the_formula_and_torch_agrees_with_one_call_a_layer(
    constants: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    network = random_tokens(1, constants=constants)
    X = np.random.default_rng(2).normal(size=(4, 7, 5))
    expected = np.stack([by_hand(network, one) for one in X])
    assert np.abs(network.run(X) - expected).max() < 1e-12
    assert np.abs(network.run(X[0]) - expected[0]).max() < 1e-12
    calls = []
    real = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or real(*a, **k)
    )
    module = network.to_torch()
    assert np.abs(module(torch.tensor(X)).numpy() - expected).max() < 1e-12
    assert len(calls) == len(network.layers)
    assert np.abs(module(torch.tensor(X[1])).numpy() - expected[1]).max() < 1e-12


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 19])
def test_heads_that_move_one_coordinate_have_the_bits_of_their_matrices(count: int, dtype: str) -> None:
    """Also where sums are over few keys, and where numbers leave the range: there a product with 0 is no longer 0."""
    rng = np.random.default_rng([7, count])

    def one(shape: tuple[int, int]) -> np.ndarray:
        matrix = np.zeros(shape)
        matrix[tuple(rng.integers(shape))] = rng.normal()
        return matrix.astype(dtype).astype(np.float64)

    def head(k: int) -> TokenHead:
        query, key = rng.normal(size=(2, 9, 2)).astype(dtype).astype(np.float64)
        return TokenHead(f"h{k}", query, key, one((9, 1)), one((1, 9)))

    layer = TokenLayer(tuple(head(k) for k in range(12)))
    assert all(head.moved for head in layer.heads)
    for last in (0.5, -0.0, 1e300, np.inf, np.nan):
        with np.errstate(all="ignore"):
            Z = rng.normal(size=(5, count, 9)).astype(dtype)
            Z[-1, -1, :3] = last
            wanted = Z
            for own in layer.heads:
                query, key, value, output = (array.astype(dtype) for array in own.arrays.values())
                logits = (Z @ query) @ np.swapaxes(Z @ key, 1, 2)
                terms = np.exp(logits - logits.max(axis=2, keepdims=True))
                wanted = wanted + ((terms @ (Z @ value)) / terms.sum(axis=2, keepdims=True)) @ output
            found = layer_output(layer, Z)
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted, equal_nan=True)
        assert np.isfinite(found).all() or last not in (0.5, 0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("first", [0, 2])
def test_many_heads_that_move_one_coordinate_are_few_products(
    first: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to rounding they add what they add one by one; where numbers leave the range, bit for bit."""
    rng = np.random.default_rng([8, first])
    heads = []
    for k in range(70):
        value, output = np.zeros((9, 1)), np.zeros((1, 9))
        value[k % 5, 0], output[0, k % 3] = 1.5, 0.25
        query, key = rng.normal(size=(2, 9, 1 + (k >= 50))).astype(dtype).astype(np.float64)
        heads.append(TokenHead(f"h{k}", query, key, value, output))
    layer, calls = TokenLayer(tuple(heads)), []
    real = tokens.attention_terms
    monkeypatch.setattr(tokens, "attention_terms", lambda *args: calls.append(1) or real(*args))
    for last in (0.5, 1e300 if dtype == "float64" else 1e38):
        Z = rng.normal(size=(6, 4, 9)).astype(dtype)
        Z[-1, -1, :] = last
        with np.errstate(all="ignore"):
            calls.clear()
            found = layer_output(layer, Z, first)
            assert found.dtype == Z.dtype and len(calls) == (0 if last == 0.5 else len(heads))
            with monkeypatch.context() as alone:
                alone.setattr(tokens, "_MANY", 1000)
                wanted = layer_output(layer, Z, first)
        if last == 0.5:
            assert np.allclose(found, wanted, rtol=0, atol=1e-13 if dtype == "float64" else 1e-5)
        else:
            assert np.array_equal(found, wanted, equal_nan=True)


def test_float32_is_computed_in_float32() -> None:
    network = random_tokens(3, "float32")
    X = np.random.default_rng(4).normal(size=(6, 5)).astype(np.float32)
    out = network.run(X)
    assert out.dtype == np.float32
    assert 0 < np.abs(out - by_hand(network, X.astype(np.float64))).max() < 1e-4


def test_stream_starts_with_the_tokens_and_ends_in_the_output() -> None:
    network = random_tokens(5)
    X = np.random.default_rng(6).normal(size=(3, 5))
    seen = network.stream(X)
    assert len(seen) == len(network.layers) + 1
    assert np.array_equal(seen[0], np.concatenate([X, network.constants]))
    assert np.array_equal(seen[-1][:3] @ network.readout, network.run(X))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_file_round_trip(tmp_path: Path, dtype: str) -> None:
    network = random_tokens(7, dtype)
    path = tmp_path / "t.safetensors"
    save(path, network, {"target": {"task": "x"}, "request": {"eps": 1.0}}, "matching")
    again, meta = load(path)
    assert meta["target"] == {"task": "x"} and meta["dtype"] == dtype
    assert [(n, a.tobytes()) for n, a in network.arrays()] == [(n, a.tobytes()) for n, a in again.arrays()]
    assert again.coordinates == network.coordinates and [h.name for h in again.heads] == list("abcdef")
    before = path.read_bytes()
    save(path, again, {"target": {"task": "x"}, "request": {"eps": 1.0}}, "matching")
    assert path.read_bytes() == before


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save(path, random_tokens(8), {"target": {"task": "x"}}, "matching")
    data = path.read_bytes()
    rng = np.random.default_rng(9)
    for place in rng.integers(0, len(data), 200):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(flipped))
        try:
            network, meta = load(path)
        except DamagedFile:
            continue
        pytest.fail(f"byte {place} was changed and nobody saw: {json.dumps(meta)[:80]}, {network.outputs}")
    path.write_bytes(data[:-8])
    with pytest.raises(DamagedFile):
        load(path)


def test_what_is_no_network_is_refused() -> None:
    eye = np.eye(2)
    good = TokenHead("h", eye, eye, eye, eye)
    with pytest.raises(InvalidRequest, match="shapes"):
        TokenHead("h", eye, np.ones((2, 1)), eye, eye)
    with pytest.raises(InvalidRequest, match="at least one head"):
        TokenLayer(())
    with pytest.raises(InvalidRequest, match="carry"):
        TokenLayer((good,), np.eye(3))
    with pytest.raises(InvalidRequest, match="read-out"):
        TokenNetwork(("a", "b"), (TokenLayer((good,)),), np.zeros((0, 2)), np.eye(3), ("u",))
    with pytest.raises(InvalidRequest, match="not finite"):
        TokenNetwork(("a", "b"), (), np.zeros((0, 2)), np.array([[np.nan], [0.0]]), ("u",))
    with pytest.raises(InvalidRequest, match="float32"):
        TokenNetwork(("a", "b"), (), np.zeros((0, 2)), np.array([[0.1], [0.0]]), ("u",), "float32")
    network = TokenNetwork(("a", "b"), (TokenLayer((good,)),), np.zeros((0, 2)), np.ones((2, 1)), ("u",))
    with pytest.raises(InvalidRequest, match="tokens of shape"):
        network.run(np.zeros((3, 4)))
