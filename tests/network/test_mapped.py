"""Large tensors stay where they lie: nothing is copied on the way from a file to a result, and nothing hostile gets in.

Copies are counted (`tracemalloc` sees every array), never timed.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load as read_by_library
from safetensors.numpy import save as to_bytes

import attnfun as af
from attnfun import fast
from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.files import map_behind
from attnfun.network import evaluate, identical, sealed, store
from attnfun.network.network import maps
from network.networks import partition, points, random_network
from stored import save

TARGET = "sin(3*x) + cos(2*y)"


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "LARGE", 1)


@pytest.fixture(scope="module")
def small() -> af.Approximant:
    return af.compile(TARGET, "x=-1:1;y=-1:1", 0.5)


@pytest.fixture
def saved(tmp_path: Path, small: af.Approximant) -> Path:
    small.save(tmp_path / "f.safetensors")
    return tmp_path / "f.safetensors"


def peak(call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call gives, and the most bytes that it held beyond those before."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- copies


def test_no_step_between_a_file_and_a_result_copies_the_table(
    tmp_path: Path, small: af.Approximant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed, "LARGE", 1 << 23)
    network = partition(1_600, 2)
    table = network.heads[0].values
    model, path = dataclasses.replace(small, weights=network), tmp_path / "f.safetensors"
    X, most = points(network, 300), table.nbytes / 5
    _, held = peak(lambda: model.save(path))
    assert held < most
    loaded, held = peak(lambda: af.load(path))
    values = loaded.network.heads[0].values
    assert held < most and map_behind(values) is not None and not values.flags.writeable
    steps = {
        "repr": lambda: repr(loaded),
        "cost": lambda: loaded.cost,
        "fingerprint": lambda: store.fingerprint(loaded.network),
        "saved again": lambda: loaded.save(tmp_path / "again.safetensors"),
        "NumPy": lambda: evaluate(loaded.network, X, "local"),
        "kernel": lambda: fast.fused(loaded.network, X),
    }
    fast.fused(small.network, X[:1])  # compiles, if nothing did before
    found = {name: peak(step) for name, step in steps.items()}
    assert {name: held for name, (_, held) in found.items() if held > most} == {}
    assert np.shares_memory(fast.taped(loaded.network).arguments[3], values)
    assert np.array_equal(found["NumPy"][0], evaluate(network, X, "local"))
    assert np.array_equal(found["kernel"][0], fast.fused(network, X))
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    _, held = peak(lambda: store.read(sealed.held(path), (type(network),)))  # what verify does: read, not mapped
    assert table.nbytes <= held < table.nbytes + most


def test_a_float32_network_is_widened_once(
    tmp_path: Path, small: af.Approximant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A float64 table, and a float32 one for the hash."""
    monkeypatch.setattr(sealed, "LARGE", 1 << 22)
    network, path = partition(1_200, 2, dtype="float32"), tmp_path / "f.safetensors"
    dataclasses.replace(small, weights=network).save(path)
    loaded, held = peak(lambda: af.load(path))
    assert held < 1.7 * network.heads[0].values.nbytes and identical(loaded.network, network)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_large_and_small_files_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    meta = {"target": ['é\x01"\\\u2028\U0001f600/'], "request": {}}
    rng, shapes = np.random.default_rng(0), ((3,), (), (0, 2), (2, 3))
    kinds = [*(np.dtype(kind) for kind in ("float64", "float32", "int64", "bool")), *[np.dtype(dtype)] * 3]
    odd = {f"ä{k}/{k % 3}": rng.normal(size=shapes[k % 4]).astype(kind) for k, kind in enumerate(kinds)}
    structure = {"format": "odd", "dtype": dtype}
    writes: list[Callable[[Path], None]] = [
        *(partial(save, weights=random_network(seed, dtype), meta=meta) for seed in range(4)),
        lambda path: sealed.write(path, structure, odd, meta),
    ]
    for write in writes:
        write(tmp_path / "large")
        monkeypatch.setattr(sealed, "LARGE", 1 << 40)
        write(tmp_path / "small")
        monkeypatch.setattr(sealed, "LARGE", 1)
        assert (tmp_path / "large").read_bytes() == (tmp_path / "small").read_bytes()
        assert (tmp_path / "large").stat().st_mode == (tmp_path / "small").stat().st_mode
    assert sorted(os.listdir(tmp_path)) == ["large", "small"]


