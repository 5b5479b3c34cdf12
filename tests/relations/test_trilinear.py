"""Ternary relations: the proved error of a trilinear form is never below what is seen, nor its rank below the least."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.cli import main
from attnfun.kinds.relation.features import contracted
from attnfun.kinds.ternary.prove import trilinear_rounding
from attnfun.kinds.ternary.target import Coefficients, Ternary, Trilinear
from attnfun.kinds.ternary.verb import ternary
from attnfun.kinds.ternary.view import TrilinearForm
from attnfun.language import ArrayAlgebra, parse, run
from attnfun.search import Goal, certified

CUBE = {"x": (0, 1), "y": (-1, 1), "z": (0, 2)}


def worst(form: TrilinearForm, count: int = 4000) -> float:
    """The largest error seen at random, corner and edge points, and after a local search."""
    low, high = form.box.low_array, form.box.high_array
    rng = np.random.default_rng(0)

    def error(P: np.ndarray) -> np.ndarray:
        truth = run(form.graph, ArrayAlgebra(), dict(zip(form.box.names, P.T, strict=True)))[0]
        return np.abs(form(*P.T) - np.broadcast_to(truth, (len(P),)))

    P = form.box.probe(count, rng)
    seen = error(P)
    best = P[np.argsort(seen)[-8:]]
    for scale in (0.1, 0.01, 1e-3):
        moved = np.repeat(best, 40, axis=0)
        moved = np.clip(moved + scale * (high - low) * rng.normal(size=moved.shape), low, high)
        best = np.concatenate([best, moved])
        best = best[np.argsort(error(best))[-8:]]
    return max(float(seen.max()), float(error(best).max()))


@pytest.mark.parametrize(
    ("text", "most"), [("x*y*z", 1), ("x*y + y*z + x*z", 4), ("exp(-x*y*z/2)", 16), ("cos(x+y-z)", 8)]
)
def test_the_error_of_a_trilinear_form_is_never_below_what_is_seen(text: str, most: int) -> None:
    form = ternary(text, CUBE, 1e-3)
    assert form.certificate.status is Status.PROVED
    assert worst(form) <= form.error <= 1e-3 and form.certificate.error[0] <= form.error
    assert form.rank_lower <= form.rank <= most
    rng = np.random.default_rng(1)
    for size in (1e-12, 1e-6, 1e-2):
        a, b, c = (s + size * rng.normal(size=s.shape) for s in form.coefficients)
        spoilt = with_sides(form, (a, b, c))
        certificate = certified(form.target, Trilinear((a, b, c), form.box), Goal(1e-3))
        assert worst(spoilt) <= certificate.error[1] and certificate.error[0] <= worst(spoilt) + 1e-13
        assert certificate.status is not Status.PROVED or worst(spoilt) <= 1e-3


def test_rounding_is_in_the_bound() -> None:
    """Large terms that cancel: float64 loses more than the coefficients are off, and the bound says so."""
    form = ternary("x*y*z", CUBE, 1e-6)
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=(12, 1)) * 10**power for power in (3, 2, 3))
    sides = tuple(
        np.hstack([np.pad(s, [(0, 12 - len(s)), (0, 0)]), t, t * sign])
        for s, t, sign in zip(form.coefficients, (a, b, c), (1, 1, -1), strict=True)
    )
    heavy = with_sides(form, sides)
    points = form.box.probe(3000, np.random.default_rng(2))
    wide = np.ones((len(points), sides[0].shape[1]), dtype=np.longdouble)
    for k, P in enumerate(sides):
        x, low, high = (np.longdouble(v) for v in (points[:, k], form.box.low[k], form.box.high[k]))
        wide = wide * contracted(P.astype(np.longdouble), [((x - low) - (high - x)) / (high - low)])
    lost = np.abs(heavy(*points.T) - wide.sum(axis=1)).max()
    assert 0 < lost <= trilinear_rounding(sides)
    assert certified(form.target, Trilinear(sides, form.box), Goal(1e-16)).status is not Status.PROVED


def with_sides(form: TrilinearForm, sides: Coefficients) -> TrilinearForm:
    return dataclasses.replace(form, weights=Trilinear(sides, form.box))


def test_a_form_is_stored_and_proved_again(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    form = ternary("exp(-x*y*z/2)", CUBE, 1e-4)
    form.save(path)
    again = af.load(path)
    P = form.box.probe(200, np.random.default_rng(0))
    assert isinstance(again, TrilinearForm) and np.array_equal(again(*P.T), form(*P.T))
    assert again.rank == form.rank and again.rank_lower == form.rank_lower
    assert af.verify(path).error == form.certificate.error
    nothing = dataclasses.replace(form.certificate, error=(0.0, 1e-300))
    dataclasses.replace(form, certificate=nothing).save(path)
    assert af.verify(path).error == form.certificate.error  # no number of the stored certificate is read
    with pytest.raises(af.InvalidRequest):
        af.verify(path, "x*y*z")


def test_a_forged_form_is_refuted_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    form = ternary("exp(-x*y*z/2)", CUBE, 1e-4)
    dataclasses.replace(form, target=Ternary(parse("exp(-x*y*z/1.99)", form.box.names), form.box)).save(path)
    assert af.verify(path).status is Status.REFUTED
    a, b, c = form.coefficients
    with_sides(form, (a * (1 + 1e-5), b, c)).save(path)
    certificate = af.verify(path)
    assert certificate.status is not Status.PROVED or certificate.error[1] <= 1e-4
    with_sides(form, (a * 1e200, b * 1e200, c)).save(path)
    assert af.verify(path).status in (Status.UNDECIDED, Status.REFUTED)
    long = tuple(np.ones((5000, 1)) for _ in range(3))  # a file of 120 kB that asks for a table of a terabyte
    with_sides(form, long).save(path)
    assert af.verify(path).status is Status.UNDECIDED
    form.save(path)
    data, proved = path.read_bytes(), af.verify(path)
    for where in range(9, len(data), max(1, len(data) // 20)):
        path.write_bytes(data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
        with pytest.raises(af.AttnfunError):
            af.load(path)
        with contextlib.suppress(af.AttnfunError):
            assert af.verify(path) == proved  # the certificate, which is not read, has it
        path.write_bytes(data[:where])
        with pytest.raises(af.AttnfunError):
            af.load(path)
    for bad in ((a, b[:, :1], c), (a, b, c * math.nan)):
        with pytest.raises(af.InvalidRequest):
            with_sides(form, bad)
        broken = with_sides(form, form.coefficients)
        object.__setattr__(broken.weights, "coefficients", bad)
        broken.save(path)
        with pytest.raises(af.DamagedFile):
            af.verify(path)


def test_the_command_prints_one_json_object(tmp_path: Path, capsys) -> None:
    path = str(tmp_path / "t.safetensors")
    asked = ["ternary", "-x*y + y*z", "--domain", "x=0:1;y=0:1", "--domain", "z=-1:1", "--eps", "1e-6", "--json"]
    assert main([*asked, "-o", path]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "proved" and record["error"] <= 1e-6 and record["rank"] == record["rank_lower"] == 2
    assert main(["verify", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == record["error"]
    assert main(["show", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rank"] == 2
    assert main(["show", path]) == 0 and "terms" in capsys.readouterr().out
    assert main(["eval", path, "x=1,y=1,z=1"]) == 2
    assert main(["ternary", "x*y", "--domain", "x=0:1;y=0:1", "--eps", "1e-3"]) == 2
    assert main(["ternary", "abs(x-y)*z", "--domain", "x=0:1;y=0:1;z=0:1", "--eps", "1e-3"]) == 3


def test_what_is_no_ternary_relation_is_refused() -> None:
    with pytest.raises(af.InvalidRequest):
        ternary("x*y", {"x": (0, 1), "y": (0, 1)}, 1e-3)
    with pytest.raises(af.Infeasible):
        ternary("abs(x-y)*z", CUBE, 1e-3)
    form = ternary("x*y*z", CUBE, 1e-3)
    for points in (([2.0], [0.0], [0.0]), ([0.5], [0.0, 0.1], [0.0]), ([math.nan], [0.0], [0.0])):
        with pytest.raises(af.InvalidRequest):
            form(*points)
