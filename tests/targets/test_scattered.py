"""Scattered data with a declared constant: the certificate holds for every function that they allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from products import few


def plane(X: Any) -> Any:
    return np.sin(X[:, 0]) * X[:, -1]


@pytest.mark.parametrize(("d", "seed"), few([(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)], 3))
def test_no_function_through_the_data_is_further_away_than_the_bound(d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(60 * 4 ** (d - 1), d))
    target = af.table(X, plane(X), lipschitz=2.0)
    eps = 0.2 * d
    net = af.compile(target, eps=eps)
    assert net.certificate.status == "conditional" and net.certificate.error[1] <= eps
    Y = net.target.box.probe(20_000, rng)
    least, most = target.envelope(Y)
    for truth in (plane(Y), least, most, np.clip(0.3, least, most)):  # each is one that the data allow
        assert np.abs(net(Y) - truth).max() <= net.certificate.error[1]


def test_the_gap_and_the_fill_distance_are_bounds_and_near_the_truth() -> None:
    X = np.random.default_rng(2).uniform(size=(80, 2))
    target = af.table(X, plane(X), lipschitz=1.5)
    box = target.box(None)
    gap, fill = target.between(box)
    Y = box.probe(200_000, np.random.default_rng(3))
    least, most = target.envelope(Y)
    away = np.sqrt(((Y[:, None, :] - X) ** 2).sum(axis=2)).min(axis=1)
    assert 0.9 * gap <= ((most - least) / 2).max() <= gap <= 1.5 * fill
    assert 0.9 * fill <= away.max() <= fill


def test_a_file_holds_the_data(tmp_path: Path) -> None:
    x = np.linspace(0, 1, 40)
    target = af.table(x, np.sin(x), lipschitz=1.0)
    net = af.compile(target, eps=0.05)
    net.save(tmp_path / "s.safetensors")
    again = af.verify(tmp_path / "s.safetensors")
    assert again.status == "conditional" and again.error == net.certificate.error
    assert again.details["fill distance"] == pytest.approx(x[1] / 2, rel=0.05)
    with pytest.raises(af.InvalidRequest, match="not about"):
        af.verify(tmp_path / "s.safetensors", target=af.table(x, np.sin(x) / 2, lipschitz=1.0))


def test_an_eps_below_what_the_data_leave_open_is_refused_with_one_that_succeeds() -> None:
    x = np.linspace(0, 1, 10)
    target = af.table(x, np.zeros(10), lipschitz=1.0)
    with pytest.raises(af.Infeasible, match="apart from the middle one") as raised:
        af.compile(target, eps=0.05)
    nearest = raised.value.nearest
    assert nearest is not None and af.compile(target, **nearest).certificate.status == "conditional"


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "contradicted": (lambda: af.table([0, 1], [0, 3], lipschitz=1.0), "between rows 1 and 2.*; 3 is needed"),
    "twice": (lambda: af.table([0, 1, 0], [0, 1, 0], lipschitz=1.0), "rows 1 and 3 are the same point"),
    "negative": (lambda: af.table([0, 1], [0, 1], lipschitz=-1.0), "lipschitz"),
    "nan": (lambda: af.table([0, np.nan], [0, 1], lipschitz=1.0), "entry 2 is nan"),
    "lengths": (lambda: af.table([0, 1, 2], [0, 1], lipschitz=1.0), "shape"),
    "none": (lambda: af.table([], [], lipschitz=1.0), "shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_data_are_one_sentence(name: str) -> None:
    make, said = BAD[name]
    with pytest.raises(af.InvalidRequest, match=said):
        make()
