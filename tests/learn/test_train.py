"""Training: one seed gives the same bits, an interrupted run the same result, a certificate no more than holds."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.learn import Progress, Recipe, Row
from attnfun.learn.probe import errors, key_norms, probe_points
from attnfun.network import Architecture, Network, evaluate, identical
from certify.hunting import assert_sound

torch = pytest.importorskip("torch")

learning: Any = import_module("attnfun.learn.train")

LINE = Architecture.one_head(("x",), 6)
QUICK: dict[str, Any] = {"steps": 20, "batch": 32, "polish": 6}


@pytest.fixture(scope="module")
def built() -> af.Approximant:
    return af.compile("sin(3*x)", "x=-1:1", 1e-3)


def sup(network: Network, target: Any) -> float:
    return float(errors(network, target, probe_points(target.box)).max())


def test_training_lowers_the_error_and_says_so_in_its_history() -> None:
    learned = af.train(LINE, "sin(3*x)", "x=-1:1", steps=400, batch=64, polish=30)
    first, last = learned.history[0], learned.history[-1]
    assert last.loss < first.loss / 100 and last.sup < first.sup / 5
    assert [row.step for row in learned.history] == sorted({row.step for row in learned.history})
    assert {row.phase for row in learned.history} == {"gradient", "polish"} and last.step == 430
    best = min(learned.history, key=lambda row: row.sup)
    assert learned.fit.best_step == best.step and sup(learned.network, learned.target) == best.sup
    assert (best.key_norm_mean, best.key_norm_max) == key_norms(learned.network)
    assert 1 <= (best.effective_keys or 0) <= 6
    json.dumps([row.to_json() for row in learned.history], allow_nan=False)


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(optimiser: str) -> None:
    one, two, other = (
        af.train(LINE, "abs(x)", "x=-1:1", seed=seed, optimiser=optimiser, **QUICK, proof=False) for seed in (3, 3, 4)
    )
    assert identical(one.network, two.network) and one.history == two.history
    assert not identical(one.network, other.network)


def test_the_settings_of_torch_are_as_before_and_do_not_matter() -> None:
    threads = torch.get_num_threads()
    before = af.train(LINE, "abs(x)", "x=-1:1", **QUICK, proof=False)
    torch.set_num_threads(2)
    torch.manual_seed(99)
    try:
        with torch.no_grad():
            after = af.train(LINE, "abs(x)", "x=-1:1", **QUICK, proof=False)
        assert torch.get_num_threads() == 2 and not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_num_threads(threads)
    assert identical(before.network, after.network)


class Killed(Exception):
    pass


PLANE: dict[str, Any] = {"target": "x*sin(3*y)", "domain": "x=-1:1;y=0:2", "proof": False}


@cache
def not_interrupted(dtype: str) -> Any:
    return af.train(Architecture.one_head(("x", "y"), (3, 3), dtype=dtype), **PLANE, **QUICK)


@pytest.mark.parametrize("at", [7, 20, 23])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_interrupted_run_ends_as_one_that_was_not(tmp_path: Path, at: int, dtype: str) -> None:
    shape = Architecture.one_head(("x", "y"), (3, 3), dtype=dtype)
    request, whole = {**PLANE, **QUICK}, not_interrupted(dtype)
    path = tmp_path / "run.safetensors"

    def stop(progress: Progress) -> None:
        if progress.row.step == at:
            raise Killed

    with pytest.raises(Killed):
        af.train(shape, **request, checkpoint=path, progress=stop)
    seen: list[int] = []
    again = af.train(shape, **request, checkpoint=path, progress=lambda p: seen.append(p.row.step))
    assert min(seen) == at + 1
    assert identical(whole.network, again.network) and whole.history == again.history
    seen.clear()
    third = af.train(shape, **request, checkpoint=path, progress=lambda p: seen.append(p.row.step))
    assert not seen and identical(whole.network, third.network) and whole.history == third.history


def test_a_killed_process_loses_no_more_than_the_row_under_way(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    code = (
        "import sys, attnfun as af\n"
        "af.train(af.Architecture.one_head('x', 6), 'abs(x)', 'x=-1:1', steps=20000, checkpoint=sys.argv[1])"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(path)])
    try:
        while not path.exists():
            assert worker.poll() is None
            time.sleep(0.02)
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()

    def stop(progress: Progress) -> None:
        rows.append(progress.row)
        if len(rows) == 1:
            raise Killed

    rows: list[Row] = []
    with pytest.raises(Killed):
        af.train(LINE, "abs(x)", "x=-1:1", steps=20000, checkpoint=path, progress=stop)
    assert rows[0].step >= 400  # a row every 200 steps; the first was in the file


def test_a_long_run_is_never_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """News between the rows of the history, and a bar on a terminal that is gone when the run is."""
    request: dict[str, Any] = {"target": "abs(x)", "domain": "x=-1:1", "steps": 250, "batch": 8, "proof": False}
    quiet: list[Progress] = []
    plain = af.train(LINE, **request, progress=quiet.append)
    assert [at.step for at in quiet] == [row.step for row in plain.history[1:]]
    monkeypatch.setattr(learning, "_NEWS", 0.0)
    seen: list[Progress] = []
    told = af.train(LINE, **request, progress=seen.append)
    assert [at.step for at in seen] == list(range(1, 251)) and all(at.row.step <= at.step for at in seen)
    assert identical(plain.network, told.network) and plain.history == told.history

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    for quiet_seconds, terminal, drawn in ((0.0, Terminal(), True), (1e9, Terminal(), False), (0.0, StringIO(), False)):
        monkeypatch.setattr(learning, "_QUIET", quiet_seconds)
        monkeypatch.setattr(sys, "stderr", terminal)
        af.train(LINE, **request)
        shown = terminal.getvalue()
        assert ("125 of 250 steps" in shown) == bool(shown) == drawn
        assert not drawn or not shown.rsplit("\r", 2)[1].strip()


def test_the_checkpoint_of_another_run_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    af.train(LINE, "abs(x)", "x=-1:1", steps=5, checkpoint=path, proof=False)
    for changed in ({"steps": 6}, {"seed": 1}, {"target": "x"}, {"domain": "x=0:1"}, {"noise": 0.1}):
        request: dict[str, Any] = {"target": "abs(x)", "domain": "x=-1:1", "steps": 5, "proof": False, **changed}
        with pytest.raises(af.InvalidRequest, match="another run"):
            af.train(LINE, **request, checkpoint=path)
    with pytest.raises(af.DamagedFile):
        af.load(path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(af.DamagedFile):
        af.train(LINE, "abs(x)", "x=-1:1", steps=5, checkpoint=path, proof=False)


def test_a_constructed_start_never_ends_worse_on_the_probe(built: af.Approximant) -> None:
    for lr in (1e-2, 1e-6):
        learned = af.train(built, start="constructed", lr=lr, **QUICK)
        assert learned.architecture == built.architecture and learned.network.labels is None
        assert sup(learned.network, built.target) <= sup(built.network, built.target)
    untouched = af.train(built, start="constructed", steps=0)
    for (_, mine), (_, yours) in zip(untouched.network.arrays(), built.network.arrays(), strict=True):
        assert np.array_equal(mine, yours)
    assert all(head.name == "learned" for head in untouched.network.heads)


def test_a_start_may_be_a_network_that_was_trained_before() -> None:
    first = af.train(LINE, "abs(x)", "x=-1:1", steps=40, proof=False)
    then = af.train(LINE, "abs(x)", "x=-1:1", start=first, steps=40, lr=1e-3, proof=False)
    assert then.fit.start == "given" and then.history[0].sup == sup(first.network, first.target)
    with pytest.raises(af.InvalidRequest):
        af.train(Architecture.one_head(("x",), 7), "abs(x)", "x=-1:1", start=first, steps=4)


def test_a_start_may_read_less_than_what_is_trained() -> None:
    grid = Architecture.one_head(("x", "y"), (3, 3))
    first = af.train(grid, "x*sin(y)", "x=-1:1;y=-1:1", steps=5, proof=False)
    then = af.train(grid.dense(), first.target, start=first, steps=60, proof=False)
    assert then.history[0].sup == sup(first.network, first.target) and then.fit.best_step > 0
    assert then.architecture == grid.dense() != grid
    with pytest.raises(af.InvalidRequest):
        af.train(grid, first.target, start=then, steps=5)


def test_a_single_head_is_written_with_its_read_out_in_its_values() -> None:
    """So that a trained partition has the form of the theorem, and a kinked target in two variables its proof."""
    built = af.compile("abs(x) + y", "x=-1:1;y=-1:1", 0.5, method="partition")
    learned = af.train(built, start="constructed", steps=20, lr=1e-4)
    assert learned.fit.best_step > 0 and not learned.network.readout_bias.any()
    assert learned.certificate.status is af.Status.BOUNDED and learned.certificate.method == "cells"
    assert_sound(learned.certificate, learned.network, learned.target)


CASES = [
    pytest.param(LINE, "sin(3*x)", "x=-1:1", id="analytic"),
    pytest.param(LINE, "abs(x - 0.2)", "x=-1:1", id="kink"),
    pytest.param(Architecture.one_head(("x",), 6, dtype="float32"), "exp(x)", "x=1:3", id="float32"),
    pytest.param(Architecture.one_head(("x", "y"), (3, 3)), "x*cos(y)", "x=-1:1;y=0:2", id="grid"),
    pytest.param(Architecture.one_head(("x",), 5, ("f1", "f2")), ["x**2", "sin(x)"], "x=-1:1", id="two outputs"),
]


@pytest.mark.parametrize(("shape", "target", "domain"), CASES)
def test_a_proved_bound_of_trained_weights_holds(shape: Architecture, target: Any, domain: str, tmp_path: Path) -> None:
    learned = af.train(shape, target, domain, **QUICK)
    assert learned.certificate.status is af.Status.BOUNDED
    assert_sound(learned.certificate, learned.network, learned.target)
    assert learned.sampled.status is af.Status.SAMPLED and learned.sampled.error[0] <= learned.certificate.error[1]
    learned.save(tmp_path / "f.safetensors")
    again = af.verify(tmp_path / "f.safetensors")
    assert again.error == learned.certificate.error and again.construction == "learned"
    loaded = af.load(tmp_path / "f.safetensors")
    assert identical(loaded.network, learned.network) and "not verified" in loaded.explain()
    assert af.compare(loaded).entries[0].name.startswith("learned")


def test_what_cannot_be_proved_is_sampled_and_says_why() -> None:
    one = Architecture.one_head(("x", "y"), 4)
    two = Architecture(one.inputs, (one.layers[0], one.layers[0]), one.outputs, reads=(3,))
    learned = af.train(two, "x*y", "x=-1:1;y=-1:1", steps=10)
    assert learned.certificate.status is af.Status.SAMPLED and "not proved" in (learned.certificate.reason or "")
    X = learned.target.box.sample(100, np.random.default_rng(5))
    assert np.abs(learned(X) - X[:, 0] * X[:, 1]).max() <= 1.2 * learned.certificate.error[1]


def test_a_black_box_is_trained_but_not_from_its_file_alone(tmp_path: Path) -> None:
    def target(x: float) -> float:
        return math.sin(float(x))

    learned = af.train(LINE, target, "x=0:1", lipschitz=1.0, steps=5)
    assert learned.certificate.status is af.Status.BOUNDED  # under the hypothesis that was declared
    assert any("Lipschitz constant 1 " in hypothesis for hypothesis in learned.certificate.hypotheses)
    learned.save(tmp_path / "f.safetensors")
    with pytest.raises(af.InvalidRequest, match="not in the file"):
        af.train(af.load(tmp_path / "f.safetensors"), steps=5)
    with pytest.raises(af.InvalidRequest, match="not in the file"):
        af.compare(af.load(tmp_path / "f.safetensors"))


@pytest.mark.parametrize("realise", ["attention", "mlp"])
def test_torch_trains_the_network_that_numpy_evaluates(realise: str) -> None:
    """Several layers, several heads: what is trained is what is returned, in torch's own module too."""
    from attnfun.learn.torch_function import run
    from attnfun.learn.weights import Units, vector_of

    net = af.compile("exp(x)*sin(y)", "x=-1:1;y=2:3", 0.1, method="compose", realise=realise)
    X = net.target.box.sample(64, np.random.default_rng(1))
    units = Units.of(net.target, X)
    theta = torch.tensor(vector_of(net.network, net.architecture, units))
    mine = run(net.architecture, theta, torch.tensor((X - units.centre) / units.half)).numpy() * units.scale
    np.testing.assert_allclose(mine, evaluate(net.network, X), rtol=0, atol=1e-11)
    learned = af.train(net, steps=20, start="constructed", lr=1e-5)
    np.testing.assert_allclose(learned.to_torch()(torch.tensor(X)).numpy(), learned(X), rtol=0, atol=1e-11)


