"""Small files that would take long: expressions whose nodes are shared, so that text and paths double with each node.

Work is counted, never timed: a hook counts calls and stops whatever passes a limit that no doubling could keep.
"""

from __future__ import annotations

import dataclasses
import random
import resource
from fractions import Fraction

import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.cli import main
from attnfun.kinds.sequence.target import Definition
from attnfun.language import Builder, Graph
from attnfun.language.definedness import _rational_range
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.squares import factored
from counting import counted
from gate.kinds import KINDS, Kind, resealed
from products import few

NODES = 24  # 2^24 paths, more than any limit of calls
SQUARE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
STEPS = {
    "square": lambda b, u, v: b.apply("powi", u, value=2),
    "square+": lambda b, u, v: b.apply("add", b.apply("powi", u, value=2), u),
    "mean": lambda b, u, v: b.apply("div", b.apply("add", u, v), b.const(2)),
    "add": lambda b, u, v: b.apply("add", u, v),
    "mul": lambda b, u, v: b.apply("mul", u, v),
    "max": lambda b, u, v: b.apply("max", u, b.apply("sub", v, b.const(1))),
    "min": lambda b, u, v: b.apply("min", u, v),
    "relu": lambda b, u, v: b.apply("add", b.apply("relu", b.apply("sub", u, v)), b.apply("relu", v)),
    "root": lambda b, u, v: b.apply("sqrt", b.apply("add", b.apply("powi", u, value=2), b.apply("powi", v, value=2))),
    "sin": lambda b, u, v: b.apply("sin", b.apply("add", u, v)),
    "over": lambda b, u, v: b.apply("div", u, b.apply("add", b.apply("powi", v, value=2), b.const(1))),
}
TOPS = {
    "as it is": lambda b, u: u,
    "under a root": lambda b, u: b.apply("sqrt", u),
    "under a safe root": lambda b, u: b.apply("sqrt", b.apply("add", b.apply("powi", u, value=2), b.const(1))),
}


def shared(steps: list[str], top: str, names: tuple[str, str] = ("x", "y")) -> Graph:
    """Each node uses the two before it."""
    b = Builder()
    last = [b.var(name) for name in names]
    for step in steps:
        last.append(STEPS[step](b, last[-1], last[-2]))
    return b.graph([TOPS[top](b, last[-1])])


def drawn() -> list[tuple[str, Graph]]:
    rng = random.Random(7)
    out = []
    for kind in STEPS:
        top = rng.choice(list(TOPS))
        out.append((f"{kind} {top}", shared([kind] * NODES, top)))
    for k in range(2):
        steps = [rng.choice(list(STEPS)) for _ in range(NODES)]
        out.append((f"mixed {k}", shared(steps, rng.choice(list(TOPS)))))
    return out


@pytest.fixture(scope="module")
def net() -> af.Approximant:
    return af.compile("x + 0.1*y**2", SQUARE, 1e-2)


@pytest.mark.parametrize("name, graph", drawn(), ids=[name for name, _ in drawn()])
def test_a_stored_function_of_shared_nodes_takes_bounded_work(tmp_path, net, name, graph):
    path = tmp_path / "f.safetensors"
    box = Box.parse(SQUARE)
    dataclasses.replace(net, target=Function(graph, box, net.network.outputs)).save(path)
    assert path.stat().st_size < 40_000
    assert counted(lambda: af.load(path)) > 0
    assert counted(lambda: af.verify(path)) > 0


def test_show_takes_bounded_work(tmp_path, net, capsys):
    path = tmp_path / "f.safetensors"
    graph = shared(["add"] * NODES, "as it is")
    dataclasses.replace(net, target=Function(graph, Box.parse(SQUARE), net.network.outputs)).save(path)
    assert counted(lambda: main(["show", str(path)])) > 0
    assert len(capsys.readouterr().out) < 20_000


