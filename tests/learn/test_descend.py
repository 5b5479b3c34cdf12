"""The small loop for models that are no Network: schedules, seeds, and what it leaves as it was."""

from __future__ import annotations

import math

import numpy as np
import pytest

import attnfun as af
from attnfun.learn import descend, generator, one_torch_thread
from attnfun.learn.descend import SCHEDULES, rate_at

torch = pytest.importorskip("torch")


def line(seed: int, **options: object) -> tuple[list[float], torch.Tensor]:
    """Two weights fitted to 3x − 1 on fresh points."""
    weights = torch.zeros(2, dtype=torch.float64, requires_grad=True)

    def loss(step: int) -> torch.Tensor:
        x = torch.rand(32, generator=generator(seed, step), dtype=torch.float64)
        return torch.mean((weights[0] * x + weights[1] - (3 * x - 1)) ** 2)

    with one_torch_thread():
        losses = descend([weights], loss, steps=250, lr=0.1, **options)
    return losses, weights.detach()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_a_line_is_found_under_every_schedule(schedule: str, optimiser: str) -> None:
    losses, weights = line(0, schedule=schedule, optimiser=optimiser, weight_decay=0.0)
    assert len(losses) == 250 and losses[-1] < 1e-3 * losses[0]
    assert torch.allclose(weights, torch.tensor([3.0, -1.0], dtype=torch.float64), atol=0.1)


def test_the_same_seed_gives_the_same_bits_and_another_one_others() -> None:
    assert line(3)[0] == line(3)[0] != line(4)[0]
    drawn = {float(torch.rand(1, generator=generator(*path))) for path in ((0,), (1,), (0, 1), (1, 0), (0, 0, 1))}
    assert len(drawn) == 5


def test_adam_has_no_decay_and_adamw_has() -> None:
    def far(**options: object) -> float:
        weight = torch.full((1,), 10.0, dtype=torch.float64, requires_grad=True)
        descend([weight], lambda _: 0.0 * weight.sum(), steps=10, lr=0.1, schedule="constant", **options)
        return float(weight.detach())

    assert far(weight_decay=0.5) == 10.0
    assert far(optimiser="adamw", weight_decay=0.5) == pytest.approx(10.0 * (1 - 0.05) ** 10)


def test_a_loss_that_is_not_finite_ends_the_descent_before_it_spoils_the_weights() -> None:
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    losses = descend([weight], lambda step: weight.sum() * (math.nan if step == 3 else 1.0), steps=9, lr=0.1)
    assert len(losses) == 4 and math.isnan(losses[-1]) and torch.isfinite(weight).all()


def test_reports_come_about_a_hundred_times_and_at_the_end() -> None:
    weight, seen = torch.ones(1, requires_grad=True), list[int]()
    descend([weight], lambda _: (weight**2).sum(), steps=1050, lr=0.1, report=lambda step, loss: seen.append(step))
    assert seen[-1] == 1050 and 90 <= len(seen) <= 120


def test_the_settings_of_torch_are_put_back() -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with pytest.raises(RuntimeError), one_torch_thread():
        assert torch.get_num_threads() == 1 and torch.are_deterministic_algorithms_enabled()
        raise RuntimeError
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


def test_rates_fall_to_nothing_and_odd_names_are_refused() -> None:
    for schedule in ("linear", "cosine"):
        rates = [rate_at(schedule, 0.5, k, 100) for k in range(100)]
        assert rates[0] == 0.5 and np.all(np.diff(rates) < 0) and 0 < rates[-1] < 0.01
    early = [rate_at("one-cycle", 0.5, k, 101, warm=0.1) for k in range(101)]
    assert int(np.argmax(early)) == 10 and early[10] == 0.5  # a tenth of the steps rise, the others fall
    names = ({"schedule": "warm"}, {"optimiser": "sgd"}, {"warm": 1.0}, {"warm": float("nan")})
    for odd in (*names, {"steps": -1}, {"steps": 1.5}, {"lr": float("nan")}, {"lr": 0.0}):
        with pytest.raises(af.InvalidRequest):
            descend([torch.ones(1, requires_grad=True)], lambda _: torch.ones(1), **{"steps": 1, "lr": 0.1} | odd)
