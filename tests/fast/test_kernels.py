"""The compiled kernels: all networks, against long doubles and against the routes of NumPy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpz

import attnfun as af
from attnfun import fast
from attnfun.errors import InvalidRequest
from attnfun.fast.arrays import play as by_numpy
from attnfun.fast.lattice import lattice
from attnfun.fast.powers import powers
from attnfun.fast.tape import tape_of
from attnfun.language import precision
from attnfun.network import Axis, Head, Layer, Network, evaluate, rounded
from attnfun.search import one_thread
from network.networks import partition, points, random_network
from network.test_evaluate import UNIT, exact


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed: int, dtype: str) -> None:
    network = random_network(seed, dtype, layers=1 + seed % 4, inputs=1 + seed % 3)
    X = points(network, 333)
    found = fast.fused(network, X)
    assert found.dtype == np.dtype(dtype)
    assert np.abs(found - exact(network, X)).max() <= 2000 * UNIT[dtype]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("sharpness", [0.5, 3.0, 200.0])
def test_partitions(dims: int, dtype: str, sharpness: float) -> None:
    network = partition({1: 60, 2: 16, 3: 9}[dims], dims, sharpness, dtype)
    edges = np.stack([network.heads[0].axes[0].slopes[:1, 0] * 0 + k for k in (-1.0, 1.0)])
    X = np.concatenate([points(network, 700), [network.low, network.high], np.repeat(edges, dims, axis=1)])
    head = network.heads[0]
    size = sum(float(np.abs(axis.slopes).max() + np.abs(axis.biases).max()) for axis in head.axes)
    tolerance = 4 * UNIT[dtype] * (size + head.keys) * float(head.spread.max())
    assert np.abs(fast.fused(network, X) - exact(network, X)).max() <= tolerance
    if sharpness == 200.0:
        tape = tape_of(network)
        assert tape is not None and tape.routes == (("window",),)


def test_windows_on_uneven_keys_find_the_same_keys_as_numpy() -> None:
    rng = np.random.default_rng(3)
    for keys in (2, 3, 7, 150):
        slopes = np.sort(rng.uniform(-1, 1, keys))[:, None] * 4e5
        biases = -np.cumsum(np.concatenate([[0.0], np.diff(slopes[:, 0]) * np.sort(rng.uniform(-1, 1, keys - 1) ** 3)]))
        axis = Axis(np.ones((1, 1)), np.zeros(1), slopes, biases)
        network = _alone([axis], rng.normal(size=(keys, 2)))
        X = np.concatenate([rng.uniform(-1, 1, (500, 1)), rng.uniform(-1, 1, (500, 1)) ** 3])
        assert np.abs(fast.fused(network, X) - evaluate(network, X)).max() < 1e-10


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(8))
def test_lattices_are_within_their_own_bound(seed: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that cancel, as those of constructions do; against balls, at random points and at the corners."""
    rng = np.random.default_rng(seed)
    A, p = 1 + seed % 3, 1 + seed % 2
    sizes = [int(rng.integers(5, 12 if A < 3 else 8)) for _ in range(A)]
    axes = []
    for a, n in enumerate(sizes):
        query = np.zeros((1, A))
        query[0, a] = 1.0
        tau = float(rng.choice([0.5, 0.75, 1.0, 1.5]))
        biases = [float(np.log(float(fmpz.bin_uiui(n - 1, j)))) for j in range(n)]
        axes.append(Axis(query, np.zeros(1), tau * np.arange(n)[:, None], rounded(biases, dtype)))
    signs = (-1.0) ** np.indices(sizes).sum(axis=0)[..., None]
    values = rounded(signs * (1 + 0.1 * rng.normal(size=(*sizes, p))) * 10.0 ** rng.uniform(0, 3), dtype)
    network = _alone(axes, values, dtype)
    head = network.heads[0]
    assert isinstance(head, Head)
    found = lattice(head, [(-1.0 - 1e-6, 1.0 + 1e-6)] * A, dtype)
    assert found is not None
    monkeypatch.setattr("attnfun.fast.tape.lattice", lambda *_: found)
    monkeypatch.setattr("attnfun.fast.tape.powers", lambda *_: None)
    tape = tape_of(network)
    assert tape is not None and tape.routes == (("lattice",),)
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * A)).reshape(A, -1).T
    X = np.concatenate([rng.uniform(-1, 1, (12, A)), corners]).astype(dtype)
    played = [fast.play(network, tape, X), by_numpy(network, tape, X)]
    with precision(200):
        for k, x in enumerate(X):
            true = _balls(head, x)
            # reading the head off the stream is one product with 1 and one sum with 0: exact
            for computed in played:
                ends = zip(computed[k], true, found.error, strict=True)
                assert all(abs(arb(float(v)) - t) <= arb(e) for v, t, e in ends)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(8))