def test_patience_ends_the_first_part_and_a_run_that_diverges_keeps_its_best() -> None:
    short = af.train(LINE, "sin(3*x)", "x=-1:1", steps=4000, patience=30, lr=3.0, schedule="constant", proof=False)
    assert short.fit.stopped == "patience" and 30 <= short.fit.steps < 4000
    lost = af.train(LINE, "sin(3*x)", "x=-1:1", steps=50, lr=1e300, proof=False)
    assert lost.fit.stopped == "diverged" and lost.fit.best_step == 0
    assert math.isfinite(lost.certificate.error[1])


def test_far_and_large_targets_train_like_near_and_small_ones() -> None:
    """Powers of two scale nothing but the units: the same run, bit for bit."""
    near = af.train(LINE, "sin(3*x)", "x=-1:1", **QUICK, proof=False)
    large = af.train(LINE, "1024*sin(3*(x/8))", "x=-8:8", **QUICK, proof=False)
    assert [row.sup * 1024 for row in near.history] == pytest.approx([row.sup for row in large.history], rel=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": -1},
        {"steps": 1.5},
        {"steps": True},
        {"seed": -1},
        {"lr": 0.0},
        {"lr": math.nan},
        {"batch": 0},
        {"polish": -1},
        {"patience": 0},
        {"noise": -1.0},
        {"optimiser": "sgd"},
        {"schedule": "warm"},
        {"start": "warm"},
        {"start": 3},
        {"start": "constructed"},
        {"target": None},
        {"target": "log(x)"},
        {"domain": None},
        {"domain": "y=0:1"},
        {"target": ["x", "x"]},
    ],
)
def test_odd_requests_are_refused_in_one_line(change: dict[str, Any]) -> None:
    request: dict[str, Any] = {"target": "abs(x)", "domain": "x=-1:1", "steps": 3, **change}
    with pytest.raises(af.AttnfunError) as why:
        af.train(LINE, **request)
    assert "\n" not in str(why.value)


def test_the_rates_of_a_one_cycle_rise_and_fall() -> None:
    rates = [Recipe(steps=100, lr=0.5).rate(k) for k in range(100)]
    top = int(np.argmax(rates))
    assert max(rates) == pytest.approx(0.5, rel=1e-2) and 20 < top < 40
    assert rates[:top] == sorted(rates[:top]) and rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] < 1e-5 < rates[0] < 0.05