# ---------------------------------------------------------------- a file that changes while its network lives


def shortened(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 8)  # within a page: looking at it would give zeros, and kill nobody


def lengthened(path: Path) -> None:
    with open(path, "ab") as stream:
        stream.write(bytes(8))


def overwritten(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-8] + bytes(8))


def later(path: Path) -> None:
    """Its time of writing moves on: a clock may be too coarse to tell two writings apart."""
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 10_000_000))


@pytest.mark.parametrize("change", [shortened, lengthened, overwritten])
def test_a_file_that_was_written_to_is_not_computed_with(
    saved: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, other = af.load(saved), af.load(saved)
    assert maps(loaded.network) and np.isfinite(loaded([0.1, 0.2])).all()
    change(saved)
    later(saved)
    uses: list[Callable[[], Any]] = [
        lambda: loaded([0.1, 0.2]),
        lambda: evaluate(loaded.network, [[0.1, 0.2]]),
        lambda: fast.fused(loaded.network, np.array([[0.1, 0.2]])),
        lambda: store.fingerprint(loaded.network),
        lambda: loaded.network.ranges,
        lambda: repr(other),
        lambda: loaded.to_torch(),
        lambda: loaded.save(saved.parent / "other"),
    ]
    for use in uses:
        with pytest.raises(InvalidRequest, match="was written to after it was opened"):
            use()
    assert not (saved.parent / "other").exists()


def test_a_file_whose_name_another_takes_is_still_the_one_that_was_loaded(saved: Path, small: af.Approximant) -> None:
    X = points(small.network, 50)
    loaded = af.load(saved)
    other = af.compile("x*y", "x=-1:1;y=-1:1", 0.5)
    other.save(saved)
    assert np.array_equal(loaded(X), small(X)) and identical(loaded.network, small.network)
    loaded.save(saved)
    again = copy.deepcopy(loaded.network)
    assert identical(again, small.network) and maps(loaded.network) and not maps(again)
    saved.unlink()
    assert np.array_equal(loaded(X), small(X))


def test_verify_maps_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It proves of bytes that it has read, so writing into the file changes nothing."""
    own, read = af.verify(saved), sealed.read_bytes
    other = saved.parent / "other"
    af.compile("x*y", "x=-1:1;y=-1:1", 0.5).save(other)

    def overwrite(where: Path, limit: int) -> bytes:
        data = read(where, limit)
        shutil.copyfile(other, where)
        return data

    monkeypatch.setattr(sealed, "read_bytes", overwrite)
    monkeypatch.setattr(sealed, "read_or_map", None)
    assert af.verify(saved) == own


# ---------------------------------------------------------------- hostile headers


def test_the_header_of_a_large_file_is_judged_as_the_library_judges_it(tmp_path: Path) -> None:
    """Whatever is done to a header, it is taken if and only if the library takes it, and reads the same."""
    rng = np.random.default_rng(0)
    tensors = {
        "a": rng.normal(size=(2, 3)),
        "b": np.arange(4),
        "c": rng.normal(size=5).astype(np.float32),
        "empty": np.zeros((0, 3)),
        "last": np.array([True, False, True]),
    }
    data = to_bytes(tensors, metadata={"attnfun": "{}"})
    length = int.from_bytes(data[:8], "little")
    own = json.loads(data[8 : 8 + length])
    path, counts = tmp_path / "f", {True: 0, False: 0}
    for _ in range(600):
        header, body = json.loads(json.dumps(own)), data[8 + length :]
        for _ in range(int(rng.integers(0, 3))):
            _spoil(header, rng)
        if rng.random() < 0.1:
            body = body[: int(rng.integers(len(body)))] if rng.random() < 0.5 else body + bytes(int(rng.integers(9)))
        text = json.dumps(header).encode()
        whole = len(text).to_bytes(8, "little") + text + body
        path.write_bytes(whole)
        try:
            wanted = read_by_library(whole)
        except (SafetensorError, KeyError, TypeError, ValueError, OverflowError):
            wanted = None
        for mapped in (False, True):
            try:
                found, _ = sealed.read(path, mapped)
            except DamagedFile as error:
                assert wanted is None or any(_foreign(one, len(body)) for one in wanted.values()), error
                counts[False] += 1
                continue
            assert wanted is not None and set(found) == set(wanted)
            for name, array in found.items():
                assert array.dtype == wanted[name].dtype and array.shape == wanted[name].shape
                assert array.tobytes() == wanted[name].tobytes() and not array.flags.writeable
            counts[True] += 1
    assert counts[True] > 300 and counts[False] > 300


def _foreign(array: Any, most: int) -> bool:
    """No file of attnfun has it: of another type, or empty and of a size that no file could have."""
    return array.dtype.name not in ("float64", "float32", "int64", "bool") or max(array.shape, default=0) > most


def _spoil(header: dict[str, Any], rng: np.random.Generator) -> None:
    """One change of a tensor's entry, some of them harmless."""
    names = [name for name in header if name != "__metadata__"]
    name, other = (str(one) for one in rng.choice(names, 2, replace=False))
    entry, draw = header[name], int(rng.integers(10))
    odd = [-1, 0.5, 8.0, True, None, "8", [], 2**31, 2**63, 2**64 - 8, 2**64, 10**300, *range(0, 120, 8)]
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        return
    if draw == 0:
        header[name], header[other] = header[other], entry
    elif draw == 1:
        entry["data_offsets"] = list(np.array(own_places(entry)) + rng.integers(-8, 9, 2))
        entry["data_offsets"] = [int(n) for n in entry["data_offsets"]]
    elif draw in (2, 3):
        key = ("shape", "data_offsets")[draw - 2]
        numbers = list(entry[key]) if isinstance(entry[key], list) else [1]
        if numbers:
            numbers[int(rng.integers(len(numbers)))] = odd[int(rng.integers(len(odd)))]
        entry[key] = numbers
    elif draw == 4:
        entry["shape"] = [[], [0], [1] * 33, [2, 2], [6], [3, 2], [1, 6, 1], "6", None, {}][int(rng.integers(10))]
    elif draw == 5:
        entry["dtype"] = ["F64", "I64", "F32", "BOOL", "U64", "F16", "f64", "", None, 64, ["F64"]][
            int(rng.integers(11))
        ]
    elif draw == 6:
        del header[name]
    elif draw == 7:
        entry["data_offsets"] = header[other].get("data_offsets") if isinstance(header[other], dict) else None
    elif draw == 8:
        header[name] = [None, [], "x", 5, {}, {"dtype": "F64"}][int(rng.integers(6))]
    else:
        header[name + "2"] = json.loads(json.dumps(entry))


def own_places(entry: dict[str, Any]) -> list[int]:
    places = entry["data_offsets"]
    whole = isinstance(places, list) and len(places) == 2 and all(type(n) is int and abs(n) < 1000 for n in places)
    return places if whole else [0, 8]


@pytest.mark.parametrize("mapped", [False, True])
def test_headers_that_cost_or_lie_are_refused(tmp_path: Path, mapped: bool) -> None:
    path = tmp_path / "f"
    entry = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
    headers: list[Any] = [
        {"a": {**entry, "shape": [2**40, 2**40]}},
        {"a": {**entry, "shape": [10**4000] * 50}},
        {"a": {**entry, "shape": [1] * 100_000}},
        {"a": {**entry, "shape": [0, 2**62], "data_offsets": [0, 0]}, "b": entry},
        {"a": {**entry, "data_offsets": [0, 2**60]}},
        {"a": {**entry, "data_offsets": [8, 16]}},
        {"a": entry, "b": entry},
        {"a": {**entry, "more": 1}},
        {"a": {**entry, "data_offsets": [0, 8, 8]}},
        {"a": {**entry, "data_offsets": [8, 0]}},
        {},
    ]
    for header in headers:
        text = json.dumps({"__metadata__": {"attnfun": "{}"}, **header}).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
        with pytest.raises(DamagedFile):
            sealed.read(path, mapped)
    text = b" " + json.dumps({"__metadata__": {"attnfun": "{}"}, "a": entry}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(DamagedFile):
        sealed.read(path, mapped)


def test_tensors_at_odd_places_are_copied_to_even_ones(tmp_path: Path) -> None:
    data = to_bytes({"a": np.arange(3.0)}, metadata={"attnfun": "{}"})
    length = int.from_bytes(data[:8], "little")
    for more in range(9):
        text = data[8 : 8 + length] + b" " * more
        (tmp_path / "f").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        array = sealed.read(tmp_path / "f", mapped=True)[0]["a"]
        assert array.flags.aligned and (map_behind(array) is None) == bool(more % 8)
        assert array.tolist() == [0, 1, 2]
