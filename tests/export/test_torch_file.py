"""The exported program is the network: any batch, no attnfun needed, nothing left behind on failure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnfun.certify.verdict import undecided, verdict
from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.export import export
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.model import Model, about
from attnfun.network.evaluate import evaluate
from attnfun.network.head import Axis, Head
from attnfun.network.network import Layer, Network
from attnfun.network.relu import ReluBlock

torch = pytest.importorskip("torch")


def modelled(network: Network) -> Model[Any, Any]:
    """A model of these weights, of which nothing is known."""
    box = Box.parse(dict(zip(network.inputs, zip(*(end.tolist() for end in network.box)))))
    target = Function.read(["x"] * len(network.outputs), box)
    return Model(target, network, verdict(undecided("made up"), None, about(target, network)))


def two_layer_network(outputs: int) -> Network:
    """Two heads of different size in the first layer, one on both of their coordinates in the second."""
    rng = np.random.default_rng(5)

    def axis(width: int, reads: int, keys: int) -> Axis:
        query = np.zeros((1, width))
        query[0, reads] = 1.0
        return Axis(query, rng.normal(size=1), rng.normal(size=(keys, 1)), rng.normal(size=keys))

    first = Head("a", (axis(2, 0, 4), axis(2, 1, 3)), rng.normal(size=(4, 3, 1)), ("u",))
    second = Head("b", (axis(2, 1, 5),), rng.normal(size=(5, 2)), ("v", "w"))
    third = Head("c", (axis(5, 3, 6),), rng.normal(size=(6, 1)), ("z",))
    ends = np.array([-1.0, 0.0]), np.array([1.0, 3.0])
    names = tuple(f"f{k}" for k in range(outputs))
    layers = (Layer((first, second)), Layer((third,)))
    return Network(("x", "y"), layers, rng.normal(size=(outputs, 6)), rng.normal(size=outputs), names, ends)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_program_computes_the_network_for_any_batch(outputs: int, tmp_path: Path) -> None:
    network = two_layer_network(outputs)
    report = export(modelled(network), tmp_path / "f.pt2")
    assert report["difference"] <= 1e-13
    program = torch.export.load(tmp_path / "f.pt2").module()
    for batch in (1, 4, 1000):
        X = np.random.default_rng(batch).uniform(*network.box, (batch, 2))
        seen = program(torch.tensor(X)).numpy()
        assert seen.shape == ((batch,) if outputs == 1 else (batch, outputs))
        assert np.abs(seen.reshape(batch, -1) - np.asarray(evaluate(network, X)).reshape(batch, -1)).max() <= 1e-13


def test_float32_is_exported_on_request(tmp_path: Path) -> None:
    export(modelled(two_layer_network(1)), tmp_path / "f.pt2", dtype="float32")
    assert torch.export.load(tmp_path / "f.pt2").module()(torch.zeros(3, 2)).dtype == torch.float32


def test_a_program_that_differs_is_not_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["attnfun.export"], "compare", lambda *_: (float("nan"), 1.0, ("", "")))
    with pytest.raises(AttnfunError, match="differs"):
        export(modelled(two_layer_network(1)), tmp_path / "f.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"to": "jax"}, {"to": "keras"}, {"dtype": "float16"}])
def test_what_is_not_offered_is_refused_by_name(options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(options.values()))):
        export(modelled(two_layer_network(1)), tmp_path / "f.pt2", **options)


@pytest.mark.parametrize("outputs", [1, 2])
def test_an_mlp_is_exported_too(outputs: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    axis = Axis(rng.normal(size=(1, 2)), rng.normal(size=1), rng.normal(size=(7, 1)), rng.normal(size=7))
    names = tuple(f"f{k}" for k in range(outputs))
    layer = Layer((ReluBlock("b", axis, rng.normal(size=(7, 1)), ("z",)),))
    ends = np.array([-1.0, 0.0]), np.array([1.0, 3.0])
    network = Network(("x", "y"), (layer,), rng.normal(size=(outputs, 3)), rng.normal(size=outputs), names, ends)
    assert export(modelled(network), tmp_path / "f.pt2")["difference"] <= 1e-13
    program = torch.export.load(tmp_path / "f.pt2").module()
    for batch in (1, 1000):
        X = np.random.default_rng(batch).uniform(*network.box, (batch, 2))
        seen = program(torch.tensor(X)).numpy()
        assert seen.shape == ((batch,) if outputs == 1 else (batch, outputs))
        assert np.abs(seen.reshape(batch, -1) - evaluate(network, X)).max() <= 1e-13


def test_networks_on_tokens_and_towers_are_exported_by_the_same_path(tmp_path: Path) -> None:
    import attnfun as af

    for model in (af.matching(4, 7, 2), af.relation("exp(x*y)", {"x": (0, 1)}, {"y": (0, 1)}, 1e-2)):
        report = export(model, tmp_path / "m.pt2")
        assert report["difference"] <= report["allowed"] <= 1e-10 and report["input"].startswith("(batch, ")
    scores = torch.export.load(tmp_path / "m.pt2").module()
    assert scores(torch.zeros(5, 1).double(), torch.zeros(9, 1).double()).shape == (5, 9)


def test_what_is_no_model_or_has_no_network_is_refused(tmp_path: Path) -> None:
    import attnfun as af

    for what, why in (
        (two_layer_network(1), "models"),
        (af.ternary("x*y*z", "x=0:1;y=0:1;z=0:1", 1e-3), "nothing to export"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            export(what, tmp_path / "f.pt2")
