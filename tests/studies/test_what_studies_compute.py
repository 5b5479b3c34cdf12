"""What some studies compute without a network, against the definitions: b-bit numbers, packed digits, known numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from attnfun.lab.studies.open_questions import discrete_metric, nonanalytic_sets, precision
from attnfun.limits.separation.hard_sets import HardSet


def test_rounding_to_bits_is_that_of_the_formats() -> None:
    x = np.random.default_rng(0).normal(size=5000) * 10.0 ** np.random.default_rng(1).integers(-3, 4, 5000)
    x = x[np.abs(x) > 1e-4]  # float16 has fewer bits for smaller ones
    assert np.array_equal(precision.rounded(x, 24), x.astype(np.float32).astype(float))
    assert np.array_equal(precision.rounded(x, 11), x.astype(np.float16).astype(float))
    assert np.array_equal(precision.rounded(x, 53), x) and precision.rounded(np.zeros(1), 3)[0] == 0


def test_the_least_bits_are_those_from_which_on_all_is_right() -> None:
    assert precision.least_bits(lambda b: b >= 11 or b == 7) == 11
    assert precision.least_bits(lambda b: False) == precision.MOST + 1
    assert precision.least_bits(lambda b: True) == 1


def test_the_mean_given_the_cells() -> None:
    hard, grid, random = HardSet(3, 2), 4, np.random.default_rng(2)
    cells = np.array([[0, 1], [0, 1], [3, 2]])  # two points in one cell
    turns = (cells + random.random((40_000, 3, 2))) / grid
    found = hard.by_pairs(np.exp(1j * (2 * np.pi * turns - np.pi)))
    counts = np.zeros((1, grid**2))
    np.add.at(counts[0], cells[:, 0] + grid * cells[:, 1], 1)
    wanted = nonanalytic_sets._conditional_mean(hard, counts, grid)[0]
    assert abs(found.mean() - wanted) < 5 * found.std() / np.sqrt(len(found))


def test_digits_are_read_alike_in_floats_and_in_whole_numbers_of_any_size() -> None:
    one, many = (nonanalytic_sets.packed_error(3, 2, features, 6, 300) for features in (1, 4))
    assert one[2] > 53 >= many[2] and one[0] == pytest.approx(many[0], abs=1e-12)


def test_what_a_number_tells() -> None:
    weights = np.array([1, 1, 2, 5, 5])
    z = np.array(list(product((-1, 1), repeat=5)))
    f, labels = np.sign(z @ z.T).astype(float), z @ weights
    best = np.array([f[labels == label].mean(axis=0) for label in labels])
    error, seen = discrete_metric.known_by_number(weights)
    assert error == pytest.approx(np.mean((f - best) ** 2), abs=1e-12) and seen == len(set(labels.tolist()))
