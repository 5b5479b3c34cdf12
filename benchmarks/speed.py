"""`make bench-speed`: evaluation by the compiled kernels against torch, NumPy and SciPy, in ratios of one run.

One thread each. Every row takes the best of interleaved rounds: kernel, NumPy's route, the other way, and so on. The
roofline of a row is the time of its counted work in its dtype, one after the other: exps, divisions and look-ups at the
rate of compiled loops over rows in the first cache, operations at that of a matrix product on one core or of Horner's
rule on such rows, whichever is faster, runs of cells at that of look-ups at random places of the table, numbers in and
out at that of a copy, which reads and writes each; all measured between its rounds.

`--mapped`: the partition of 10⁸ cells by way of a file instead, each step in a process of its own: what memory saving,
loading and evaluating take beyond the values, and the rate over the map beside that over values in memory.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from scipy.interpolate import RegularGridInterpolator
from threadpoolctl import threadpool_limits

import attnfun as af
from attnfun import fast
from attnfun.fast import arrays
from attnfun.fast.compiled import compiled as compiled_loop
from attnfun.fast.compiled import exps
from attnfun.network import Axis, Head, Layer, Network, evaluate, rounded, sealed, store
from bench import Row, asked, table
from table import GRAVITY, GRAVITY_BOX, LINE, SQUARE, SUM

ROUNDS, SECONDS = 12, 0.02  # of a row; least time of one measurement
CUBE = "x=-1:1;y=-1:1;z=-1:1"
Array = Any


@dataclass(frozen=True)
class Case:
    """A network, and the other way of computing it that its figure is about: "sdpa", or a formula of the columns."""

    name: str
    build: Callable[[str], Network]
    points: int
    formula: Callable[..., Array] | None = None
    nearest: bool = False
    module: bool = True
    dtypes: tuple[str, ...] = ("float64", "float32")
    more: dict[str, Any] = field(default_factory=dict)


def compiled(target: str, domain: str, eps: float, method: str) -> Callable[[str], Network]:
    """By `compile`; for float32 the same weights, rounded, which is what speed needs."""

    def build(dtype: str) -> Network:
        return narrowed(af.compile(target, domain, eps=eps, method=method).network, dtype)

    return build


def narrowed(network: Network, dtype: str) -> Network:
    if dtype == network.dtype:
        return network

    def head(given: Head) -> Head:
        axes = tuple(Axis(*(rounded(array, dtype) for array in axis.arrays.values())) for axis in given.axes)
        return Head(given.name, axes, rounded(given.values, dtype), given.writes, given.key_names)

    layers = tuple(Layer(tuple(head(h) for h in layer.attention)) for layer in network.layers)
    ends = (rounded(network.readout, dtype), rounded(network.readout_bias, dtype))
    return Network(network.inputs, layers, *ends, network.outputs, network.box, dtype)


def cells(side: int, sharpness: float = 40.0) -> Callable[[str], Network]:
    """A partition of [-1, 1]² into side² cells, which nobody proves: sin 3x + cos 2y at the centres."""

    def build(dtype: str) -> Network:
        h = 2.0 / side
        centres = rounded(-1 + h * (np.arange(side) + 0.5), dtype)
        beta, axes = sharpness / h**2, []
        for k in range(2):
            query = np.zeros((1, 2))
            query[0, k] = 1.0
            slopes, biases = rounded(2 * beta * centres[:, None], dtype), rounded(-beta * centres**2, dtype)
            axes.append(Axis(query, np.zeros(1), slopes, biases))
        values = rounded(np.sin(3 * centres)[:, None] + np.cos(2 * centres), dtype)[..., None]
        head = Head("partition", tuple(axes), values, ("f",), "cell {0}, {1}")
        return Network(
            ("x", "y"),
            (Layer((head,)),),
            np.array([[0.0, 0.0, 1.0]]),
            np.zeros(1),
            ("f",),
            (-np.ones(2), np.ones(2)),
            dtype,
        )

    return build


def gravity(G: Array, m1: Array, m2: Array, x1: Array, x2: Array, y1: Array, y2: Array, z1: Array, z2: Array) -> Array:
    return G * m1 * m2 / ((x2 - x1) ** 2 + (y2 - y1) ** 2 + (z2 - z1) ** 2)


def waves(x: Array, y: Array) -> Array:
    return np.sin(3 * x) + np.cos(2 * y) * np.exp(x * y)


CASES = (
    Case("one head, 1 variable (bernstein)", compiled("sin(3*x)", LINE, 1e-6, "bernstein"), 25_600),
    Case("one head, 2 variables (bernstein)", compiled(SUM, SQUARE, 1e-6, "bernstein"), 25_600),
    Case(
        "one head, 3 variables (bernstein)", compiled("sin(2*x)*cos(y+z)+exp(x*y*z)", CUBE, 1e-6, "bernstein"), 25_600
    ),
    Case("tangent, about 10 keys", compiled("log(x)", "x=0.01:1", 1e-6, "tangent"), 25_600),
    Case("composed: the 2-D demo", compiled(SUM, SQUARE, 1e-6, "compose"), 25_600, waves),
    Case("composed: Feynman I.9.18", compiled(GRAVITY, GRAVITY_BOX, 1e-6, "compose"), 25_600, gravity),
    Case("partition, 127² cells", cells(127), 25_600, nearest=True, module=False),
    Case("partition, 10⁶ cells", cells(1_000), 25_600, nearest=True, module=False),
    Case("partition, 10⁸ cells", cells(10_000), 25_600, nearest=True, module=False, dtypes=("float64",)),
)


def best(*ways: Callable[[], Any]) -> list[float]:
    """Seconds of the processor for one call of each: the shortest call of rounds in turns.

    Where others are at work the clock on the wall charges their time to long calls, and none of it to short ones.
    """
    found = [np.inf] * len(ways)
    for way in ways:
        way()
    for _ in range(ROUNDS):
        for k, way in enumerate(ways):
            end = time.process_time() + SECONDS
            while True:
                begun = time.process_time()
                way()
                done = time.process_time()
                found[k] = min(found[k], done - begun)
                if done > end:
                    break
    return found


ROW, TIMES = 1024, 64  # numbers that fit in the first cache, and how often a measurement passes over them
COUNT = 16


@compiled_loop
def _exps(x: Any, out: Any) -> None:
    for _ in range(TIMES):
        exps(x, out)


@compiled_loop
def _polynomial(x: Any, c: Any, out: Any) -> None:
    """Horner's rule, the points side by side."""
    c0, c1, c2, c3, c4, c5, c6, c7 = c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]
    d0, d1, d2, d3, d4, d5, d6, d7 = c[8], c[9], c[10], c[11], c[12], c[13], c[14], c[15]
    for q in range(len(x)):
        z = x[q]
        y = (((((((c0 * z + c1) * z + c2) * z + c3) * z + c4) * z + c5) * z + c6) * z + c7) * z + d0
        out[q] = ((((((y * z + d1) * z + d2) * z + d3) * z + d4) * z + d5) * z + d6) * z + d7


