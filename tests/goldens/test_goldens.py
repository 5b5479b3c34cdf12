"""The goldens that the repository keeps: statuses, methods and sizes are what they were, bounds within 1 %.

What differs by intent is written anew (`goldens.py --write`), with its reason in CHANGELOG.md.
"""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest

from goldens.goldens import GOLDENS, KEPT, SLOW, compare, record
from products import few

KNOWN = json.loads(KEPT.read_text())


def same(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=1e-2)
    return type(old) is type(new) and bool(old == new)


QUICK = few([name for name in GOLDENS if name not in SLOW], 40)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_statuses_sizes_and_bounds_are_what_they_were(name: str) -> None:
    if name.startswith("train"):
        pytest.importorskip("torch")
    kept = record(name, files=False)["kept"]
    assert {key: kept.get(key) for key, value in KNOWN[name].items() if not same(value, kept.get(key))} == {}


def test_every_request_is_kept_and_nothing_else() -> None:
    assert list(KNOWN) == list(GOLDENS)


def other(value: Any) -> Any:
    """Another value than this one, as the smallest change would leave it."""
    if isinstance(value, str):
        return value[:-1] + ("1" if value[-1] == "0" else "0")
    return [other(value[0]), *value[1:]] if isinstance(value, list) else 1 if value is None else value + 1


def leaves(tree: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Every value in a record that may not change, with its place."""
    inner = [(tree, key) for key, value in tree.items() if not isinstance(value, dict) and value not in ([], "")]
    return inner + [leaf for value in tree.values() if isinstance(value, dict) for leaf in leaves(value)]


@pytest.mark.parametrize("name", ["compile L2", "relation auto", "matching pairs", "neighbours biased", "ternary"])
def test_any_change_of_what_was_there_is_found(name: str) -> None:
    old = record(name)
    assert compare(old, copy.deepcopy(old)) == {"changed": [], "weights": [], "notes": []}
    del old["kept"]
    may = [part for part in ("cost", "certificate") if old[part] is None]  # come anew, and so may a proof:
    may += ["verify"] if isinstance(old["file"]["verify"], str) else []
    wrong = []
    for number in range(len(leaves(old))):
        new = copy.deepcopy(old)
        tree, key = leaves(new)[number]
        tree[key] = other(tree[key])
        found = compare(old, new)
        wrong += [] if found["weights" if key == "weights" else "changed"] else [key]
    assert wrong == may


def test_what_is_new_is_named_and_no_difference() -> None:
    old = record("lexicographic one head") | {"certificate": None, "file": {"file": "cannot be saved"}}
    new = copy.deepcopy(old)
    new["certificate"], new["file"] = {"status": "proved"}, {"file": "whole", "verify": ["proved"]}
    new["weights"] = [*old["weights"], "float64 2 0"]
    found = compare(old, new)
    assert not found["changed"] and not found["weights"] and len(found["notes"]) == 3
