"""Method *jumps*: networks of labelled coordinates for targets that jump, in L^p, or in the sup norm off a band.

Let P(x, θ) be the program of the labels with a variable θ_s in the place of every coordinate s that jumps, φ_s =
g_s(U_s), and V_s an interval with all values of head and g_s. *staircase* proves walls in U_s off which the head is
within e_s of g_s. Let S(x) be the steps s with U_s(x) in a wall, and those whose U_s depends on one of S(x).

**1.** *composition* proves |net(x) − P(x, θ*)| ≤ E for all x, with θ*_s = what the head gives for s in S(x), φ_s(x) for
the others. Its errors E_s = e_s hold for the others: none of the jumps that U_s reads is in S(x), so that its argument
is U_s(x) up to the δ that was counted. For s in S(x) the head gives θ*_s itself, which is in V_s; all ranges were taken
over V_s, and P is proved to be defined and continuous on box × V.

**2.** *In L^p.* f(x) = P(x, φ(x)), so with h_s ≥ |V_s| sup |∂P/∂θ_s| over box × V, and H_S = Σ_{s in S} h_s (or the
range of P where that is smaller), |f − net| ≤ E + H_{S(x)}. Cut the box into sub-boxes b; let S_b be the steps that may
have points of b in S(x), and m_b ≥ the share of the box where x is in b and S(x) is not empty. Then, norms being
normalised by the volume,

    ‖f − net‖_p ≤ ( E^p + Σ_b m_b (E + H_{S_b})^p )^{1/p}.

**3.** *Measures.* If |∂U_s/∂x_k| ≥ c > 0 on b, then U_s is strictly monotone along every line parallel to axis k, which
meets {U_s in W} in an interval of length at most |W|/c. So, for the walls W that U_s reaches on b,

    share of b with U_s in a wall  ≤  min(1, Σ_W |W| / (c · side_k of b)),        whichever k is best,

proportional to the walls' width however the surface lies: b need not be as thin as they are. (Of a box and its halves
together the smaller bound counts.) Where U_s reads another jump whose value on b is open, this holds for each of its
levels, so the bound is multiplied by their number (points with that one in a wall are counted by its own share); where
it is not constant between its walls, b counts whole. Values and partials are enclosed in balls. Sub-boxes that weigh
most are halved until the sum is small or the budget is spent; where U_s has a critical point on its surface, b counts
whole, and halving makes it small.

Walls are those of *staircase*, rounding of queries and logits included, so that all this holds of the network as
computed too, with the E that *composition* proves of it; the norm moves by no more than E does.

**4.** *Off a band.* The target's jumps are its operations sign(A). Every wall of s is proved to lie in {|h| < δ} for a
sign(h(U_s)) of the program, whose argument is proved to be ±A for one of them (`identity`). So where all |A(x)| ≥ δ,
S(x) is empty, and |f − net| ≤ E by 1.

Failure modes: steps that are not nearly constant between jumps; P not defined for values between the levels; floats too
coarse for the walls that ε asks for.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from flint import arb
from numpy.typing import NDArray

from attnfun.certify.composition import Composition
from attnfun.certify.identity import same_function
from attnfun.certify.reading import Reading
from attnfun.certify.staircase import Jump, signs_of
from attnfun.certify.view import Array, Bound, Undecided, provided
from attnfun.language import BallAlgebra, Box, Builder, GradientAlgebra, Graph, precision, run
from attnfun.language.domain import cut
from attnfun.language.enclosures import abs_lowers, abs_uppers, ball_ends, balls, point_balls, upper
from attnfun.language.function import Function
from attnfun.language.gradient import Dual
from attnfun.language.graph import reached
from attnfun.language.mean_value import enclosures
from attnfun.language.ranges import range_of
from attnfun.language.slopes import slope_bounds
from attnfun.network import Labels, Network

_BOXES = 12_000
_TOGETHER = 256
_KEPT = ("low", "high", "active")
_SAFE = 1 + 1e-12


def prove_by_jumps(
    network: Network, function: Function, labels: Labels, norm: float, eps: float
) -> tuple[Bound, float]:
    """(bound of the L^p norm, or off the function's band, rounding); see the module's statement."""
    try:
        made = Composition(network, function, labels)
        bound, rounding = made.prove(eps, witnessed=math.isinf(norm))
    except RecursionError:
        raise Undecided("composition: the program is nested too deeply") from None
    details = dict(bound.details)
    if math.isinf(norm):
        with precision(64):
            for jump in made.jumps:
                _require_in_band(made.reading, jump)
        return Bound("jumps", bound.low, bound.high, bound.witness, details), rounding
    if not made.jumps:  # a sup bound bounds every L^p norm
        return Bound(bound.method, 0.0, bound.high, None, details), rounding
    bands = Bands(made.reading, made.jumps)
    with precision(64):
        high = bands.norm(bound.high, norm, max(eps - rounding, 0.0))
    details["bands"] = {"measure": bands.measure, "boxes": bands.boxes}
    return Bound("jumps", 0.0, high, None, details), rounding  # the norm moves by no more than E does


@dataclass(frozen=True)
class _Boxes:
    """Sub-boxes that came from one round of halving: corners, the place of the one that each is half of, m_b as a share
    of the whole box, and S_b, (boxes, jumps).
    """

    low: Array
    high: Array
    parent: NDArray[np.intp]
    share: Array
    active: NDArray[np.bool_]


class Bands:
    """The walls of all steps as parts of the box, in a tree of sub-boxes: of a box counts what is proved of it or of
    its halves together, whichever is less (a surface through a box may be oblique to all its halves).
    """

    def __init__(self, reading: Reading, jumps: list[Jump]) -> None:
        self.jumps, self.box = jumps, reading.function.box
        nodes = reading.relaxed.nodes
        self.arguments = [Graph(nodes, (jump.label.argument,)).reachable((jump.label.argument,)) for jump in jumps]
        self.place = {jump.variable: i for i, jump in enumerate(jumps)}
        relaxed = reading.relaxed.reachable(reading.relaxed.outputs)
        self.heights, self.most = _heights(relaxed, reading.box, [jump.variable for jump in jumps])
        own = [{*self._variables(i)} for i in range(len(jumps))]
        self.reads = np.array([[name in variables for name in self.box.names] for variables in own])
        whole = self.box.low_array[None], self.box.high_array[None]
        self.rounds = [self._found(*whole, np.zeros(1, dtype=np.intp))]

    @property
    def boxes(self) -> int:
        return sum(len(made.low) for made in self.rounds)

    @property
    def measure(self) -> float:
        """A bound of the share of the box that is in some wall."""
        return self._least([made.share for made in self.rounds])[0]

    def norm(self, error: float, p: float, eps: float) -> float:
        """( E^p + Σ_b m_b (E + H_b)^p )^{1/p} for E = `error`, sub-boxes halved while that matters."""
        budget = _BOXES if math.isfinite(eps) else _BOXES // 8
        enough = 0.5 * max(eps - error, 0.0) + error if math.isfinite(eps) else 0.0
        top = min(float(self.heights.sum()) * _SAFE, self.most) + error
        if not math.isfinite(top):
            return math.inf
        unit = arb(max(top, 1e-300))
        before = [math.inf] * (4 * self.box.dim + 4)  # rounds of halving without any gain
        worth = [self._worth(made, error, unit, p) for made in self.rounds]
        while True:
            sum_, useful = self._least(worth)
            total = upper(unit * ((arb(error) / unit) ** arb(p) + arb(sum_)) ** (1 / arb(p)))
            if total <= max(enough, error * (1 + 1e-3)) or self.boxes >= budget or total > 0.98 * before[0]:
                return total
            before = [*before[1:], total]
            made = self._halved(useful)
            if made is None:
                return total
            self.rounds.append(made)
            worth.append(self._worth(made, error, unit, p))

    def _worth(self, made: _Boxes, error: float, unit: arb, p: float) -> Array:
        """(boxes,) m_b ((E + H_b)/unit)^p."""
        tall = np.minimum(np.where(made.active, self.heights, 0.0).sum(axis=1) * _SAFE, self.most)
        out = np.zeros(len(tall))
        for height in np.unique(tall):
            here = tall == height
            out[here] = made.share[here] * upper(((arb(float(height)) + arb(error)) / unit) ** arb(p)) * _SAFE
        return out

    def _least(self, worth: list[Array]) -> tuple[float, list[Array]]:
        """The sum over the tree, and by round what every box without halves adds to it, 0 of those with some."""
        sums = [np.zeros(len(w)) for w in worth]
        split = [np.zeros(len(w), dtype=bool) for w in worth]
        values: list[Array] = [np.zeros(0)] * len(worth)
        starts = np.cumsum([0, *(len(w) for w in worth)])
        for k in range(len(worth) - 1, -1, -1):
            values[k] = np.where(split[k], np.minimum(sums[k] * _SAFE, worth[k]), worth[k])
            if k:
                place = np.searchsorted(starts, self.rounds[k].parent, side="right") - 1
                for earlier in np.unique(place):
                    mine = place == earlier
                    at = self.rounds[k].parent[mine] - starts[earlier]
                    np.add.at(sums[earlier], at, values[k][mine])
                    split[earlier][at] = True
        leaves = [np.where(cut_, 0.0, value) for cut_, value in zip(split, values, strict=True)]
        return float(values[0].sum()) * _SAFE, leaves

    def _halved(self, useful: list[Array]) -> _Boxes | None:
        """The halves of the boxes that weigh most, cut across the longest side (relative to the box) of those that the
        active arguments depend on. A box stays with both its halves, so that one of them may be empty.
        """
        flat = np.concatenate(useful)
        bad = np.argsort(flat)[-_TOGETHER:]
        bad = bad[flat[bad] > 1e-4 * flat.sum() / len(flat)]
        if not len(bad):
            return None
        low, high, active = (np.concatenate([getattr(m, name) for m in self.rounds])[bad] for name in _KEPT)
        sides = (high - low) / (self.box.high_array - self.box.low_array)
        new = cut(low, high, np.argmax(np.where(active.astype(np.int64) @ self.reads > 0, sides, 0.0), axis=1))
        return self._found(*new, np.concatenate([bad, bad]))

    def _variables(self, i: int) -> set[str]:
        inner = (self._variables(self.place[v]) for v in self.arguments[i].variables if v in self.place)
        return set(self.arguments[i].variables).union(*inner)

    def _found(self, low: Array, high: Array, parent: NDArray[np.intp]) -> _Boxes:
        """Shares and S_b of sub-boxes."""
        names, count = self.box.names, len(low)
        algebra = GradientAlgebra(BallAlgebra(clip_sqrt=True, sharp=True), len(names))
        whole = [balls(low[:, k], high[:, k]) for k in range(len(names))]
        middle = [point_balls(low[:, k] + (high[:, k] - low[:, k]) / 2) for k in range(len(names))]
        env = algebra.variables(names, dict(zip(names, whole, strict=True)))
        sides = high - low
        share, active = np.zeros(count), np.zeros((count, len(self.jumps)), dtype=bool)
        options = np.ones((count, len(self.jumps)))
        for i, (jump, graph) in enumerate(zip(self.jumps, self.arguments, strict=True)):
            ends, partials = _reach(graph, algebra, env, middle, names, low, high)
            walls = np.array(jump.stairs.walls).reshape(-1, 2)
            meets = ~(walls[None, :, 0] > ends[1][:, None]) & ~(walls[None, :, 1] < ends[0][:, None])
            width = (meets * (walls[:, 1] - walls[:, 0])).sum(axis=1) * _SAFE
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                ratio = width[:, None] / (partials * sides) * _SAFE
            ratio = np.where(partials > 0, ratio, math.inf).min(axis=1)
            ratio = np.where(np.isnan(ratio), math.inf, ratio)
            read = [self.place[name] for name in jump.reads]
            open_levels = np.prod(options[:, read], axis=1) if read else np.ones(count)
            own = meets.any(axis=1)
            with np.errstate(invalid="ignore"):
                own_share = np.fmin(np.where(ratio > 0, ratio * open_levels, 0.0), 1.0)
            share += np.where(own, own_share, 0.0)
            active[:, i] = own | active[:, read].any(axis=1)
            signs, where = signs_of(jump.unary), (ends[0][:, None], ends[1][:, None])
            each = [ball_ends(value, count) for value in enclosures(signs, ("u",), *where)]
            decided = np.all([least == most for least, most in each], axis=0)
            (level,) = enclosures(jump.unary, ("u",), *where)
            least, most = ball_ends(level, count)
            options[:, i] = np.where(decided, 1.0, len(walls) + 1.0) if jump.stairs.constant else math.inf
            a, b = jump.stairs.ends
            least, most = np.fmax(least, a), np.fmin(most, b)
            env[jump.variable] = Dual(balls(least, most), ())
        volume = np.prod((high - low) / (self.box.high_array - self.box.low_array), axis=1) * _SAFE
        return _Boxes(low, high, parent, np.minimum(share * _SAFE, 1.0) * volume * _SAFE, active)


def _reach(
    graph: Graph,
    algebra: GradientAlgebra[arb],
    env: dict[str, Dual[arb]],
    middle: list[Array],
    names: tuple[str, ...],
    low: Array,
    high: Array,
) -> tuple[tuple[Array, Array], Array]:
    """Ends of U on every sub-box, by balls and the mean value, and (boxes, d) lower bounds of |∂U/∂x_k|.

    Jumps that U reads are constant between theirs: their values on the box stand in `env`, at the centre too.
    """
    count, d = len(low), len(names)
    dual = run(graph, algebra, env)[0]
    at = dict(zip(names, middle, strict=True)) | {n: v.value for n, v in env.items() if n not in names}
    form, partials = run(graph, algebra.base, at)[0], np.zeros((count, d))
    for k, partial in enumerate(dual.partials):
        if partial is not None:
            form = form + partial * (env[names[k]].value - middle[k])
            size = np.broadcast_to(abs_lowers(np.asarray(partial, dtype=object)), (count,))
            partials[:, k] = np.where(size > 0, size, 0.0)
    (least, most), (a, b) = ball_ends(dual.value, count), ball_ends(form, count)
    least, most = np.fmax(least, a), np.fmin(most, b)
    return (np.where(np.isnan(least), -math.inf, least), np.where(np.isnan(most), math.inf, most)), partials


def _heights(relaxed: Graph, box: Box, variables: list[str]) -> tuple[Array, float]:
    """(jumps,) h_s, and the width of the range of P, of the output that moves most."""
    slopes = slope_bounds(relaxed, box).max(axis=0)
    widths = box.high_array - box.low_array
    at = [box.names.index(name) for name in variables]
    with np.errstate(invalid="ignore"):
        heights = slopes[at] * widths[at] * _SAFE
    ranges = range_of(relaxed, box)
    most = max(high - low for low, high in ranges) * _SAFE
    return np.where(np.isnan(heights), math.inf, heights), math.inf if math.isnan(most) else most


def _require_in_band(reading: Reading, jump: Jump) -> None:
    """4. of the module's statement, for one step."""
    program, label, function = reading.program, jump.label, reading.function
    assert function.band is not None
    below = reached([label.phi], lambda i: () if i == label.argument else program.nodes[i].args)
    signs = [program.nodes[i].args[0] for i in sorted(below) if program.nodes[i].op == "sign" and i != label.argument]
    known = [node for node in signs if _is_argument(program, node, function)]
    inside = [reading.unary(replace(label, phi=node)) for node in known]
    for low, high in jump.stairs.walls:
        kept = False
        for h in inside:
            (value,) = enclosures(h, ("u",), np.array([[low]]), np.array([[high]]))
            kept = kept or bool(np.max(abs_uppers(np.atleast_1d(np.asarray(value, dtype=object)))) < function.band)
        provided(kept, f"jumps: {label.name} is not proved to keep its wall near {low:.6g} inside the band")


def _is_argument(program: Graph, node: int, function: Function) -> bool:
    """Is the node proved to be the argument of a sign of the target, or its negative?"""
    own = program.reachable((node,))
    for other in function.arguments:
        for one in (own, _negative(own)):
            try:
                same_function(one, other, function.box)
                return True
            except Undecided:
                continue
    return False


def _negative(graph: Graph) -> Graph:
    build = Builder()
    at = build.copy(graph.nodes)
    return build.graph([build.apply("neg", at[graph.outputs[0]])])
