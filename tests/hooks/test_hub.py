"""A module is a folder of the Hub and comes back from it; what it says of its certificate is true of its weights."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.errors import AttnfunError, DamagedFile, InvalidRequest
from hooks.every_kind import KINDS, inputs, model
from network.networks import points, random_network

torch = pytest.importorskip("torch")
pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: pip install huggingface_hub")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_holds_the_module_and_what_is_known_of_it(kind: str, tmp_path: Path) -> None:
    one = model(kind, 0)
    module, arrays = one.to_torch(), inputs(one, 3)
    module.save_pretrained(tmp_path)
    again = af.load_pretrained(tmp_path)
    assert type(again) is type(module) and torch.equal(again(*arrays), module(*arrays))
    mine, theirs = module.state_dict(), again.state_dict()
    assert list(mine) == list(theirs) and all(torch.equal(mine[name], theirs[name]) for name in mine)
    said = config(tmp_path)
    assert said["about"]["target"] == one.target.text and one.certificate.sentence in said["about"]["certificate"]
    card = (tmp_path / "README.md").read_text()
    assert one.certificate.sentence in card and one.target.text in card and said["hash"] in card
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]


@pytest.mark.parametrize("seed", range(3))
def test_random_networks_come_back_bit_for_bit_with_their_domain(seed: int, tmp_path: Path) -> None:
    network = random_network(seed, "float32" if seed % 2 else "float64")
    for form in ("cross", "self"):
        module = network.to_torch(form=form, outside="clamp")
        module.save_pretrained(tmp_path / form)
        again = type(module).from_pretrained(tmp_path / form)
        X = torch.tensor(points(network, 9) * 2)  # some are outside
        assert torch.equal(again(X), module(X)) and again.outside == "clamp"
        strict = af.load_pretrained(tmp_path / form, outside="raise", trainable=True)
        assert list(dict(strict.named_parameters())) == list(module.state_dict())
        with pytest.raises(InvalidRequest, match="outside the domain"):
            strict(X * 100)


def test_weights_that_changed_are_not_said_to_be_certified(tmp_path: Path) -> None:
    one = model("function", 1)
    trained, coarse = one.to_torch(trainable=True), one.to_torch()
    with torch.no_grad():
        next(trained.parameters()).add_(1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked = one.to_torch("float32") if one.dtype == "float64" else coarse.bfloat16()
    for number, module in enumerate((trained, asked)):
        module.save_pretrained(tmp_path / str(number))
        for text in (
            config(tmp_path / str(number))["about"]["certificate"],
            (tmp_path / f"{number}/README.md").read_text(),
        ):
            assert one.certificate.sentence not in text
            assert "no certificate is about them" in text or "says nothing of weights in" in text


def test_a_loaded_certificate_is_never_fresh_and_is_said_to_be_stored_once(tmp_path: Path) -> None:
    one = model("function", 0)
    one.to_torch().save_pretrained(tmp_path / "a")
    for old, new in ("ab", "bc"):
        af.load_pretrained(tmp_path / old).save_pretrained(tmp_path / new)
        said = config(tmp_path / new)["about"]["certificate"]
        assert said.startswith("As stored, not verified") and said.count("not verified") == 1


def test_a_card_of_other_weights_is_written_anew_and_a_users_own_is_kept(tmp_path: Path) -> None:
    first, second = model("function", 0), model("function", 1)
    for one in (first, second):
        one.to_torch().save_pretrained(tmp_path)
    assert second.certificate.sentence in (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text("mine")
    first.to_torch().save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("seed", range(12))
def test_folders_that_do_not_fit_are_refused_in_one_sentence(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    model("function", 0).to_torch().save_pretrained(tmp_path)
    said = config(tmp_path)
    if seed == 0:
        (tmp_path / "model.safetensors").unlink()
    elif seed == 1:
        model("function", 1).to_torch().save_pretrained(tmp_path / "other")
        (tmp_path / "other/model.safetensors").replace(tmp_path / "model.safetensors")
    elif seed == 2:
        (tmp_path / "model.safetensors").write_bytes(b"\x00" * 40)
    elif seed == 3:
        (tmp_path / "config.json").write_text("{}")
    else:
        places = [(tree, key) for tree in (said, said["plain"], *said["plain"]["layers"]) for key in tree]
        tree, key = places[int(rng.integers(len(places)))]
        tree[key] = [5, "x", [], {"is": "Plain"}][int(rng.integers(4))]
        (tmp_path / "config.json").write_text(json.dumps(said))
    with pytest.raises((InvalidRequest, DamagedFile)) as found:
        af.load_pretrained(tmp_path)
    assert "\n" not in str(found.value)


def test_what_is_nowhere_pickled_or_not_writable_is_refused(tmp_path: Path) -> None:
    for name in (str(tmp_path / "none"), "nobody/nothing"):
        with pytest.raises(InvalidRequest, match=name.rpartition("/")[2]):
            af.load_pretrained(name)
    module = model("function", 0).to_torch()
    (tmp_path / "file").write_text("")
    with pytest.raises(AttnfunError, match="cannot write"):
        module.save_pretrained(tmp_path / "file")
    from attnfun.network.hub import Pretrained

    with pytest.raises(InvalidRequest, match="pickle"):
        Pretrained._load_as_pickle(None, "pytorch_model.bin", "cpu", True)
    other = model("relation", 0).to_torch()
    module.save_pretrained(tmp_path / "m")
    with pytest.raises(InvalidRequest, match="load_pretrained"):
        type(other).from_pretrained(tmp_path / "m")


def test_without_huggingface_hub_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    module = model("function", 0).to_torch()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for action in (lambda: module.save_pretrained(tmp_path), lambda: af.load_pretrained(tmp_path)):
        with pytest.raises(AttnfunError, match="pip install huggingface_hub"):
            action()
