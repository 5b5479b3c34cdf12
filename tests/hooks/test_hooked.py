"""to_hooked: the names TransformerLens users know, the network's own numbers, and patches that do what labels say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.network.evaluate import evaluate
from hooks.every_kind import KINDS, differs, inputs, model
from network.networks import points, random_network
from network.test_relu import random_mlp
from network.test_tokens import random_tokens

torch = pytest.importorskip("torch")
lens = pytest.importorskip("transformer_lens", reason="transformer-lens is large: `make test-hooks` installs it")
BOX = {"x": (1.0, 3.0), "y": (1.0, 3.0)}
ATTN = ("q", "k", "v", "attn_scores", "pattern", "z", "result")


@pytest.mark.parametrize("seed", (0, 1))
@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_the_network_does_and_caches_every_step(kind: str, seed: int) -> None:
    one = model(kind, seed)
    hooked, arrays = one.to_hooked(), inputs(one, 3)
    assert isinstance(hooked, lens.HookedRootModule)
    seen, cache = hooked.run_with_cache(*arrays)
    assert differs(one, seen, arrays) <= 1.0
    assert set(cache) == set(hooked.hook_dict)
    towers = getattr(hooked, "towers", None)
    for stem, cfg in [("", hooked.cfg)] if towers is None else [(f"towers.{k}.", t.cfg) for k, t in enumerate(towers)]:
        batch, pos, width = cache[f"{stem}hook_embed"].shape
        assert width == cfg.d_model == len(cfg.coordinates) and cfg.n_ctx in (None, pos)
        positions = cfg.positions(pos - cfg.constants)
        assert len(positions) == pos
        for layer in range(cfg.n_layers):
            block = f"{stem}blocks.{layer}."
            heads = cfg.heads[layer]
            assert cache[f"{block}hook_resid_post"].shape == (batch, pos, width)
            if heads:
                pattern = cache[f"{block}attn.hook_pattern"]
                assert pattern.shape[:3] == (batch, len(heads), pos)
                assert torch.allclose(pattern.sum(-1), torch.ones((), dtype=pattern.dtype), rtol=0, atol=1e-5)
                for head in range(len(heads)):
                    labels = cfg.keys(layer, head, pos - cfg.constants)
                    assert len(set(labels)) == len(labels) <= pattern.shape[3]
                    assert not pattern[:, head, :, len(labels) :].any()
                assert cache[f"{block}attn.hook_q"].shape[:3] == (batch, pos, len(heads))
                result = cache[f"{block}attn.hook_result"]
                assert torch.equal(result.sum(2), cache[f"{block}hook_attn_out"])


@pytest.mark.parametrize("seed", range(6))
def test_heads_of_every_size_units_and_forms_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(seed, ("float64", "float32")[seed % 2])
    X = points(network, 7)
    for own, form in ((network, {}), (network, {"form": "self"}), (random_mlp(seed), {})):
        wanted = evaluate(own, X)
        hooked = own.to_hooked(**form)
        seen, cache = hooked.run_with_cache(torch.tensor(X))
        bound = 2**14 * np.finfo(own.dtype).eps * max(1.0, np.abs(wanted).max())
        assert seen.shape == wanted.shape and np.abs(seen.double().numpy() - wanted).max() <= bound
        assert own is network or {"blocks.0.mlp.hook_pre", "blocks.0.hook_mlp_out", "blocks.0.hook_resid_mid"} <= set(
            cache
        )
    tokens = random_tokens(seed, constants=int(rng.integers(0, 4)))
    Z = rng.normal(size=(3, 4, tokens.width))
    assert np.abs(tokens.to_hooked()(torch.tensor(Z)).numpy() - tokens.run(Z)).max() <= 1e-12


@pytest.fixture(scope="module")
def product() -> Any:
    """Its program: exp(log(x) + log(y) + 0.5*log(x + y)); every head of the first layer is one of the logarithms."""
    return af.compile("x*y*sqrt(x+y)", BOX, eps=1e-4, method="compose")


LOGS = {
    "log(x)": (lambda x, y: x, 1.0),
    "log(y)": (lambda x, y: y, 1.0),
    "log(x + y)": (lambda x, y: x + y, 0.5),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_zeroed_head_takes_just_its_part_out_of_the_program(product: Any, name: str) -> None:
    """A head writes log(u) − (a u + b), and a u + b rides in the stream: without the head the program has a u + b."""
    hooked = product.to_hooked()
    place = hooked.cfg.heads[0].index(name)
    label = next(one for one in product.weights.labels.coordinates if one.name == name)
    X = np.random.default_rng(len(name)).uniform(1, 3, (40, 2))
    (argument, weight), (x, y) = LOGS[name], X.T
    u = argument(x, y)

    def zero(z: Any, hook: Any) -> Any:
        z[:, :, place] = 0.0
        return z

    names = [("blocks.0.attn.hook_z", zero)], [("blocks.0.attn.hook_v", zero)], [("blocks.0.attn.hook_result", zero)]
    seen = [hooked.run_with_hooks(torch.tensor(X), fwd_hooks=hooks).numpy() for hooks in names]
    assert all(np.abs(one - seen[0]).max() <= 1e-12 for one in seen)
    layer = product.weights.layers[0]
    heads = tuple(replace(h, values=0 * h.values) if h.name == name else h for h in layer.heads)
    without = replace(product.weights, layers=(replace(layer, heads=heads), *product.weights.layers[1:]), labels=None)
    assert np.abs(seen[0] - evaluate(without, X)[:, 0]).max() <= 1e-12
    program = np.exp(np.log(x * y * np.sqrt(x + y)) + weight * (label.slope * u + label.offset - np.log(u)))
    assert np.abs(seen[0] - program).max() <= 1e-3 < 0.1 * np.abs(seen[0] - product(X)).min()
    assert np.abs(hooked(torch.tensor(X)).numpy() - product(X)).max() <= 1e-12  # no hook is left, no weight was written


@pytest.mark.parametrize("name", LOGS)
def test_a_head_patched_from_another_run_brings_that_runs_value(product: Any, name: str) -> None:
    hooked = product.to_hooked()
    place = hooked.cfg.heads[0].index(name)
    rng = np.random.default_rng(len(name))
    X = rng.uniform(1, 3, (40, 2))
    other = X + rng.uniform(-0.01, 0.01, X.shape) * 0.5
    X, other = X.clip(1, 3), other.clip(1, 3)
    _, cache = hooked.run_with_cache(torch.tensor(other))

    def patch(z: Any, hook: Any) -> Any:
        z[:, :, place] = cache[hook.name][:, :, place]
        return z

    seen = hooked.run_with_hooks(torch.tensor(X), fwd_hooks=[("blocks.0.attn.hook_z", patch)]).numpy()
    label = next(one for one in product.weights.labels.coordinates if one.name == name)
    (argument, weight), (x, y) = LOGS[name], X.T
    u, v = argument(*X.T), argument(*other.T)
    program = np.exp(np.log(x * y * np.sqrt(x + y)) + weight * (np.log(v / u) + label.slope * (u - v)))
    assert np.abs(seen - program).max() <= 1e-3 < np.abs(seen - product(X)).max()


def test_one_side_of_a_relation_is_patched_alone() -> None:
    symmetric = af.relation("exp(-(x-y)**2)", {"x": (0, 1)}, {"y": (0, 1)}, 1e-2, symmetric=True)
    hooked = symmetric.to_hooked()
    X = torch.rand(4, 1, dtype=torch.float64)

    def zero(features: Any, hook: Any) -> Any:
        return 0 * features

    _, cache = hooked.run_with_cache(X, X)
    mine, theirs = (cache[f"towers.{k}.hook_readout"] for k in (0, 1))
    assert torch.equal(mine, theirs)
    assert not hooked.run_with_hooks(X, X, fwd_hooks=[("towers.0.hook_readout", zero)]).any()
    _, cache = hooked.run_with_cache(X, X)
    assert torch.equal(cache["hook_scores"], symmetric.to_torch()(X, X))


def test_the_domain_is_watched_and_a_coarser_dtype_warned_of(product: Any) -> None:
    far = torch.full((1, 2), 9.0)
    with pytest.raises(af.InvalidRequest, match="outside the domain"):
        product.to_hooked()(far)
    assert torch.isfinite(product.to_hooked(outside="clamp")(far)).all()
    with pytest.warns(UserWarning, match="float64 arithmetic"):
        product.to_hooked("float32")
    with pytest.raises(af.InvalidRequest, match="to_torch"):
        product.to_hooked().save_pretrained("nowhere")


def test_without_transformer_lens_the_package_is_named(product: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "transformer_lens", None)
    with pytest.raises(af.AttnfunError, match="transformer_lens is not installed: pip install transformer-lens"):
        product.to_hooked()
