"""`verify` is a gate: nothing is proved without an eps, and what a caller expects is compared with what a file says."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import attnfun as af
from attnfun.certify.verdict import status_of
from attnfun.cli import main
from attnfun.files import map_behind
from attnfun.network import sealed, store
from gate.kinds import KINDS, all_numbers, nothing, resealed, without_eps
from modes import MODES, arithmetic
from products import few

PROVABLE = [name for name, kind in KINDS.items() if not kind.refused]
COMPARED = [name for name, kind in KINDS.items() if kind.target is not None]
FORGED = 1.2345e-12  # a number that no honest file of these holds


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return {name: kind.make() for name, kind in KINDS.items()}


@pytest.fixture(autouse=True, params=["small", pytest.param("large", marks=pytest.mark.slow)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here holds for large files too, whose tensors stay where they lie."""
    if request.param == "large":
        monkeypatch.setattr(sealed, "LARGE", 1)


@pytest.fixture(scope="module")
def files(made: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kinds")
    for name, network in made.items():
        network.save(folder / f"{name}.safetensors")
    return {name: folder / f"{name}.safetensors" for name in made}


def test_a_bound_is_proved_only_of_an_eps_that_it_meets() -> None:
    rng = np.random.default_rng(0)
    numbers = [0.0, 1e-300, 1.0, math.inf, math.nan, *10.0 ** rng.uniform(-12, 3, 30)]
    for high in numbers:
        assert status_of(high, None, 0.0) is (af.Status.BOUNDED if high < math.inf else af.Status.UNDECIDED)
        for eps, low in zip(rng.choice(numbers[2:3] + numbers[5:], 40), rng.choice(numbers, 40), strict=True):
            found = status_of(high, eps, low)
            assert (found is af.Status.PROVED) == (high <= eps)
            assert (found is af.Status.REFUTED) == (not high <= eps and low > eps)
            hoped = status_of(high, eps, low, conditional=True)
            assert hoped is (af.Status.CONDITIONAL if found is af.Status.PROVED else found)


@pytest.mark.parametrize("name", few(PROVABLE, 9))
def test_weights_that_do_nothing_are_never_proved(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    """Neither by the file's own eps nor by deleting what was asked for; the command line does not exit with 0."""
    kind, out = KINDS[name], tmp_path / "zero.safetensors"
    zero = nothing(kind.weights)
    resealed(files[name], out, zero)
    assert _status(out) not in (af.Status.PROVED, af.Status.BOUNDED, af.Status.CONDITIONAL)

    def both(record: dict[str, Any], tensors: dict[str, Any]) -> None:
        zero(record, tensors)
        without_eps(record, tensors)

    resealed(files[name], out, both)
    assert _status(out) not in (af.Status.PROVED, af.Status.CONDITIONAL)
    assert main(["verify", str(out), "--json"]) in (2, 5)
    assert main(["verify", str(out), "--eps", "1e-9"]) in (2, 4, 5)
    resealed(files[name], out, lambda record, _: record.pop("claim"))
    with pytest.raises(af.DamagedFile):
        af.verify(out)
    with pytest.raises(af.DamagedFile):
        af.load(out)


def _status(path: Path) -> Any:
    try:
        return af.verify(path).status
    except af.AttnfunError:
        return None


def met_by(name: str) -> af.Status:
    """Where eps is met: means are bounded without the rounding, so under that hypothesis alone."""
    if name in ("neighbours", "biased"):
        return af.Status.CONDITIONAL
    return af.Status.PROVED if KINDS[name].proved else af.Status.SAMPLED


@pytest.mark.parametrize("name", few(PROVABLE, 9))
def test_the_verdict_is_about_the_eps_that_is_hashed_or_given(
    name: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = af.verify(files[name])
    wanted = met_by(name)
    assert own.status is wanted and own.eps is not None and own.error[1] <= own.eps
    bare = resealed(files[name], tmp_path / "bare.safetensors", lambda record, _: record.pop("request", None))
    again = af.verify(bare)  # what may be deleted decides nothing
    assert (again.status, again.eps, again.error[1]) == (own.status, own.eps, own.error[1])
    other = resealed(files[name], tmp_path / "other.safetensors", without_eps)
    found = af.verify(other)
    assert found.eps is None and found.status is (af.Status.BOUNDED if KINDS[name].proved else af.Status.SAMPLED)
    assert main(["verify", str(other), "--json"]) == 5
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == found.status.value and record["verified"] is True
    if KINDS[name].proved:
        assert main(["verify", str(other)]) == 5
        said = capsys.readouterr()
        assert "proved" not in said.out.replace("could be proved", "") and "no eps was asked for" in said.err
        met = af.verify(other, eps=1.5 * found.error[1])
        assert met.status is wanted and met.eps == 1.5 * found.error[1]
        assert main(["verify", str(other), "--eps", repr(1.5 * found.error[1]), "--json"]) == 0
        capsys.readouterr()
    missed = af.verify(files[name], eps=own.error[1] * 1e-6)
    assert missed.status in (af.Status.REFUTED, af.Status.UNDECIDED) and missed.eps == own.error[1] * 1e-6
    assert main(["verify", str(files[name]), "--eps", repr(own.error[1] * 1e-6)]) in (4, 5)


@pytest.mark.parametrize("name", PROVABLE)
def test_what_a_file_is_not_about_is_refused_with_both_named(name: str, files: dict[str, Path]) -> None:
    kind, path = KINDS[name], files[name]
    norm = {"mean": 2, "neighbours": "mean square", "biased": "mean square"}.get(name, "sup")
    own = af.verify(path, dtype="float64", norm=norm)
    assert own.status is met_by(name)
    with pytest.raises(af.InvalidRequest, match=r"runs in float64, not in float32"):
        af.verify(path, dtype="float32")
    with pytest.raises(af.InvalidRequest, match=r"about the .*, not about the L\^3 norm"):
        af.verify(path, norm=3)
    for bad in ({"eps": 0.0}, {"eps": math.nan}, {"eps": "x"}, {"dtype": "float16"}, {"norm": 0.5}):
        with pytest.raises(af.InvalidRequest):
            af.verify(path, **bad)
    if kind.domain is None:
        with pytest.raises(af.InvalidRequest, match="leave domain out"):
            af.verify(path, domain="x=-1:1")
        with pytest.raises(af.InvalidRequest, match="leave target out"):
            af.verify(path, "sin(x)")
        return
    assert af.verify(path, kind.target, domain=kind.domain).error == own.error
    rng, box = np.random.default_rng(len(name)), af.Box.parse(kind.domain)
    for _ in range(6):
        ends = {name: [low, high] for name, low, high in zip(box.names, box.low, box.high, strict=True)}
        moved = ends[str(rng.choice(box.names))]
        moved[1] = float(np.nextafter(moved[1], 9) if rng.random() < 0.3 else moved[1] * rng.uniform(0.3, 2))
        with pytest.raises(af.InvalidRequest, match=r"the file is about the domain .*, not about .*"):
            af.verify(path, domain=ends)
    if kind.target is not None:
        factor = float(rng.uniform(1.1, 3))
        for other in (f"{kind.target} + {factor!r}", f"{factor!r}*({kind.target})", box.names[0]):
            with pytest.raises(af.InvalidRequest, match=r"the file is about .*, not about .*"):
                af.verify(path, other)
        assert main(["verify", str(path), "--target", box.names[0]]) == 2


@pytest.mark.parametrize("name", PROVABLE)
def test_nothing_is_proved_in_another_arithmetic(name: str, files: dict[str, Path]) -> None:
    mode = MODES[PROVABLE.index(name) % len(MODES)]
    with arithmetic(mode), pytest.raises(af.AttnfunError, match="no bound can be proved"):
        af.verify(files[name])


@pytest.mark.parametrize("mode", MODES)
def test_no_kind_is_built_with_a_proof_in_another_arithmetic(mode: str) -> None:
    relation = {"1": ["a", "o"], "2": ["b", "o"], "3": ["c", "o"]}
    for make in (lambda: af.lexicographic(3, 2), lambda: af.neighbours(4, 3), lambda: af.embed_dim(relation, table=[])):
        with arithmetic(mode), pytest.raises(af.AttnfunError, match="no bound can be proved"):
            make()


def test_intervals_without_names_are_those_of_an_mlp(tmp_path: Path) -> None:
    rng, model = np.random.default_rng(0), tmp_path / "weights.safetensors"
    shapes = {"0.weight": (3, 2), "0.bias": (3,), "2.weight": (1, 3), "2.bias": (1,)}
    save_file({name: rng.normal(size=shape) for name, shape in shapes.items()}, model)
    path = tmp_path / "f.safetensors"
    af.compile(model, (-1, 1), 1e-2).save(path)
    for domain in ((-1, 1), [(-1, 1), (-1, 1)], "-1:1", "x2=-1:1;x1=-1:1"):
        assert af.verify(path, model, domain=domain).status is af.Status.PROVED
    with pytest.raises(af.InvalidRequest, match="not about"):
        af.verify(path, model, domain=(-1, 2))


def test_files_that_are_not_verified_say_so_whatever_is_expected_of_them(files: dict[str, Path]) -> None:
    for name in set(KINDS) - set(PROVABLE):
        for more in ({}, {"eps": 1.0}, {"dtype": "float64"}):
            with pytest.raises(af.InvalidRequest, match="not verified"):
                af.verify(files[name], **more)


@pytest.mark.parametrize(
    "claim",
    [
        None,
        {},
        {"eps": 1e-3, "norm": "sup", "relative": False},
        {"eps": 1e-3, "norm": "sup", "relative": False, "trained": False, "more": 1},
        {"eps": "1", "norm": "sup", "relative": False, "trained": False},
        {"eps": True, "norm": "sup", "relative": False, "trained": False},
        {"eps": 0, "norm": "sup", "relative": False, "trained": False},
        {"eps": 10**400, "norm": "sup", "relative": False, "trained": False},
        {"eps": 1e-3, "norm": 0.5, "relative": False, "trained": False},
        {"eps": 1e-3, "norm": [], "relative": False, "trained": False},
        {"eps": 1e-3, "norm": "mean square", "relative": False, "trained": False},
        {"eps": 1e-3, "norm": "sup", "relative": 0, "trained": False},
        {"eps": 1e-3, "norm": "sup", "relative": False, "trained": None},
    ],
)
def test_a_file_that_does_not_say_what_was_asked_for_is_damaged(
    claim: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("function", "ternary", "matching"):
        out = resealed(files[name], tmp_path / "f.safetensors", lambda record, _: record.update(claim=claim))
        with pytest.raises(af.DamagedFile):
            af.verify(out)


@pytest.mark.parametrize("name", KINDS)
def test_what_was_asked_for_cannot_be_changed_without_the_hash(
    name: str, files: dict[str, Path], tmp_path: Path
) -> None:
    tensors, record = sealed.read(files[name])
    own = record["claim"]
    for key, value in (("eps", 10.0), ("norm", 7), ("relative", not own["relative"]), ("trained", not own["trained"])):
        changed = {**record, "claim": {**own, key: value}}
        out = tmp_path / "f.safetensors"
        out.write_bytes(sealed.to_bytes(dict(tensors), metadata={"attnfun": json.dumps(changed)}))
        with pytest.raises(af.DamagedFile):
            af.load(out)
        with pytest.raises(af.AttnfunError):
            af.verify(out)


# ---------------------------------------------------------------- what is loaded


@pytest.mark.parametrize("name", KINDS)
def test_forged_numbers_of_a_file_are_nowhere_called_proved(
    name: str, made: dict[str, Any], files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def forge(record: dict[str, Any], _tensors: dict[str, Any]) -> None:
        for key in ("certificate", "prediction", "study", "story"):
            if key in record:
                record[key] = all_numbers(record[key], FORGED)
        if "certificate" in record:
            record["certificate"] |= {"status": "proved", "eps": FORGED, "target": "cos(x)", "reason": None}

    out = resealed(files[name], tmp_path / "forged.safetensors", forge)
    back, honest = af.load(out), made[name]
    assert main(["show", str(out)]) == 0
    text = capsys.readouterr().out
    assert main(["show", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["verified"] is False and record.get("status", "stored") == "stored"
    assert "as stored" in text and "not verified" in text and "cos(x)" not in text
    assert not [line for line in text.splitlines() if "1.23" in line and "proved" in line.replace("not proved", "")]
    assert back.certificate.status is af.Status.STORED and not back.certificate.verified
    assert back.certificate.target == honest.certificate.target and back.certificate.norm == honest.certificate.norm
    assert back.request == {**back.request, **{k: v for k, v in honest.request.items() if v is not None}}
    assert back.certificate.claimed is af.Status.PROVED and back.certificate.to_json()["verified"] is False
    if name in ("neighbours", "biased"):
        assert back.predicted.proved is None and back.predicted.accuracy_proved is None
    for word in ("error", "bound"):
        found = getattr(back, word, None)
        assert found is None or FORGED not in (found, *getattr(found, "__dict__", {}).values())
    if hasattr(back, "explain"):
        assert "not verified" in back.explain() and "roved" not in back.explain().replace("could not be proved", "")


UNREADABLE: tuple[dict[str, Any], ...] = (
    {"error": 10**400},
    {"error_low": -1.0},
    {"details": [1, 2]},
    {"details": {"steps": 5}},
    {"details": {"steps": [{"name": "x"}]}},
    {"details": {"steps": [{"name": "x", "function": 1, "own": 0.0, "total": 0.0}]}},
    {"details": {"steps": [{"name": "x", "function": "x", "own": 0.0, "total": 10**400}]}},
    {"details": {"coordinates": {"x": "0"}}},
    {"details": {"coordinates": 5}},
    {"reason": {"a": 1}},
    {"parts": [1]},
    {"witness": 1},
)


@pytest.mark.parametrize("name", ["function", "sequence", "relation", "ternary", "retrieval", "in-context"])
def test_a_stored_certificate_or_story_of_another_form_is_damaged_and_never_a_fault(
    name: str, files: dict[str, Path], tmp_path: Path
) -> None:
    own = sealed.read(files[name])[1]
    stories = ([1], "text", 5, {"methods": [1]}) if name in ("function", "sequence") else ()
    forged: list[dict[str, Any]] = [{"certificate": own["certificate"] | change} for change in UNREADABLE]
    for parts in [*forged, *({"story": story} for story in stories)]:
        out = resealed(files[name], tmp_path / "f.safetensors", lambda record, _, parts=parts: record.update(parts))
        with pytest.raises(af.DamagedFile):
            af.load(out)


@pytest.mark.parametrize("name", ["function", "sequence", "relation", "cells", "retrieval", "ternary"])
def test_words_of_a_file_are_neither_markup_nor_orders_to_a_terminal(
    name: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "[/x][bold green]y[/]\x1b]0;z\x07\x9b2J"

    def forge(record: dict[str, Any], _tensors: dict[str, Any]) -> None:
        record |= {key: hostile for key in ("method",) if key in record}
        words = dict.fromkeys(("method", "construction", "reason"), hostile)
        record["certificate"] |= {**words, "hypotheses": [hostile], "parts": {hostile: 1.0}}

    out = resealed(files[name], tmp_path / "f.safetensors", forge)
    for command in ("show", "verify"):
        assert main([command, str(out)]) == 0
        said = "".join(capsys.readouterr())
        assert not any(c in said for c in "\x1b\x07\x9b")
        assert "[/x]" in said or command == "verify"


@pytest.mark.parametrize("name", KINDS)
def test_saving_what_was_loaded_gives_the_same_file(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    af.load(files[name]).save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == files[name].read_bytes()


@pytest.mark.parametrize("seed", range(3))
def test_a_loaded_head_promises_what_its_own_weights_keep(seed: int, files: dict[str, Path], tmp_path: Path) -> None:
    """Vectors of other keys, certificate and study untouched: regret and weights are those of these vectors."""
    rng = np.random.default_rng(seed)

    def shuffle(_record: dict[str, Any], tensors: dict[str, Any]) -> None:
        own = tensors["vectors"]
        tensors["vectors"] = own[::-1].copy() if seed == 0 else own[rng.permutation(len(own))]

    out = resealed(files["retrieval"], tmp_path / "shuffled.safetensors", shuffle)
    head, true = af.load(out), af.load(files["retrieval"])
    X = np.linspace(0, 1, 400)[:, None]
    own = head.relation.target.table(X, head.weights.points)
    regret = float((own.max(axis=1) - own[np.arange(len(X)), head.top(X)]).max())
    assert regret > 1e-2 and head.bound.regret >= regret and head.error >= regret / 2
    assert head.bound.winner_weight is None  # the stored study's margins are not verified
    assert not any(head.at(x).proved for x in rng.uniform(0, 1, (5, 1)))
    assert true.bound.regret < 1e-2 and any(true.at(x).proved for x in rng.uniform(0, 1, (20, 1)))
    assert af.verify(out).status in (af.Status.REFUTED, af.Status.UNDECIDED)


def test_a_loaded_form_is_proved_when_its_error_is_asked_for(files: dict[str, Path], tmp_path: Path) -> None:
    form = af.load(files["ternary"])
    assert form.error == af.verify(files["ternary"]).error[1] == form.certificate.error[1]
    out = resealed(files["ternary"], tmp_path / "zero.safetensors", nothing("coefficients"))
    assert af.load(out).certificate.error == form.certificate.error and af.load(out).error >= math.e  # at (1, 1, 1)


# ---------------------------------------------------------------- one file, opened once

_OPENED: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _OPENED is not None and event == "open" and isinstance(arguments[0], str):
        _OPENED.append(arguments[0])


sys.addaudithook(_watch)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_is_opened_once(name: str, files: dict[str, Path]) -> None:
    global _OPENED
    path = str(files[name])
    for command in (["show", path, "--json"], ["verify", path, "--json"], ["eval", path, "--at", "x=0.5"]):
        _OPENED = []
        try:
            main(command)
        finally:
            opened, _OPENED = _OPENED, None
        assert opened.count(path) == 1


def test_a_file_that_is_exchanged_after_it_was_read_is_the_one_that_was_read(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = tmp_path / "f.safetensors", sealed.read_bytes
    for first, second in (("function", "ternary"), ("slices", "cells"), ("matching", "function")):
        path.write_bytes(files[first].read_bytes())

        def exchange(where: Path, limit: int, then: str = second) -> bytes:
            data = read(where, limit)
            where.write_bytes(files[then].read_bytes())
            return data

        monkeypatch.setattr(sealed, "read_bytes", exchange)
        found = af.verify(path)
        monkeypatch.setattr(sealed, "read_bytes", read)
        assert found == af.verify(files[first])


@pytest.mark.parametrize("name", KINDS)
def test_what_a_loaded_model_proves_of_is_in_memory(
    name: str, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only models that prove nothing of their weights, those of functions, leave tensors in the file."""
    monkeypatch.setattr(sealed, "LARGE", 1)
    loaded = af.load(files[name])
    tensors = store.taken_apart(loaded.weights)[1].values()
    left = [array for array in tensors if map_behind(array) is not None]
    assert bool(left) == loaded.kind.mapped == (loaded.target.kind == "function")


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "absent", Path("/dev/null"), Path("a\0b")):
        with pytest.raises(af.InvalidRequest, match="cannot read"):
            af.verify(path)
