"""A small file of every kind, made once, and forgeries of them with fitting seals: a hash does not stop an author."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import attnfun as af
from attnfun.network import sealed

Change = Callable[[dict[str, Any], dict[str, Any]], None]


@dataclass(frozen=True)
class Kind:
    """How to make one; the tensors that make its weights nothing when they are zero; what is expected of its file.

    `target`, `domain`: the right ones where `verify` compares them. `proved` is false where `verify` can give no proof:
    "sampled" ones, and kinds that are refused.
    """

    make: Callable[[], Any]
    weights: str
    target: Any = None
    domain: Any = None
    proved: bool = True
    refused: bool = False


def _keys() -> Any:
    return np.random.default_rng(0).uniform(0, 1, (12, 1))


KINDS = {
    "function": Kind(lambda: af.compile("sin(3*x)", "x=-1:1", 1e-3), "values|readout", "sin(3*x)", "x=-1:1"),
    "mlp": Kind(
        lambda: af.compile("sin(3*x)", "x=-1:1", 1e-2, realise="mlp"), "values|readout", "sin(3*x)", {"x": (-1, 1)}
    ),
    "mean": Kind(lambda: af.compile("x*y", "x=-1:1;y=0:2", 1e-2, norm=2), "values|readout", "x*y", ["y=0:2", "x=-1:1"]),
    "relative": Kind(lambda: af.compile("exp(x)", "x=0:1", 1e-3, relative=True), "values|readout", "exp(x)", "x=0:1"),
    "sequence": Kind(lambda: af.sequence("x*mean(x)", 3, "x=-1:1", 0.05), "values|readout", "x*mean(x)", "x=-1:1"),
    "set": Kind(lambda: af.set_function("sum(x**2)", 3, "x=-1:1", 0.05), "values|readout", None, "x=-1:1"),
    "relation": Kind(
        lambda: af.relation("exp(x*y)", "x=0:1", "y=0:1", 0.05), "values|block", "exp(x*y)", "x=0:1;y=0:1"
    ),
    "features": Kind(
        lambda: af.relation("exp(x*y)", "x=0:1", "y=0:1", 0.05, features_only=True), "block", "exp(x*y)", "x=0:1;y=0:1"
    ),
    "cells": Kind(
        lambda: af.relation("abs(x-y)", "x=0:1", "y=0:1", 0.3, method="voronoi"), "values", "abs(x-y)", "x=0:1;y=0:1"
    ),
    "slices": Kind(
        lambda: af.relation("exp(x*y)", "x=0:1", "y=0:1", 0.05, method="cross"),
        "core",
        "exp(x*y)",
        "x=0:1;y=0:1",
        proved=False,
    ),
    "ternary": Kind(
        lambda: af.ternary("exp(x*y*z)", "x=0:1;y=0:1;z=0:1", 1e-3),
        "coefficients",
        "exp(x*y*z)",
        {"z": (0, 1), "x": (0, 1), "y": (0, 1)},
    ),
    "retrieval": Kind(
        lambda: af.retrieve("x*y - y**2/2", "x=0:1", "y=0:1", _keys(), 1e-4, beta=100.0, queries=20),
        "vectors",
        "x*y - y**2/2",
        "x=0:1;y=0:1",
    ),
    "in-context": Kind(lambda: af.in_context("ridge", 2, 6, alpha=1.0, spectrum=(4, 12), eps=1e-2), "output|readout"),
    "matching": Kind(lambda: af.matching(4, 5), "query|value"),
    "triples": Kind(lambda: af.matching(3, 4, order=3), "query|value"),
    "neighbours": Kind(lambda: af.neighbours(4, 3, "scores", eps=0.1), "value"),
    "biased": Kind(lambda: af.neighbours(4, 2, "biased", bias=0.25, eps=0.1), "value"),
}
"""Of `sequence` and `set` the file is that of a sequence network."""


def resealed(path: Path, out: Path, change: Change) -> Path:
    """The file with its record and tensors changed, and hash and seals made to fit."""
    tensors, record = sealed.read(path)
    record, tensors = dict(record), {name: np.array(array) for name, array in tensors.items()}
    change(record, tensors)
    record.pop("hash", None)
    rest = set(record.pop("seals")) | set(sealed.HASHED)
    structure = {key: value for key, value in record.items() if key not in rest}
    sealed.write(out, structure, tensors, {key: value for key, value in record.items() if key in rest})
    return out


def nothing(pattern: str) -> Change:
    """The weights zero."""

    def change(_record: dict[str, Any], tensors: dict[str, Any]) -> None:
        touched = [name for name in tensors if re.search(pattern, name)]
        assert touched
        for name in touched:
            tensors[name] = np.zeros_like(tensors[name])

    return change


def without_eps(record: dict[str, Any], _tensors: dict[str, Any]) -> None:
    """The request deleted, as far as a file can be read without it: no eps is named any more."""
    record.pop("request", None)
    record["claim"] = {"eps": None, "norm": record["claim"]["norm"], "relative": False, "trained": False}


def all_numbers(value: Any, number: float) -> Any:
    """A JSON value with every number in it replaced."""
    if isinstance(value, dict):
        return {key: all_numbers(one, number) for key, one in value.items()}
    if isinstance(value, list):
        return [all_numbers(one, number) for one in value]
    return number if isinstance(value, float) and math.isfinite(value) else value
