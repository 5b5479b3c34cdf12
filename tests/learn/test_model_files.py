"""Files of trained models: what is read back is what was written, and what was not written is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.kinds.in_context.target import InContextTask
from attnfun.kinds.sequence.target import SequenceMap
from attnfun.learn import SampledTask
from attnfun.network import TokenArchitecture, sealed
from products import few

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
ONE, TWO, LINE = RNG.uniform(-1, 1, (5, 1)), RNG.uniform(-1, 1, (5, 2)), RNG.uniform(0, 1, 4)
MAP, RIDGE = SequenceMap.read("x*mean(x)", "x=-1:1", 3), InContextTask.make("ridge", 2, 8, alpha=1.0)
QUICK: dict[str, Any] = {"steps": 3, "batch": 8}


def twice(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    tokens = rng.normal(size=(count, 3, 2))
    return tokens, 2 * tokens[:, :1, :1]


TASK = SampledTask("twice the first entry", twice, ("a", "b"), ("f",), slice(0, 1))


def towers(**options: Any) -> Any:
    options = {"eps": 0.1, **options}
    trained = {key: options.pop(key) for key in ("widths", "rank") if key in options}
    target = options.pop("target", "exp(x*y)")
    left = "x=-1:1;y=-1:1" if "z" in target else "x=-1:1"
    right = "z=-1:1" if "z" in target else "y=-1:1"
    return af.train(af.relation(target, left, right, **options), **QUICK, **trained)


def units(target: Any) -> Any:
    return af.train(TokenArchitecture.for_target(target, layers=2, heads=1, rank=2, ffn=3), target, **QUICK)


def sampler(ffn: int) -> Any:
    shape = TokenArchitecture.plain(TASK.coordinates, TASK.outputs, layers=1, heads=2, rank=2, width=3, ffn=ffn)
    return af.train(shape, TASK, **QUICK)


HUGE = {"tokens": 1 << 20, "q": 2, "dim": 1, "heads": 1, "width": 1 << 20, "seed": 0, "keys": "random"}
HUGE |= {"z_range": [0.0, 1.0], "subsets": [[0, 1]], "others": None}
KEYS = [[-1.0], [0.0], [1.0]]
MAKE: dict[str, tuple[Any, Any]] = {
    "two towers": (lambda: towers(), lambda: (ONE, ONE)),
    "one tower with signs": (lambda: towers(target="sin(x + y)", symmetric=True, signed=True), lambda: (ONE, ONE)),
    "inner functions": (lambda: towers(target="exp((x + y)*z)", realise="mlp"), lambda: (TWO, ONE)),
    "perceptrons": (lambda: towers(widths=(5, 4), rank=2), lambda: (ONE, ONE)),
    "three": (
        lambda: af.train(af.ternary("x*y*z", "x=0:1;y=0:1;z=0:1", 0.1), widths=(4,), rank=2, **QUICK),
        lambda: (LINE, LINE, LINE),
    ),
    "form": (
        lambda: af.train(af.ternary("x*y*z", "x=0:1;y=0:1;z=0:1", 0.1), **QUICK),
        lambda: (LINE, LINE, LINE),
    ),
    "table": (
        lambda: af.train(af.retrieve("x*y", "x=-1:1", "y=-1:1", KEYS, 1e-2, beta=5.0), **QUICK),
        lambda: (ONE,),
    ),
    "pairs": (lambda: af.train(af.matching(4, 5, self_allowed=False), **QUICK), lambda: ([1, 2, 3, 4],)),
    "best key": (lambda: af.train(af.lexicographic(5, 2), **QUICK), lambda: ([[1, 2], [3, 4]],)),
    "averages": (lambda: af.train(af.sparse_average(4, 2), **QUICK), lambda: (LINE, [(0, 1)] * 4)),
    "units on sequences": (lambda: units(MAP), lambda: (ONE[:3],)),
    "units on prompts": (lambda: units(RIDGE), lambda: (RNG.normal(size=(8, 2)), RNG.normal(size=8), TWO)),
    "sampler": (lambda: sampler(0), lambda: (RNG.normal(size=(2, 3, 2)),)),
    "sampler with units": (lambda: sampler(2), lambda: (RNG.normal(size=(2, 3, 2)),)),
}


@cache
def trained(name: str) -> Any:
    return MAKE[name][0]()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", few(MAKE, 6))
def test_a_file_gives_the_trained_model_back(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learned, path = trained(name), tmp_path / "m.safetensors"
    learned.save(path)
    back, given = af.load(path), MAKE[name][1]()
    assert type(back) is type(learned)
    answer = (back.predict if hasattr(back, "predict") else back)(*given)
    assert np.array_equal(answer, learned(*given))
    assert back.certificate.to_file() == learned.certificate.to_file() and back.architecture == learned.architecture
    assert not back.certificate.verified and "proved" not in str(back.certificate.status)
    assert back.request["method"] == "train" and back.request["recipe"] == learned.fit.recipe.to_json()
    for command in ("show", "diagnose"):
        assert main([command, str(path)]) == 0
    out = capsys.readouterr().out
    assert "learned" in out or "rained" in out or "form" in out
    bytes_ = path.read_bytes()
    back.save(path)
    assert path.read_bytes() == bytes_
    if "sampler" in name:
        for asks in (lambda: af.train(back, steps=1), lambda: af.compare(back), lambda: back.target.draw(RNG, 1)):
            with pytest.raises(af.InvalidRequest, match="sampler of 'twice"):
                asks()
        again = af.train(back.architecture, TASK, start=back, steps=0)
        assert np.array_equal(again(*given), learned(*given))
    else:
        again = af.train(back, start="constructed", steps=0)
        best = next(row for row in learned.history if row.step == learned.fit.best_step)
        assert again.history[0].sup == best.sup


@pytest.mark.parametrize("name", ["two towers", "table", "pairs", "averages", "units on prompts", "sampler with units"])
def test_what_was_changed_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    trained(name).save(path)
    whole = path.read_bytes()
    for at in (len(whole) - 3, whole.index(b'\\"target\\"') + 14, len(whole) // 2):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(af.DamagedFile):
            af.load(path)
    path.write_bytes(whole[:-8])
    with pytest.raises(af.DamagedFile):
        af.load(path)


def forged(path: Path, target: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None) -> None:
    """The same file with other contents, sealed as a writer would."""
    old, record = sealed.read(path)
    meta = {key: record.pop(key) for key in ("target", "claim", "request", "story", "certificate")}
    structure = {key: value for key, value in record.items() if key not in ("hash", "seals")}
    meta["target"] = {**meta["target"], **(target or {})}
    sealed.write(path, structure, {**old, **(tensors or {})}, meta)


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("two towers", {"left": "x"}),
        ("two towers", {"graph": []}),
        ("two towers", {"graph": [["var", "x"], ["out", [7]]]}),
        ("two towers", {"symmetric": "a"}),
        ("table", {"right": "x=-1:1"}),
        ("table", {"left": "x=0:1;w=0:1"}),
        ("pairs", {"order": 3, "self_allowed": True}),
        ("pairs", {"order": 3}),
        ("pairs", {"order": [2]}),
        ("pairs", {"tokens": 1 << 40}),
        ("pairs", {"tokens": None}),
        ("pairs", {"self_allowed": 1}),
        ("averages", HUGE),
        ("averages", {"z_range": [0, 10**400]}),
        ("averages", {"subsets": [[0, 4]]}),
        ("averages", {"subsets": []}),
        ("averages", {"seed": -1}),
        ("averages", {"others": "a"}),
        ("averages", {"width": 3}),
        ("best key", {"coordinates": 3}),
        ("best key", {"levels": 0}),
        ("best key", {"levels": 2.5}),
        ("best key", {"coordinates": 10**9}),
        ("sampler", {"tokens": [0, 1, 0]}),
        ("sampler", {"coordinates": ["b", "a"]}),
        ("sampler", {"chosen_by": 7}),
    ],
)
def test_a_forged_target_is_refused_though_it_is_sealed(name: str, odd: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    trained(name).save(path)
    forged(path)
    assert type(af.load(path)) is type(trained(name))
    forged(path, odd)
    with pytest.raises(af.DamagedFile):
        af.load(path)


@pytest.mark.parametrize("name", ["two towers", "table", "pairs", "units on prompts", "sampler"])
def test_numbers_that_are_not_finite_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    trained(name).save(path)
    tensors, _ = sealed.read(path)
    for part, array in tensors.items():
        if array.size:
            bad = array.copy()
            bad.flat[-1] = np.nan
            forged(path, tensors={part: bad})
            with pytest.raises(af.DamagedFile):
                af.load(path)
            forged(path, tensors={part: array})
    af.load(path)


def test_a_shape_of_another_dtype_is_written_read_and_compared(tmp_path: Path) -> None:
    pairs, path = af.matching(4, 5), tmp_path / "m.safetensors"
    names = pairs.network.coordinates, pairs.network.outputs
    short = af.train(TokenArchitecture.plain(*names, layers=1, heads=1, rank=2, dtype="float32"), pairs, **QUICK)
    short.save(path)
    back = af.load(path)
    assert back.network.dtype == "float32" and np.array_equal(back([1, 2, 3, 4]), short([1, 2, 3, 4]))
    assert len(af.compare(pairs, back).entries) == 2


def test_a_stored_proof_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    kept = af.train(af.sparse_average(4, 2), start="constructed", steps=0)
    kept.save(path)
    assert af.verify(path).status is af.Status.BOUNDED and af.verify(path, eps=1e-3).status is af.Status.PROVED
    old, _ = sealed.read(path)
    name = "network/layers/0/heads/0/value"
    forged(path, tensors={name: 2 * old[name]})
    assert af.load(path).certificate.status is af.Status.STORED
    assert af.load(path).certificate.claimed is af.Status.BOUNDED
    assert af.verify(path).status is af.Status.UNDECIDED
    for unproved in ("two towers", "table", "sampler"):
        trained(unproved).save(path)
        assert af.verify(path).status is af.Status.UNDECIDED and af.verify(path).reason
