"""Goldens: the same requests over all kinds, built at an old commit and in this work tree, and held against each other.

    make goldens BASE=<commit>                       # both sides now, on this machine: equal bits
    python tests/goldens/goldens.py --base HEAD --only relation matching --json
    python tests/goldens/goldens.py --write          # goldens.json, which `test_goldens.py` reads

Two strengths. Across two commits everything that the old side had must be there unchanged: the weights as a multiset of
arrays (dtype, shape, bytes), answers to fixed inputs bit for bit, cost, certificate, the attributes that the documents
show, and what becomes of a file of it. What only the new side has is named and is no difference, and so is a file that
comes back whole where it did not before. Bits depend on machine and versions, so both sides run here, one process
each, one BLAS thread. Names of classes, modules, fields and tensors are not compared: an architecture may change.
`goldens.json` holds what does not depend on the machine: statuses, methods and sizes exactly, bounds to 1 %.

A golden that changes needs its reason in CHANGELOG.md, beside the `--write` that changes it.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

import attnfun as af

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).with_name("goldens.json")
CERTIFICATE = (
    *("status", "error", "eps", "norm", "dtype", "method", "target", "domain", "construction", "parts", "hypotheses"),
    *("witness", "relative", "reason", "details"),
)
SIZES = ("layers", "heads", "rank", "keys", "parameters")
NO_WEIGHTS = ("certificate", "sampled", "request", "story", "fit", "recipe", "analysis", "study", "predicted")
"""Fields that say something about weights, and are none."""


def _seeded() -> np.random.Generator:
    return np.random.default_rng(0)


def points(domain: str, *shape: int) -> Any:
    """(*shape, variables) points of "x=-1:1;y=0:2", the low corner first, and the high one next."""
    ends = np.array([[float(end) for end in part.split("=")[1].split(":")] for part in domain.split(";")])
    out = _seeded().uniform(size=(*(shape or (64,)), len(ends)))
    out[0], out[1] = 0.0, 1.0
    return ends[:, 0] * (1 - out) + ends[:, 1] * out


@dataclasses.dataclass(frozen=True)
class Golden:
    """A request, what its result says to fixed inputs, and the attributes (with dots) that are compared besides."""

    make: Callable[[], Any]
    answers: Callable[[Any], Mapping[str, Any]]
    facts: tuple[str, ...] = ()


X1, X2, U = "x=-1:1", "x=-1:1;y=-1:1", ("x=0:1", "y=0:1")
UV = "x1=0:1;x2=0:1", "y1=0:1;y2=0:1"
LEARNED = ("history",)


def crooked(x: Any, y: Any) -> Any:
    """A black box that branches on its values; Lipschitz constant 1."""
    return x / 2 if x > y else y / 2


def _brought() -> Any:
    """A ReLU network in a file, as a user brings one."""
    from safetensors.numpy import save_file

    rng = _seeded()
    maps = {f"{2 * i}.{what}": shape for i, (n, m) in enumerate(((4, 2), (1, 4))) for what, shape in _shapes(n, m)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlp.safetensors"
        save_file({name: rng.normal(size=shape) for name, shape in maps.items()}, str(path))
        return af.compile(path, (-1, 1), 1e-3)


def _shapes(n: int, m: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return ("weight", (n, m)), ("bias", (n,))


def _compile(target: Any, domain: str, eps: float, **options: Any) -> Golden:
    return Golden(lambda: af.compile(target, domain, eps, **options), _values(domain), ("request",))


def _values(domain: str, *shape: int) -> Callable[[Any], Mapping[str, Any]]:
    return lambda net: {"values": net(points(domain, *shape))}


def _sequence(target: Any, tokens: int, eps: float, **options: Any) -> Golden:
    return Golden(lambda: af.sequence(target, tokens, X1, eps, **options), _values(X1, 20, tokens), ("equivariant",))


def _set(target: Any, size: int, eps: float, **options: Any) -> Golden:
    facts = "method", "analysis.verdict"
    return Golden(lambda: af.set_function(target, size, X1, eps, **options), _values(X1, 20, size), facts)


def _scores(left: str, right: str) -> Callable[[Any], Mapping[str, Any]]:
    X, Y = points(left, 20), points(right, 20)
    return lambda r: {"scores": r(X, Y), "pairs": r.pairs(X, Y), "left": r.features(X), "right": r.right(Y)}


def _relation(target: str, left: str, right: str, eps: float, **options: Any) -> Golden:
    facts = ["rank", "rank_lower", "method", "features_only", "signs", "band"]
    if not options.get("features_only") and options.get("method") != "cross":
        facts += ["left.network.cost", "right.network.cost"]
    return Golden(lambda: af.relation(target, left, right, eps, **options), _scores(left, right), tuple(facts))


def _retrieve(utility: str, left: str, right: str, keys: Any, eps: float, **options: Any) -> Golden:
    X = points(left, 20)

    def answers(head: Any) -> Mapping[str, Any]:
        at = head.at(X[3])
        out = {"outputs": head(X), "scores": head.scores(X), "attention": head.attention(X), "top": head.top(X)}
        return out | {"at": [at.key, at.proved, at.weight, *at.margin, at.output]}

    facts = "error", "beta", "duplicates", "relation.rank", "relation.rank_lower", "bound", "study"
    return Golden(lambda: af.retrieve(utility, left, right, keys, eps, **options), answers, facts)


def _in_context(task: str, **options: Any) -> Golden:
    rng = _seeded()
    X = np.tile([[1.0, 1.0], [1.0, -1.0]], (4, 1)) + rng.uniform(-0.1, 0.1, (8, 2))  # XᵀX near 8 I
    y = np.where(X[:, 0] - X[:, 1] > 0.5, 1.0, -1.0) if task == "logistic" else X @ [0.5, -0.3] + 0.1
    ask = X, y, rng.uniform(-2, 2, (6, 2))

    def answers(net: Any) -> Mapping[str, Any]:
        return {
            "predictions": net.predict(*ask),
            "bounds": net.predict(*ask, bound=True)[1],
            "tokens": net.tokens(*ask),
        }

    return Golden(lambda: af.in_context(task, 2, 8, **options), answers, ("algorithm", "iterations", "budget"))


def _neighbours(dim: int, count: int, method: str, **options: Any) -> Golden:
    X = _seeded().normal(size=(10, count, dim))
    X /= np.linalg.norm(X, axis=2, keepdims=True)

    def answers(net: Any) -> Mapping[str, Any]:
        wanted = getattr(net.target, "exact", net.target)(X)
        return {"outputs": net(X), "target": wanted, "measured": net.measured(100, seed=1)}

    facts = "method", "predicted.error", "predicted.proved", "limit"
    return Golden(lambda: af.neighbours(dim, count, method, **options), answers, facts)


def _matching(tokens: int, modulus: int, **options: Any) -> Golden:
    x = _seeded().integers(0, 50, (10, tokens))

    def answers(net: Any) -> Mapping[str, Any]:
        third = {"third order": net.third_order(x)} if net.order == 3 else {}
        return {"outputs": net(x), "decided": net.decide(x), "exact": net.exact(x), **third}

    return Golden(lambda: af.matching(tokens, modulus, **options), answers, ("margin", "bound.match", "bound.other"))


def _average(q: int, *, dim: int = 1, **options: Any) -> Golden:
    z, sets = _seeded().uniform(-1, 1, (6, dim)), [(0, 1), (0, 5), (2, 3), (1, 4), (3, 5), (0, 2)]

    def answers(net: Any) -> Mapping[str, Any]:
        return {"averages": net(z, sets), "exact": net.exact(z, sets)}

    facts = "width", "bits", "bound.error", "bound.margin", "bound.beta"
    return Golden(lambda: af.sparse_average(6, q, dim=dim, **options), answers, facts)


def _lexicographic(levels: int, **options: Any) -> Golden:
    keys = _seeded().integers(0, levels, (9, 2))

    def answers(head: Any) -> Mapping[str, Any]:
        return {"best": head(keys), "tokens": head.tokens(keys), "winner": head.winner_weight(9)}

    return Golden(lambda: af.lexicographic(levels, **options), answers, ("method", "levels", "most_keys"))


def _preorder(**options: Any) -> Golden:
    def answers(found: Any) -> Mapping[str, Any]:
        return {f"utility at {q}": found.utility([q], points("y=0:1", 20)) for q in (0.0, 0.4)}

    boxes = {"left": "x=0:1", "right": "y=0:1"}
    return Golden(lambda: af.preorder(**boxes, **options), answers, ("status", "findings", "witnesses", "agreement"))


def _train(golden: Golden, **options: Any) -> Golden:
    """Few steps of the architecture of a golden, from random weights."""
    return Golden(lambda: af.train(golden.make(), steps=5, batch=16, **options), golden.answers, LEARNED)


def _of_samples() -> Any:
    """A network for a task that is known by its samples alone."""

    def sampler(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
        tokens = rng.uniform(-1, 1, (count, 3, 2))
        return tokens, tokens.sum(axis=2, keepdims=True)

    task = af.learn.SampledTask("sum", sampler, ("x", "y"))
    shape = af.TokenArchitecture.plain(task.coordinates, task.outputs, heads=1, layers=1, rank=1)
    return af.train(shape, task, steps=2)


TRIPLE = "x=-1:1;y=0:1;z=-1:1"
GRID = np.linspace(-1, 1, 6)[:, None]


def _form(eps: float) -> Golden:
    asked = points(TRIPLE, 30).T
    facts = "error", "rank", "rank_lower"
    return Golden(lambda: af.ternary("exp(x*y*z)", TRIPLE, eps), lambda form: {"values": form(*asked)}, facts)


def _called(golden: Golden) -> Golden:
    """For trained towers and forms: what they are called with, and nothing that only constructed ones have."""
    X, Y = points(U[0], 20), points(U[1], 20)
    return dataclasses.replace(golden, answers=lambda r: {"scores": r(X, Y)}, facts=())


GOLDENS: dict[str, Golden] = {
    "compile tangent": _compile("sqrt(x)", "x=0:1", 1e-3, method="tangent"),
    "compile compose": _compile("x*y + sin(3*x)", X2, 1e-4, method="compose"),
    "compile bernstein, outputs": _compile(["sin(x + y)", "exp(x*y)", "x"], X2, 1e-3, method="bernstein"),
    "compile interpolation": _compile("clip(2*x + 1, -1, 1)", "x=-2:2", 0.02, method="interpolation"),
    "compile interpolation, inclusive": _compile(
        "clip(x, -2, 3)", "x=-4:5", 0.3, method="interpolation", variant="inclusive"
    ),
    "compile relu_network": _compile("relu(relu(x) + relu(y)/3 - 0.4) - relu(2 - x)", X2, 1e-3, method="relu_network"),
    "compile partition": _compile("max(x, y)", X2, 0.2, method="partition", temperature="sharp"),
    "compile affine": _compile(["x", "3 - 7*x", "1/3"], "x=-2:9", 1e-12, method="affine"),
    "compile auto": _compile("sin(3*x) + cos(2*y)*exp(x*y)", X2, 1e-4),
    "compile auto, one variable": _compile("sin(3*x)", X1, 1e-6),
    "compile auto, outputs": _compile(["x*y", "sin(x*y) + x"], X2, 1e-3),
    "compile auto, one layer": _compile("x*y", X2, 1e-3, prefer="layers", max_heads=1),
    "compile L2": _compile("abs(x)", X1, 1e-3, norm=2),
    "compile L1, a jump": _compile("sign(x - 0.3)", X1, 0.05, norm=1, method="partition"),
    "compile float32": _compile("exp(x)", "x=-5:0", 1e-3, dtype="float32"),
    "compile float32, two variables": _compile("x*y", X2, 1e-3, dtype="float32"),
    "compile relative": _compile("exp(3*x)*y", X2, 1e-3, relative=True),
    "compile realise mlp": _compile("abs(sin(3*x)) - log(x + 1.001)", X1, 1e-2, realise="mlp"),
    "compile black box": _compile(crooked, X2, 0.2, lipschitz=1.0),
    "compile traced": _compile(lambda x, y: np.sin(3 * x) + y**2, X2, 1e-4),
    "compile a ReLU network": Golden(_brought, _values(X2), ("request",)),
    "compile sampled": _compile("x*y", X2, 1e-6, dtype="float32", accept="sampled"),
    "interpolation one head": Golden(lambda: af.interpolation(-1, 1, 5), _values("x=-2:2")),
    "interpolation published heads": Golden(
        lambda: af.interpolation(-1, 1, 4, heads=3, variant="published"), _values("x=-2:2")
    ),
    "interpolation of a form": Golden(
        lambda: af.interpolation(-1, 1, 6, query="x + 2*y - z/3", domain=f"{X2};z=0:2"), _values(f"{X2};z=0:2")
    ),
    "sequence auto": _sequence("sin(x*mean(x))", 4, 1e-2),
    "sequence max": _sequence("x - max(x)", 3, 1e-2),
    "sequence softmax_mean": _sequence("softmax_mean(x, x**2)", 3, 1e-1),
    "sequence two-layer, a list a token": _sequence([["x_2"], ["x_1*x_1"], ["x"]], 3, 1e-2, method="two-layer"),
    "sequence deep": _sequence("mean(sin(x))*mean(x*mean(x))", 3, 1e-2, method="deep"),
    "sequence one-layer-softmax": _sequence("x*mean(x)", 3, 0.2, method="one-layer-softmax"),
    "sequence partition": _sequence("x_1*x_2", 2, 0.3, method="partition"),
    "sequence float32": _sequence("x*x_1 + mean(x)", 3, 1e-2, dtype="float32"),
    "set elements": _set("sum(x**2)", 3, 0.1),
    "set power-sums": _set("sum(x**2) + sum(x[i]*x[j])", 4, 1e-2, method="power-sums"),
    "set pairs, outputs": _set(["sum(sin(x[i]*x[j]))", "sum(x)"], 2, 0.1, method="pairs"),
    "relation auto": _relation("exp(x*y)", *U, 1e-4),
    "relation inner networks": _relation("exp(-(x1**2 + x2**2 - y1)**2)", "x1=0:1;x2=0:1", "y1=0:1", 1e-2),
    "relation symmetric": _relation("exp(-2*((x1-y1)**2 + (x2-y2)**2))", *UV, 1e-2, symmetric=True),
    "relation signed": _relation("exp(-x*y)*cos(x + y)", *U, 1e-2, symmetric=True, signed=True),
    "relation mlp towers": _relation("exp(x*y)", *U, 1e-2, realise="mlp"),
    "relation cells": _relation("abs(x - y)", *U, 0.2, method="voronoi"),
    "relation hats": _relation("abs(x - y)", *U, 0.1, method="hats", realise="mlp"),
    "relation slices": _relation("exp(-abs(x - y))", *U, 0.05, method="cross"),
    "relation features only": _relation("tanh(2*(x - y))", *U, 3e-3, features_only=True),
    "relation separable": _relation("sin(x)*exp(y) + x*y", *U, 1e-2, method="expand"),
    "relation dot product": _relation("x1*y1 + x2*y2", *UV, 1e-6),
    "relation tensor": _relation("exp(x1*y1)*cos(x2 - y2)", *UV, 1e-2, method="tensor"),
    "relation cholesky": _relation("exp(x*y)", *U, 1e-3, method="cholesky", symmetric=True),
    "relation band": _relation("sign(x - y)", *U, 0.2, band=0.3),
    "ternary": _form(1e-3),
    "retrieve": _retrieve("exp(-(x - y)**2)", X1, "y=-1:1", GRID, 1e-2, beta=30.0, queries=50),
    "retrieve values, features only": _retrieve(
        "exp(x*y)", *U, (GRID + 1) / 2, 1e-3, values=np.arange(12.0).reshape(6, 2), queries=50, features_only=True
    ),
    "in_context ridge": _in_context("ridge", alpha=1.0, spectrum=(4, 20), eps=1e-3),
    "in_context least squares": _in_context("linear", spectrum=(4, 20), layers=5, algorithm="gd"),
    "in_context lasso": _in_context("lasso", alpha=0.1, spectrum=(4, 12), eps=1e-1),
    "in_context logistic": _in_context("logistic", C=1.0, spectrum=(2, 12), eps=1e-1),
    "neighbours full_rank": _neighbours(8, 4, "full_rank", eps=1e-2),
    "neighbours full_rank, nearest": _neighbours(8, 4, "full_rank", which="nearest", beta=50.0),
    "neighbours random_heads": _neighbours(6, 3, "random_heads", heads=8),
    "neighbours random_heads, rank 2": _neighbours(6, 3, "random_heads", heads=4, rank=2, sampler="independent"),
    "neighbours biased": _neighbours(6, 2, "biased", bias=0.2, eps=1e-1),
    "neighbours majority_vote": _neighbours(4, 3, "majority_vote", heads=21),
    "neighbours tally": _neighbours(6, 3, "tally", eps=1e-2),
    "neighbours scores": _neighbours(6, 4, "scores", eps=1e-1),
    "matching pairs": _matching(5, 6),
    "matching pairs without self, float32": _matching(4, 6, self_allowed=False, dtype="float32"),
    "matching triples": _matching(3, 5, order=3),
    "sparse_average": _average(2),
    "sparse_average on the curve": _average(2, keys="curve", heads=2, dim=2),
    "lexicographic one head": _lexicographic(5),
    "lexicographic cascade": _lexicographic(50, dtype="float64", method="cascade"),
    "preorder": _preorder(utility="exp(x*y)"),
    "preorder of a callable": _preorder(
        prefers=lambda q, a, b: bool(abs(a[0] - q[0]) <= abs(b[0] - q[0])), budget=500, trials=2
    ),
    "preorder relation": dataclasses.replace(
        _relation("", *U, 0.0),
        make=lambda: af.preorder(utility="exp(x*y) + x", left=U[0], right=U[1]).relation(1e-3),
    ),
    "train function": _train(_compile("sin(3*x)", X1, 1e-2), start="constructed", proof=False),
    "train sequence": _train(_sequence("x*mean(x)", 2, 1e-1)),
    "train matching": _train(
        dataclasses.replace(_matching(4, 6), answers=lambda net: {"outputs": net([[1, 5, 2, 3]])})
    ),
    "train relation": _train(_called(_relation("exp(x*y)", *U, 1e-2))),
    "train ternary": _train(_form(1e-2), polish=1),
    "train sampled task": Golden(_of_samples, lambda net: {"outputs": net(np.linspace(-1, 1, 12).reshape(2, 3, 2))}),
}

SLOW = (
    *("compile auto", "compile auto, one variable", "compile auto, outputs", "compile sampled", "sequence deep"),
    *("set pairs, outputs", "retrieve", "neighbours full_rank", "neighbours scores", "preorder of a callable"),
)
"""Requests of about a second: `make test` leaves them out, their kinds are there in others."""


# What is recorded of a result.


def plain(value: Any) -> Any:
    """As JSON: floats as their bits, arrays as dtype, shape and hash, records by their fields, no times."""
    if isinstance(value, np.ndarray):
        return fingerprint(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, float):
        return value.hex()
    if dataclasses.is_dataclass(value):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items() if key != "seconds"}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, (str, int)) else type(value).__name__


def fingerprint(array: Any) -> str:
    whole = np.ascontiguousarray(array)
    return f"{whole.dtype} {'x'.join(map(str, whole.shape))} {hashlib.sha256(whole.tobytes()).hexdigest()[:16]}"


def arrays_of(result: Any) -> list[str]:
    """Fingerprints of all arrays in a result, sorted: as many as there are places for them."""
    return sorted(map(fingerprint, _walked(result)))


def _walked(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        if value.ndim and value.size:
            yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name not in NO_WEIGHTS:
                yield from _walked(getattr(value, field.name))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _walked(inner)
    elif isinstance(value, Mapping):
        yield from _walked(list(value.values()))


def record(name: str, files: bool = True) -> dict[str, Any]:
    """All that is compared of a request across two commits, and what `goldens.json` keeps of it."""
    golden = GOLDENS[name]
    made = golden.make()
    facts = {fact: _attribute(made, fact) for fact in golden.facts}
    certificate, cost = getattr(made, "certificate", None), getattr(made, "cost", None)
    out: dict[str, Any] = {
        "weights": arrays_of(made),
        "answers": {key: plain(_exact(value)) for key, value in golden.answers(made).items()},
        "cost": plain(cost),
        "certificate": {part: plain(getattr(certificate, part)) for part in CERTIFICATE} if certificate else None,
        "facts": plain(facts),
        "kept": _kept(certificate, cost, facts),
    }
    return out | ({"file": _file(golden, made, out)} if files else {})


def _attribute(made: Any, fact: str) -> Any:
    try:
        return attrgetter(fact)(made)
    except AttributeError:
        return "no such attribute"


def _exact(value: Any) -> Any:
    """A single number of an answer keeps its dtype."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def _kept(certificate: Any, cost: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if certificate is not None:
        out |= {"status": certificate.status.value, "construction": certificate.construction}
        out |= {"proof": certificate.method, "eps": certificate.eps}
        if certificate.status.value != "sampled":  # what was measured is not a bound, and may be rounding alone
            out["bound"] = certificate.error[1]
    if cost is not None:
        out |= {size: getattr(cost, size) for size in SIZES}
    for fact, value in facts.items():
        if dataclasses.is_dataclass(value) and all(hasattr(value, size) for size in SIZES):
            out |= {f"{fact}.{size}": getattr(value, size) for size in SIZES}
        elif isinstance(value, (int, float)) or (isinstance(value, str) and len(value) < 30):  # no sentences
            out[fact] = value
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in out.items()}


