"""Steps that jump. Sums of multiples of sign(w + b_i), before the walk, are one staircase of w.

Where the steps of a program jump: how narrow their walls must be, and how accurate their arguments.

In L^p half of ε^p is for the walls and half for the rest of the box: the walls of half-width w about {U = t} cover
about 2 w ρ of the box, ρ the density of U at t, and cost H^p times that, H the most by which the outputs move between
two levels of the step; ρ and H are sampled. Off a band δ the walls must lie in {|A| < δ}, A the argument of the sign. A
quarter of w is for what the argument may be off, half for the head, the rest for rounding. Everything here is in floats
and steers; nothing is proved.
Failure mode: walls that the dtype cannot hold are refused, with the nearest ε that it can.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, reduce

import numpy as np

from attnfun.certify.staircase import jumps
from attnfun.errors import feasible
from attnfun.kinds.function.build.compose_steps import Forms, Step
from attnfun.kinds.function.build.plan import Request
from attnfun.kinds.function.build.unary.features import evaluated
from attnfun.kinds.function.build.unary.keys import Array
from attnfun.kinds.function.build.unary.staircase import staircase
from attnfun.language import ArrayAlgebra, Builder, Graph, Node, run, run_all

_SAMPLES = 20_000
_MOST_TERMS = 2_000
_SPARE = 2.5  # the walls' measure as proved over that from the sampled density, at most
_FLOOR = {"float64": 2.0**-47, "float32": 2.0**-18}  # of the argument's size: the narrowest half-width of a wall


def as_staircases(graph: Graph) -> tuple[Graph, list[int], dict[int, int]]:
    """The same function with such sums next to each other: its graph, where the nodes went, and of every such sum w."""
    build, at, found = Builder(), list[int](), dict[int, int]()
    inner = {a for node in graph.nodes if node.op in _SUMS for a in node.args}
    top = [node.op in _SUMS and (i not in inner or i in graph.outputs) for i, node in enumerate(graph.nodes)]
    for i, node in enumerate(graph.nodes):
        made = _gathered(build, graph, at, i, found) if top[i] and jumps(graph.reachable((i,))) else None
        at.append(build.apply(node.op, *(at[a] for a in node.args), value=node.value) if made is None else made)
    return Graph(build.nodes, tuple(at[o] for o in graph.outputs)), at, found


_SUMS = ("add", "sub", "neg", "mul", "div")


def _gathered(build: Builder, graph: Graph, at: list[int], root: int, found: dict[int, int]) -> int | None:
    """The sum with its signs of one argument, up to a constant, next to each other; None where there are no two."""
    groups: dict[int, list[tuple[Fraction, int]]] = {}
    others: list[tuple[Fraction, int]] = []
    stack = [(Fraction(1), root)]
    while stack:
        factor, i = stack.pop()
        node = graph.nodes[i]
        known = [graph.nodes[a].value if graph.nodes[a].op == "const" else None for a in node.args]
        if node.op in ("add", "sub"):
            stack += [(factor, node.args[0]), (factor if node.op == "add" else -factor, node.args[1])]
        elif node.op == "neg":
            stack.append((-factor, node.args[0]))
        elif node.op == "mul" and isinstance(known[0], Fraction):
            stack.append((factor * known[0], node.args[1]))
        elif node.op in ("mul", "div") and isinstance(known[1], Fraction):
            stack.append((factor * known[1] if node.op == "mul" else factor / known[1], node.args[0]))
        elif node.op == "sign":
            groups.setdefault(_coordinate(graph, node.args[0]), []).append((factor, i))
        else:
            others.append((factor, i))
        if len(stack) + len(others) > _MOST_TERMS:
            return None
    if all(len(terms) < 2 for terms in groups.values()):
        return None

    def total(terms: list[tuple[Fraction, int]]) -> int:
        scaled = [build.apply("mul", build.const(c), at[i]) if c != 1 else at[i] for c, i in terms]
        return reduce(partial(build.apply, "add"), scaled)

    sums = [total(terms) for terms in (others, *groups.values()) if terms]
    for w, terms in groups.items():
        if len(terms) > 1:
            found[total(terms)] = at[w]
    return reduce(partial(build.apply, "add"), sums)


def _coordinate(graph: Graph, i: int) -> int:
    """The node itself, or what it is a shift of."""
    while True:
        node = graph.nodes[i]
        constant = [graph.nodes[a].op == "const" for a in node.args]
        if node.op not in ("add", "sub") or not any(constant):
            return i
        i = node.args[1 if constant[0] else 0]


@dataclass(frozen=True)
class Fronts:
    """The ε that is left for the rest of the box; by step the half-width of its walls in the head, and what its
    argument may be off.
    """

    eps: float
    widths: Mapping[int, float] = field(default_factory=dict)
    allowed: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, forms: Forms, request: Request) -> "Fronts":
        found = {i: step for i, step in enumerate(forms.steps) if step.jumps}
        if not found:
            return cls(request.eps)
        band, p = request.function.band, request.norm
        if band is not None:
            wide = {i: _within(step, band) for i, step in found.items()}
            share, nearest = 1.0, partial(_wider, band)
        else:
            wide, share = _for_norm(forms, found, request), 0.5 ** (1 / p)
            nearest = partial(_looser, request.eps, p)
        for i, step in found.items():
            least = _FLOOR[request.dtype] * max(abs(step.low), abs(step.high))
            why = f"compose: the jump of {forms.program.text(step.phi, 60)} would need walls narrower than "
            feasible(wide[i] >= least, why + f"{request.dtype} holds", nearest(least / max(wide[i], 1e-300)))
        return cls(share * request.eps, {i: w / 2 for i, w in wide.items()}, {i: w / 4 for i, w in wide.items()})


def _wider(band: float, ratio: float) -> dict[str, float] | None:
    return {"band": float(f"{1.1 * band * ratio:.1e}")}


def _looser(eps: float, p: float, ratio: float) -> dict[str, float] | None:
    """Walls as much wider cost so much more in L^p."""
    near = 1.1 * eps * ratio ** (1 / p)
    return {"eps": float(f"{near:.2g}")} if math.isfinite(near) else None


def _for_norm(forms: Forms, found: Mapping[int, Step], request: Request) -> dict[int, float]:
    """Half-widths that cost half of ε^p together."""
    box = request.function.box
    X = box.sample(_SAMPLES, np.random.default_rng(3))
    with np.errstate(all="ignore"):
        env = {name: X[:, k] for k, name in enumerate(box.names)}
        values = run_all(forms.program, ArrayAlgebra(), env)
        wide = {}
        for i, step in found.items():
            ratio = request.norm * math.log(request.eps / max(_height(forms.program, step, env), 1e-300))
            room = math.exp(min(ratio, 0.0)) * 0.5 / _SPARE / len(found)
            most = min(1e-2 * max(abs(step.low), abs(step.high), step.high - step.low), _apart(step))
            wide[i] = min(room / (2 * _density(step, _column(values[step.argument]))), most)
    return wide


def _height(program: Graph, step: Step, env: Mapping[str, Array]) -> float:
    """The most by which the outputs at the samples move between two levels of the step."""
    nodes, (_, levels) = list(program.nodes), staircase(step.function, step.low, step.high)
    nodes[step.phi] = Node("var", (), "level")
    seen = []
    for level in set(levels):
        found = run(Graph(tuple(nodes), program.outputs), ArrayAlgebra(), {**env, "level": np.full(_SAMPLES, level)})
        seen.append(np.stack([_column(v) for v in found]))
    moves = np.max(seen, axis=0) - np.min(seen, axis=0)
    return float(np.max(moves[np.isfinite(moves)], initial=0.0))


def _apart(step: Step) -> float:
    """An eighth of the least distance between jumps."""
    places, _ = staircase(step.function, step.low, step.high)
    return float(np.min(np.diff(places), initial=step.high - step.low)) / 8


def _column(value: object) -> Array:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (_SAMPLES,))


def _density(step: Step, u: Array) -> float:
    """Σ_t of the density of the argument at t, the largest that samples show at several widths."""
    places, _ = staircase(step.function, step.low, step.high)
    total = 0.0
    for t in places:
        near = (step.high - step.low) * np.array([3e-3, 1e-2, 3e-2])
        total += max(float((np.abs(u - t) < h).mean()) / (2 * h) for h in near)
    return max(total, 1e-2 / (step.high - step.low))


def _within(step: Step, band: float) -> float:
    """The half-width about the jumps in which some argument of a sign stays below the band."""
    g, (places, _) = step.function, staircase(step.function, step.low, step.high)
    arguments = [g.reachable((node.args[0],)) for node in g.nodes if node.op == "sign"]

    def inside(t: float, w: float) -> bool:
        u = t + w * np.linspace(-1, 1, 17)
        return any(bool(np.max(np.abs(evaluated(h, u))) < 0.9 * band) for h in arguments)

    least = _apart(step)
    for t in places:
        low, high = 0.0, least
        if inside(t, high):
            continue
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if inside(t, middle) else (low, middle)
        least = low
    return least