def test_the_text_of_a_stored_sequence_is_cut(tmp_path):
    found = af.sequence("x*mean(x)", tokens=3, domain={"x": (0.0, 1.0)}, eps=1e-2)
    names = {d.name for d in found.target.definitions}
    definitions, last = list(found.target.definitions), found.target.definitions[-1].name
    for k in range(NODES):
        b = Builder()
        v = b.var(last)
        name = f"double{k}"
        assert name not in names
        graph = b.graph([b.apply("mul", b.apply("sin", v), b.apply("cos", v))])
        definitions += [Definition(name, "expression", (), graph), Definition(f"mean{k}", "mean", (name,))]
        last = f"mean{k}"
    b = Builder()
    row = b.graph([b.apply("add", b.var("x"), b.var(last))])
    target = dataclasses.replace(found.target, definitions=tuple(definitions), rows=(row,))
    assert len(target.text) < 10_000
    path = tmp_path / "s.safetensors"
    dataclasses.replace(found, target=target).save(path)
    assert path.stat().st_size < 100_000
    assert counted(lambda: len(af.load(path).target.text)) > 0
    assert counted(lambda: af.verify(path)) > 0


# ---------------------------------------------------------------- other kinds of files

REST = {
    **{kind: KINDS[kind] for kind in ("relation", "cells", "slices", "ternary", "retrieval")},
    "terms": Kind(lambda: af.relation("x*sqrt(y) + y", "x=0:1", "y=0:1", 0.05, method="expand"), ""),
}
REMOVABLE = {
    "nested": lambda b, u, v: b.apply("div", b.apply("sin", u), u),
    "chained": lambda b, u, v: b.apply("mul", u, b.apply("div", b.apply("sin", u), u)),
    "summed": lambda b, u, v: b.apply("add", b.apply("div", b.apply("sin", u), u), v),
    "of exponentials": lambda b, u, v: b.apply("div", b.apply("sub", b.apply("exp", u), b.const(1)), u),
    "of differences": lambda b, u, v: b.apply("div", b.apply("sin", b.apply("sub", u, v)), b.apply("sub", u, v)),
}
OTHERS = 12_000_000  # covers of ellipses and exact terms have budgets of their own: boxes times nodes, products


def removable(kind: str, length: int) -> Graph:
    b = Builder()
    last = [b.var("y"), b.var("x")]
    for _ in range(length):
        last.append(REMOVABLE[kind](b, last[-1], last[-2]))
    return b.graph([last[-1]])


def hostile(kind: str) -> list[tuple[str, Graph]]:
    """A graph of one step, a mixed one and a chain of removable quotients, other ones for every kind of file."""
    rng = random.Random(kind)
    step, quotient, top = rng.choice(list(STEPS)), rng.choice(list(REMOVABLE)), rng.choice(list(TOPS))
    mixed = shared([rng.choice(list(STEPS)) for _ in range(NODES)], top)
    return [(step, shared([step] * NODES, top)), ("mixed", mixed), (quotient, removable(quotient, NODES))]


# A graph that is seconds of exact work within its budgets is slow.
QUICK = {("relation", 0), ("cells", 1), ("slices", 2), ("terms", 2), ("ternary", 1), ("retrieval", 1)}


