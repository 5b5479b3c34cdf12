"""The torch module over the plain form: names, parameters, domains, batches, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.errors import InvalidRequest
from attnfun.network import torch_form
from network.networks import points, random_network
from network.test_tokens import random_tokens

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


def test_many_sequences_never_hold_more_weights_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 sequences over thousands of keys would take terabytes at once."""
    from attnfun.network import torch_modules

    seen: list[int] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(q: Any, k: Any, v: Any, **options: Any) -> Any:
        seen.append(q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2])
        return real(q, k, v, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
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
