"""Partitions in float32: proved wherever float64 ones are, for logits are centred and round by little."""

from __future__ import annotations

import random

import numpy as np
import pytest

import attnfun as af


def drawn(rng: random.Random) -> tuple[str, dict[str, tuple[float, float]], float]:
    """A target with a kink anywhere, a domain anywhere near 0, and an eps that some hundred cells meet."""
    a, b, c = (round(rng.uniform(-2, 2), 2) for _ in range(3))
    two = rng.random() < 0.7
    text = rng.choice(
        [
            "sqrt(x*x + y*y)",
            f"abs(x - {a}*y + {b})",
            f"max({a}*x, y) + {c}",
            f"sin({b}*x)*y + {c}",
            f"exp({a}*x*y)",
        ]
        if two
        else [f"abs(x + {a})", f"sin({b}*x) + {c}*x", f"relu({a}*x + {b})"]
    )
    low, width = rng.uniform(-2, 1), rng.uniform(0.5, 2)
    box = {"x": (low, low + width)} | ({"y": (-width / 2, width / 2)} if two else {})
    points = np.random.default_rng(0).uniform(*np.array(list(box.values())).T, (400, len(box)))
    values = af.compile(text, domain=box, eps=1e9, method="partition").target.values(points)
    return text, box, rng.uniform(0.04, 0.1) * max(float(np.ptp(values)), 1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_what_float64_proves_float32_proves_with_little_rounding(seed: int) -> None:
    text, box, eps = drawn(random.Random(seed))
    for method in ({"temperature": "sharp"}, {}):
        wide = af.compile(text, domain=box, eps=eps, method="partition", **method)
        narrow = af.compile(text, domain=box, eps=eps, method="partition", dtype="float32", **method)
        assert wide.certificate.status == narrow.certificate.status == "proved"
        assert narrow.cost.keys <= 1.5 * wide.cost.keys
        assert sum(part for name, part in narrow.certificate.parts.items() if "rounding" in name) < 0.2 * eps
        points = np.random.default_rng(seed).uniform(*np.array(list(box.values())).T, (500, len(box)))
        points = np.clip(points.astype(np.float32).astype(np.float64), *np.array(list(box.values())).T)
        error = np.abs(narrow.network.run(points).astype(np.float64) - narrow.target.values(points)).max()
        assert error <= narrow.certificate.error[1]


def test_a_head_of_thousands_of_keys_in_two_variables_is_proved_in_float32() -> None:
    net = af.compile(
        "sin(x)*cos(y)", domain={"x": (-1, 1), "y": (-1, 1)}, eps=0.02, method="partition", dtype="float32"
    )
    rounding = sum(part for name, part in net.certificate.parts.items() if "rounding" in name)
    assert net.certificate.status == "proved" and net.cost.keys > 2000 and rounding < 0.2 * 0.02