def _file(golden: Golden, made: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of a file: does it come back whole, and what does `verify` say."""
    if not hasattr(made, "save"):
        return {"file": "cannot be saved"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.safetensors"
        made.save(path)
        again = af.load(path)
        wrong = [] if type(again) is type(made) else ["comes back as another type"]
        try:
            answers = {key: plain(_exact(value)) for key, value in golden.answers(again).items()}
            wrong += [f"answers otherwise: {key}" for key, value in answers.items() if value != known["answers"][key]]
        except (af.AttnfunError, AttributeError, ValueError, TypeError) as why:
            wrong.append(f"cannot be asked: {type(why).__name__}")
        if Counter(arrays_of(again)) != Counter(known["weights"]):
            wrong.append("other weights")
        try:
            found = af.verify(path)
            verdict: Any = [plain(found.status), plain(found.error), plain(found.eps)]
        except af.AttnfunError as why:
            verdict = type(why).__name__
    return {"file": "; ".join(wrong) or "whole", "verify": verdict}


# Two sides.


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """What `old` had and `new` has not, or has otherwise, by its place."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            yield from differences(value, new.get(key, "nothing"), f"{where}.{key}" if where else key)
    elif old != new:
        yield f"{where}: {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    if isinstance(value, str) and value.lstrip("-").startswith("0x"):
        value = float.fromhex(value)
    text = f"[{', '.join(map(_short, value))}]" if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def compare(old: dict[str, Any], new: dict[str, Any]) -> dict[str, list[str]]:
    """`changed` fails; `weights` fails unless representations may differ; `notes` are named and fail nothing."""
    if "refused" in old or "refused" in new:
        before, after = (side.get("refused", "a result") for side in (old, new))
        return {"changed": list(differences(before, after, "refused")), "weights": [], "notes": []}
    before, after = Counter(old["weights"]), Counter(new["weights"])
    gone, come = sorted((before - after).elements()), sorted((after - before).elements())
    notes = [f"new array {array}" for array in come] if not gone else []
    changed: list[str] = []
    for part in ("answers", "cost", "certificate", "facts"):
        if old[part] is None and new[part] is not None:
            notes.append(f"{part} is new")
        elif old[part] is not None:
            changed += differences(old[part], new[part], part)
    better = {"file": new["file"]["file"] == "whole", "verify": isinstance(old["file"].get("verify"), str)}
    for part, value in old["file"].items():
        (notes if better[part] else changed).extend(differences(value, new["file"].get(part, "nothing"), part))
    weights = [f"gone {array}" for array in gone] + [f"new {array}" for array in come if gone]
    return {"changed": changed, "weights": weights, "notes": notes}


def _worker(names: list[str]) -> None:
    """One side: a line of JSON for every request."""
    for name in names:
        start = time.process_time()
        try:
            found = record(name)
        except Exception as why:  # a side that cannot do a request is compared too
            found = {"refused": f"{type(why).__name__}: {why}"}
        line = {"name": name, "seconds": time.process_time() - start, "from": str(Path(af.__file__).parent), **found}
        print(json.dumps(line), flush=True)


@contextmanager
def sides(base: str) -> Iterator[dict[str, tuple[Path, dict[str, str]]]]:
    """The sources at `base` and those here, each with the environment in which a process runs them: one BLAS thread."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", base, "src"], cwd=ROOT, capture_output=True)
        if archive.returncode:
            raise SystemExit(archive.stderr.decode().strip())
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        sources = {"base": Path(folder) / "src", "here": ROOT / "src"}
        yield {
            name: (path, os.environ | threads | {"PYTHONPATH": str(path), "ATTNFUN_FAST": "0"})
            for name, path in sources.items()
        }


def both_sides(base: str, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Records of the sources at `base` and of those here, by name."""
    with sides(base) as sources, tempfile.TemporaryDirectory() as folder:
        runs = {}
        for side, (_, env) in sources.items():
            command = [sys.executable, __file__, "--record", "--only", *names]
            with (Path(folder) / side).open("w") as out:
                runs[side] = subprocess.Popen(command, stdout=out, env=env)
        seen = ""
        while any(run.poll() is None for run in runs.values()):
            counts = {side: (Path(folder) / side).read_text().count("\n") for side in runs}
            said = ", ".join(f"{side} {count}/{len(names)}" for side, count in counts.items())
            if said != seen and sys.stderr.isatty():
                print(f"\r{said} ", end="", file=sys.stderr, flush=True)
            seen = said
            time.sleep(0.3)
        if sys.stderr.isatty():
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
        found = []
        for side, (source, _) in sources.items():
            lines = [json.loads(line) for line in (Path(folder) / side).read_text().splitlines()]
            if len(lines) != len(names) or runs[side].returncode:
                raise SystemExit(f"goldens: the side {side} ended after {len(lines)} of {len(names)} requests")
            strays = {line["from"] for line in lines} - {str((source / "attnfun").resolve()), str(source / "attnfun")}
            if strays:
                raise SystemExit(f"goldens: the side {side} ran the sources in {strays.pop()}")
            found.append({line.pop("name"): line for line in lines})
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--base", help="the commit to compare with")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="requests whose names begin so")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--representation", action="store_true", help="arrays of weights may differ: say so, go on")
    parser.add_argument("--write", action="store_true", help=f"write {KEPT.name}")
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = [name for name in GOLDENS if name.startswith(tuple(asked.only))]
    if not names:
        raise SystemExit(f"goldens: no request begins with {' or '.join(asked.only)}; there are {'; '.join(GOLDENS)}")
    if asked.record:
        _worker(names)
    elif asked.write:
        _write(names)
    elif asked.base:
        sys.exit(_report(*both_sides(asked.base, names), asked.base, asked.json, asked.representation))
    else:
        parser.error("give --base COMMIT, or --write")


