"""Completeness, reflexivity, transitivity: violations come back as witnesses, and none is made up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnfun.errors import InvalidRequest
from attnfun.language.domain import Box
from attnfun.limits.preorders.finite import check_cycle, levels, read_comparisons
from attnfun.limits.preorders.probes import probe_order
from attnfun.limits.preorders.target import Preorder

SQUARE = Box.parse("x=0:1;y=0:1")


def oracle(prefers: Callable[[Any, Any], bool]) -> Preorder:
    return Preorder(SQUARE, None, prefers=prefers)


@pytest.mark.parametrize(
    ("prefers", "broken", "kind"),
    [
        (lambda a, b: bool(a[0] > b[0]), "reflexive", "irreflexive"),
        (lambda a, b: bool((a >= b).all()), "complete", "incomplete"),
        (lambda a, b: bool((a[0] - b[0]) % 1 < 0.5), "transitive", "cycle"),
        (lambda a, b: bool(a[0] >= b[0] - 0.1), "transitive", "intransitive"),
        (lambda a, b: bool(((a > b).sum() >= 1) if a[0] != b[0] else True), "transitive", "intransitive"),
        (lambda a, b: bool(a[1] >= b[1] if abs(a[0] - b[0]) < 0.05 else a[0] >= b[0]), "transitive", "cycle"),
    ],
)
def test_a_violation_is_found_and_replays(prefers: Callable[[Any, Any], bool], broken: str, kind: str) -> None:
    preorder = oracle(prefers)
    finding = probe_order(preorder, 0)[broken]
    assert finding.status == "violated" and finding.witness is not None and finding.witness.kind == kind
    assert finding.witness.check(preorder)
    assert not finding.witness.check(oracle(lambda a, b: bool(a.sum() >= b.sum())))
    assert not replace(finding.witness, kind="jump").check(preorder)


@pytest.mark.parametrize("score", [lambda k: k.sum(), tuple, lambda k: np.floor(3 * k[0]), lambda k: 0])
def test_preorders_pass_and_are_not_called_proved(score: Callable[[Any], Any]) -> None:
    found = probe_order(oracle(lambda a, b: bool(score(a) >= score(b))), 1)
    assert {f.status for f in found.values()} == {"sampled"}
    assert all(f.probes > 100 and f.text.startswith("sampled: no violation found in") for f in found.values())


def test_an_oracle_that_changes_its_mind_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidRequest, match="asked again"):
        for seed in range(5):
            probe_order(oracle(lambda a, b: bool(rng.random() < 0.5)), seed)


@pytest.mark.parametrize(
    "prefers", [lambda a, b: 1, lambda a, b: None, lambda a, b: a >= b, lambda a: True, lambda a, b: 1 / 0]
)
def test_oracles_that_give_no_answer(prefers: Any) -> None:
    with pytest.raises(InvalidRequest, match="prefers"):
        probe_order(oracle(prefers), 0)


def test_keys_cannot_be_changed_by_the_oracle() -> None:
    def spoil(a: Any, b: Any) -> bool:
        a[0] = 2.0
        return True

    with pytest.raises(InvalidRequest, match="ValueError"):
        probe_order(oracle(spoil), 0)


# ---------------------------------------------------------------- finite comparisons


@pytest.mark.parametrize("seed", range(30))
def test_levels_exist_iff_no_cycle_has_a_strict_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    strict, weak = (rng.integers(0, n, (int(rng.integers(0, 2 * n)), 2)) for _ in range(2))
    u, cycle = levels(n, strict, weak)
    if u is not None:
        assert (u[strict[:, 0]] > u[strict[:, 1]]).all() and (u[weak[:, 0]] >= u[weak[:, 1]]).all()
    else:
        assert check_cycle(n, strict, weak, cycle)
        assert not check_cycle(n, strict, weak, [cycle[0]] * 2 + cycle[1:] + [(cycle[0] + 1) % n] * 0 + [n])
    reach = np.full((n, n), -math.inf)  # heaviest closed ways, by repeated squaring of the max-plus matrix
    np.fill_diagonal(reach, 0.0)
    for pairs, weight in ((weak, 0.0), (strict, 1.0)):
        for i, j in pairs:
            reach[i, j] = max(reach[i, j], weight)
    for _ in range(n):
        reach = np.max(reach[:, :, None] + reach[None, :, :], axis=1)
    assert (u is not None) == bool((reach.diagonal() == 0).all())


def test_levels_of_a_table_are_those_of_its_order() -> None:
    scores = np.array([3, 1, 1, 2, 0, 3])
    n, strict, weak = read_comparisons(scores[:, None] >= scores[None, :])
    u, _ = levels(n, strict, weak)
    assert u is not None and u.tolist() == scores.tolist()
    for bad in ([], [[0, -1]], [[0.5, 1.0]], [[True, False]], "ab", [[1, 2, 3]]):
        with pytest.raises(InvalidRequest):
            read_comparisons(bad)
