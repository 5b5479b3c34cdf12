"""bernstein with several outputs: one lattice serves them all, and it is as large as the neediest output asks."""

import math

import numpy as np
import pytest

import attnfun as af
from attnfun.kinds.function.build.bernstein import Bernstein, Shape, _tail
from attnfun.kinds.function.build.plan import Request
from attnfun.language.domain import Box
from attnfun.language.function import Function


def degrees(target: str | list[str], box: Box, eps: float) -> tuple[int, ...]:
    shape = Bernstein().plan(Request(Function.read(target, box), eps, math.inf, "float64")).data[0]
    assert isinstance(shape, Shape)
    return shape.degrees


def smooth(rng: np.random.Generator, names: list[str]) -> str:
    some = rng.choice(names, size=min(len(names), 2), replace=False)
    line = " + ".join(f"{rng.uniform(-1.5, 1.5):.2f}*{n}" for n in some)
    return str(rng.choice([f"sin({line})", f"cos({line})", f"exp({line})", f"({line})**2", "*".join(some)]))


@pytest.mark.parametrize("seed", range(20))
def test_a_tail_of_several_outputs_is_the_largest_of_theirs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes, outputs = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    coefficients = rng.normal(size=(6,) * axes + (outputs,)) * 10.0 ** rng.uniform(-9, 3, size=outputs)
    for axis in range(axes):
        moved = np.moveaxis(np.abs(coefficients), axis, 0)
        above = [moved[m + 1 :].sum(axis=tuple(range(axes))).max() for m in range(6)]
        np.testing.assert_allclose(_tail(coefficients, axis), above, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6, 7, 9])  # two or three of one and two variables, one of three, four
def test_several_outputs_need_the_degrees_of_the_neediest(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    names = ["x", "y", "z", "w"][: 4 if seed == 9 else 1 + seed % 3]
    targets = [smooth(rng, names) for _ in range(int(rng.integers(2, 5)))]
    box, eps = Box.parse({n: (-1.0, 1.0) for n in names}), 0.1 if seed == 9 else float(10 ** rng.uniform(-3, -1))
    most = np.max([degrees(t, box, eps) for t in targets], axis=0)
    assert np.all(np.array(degrees(targets, box, eps)) <= most + 1), targets


@pytest.mark.parametrize(("targets", "eps"), [(["x*y", "exp(y)"], 0.01), (["sin(x*y)", "cos(x*y)"], 1e-3)])
def test_outputs_of_different_size_share_a_small_proved_head(targets: list[str], eps: float) -> None:
    net = af.compile(targets, domain={"x": (-1, 1), "y": (-1, 1)}, eps=eps, method="bernstein")
    assert net.certificate.error[1] <= eps
    assert net.network.cost.keys <= 60


def test_a_target_below_eps_is_not_refused_for_its_size() -> None:
    box = Box.parse({n: (-1.0, 1.0) for n in "xyzw"})
    assert math.prod(m + 1 for m in degrees("x*y*z*w/1000", box, 0.01)) == 1
