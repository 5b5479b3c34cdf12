"""Pictures and anatomy of composed networks: what a head does, its share of the bound, and where it stands."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.network.head import Axis, Head
from attnfun.network.labels import Label
from attnfun.plots import figure
from attnfun.plots.anatomy import Anatomy, Step, _shared, anatomy
from attnfun.plots.graph import GAP_Y, MOST_BOXES, _fitted, network_graph, place

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def gravity() -> af.Approximant:
    domain = {"m": (1, 2), "x": (3, 4), "y": (1, 2), "z": (3, 4)}
    return af.compile("m/((x-y)**2+z**2)", domain, 1e-3, method="compose")


def panels(picture: Any, start: str) -> list[Any]:
    return [ax for ax in picture.axes if ax.get_title(loc="left").startswith(start)]


def test_every_coordinate_is_a_step_and_the_shares_split_the_bound(gravity: af.Approximant) -> None:
    whole = anatomy(gravity)
    assert whole is not None
    assert [step.name for step in whole.steps] == list(gravity.network.coordinates[4:])
    assert sum(step.keys for step in whole.steps) == gravity.cost.keys
    assert sum(step.share or 0.0 for step in whole.steps) == pytest.approx(1.0)
    listed = {row["name"]: row["own"] for row in gravity.certificate.details["steps"]}
    assert all(step.own == listed[step.name] for step in whole.steps)
    assert max(step.layer for step in whole.steps) == gravity.cost.layers


def test_functions_name_the_heads_they_read(gravity: af.Approximant) -> None:
    whole = anatomy(gravity)
    assert whole is not None
    layer = {step.tag: step.layer for step in whole.steps}
    for step in whole.steps:
        assert all(name in step.function for name in step.reads)
        assert all(name in gravity.network.inputs or layer[name] < step.layer for name in (*step.reads, *step.rides))
    X = gravity.target.box.sample(200, np.random.default_rng(0))
    square = next(step for step in whole.steps if set(step.reads) == {"x", "y"})
    inside = X[:, 1] - X[:, 2]
    assert square.low <= inside.min() and inside.max() <= square.high


def test_tags_never_clash_with_the_variables() -> None:
    net = af.compile("exp(h1)*log(h2)", {"h1": (0, 1), "h2": (1, 2)}, 1e-2, method="compose")
    whole = anatomy(net)
    assert whole is not None and {step.tag for step in whole.steps}.isdisjoint(net.network.inputs)


def test_other_networks_have_no_anatomy_and_without_a_proof_there_are_no_shares(gravity: af.Approximant) -> None:
    assert anatomy(af.compile("sin(x)", {"x": (0, 1)}, 1e-2, method="bernstein")) is None
    bare = replace(gravity, certificate=replace(gravity.certificate, details={}))
    whole = anatomy(bare)
    assert whole is not None and all(step.share is None and step.own is None for step in whole.steps)
    figure(bare)


def step(tag: str, layer: int, reads: dict[str, float], rides: tuple[str, ...] = ()) -> Step:
    axis = Axis([[1.0]], [0.0], [[0.0], [1.0]], [0.0, 0.0])
    head = Head(tag, (axis,), [[0.0], [1.0]], (tag,))
    function = f"log({' + '.join(reads)})"
    return Step(tag, layer, f"name {tag}", function, (head,), Label(tag, 1, 0, 0.0, 0.0), -1.0, 1.0, reads, rides)


def test_a_share_is_where_the_error_was_born() -> None:
    """h1 errs by 1; h3 = g(h1 + 2 h2) carries 6 of its 8; its arguments err by 1 and 2: a third of the 6 is h1's."""
    steps = (step("h1", 1, {"x": 1.0}), step("h2", 1, {"x": 1.0}), step("h3", 2, {"h1": 1.0, "h2": -2.0}))

    class Proof:
        details = {  # noqa: RUF012
            "steps": [
                {"name": "name h1", "own": 1.0, "carried": 0.0, "rounding": 0.0, "total": 1.0},
                {"name": "name h2", "own": 0.5, "carried": 0.0, "rounding": 0.5, "total": 1.0},
                {"name": "name h3", "own": 2.0, "carried": 6.0, "rounding": 0.0, "total": 8.0},
            ]
        }

    whole = _shared(Anatomy(steps, ("x",), ("f",), ("h3",), ({"h3": 1.0},)), Proof())
    assert [one.share for one in whole.steps] == pytest.approx([2 / 8, 4 / 8, 2 / 8])


def random_anatomy(layers: int, heads: int, inputs: int, seed: int) -> Anatomy:
    rng = np.random.default_rng(seed)
    names = [f"x{k}" for k in range(inputs)]
    known, steps = list(names), []
    depth = sorted([*range(1, layers + 1), *rng.integers(1, layers + 1, heads - layers).tolist()])
    for k, layer in enumerate(depth):
        below = [s.tag for s in steps if s.layer == layer - 1] or names
        older = [*names, *(s.tag for s in steps if s.layer < layer)]
        reads = {str(rng.choice(below)): 1.0, str(rng.choice(older)): -1.0}
        rides = tuple({str(rng.choice(older))} - set(reads))
        steps.append(step(f"h{k + 1}", layer, reads, rides))
        known.append(steps[-1].tag)
    return Anatomy(tuple(steps), tuple(names), ("f",), (steps[-1].tag,), ({steps[-1].tag: 1.0, names[0]: 1.0},))


