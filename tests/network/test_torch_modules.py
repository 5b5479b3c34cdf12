"""The torch module over the plain form: names, parameters, domains, batches, memory."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.errors import InvalidRequest
from attnfun.network import torch_form
from hooks.every_kind import KINDS, differs, inputs, model
from network.networks import points, random_network
from network.test_tokens import random_tokens
from products import few

torch = pytest.importorskip("torch")
BOX = {"x": (1.0, 3.0), "y": (1.0, 3.0)}


@pytest.fixture(scope="module")
def product() -> Any:
    return af.compile("x*y*sqrt(x+y)", BOX, eps=1e-4, method="compose")


def test_weights_have_names_that_say_what_they_are(product: Any) -> None:
    module = product.to_torch()
    names = list(module.state_dict())
    for number, layer in enumerate(product.weights.layers):
        for head in layer.heads:
            own = [name for name in names if name.startswith(f"layers.{number}.heads.") and name.endswith(".q")]
            assert len(own) == len(layer.heads)
            stem = "".join(c if c.isalnum() else "_" for c in head.name)
            assert any(stem.strip("_")[:4] in name for name in own)
    assert not list(module.parameters())
    assert all(part in {n.rpartition(".")[2] for n in names if ".heads." in n} for part in ("q", "k", "v", "o"))


def test_equal_and_reserved_names_stay_apart() -> None:
    from attnfun.network.torch_modules import slugs

    made = slugs(["log(m1)", "log m1", "keys", "", "keys", "log_m1_2", "a.b"])
    assert len(set(made)) == 7 and all("." not in name for name in made)
    module = torch.nn.ModuleDict({name: torch.nn.Identity() for name in made})
    assert list(module) == made


@pytest.mark.parametrize("seed", range(3))
def test_parameters_are_trained_by_an_ordinary_optimiser(seed: int) -> None:
    network = random_network(seed)
    module = network.to_torch(trainable=True)
    X = torch.tensor(points(network, 64))
    frozen = network.to_torch()
    assert torch.equal(module(X), frozen(X)) and [n for n, _ in module.named_parameters()]
    wanted = frozen(X) + 0.5
    step = torch.optim.Adam(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        step.zero_grad()
        loss = ((module(X) - wanted) ** 2).mean()
        loss.backward()
        step.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_points_outside_the_domain_are_refused_cut_or_taken(product: Any) -> None:
    far = torch.tensor([[0.5, 2.0], [2.0, 3.5]], dtype=torch.float64)
    with pytest.raises(InvalidRequest, match="outside the domain"):
        product.to_torch()(far)
    cut = product.to_torch(outside="clamp")(far)
    assert torch.equal(cut, product.to_torch()(far.clamp(1.0, 3.0)))
    assert torch.isfinite(product.to_torch(outside="allow")(far)).all()
    with pytest.raises(InvalidRequest, match="outside="):
        product.to_torch(outside="ignore")
    with pytest.raises(InvalidRequest, match="outside the domain"):
        product.to_torch()(torch.full((1, 2), torch.nan))


def test_ends_of_a_domain_that_float32_rounds_outward_are_inside() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        low, width = rng.uniform(-2, 2), rng.uniform(0.1, 1)
        net = af.compile("2*x + 1", {"x": (low, low + width)}, eps=1e-3)
        module = net.to_torch()
        for end in (low, low + width):
            assert torch.isfinite(module(torch.tensor([[end]], dtype=torch.float32))).all()


@pytest.mark.parametrize("count", [1, 7, 301])
def test_an_exported_program_keeps_the_batch_free(product: Any, count: int) -> None:
    module = product.to_torch()
    example = torch.tensor(np.random.default_rng(0).uniform(1, 3, (5, 2)))
    program = torch.export.export(module, (example,), dynamic_shapes=((({0: torch.export.Dim.AUTO}),),))
    X = torch.tensor(np.random.default_rng(1).uniform(1, 3, (count, 2)))
    assert torch.allclose(program.module()(X), module(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_modules_of_every_kind_are_copied_stored_and_trained_like_any_other(kind: str) -> None:
    one = model(kind, 0)
    module, arrays = one.to_torch(), inputs(one, 3)
    wanted = module(*arrays)
    assert differs(one, wanted, arrays) <= 1.0
    copied, filled = copy.deepcopy(module), one.to_torch(trainable=True)
    assert torch.equal(copied(*arrays), wanted)
    for weight in filled.parameters():
        weight.data.zero_()
    assert filled.load_state_dict(module.state_dict(), strict=True)
    assert torch.equal(filled(*arrays), wanted)
    shapes = {name: weight.shape for name, weight in copied.to("meta").state_dict().items()}
    assert shapes == {name: weight.shape for name, weight in module.state_dict().items()}
    before = ((filled(*arrays) - wanted - 0.1) ** 2).mean()
    before.backward()
    slopes = {name: weight.grad for name, weight in filled.named_parameters() if weight.grad is not None}
    assert any(slope.any() for slope in slopes.values())
    losses = []
    for power in range(0, 60, 4):  # a step that is short enough lowers the loss
        tried = one.to_torch(trainable=True)
        optimiser = torch.optim.SGD(tried.parameters(), lr=2.0**-power)
        for name, weight in tried.named_parameters():
            weight.grad = slopes.get(name)
        optimiser.step()
        assert any(not torch.equal(w, module.state_dict()[name]) for name, w in tried.state_dict().items())
        losses.append(((tried(*arrays) - wanted - 0.1) ** 2).mean().item())
        if losses[-1] < before.item():
            break
    assert losses[-1] < before.item()


@pytest.mark.parametrize("outside", few(["raise", "allow", "clamp"], 2))
def test_compiled_and_exported_programs_cut_points_or_take_them(product: Any, outside: str) -> None:
    module = product.to_torch(outside=outside)
    X = torch.tensor(np.random.default_rng(0).uniform(0, 4, (5, 2)))
    wanted = product.to_torch(outside="clamp" if outside == "clamp" else "allow")
    program = torch.export.export(module, (X,), dynamic_shapes=((({0: torch.export.Dim.AUTO}),),)).module()
    compiled = torch.compile(module, backend="eager", dynamic=True)
    for count in (2, 9):
        given = torch.tensor(np.random.default_rng(count).uniform(0, 4, (count, 2)))
        for run in (program, compiled):
            assert torch.allclose(run(given), wanted(given), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "kind", few(["matching", *(k for k in KINDS if k not in ("matching", "relation")), "relation"], 2)
)
def test_compiled_modules_take_any_batch_without_compiling_anew(kind: str) -> None:
    """The first batch fixes its size, the second one frees it, and no later one is another program."""
    one, made = model(kind, 0), []

    def backend(graph: Any, example: Any) -> Any:
        made.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(one.to_torch(), backend=backend)
    for count in (2, 3, 5, 4, 7):
        arrays = inputs(one, count)
        assert differs(one, compiled(*arrays), arrays) <= 1.0
    assert 1 <= len(made) <= 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles for the CPU with g++")
def test_machine_code_of_a_module_computes_the_same(product: Any) -> None:
    module = product.to_torch()
    compiled = torch.compile(module)
    for count in (3, 50):
        X = torch.tensor(np.random.default_rng(count).uniform(1, 3, (count, 2)))
        assert torch.allclose(compiled(X), module(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_forward_hooks_see_and_change_what_a_head_gives(seed: int) -> None:
    network = random_tokens(seed)
    module, changed = network.to_torch(), network.to_torch()
    X = torch.tensor(np.random.default_rng(seed).normal(size=(2, 4, network.width)))
    number, name = [(0, "b"), (1, "c"), (2, "e")][seed]
    seen: list[Any] = []
    module.layers[number].heads[name].register_forward_hook(lambda _, __, z: seen.append(z) or torch.zeros_like(z))
    changed.layers[number].heads[name].v.zero_()
    assert torch.allclose(module(X), changed(X), rtol=0, atol=1e-12)
    rows = 4 if number == 2 else 4 + len(network.constants)
    assert len(seen) == 1 and seen[0].shape == (2, rows, changed.layers[number].heads[name].o.shape[0])


def test_no_points_and_no_sequences_are_none(product: Any) -> None:
    assert product.to_torch()(torch.zeros(0, 2)).shape == (0,)
    tokens = random_tokens(1)
    assert tokens.to_torch()(torch.zeros(0, 3, tokens.width)).shape == (0, 3, 2)


def weights_at_a_time(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many attention weights each call holds, from now on."""
    seen: list[int] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(q: Any, k: Any, v: Any, **options: Any) -> Any:
        seen.append(q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2])
        return real(q, k, v, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    return seen


def test_one_sequence_of_many_tokens_is_taken_in_blocks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """6,144 constant tokens that attend to each other in three heads are 10^8 weights for one sequence."""
    from attnfun.network import torch_modules

    network = random_tokens(3, constants=150)
    X = torch.tensor(np.random.default_rng(0).normal(size=(2, 6, network.width)))
    whole = network.to_torch()(X)
    seen = weights_at_a_time(monkeypatch)
    monkeypatch.setattr(torch_modules, "_BLOCK", 1 << 11)
    assert torch.allclose(network.to_torch()(X), whole, rtol=0, atol=1e-12)
    assert max(seen) <= 1 << 11


def test_many_sequences_never_hold_more_weights_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 sequences over thousands of keys would take terabytes at once."""
    from attnfun.network import torch_modules

    seen = weights_at_a_time(monkeypatch)
    monkeypatch.setattr(torch_modules, "_BLOCK", 1 << 12)
    network = random_tokens(3, constants=9)
    X = torch.tensor(np.random.default_rng(0).normal(size=(300, 6, network.width)))
    blocks = network.to_torch()(X)
    assert max(seen) <= 1 << 12 and len(seen) > 20
    monkeypatch.setattr(torch_modules, "_BLOCK", 1 << 30)
    assert torch.allclose(network.to_torch()(X), blocks, rtol=0, atol=1e-12)


def test_only_the_given_tokens_ask_in_the_last_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda q, k, v, **o: asked.append(q.shape[2]) or real(q, k, v, **o),  # type: ignore[func-returns-value]
    )
    network = random_tokens(3, constants=50)
    network.to_torch()(torch.tensor(np.random.default_rng(0).normal(size=(2, 6, network.width))))
    assert asked[-1] == 6 and all(rows == 56 for rows in asked[:-1])


def test_without_torch_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(af.AttnfunError, match="pip install torch"):
        torch_form.torch_dtype("float64", None)
