"""What holds for models of every kind: one suite over all of them, on random requests (`requests.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.cli import main
from attnfun.kinds import NAMES, Kind, find, named
from attnfun.learn.probe import measured
from attnfun.network import store
from hooks.every_kind import KINDS, differs, inputs
from house.requests import ASIDE, model
from products import few
from stored import load, save

SEEDS = (0, 1)
every = pytest.mark.parametrize("seed", SEEDS)
kinds = pytest.mark.parametrize("kind", NAMES)
PROVED = [name for name in NAMES if find(name).prover]


def outputs(one: Any) -> Any:
    """What the model says at draws of its target."""
    inputs = one.target.draw(np.random.default_rng(5), 3)
    arrays, how = one.target.encode(one.weights, *inputs)
    return np.asarray(one.target.decode(one.weights.run(*arrays), how))


def tensors(weights: Any) -> dict[str, Any]:
    return store.taken_apart(weights)[1]


@every
@kinds
def test_a_file_comes_back_as_what_it_was(kind: str, seed: int, tmp_path: Path) -> None:
    one, path = model(kind, seed), tmp_path / "m.safetensors"
    one.save(path)
    again = af.load(path)
    assert type(again) is type(one) and again.target.to_json() == one.target.to_json()
    mine, theirs = tensors(one.weights), tensors(again.weights)
    assert mine.keys() == theirs.keys() and all(np.array_equal(mine[key], theirs[key]) for key in mine)
    assert again.certificate.status is Status.STORED and again.certificate.claimed is one.certificate.status
    again.save(tmp_path / "n.safetensors")
    assert path.read_bytes() == (tmp_path / "n.safetensors").read_bytes()
    if kind != "sampled":  # its sampler is not in the file
        assert np.array_equal(outputs(one), outputs(again))


@every
@kinds
def test_verify_proves_the_same_from_weights_and_target_alone(kind: str, seed: int, tmp_path: Path) -> None:
    one, path = model(kind, seed), tmp_path / "m.safetensors"
    one.save(path)
    weights, meta = load(path)
    hashed = {key: meta[key] for key in ("target", "claim")}
    save(path, weights, hashed | {"request": 5, "story": {"construction": "made up"}, "certificate": [1]}, kind)
    assert "made up" not in str(af.verify(path).to_json())
    save(path, weights, hashed, kind)
    found = af.verify(path)
    if kind in PROVED:
        facts = ("status", "error", "eps", "norm", "dtype", "method", "target", "domain", "parts", "hypotheses")
        for name in facts:
            assert getattr(found, name) == getattr(one.certificate, name), name
    else:
        assert found.status is Status.UNDECIDED and found.reason


@pytest.mark.parametrize("kind", PROVED)
def test_changed_weights_are_judged_for_what_they_are(kind: str, tmp_path: Path) -> None:
    """A resealed file with one changed number is proved or refuted or undecided, and its bound holds; never damage."""
    one, path = model(kind, 0), tmp_path / "m.safetensors"
    one.save(path)
    weights, meta = load(path)
    rng = np.random.default_rng(7)
    structure, arrays = store.taken_apart(weights)
    names = [name for name, array in arrays.items() if array.size and array.dtype.kind == "f"]
    for _ in range(4):
        own = {name: array.copy() for name, array in arrays.items()}
        name = names[int(rng.integers(len(names)))]
        array = own[name].reshape(-1)
        array[int(rng.integers(array.size))] += np.float32(rng.choice([1e-3, -0.5, 2.0]))
        try:
            other = store.put_together(type(weights), structure, own)
            save(path, other, meta, kind)
        except (af.DamagedFile, af.InvalidRequest):
            continue  # a structure that cannot be, as a box that is turned round: nobody can write it
        try:
            found = af.verify(path)
        except af.DamagedFile:
            assert {"low", "high", "box"} & set(name.split("/"))  # no weight: the box is not the target's
            continue
        if found.bounds and np.isinf(found.norm):
            target = af.load(path).target
            bound = found.details.get("output_error", found.error[1])
            assert measured(target, other, 50).errors.max() <= bound * (1 + 1e-9)


@kinds
def test_load_proves_nothing_and_what_was_loaded_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, path = model(kind, 0), tmp_path / "m.safetensors"
    one.save(path)

    def loaded(self: Kind, part: str) -> Any:
        assert part != "prover", "load asked for a proof"
        return named(getattr(self, part))

    monkeypatch.setattr(Kind, "loaded", loaded)
    again = af.load(path)
    assert repr(again) and again.certificate.status is Status.STORED
    if kind != "sampled":
        assert np.array_equal(outputs(one), outputs(again))


@pytest.mark.parametrize("kind", ASIDE)
def test_several_outputs_and_float32_are_saved_proved_and_right(kind: str, tmp_path: Path) -> None:
    one, path = ASIDE[kind](), tmp_path / "m.safetensors"
    one.save(path)
    again, found = af.load(path), af.verify(path)
    assert type(again) is type(one) and again.dtype == one.dtype and np.array_equal(outputs(one), outputs(again))
    assert found == one.certificate and found.bounds
    assert measured(one.target, one.weights, 100).errors.max() <= found.error[1]


@every
@kinds
def test_the_bound_is_never_below_an_error_that_is_seen(kind: str, seed: int) -> None:
    one = model(kind, seed)
    if one.certificate.bounds and np.isinf(one.certificate.norm):
        bound = one.certificate.details.get("output_error", one.certificate.error[1])
        assert measured(one.target, one.weights, 200).errors.max() <= bound


@every
@kinds
def test_it_says_what_it_is(kind: str, seed: int) -> None:
    one = model(kind, seed)
    assert 1 <= len(repr(one).splitlines()) <= 6 and len(repr(one)) < 700
    assert one.explain() and one.cost.parameters >= 0 and one.architecture is not None
    json.dumps(one.record(), allow_nan=False, default=str)


@every
@pytest.mark.parametrize("kind", KINDS)
def test_torch_computes_the_same(kind: str, seed: int) -> None:
    pytest.importorskip("torch")
    one = model(kind, seed)
    arrays = inputs(one, 3)
    assert differs(one, one.to_torch()(*arrays), arrays) <= 1.0


@pytest.mark.parametrize("kind", few(NAMES, 5))
def test_it_has_a_picture(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert len(model(kind, 0).plot(tmp_path / "m.png").axes) >= 1
    assert (tmp_path / "m.png").stat().st_size > 10_000


@kinds
def test_it_is_shown_and_verified_on_the_command_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "m.safetensors")
    model(kind, 0).save(path)
    assert main(["show", path]) == 0
    assert "not verified" in capsys.readouterr().out
    assert main(["show", path, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["kind"] == kind and record["verified"] is False
    assert main(["verify", path]) in (0, 5)


@kinds
def test_it_is_evaluated_on_the_command_line_or_says_why_not(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, path = model(kind, 0), str(tmp_path / "m.safetensors")
    one.save(path)
    try:
        names, _ = one.target.columns(one.weights)
    except af.InvalidRequest:
        assert main(["eval", path, "--at", "x=0.5"]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    else:
        assert main(["eval", path, "--at", ",".join(f"{name}=0.5" for name in names), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)["values"]
        assert np.array_equal(np.ravel(said), np.ravel(one(*one.target.of_columns(np.full((1, len(names)), 0.5)))))


@kinds
def test_it_is_trained_compared_and_diagnosed(kind: str, tmp_path: Path) -> None:
    one = model(kind, 0)
    learned = af.train(one, steps=2, seed=1)
    assert type(learned) is type(one) and learned.trained and learned.fit.steps == 2
    assert learned.certificate.status in (Status.BOUNDED, Status.SAMPLED)
    table = af.compare(one, learned)
    assert len(table.entries) == 2 and all(np.isfinite(row.sup) for row in table.entries)
    learned.save(tmp_path / "t.safetensors")
    again = af.load(tmp_path / "t.safetensors")
    assert type(again) is type(one) and again.trained
    found = af.diagnose(one)
    assert found.about and str(found)


@kinds
def test_a_start_from_its_own_weights_is_never_worse(kind: str) -> None:
    one = model(kind, 0)
    kept = af.train(one, steps=1, start="constructed", seed=0, proof=False)
    assert kept.fit.start == "constructed" and kept.sampled is not None


def test_every_kind_is_verified_where_no_construction_can_be_imported(tmp_path: Path) -> None:
    """All `build*` modules are blocked; verify, load and a call do without them."""
    files = []
    for kind in NAMES:
        if kind in PROVED:
            files.append(str(tmp_path / f"{kind}.safetensors"))
            model(kind, 0).save(files[-1])
    code = (
        "import sys, importlib.abc\n"
        "class Blocked(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        parts = name.split('.')\n"
        "        if parts[:2] == ['attnfun', 'kinds'] and any(p.startswith('build') for p in parts[3:]):\n"
        "            raise ImportError('blocked: ' + name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "import attnfun as af\n"
        "for path in sys.argv[1:]:\n"
        "    print(af.verify(path).status, type(af.load(path)).__name__)\n"
    )
    command = [sys.executable, "-c", code, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    said = [line.split()[0] for line in done.stdout.splitlines()]
    assert said == [model(kind, 0).certificate.status.value for kind in PROVED]


@kinds
def test_forged_structures_are_damage_in_one_sentence(kind: str, tmp_path: Path) -> None:
    one, path = model(kind, 0), tmp_path / "m.safetensors"
    one.save(path)
    weights, meta = load(path)
    structure, arrays = store.taken_apart(weights)
    rng = np.random.default_rng(3)
    for _ in range(12):
        forged = json.loads(json.dumps(structure))
        _spoil(forged, rng)
        own = {"format": store.FORMAT, "kind": kind, "weights": forged, "dtype": weights.dtype}
        from attnfun.network import sealed

        sealed.write(path, own, arrays, {key: value for key, value in meta.items() if key != "dtype"})
        try:
            af.load(path)
        except (af.DamagedFile, af.InvalidRequest) as error:
            assert "\n" not in str(error)


def _spoil(tree: Any, rng: np.random.Generator) -> None:
    """One node somewhere becomes something else."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            places.append((node, key))
            if isinstance(value, (dict, list)):
                walk(value)

    walk(tree)
    node, key = places[int(rng.integers(len(places)))]
    node[key] = [None, 3, "x", [], {}, {"is": "Network"}, {"tensor": "float64"}, 1e300][int(rng.integers(8))]


@kinds
def test_a_target_survives_json(kind: str) -> None:
    target = model(kind, 0).target
    again = type(target).from_json(json.loads(json.dumps(target.to_json())))
    assert again.to_json() == target.to_json() and again.text == target.text and again.domain == target.domain


@kinds
def test_another_request_for_the_same_is_compared_and_another_target_is_not(kind: str) -> None:
    one, other = model(kind, 0), model(kind, 1)
    assert one.target.same(replace(one).target)
    if one.target.to_json() != other.target.to_json():
        with pytest.raises(af.InvalidRequest, match="one target"):
            af.compare(one, other)