def _write(names: list[str]) -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for number, name in enumerate(names, start=1):
        print(f"\r{number}/{len(names)} {name:60}", end="", file=sys.stderr, flush=True)
        kept[name] = record(name, files=False)["kept"]
    print(file=sys.stderr)
    lines = [f"  {json.dumps(name)}: {json.dumps(kept[name], ensure_ascii=False)}" for name in GOLDENS if name in kept]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _report(old: dict[str, Any], new: dict[str, Any], base: str, as_json: bool, representation: bool) -> int:
    rows = {name: compare(old[name], new[name]) for name in old}
    failed = [name for name, row in rows.items() if row["changed"] or (row["weights"] and not representation)]
    seconds = [sum(line["seconds"] for line in side.values()) for side in (old, new)]
    if as_json:
        print(json.dumps({"base": base, "requests": rows, "differ": failed, "cpu_seconds": seconds}))
        return int(bool(failed))
    for name, row in rows.items():
        if "refused" in new[name]:
            said = f"refused: {new[name]['refused'][:60]}"
        else:
            count = len(old[name].get("weights", ()))
            said = "weights differ" if row["weights"] else f"weights: equal bits ({count})"
            said += f"; file {new[name]['file']['file']}"
        print(f"{'DIFFERS' if name in failed else 'equal  '} {name:40} {said}")
        for text in (*row["changed"], *(f"weights {text}" for text in row["weights"]), *row["notes"]):
            print(f"          {text}")
    times = f"CPU {seconds[0]:.0f} s there, {seconds[1]:.0f} s here"
    print(f"{len(rows) - len(failed)} of {len(rows)} requests are equal to {base}; {times}")
    if failed:
        print(f"differ: {'; '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    main()
