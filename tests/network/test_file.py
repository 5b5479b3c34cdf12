from __future__ import annotations

import json
import os
import pickle
from dataclasses import make_dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from typing_extensions import TypeAliasType

import stored
from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.network import Network, identical, sealed, store
from network.networks import random_network
from stored import content_hash, load, save

META: dict[str, Any] = {
    "target": [["var", "x0"], ["sin", 0]],
    "domain": {"x0": [-1.0, 2.0], "x1": [-1.0, 2.0]},
    "claim": {"eps": 1e-6, "norm": "sup", "relative": False, "trained": False},
    "request": {"eps": 1e-6, "method": "auto"},
    "certificate": {"status": "proved", "error": [1e-7, 0.1 + 0.2]},
}


@pytest.fixture(autouse=True, params=["copied", "placed", "mapped"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here holds for small files, for large ones that are read, and for large ones that are mapped."""
    if request.param != "copied":
        monkeypatch.setattr(sealed, "LARGE", 1)
    monkeypatch.setattr(stored, "held", partial(sealed.held, mapped=request.param == "mapped"))


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Network]:
    network = random_network(3)
    path = tmp_path / "f.safetensors"
    save(path, network, META)
    return path, network


def rewrite(path: Path, change: Any, tensors: Any = None) -> None:
    """The file again by safetensors itself, its JSON record changed."""
    with safe_open(path, framework="numpy") as handle:
        record = json.loads(handle.metadata()["attnfun"])
    arrays = load_file(path)
    change(record)
    if tensors:
        tensors(arrays)
    save_file(arrays, path, metadata={"attnfun": json.dumps(record)})


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(3))
def test_round_trip_is_bit_for_bit(tmp_path: Path, seed: int, dtype: str) -> None:
    network = random_network(seed, dtype)
    save(tmp_path / "a", network, META)
    again, meta = load(tmp_path / "a")
    assert identical(network, again)
    assert meta == {**META, "dtype": dtype}
    save(tmp_path / "b", again, meta)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_arrays_are_read_back_whether_their_type_is_an_alias_or_not() -> None:
    """Where Python has aliases of types, NumPy's NDArray is one: its origin is the alias, and no array."""
    Scalar = TypeVar("Scalar", bound=np.generic)
    Alias = TypeAliasType("Alias", np.ndarray[tuple[Any, ...], np.dtype[Scalar]], type_params=(Scalar,))

    fields = {"here": Alias[np.float64], "perhaps": Alias[np.float64] | None, "many": tuple[Alias[np.float64], ...]}
    Weights = make_dataclass("Weights", fields.items(), frozen=True)
    for one in (Weights(np.ones(2), None, ()), Weights(np.ones(2), np.zeros(3), (np.arange(2.0), np.ones((1, 2))))):
        structure, tensors = store.taken_apart(one)
        assert identical(store.put_together(Weights, structure, tensors), one)


def test_the_sign_of_zero_and_subnormal_numbers_survive(tmp_path: Path) -> None:
    network = random_network(0)
    bias = np.array([-0.0, 5e-324])
    odd = Network(network.inputs, network.layers, network.readout, bias, network.outputs, network.box)
    save(tmp_path / "a", odd, {})
    assert identical(load(tmp_path / "a")[0], odd)
    assert not identical(odd, network)


@pytest.mark.parametrize("part", range(4))
def test_any_flipped_bit_is_noticed(saved: tuple[Path, Network], part: int) -> None:
    path, network = saved
    data = path.read_bytes()
    rng = np.random.default_rng(part)
    length = 8 + int.from_bytes(data[:8], "little")
    low, high = [(0, 8), (8, length), (length, len(data)), (0, len(data))][part]
    noticed = 0
    for _ in range(150):
        position, bit = int(rng.integers(low, high)), int(rng.integers(8))
        broken = bytearray(data)
        broken[position] ^= 1 << bit
        path.write_bytes(bytes(broken))
        try:
            again, meta = load(path)
        except DamagedFile as error:
            noticed += 1
            assert "\n" not in str(error)
        else:
            assert identical(again, network) and meta == {**META, "dtype": "float64"}
    assert noticed >= 140


def test_a_cut_file_is_noticed_at_every_length(saved: tuple[Path, Network]) -> None:
    path, _ = saved
    data = path.read_bytes()
    for size in [*range(0, 20), *range(20, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(DamagedFile):
            load(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(DamagedFile):
        load(path)


def test_foreign_files_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    rng = np.random.default_rng(0)
    header = b'{"__metadata__":{"attnfun":"' + b"[" * 100_000 + b'"}}'
    foreign = [
        pickle.dumps({"weights": [1, 2, 3]}),
        rng.bytes(4096),
        b"\xff" * 64,
        (2**63).to_bytes(8, "little") + b"{}",
        (10**7).to_bytes(8, "little") + b"{" * 100,
        len(header).to_bytes(8, "little") + header,
        b"PK\x03\x04" + bytes(100),
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"{}",
        (4).to_bytes(8, "little") + b"null",
        b'{"a":1}',
    ]
    for data in foreign:
        path.write_bytes(data)
        with pytest.raises(DamagedFile):
            load(path)
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(DamagedFile, match="without an attnfun network"):
        load(path)


def test_absurd_sizes_are_refused_before_anything_is_allocated(saved: tuple[Path, Network]) -> None:
    path, _ = saved
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for shape, span in [([2**40, 2**40], [0, 8]), ([1], [0, 2**60]), ([-1], [0, 8]), ([1.5], [0, 8]), ("x", [0, 8])]:
        header["readout_bias"] = {"dtype": "F64", "shape": shape, "data_offsets": span}
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        with pytest.raises(DamagedFile):
            load(path)


def test_what_cannot_be_read_or_written_is_an_invalid_request(tmp_path: Path) -> None:
    network = random_network(0)
    for path in (tmp_path / "missing", tmp_path, "a\0b"):
        with pytest.raises(InvalidRequest):
            load(path)
    for path in (tmp_path / "no" / "folder", tmp_path, tmp_path / ("n" * 400), "a\0b"):
        with pytest.raises(InvalidRequest):
            save(path, network, META)
    for meta in ({"norm": float("nan")}, {"norm": object()}, {"hash": "x"}, {"weights": 1}, {"dtype": "float32"}):
        with pytest.raises(InvalidRequest):
            save(tmp_path / "f", network, meta)
    assert os.listdir(tmp_path) == []


def test_a_failed_save_leaves_the_old_file(saved: tuple[Path, Network], monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = saved
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InvalidRequest, match="No space left"):
        save(path, random_network(5), META)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_the_certificate_can_be_deleted_and_the_rest_still_holds(saved: tuple[Path, Network]) -> None:
    path, network = saved
    rewrite(path, lambda record: record.pop("certificate"))
    again, meta = load(path)
    assert identical(again, network) and "certificate" not in meta and meta["request"] == META["request"]


def test_a_changed_certificate_is_damage_unless_it_is_ignored(saved: tuple[Path, Network]) -> None:
    path, network = saved
    rewrite(path, lambda record: record["certificate"].update(error=[0.0, 1e-12]))
    with pytest.raises(DamagedFile, match="certificate"):
        load(path)
    again, meta = load(path, ignore=("certificate",))
    assert identical(again, network) and "certificate" not in meta


HASHED = ("target", "domain", "claim", "inputs", "outputs", "layers", "dtype", "format", "kind", "hash")


@pytest.mark.parametrize("key", HASHED)
def test_everything_that_gives_meaning_is_under_the_hash(saved: tuple[Path, Network], key: str) -> None:
    path, _ = saved

    def change(record: dict[str, Any]) -> None:
        weights = record["weights"]
        if key == "layers":
            weights["layers"][0]["heads"][0]["name"] = "another"
        elif key in ("inputs", "outputs"):
            weights[key][0] = "other"
        else:
            record[key] = {"format": 4, "dtype": "float32"}.get(key, "other")

    rewrite(path, change)
    with pytest.raises(DamagedFile):
        load(path, kind="function")
    rewrite(path, lambda record: (record if key in record else record["weights"]).pop(key))
    with pytest.raises(DamagedFile):
        load(path)


def test_changed_weights_are_noticed_and_a_fitting_hash_gives_another_network(saved: tuple[Path, Network]) -> None:
    path, network = saved

    def nudge(arrays: dict[str, Any]) -> None:
        arrays["readout"] = np.nextafter(arrays["readout"], 2.0)

    rewrite(path, lambda record: None, nudge)
    with pytest.raises(DamagedFile):
        load(path)
    moved = Network(
        network.inputs,
        network.layers,
        np.nextafter(network.readout, 2.0),
        network.readout_bias,
        network.outputs,
        network.box,
    )
    rewrite(path, lambda record: record.update(hash=content_hash(moved, META)))
    assert identical(load(path)[0], moved)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0])
def test_weights_that_are_no_numbers_or_of_another_type_are_damage(saved: tuple[Path, Network], bad: float) -> None:
    path, _ = saved

    def spoil(arrays: dict[str, Any]) -> None:
        if bad:
            arrays["readout"] = arrays["readout"] * bad
        else:
            arrays["readout"] = arrays["readout"].astype(np.float32)

    rewrite(path, lambda record: None, spoil)
    with pytest.raises(DamagedFile, match="readout" if bad else "content"):
        load(path)
    rewrite(path, lambda record: None, lambda arrays: arrays.pop("readout"))
    with pytest.raises(DamagedFile, match="readout is missing"):
        load(path)


def test_the_hash_ignores_certificate_and_request_only() -> None:
    network = random_network(1)
    base = content_hash(network, META)
    assert base == content_hash(network, {**META, "certificate": None, "request": {"eps": 1.0}})
    for key, other in (("eps", 1.0), ("eps", None), ("norm", 2), ("relative", True), ("trained", True)):
        assert base != content_hash(network, {**META, "claim": {**META["claim"], key: other}})
    assert base != content_hash(random_network(2), META)
