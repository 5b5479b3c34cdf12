"""Method boxes: heads with keys anywhere, sharp or soft, in sup and L^p norms; black boxes with local features."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.certify.boxes import prove_by_boxes
from attnfun.certify.view import Undecided
from attnfun.kinds.function.prove import prove
from attnfun.language.function import Function
from attnfun.network import Axis, Head, Layer, Network, evaluate, literal, rounded
from certify.hunting import BOUNDS, Array, errors, function, with_arrays, worst_error

TARGETS = {
    1: ("sin(3*x)", "abs(x - 0.2)", "exp(x) - x**2", "sign(x - 0.1)", "sqrt(abs(x))"),
    2: ("sin(3*x)*y", "abs(x - y)", "tanh(5*x + 5*y)", "max(x, y**2)", "sign(x**2 + y**2 - 0.5)", "sqrt(x**2 + y**2)"),
    3: ("x*y + z", "sin(x + y)*z", "abs(x + y - z)"),
}


def drawn_axes(rng: np.random.Generator, d: int) -> list[Axis]:
    """Keys of a power diagram, of a product of oblique axes, or any keys at all, from soft to sharp."""

    def axis(keys: int, rank: int, spread: float, power: bool) -> Axis:
        query, offset, R = rng.normal(size=(rank, d)), rng.normal(size=rank) * 0.3, 10 ** rng.uniform(-0.5, 4)
        v = rng.uniform(-spread, spread, (keys, rank))
        return Axis(query, offset, R * v, -R * (v**2).sum(axis=1) / 2 if power else R * rng.normal(size=keys))

    kind = int(rng.integers(3))
    if kind == 0:
        return [axis(int(rng.integers(1, 40)), d, 1.0, True)]
    if kind == 1:
        return [axis(int(rng.integers(1, 9)), 1, 1.3, True) for _ in range(d)]
    return [axis(int(rng.integers(1, 30)), int(rng.integers(1, d + 2)), 1.0, False)]


def network_of(axes: list[Axis], values: Array, f: Function, dtype: str = "float64") -> Network:
    p, d = values.shape[-1], f.box.dim
    axes = [Axis(*(rounded(part, dtype) for part in (a.query, a.offset, a.slopes, a.biases))) for a in axes]
    head = Head("head", tuple(axes), rounded(values, dtype), tuple(f"v{i}" for i in range(p)))
    readout = np.concatenate([np.zeros((p, d)), np.eye(p)], axis=1)
    ends = f.box.low_array, f.box.high_array
    return Network(f.box.names, (Layer((head,)),), readout, np.zeros(p), f.outputs, ends, dtype)


def seen_norm(network: Network, f: Function, p: float, count: int = 60_000) -> float:
    X = f.box.sample(count, np.random.default_rng(5))
    e = np.abs(evaluate(network, X).astype(np.float64) - f.values(X))
    top = np.maximum(e.max(axis=0), 1e-300)
    return float(np.max(top * np.mean((e / top) ** p, axis=0) ** (1 / p)))


@pytest.mark.parametrize("seed", range(48))
def test_bound_is_never_below_the_true_error_of_a_random_head(seed: int) -> None:
    rng = np.random.default_rng([seed, 21])
    d = int(rng.choice([1, 2, 2, 2, 3] if seed % 12 == 0 else [1, 2, 2]))
    texts = [str(t) for t in rng.choice(TARGETS[d], int(rng.integers(1, 3)))]
    ends = rng.uniform(0.2, 1.5, (2, d))
    f = function(texts, ";".join(f"{n}={-a!r}:{b!r}" for n, a, b in zip("xyz"[:d], *ends.tolist(), strict=True)))
    axes = drawn_axes(rng, d)
    values = rng.normal(size=(*(a.keys for a in axes), len(texts)))
    network = network_of(axes, values, f, str(rng.choice(["float64", "float32"])))
    worst, at = worst_error(network, f, points=2000, rounds=6)
    eps = worst * float(rng.choice([0.5, 1.5, 2.0]))
    bound = prove_by_boxes(network, f, math.inf, eps)
    assert bound.high + bound.rounding >= worst, at
    assert bound.firm <= bound.low <= bound.high
    if bound.witness is not None:
        assert errors(network, f, bound.witness[None])[0] >= bound.firm
        assert f.box.contains(bound.witness)
    p = float(rng.choice([1.0, 2.0, 3.5]))
    mean = seen_norm(network, f, p)
    bound = prove_by_boxes(network, f, p, mean * 2)
    assert bound.low * 0.97 <= mean <= (bound.high + bound.rounding) * 1.03


@pytest.mark.parametrize("seed", range(8))
def test_a_power_diagram_that_is_spoilt_is_never_proved_past_its_error(seed: int) -> None:
    rng = np.random.default_rng([seed, 22])
    net = af.compile("exp(-6*((x - 0.3)**2 + y**2))", "x=-1:1;y=-1:1", 0.2, method="partition", variant="power")
    assert net.certificate.status is Status.PROVED and net.network.heads[0].axes[0].dim == 2
    arrays = dict(net.network.arrays())
    name = f"layer0/head0/{rng.choice(['axis0/slopes', 'axis0/biases', 'axis0/query', 'values'])}"
    changed = arrays[name].copy()
    flat = changed.reshape(-1)
    flat[rng.integers(flat.size)] += rng.choice([-1, 1]) * 10 ** rng.uniform(-3, 0.3) * max(1.0, np.abs(flat).max())
    worse = with_arrays(net.network, {name: changed})
    certificate = prove(worse, net.target, eps=0.2)
    worst = worst_error(worse, net.target, points=2000, rounds=8)[0]
    assert certificate.error[1] >= worst
    assert certificate.status not in BOUNDS or worst <= 0.2
    if worst > 0.45:
        assert certificate.status is Status.REFUTED


def test_a_disc_in_the_mean_is_proved_within_a_quarter() -> None:
    net = af.compile("sign(1 - x**2 - y**2)", "x=-1.5:1.5;y=-1.5:1.5", 0.04, norm=1, method="partition")
    line = -1.5 + 3 * (np.arange(500) + 0.5) / 500
    X = np.stack([m.ravel() for m in np.meshgrid(line, line)], axis=1)
    true = float(np.mean(np.abs(net(X) - net.target.values(X)[:, 0])))
    assert 0.98 * net.certificate.error[0] <= true <= net.certificate.error[1] <= min(0.04, 1.3 * true)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("target", ["sign(x - 0.3)*y", "sin(3*x) + y", "sqrt(abs(x*y))", "sign(x - y)"])
def test_means_are_proved_within_twice_the_true_error(target: str, p: float) -> None:
    f = function(target, "x=-1:1;y=-1:1")
    centres = (np.arange(12) - 5.5) / 6
    axes = [
        Axis(np.eye(2)[k : k + 1], np.zeros(1), 2 * 150_000 * centres[:, None], -150_000 * centres**2) for k in range(2)
    ]
    mesh = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1)
    network = network_of(axes, f.values(mesh.reshape(-1, 2)).reshape(12, 12, 1), f)
    true = seen_norm(network, f, p, 300_000)
    certificate = prove(network, f, norm=p, eps=1.4 * true)
    assert certificate.status is Status.PROVED
    assert 0.98 * true <= certificate.error[1] <= 1.4 * true


def test_a_soft_partition_of_two_variables_is_proved_with_half_the_keys() -> None:
    sharp = af.compile("sin(x) + cos(y)", "x=-3:3;y=-3:3", 0.2, method="partition", temperature="sharp")
    soft = af.compile("sin(x) + cos(y)", "x=-3:3;y=-3:3", 0.2, method="partition", temperature="soft")
    assert soft.certificate.status is Status.PROVED and soft.certificate.method == "boxes"
    assert 2 * soft.cost.keys <= sharp.cost.keys
    assert worst_error(soft.network, soft.target)[0] <= soft.certificate.error[1]


# ---------------------------------------------------------------- black boxes with local features


def bump(x: Array, y: Array) -> Array:
    return np.exp(-40 * ((np.array(x, float) - 0.3) ** 2 + (np.array(y, float) + 0.2) ** 2))


def front(x: Array, y: Array) -> Array:
    return np.tanh(10 * (np.array(x, float) + 0.7 * np.array(y, float)))


def layer(x: Array, y: Array) -> Array:
    return np.exp(-15 * (np.array(x, float) + 1)) + 0.2 * np.array(y, float)


def ring(x: Array, y: Array) -> Array:
    return np.tanh(10 * (np.hypot(np.array(x, float), np.array(y, float)) - 0.6))


def cusp(x: Array, y: Array) -> Array:
    return 1 / (1 + 10 * np.hypot(np.array(x, float) - 0.2, np.array(y, float) - 0.1))


@pytest.mark.parametrize(
    ("target", "eps", "lipschitz"),
    [(bump, 0.1, 5.5), (front, 0.2, 12.3), (layer, 0.1, 15.1), (ring, 0.3, 10.0), (cusp, 0.1, 10.0)],
)
def test_black_boxes_with_local_features_take_half_the_keys_or_fewer(
    target: Callable[[Array, Array], Array], eps: float, lipschitz: float
) -> None:
    """At equal proved error, with the same declared constant."""
    box = "x=-1:1;y=-1:1"
    grid = af.compile(target, box, eps, method="partition", lipschitz=lipschitz, variant="uniform")
    net = af.compile(target, box, grid.certificate.error[1], lipschitz=lipschitz)
    assert net.certificate.status is grid.certificate.status is Status.CONDITIONAL
    assert net.certificate.error[1] <= grid.certificate.error[1]
    assert 2 * net.cost.keys <= grid.cost.keys
    assert worst_error(net.network, net.target)[0] <= net.certificate.error[1]
    assert any(f"Lipschitz constant {lipschitz:g} " in h for h in net.certificate.hypotheses)


def test_a_black_box_is_not_proved_past_its_lipschitz_constant() -> None:
    """A spike that no centre meets: with a constant that allows it nothing small may be proved."""
    f = Function.read(lambda x: 0.0 * float(x), function("x").box, 1000.0)
    network = network_of([Axis(np.eye(1), np.zeros(1), np.zeros((1, 1)), np.zeros(1))], np.zeros((1, 1)), f)
    for eps in (1e-2, 1e-4):
        bound = prove_by_boxes(network, f, math.inf, eps)
        asked = bound.details["boxes"]
        assert bound.high >= 1000.0 / asked / 2
        assert bound.low == 0.0 and bound.firm == 0.0


# ---------------------------------------------------------------- what else a power diagram must do


def test_a_power_diagram_goes_every_way_that_a_network_goes(tmp_path: object) -> None:
    torch = pytest.importorskip("torch")
    net = af.compile("tanh(8*(x + y))", "x=-1:1;y=-1:1", 0.3, method="partition", variant="power")
    assert net.cost.rank == 3 and net.story["variant"] == "power"
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    rounding = sum(part for name, part in net.certificate.parts.items() if "rounding" in name)
    for form in ("self", "cross"):
        found = net.to_torch(torch.float64, form=form)(torch.tensor(X)).numpy()
        assert np.abs(found - net.target.values(X)[:, 0]).max() <= net.certificate.error[1]
    assert np.abs(literal(net.network, "cross").run(X)[:, 0] - net(X)).max() <= max(2 * rounding, 1e-9)
    path = f"{tmp_path}/power.safetensors"
    net.save(path)
    again = af.verify(path)
    assert again.status is Status.PROVED and again.error[1] == net.certificate.error[1]
    net.plot(f"{tmp_path}/power.png")
    assert "power" in net.explain()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_point_at_a_wall_of_a_power_diagram_passes_the_bound(dtype: str) -> None:
    """Walls are where logits that round decide."""
    net = af.compile("tanh(6*(x - 2*y)) + x/4", "x=3:4;y=1:2", 0.4, method="partition", variant="power", dtype=dtype)
    assert net.certificate.status is Status.PROVED and net.network.dtype == dtype
    (axis,) = net.network.heads[0].axes
    rng = np.random.default_rng(3)
    X = net.target.box.sample(4000, rng)
    A, b = axis.slopes @ axis.query, axis.slopes @ axis.offset + axis.biases
    for _ in range(2):
        logits = X @ A.T + b
        first, second = np.argsort(-logits, axis=1)[:, :2].T
        D, rows = A[first] - A[second], np.arange(len(X))
        X = X - ((logits[rows, first] - logits[rows, second]) / (D * D).sum(axis=1))[:, None] * D
    X = np.clip(X * (1 + rng.integers(-4, 5, X.shape) * np.finfo(dtype).eps), net.target.box.low, net.target.box.high)
    for found in (evaluate(net.network, X), literal(net.network, "cross").run(X)):
        assert np.abs(found.astype(np.float64) - net.target.values(X)).max() <= net.certificate.error[1]


def test_heads_that_are_not_alone_are_undecided() -> None:
    f = function("x*y", "x=-1:1;y=-1:1")
    axis = Axis(np.eye(2), np.zeros(2), np.zeros((3, 2)), np.zeros(3))
    network = network_of([axis], np.zeros((3, 1)), f)
    shifted = with_arrays(network, {"readout_bias": np.array([0.5])})
    with pytest.raises(Undecided):
        prove_by_boxes(shifted, f, math.inf, 0.1)
    assert prove(network, f, eps=1.1).status is Status.PROVED
