"""Real heads: what is right is called healthy, what is spoilt by its name, and the fix fixes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import attnfun as af
from attnfun.diagnosis import scaled
from attnfun.diagnosis.subject import worst
from attnfun.diagnosis.verb import Diagnosis, Examined
from attnfun.network import Axis, Head, Layer, Network


def spoilt(net: af.Approximant, factor: float, layer: int = 0, place: int = 0) -> af.Approximant:
    return replace(net, weights=scaled(net.network, layer, place, factor))


def grave(found: Diagnosis) -> list[tuple[str, str]]:
    return [(one.head, one.kind) for one in found.findings if one.severity in ("serious", "warning")]


def after(head: Examined, net: af.Approximant, action: str, **options: object) -> Diagnosis:
    """The diagnosis once the first fix of that action was done."""
    fix = next(m for m in head.findings[0].fixes if m.action == action)
    return af.diagnose(replace(net, weights=head.fix(fix)), **options)


@pytest.fixture(scope="module")
def partition() -> af.Approximant:
    return af.compile("sin(3*x)", "x=-1:1", 0.03, method="partition", temperature="sharp")


@pytest.fixture(scope="module")
def bernstein() -> af.Approximant:
    return af.compile("sin(3*x)", "x=-1:1", 1e-6, method="bernstein")


@pytest.fixture(scope="module")
def composed() -> af.Approximant:
    return af.compile("sqrt(x**2 + y**2)*exp(-x)", "x=1:2;y=1:2", 1e-6)


def test_constructed_heads_are_healthy(
    partition: af.Approximant, bernstein: af.Approximant, composed: af.Approximant
) -> None:
    plane = af.compile("sin(x) + cos(y)", "x=-3:3;y=-3:3", 0.3, method="partition")
    root = af.compile("sqrt(x**2 + y**2)", "x=-1:1;y=-1:1", 1e-3)  # where an error below the root costs most
    mean = af.compile("abs(x)", "x=-1:1", 0.05, method="partition", norm=2)
    for net in (partition, bernstein, composed, plane, root, mean):
        found = af.diagnose(net)
        assert grave(found) == [] and len(found.heads) == net.cost.heads and not found.serious
        assert all(head.findings[0].kind == "healthy" for head in found.heads)


def test_the_figures_of_a_partition_are_those_it_was_built_with(partition: af.Approximant) -> None:
    figures = af.diagnose(partition).heads[0].figures
    (cells,) = figures.cells
    (R,) = partition.story["R"]
    keys = partition.cost.keys
    assert cells.form == "gaussian" and cells.owners == keys
    assert pytest.approx(R, rel=1e-6) == cells.R and cells.width == pytest.approx(2 / keys, rel=1e-6)
    assert figures.sharpness == pytest.approx(R * (2 / keys) ** 2, rel=1e-6)
    assert figures.lipschitz_how == "proved" and figures.lipschitz == pytest.approx(3, rel=0.1)
    assert figures.staircase == pytest.approx(3 / keys, rel=0.1)
    assert figures.hard_error is not None and figures.hard_error <= figures.staircase
    assert 1 <= figures.effective_min <= figures.effective_mean <= figures.effective_max <= keys
    assert figures.key_norm_max == pytest.approx(R * (1 - 1 / keys), rel=1e-6)
    assert figures.dead == 0 and figures.redundant == 0


def test_what_is_not_a_number_is_never_a_small_error() -> None:
    truth = np.array([[1.0, 2.0], [1.0, np.nan], [1.0, 1.0], [np.inf, 1.0]])
    found = np.array([[1.0, 2.5], [1.0, 7.0], [np.nan, 1.0], [3.0, 1.0]])
    assert worst(found, truth).tolist() == [0.5, 0.0, np.inf, 0.0]


def test_effective_keys_are_those_of_the_written_out_weights() -> None:
    net = af.compile("sin(x)*y", "x=-1:1;y=0:1", 1e-3, method="bernstein")
    found = af.diagnose(net)
    head = net.network.layers[0].attention[0]
    X = found.heads[0].subject.X
    K, b = head.dense_keys()
    logits = (X @ head.query_map[0].T + head.query_map[1]) @ K.T + b
    w = np.exp(logits - logits.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    effective = np.exp(-(w * np.log(w)).sum(axis=1))
    figures = found.heads[0].figures
    assert figures.effective_mean == pytest.approx(effective.mean(), rel=1e-9)
    assert figures.effective_max == pytest.approx(effective.max(), rel=1e-9)
    assert figures.top_weight == pytest.approx(w.max(axis=1).mean(), rel=1e-9)


def test_a_partition_whose_R_is_too_small_is_fuzzy_and_a_larger_R_mends_it(partition: af.Approximant) -> None:
    soft = spoilt(partition, 1e-5)
    found = af.diagnose(soft)
    assert grave(found) == [("partition", "fuzzy partition")] and found.serious
    figures = found.heads[0].figures
    assert figures.scale_needed is not None and figures.scale_needed > 1
    for action in ("scale", "refit"):
        fixed = after(found.heads[0], soft, action)
        assert grave(fixed) == [] and fixed.error is not None and fixed.error <= 0.03


def test_a_partition_whose_R_is_huge_is_a_staircase_and_a_smaller_R_mends_it() -> None:
    hard = af.compile("cos(pi*x)", "x=-1:1", 0.2, method="partition", temperature="sharp")
    found = af.diagnose(hard, eps=0.1)
    assert grave(found) == [("partition", "staircase")]
    figures = found.heads[0].figures
    assert figures.error == pytest.approx(figures.hard_error) and figures.resolution is not None
    assert figures.resolution > 1 and figures.top_weight > 0.99
    fixes = found.heads[0].findings[0].fixes
    assert [m.action for m in fixes][:2] == ["scale", "refit"]
    assert figures.sharpness is not None and 1 < figures.sharpness * (fixes[0].factor or 0) < 20
    for action in ("scale", "refit"):
        assert grave(after(found.heads[0], hard, action, eps=0.1)) == []


def test_where_no_temperature_helps_the_number_of_keys_is_named(partition: af.Approximant) -> None:
    """sin(3x) is steep at the ends, where a softer head averages on one side only."""
    found = af.diagnose(partition, eps=0.01)
    assert grave(found) == [("partition", "staircase")]
    more = next(m for m in found.findings[0].fixes if m.action == "keys")
    wider = af.compile("sin(3*x)", "x=-1:1", 0.01, method="partition", temperature="sharp")
    assert more.factor is not None and partition.cost.keys * more.factor >= 0.9 * wider.cost.keys
    assert grave(after(found.heads[0], partition, "refit", eps=0.01)) == []


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_mixing_head_at_another_temperature_is_not_called_fuzzy(bernstein: af.Approximant, factor: float) -> None:
    wrong = spoilt(bernstein, factor)
    found = af.diagnose(wrong)
    assert grave(found) == [("bernstein", "temperature off")]
    fix = found.heads[0].findings[0].fixes[0]
    assert fix.factor == pytest.approx(1 / factor, rel=1e-4)
    fixed = after(found.heads[0], wrong, "scale", eps=1e-5)
    assert grave(fixed) == []


def test_values_that_float32_cannot_carry_are_named_and_smaller_ones_mend_it() -> None:
    net = af.compile("sin(20*x)", "x=-1:1", 1e-3, method="bernstein")
    assert net.cost.max_value > 1e5 and grave(af.diagnose(net)) == []
    found = af.diagnose(net, dtype="float32", eps=1e-2)
    assert grave(found) == [("bernstein", "values too large for the dtype")]
    figures = found.heads[0].figures
    assert figures.rounding > 1e-2 and figures.cancellation > 1e3
    fixed = after(found.heads[0], net, "refit", dtype="float32", eps=1e-2)
    assert grave(fixed) == [] and fixed.heads[0].figures.value_max < net.cost.max_value / 100


def test_weights_stored_in_float32_show_it_too() -> None:
    net = af.compile("sin(20*x)", "x=-1:1", 1e-3, method="bernstein")
    (head,) = net.network.layers[0].attention
    single = [np.asarray(a, dtype=np.float32).astype(np.float64) for a in head.axes[0].arrays.values()]
    values = head.values.astype(np.float32).astype(np.float64)
    layer = Layer((replace(head, axes=(Axis(*single),), values=values),))
    found = af.diagnose(replace(net, weights=replace(net.network, layers=(layer,), dtype="float32")))
    assert ("bernstein", "values too large for the dtype") in grave(found)


def test_logits_that_a_small_dtype_cannot_tell_apart(partition: af.Approximant) -> None:
    assert grave(af.diagnose(partition, dtype="bfloat16")) == [("partition", "logits too large for the dtype")]
    assert grave(af.diagnose(partition, dtype="float16"))[0][1] == "logits too large for the dtype"
    assert af.diagnose(partition, dtype="float16").heads[0].figures.overflow
    softer = spoilt(partition, 1e-3)
    assert grave(af.diagnose(softer, dtype="float32")) == []


def test_rounding_is_that_of_the_dtype_itself(bernstein: af.Approximant) -> None:
    """Against the network as NumPy runs it in float32 with rounded weights."""
    figures = af.diagnose(bernstein, dtype="float32").heads[0].figures
    (head,) = bernstein.network.layers[0].attention
    x = np.linspace(-1, 1, 801, dtype=np.float32)[:, None]
    axis = head.axes[0]
    logits = (x - np.float32(0)) @ axis.slopes.astype(np.float32).T + axis.biases.astype(np.float32)
    w = np.exp(logits - logits.max(axis=1, keepdims=True))
    out = (w @ head.values.astype(np.float32)) / w.sum(axis=1, keepdims=True)
    off = float(np.abs(out - bernstein(x.astype(np.float64))[:, None]).max())
    assert off / 3 <= figures.rounding <= 3 * off
    assert figures.rounding <= figures.rounding_scale * 3


@pytest.mark.parametrize("labelled", [True, False])
def test_the_one_bad_head_of_a_composed_network_is_found(composed: af.Approximant, labelled: bool) -> None:
    wrong = spoilt(composed, 0.3, layer=1)
    if not labelled:
        wrong = replace(wrong, weights=replace(wrong.network, labels=None))
    found = af.diagnose(wrong)
    (name,) = {head for head, _ in grave(found)}
    assert name == composed.network.layers[1].heads[0].name
    bad = next(head for head in found.heads if head.figures.name == name)
    fixed = af.diagnose(replace(wrong, weights=bad.fix(bad.findings[0].fixes[0])), eps=1e-5)
    assert grave(fixed) == [] and fixed.error is not None and fixed.error < 1e-5


def test_dead_and_doubled_keys_are_counted_and_dropped() -> None:
    v = np.linspace(-1, 1, 12)
    R = 300.0
    far = np.linspace(30, 40, 5)  # centres no input comes near
    centres = np.concatenate([v, far, v[:1]])  # and one key twice
    axis = Axis(np.eye(1), np.zeros(1), (R * centres)[:, None], -R * centres**2 / 2)
    head = Head("h", (axis,), np.sin(centres)[:, None], ("v",))
    box = (np.array([-1.0]), np.array([1.0]))
    network = Network(("x",), (Layer((head,)),), np.array([[0.0, 1.0]]), np.zeros(1), ("f",), box)
    found = af.diagnose(network, target="sin(x)", eps=0.2)
    figures = found.heads[0].figures
    assert (figures.dead, figures.redundant) == (5, 1)
    dead = next(one for one in found.findings if one.kind == "dead keys")
    fewer = found.heads[0].fix(dead.fixes[0])
    assert fewer.cost.keys == 13
    again = af.diagnose(fewer, target="sin(x)", eps=0.2)
    assert again.heads[0].figures.dead == 0 and again.error == pytest.approx(found.error)


@pytest.mark.parametrize(
    ("factor", "kind"), [(1e-290, "fuzzy partition"), (0.0, "too few keys"), (1e292, "logits too large for the dtype")]
)
def test_extreme_weights_are_findings_and_no_faults(partition: af.Approximant, factor: float, kind: str) -> None:
    found = af.diagnose(spoilt(partition, factor), dtype="float32" if factor > 1 else None)
    assert grave(found) == [("partition", kind)]


def test_a_head_that_nothing_reads_is_idle() -> None:
    net = af.compile("sin(3*x)", "x=-1:1", 1e-3, method="bernstein").network
    found = af.diagnose(replace(net, readout=np.zeros_like(net.readout)))
    assert grave(found) == [("bernstein", "idle head")]


def test_free_keys_have_no_cells_and_a_trained_head_is_judged_by_its_error() -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    shape = af.Architecture.one_head(("x", "y"), keys=16)
    learned = af.train(shape, "sin(x)*y", "x=-1:1;y=-1:1", steps=100, seed=1)
    found = af.diagnose(learned)
    figures = found.heads[0].figures
    assert figures.cells[0].form == "none" and figures.sharpness is None and figures.eps_how == "1 % of the range"
    assert figures.effective_mean > 1.5
    assert af.diagnose(learned, eps=10 * (found.error or math.inf)).heads[0].findings[0].kind == "healthy"
    refits = [m for one in found.findings for m in one.fixes if m.action == "refit"]
    if refits:
        fixed = af.diagnose(replace(learned, weights=found.heads[0].fix(refits[0])))
        assert fixed.error is not None and found.error is not None and fixed.error < 0.8 * found.error
