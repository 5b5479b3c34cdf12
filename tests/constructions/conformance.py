"""What every construction must satisfy, whatever it builds; `test_conformance.py` runs this on the whole registry.

A construction is tested on the cases under its name in CASES, and must refuse those under its name in REFUSED. One
without cases fails `test_every_construction_has_cases`: adding a construction means adding its cases here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.witness import outputs_at
from attnfun.errors import AttnfunError, Infeasible
from attnfun.kinds.function.build import CONSTRUCTIONS, Request
from attnfun.kinds.function.view import Approximant
from attnfun.language import Graph, precision
from attnfun.language.enclosures import upper
from attnfun.network import evaluate, identical
from certify.hunting import BOUNDS, Array, errors, formula_rounding, worst_error
from network.networks import by_every_route
from stored import load, save

torch.set_num_threads(1)


def crooked(x: Any, y: Any) -> Any:
    """A black box: branches on its values, so it cannot be traced. Lipschitz constant 1 in the Euclidean norm."""
    return x / 2 if x > y else y / 2


def on_grid(*shape: int, kind: str = "linear", outputs: int = 1, rough: float = 1.0) -> Graph:
    """Numbers on an uneven grid of [0, 1]^d, half of a wave and half of noise."""
    rng = np.random.default_rng(sum(shape))
    axes = [np.concatenate([[0.0], np.sort(rng.uniform(0.05, 0.95, n - 2)), [1.0]]) for n in shape]
    wave = np.cos(3 * sum(np.meshgrid(*axes, indexing="ij")))
    columns = [wave + rough * rng.uniform(-1, 1, shape) for _ in range(outputs)]
    made = af.table(tuple(axes), columns[0], kind=kind) if outputs == 1 else None
    made = made or af.table(axes[0], np.stack(columns, axis=1), kind=kind)
    return made.graph(made.names)


@dataclass(frozen=True)
class Case:
    target: Any
    domain: str
    eps: float
    options: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False

    @property
    def label(self) -> str:
        text = getattr(self.target, "__name__", None) or str(self.target)
        more = "".join(f" {k}={v}" for k, v in self.options.items())
        return f"{text} on {self.domain} to {self.eps:g}{more}"

    @property
    def norm(self) -> float:
        return float(self.options.get("norm", math.inf))


X1, X2 = "x=-1:1", "x=-1:1;y=-1:1"
MLP = {"realise": "mlp"}

CASES: dict[str, tuple[Case, ...]] = {
    "affine": (
        Case("2*x - y/3 + 0.1", "x=-1:1;y=0:5", 1e-12),
        Case(["x", "3 - 7*x", "1/3"], "x=-2:9", 1e-12),
        Case("3*x + 1", X1, 1e-5, {"dtype": "float32"}),
        Case("7", X1, 1e-12),
        Case("x + 2*y - 3*z + w", "x=-1:1;y=0:1;z=5:6;w=-1:0", 1e-10, {"norm": 2}),
        Case("2*x - y/3 + 0.1", "x=-1:1;y=0:5", 1e-12, MLP),
    ),
    "bernstein": (
        Case("sin(3*x)", X1, 1e-9),
        Case("1/(1 + 25*x**2)", X1, 1e-3, slow=True),
        Case("sqrt(x + 2)*abs(x + 3)", "x=-1:2", 1e-6),
        Case(["sin(x + y)", "exp(x*y)", "x"], X2, 1e-4),
        Case("sin(3*x) + cos(2*y)*exp(x*y)", X2, 1e-6),
        Case("sin(x)*exp(y)", "x=0:1;y=0.5:1", 1e-3, {"dtype": "float32"}),
        Case("sin(x) + y*cos(z)", "x=-1:1;y=-1:1;z=-1:1", 1e-2, slow=True),
        Case("x*y + z*w/4", "x=-1:1;y=-1:1;z=0:1;w=0:1", 0.05, slow=True),
        Case("abs(x)", X1, 0.05, slow=True),
        Case("log(x)", "x=1:5", 1e-6, {"norm": 2}),
        Case("sin(x*y)/(x*y)", X2, 1e-4, slow=True),
    ),
    "tangent": (
        Case("x**2", X1, 1e-6),
        Case("tanh(50*x) + x", X1, 1e-9, slow=True),
        Case("abs(sin(3*x))", "x=-1:2", 1e-4, slow=True),
        Case("sqrt(x)", "x=0:1", 1e-6),
        Case("log(x)", "x=1e-6:1", 1e-4),
        Case("1/(1 + 25*x**2)", X1, 1e-6, slow=True),
        Case(["sin(3*x)", "abs(x)", "2*x + 1"], X1, 1e-4),
        Case("exp(x)", "x=-5:0", 1e-3, {"dtype": "float32"}),
        Case("abs(x)", X1, 1e-3, {"norm": 2}),
        Case("(1 - cos(x))/x**2", "x=-2:2", 1e-6, slow=True),
        Case("sin(pi*x)/(pi*x)", X1, 1e-3, {"dtype": "float32"}),
    ),
    "compose": (
        Case("x*y", X2, 1e-6),
        Case("exp(-(x**2 + 2*y**2))*cos(z)", "x=-1:1;y=0:1;z=0:3", 1e-5, slow=True),
        Case("a*b/(c**2 + d)", "a=1:2;b=1:3;c=0:1;d=1:2", 1e-6, slow=True),
        Case("sqrt(x**2 + y**2)", X2, 1e-3, slow=True),
        Case("max(x, y) + abs(x - 2*y)", X2, 1e-5),
        Case("exp(-(abs(x - 0.3) + abs(y - 0.7)))", "x=0:1;y=0:1", 1e-6, slow=True),
        Case(["x*y", "sin(x*y) + x"], X2, 1e-5),
        Case("x**y", "x=1:3;y=-1:2", 1e-4, slow=True),
        Case("x*y", X2, 1e-3, {"dtype": "float32"}),
        Case("y*sin((x - z)*y/2)**2/((x - z)*y/2)**2", "x=0:2;y=1:2;z=0:2", 1e-3, slow=True),
        Case("x*y", X2, 1e-3, {"norm": 2}),
        Case("sign(x + y - 0.3)*exp(x)", X2, 1e-2, {"norm": 1}),
        Case(["sign(1 - x**2 - y**2)", "sign(x)*y"], X2, 1e-2, {"norm": 2}, slow=True),
        Case("sign(x - 0.3)", X1, 0.05, {"norm": 2, "dtype": "float32"}),
        Case("sign(x - y)*cos(x)", X2, 1e-4, {"band": 1e-3}),
        Case("sqrt(x)", "x=0:1", 1e-4, MLP),
        Case("abs(sin(3*x)) - log(x + 1.001)", "x=-1:2", 1e-3, MLP),
        Case("sin(3*x) + cos(2*y)*exp(x*y)", X2, 1e-2, MLP, slow=True),
        Case(["max(x, y) + abs(x - 2*y)", "x*y", "2*x - 1"], X2, 1e-3, MLP),
        Case("a*b/(c**2 + d)", "a=1:2;b=1:3;c=0:1;d=1:2", 1e-2, MLP, slow=True),
        Case("x*y", X2, 1e-2, {"dtype": "float32", **MLP}),
    ),
    "interpolation": (
        Case("clip(2*x + 1, -1, 1)", "x=-2:2", 0.02),
        Case("relu(x - 1/3)", X1, 0.01),
        Case("clip(x, -2, 3)", "x=-4:5", 0.3, {"variant": "published"}),
        Case("clip(x, -2, 3)", "x=-4:5", 0.1, {"variant": "inclusive"}),
        Case("abs(x) - 2*clip(3*x, -1, 1/2) + x/7", X1, 0.05),
        Case("clip(x + 2*y - z/3, -1, 1) + 3*x - abs(y - z)", "x=-1:1;y=-1:1;z=0:2", 0.02, slow=True),
        Case(["max(x, y, x + 2*y)", "min(x, 1/5) - y", "3*x"], X2, 0.1),
        Case("relu(abs(x - y) - 1/2)", X2, 0.2, {"variant": "inclusive"}, slow=True),
        Case("max(x, y)", X2, 0.05, {"dtype": "float32"}),
        Case("clip(5*x, -1, 2)", X1, 0.1, {"norm": 2}),
    ),
    "relu_network": (
        Case("relu(x)", X1, 1e-6),
        Case("relu(x + y) - 3*relu(x - 2*y + 0.3) + y", X2, 1e-5, slow=True),
        Case("relu(relu(x - 0.2) + relu(y)/3 - 0.4) - relu(2 - x)", X2, 1e-4),
        Case(["relu(x - y)", "2*relu(x - y) - relu(x + z/3)", "x"], "x=-1:1;y=0:2;z=-3:3", 1e-4),
        Case("relu(x - 2*y) - relu(relu(x) - y)", X2, 1e-3, {"dtype": "float32"}, slow=True),
        Case("relu(x - 2*y)", X2, 1e-3, {"dtype": "float32"}),
        Case("relu(x + y) + relu(x - 1.9*y)", X2, 0.4),
    ),
    "table": (
        Case(on_grid(12), "x=0:1", 1e-4),
        Case(on_grid(40, kind="cubic"), "x=0.1:0.8", 1e-3),
        Case(on_grid(20, outputs=3), "x=0:1", 1e-2),
        Case(on_grid(9, kind="pchip"), "x=0:1", 1e-2, {"norm": 2}),
        Case(on_grid(5, rough=0.1), "x=0:1", 0.05, {"dtype": "float32"}),
        Case(on_grid(6, 5), "x=0:1;y=0:1", 1e-2),
        Case(on_grid(9, 8, kind="cubic", rough=0.01), "x=0:0.7;y=0:1", 1e-2, slow=True),
        Case(on_grid(4, 3, 5), "x=0:1;y=0:1;z=0:1", 0.05, slow=True),
    ),
    "partition": (
        Case("abs(x)", X1, 1e-2),
        Case("max(sin(5*x), x**2)", X1, 0.05, {"temperature": "sharp"}),
        Case("max(x, y)", X2, 0.06),
        Case(["sin(x)", "cos(y)"], "x=-3:3;y=-3:3", 0.2),
        Case("x*y + abs(z)", "x=0:1;y=0:1;z=-1:1", 0.2, slow=True),
        Case("(x + y + z + w)/4", "x=0:1;y=0:1;z=0:1;w=0:1", 0.3),
        Case("sign(x - 0.3)", X1, 0.05, {"norm": 1}),
        Case("sign(x)*y", X2, 0.3, {"norm": 2}, slow=True),
        Case("0.05*sin(x)", X1, 0.005, {"norm": 400}),
        Case(crooked, X2, 0.1, {"lipschitz": 1.0}),
        Case("abs(x)", X1, 0.1, {"dtype": "float32"}),
        Case("exp(-(20*x)**2)", "x=-1:2", 0.1, slow=True),
        Case("x/tanh(x)", X1, 0.1, slow=True),
        Case("exp(-4*x) + y/2", "x=0:1;y=-1:1", 0.2, {"variant": "graded", "dtype": "float32"}),
        Case(["sin(2*x)*y", "exp(-8*x**2)"], X2, 0.25, {"variant": "graded"}),
        Case(["tanh(4*(x + y))", "x/2"], X2, 0.3, {"variant": "power"}),
        Case("tanh(6*(x + y))", X2, 0.3, {"variant": "power", "dtype": "float32"}),
        Case("sign(x**2 + y**2 - 0.5)", X2, 0.15, {"norm": 1, "variant": "power"}),
        Case(crooked, X2, 0.1, {"lipschitz": 1.0, "variant": "power"}),
        Case("sin(x) + cos(y)", "x=-3:3;y=-3:3", 0.2, {"temperature": "soft"}),
    ),
}

REFUSED: dict[str, tuple[Case, ...]] = {
    "affine": (Case("x**2", X1, 1e-3), Case("abs(x)", X1, 1e-3), Case(crooked, X2, 0.1, {"lipschitz": 1.0})),
    "bernstein": (
        Case("abs(x)", X1, 1e-9),
        Case("a+b*c+d+e*e", "a=0:1;b=0:1;c=0:1;d=0:1;e=0:1", 0.1),
        Case(crooked, X2, 0.1, {"lipschitz": 1.0}),
        Case("sin(3*x)", X1, 1e-6, {"max_keys": 3}),
        Case("sin(3*x)", X1, 1e-2, MLP),
    ),
    "tangent": (
        Case("x*y", X2, 1e-3),
        Case(crooked, X2, 0.1, {"lipschitz": 1.0}),
        Case("sin(20*x)", X1, 1e-6, {"max_keys": 5}),
        Case("sin(3*x)", X1, 1e-6, {"dtype": "float32"}, slow=True),
        Case("abs(x - 0.3)**(1/3)", X1, 1e-9),
        Case("sin(3*x)", X1, 1e-2, MLP),
    ),
    "compose": (
        Case("3*x + y", X2, 1e-3),
        Case(crooked, X2, 0.1, {"lipschitz": 1.0}),
        Case("sign(x)", X1, 1e-3),
        Case("sign(x)", X1, 1e-3, {"norm": 4, "dtype": "float32"}),
        Case("sign(x)", X1, 1e-3, {"norm": 2, **MLP}),
        Case("abs(x)*abs(y)*sin(x + y)", X2, 1e-6, {"max_layers": 1}, slow=True),
        Case("abs(x*y)", X2, 1e-3, {"max_layers": 1}),
        Case("x*y", X2, 1e-6, {"max_keys": 3}),
        Case("x*y", X2, 1e-3, {"max_keys": 10, **MLP}),
        Case("x*y", X2, 1e-12, MLP),
        Case("exp(5*x)", X1, 1e-4, {"dtype": "float32", **MLP}),
        Case("x*y", X2, 1e-3, {"norm": 2, **MLP}),
    ),
    "interpolation": (
        Case("3*x + y", X2, 1e-3),
        Case("sin(x)", X1, 0.1),
        Case("x*abs(x)", X1, 0.1),
        Case("relu(x)/(2 + x)", X1, 0.1),
        Case(crooked, X2, 0.1, {"lipschitz": 1.0}),
        Case("abs(x)", X1, 1e-6),
        Case("abs(x)", X1, 1e-2, {"max_keys": 3}),
        Case("max(x, y)", X2, 0.1, {"norm": 2}),
        Case("abs(x)", X1, 0.1, {"variant": "best"}),
        Case("abs(x)", X1, 0.1, MLP),
    ),
    "relu_network": (
        Case("sin(x)", X1, 1e-3),
        Case("3*x + y", X2, 1e-3),
        Case("relu(x + 2)", X1, 1e-3),
        Case("relu(x)*y", X2, 1e-3),
        Case("relu(x)", X1, 1e-3, {"norm": 2}),
        Case("relu(x)", X1, 1e-6, {"dtype": "float32"}, slow=True),
        Case("relu(x) + relu(y)", X2, 1e-3, {"max_keys": 4}),
        Case("relu(relu(x) - y)", X2, 1e-3, {"max_layers": 1}),
        Case(crooked, X2, 0.1, {"lipschitz": 1.0}),
        Case("relu(x)", X1, 1e-2, MLP),
    ),
    "table": (
        Case("sin(x)", X1, 1e-3),
        Case(crooked, X2, 0.1, {"lipschitz": 1.0}),
        Case(on_grid(12), "x=0:1", 1e-2, {"max_keys": 5}),
        Case(on_grid(12), "x=0:1", 1e-12),
        Case(on_grid(12), "x=0:1", 1e-5, {"dtype": "float32"}),
        Case(on_grid(12), "x=0:1", 1e-2, MLP),
    ),
    "partition": (
        Case("sin(x)*y*z", "x=0:9;y=0:9;z=0:9", 1e-6),
        Case("sin(x)", X1, 1e-3, {"max_keys": 5}),
        Case("sin(x)", X1, 1e-6, {"dtype": "float32"}),
        Case("abs(x)", X1, 0.1, MLP),
        Case("abs(x)", X1, 0.1, {"variant": "oblique"}),
        Case("sin(9*x)*sin(9*y)", X2, 0.1, {"variant": "power", "max_keys": 9}),
    ),
}
# these every construction must refuse, as InvalidRequest or Infeasible
ALWAYS_REFUSED = (
    Case("1/x", X1, 0.1),
    Case("log(x)", "x=0:1", 0.1),
    Case("sqrt(x)", X1, 0.1),
    Case("sign(x)", X1, 0.1),
    Case("x", X1, 0.0),
    Case("x", X1, -1.0),
    Case("x", X1, math.nan),
    Case("sin(x)", X1, 1e-19),
    Case("x", "x=1:1", 0.1),
    Case("x", "x=0:inf", 0.1),
    Case("x + unknown", X1, 0.1),
    Case("x", X1, 0.1, {"norm": 0.5}),
    Case("x", X1, 0.1, {"dtype": "float16"}),
    Case("x", X1, 0.1, {"nonsense": 1}),
    Case("x", X1, 0.1, {"realise": "perceptron"}),
)


@lru_cache(maxsize=64)
def _build(name: str, index: int) -> Approximant:
    case = CASES[name][index]
    return af.compile(case.target, case.domain, case.eps, method=name, **case.options)


def build(name: str, case: Case) -> Approximant:
    """The case compiled by the construction, once for all tests."""
    return _build(name, CASES[name].index(case))


# ---------------------------------------------------------------- the properties


def rounding_part(certificate: af.Certificate) -> float:
    """How far two computations may be apart; infinite where walls alone are counted, for these have two sides.

    What rounding adds to the bound of a norm is less than that: near 0 its errors do not add up. All are in the bound.
    """
    if certificate.method == "composition" and "sqrt(" in certificate.target:
        return certificate.error[1]
    return certificate.parts.get("rounding", math.inf)


def check_bound(net: Approximant, case: Case) -> None:
    """bound ≤ eps, and no point or quadrature contradicts it."""
    certificate = net.certificate
    low, high = certificate.error
    assert certificate.status in BOUNDS
    assert (certificate.status is Status.CONDITIONAL) == callable(case.target)
    assert 0 <= low <= high <= case.eps
    assert sum(certificate.parts.values()) <= high
    allowed = formula_rounding(net.target)
    if math.isinf(case.norm):
        seen, where = worst_error(net.network, net.target, points=6000, rounds=36)
        if certificate.witness is not None:  # of many equal peaks a hunt may miss the highest
            seen = max(seen, float(errors(net.network, net.target, np.array([certificate.witness]))[0]))
        assert seen <= high + allowed, f"{high} proved, {seen} seen at {where}"
        assert low <= seen * (1 + 1e-6) + rounding_part(certificate) + allowed or case.target is crooked
    else:
        seen = quadrature(net, case.norm)
        assert low * (1 - 2e-3) - allowed <= seen <= high * (1 + 2e-3) + allowed


def quadrature(net: Approximant, p: float) -> float:
    """The normalised L^p norm of the error on a fine grid of midpoints, the largest output."""
    box = net.target.box
    count = {1: 400_001, 2: 901, 3: 61}.get(box.dim, 19)
    sides = [a + (b - a) * (np.arange(count) + 0.5) / count for a, b in zip(box.low, box.high, strict=True)]
    X = np.stack([g.ravel() for g in np.meshgrid(*sides, indexing="ij")], axis=1)
    e = np.abs(net.evaluate(X) - net.target.values(X))
    top = np.maximum(e.max(axis=0), 1e-300)
    return float(np.max(top * np.mean((e / top) ** p, axis=0) ** (1 / p)))


def points(net: Approximant, n: int = 300) -> Array:
    """Of the box, its corners too; of a target that jumps off the walls, in which a head may give anything."""
    box = net.target.box
    X = np.concatenate([box.probe(n, np.random.default_rng(4)), box.low_array[None], box.high_array[None]])
    return X[net.target.outside(1e-3).off_band(X)] if net.certificate.method == "jumps" else X


def agreement(net: Approximant, X: Array) -> Array:
    """(n, outputs): how far two computations of the network may be apart. Of a labelled one the certificate's rounding
    part is what rounding adds to the *error*, which may be less; there it is the width of a ball that holds them all.
    """
    if net.network.labels is None:
        return np.full((len(X), len(net.network.outputs)), 2 * rounding_part(net.certificate))
    with precision(128):
        return np.array([[2 * upper(value.rad()) for value in outputs_at(net.network, x)] for x in X])


def check_forms(net: Approximant, case: Case) -> None:
    """Self, cross and joint form in torch, and the NumPy literal form, agree within rounding; f within the bound.

    An MLP has no forms: its module alone.
    """
    network = net.network
    X = points(net, 300 if network.labels is None else 20)  # a ball at every point is dear
    expected = evaluate(network, X).astype(np.float64)
    apart = agreement(net, X)
    bound = net.certificate.error[1] + formula_rounding(net.target)
    dtype = getattr(torch, network.dtype)
    if network.is_mlp:
        found = net.to_torch()(torch.tensor(X, dtype=dtype)).numpy().astype(np.float64).reshape(expected.shape)
        assert (np.abs(found - expected) <= apart).all()
        assert np.abs(found - net.target.values(X)).max() <= bound
        return
    forms: list[tuple[str, tuple[str, ...]]] = [("cross", ()), ("self", ())]
    if len(network.inputs) > 1:
        forms.append(("joint", network.inputs[-1:]))
    for form, second in forms:
        cut = len(network.inputs) - len(second)
        parts = [X[:, :cut], X[:, cut:]] if second else [X]
        try:
            module = net.to_torch(dtype, form=form, second=second)
            found = module(*(torch.tensor(part, dtype=dtype) for part in parts)).detach().numpy().astype(np.float64)
            plain = net.literal(form, second).run(*parts).astype(np.float64)
        except Infeasible:
            assert network.cost.keys > 2000, f"a literal {form} form of {network.cost.keys} keys must be possible"
            continue
        found = found.reshape(expected.shape)
        assert (np.abs(found - expected) <= apart).all(), form
        assert (np.abs(plain - expected) <= apart).all(), form
        if math.isinf(case.norm):
            assert np.abs(found - net.target.values(X)).max() <= bound, form


def check_routes(net: Approximant) -> None:
    """Every evaluation route agrees within the rounding part, and the public call is one of them."""
    X = points(net, 2000)
    found = by_every_route(net.network, X)
    rounding = rounding_part(net.certificate)
    for route, values in found.items():
        assert np.abs(values - found["auto"]).max() <= 2 * rounding, route
    called = net(X)
    assert np.array_equal(called.reshape(len(X), -1), found["auto"])


def check_file(net: Approximant, case: Case, folder: Path) -> None:
    """Bit for bit through a file; `verify` proves the same bound, with and without the stored certificate."""
    path, again, bare = folder / "a.safetensors", folder / "b.safetensors", folder / "c.safetensors"
    net.save(path)
    back = af.load(path)
    assert identical(net.network, back.network)
    assert back.certificate.to_file() == net.certificate.to_file() and not back.certificate.verified
    back.save(again)
    assert path.read_bytes() == again.read_bytes()
    X = points(net)
    assert np.array_equal(net(X), back(X))
    network, meta = load(path)
    del meta["certificate"], meta["story"]
    save(bare, network, meta)
    target = case.target if callable(case.target) else None
    first = case is CASES[net.certificate.construction][0]
    for file in (path, bare) if first else (bare,):
        proved = af.verify(file, target)
        assert proved.status is net.certificate.status
        assert proved.error == net.certificate.error
        assert (proved.target, proved.domain) == (net.certificate.target, net.certificate.domain)


def check_determinism(name: str, net: Approximant, case: Case) -> None:
    """The same bits again, of the first case of a construction and of slow ones; proofs come again in `check_file`."""
    if not (case.slow or case is CASES[name][0]):
        return
    again = af.compile(case.target, case.domain, case.eps, method=name, **case.options)
    assert identical(net.network, again.network)
    assert again.certificate == net.certificate


def check_plan(name: str, net: Approximant, case: Case) -> None:
    """Sizes are known before anything is built, and exact."""
    construction = CONSTRUCTIONS[name]
    options = {k: v for k, v in case.options.items() if k in ("temperature", "variant")}
    realise = case.options.get("realise", "attention")
    request = Request(net.target, case.eps, net.certificate.norm, net.network.dtype, options=options, realise=realise)
    plan = construction.plan(request)
    cost = construction.build(request, plan).cost
    assert (plan.construction, plan.keys, plan.heads, plan.layers) == (name, cost.keys, cost.heads, cost.layers)


def refuses(name: str, case: Case) -> AttnfunError | None:
    try:
        af.compile(case.target, case.domain, case.eps, method=name, **case.options)
    except AttnfunError as why:
        return why
    return None


def no_point_contradicts(net: Approximant, X: Array) -> bool:
    high = net.certificate.error[1] + formula_rounding(net.target)
    return bool((errors(net.network, net.target, X) <= high).all())