@compiled_loop
def _flops(x: Any, c: Any, out: Any) -> None:
    for _ in range(TIMES):
        _polynomial(x, c, out)


@compiled_loop
def _quotient(x: Any, y: Any, out: Any) -> None:
    for q in range(len(x)):
        out[q] = x[q] / y[q]


@compiled_loop
def _divisions(x: Any, y: Any, out: Any) -> None:
    for _ in range(TIMES):
        _quotient(x, y, out)


@compiled_loop
def _taken(x: Any, at: Any, out: Any) -> None:
    for q in range(len(at)):
        out[q] = x[at[q]]


@compiled_loop
def _lookups(x: Any, at: Any, out: Any) -> None:
    for _ in range(TIMES):
        _taken(x, at, out)


def rates(dtype: str) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Ways to measure what one core can do: pieces of work, and a call that does so many."""
    rng, kind = np.random.default_rng(0), np.dtype(dtype)
    x, out = rng.uniform(-3, 3, ROW).astype(kind), np.empty(ROW, kind)
    a, b = rng.normal(size=(384, 384)).astype(kind), np.ones(ROW, kind) + x * x
    c, at = rng.normal(size=COUNT).astype(kind), rng.integers(0, ROW, ROW).astype(np.uint64)
    return {
        "exps": (ROW * TIMES, lambda: _exps(x, out)),
        "flops": (2 * 384**3, lambda: a @ a),
        "flops of polynomials": (2 * (COUNT - 1) * ROW * TIMES, lambda: _flops(x, c, out)),
        "divisions": (ROW * TIMES, lambda: _divisions(x, b, out)),
        "lookups": (ROW * TIMES, lambda: _lookups(x, at, out)),
    }


def unit_times(limits: dict[str, tuple[int, Callable[[], Any]]], seconds: dict[str, float]) -> dict[str, float]:
    """Seconds of one piece of each kind of work; of two ways to multiply and add the faster."""
    unit = {name: seconds[name] / count for name, (count, _) in limits.items()}
    return unit | {"flops": min(unit["flops"], unit.pop("flops of polynomials"))}


def rows() -> Iterator[Row]:
    for case in CASES:
        for dtype in case.dtypes:
            yield row(case, dtype)


def row(case: Case, dtype: str) -> Row:
    network = case.build(dtype)
    rng, n = np.random.default_rng(0), case.points
    X = rng.uniform(network.low, network.high, size=(n, len(network.inputs))).astype(dtype)
    tape = fast.taped(network)
    few = X[: max(1, min(n, 10_000_000 // network.cost.keys))]
    ways: dict[str, Callable[[], Any]] = {"kernel": lambda: fast.play(network, tape, X)}
    ways["numpy"] = lambda: evaluate(network, few)
    ways["tape"] = lambda: arrays.play(network, tape, few)
    if case.module:
        module, tokens = network.to_torch(dtype, outside="allow"), torch.tensor(few)
        ways["sdpa"] = lambda: module(tokens)
    if case.formula is not None:
        columns, formula = np.ascontiguousarray(X.T), case.formula
        ways["formula"] = lambda: formula(*columns)
    if case.nearest:
        head = network.heads[0]
        flat = head.values[..., 0].astype(dtype, copy=False)
        ends = [np.linspace(-1 + 1 / m, 1 - 1 / m, m).astype(dtype) for m in head.grid]
        other = RegularGridInterpolator(ends, flat, "nearest", bounds_error=False, fill_value=None)
        ways["scipy"] = lambda: other(X)
        spots = rng.integers(0, flat.size, n)
        taken = flat.ravel()
        ways["runs"] = lambda: taken.take(spots)
    limits, moved = rates(dtype), X.copy()
    ways["moved"] = lambda: np.copyto(moved, X)
    with torch.inference_mode():
        calls = (*ways.values(), *(call for _, call in limits.values()))
        seconds = dict(zip((*ways, *limits), best(*calls), strict=True))
    point = {
        name: s / (n if name in ("kernel", "formula", "scipy", "runs") else len(few)) for name, s in seconds.items()
    }
    unit = unit_times(limits, seconds)
    roofline = sum(tape.work.get(name, 0) * one for name, one in unit.items())
    numbers, written = len(network.inputs), len(network.outputs)
    moved_once = seconds["moved"] / (2 * numbers * n)  # a copy reads and writes each
    roofline += moved_once * (numbers + written) + tape.work.get("runs", 0) * point.get("runs", 0.0)
    taken_by = ", ".join(sorted({route for layer in tape.routes for route in layer}))
    result: Row = {"case": case.name, "dtype": dtype, "keys": network.cost.keys, "by": taken_by}
    result |= {"ns a point": 1e9 * point["kernel"], "× NumPy's routes": point["numpy"] / point["kernel"]}
    result["NumPy's tape × routes"] = point["numpy"] / point["tape"]
    result["× torch SDPA"] = point["sdpa"] / point["kernel"] if case.module else None
    result["× NumPy's formula"] = point["formula"] / point["kernel"] if case.formula else None
    result["× SciPy nearest"] = point["scipy"] / point["kernel"] if case.nearest else None
    result["of the roofline"] = roofline / point["kernel"]
    return result


def alone() -> Iterator[str]:
    """What a call of one point takes, checks and all."""
    net = af.compile(GRAVITY, GRAVITY_BOX, eps=1e-6, method="compose")
    x = np.array([(low + high) / 2 for low, high in zip(net.network.low, net.network.high)])
    os.environ["ATTNFUN_FAST"] = "1"
    (kernel,) = best(lambda: net(x))
    os.environ["ATTNFUN_FAST"] = "0"
    (numpy,) = best(lambda: net(x))
    yield f"A call of one point of Feynman I.9.18, its checks included, takes {1e6 * kernel:.3g} µs by the kernel and"
    yield f"{1e6 * numpy:.3g} µs by NumPy's routes."


POINTS = 100_000
CELLS = 10_000  # a side


def mapped() -> Iterator[Row]:
    """A file of 10⁸ cells, saved, loaded and evaluated. In float32 cells so narrow have no window: too few digits."""
    with TemporaryDirectory() as folder:
        path, result = str(Path(folder) / "cells.safetensors"), Row(cells=CELLS**2)
        for step in (_saved, _loaded, _played):
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                result |= fresh.submit(step, path).result()
        yield result


def _resident() -> dict[str, float]:
    """MiB of this process: the peak since `_begin`, and what is resident now: in all, of it its own, of it of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    return {name: int(found[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS", "RssAnon", "RssFile")}


def _begin() -> dict[str, float]:
    """The peak forgotten; what is resident."""
    Path("/proc/self/clear_refs").write_text("5")
    return _resident()


def _saved(path: str) -> Row:
    network = cells(CELLS)("float64")
    target = af.compile("sin(3*x) + cos(2*y)", "x=-1:1;y=-1:1", 0.5).target
    claim = {"eps": None, "norm": "sup", "relative": False, "trained": False}
    before, begun = _begin(), time.perf_counter()
    store.write(path, "function", network, {"target": target.to_json(), "claim": claim})
    seconds = time.perf_counter() - begun
    more = _resident()["VmHWM"] - before["VmRSS"]
    return {"file, MiB": Path(path).stat().st_size / 2**20, "save, s": seconds, "save: MiB more": more}


def _loaded(path: str) -> Row:
    fast.fused(cells(4)("float64"), np.zeros((1, 2)))  # the compiled code is there before
    before, begun = _begin(), time.perf_counter()
    network = af.load(path).network
    seconds, loaded = time.perf_counter() - begun, _resident()
    X = np.random.default_rng(0).uniform(-1, 1, (POINTS, 2))
    begun = time.perf_counter()
    fast.fused(network, X)
    first, played = time.perf_counter() - begun, _resident()
    row = {"load, s": seconds, "load: MiB at its peak": loaded["VmHWM"] - before["VmRSS"]}
    row |= {f"load: {what}": loaded[name] - before[name] for name, what in KEPT.items()}
    row |= {"first call, s": first, "first call: MiB at its peak": played["VmHWM"] - before["VmRSS"]}
    return row


KEPT = {"RssAnon": "its own", "RssFile": "of the file"}


def _played(path: str) -> Row:
    torch.set_num_threads(1)
    network = af.load(path).network
    copy, _ = store.read(sealed.held(path), (Network,))
    X = np.random.default_rng(0).uniform(-1, 1, (POINTS, 2))
    ends = [np.linspace(-1 + 1 / CELLS, 1 - 1 / CELLS, CELLS)] * 2
    other = RegularGridInterpolator(ends, copy.heads[0].values[..., 0], "nearest", bounds_error=False, fill_value=None)
    tape, held = fast.taped(network), fast.taped(copy)
    ways: dict[str, Callable[[], Any]] = {
        "map": lambda: fast.play(network, tape, X),
        "memory": lambda: fast.play(copy, held, X),
        "numpy": lambda: evaluate(network, X),
        "scipy": lambda: other(X),
    }
    point = {name: s / POINTS for name, s in zip(ways, best(*ways.values()), strict=True)}
    row: Row = {"ns a point": 1e9 * point["map"], "ns, values in memory": 1e9 * point["memory"]}
    row |= {"× NumPy's routes": point["numpy"] / point["map"], "× SciPy nearest": point["scipy"] / point["map"]}
    return row


def main() -> int:
    options = asked(__doc__, mapped={"action": "store_true", "help": "the partition of 10⁸ cells by way of a file"})
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if options.mapped:
            return table(options, mapped())
        return table(options, rows(), after=lambda done: ["", *alone()])


if __name__ == "__main__":
    sys.exit(main())
