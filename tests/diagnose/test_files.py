"""Every kind of file: heads are looked at where there are any, and one sentence says why where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import attnfun as af
from attnfun.diagnosis.verb import Diagnosis

V = np.linspace(-1, 1, 16)


def plain(path: Path, R: float = 40.0, **more: Any) -> str:
    """A head that somebody else wrote: sin(3x) at centres, with one R."""
    tensors: dict[str, Any] = {"K": (R * V)[:, None], "b": -R * V**2 / 2, "V": np.sin(3 * V)}
    tensors |= more
    save_file({name: np.ascontiguousarray(a) for name, a in tensors.items() if a is not None}, path)
    return str(path)


def kinds(found: Diagnosis) -> list[str]:
    return [head.findings[0].kind for head in found.heads]


def test_a_plain_head_by_the_names_of_its_tensors(tmp_path: Path) -> None:
    path = plain(tmp_path / "h.safetensors", R=6.0)
    unknown = af.diagnose(path, domain="x=-1:1")
    assert kinds(unknown) == ["not judged"] and unknown.error is None
    known = af.diagnose(path, domain="x=-1:1", target="sin(3*x)")
    assert kinds(known) == ["fuzzy partition"] and pytest.approx(6.0) == known.heads[0].figures.cells[0].R
    factor = known.heads[0].findings[0].fixes[0].factor
    assert factor is not None
    sharper = af.diagnose(plain(tmp_path / "s.safetensors", R=6.0 * factor), domain="x=-1:1", target="sin(3*x)")
    assert "fuzzy partition" not in kinds(sharper)
    assert sharper.error == pytest.approx(known.heads[0].figures.best_error)


def test_beta_and_query_maps_mean_what_is_written(tmp_path: Path) -> None:
    """beta on all logits; W_Q and b_Q before the keys: the same head in other coordinates."""
    base = af.diagnose(plain(tmp_path / "a.safetensors"), domain="x=-1:1", target="sin(3*x)")
    scaled = {"K": (20.0 * V)[:, None], "b": None, "bias": -20.0 * V**2 / 2, "beta": np.array(2.0)}
    moved = {"W_Q": np.array([[2.0]]), "b_Q": np.array([0.5])}
    for more, domain, target in ((scaled, "x=-1:1", "sin(3*x)"), (moved, "x=-0.75:0.25", "sin(6*x + 1.5)")):
        found = af.diagnose(plain(tmp_path / "b.safetensors", **more), domain=domain, target=target)
        assert found.error == pytest.approx(base.error, rel=1e-9)
        assert found.heads[0].figures.sharpness == pytest.approx(base.heads[0].figures.sharpness)
    half = plain(tmp_path / "c.safetensors", K=(40.0 * V)[:, None].astype(np.float16))
    assert af.diagnose(half, domain="x=-1:1").heads[0].figures.keys == 16


@pytest.mark.parametrize(
    ("more", "domain", "word"),
    [
        ({}, None, "domain"),
        ({}, "x=-1:1;y=0:1", "variables"),
        ({"V": None}, "x=-1:1", "K and V"),
        ({"V": np.ones(3)}, "x=-1:1", "row per key"),
        ({"b": np.ones(3)}, "x=-1:1", "meet"),
        ({"bias": np.ones(16)}, "x=-1:1", "both"),
        ({"W_Q": np.ones((2, 1))}, "x=-1:1", "meet"),
        ({"beta": np.ones(2)}, "x=-1:1", "beta"),
        ({"mask": np.ones(2)}, "x=-1:1", "mask"),
        ({"V": np.full(16, np.nan)}, "x=-1:1", "NaN"),
    ],
)
def test_other_tensors_are_refused_in_one_line(tmp_path: Path, more: Any, domain: Any, word: str) -> None:
    with pytest.raises(af.AttnfunError, match=word) as why:
        af.diagnose(plain(tmp_path / "h.safetensors", **more), domain=domain)
    assert "\n" not in str(why.value)


@pytest.mark.parametrize(
    "more", [{"beta": np.zeros(1)}, {"W_Q": np.zeros((1, 1))}, {"V": np.ones(16)}, {"K": np.zeros((16, 1)), "b": None}]
)
def test_a_head_that_is_constant_is_no_fault_of_its_dtype(tmp_path: Path, more: Any) -> None:
    """Its range is rounding: nothing is to be judged by a hundredth of that."""
    path = plain(tmp_path / "h.safetensors", **more)
    for dtype in ("float64", "float32"):
        found = af.diagnose(path, domain="x=-1:1", dtype=dtype)
        assert not found.serious and kinds(found)[0] == "not judged"


@pytest.mark.filterwarnings("error")
def test_weights_at_the_end_of_float64_are_looked_at(tmp_path: Path) -> None:
    path = plain(tmp_path / "h.safetensors", K=1e308 * np.linspace(-1, 1, 16)[:, None])
    assert af.diagnose(path, domain="x=-1:1", target="sin(3*x)").heads[0].findings


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    net = af.compile("sin(3*x)", "x=-1:1", 1e-3)
    wrong: list[dict[str, Any]] = [{"dtype": "int8"}, {"eps": -1.0}, {"eps": float("nan")}, {"domain": "y=0:1"}]
    wrong += [{"eps": True}, {"dtype": ["float32"]}]
    for options in (*wrong, {"target": ["x", "x"]}):
        with pytest.raises(af.InvalidRequest):
            af.diagnose(net, **options)
    with pytest.raises(af.InvalidRequest):
        af.diagnose(3)
    (tmp_path / "cut.safetensors").write_bytes(b"not a file")
    for path in ("cut.safetensors", "nowhere.safetensors"):
        with pytest.raises(af.AttnfunError):
            af.diagnose(tmp_path / path)


def test_another_domain_and_another_target_are_looked_at(tmp_path: Path) -> None:
    net = af.compile("sin(3*x)", "x=-1:1", 1e-4, method="bernstein")
    net.save(tmp_path / "f.safetensors")
    assert kinds(af.diagnose(tmp_path / "f.safetensors")) == ["healthy"]
    assert af.diagnose(tmp_path / "f.safetensors", domain="x=-2:2").serious
    assert af.diagnose(tmp_path / "f.safetensors", target="cos(3*x)").serious


def test_black_boxes_are_judged_where_the_function_is_given(tmp_path: Path) -> None:
    def call(x: Any) -> Any:
        return np.array([abs(float(v)) for v in np.atleast_1d(x)])

    net = af.compile(call, "x=0.1:1", 0.1, lipschitz=1.0)
    assert kinds(af.diagnose(net)) == ["healthy"] and af.diagnose(net).heads[0].figures.lipschitz_how == "declared"
    net.save(tmp_path / "f.safetensors")
    found = af.diagnose(tmp_path / "f.safetensors")
    assert kinds(found) == ["not judged"] and "not in the file" in found.remarks[0]


def test_towers_and_retrieval_heads() -> None:
    keys = np.linspace(0, 1, 20)[:, None]
    head = af.retrieve("exp(x*y)", left="x=0:1", right="y=0:1", keys=keys, eps=1e-4, beta=2.0)
    towers = af.diagnose(head.relation)
    assert towers.heads and set(kinds(towers)) == {"healthy"}
    found = af.diagnose(head)
    assert [h.figures.name for h in found.heads] == ["tower: features", "retrieve"]
    assert kinds(found) == ["healthy", "soft pick"]
    fixed = found.heads[1].fix(found.heads[1].findings[0].fixes[0])
    again = af.diagnose(fixed)  # a plain network now: what it picks is seen in its weights
    assert again.heads[-1].figures.top_weight > 0.5 > found.heads[1].figures.top_weight


def test_stages_of_sequences_are_met_by_what_flows_into_them() -> None:
    found = af.diagnose(af.sequence("exp(mean(x)) - x", tokens=4, domain="x=-1:1", eps=1e-2))
    assert found.heads and set(kinds(found)) == {"healthy"}
    assert all(name.startswith("stage ") for name in (h.figures.name for h in found.heads))
    assert found.remarks and "keys are data" in found.remarks[0]


def test_files_without_such_a_head_say_so_in_a_sentence(tmp_path: Path) -> None:
    mlp = af.compile("sin(3*x)", "x=-1:1", 1e-2, realise="mlp")
    for given, word in (
        (mlp, "ReLU"),
        (af.compile("2*x", "x=-1:1", 1e-3), "affine"),
        (af.neighbours(16, 4, method="full_rank", eps=1e-2), "keys are data"),
        (af.matching(4, 8), "keys are data"),
        (af.relation("exp(x*y)", left="x=0:1", right="y=0:1", eps=1e-3, features_only=True), "no head"),
        (af.ternary("x*y + y*z", "x=0:1;y=0:1;z=0:1", 1e-3), "no head"),
    ):
        found = af.diagnose(given)
        assert not found.heads and len(found.remarks) == 1 and word in found.remarks[0], word
        path = tmp_path / "f.safetensors"
        given.save(path)
        assert af.diagnose(path).remarks == found.remarks


def test_large_partitions_are_looked_at_without_writing_their_keys_out() -> None:
    net = af.compile("sin(x) + cos(y)", "x=-3:3;y=-3:3", 0.012, method="partition", temperature="sharp")
    assert net.cost.keys > 200_000
    found = af.diagnose(net)
    assert kinds(found) == ["healthy"] and found.heads[0].figures.dead == 0
