from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.network import Axis, Head, Layer, Network, evaluate, stream
from attnfun.network.literal import GAP, literal, shut_out
from attnfun.network.plain import stacked
from network.networks import grid_axis, partition, points, random_network

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}


def forms(network: Network) -> list[tuple[str, tuple[str, ...]]]:
    return [("self", ()), ("cross", ()), ("joint", network.inputs[:1])]


def sequences(network: Network, X: np.ndarray, form: str, second: tuple[str, ...]) -> list[np.ndarray]:
    if form != "joint":
        return [X]
    columns = [network.inputs.index(name) for name in second]
    return [np.delete(X, columns, axis=1), X[:, columns]]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(5))
def test_every_literal_form_agrees_with_the_memory_form(seed: int, dtype: str) -> None:
    network = random_network(seed, dtype)
    X = points(network, 50)
    expected = evaluate(network, X)
    for form, second in forms(network):
        found = literal(network, form, second).run(*sequences(network, X, form, second))
        assert found.dtype == np.dtype(dtype)
        assert np.abs(found - expected).max() <= 2000 * UNIT[dtype], form


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_shut_out_tokens_have_weight_exactly_zero(dtype: str) -> None:
    for seed in range(5):
        network = random_network(seed, dtype)
        X = np.concatenate([points(network, 20), [network.low, network.high]])
        form = literal(network, "self")
        keys = [head.keys for head in network.heads]
        starts = len(X) + np.concatenate([[0], np.cumsum(keys)])
        flat = [weight for layer in form.attention(X) for weight in layer]
        for number, weight in enumerate(flat):
            own = np.zeros(weight.shape[1], bool)
            own[starts[number] : starts[number + 1]] = True
            assert (weight[: len(X), ~own] == 0.0).all()
            assert np.allclose(weight[: len(X), own].sum(axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_gap_is_kept_over_the_whole_box(dtype: str) -> None:
    """Also where logits are large, every key falls far below zero somewhere, and the stream is offset."""
    for network in (partition(16, 2, 200.0, dtype), partition(40, 1, 30.0, dtype), random_network(7, dtype)):
        X = np.concatenate([points(network, 300), [network.low, network.high]])
        form = literal(network, "self")
        Z = stream(network, X).astype(np.float64)
        for layer in network.layers:
            for head in layer.heads:
                K, b = head.dense_keys()
                Q, c = head.query_map
                largest = ((Z[:, : head.width] @ Q.T + c) @ K.T + b).max(axis=1)
                closed = shut_out(network, layer, head)
                assert (largest - closed >= GAP[dtype]).all()
                assert np.array(closed, dtype) == closed
        assert np.isfinite(form.run(X[:5])).all()


def test_points_do_not_see_each_other() -> None:
    network = random_network(2)
    X = points(network, 30)
    form = literal(network, "self")
    alone = np.concatenate([form.run(x[None]) for x in X])
    np.testing.assert_allclose(form.run(X), alone, rtol=0, atol=1e-13)


def test_the_rank_of_the_matrices_is_the_cost() -> None:
    for seed in range(4):
        network = random_network(seed)
        form = literal(network, "cross")
        for layer, plain in zip(network.layers, form.layers, strict=True):
            row = 0
            for head, matrices in zip(layer.heads, plain.heads, strict=True):
                assert plain.memory is not None
                own = plain.memory[row : row + head.keys]
                assert np.linalg.matrix_rank(matrices.query @ (own @ matrices.key).T) == head.rank
                row += head.keys


def test_bad_forms_and_sizes_are_refused() -> None:
    network = random_network(0)
    for form, second in [
        ("diagonal", ()),
        ("cross", ("x0",)),
        ("joint", ()),
        ("joint", ("x0", "x1")),
        ("joint", ("z",)),
    ]:
        with pytest.raises(InvalidRequest):
            literal(network, form, second)
        with pytest.raises(InvalidRequest):
            network.to_torch(form=form, second=second)
    with pytest.raises(InvalidRequest):
        literal(network, "joint", ("x1",)).run(np.zeros((3, 1)), np.zeros((2, 1)))
    with pytest.raises(InvalidRequest):
        literal(network, "cross").run(np.zeros((3, 3)))
    with pytest.raises(Infeasible, match="entries"):
        literal(partition(4000, 2), "self")
    with pytest.raises(Infeasible):
        literal(partition(4000, 2), "cross")
    with pytest.raises(InvalidRequest, match="float16"):
        network.to_torch("float16")


def test_a_partition_in_self_and_cross_form() -> None:
    network = partition(12, 2, 200.0)
    X = points(network, 400)
    for form in ("self", "cross"):
        assert np.abs(literal(network, form).run(X) - evaluate(network, X)).max() < 1e-9


def counted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    torch = pytest.importorskip("torch")
    calls: list[dict[str, Any]] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return real(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    return calls


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(4))
def test_torch_agrees_with_one_attention_call_per_shape_of_heads(
    monkeypatch: pytest.MonkeyPatch, seed: int, dtype: str
) -> None:
    torch = pytest.importorskip("torch")
    calls = counted(monkeypatch)
    for own in ("float64", "float32"):
        network = random_network(seed, own)
        X = points(network, 40)
        expected = evaluate(network, X)
        for form, second in forms(network):
            module = network.to_torch(getattr(torch, dtype), form=form, second=second)
            assert isinstance(module, torch.nn.Module)
            calls.clear()
            inputs = [torch.tensor(part) for part in sequences(network, X, form, second)]
            found = module(*inputs)
            plain = network.plain(dtype, form=form, second=second)
            assert len(calls) == sum(len(stacked(layer.heads)) for layer in plain.layers) and all(
                call == {"scale": 1.0} for call in calls
            )
            assert found.dtype == getattr(torch, dtype) and found.shape == (40, 2)
            unit = max(UNIT[own], UNIT[dtype])
            assert np.abs(found.numpy() - expected).max() <= 4000 * unit, form


def test_torch_gives_one_column_as_a_vector_and_keeps_batches() -> None:
    torch = pytest.importorskip("torch")
    network = partition(12, 2, 200.0)
    X = torch.tensor(points(network, 60))
    module = network.to_torch()
    assert module(X).shape == (60,) and network.to_torch(form="self")(X).shape == (60,)
    assert module(X[:0]).shape == (0,) and network.to_torch(form="self")(X[:0]).shape == (0,)
    assert torch.equal(module(X.reshape(3, 20, 2)), module(X).reshape(3, 20))
    assert not list(module.parameters()) and any(name.startswith("layers.0.heads.") for name in module.state_dict())
    assert np.abs(module(X).numpy() - evaluate(network, X.numpy())[:, 0]).max() < 1e-9
    with pytest.raises(InvalidRequest):
        module(X[:, :1])


def test_torch_takes_many_points_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    calls = counted(monkeypatch)
    network = partition(60, 2, 100.0)
    X = points(network, 3000)
    found = network.to_torch()(torch.tensor(X)).numpy()
    assert len(calls) == 3
    assert np.abs(found - evaluate(network, X)[:, 0]).max() < 1e-8


def test_filled_up_keys_weigh_nothing_in_torch() -> None:
    """A head of two keys beside one of fifty: its padding would show in the denominator."""
    torch = pytest.importorskip("torch")
    small = Head("s", (Axis(np.ones((1, 1)), np.zeros(1), [[-300.0], [-200.0]], [-50.0, 0.0]),), [[1.0], [1.0]], ("s",))
    big = Head("b", (grid_axis(np.linspace(0, 9, 50), 5.0, 0, 1),), np.ones((50, 1)), ("b",))
    box = (np.array([0.0]), np.array([9.0]))
    network = Network(("x",), (Layer((small, big)),), np.array([[0.0, 1.0, 0.0]]), np.zeros(1), ("f",), box)
    X = torch.linspace(0, 9, 200, dtype=torch.float64)[:, None]
    for dtype in (torch.float64, torch.float32):
        for form in ("cross", "self"):
            assert (network.to_torch(dtype, form=form)(X) == 1.0).all()
