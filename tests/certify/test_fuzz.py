"""Soundness fuzz: targets against perturbed and random weights; no certificate may lie below the worst error found.

`pytest` runs a few cases; all of them: `make fuzz`, or `python tests/certify/test_fuzz.py [cases] [first]`.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

if __name__ == "__main__":  # as a script: find the package of tests
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Certificate, Status
from attnfun.kinds.function.prove import prove
from attnfun.language.function import Function
from attnfun.network import Axis, Head, Layer, Network
from certify.hunting import assert_sound, function, line_network, with_arrays

CASES = 2000
QUICK = 45

ONE, TWO, THREE = "x=-1:1", "x=-1:1;y=-1:1", "x=-1:1;y=-1:1;z=-1:1"
# (target, domain, eps, method) of the networks that are perturbed, by number of variables
BASES: dict[int, tuple[tuple[str, str, float, str], ...]] = {
    1: (
        ("sin(3*x)", ONE, 1e-9, "bernstein"),
        ("sin(3*x)", ONE, 1e-3, "bernstein"),
        ("1/(1 + 25*x**2)", ONE, 1e-3, "bernstein"),
        ("tanh(5*x) + x", "x=-2:1", 1e-5, "bernstein"),
        ("sqrt(x + 2)", "x=-1:3", 1e-7, "bernstein"),
        ("exp(x)*log(x)", "x=1:3", 1e-6, "bernstein"),
        ("abs(x)", ONE, 0.03, "bernstein"),
        ("abs(3*x - 1) + sin(x)", ONE, 0.05, "partition"),
        ("max(sin(5*x), x**2)", ONE, 0.1, "partition"),
        ("exp(-(10*x)**2)", ONE, 0.03, "partition"),
        ("relu(x) - 0.5*min(x, 0.3)", ONE, 0.05, "partition"),
    ),
    2: (
        ("sin(3*x) + cos(2*y)*exp(x*y)", TWO, 1e-3, "bernstein"),
        ("1/(3 + x + y)", TWO, 1e-3, "bernstein"),
        ("x*y", TWO, 1e-4, "bernstein"),
        ("sin(x) + cos(y)", TWO, 0.2, "partition"),
        ("max(x, y)", TWO, 0.1, "partition"),
        ("exp(x - 2)*y", "x=0:2;y=-1:1", 1e-3, "bernstein"),
    ),
    3: (
        ("sin(x) + y*cos(z)", THREE, 5e-2, "bernstein"),
        ("x*y*z", THREE, 5e-2, "bernstein"),
        ("x + abs(y)*z", THREE, 0.4, "partition"),
    ),
}
# targets for networks of random weights, and for networks made for another target
STRANGERS = {
    1: ("sin(3*x)", "abs(x)", "x**2", "exp(-(30*x)**2)", "1/(1.3 - x)", "sqrt(x + 1)", "sin(3*x) + 1e-3*cos(40*x)"),
    2: ("x*y", "sin(x + 2*y)", "max(x, y)", "1/(2.5 + x + y)"),
    3: ("x*y*z", "sin(x + y - z)", "abs(x) + y*z"),
}


@dataclass(frozen=True)
class Trial:
    number: int
    kind: str
    network: Network
    target: Function


@lru_cache(maxsize=32)
def base(dim: int, index: int) -> tuple[Network, Function]:
    target, domain, eps, method = BASES[dim][index]
    net = af.compile(target, domain, eps, method=method, accept="sampled")
    return net.network, net.target


def trial(number: int) -> Trial:
    """The case of this number, always the same one."""
    rng = np.random.default_rng([7, number])
    dim = int(rng.choice([1, 1, 1, 1, 1, 1, 2, 2, 2, 3]))
    kind = str(rng.choice(["all", "all", "one", "stranger", "random"]))
    if kind == "random":
        network, domain = random_network(dim, rng)
        return Trial(number, kind, network, function(str(rng.choice(STRANGERS[dim])), domain))
    network, target = base(dim, int(rng.integers(len(BASES[dim]))))
    if kind == "stranger":
        if set(target.box.low) == {-1.0} and set(target.box.high) == {1.0}:
            target = function(str(rng.choice(STRANGERS[dim])), target.box.text)
        return Trial(number, kind, network, target)
    return Trial(number, kind, perturbed(network, rng, kind == "one"), target)


def perturbed(network: Network, rng: np.random.Generator, single: bool) -> Network:
    """Some arrays changed by a relative 1e-12 … 1e-1 (and a little absolutely), or one entry only."""
    size = 10 ** rng.uniform(-12, -1)
    names = [name for name, array in network.arrays() if not name.startswith("readout") and "query" not in name]
    names += [name for name, _ in network.arrays() if "query" in name] if rng.random() < 0.3 else []
    changed = {}
    for name, array in network.arrays():
        if name not in names or rng.random() < 0.4:
            continue
        noise = rng.standard_normal(array.shape)
        if single:
            only = np.zeros(array.size)
            only[rng.integers(array.size)] = 1.0
            noise = noise * only.reshape(array.shape)
        absolute = 0.0 if "query" in name else 0.1
        changed[name] = array + size * noise * (np.abs(array) + absolute * np.abs(array).max())
    return with_arrays(network, changed)


def random_network(dim: int, rng: np.random.Generator) -> tuple[Network, str]:
    """A head of random keys: tangent lines of a convex potential, a lattice, or no structure at all."""
    domain = {1: ONE, 2: TWO, 3: THREE}[dim]
    box = function("x", domain).box
    axes, shape = [], []
    for k in range(dim):
        count = int(rng.integers(1, {1: 14, 2: 7, 3: 5}[dim]))
        style = rng.integers(3)
        if style == 0:  # irregular partition
            t = np.sort(rng.uniform(-1.2, 1.2, count))
            beta = 10 ** rng.uniform(0, 2.5)
            slopes, biases = 2 * beta * t, -beta * t**2
        elif style == 1:
            slopes = np.arange(count) * float(rng.choice([0.5, 1.0, 2.0]))
            biases = np.array([math.log(math.comb(count - 1, j)) for j in range(count)])
        else:
            slopes, biases = 5 * rng.standard_normal(count), rng.standard_normal(count)
        query = np.zeros((1, dim))
        query[0, k] = float(rng.choice([1.0, -1.0, 0.7]))
        axes.append(Axis(query, rng.normal(size=1) * 0.2, slopes[:, None], biases))
        shape.append(count)
    values = rng.standard_normal((*shape, 1)) * 10 ** rng.uniform(-3, 1)
    head = Head("random", tuple(axes), values, ("v",))
    readout = np.concatenate([np.zeros((1, dim)), np.ones((1, 1))], axis=1)
    if rng.random() < 0.3:
        readout[0, :dim] = rng.standard_normal(dim)
    bias = np.array([float(rng.choice([0.0, 0.5]))])
    low, high = box.low_array, box.high_array
    return Network(box.names, (Layer((head,)),), readout, bias, ("f",), (low, high)), domain


def judge(case: Trial) -> tuple[Certificate, float]:
    certificate = prove(case.network, case.target)
    return certificate, assert_sound(certificate, case.network, case.target, seed=case.number)


@pytest.mark.parametrize("block", range(15))
def test_no_certificate_is_below_the_worst_error_found(block: int) -> None:
    per = QUICK // 15
    for number in range(block * per, (block + 1) * per):
        judge(trial(number))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_all_of_the_fuzz(block: int) -> None:
    per = CASES // 40
    for number in range(block * per, (block + 1) * per):
        judge(trial(number))


def test_the_hunter_finds_what_is_there() -> None:
    """A claim that is wrong by a little must be caught, else the fuzz proves nothing."""
    network, target = line_network([0.0, 1.0], [0.0, 0.0], [0.0, 0.0]), function("x**2")
    false = Certificate(Status.PROVED, (0.0, 0.999), None, math.inf, "float64", "forged", "x**2", "x=-1:1")
    with pytest.raises(AssertionError, match="proved"):
        assert_sound(false, network, target)


def main(count: int, first: int = 0) -> int:
    """Run cases, print figures; the number of violations."""
    status: Counter[str] = Counter()
    slack: dict[str, list[float]] = {}
    violations = 0
    started = time.perf_counter()
    slowest = (0.0, -1)
    for number in range(first, first + count):
        begun = time.perf_counter()
        case = trial(number)
        try:
            certificate, seen = judge(case)
        except AssertionError as why:
            violations += 1
            print(f"case {number} ({case.kind}): VIOLATION {why}", flush=True)
            continue
        except Exception as why:
            violations += 1
            print(f"case {number} ({case.kind}): CRASH {type(why).__name__} {why}", flush=True)
            continue
        slowest = max(slowest, (time.perf_counter() - begun, number))
        status[f"{len(case.network.inputs)}-D {certificate.status.value} {certificate.method}"] += 1
        if certificate.status is Status.BOUNDED and seen > 0:
            slack.setdefault(f"{len(case.network.inputs)}-D", []).append(certificate.error[1] / seen)
        elif certificate.status is not Status.BOUNDED:
            print(f"case {number} ({case.kind}): {certificate.status.value}: {certificate.reason}", flush=True)
        if (number + 1) % 100 == 0:
            print(
                f"{number + 1 - first} cases, {violations} violations, {time.perf_counter() - started:.0f} s",
                flush=True,
            )
    undecided = sum(v for k, v in status.items() if "proved" not in k)
    print(
        f"{count} cases, {undecided} undecided, {violations} violations; slowest {slowest[0]:.1f} s (case {slowest[1]})"
    )
    for key, value in sorted(status.items()):
        print(f"  {key}: {value}")
    for key, values in sorted(slack.items()):
        figures = ", ".join(f"{p} % {np.percentile(values, p):.4g}" for p in (50, 90, 99, 100))
        print(f"  slack {key}: {figures} (least {min(values):.6g})")
    return violations


if __name__ == "__main__":
    numbers = [int(v) for v in sys.argv[1:]] or [CASES]
    sys.exit(1 if main(*numbers) else 0)
