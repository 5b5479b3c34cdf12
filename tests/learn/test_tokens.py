"""Networks on tokens, trained: shapes, units, starts, prompts and sequences; the same bits, resumed or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.kinds.in_context.exact import draw_prompts, exact_for_all, exact_predictions
from attnfun.kinds.in_context.target import InContextTask, prompt
from attnfun.kinds.sequence.examples import example
from attnfun.kinds.sequence.target import SequenceMap
from attnfun.learn import Progress, SampledTask
from attnfun.learn.lesson import Drawn
from attnfun.learn.weights import random_tokens, token_scales, token_vector, tokens_of
from attnfun.network import TokenArchitecture

torch = pytest.importorskip("torch")

MAP = SequenceMap.read("x*mean(x)", "x=-1:1", 3)
ROWS = SequenceMap.read([["x_2", "y_2"], ["x_1", "y_1"]], "x=-1:1;y=0:3", 2)
RIDGE = InContextTask.make("ridge", 2, 8, alpha=1.0)
SMALL: dict[str, Any] = {"layers": 2, "heads": 2, "rank": 3, "width": 6}
QUICK: dict[str, Any] = {"steps": 7, "batch": 8, "polish": 2}


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for (_, x), (_, y) in zip(a.arrays(), b.arrays(), strict=True))


@pytest.mark.parametrize("ffn", [0, 5])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_weights_in_units_are_the_same_weights_and_torch_trains_what_numpy_runs(ffn: int, dtype: str) -> None:
    from attnfun.learn.torch_tokens import run

    shape = TokenArchitecture.for_target(ROWS, **{**SMALL, "width": 9}, constants=2, ffn=ffn, dtype=dtype)
    tokens = np.random.default_rng(0).normal(size=(7, 4, 9)) * np.array([1, 100, 1e-3, 1, 1, 1, 1, 1, 1])
    scales = token_scales(tokens)
    network = random_tokens(shape, scales, 8.0, seed=1)
    assert network.architecture == shape and shape.free_weights == sum(a.size for _, a in network.arrays())
    vector = token_vector(network, scales, 8.0)
    assert same(tokens_of(shape, vector, scales, 8.0), network)
    kind = getattr(torch, dtype)
    mine = run(shape, torch.tensor(vector, dtype=kind), torch.tensor(tokens / scales, dtype=kind)).numpy() * 8.0
    close = {"rtol": 0, "atol": 1e-12 if dtype == "float64" else 1e-3}
    np.testing.assert_allclose(mine, network.run(tokens), **close)
    np.testing.assert_allclose(network.to_torch()(torch.tensor(tokens)).numpy(), mine, **close)


@pytest.mark.parametrize("size", [1.0, 3e3])  # of the queries: with logits that are added up as they are, and shifted
@pytest.mark.parametrize("at_a_time", [1, 200, 1 << 16])
def test_the_gradient_is_that_of_the_formula_and_no_softmax_weights_are_kept(
    at_a_time: int, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnfun.learn import torch_tokens

    monkeypatch.setattr(torch_tokens, "_CACHED", at_a_time)
    draw = torch.Generator().manual_seed(3)
    query, token = (torch.randn(5, k, n, dtype=torch.float64, generator=draw) for k, n in ((2, 7), (5, 9)))
    given = ((size * query).requires_grad_(), token.requires_grad_())
    weight = torch.randn(5, 3, 7, dtype=torch.float64, generator=draw)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda own: kept.append(own.numel()) or own, lambda own: own):
        mine = torch_tokens._Attended.apply(*given)
    assert sum(kept) == 5 * (7 * 3 + 9 * 3 + 9 * 4 + 7 * 3 + 7)
    plain = given[1][:, 2:] @ torch.softmax(given[1][:, :2].transpose(1, 2) @ given[0], dim=1)
    for one, other in zip(
        (mine, *torch.autograd.grad((mine * weight).sum(), given)),
        (plain, *torch.autograd.grad((plain * weight).sum(), given)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


def test_a_loss_in_parts_is_the_loss_and_the_last_layer_moves_what_is_read_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from attnfun.learn import torch_tokens

    shape = TokenArchitecture.for_target(RIDGE, **{**SMALL, "width": 9})
    problem = torch_tokens.TokenProblem(Drawn(RIDGE, shape, reads=slice(16, None)), {}, 0)
    theta = torch.tensor(problem.start(), requires_grad=True)
    tokens, wanted = problem.batch(np.random.default_rng(0), 7, 0.0)
    plain = ((torch_tokens.run(shape, theta, tokens)[:, 16:] - wanted) ** 2).mean()
    (slope,) = torch.autograd.grad(plain, theta)
    moved: list[tuple[int, ...]] = []
    attended = torch_tokens._Attended.apply
    monkeypatch.setattr(
        torch_tokens._Attended, "apply", lambda query, token: moved.append(tuple(query.shape)) or attended(query, token)
    )
    for most, parts in ((1, 7), (1 << 19, 1)):
        moved.clear()
        monkeypatch.setattr(torch_tokens, "_PART", most)
        loss = problem.loss(theta, tokens, wanted)
        torch.testing.assert_close(loss, plain, rtol=1e-13, atol=0)
        torch.testing.assert_close(torch.autograd.grad(2 * loss, theta)[0], 2 * slope, rtol=1e-11, atol=1e-13)
        assert moved == parts * [(2 * 7 // parts, 3, 17), (2 * 7 // parts, 3, 1)]


def test_an_architecture_is_that_of_its_networks_and_of_its_json() -> None:
    net = af.sequence(**example("sine").request(small=True))
    shape = net.literal().network.architecture
    assert shape.constants > 0 and any(layer.carry for layer in shape.layers)
    assert TokenArchitecture.from_json(shape.to_json()) == shape
    attention = TokenArchitecture.for_target(MAP, layers=2, heads=4, rank=4, width=8)
    mixed = TokenArchitecture.for_target(MAP, layers=2, heads=2, rank=4, width=8, ffn=15)
    assert abs(attention.free_weights - mixed.free_weights) < 0.1 * attention.free_weights
    for odd in ({"layers": 0}, {"heads": 0}, {"rank": 0}, {"width": 1}, {"ffn": -1}, {"dtype": "float16"}):
        with pytest.raises(af.InvalidRequest):
            TokenArchitecture.for_target(MAP, **odd)


@pytest.mark.parametrize(
    "task",
    [
        RIDGE,
        InContextTask.make("linear", 2, 9, spectrum=(2.0, 30.0)),
        InContextTask.make("lasso", 3, 12, spectrum=(3.0, 40.0), alpha=0.3),
        InContextTask.make("logistic", 2, 10, spectrum=(3.0, 30.0)),
    ],
    ids=lambda task: task.task,
)
def test_prompts_are_of_the_class_and_their_values_are_the_exact_solver_s(task: InContextTask) -> None:
    X, y, q = draw_prompts(task, np.random.default_rng(2), 12)
    values = exact_for_all(task, X, y, q)
    names = TokenArchitecture.for_target(task).coordinates
    (together,), _ = task.encode(TokenArchitecture.for_target(task), X, y, q)
    for k in range(12):
        x, t = task.examples_of(X[k], y[k])
        assert task.covers(x) and task.queries_of(q[k]).shape == (1, task.dim)
        assert values[k] == pytest.approx(exact_predictions(task, x, t, q[k : k + 1])[0], abs=1e-8)
        assert np.array_equal(together[k], prompt(names, task, x, t, q[k : k + 1]))


def requests() -> list[Any]:
    return [
        pytest.param(TokenArchitecture.for_target(MAP, **SMALL, ffn=4), MAP, id="units"),
        pytest.param(TokenArchitecture.for_target(ROWS, layers=1, constants=1, dtype="float32"), ROWS, id="rows"),
        pytest.param(TokenArchitecture.for_target(RIDGE, layers=1, heads=2, rank=3), RIDGE, id="prompts"),
    ]


class Killed(Exception):
    pass


@pytest.mark.parametrize(("shape", "target"), requests())
def test_the_same_seed_gives_the_same_bits_whether_or_not_the_run_was_interrupted(
    shape: TokenArchitecture, target: Any, tmp_path: Path
) -> None:
    whole = af.train(shape, target, seed=3, proof=False, **QUICK)
    path = tmp_path / "run.safetensors"

    def stop(progress: Progress) -> None:
        if progress.row.step in (4, 8):
            raise Killed

    for _ in range(2):  # once in either part
        with pytest.raises(Killed):
            af.train(shape, target, seed=3, proof=False, **QUICK, checkpoint=path, progress=stop)
    again = af.train(shape, target, seed=3, proof=False, **QUICK, checkpoint=path)
    assert same(whole.network, again.network) and whole.history == again.history
    other = af.train(shape, target, seed=4, proof=False, **QUICK)
    assert not same(whole.network, other.network)
    with pytest.raises(af.InvalidRequest, match="another run"):
        af.train(shape, target, seed=4, proof=False, **QUICK, checkpoint=path)


def test_sequences_are_learned_measured_compared_and_stored(tmp_path: Path) -> None:
    net = af.sequence("x*mean(x)", 3, "x=-1:1", 1e-2)
    learned = af.train(TokenArchitecture.for_target(net.target, **SMALL), net, steps=150, batch=64)
    assert learned.history[-1].loss < 0.1 * learned.history[0].loss
    assert learned.certificate.status is af.Status.SAMPLED and "not proved" in (learned.certificate.reason or "")
    X = np.random.default_rng(5).uniform(-1, 1, (200, 3, 1))
    error = np.abs(learned(X) - net.target.values(X)).max()
    assert error <= 1.5 * learned.sampled.error[1]
    np.testing.assert_allclose(learned.to_torch()(torch.tensor(X)).numpy(), learned(X), rtol=0, atol=1e-12)
    table = af.compare(net, learned)
    assert [entry.steps for entry in table.entries] == [None, 150]
    assert table.entries[0].sup <= (table.entries[0].bound or 0) and table.entries[1].bound is None
    assert table.entries[1].l2 <= table.entries[1].sup
    learned.save(tmp_path / "m.safetensors")
    loaded = af.load(tmp_path / "m.safetensors")
    assert same(loaded.network, learned.network) and np.array_equal(loaded(X), learned(X))
    assert "sampled" in loaded.explain().lower() and loaded.equivariant
    assert type(loaded) is type(net) and loaded.trained
    again = af.verify(tmp_path / "m.safetensors")
    assert again.status is af.Status.UNDECIDED and "trained" in (again.reason or "")
    onward = af.train(loaded, start="constructed", steps=5, batch=8)
    assert onward.history[0].sup == min(row.sup for row in learned.history)


def test_units_make_a_network_of_which_a_file_says_that_nothing_is_proved(tmp_path: Path) -> None:
    learned = af.train(TokenArchitecture.for_target(RIDGE, **{**SMALL, "width": 9}, ffn=3), RIDGE, steps=5, batch=8)
    assert learned.certificate.status is af.Status.SAMPLED
    learned.save(tmp_path / "u.safetensors")
    back, again = af.load(tmp_path / "u.safetensors"), af.verify(tmp_path / "u.safetensors")
    assert same(back.network, learned.network) and back.alone and back.network.units == (3, 3)
    assert again.status is af.Status.UNDECIDED and "ReLU units" in (again.reason or "")


def test_the_literal_of_a_constructed_sequence_is_a_start_that_gets_no_worse() -> None:
    net = af.sequence(**example("swap").request(small=True))
    learned = af.train(net, start="constructed", steps=4, batch=8, lr=1e-6)
    from_shape = af.train(net.architecture, net, start=net.literal().network, steps=4, batch=8, lr=1e-6)
    assert same(from_shape.network, learned.network)
    X = np.stack([net.target.box.sample(2, np.random.default_rng(k)) for k in range(20)])
    assert learned.architecture == net.literal().network.architecture
    assert np.abs(learned(X) - net(X)).max() < 1e-4
    assert min(row.sup for row in learned.history) == learned.history[0].sup or learned.fit.best_step > 0


@pytest.fixture(scope="module")
def solver() -> af.InContextSolver:
    return af.in_context("ridge", 2, 8, alpha=1.0, eps=0.3)


def test_a_solver_is_trained_in_its_own_architecture_and_predicts_query_by_query(
    solver: af.InContextSolver, tmp_path: Path
) -> None:
    untouched = af.train(solver, start="constructed", steps=0)
    assert untouched.certificate.status is af.Status.BOUNDED
    assert untouched.certificate.error[1] == pytest.approx(solver.certificate.error[1])
    learned = af.train(TokenArchitecture.for_target(solver.task, layers=2, heads=2, rank=3), solver, steps=20, batch=16)
    assert learned.certificate.status is af.Status.SAMPLED and learned.history[-1].loss < learned.history[0].loss
    X, y, q = draw_prompts(solver.task, np.random.default_rng(1), 3)
    queries = np.concatenate([q, -q])
    together = learned(X[0], y[0], queries)
    assert np.array_equal(together, np.concatenate([learned(X[0], y[0], one[None]) for one in queries]))
    table = af.compare(solver, learned)
    assert table.entries[0].sup <= solver.certificate.error[1] and table.entries[1].bound is None
    learned.save(tmp_path / "s.safetensors")
    loaded = af.load(tmp_path / "s.safetensors")
    assert np.array_equal(loaded.predict(X[0], y[0], queries), together)
    assert af.verify(tmp_path / "s.safetensors").status not in (af.Status.PROVED, af.Status.BOUNDED)
    assert "trained" in loaded.explain() and "learned" in af.compare(loaded).entries[0].name
    with pytest.raises(af.InvalidRequest):
        loaded.coefficients(X[0], y[0])


@pytest.mark.parametrize(
    "change",
    [
        {"target": None},
        {"target": "x"},
        {"domain": "x=-1:1"},
        {"start": "constructed"},
        {"start": "warm"},
        {"start": 3},
        {"widths": (3,)},
        {"target": ROWS},
        {"target": RIDGE},
        {"noise": -1.0},
    ],
)
def test_odd_requests_are_refused_in_one_line(change: dict[str, Any]) -> None:
    request: dict[str, Any] = {"target": MAP, "steps": 2, "batch": 4, **change}
    with pytest.raises(af.AttnfunError) as why:
        af.train(TokenArchitecture.for_target(MAP, **SMALL), **request)
    assert "\n" not in str(why.value)


@pytest.mark.parametrize("shape", [{"width": 10**9}, {"layers": 10**12}, {"heads": 10**12}, {"rank": 10**12}])
def test_shapes_without_end_are_refused_before_they_are_written_out(shape: dict[str, int]) -> None:
    with pytest.raises(af.InvalidRequest, match="more than"):
        TokenArchitecture.for_target(MAP, **SMALL | shape)


def test_weights_that_are_not_finite_end_a_run_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """LAPACK says what it thinks of an infinite matrix on the terminal, in the middle of --json."""
    learned = af.train(TokenArchitecture.for_target(MAP, **SMALL), MAP, steps=3, batch=4, lr=1e300)
    assert learned.fit.stopped == "diverged" and learned.certificate.status.value == "sampled"
    assert capfd.readouterr() == ("", "")


def test_noise_on_prompts_is_refused() -> None:
    with pytest.raises(af.InvalidRequest):
        af.train(TokenArchitecture.for_target(RIDGE), RIDGE, steps=1, noise=0.1)


def test_any_sampler_of_tokens_is_trained_on() -> None:
    """Pairs that match: whether the first token's number is among the others."""

    def sampler(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = rng.integers(0, 3, (count, 4))
        tokens = np.concatenate([np.eye(3)[numbers], np.ones((count, 4, 1))], axis=2)
        found = (numbers[:, 1:] == numbers[:, :1]).any(axis=1)
        return tokens, found[:, None, None].astype(np.float64)

    task = SampledTask("match", sampler, ("a", "b", "c", "one"), tokens=slice(0, 1), chosen_by="loss")
    shape = TokenArchitecture.plain(task.coordinates, task.outputs, layers=1, heads=2, rank=3, width=6, ffn=8)
    learned = af.train(shape, task, steps=150, batch=64)
    assert learned.fit.best_step == min(learned.history, key=lambda row: row.loss).step
    tokens, values = sampler(np.random.default_rng(9), 500)
    assert np.mean((learned(tokens) > 0.5) == (values > 0.5)) > 0.8
    assert learned.certificate.status is af.Status.SAMPLED and len(af.compare(learned).entries) == 1
    assert same(af.train(learned, start=learned, steps=0).network, learned.network)
    with pytest.raises(af.InvalidRequest, match="sampler"):
        af.train(shape, SampledTask("odd", sampler, ("a", "b", "c", "one")), steps=1)
    for odd in (lambda rng, n: None, lambda rng, n: (sampler(rng, n)[0] * np.nan, sampler(rng, n)[1])):
        with pytest.raises(af.InvalidRequest, match="sampler"):
            af.train(shape, SampledTask("odd", odd, task.coordinates, tokens=slice(0, 1)), steps=1)
    with pytest.raises(af.InvalidRequest, match="slice"):
        SampledTask("odd", sampler, task.coordinates, tokens=3)
    with pytest.raises(af.InvalidRequest):
        af.train(TokenArchitecture.plain(("a",), ("f",)), task, steps=1)


def test_networks_are_run_in_parts_that_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    network, tokens = af.matching(4, 5).network, np.random.default_rng(0).normal(size=(7, 4, 5))
    whole = network.run(tokens)
    monkeypatch.setattr("attnfun.network.tokens._BLOCK", 50)  # two matrices of five tokens at a time
    assert np.array_equal(network.run(tokens), whole) and whole.shape[0] == 7
