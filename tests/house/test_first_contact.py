"""What somebody sees in the first minutes: how things print, what a notebook shows, what may be handed in."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.kinds import NAMES
from attnfun.language.numbers import at_most
from house.requests import model
from house.sources import PACKAGE
from products import few

kinds = pytest.mark.parametrize("kind", NAMES)
ROOT = PACKAGE.parents[1]


def reachable(thing: Any, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Objects of attnfun's classes behind public attributes, entries of tuples and values of mappings."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    inside = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, tuple | list) else ()
    for place, one in enumerate(list(inside)[:3]):
        yield from reachable(one, f"{path}[{place}]", depth, seen)
    if not type(thing).__module__.startswith("attnfun"):
        return
    yield path, thing
    for name in dir(thing) if depth else ():
        if not name.startswith("_"):
            try:
                part = getattr(thing, name)
            except (
                af.AttnfunError,
                AttributeError,
                NotImplementedError,
            ):  # a property that these weights have no answer for
                continue
            if not isinstance(part, type) and not hasattr(part, "__func__"):
                yield from reachable(part, f"{path}.{name}", depth - 1, seen)


def assert_short(path: str, thing: Any) -> None:
    text = repr(thing)
    assert len(text.splitlines()) <= 6 and len(text) <= 600 and " at 0x" not in text, f"{path}: {text[:900]}"


@kinds
def test_everything_behind_a_model_prints_in_six_lines(kind: str) -> None:
    found = list(reachable(model(kind, 0), kind, 2, set()))
    assert len(found) > 4
    for path, thing in found:
        assert_short(path, thing)


def test_answers_of_other_verbs_print_in_six_lines() -> None:
    net, table = af.compile("sin(3*x)", (-1, 1), 1e-3), np.eye(4)
    many = af.language.Function.read("x1", af.Box.parse({f"x{k}": (0, 1) for k in range(1, 60)}))
    answers = [af.bounds.rank(16, 2, 3), af.rank_of(table, 0.1), af.embed_dim(table.astype(int)), af.diagnose(net)]
    answers += [af.preorder(utility="x+y/2", right="x=0:1;y=0:1"), af.compare(net, net, names=("one", "two"))]
    answers += [af.plan("matching", dim=8, context=4), net.literal(), net.weights.plain(), many, many.box]
    for answer in answers:
        for path, thing in reachable(answer, type(answer).__name__, 2, set()):
            assert_short(path, thing)


@kinds
def test_a_model_says_its_target_its_size_and_what_is_proved(kind: str) -> None:
    one = model(kind, 0)
    target, _, size, proof = repr(one).splitlines()
    assert target.startswith(f"{type(one).__name__}: {one.target.text[:100]}") and "parameter" in size
    assert proof.strip().startswith(one.certificate.heading)
    high = one.certificate.error[1]
    assert ((at_most(high) if one.certificate.bounds else f"{high:.4g}") in proof) == (
        one.certificate.bounds or one.certificate.measured
    )
    if not one.certificate.bounds:
        assert "at most" not in proof


@pytest.mark.parametrize("kind", few(NAMES, 2))
def test_a_notebook_shows_a_card_with_a_picture(kind: str) -> None:
    pytest.importorskip("matplotlib")
    card = model(kind, 0)._repr_html_()
    assert card.startswith("<div>") and "data:image/png;base64,iVBOR" in card and len(card) < 1_500_000


def test_the_card_of_a_hostile_target_is_inert(monkeypatch: pytest.MonkeyPatch) -> None:
    net = af.compile("x", (-1, 1), 1e-3)
    evil = "<script>alert(1)</script><img src=x onerror='alert(2)'>"
    monkeypatch.setattr(type(net.target), "text", evil)
    monkeypatch.setattr(type(net.target), "domain", evil)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # a picture would be one <img, and its pixels say nothing
    card = replace(net, certificate=replace(net.certificate, status=af.Status.UNDECIDED, reason=evil))._repr_html_()
    assert "<script" not in card and "<img" not in card and card.count("&lt;script&gt;") == 3


@cache
def fresh() -> dict[str, Any]:
    """What a process sees that has imported no more than attnfun and its commands, and drawn one picture."""
    code = "import json, sys, attnfun as af, attnfun.cli\nseen = {'names': dir(af)}\n"
    code += "drawn = af.compile('x**2', (-1, 1), 1e-2).plot()._repr_png_()\n"
    code += "print(json.dumps({**seen, 'head': list(drawn[:4]), 'pyplot': 'matplotlib.pyplot' in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_a_picture_shows_itself_without_pyplot() -> None:
    pytest.importorskip("matplotlib")
    assert bytes(fresh()["head"]) == b"\x89PNG" and fresh()["pyplot"] is False


def test_the_card_does_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    net = af.compile("x**2", (-1, 1), 1e-2)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    card = net._repr_html_()
    assert "x**2" in card and "Proved" in card and "<img" not in card


@pytest.mark.parametrize("suffix", few(["svg", "pdf", "png"], 1))
def test_a_picture_with_a_path_is_written_and_returned(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"p.{suffix}"
    assert model("ternary", 0).plot(path).axes and path.stat().st_size > 5_000


# ---------------------------------------------------------------- inputs


class Frame:
    """A data frame as pandas and polars have it: columns by name."""

    def __init__(self, **columns: Any) -> None:
        self.columns, self._held = list(columns), columns

    def __getitem__(self, name: str) -> Any:
        return np.asarray(self._held[name])


def test_a_number_a_row_a_frame_a_tensor_and_names_are_the_same_point() -> None:
    rng = np.random.default_rng(3)
    net, line = af.compile("sin(x)+x*y", [(-1, 1), (0, 2)], 1e-2), af.compile("sin(x)", (-1, 1), 1e-2)
    assert net.target.box.text == "x=-1:1;y=0:2"
    for x, y in rng.uniform((-1, 0), (1, 2), (5, 2)):
        wanted = net([[x, y]])[0]
        assert net(x=x, y=y) == wanted == net([x, y]) and net(x=x, y=y).shape == ()
        assert net(Frame(other=["a"], y=[y], x=[x])).tolist() == [wanted]
        assert line(x) == line([x])[0] == line(x=x) and line(x).shape == ()
    x, y = rng.uniform(-1, 1, (3, 1)), rng.uniform(0, 2, 4)
    table = net(x=x, y=y)
    assert table.shape == (3, 4) and np.isclose(table[2, 1], net([[x[2, 0], y[1]]])[0], 1e-12)
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16):
        given = torch.tensor([[0.5, 0.25]], dtype=dtype, requires_grad=True)
        assert np.array_equal(net(given), net([[0.5, 0.25]]))


@pytest.mark.parametrize("kind", ["function", "sequence", "set", "relation", "ternary", "retrieval"])
def test_every_kind_with_variables_takes_them_by_name(kind: str) -> None:
    """Rows of a table of inputs, and the same columns by name, give the same bits."""
    one = model(kind, 0)
    names, box = one.target.variables, getattr(one.target, "utility", one.target).box
    tokens = (one.target.count,) if hasattr(one.target, "count") else ()
    X = box.part(names).sample(4 * (tokens or (1,))[0], np.random.default_rng(0)).reshape(4, *tokens, len(names))
    by_name = one(**{name: X[..., k] for k, name in enumerate(names)})
    assert np.array_equal(by_name, one(*one.target.of_columns(X.reshape(4, -1))))
    alone = one(**{name: X[0, ..., k] for k, name in enumerate(names)})
    assert alone.shape == by_name.shape[1:] and np.allclose(alone, by_name[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": 0.3}, "y is missing; the names are x, y"),
        ({"x": 0.3, "z": 1}, "there is no input z; the names are x, y"),
        ({"x": [0.1, 0.2], "y": [0.1, 0.2, 0.3]}, "arrays of shapes that do not fit together: x (2,), y (3,)"),
        ({"x": "a", "y": 1}, "x 'a': an array of numbers is needed"),
        ({}, "0 given; needed: X"),
        ({"X": Frame(x=[0.1], q=[1])}, "the table has no column y; its columns are x, q"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(af.InvalidRequest, match=re.escape(said)):
        af.compile("x+y", [(-1, 1), (0, 2)], 1e-2)(**given)


@kinds
def test_a_call_with_a_wrong_name_lists_the_right_ones(kind: str) -> None:
    with pytest.raises(af.InvalidRequest, match=r"^there is no input nonsense; the (names|inputs) are \w"):
        model(kind, 0)(nonsense=1)


@pytest.mark.parametrize(
    ("build", "domain"),
    [
        (lambda: af.compile("y*sin(x)+1e0*pi", [(-1, 1), (0, 2)], 0.5), "y=-1:1;x=0:2"),
        (lambda: af.compile(lambda b, a: a + b, np.array([[-1, 1], [0, 2]]), 0.5), "b=-1:1;a=0:2"),
        (lambda: af.compile(np.sin, (0, 1), 0.5), "x=0:1"),
        (lambda: af.sequence("x_1+y", 2, [(-1, 1), (0, 1)], 0.5), "x=-1:1;y=0:1, 2 tokens"),
        (lambda: af.set_function("sum(x[i]*x[j])", 2, (-1, 1), 0.5), "x=-1:1, sets of 2 points"),
        (lambda: af.relation("exp(q*k)", (0, 1), (0, 2), 0.5), "q=0:1 | k=0:2"),
    ],
)
def test_intervals_without_names_go_to_the_variables_in_their_order(build: Any, domain: str) -> None:
    assert build().target.domain == domain


def test_a_point_just_outside_is_told_with_all_its_digits() -> None:
    net, near = af.compile("x", (-1, 1), 0.1), float(np.nextafter(1, 2))
    for value, told in ((3.0, "3"), (near, repr(near)), (-1.0000001, "-1.0000001")):
        with pytest.raises(af.InvalidRequest, match=re.escape(f"the point x={told} lies outside")):
            net(value)


@pytest.mark.parametrize("domain", [(0,), None, 5, {1, 2}])
def test_what_is_no_domain_is_answered_with_every_form(domain: Any) -> None:
    with pytest.raises(af.InvalidRequest, match=r"give \(-1, 1\) .* mapping .* text such as 'x=-1:1'$"):
        af.compile("x", domain, 0.1)


def test_intervals_that_are_too_few_name_the_variables() -> None:
    with pytest.raises(af.InvalidRequest, match=r"1 interval.* without a name, and the variables are x, y"):
        af.compile("x*y", (-1, 1), 0.1)


# ---------------------------------------------------------------- words


def test_the_package_shows_its_public_names_only() -> None:
    pytest.importorskip("matplotlib")
    assert dir(af) == sorted(af.__all__) == fresh()["names"]


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_no_message_and_no_page_asks_for_an_extra_that_no_registry_has() -> None:
    for path in [*PAGES, *PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.toml")]:
        assert "attnfun[" not in path.read_text("utf-8"), path


def test_shell_examples_are_quoted_for_every_shell() -> None:
    """Single quotes mean nothing to cmd.exe."""
    lines = [(str(path), line) for path in PAGES for line in path.read_text("utf-8").splitlines()]
    for file in PACKAGE.rglob("commands.toml"):
        for name, entry in tomllib.loads(file.read_text("utf-8")).items():
            lines += [(f"{file} {name}", line) for line in entry.get("examples", ()) if isinstance(entry, dict)]
    lines += [(str(path), line) for path in PACKAGE.rglob("*.py") for line in path.read_text("utf-8").splitlines()]
    shell = re.compile(r"(\battnfun [a-z-]+|pip install|python -m attnfun) [^`#]*?[ =]'[^' ]*[*(=\[:][^']*'")
    assert sum("attnfun compile" in line for _, line in lines) > 5
    assert [(where, line) for where, line in lines if shell.search(line)] == []