@pytest.mark.parametrize(
    ("kind", "which"),
    [pytest.param(k, i, marks=() if (k, i) in QUICK else pytest.mark.slow) for k in REST for i in range(3)],
)
def test_files_of_other_kinds_with_shared_nodes_take_bounded_work(tmp_path, capsys, kind, which):
    path = tmp_path / "made.safetensors"
    REST[kind].make().save(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, graph = hostile(kind)[which]

    def change(record, _tensors):
        record["target"]["graph"] = graph.to_json()

    forged = resealed(path, tmp_path / "forged.safetensors", change)
    held = []
    assert counted(lambda: af.load(forged), OTHERS) > 0
    assert counted(lambda: held.append(af.verify(forged)), OTHERS) > 0
    assert not any(certificate.status is Status.PROVED for certificate in held)
    assert counted(lambda: main(["show", str(forged)]), OTHERS) > 0
    assert len("".join(capsys.readouterr())) < 20_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kilobytes


@pytest.mark.parametrize("which", few(range(3), 1))
def test_rows_of_shared_nodes_take_bounded_work(tmp_path, which):
    """Files of sequences hold graphs; those of sets hold text, which the parser bounds."""
    path, kind = tmp_path / "made.safetensors", "sequence"
    KINDS[kind].make().save(path)
    _, graph = hostile(kind)[which]

    def change(record, _tensors):
        target = record["target"]
        (known,) = (node[1] for node in target["rows"][0] if node[0] == "var" and node[1] != "x")
        rows = [["var", known] if node == ["var", "y"] else node for node in graph.to_json()]
        target["rows"] = [rows]

    forged = resealed(path, tmp_path / "forged.safetensors", change)
    for verb in (af.load, af.verify):
        assert counted(lambda verb=verb: verb(forged), OTHERS) > 0


HEAVY = ("summed", "of exponentials")  # seconds at full length


@pytest.mark.parametrize(
    ("kind", "length"),
    [(kind, NODES) for kind in REMOVABLE if kind not in HEAVY]
    + [pytest.param(kind, NODES, marks=pytest.mark.slow) for kind in HEAVY]
    + [pytest.param(kind, 8, marks=pytest.mark.slow) for kind in REMOVABLE],
)
def test_long_chains_of_removable_quotients_take_bounded_work(tmp_path, net, kind, length):
    path = tmp_path / "f.safetensors"
    graph = removable(kind, length)
    dataclasses.replace(net, target=Function(graph, Box.parse(SQUARE), net.network.outputs)).save(path)
    for verb in (af.load, af.verify):
        assert counted(lambda verb=verb: verb(path), OTHERS) > 0


def test_prompts_that_no_machine_holds_take_bounded_work(tmp_path):
    path = tmp_path / "made.safetensors"
    KINDS["in-context"].make().save(path)
    rng = random.Random(11)
    for _ in range(12):
        key = rng.choice(["dim", "examples", "strength", "query_range", "x_range", "y_range", "spectrum"])
        value = rng.choice([10**9, 10**15, 10**300, 1e-300, -1, 0])

        def change(record, _tensors, key=key, value=value):
            record["target"][key] = [value, value] if key == "spectrum" else value

        forged = resealed(path, tmp_path / "forged.safetensors", change)
        for verb in (af.load, af.verify):
            assert counted(lambda verb=verb, forged=forged: verb(forged)) > 0


def test_squares_of_squares_stay_short_in_exact_arithmetic():
    graph = shared(["square"] * NODES, "as it is")
    for high in (Fraction(3), Fraction(1, 3), Fraction(10**30)):
        assert _rational_range(graph, {"x": (Fraction(0), high), "y": (Fraction(0), high)}) is None
    assert _rational_range(shared(["square"] * 3, "as it is"), {"y": (Fraction(1), Fraction(2))}) == (1, 256)


def test_factors_of_shared_products_are_opened_once_and_are_the_product():
    rng = random.Random(3)
    for _ in range(40):
        b = Builder()
        nodes = [b.var("x"), b.var("y"), b.const(Fraction(rng.randint(1, 5), 2))]
        values = [Fraction(2), Fraction(3), b.node(nodes[2]).value]
        for _ in range(rng.randint(1, 7)):
            i, j = rng.randrange(len(nodes)), rng.randrange(len(nodes))
            op = rng.choice(["mul", "div", "neg", "powi", "sin+"])
            if op == "neg":
                nodes.append(b.apply("neg", nodes[i]))
                values.append(-values[i])
            elif op == "powi":
                nodes.append(b.apply("powi", nodes[i], value=-2))
                values.append(values[i] ** -2)
            elif op == "sin+":
                nodes.append(b.apply("add", nodes[i], nodes[j]))
                values.append(values[i] + values[j])
                if not values[-1]:
                    break
            else:
                nodes.append(b.apply(op, nodes[i], nodes[j]))
                values.append(values[i] * values[j] if op == "mul" else values[i] / values[j])
        known = dict(zip(nodes, values, strict=True))
        if 0 in values:
            continue
        for most in (1, 4, 64):
            c, powers = factored(b, nodes[-1], most)
            assert max((abs(e) for e in powers.values()), default=0) <= most
            total = c
            for base, e in powers.items():
                total *= known[base] ** e
            assert total == values[-1]
    b = Builder()
    last = [b.var("x"), b.var("y")]
    for _ in range(200):
        last.append(b.apply("mul", last[-1], last[-2]))
    assert counted(lambda: factored(b, last[-1], 64), 20_000) > 0


def test_text_cannot_be_deep_or_long():
    for text in ("(" * 5000 + "x" + ")" * 5000, "+".join(["x"] * 100_000), "sin(" * 3000 + "x" + ")" * 3000):
        assert counted(lambda text=text: af.compile(text, {"x": (0.0, 1.0)}, 0.1)) > 0
