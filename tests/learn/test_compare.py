"""Constructed and learned networks on one table and one axis."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.learn.compare import bound_text

pytest.importorskip("torch")

Networks = tuple[af.Approximant, af.Approximant, af.Approximant]


@pytest.fixture(scope="module")
def networks() -> Networks:
    net = af.compile("sin(3*x)", "x=-1:1", 1e-3)
    return net, af.train(net, steps=20), af.train(net, steps=20, start="constructed", proof=False)


def test_the_table_has_sizes_errors_bounds_and_steps(networks: Networks) -> None:
    table = af.compare(*networks)
    built, learned, unproved = table.entries
    assert built.keys == learned.keys == networks[0].cost.keys
    assert built.bound == networks[0].certificate.error[1] and unproved.bound is None
    assert (built.steps, learned.steps) == (None, 20) and (learned.seconds or 0) > 0
    X = np.linspace(-1, 1, 501)
    for entry, network in zip(table.entries, networks, strict=True):
        error = np.abs(network(X) - np.sin(3 * X))
        assert entry.l2 <= entry.sup and entry.sup >= 0.99 * error.max()
        assert entry.l2 == pytest.approx(np.sqrt(np.mean(error**2)), rel=0.1)
        assert entry.bound is None or entry.sup <= entry.bound
        assert entry.name in str(table)
        shown = bound_text(entry).split()[0]
        assert shown == "–" if entry.bound is None else Fraction(shown) >= Fraction(entry.bound)
    assert len(json.loads(json.dumps(table.to_json()))["rows"]) == 3


def test_names_are_distinct_or_those_given(networks: Networks) -> None:
    net, learned, _ = networks
    assert len({entry.name for entry in af.compare(net, learned, learned, net).entries}) == 4
    assert [entry.name for entry in af.compare(net, learned, names=("a", "b")).entries] == ["a", "b"]


def test_networks_for_other_targets_are_refused(networks: Networks) -> None:
    net, learned, _ = networks
    with pytest.raises(af.InvalidRequest):
        af.compare(net, af.compile("sin(2*x)", "x=-1:1", 1e-2))
    with pytest.raises(af.InvalidRequest):
        af.compare(net, af.compile("sin(3*x)", "x=-1:2", 1e-2))
    with pytest.raises(af.InvalidRequest):
        af.compare(net, learned, names=("a",))
    with pytest.raises(af.InvalidRequest):
        af.compare()
    relation = af.relation("exp(x*y)", "x=-1:1", "y=-1:1", 1e-1)
    for pair in ((net, relation), (relation, learned), (net, "x")):
        with pytest.raises(af.InvalidRequest, match=r"compare (needs one target|takes models)"):
            af.compare(*pair)


def test_the_picture_shows_every_error_and_every_bound(networks: Networks, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    table = af.compare(*networks)
    (ax,) = table.plot(tmp_path / "c.png").axes
    shown = {float(x) for line in ax.lines for x in line.get_xdata()}
    for entry in table.entries:
        assert {entry.sup, entry.l2} | ({entry.bound} - {None}) <= shown
    assert ax.get_xscale() == "log" and (tmp_path / "c.png").stat().st_size > 5000
