"""Features of relations: ranks proved, lower bounds, sizes of towers, and an attack on every certificate.

    python benchmarks/relations.py [--points 100000] [--quick]

Every row: the relation, eps, the rank that was proved and the rank that any method needs, the goal for it, the proved
error, the largest error seen at random and boundary points (float64), the same with both towers in float32 (torch) and
their inner product in float64, and with that in float32 too (nan without torch or towers), keys of the towers, seconds.
A violation stops the script.
"""

import sys
import time
from collections.abc import Iterator

import numpy as np

import attnfun as af
from bench import Row, asked, table

GOALS = {
    ("rbf", 1): {1e-2: 3, 1e-4: 5, 1e-8: 8},
    ("rbf", 2): {1e-2: 13, 1e-4: 24, 1e-8: 50},
    ("rbf", 3): {1e-2: 56, 1e-4: 124, 1e-8: 345},
    ("rbf", 5): {1e-4: 2600},
    ("dot", 1): {1e-2: 3, 1e-4: 4, 1e-8: 6},
    ("dot", 2): {1e-2: 8, 1e-4: 13, 1e-8: 26},
    ("dot", 3): {1e-2: 20, 1e-4: 47},
    ("dot", 4): {1e-2: 100, 1e-4: 400},
    ("tanh", 1): {1e-2: 9, 1e-4: 14, 1e-8: 26},
    ("abs", 1): {1e-1: 10, 1e-2: 65},  # kinks, by soft cells; 65: adaptive cross approximation, measured
    ("laplace", 1): {1e-1: 11, 1e-2: 101},  # 1 + 1/ε: equispaced nodes
    ("matern", 1): {1e-1: 4, 1e-2: 9},  # 9: pivoted Cholesky, measured
}
KINKED = {
    "abs": "abs(x1 - y1)",
    "laplace": "exp(-2*abs(x1 - y1))",
    "matern": "(1 + 2*sqrt(3)*abs(x1 - y1))*exp(-2*sqrt(3)*abs(x1 - y1))",
}
SYMMETRIC = ("rbf", "laplace", "matern")


def expression(name: str, d: int) -> str:
    pairs = [(f"x{k}", f"y{k}") for k in range(1, d + 1)]
    if name == "rbf":
        return "exp(-2*(" + " + ".join(f"({x} - {y})**2" for x, y in pairs) + "))"
    if name == "dot":
        return "exp(" + " + ".join(f"{x}*{y}" for x, y in pairs) + ")"
    return KINKED.get(name, "tanh(5*(x1 - y1))")


def attack(found: af.RelationApproximant, points: int) -> tuple[float, float, float]:
    """(largest error in float64, with float32 towers, with a float32 inner product too) at random and boundary points.

    Points of the latter are those that float32 holds, as many as 10^8 keys in all allow; NaN without torch or towers.
    """
    worst, single, whole, towers = 0.0, float("nan"), float("nan"), None
    if not found.features_only:
        try:
            towers = [tower.to_torch("float32") for tower in (found.left, found.right)]
            single = whole = 0.0
        except af.AttnfunError:
            pass
    left_over = 0 if towers is None else 10**8 // found.left.network.cost.keys
    step = max(100, min(20_000, 8_000_000 // found.rank))
    for seed in range(max(1, points // step)):
        left = found.target.left.probe(step, np.random.default_rng(2 * seed))
        right = found.target.right.probe(step, np.random.default_rng(2 * seed + 1))
        truth = found.target.values(left, right)
        worst = max(worst, float(np.abs(found.pairs(left, right) - truth).max()))
        if towers is not None and left_over > 0:
            left, right = left[:left_over], right[:left_over]
            left_over -= len(left)
            left, right = (p.astype(np.float32).astype(np.float64) for p in (left, right))
            a, b = (tower(p).reshape(len(p), found.rank) for tower, p in zip(towers, (left, right), strict=True))
            truth = found.target.values(left, right)
            single = max(single, float(np.abs((a.double() * b.double()).sum(dim=1).numpy() - truth).max()))
            whole = max(whole, float(np.abs((a * b).sum(dim=1).double().numpy() - truth).max()))
    return worst, single, whole


def rows(points: int, quick: bool) -> Iterator[Row]:
    cases = [(name, d, eps, goal) for (name, d), goals in GOALS.items() for eps, goal in goals.items()]
    for name, d, eps, goal in cases:
        if quick and d > 2:
            continue
        left, right = ({f"{side}{k}": (0, 1) for k in range(1, d + 1)} for side in "xy")
        start = time.perf_counter()
        lone = name == "tanh" and eps < 1e-6
        found = af.relation(expression(name, d), left, right, eps, symmetric=name in SYMMETRIC, features_only=lone)
        seconds = time.perf_counter() - start
        worst, single, whole = attack(found, points)
        proved = found.certificate.error[1]
        if not worst <= proved:
            raise SystemExit(f"VIOLATION: {name} {d} {eps}: {worst} above {proved}")
        rank = f"{found.rank} (above the goal)" if found.rank > goal else found.rank
        yield {
            **{"relation": name, "d": d, "eps": eps, "rank": rank, "least": found.rank_lower, "goal": goal},
            **{"proved": proved, "seen": worst, "float32": single, "all of it": whole},
            "keys": None if found.features_only else found.cost.keys,
            **{"seconds": round(seconds, 2), "proof": found.certificate.method},
        }


if __name__ == "__main__":
    points, quick = {"type": int, "default": 100_000}, {"action": "store_true", "help": "one and two variables only"}
    options = asked(__doc__, points=points, quick=quick)
    sys.exit(table(options, rows(options.points, options.quick)))