def test_polynomials_of_a_query_are_within_their_own_bound(
    seed: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads of a few keys that cancel, some of which turn too fast."""
    rng = np.random.default_rng([seed, 9])
    n, p = int(rng.integers(6, 12)), 1 + seed % 2
    slopes = rounded(np.sort(rng.normal(size=n) * 10 ** rng.uniform(-0.5, 1.0)), dtype)
    query, offset = rounded(rng.normal(size=(1, 1)), dtype), rounded(rng.normal(size=1), dtype)
    biases, values = rounded(rng.normal(size=n), dtype), rounded(rng.normal(size=(n, p)) * 100, dtype)
    network = _alone([Axis(query, offset, slopes[:, None], biases)], values, dtype)
    head = network.heads[0]
    assert isinstance(head, Head)
    ends = sorted(float(query[0, 0]) * x + float(offset[0]) for x in (-1, 1))
    found = powers(head, (ends[0] - 1e-5, ends[1] + 1e-5), dtype)
    if found is None:
        return
    queries = np.concatenate([rng.uniform(*ends, 40), ends, -np.cos(np.linspace(0, np.pi, 21)) * np.ptp(ends) / 2])
    queries = np.clip(queries, *ends).astype(dtype)
    own = _alone([Axis(np.ones((1, 1)), np.zeros(1), slopes[:, None], biases)], values, dtype)
    monkeypatch.setattr("attnfun.fast.tape.powers", lambda *_: found)
    tape = tape_of(own)
    assert tape is not None and tape.routes == (("powers",),)
    played = [fast.play(own, tape, queries[:, None]), by_numpy(own, tape, queries[:, None])]
    alone = own.heads[0]
    assert isinstance(alone, Head)
    with precision(200):
        for k, q in enumerate(queries):
            true = _balls(alone, [q])
            for computed in played:
                ends = zip(computed[k], true, found.error, strict=True)
                assert all(abs(arb(float(v)) - t) <= arb(e) for v, t, e in ends)


def test_heads_of_composed_networks_become_polynomials() -> None:
    """Counted work: fewer exps than keys."""
    net = af.compile("x*y/(1+x**2)", {"x": (1, 2), "y": (1, 2)}, eps=1e-6, method="compose")
    tape = fast.taped(net.weights)
    assert any("powers" in layer for layer in tape.routes)
    assert tape.work.get("exps", 0) < net.cost.keys / 2


def _alone(axes: list[Axis], values: Any, dtype: str = "float64") -> Network:
    """One head that is read off as it is, on [-1, 1]^d."""
    d, p = axes[0].query.shape[1], values.shape[-1]
    names = tuple(f"f{k}" for k in range(p))
    head = Head("alone", tuple(axes), values, names, "key {0}")
    readout = np.concatenate([np.zeros((p, d)), np.eye(p)], axis=1)
    box = (np.full(d, -1.0), np.ones(d))
    inputs = tuple(f"x{k}" for k in range(d))
    return Network(inputs, (Layer((head,)),), readout, np.zeros(p), names, box, dtype)


def _balls(head: Head, x: Any) -> list[arb]:
    weights = []
    for axis in head.axes:
        q = sum((arb(float(w)) * arb(float(v)) for w, v in zip(axis.query[0], x, strict=True)), arb(0))
        terms = [(arb(float(k)) * q + arb(float(b))).exp() for k, b in zip(axis.slopes[:, 0], axis.biases, strict=True)]
        total = sum(terms, arb(0))
        weights.append([t / total for t in terms])
    out = [arb(0)] * head.outputs
    for place in np.ndindex(head.grid):
        weight = arb(1)
        for a, j in enumerate(place):
            weight *= weights[a][j]
        out = [o + weight * arb(float(v)) for o, v in zip(out, head.values[place], strict=True)]
    return out


def test_points_past_the_range_of_a_formula_take_the_weights_themselves() -> None:
    net = af.compile("sin(3*x)", (-1, 1), eps=1e-6, method="bernstein")
    tape = fast.taped(net.weights)
    assert tape.routes[0][0] in ("lattice", "powers")
    X = np.linspace(-1, 1, 2000)[:, None]
    X[700] = 40.0
    found = fast.fused(net.weights, X)
    assert np.abs(found - evaluate(net.weights, X)).max() < 1e-11


def test_threads_give_the_bits_of_one() -> None:
    network = random_network(5)
    X = points(network, 5000)
    one = fast.fused(network, X)
    for threads in (2, 3, 40):
        assert (fast.fused(network, X, threads) == one).all()


def test_the_environment_says_when(monkeypatch: pytest.MonkeyPatch) -> None:
    net = af.compile("sin(3*x)", (-1, 1), eps=1e-3, method="bernstein")
    taken: list[int] = []
    monkeypatch.setattr(fast, "play", lambda network, tape, X, threads: taken.append(len(X)) or evaluate(network, X))
    net(0.5)
    assert not taken, "small calls are NumPy's"
    net(np.linspace(-1, 1, fast.WORTH))
    assert taken == [fast.WORTH]
    monkeypatch.setenv("ATTNFUN_FAST", "1")
    net(0.5)
    assert taken[1:] == [1]
    with one_thread():
        net(0.5)
    monkeypatch.setenv("ATTNFUN_FAST", "0")
    net(np.linspace(-1, 1, fast.WORTH))
    assert len(taken) == 2
    for wrong in ("2", "yes"):
        monkeypatch.setenv("ATTNFUN_FAST", wrong)
        with pytest.raises(InvalidRequest, match="write 0"):
            net(0.5)
    for threads in (0, -1, 1.5, "two"):
        with pytest.raises(InvalidRequest, match="threads"):
            net(0.5, threads=threads)


def test_without_numba_the_tape_is_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    net = af.compile("sin(3*x)*y", {"x": (-1, 1), "y": (0, 1)}, eps=1e-5, method="bernstein")
    X = points(net.weights, -(-fast.WORTH // net.cost.keys))
    wanted = evaluate(net.weights, X)[:, 0]
    monkeypatch.setattr(fast, "find_spec", lambda name: None)
    fast._kernels.cache_clear()
    try:
        assert np.abs(net(X) - wanted).max() <= 2 * net.certificate.parts["rounding"]
        with pytest.raises(InvalidRequest, match="pip install numba"):
            net.evaluate(X, route="fused")
        monkeypatch.setenv("ATTNFUN_FAST", "1")
        with pytest.raises(InvalidRequest, match="pip install numba"):
            net(X[:1])
    finally:
        fast._kernels.cache_clear()


def test_a_cache_that_cannot_be_written_leaves_a_note_and_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnfun.fast import kernels

    def nowhere(_dtype: str) -> None:
        raise RuntimeError("cannot cache function '_run': no locator available")

    monkeypatch.setattr(kernels, "run", nowhere)
    monkeypatch.setenv("ATTNFUN_FAST", "1")
    fast._kernels.cache_clear()
    net = af.compile("sin(3*x)", (-1, 1), eps=1e-3)
    try:
        with pytest.warns(UserWarning, match="cannot be cached"):
            assert abs(net(0.5) - np.sin(1.5)) < 1e-3
    finally:
        fast._kernels.cache_clear()


def test_nothing_imports_numba_before_it_is_used() -> None:
    code = "import attnfun as af, sys; af.compile('x*y', {'x': (0, 1), 'y': (0, 1)}, eps=0.1)([0.1, 0.2]); "
    code += "print([m for m in ('numba', 'llvmlite') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_large_calls_refuse_infinity_as_small_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    net = af.compile("sin(3*x)", (-1, 1), eps=1e-3)
    x = np.zeros(fast.WORTH)
    x[5] = np.inf
    for some in (x[:9], x):
        with pytest.raises(InvalidRequest, match="finite"):
            net(some, outside="allow")


def test_what_is_kept_of_a_kernel_is_for_these_sources_alone() -> None:
    """numba looks at one file; the key has the hash of all of them."""
    from attnfun.fast import attention, kernels
    from attnfun.fast.compiled import SOURCES

    for made in (kernels.run("float64"), attention.attend("float64", True)):
        assert SOURCES in [cell.cell_contents for cell in made.py_func.__closure__]