@pytest.mark.parametrize(
    ("layers", "heads", "inputs"), [(1, 1, 1), (1, 12, 3), (2, 12, 10), (3, 8, 9), (6, 6, 2), (6, 12, 9), (1, 40, 2)]
)
def test_boxes_stand_in_the_frame_and_never_on_each_other(layers: int, heads: int, inputs: int) -> None:
    for seed in range(5):
        whole = random_anatomy(layers, heads, inputs, seed)
        placed = place(whole)
        columns: dict[int, list[Any]] = {}
        for item in placed.items.values():
            columns.setdefault(item.column, []).append(item)
            assert item.y - item.height / 2 > -1e-6 and item.y + item.height / 2 < placed.height + 1e-6
        for column in columns.values():
            column.sort(key=lambda item: item.y)
            for a, b in pairwise(column):
                assert b.y - a.y >= (a.height + b.height) / 2 + GAP_Y - 1e-6
        for chain, _ in placed.chains:
            assert [b - a for a, b in pairwise(placed.items[key].column for key in chain)] == [1] * (len(chain) - 1)
        boxes = [item for item in placed.items.values() if item.step is not None]
        assert len(boxes) == heads if heads <= MOST_BOXES else len(boxes) < heads


def test_texts_are_cut_to_their_boxes() -> None:
    text, size = _fitted("exp(" + " + ".join(f"h{k}" for k in range(40)) + ")", 2.0, 8.5, bold=True)
    assert text.endswith("…") and 7 < size < 8.5
    assert _fitted("log(u)", 2.0, 8.5) == ("log(u)", 8.5)


def test_the_picture_holds_every_head_and_the_bound(gravity: af.Approximant, tmp_path: Path) -> None:
    picture = gravity.plot(tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 50_000
    whole = anatomy(gravity)
    assert whole is not None
    words = {text.get_text() for text in picture.axes[0].texts}
    assert {step.tag for step in whole.steps} <= words and {"inputs", "layer 1", "read-out"} <= words
    (ax,) = panels(picture, "Error under its bound")
    dashed = {float(line.get_ydata()[0]) for line in ax.lines if line.get_linestyle() == "--"}
    assert dashed == {gravity.certificate.error[1], -gravity.certificate.error[1]}
    curve = next(line for line in ax.lines if len(line.get_ydata()) > 100)
    assert np.abs(curve.get_ydata()).max() <= gravity.certificate.error[1]
    assert np.abs(curve.get_ydata()).max() >= 0.5 * gravity.certificate.error[0]  # the line passes near the witness


def test_deep_and_wide_graphs_are_drawn() -> None:
    from matplotlib.figure import Figure

    for layers, heads in ((6, 12), (1, 12), (1, 30)):
        whole = random_anatomy(layers, heads, 9, 0)
        placed = place(whole)
        ax = Figure().add_subplot()
        network_graph(ax, whole, placed)
        assert len(ax.patches) > min(heads, MOST_BOXES)


def test_the_pieces_of_a_kink_are_shown_one_by_one() -> None:
    net = af.compile("max(x, 0.3) + sin(3*x)", {"x": (-1, 1)}, 1e-4, method="tangent")
    picture = figure(net)
    assert len(panels(picture, "Keys are lines")) == len(panels(picture, "Attention")) == min(4, net.cost.heads) > 1
    for ax in panels(picture, "Attention"):
        assert np.allclose(sum(line.get_ydata() for line in ax.lines), 1)


def test_lines_stay_under_the_potential_and_ladders_are_drawn_on_a_log_axis() -> None:
    net = af.compile("sqrt(x)", {"x": (0, 1)}, 1e-3)
    (keys,) = panels(figure(net), "Keys are lines")
    assert keys.get_xscale() == "log"
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in keys.lines}
    top, smooth = lines.pop("their maximum"), lines.pop("log of the sum of their exponentials")
    assert all(np.all(line <= top + 1e-9) for line in lines.values()) and np.all(top <= smooth)
    (even,) = panels(figure(af.compile("sin(3*x)", {"x": (-1, 1)}, 1e-3)), "Keys are lines")
    assert even.get_xscale() == "linear"


def test_an_mlp_is_drawn_with_its_units_and_no_attention(tmp_path: Path) -> None:
    net = af.compile("m/((x-y)**2+z**2)", {"m": (1, 2), "x": (3, 4), "y": (1, 2), "z": (3, 4)}, 1e-2, realise="mlp")
    picture = net.plot(tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 10_000
    assert panels(picture, "Where units break") and not panels(picture, "Keys") and not panels(picture, "Attention")
    words = " ".join(text.get_text() for ax in picture.axes for text in ax.texts) + picture.texts[-1].get_text()
    assert "units" in words and "keys" not in words
    whole = anatomy(net)
    assert whole is not None and sum(step.keys for step in whole.steps) == net.cost.keys
    line = af.compile("sqrt(x)", {"x": (0, 1)}, 1e-2, realise="mlp")
    dots = panels(figure(line), "Where units break")[0].lines[1]
    assert len(dots.get_xdata()) == line.cost.keys
    bare = replace(line, weights=replace(line.network, labels=None))
    assert panels(figure(bare), "Attention")[0].texts[0].get_text() == "none: the network is an MLP"
