"""relu_network: a ReLU network that the user brings, as attention and nothing else, one head per hidden unit.

Statement. Let f be a ReLU network of any depth on a box (affine maps and relu only). Replace every unit relu(z) that
changes sign on the box by a head of z, accurate to ε_i on the range of z; the affine maps are linear and free.
Then |f − net| ≤ Σ_i S_i ε_i, S_i the Lipschitz factor of the outputs in unit i: the sum over all paths from i to an
output of the products of |weights|, for relu has Lipschitz constant 1.
Source: Hu et al. 2025 (arXiv 2504.15956): softmax attention approximates clip(z, 0, B) by interpolation with p keys,
and so ReLU networks. There a unit costs p keys for an error of about 0.08 B/(p − 1), B the range of z. Here it costs
three for any ε: one steep key for the side where relu is 0, and two flat ones whose average is a line on the other.
`story` says how many keys interpolation would take.
Construction. Units and weights are read off the target's graph exactly (`language/relu_units`); ranges of all z by
linear relaxations (`language/relu_ranges`). Units that keep their sign are affine and need no head, dead and unused
ones vanish, equal ones and those of several outputs are shared. ε_i = 0.9 ε/(N S_i) for N units. Where a straight line
is within ε_i, one key does; where values would be too large for the dtype (they grow like 1/√ε_i, and with them the
rounding), five, nine or 17 keys do, or a search as in `tangent`. A unit stands in the first layer in which z is known.
Size: N heads, 3N keys or a few more, as many layers as hidden layers.  Bound: *composition*, from the stored weights
and labels.
Failure mode: Lipschitz factors multiply over layers, so that deep networks of large weights ask for tiny ε_i, below
what the dtype can hold; no other activation is read.
Example: af.compile(torch.nn.Sequential(Linear(8, 32), ReLU(), Linear(32, 1)), (-1, 1), eps=1e-3).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.plan import Construction, Plan, Request
from attnfun.kinds.function.build.unary.fit import fit_unary
from attnfun.kinds.function.build.unary.grid import Grid, grid_fit
from attnfun.kinds.function.build.unary.keys import Array, Fit, Keys, head_of
from attnfun.language import Graph, parse
from attnfun.language.relu_ranges import ReluRanges
from attnfun.network import Head, Label, Labels, Layer, Network, ReluBlock, rounded

_SHARE = 0.9
_KEYS = 3  # of a unit, whatever eps is, as long as the dtype holds their values
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
_LARGE = 400  # operations of a target that other constructions take minutes to size
_PARTS = 16  # of a unit interval, to which the ends of normalised ranges are rounded outward
INTERPOLATION = 0.0622  # sup error of relu by equidistant interpolation at its best temperature, in grid steps


@dataclass(frozen=True)
class Design:
    """The units, and for those that need a head its fit and layer."""

    ranges: ReluRanges
    signs: tuple[int, ...]  # 1 or −1 for units that keep their sign, 0 for those that need a head
    fits: dict[int, Fit]
    layers: dict[int, int]


class ReluNetwork(Construction):
    name = "relu_network"
    summary = "an MLP the user brings: one kink per hidden unit"

    def plan(self, request: Request) -> Plan:
        function = request.function
        graph = request.expression("relu_network: a black box has no units")
        feasible(math.isinf(request.norm), "relu_network: only the sup norm is offered")
        ranges = ReluRanges.of(graph, function.box)
        if ranges is None:
            raise Infeasible("relu_network: the target is more, or less, than affine maps and relu")
        if not (np.isfinite(ranges.low).all() and np.isfinite(ranges.high).all()):
            raise Infeasible("relu_network: the argument of a unit could not be bounded")
        design = _design(request, ranges)
        feasible(design.fits, "relu_network: no unit changes its sign on the box, the target is affine there")
        fits = design.fits.values()
        story = {"units": f"{len(design.signs)}, of which {len(fits)} change their sign on the box and have a head"}
        published = f"interpolation with p points per unit would take {_published(request, design):,} keys"
        story |= {"published": published}
        large, layers = len(graph.nodes) > _LARGE, max(design.layers.values()) + 1
        steady = all(fit.keys <= _KEYS for fit in fits)
        return Plan.of(self.name, request, fits, layers, design, story, settles=large, steady=steady)

    def build(self, request: Request, plan: Plan) -> Network:
        return _build(request, plan.data)


def interpolated(
    request: Request, points: int, heads: int | None = None, variant: str = "optimal"
) -> tuple[Network, float]:
    """As published: a unit relu(z) = clip(z, 0, max z) by a head of `points` interpolation points, or `heads` of them.

    For networks of one hidden layer. The size is given and the error is what comes out, about Σ_j |W_2| C (max z_j)/p,
    C of `unary/grid`; that sum of sampled errors, no bound, is returned too. `request.eps` is not looked at.
    """
    graph = request.function.graph
    ranges = None if graph is None else ReluRanges.of(graph, request.function.box)
    if ranges is None or ranges.dense.weights[:, request.function.box.dim :].any():
        raise Infeasible("interpolation points per unit are for ReLU networks of one hidden layer")
    signs = tuple(ranges.sign(unit.argument) for unit in ranges.network.units)
    grids = {j: Grid(0.0, float(ranges.high[j]), points, heads, variant) for j, s in enumerate(signs) if s == 0}
    fits = {j: grid_fit(grid, request.dtype) for j, grid in grids.items()}
    network = _build(request, Design(ranges, signs, fits, dict.fromkeys(fits, 0)))
    factors = np.abs(ranges.dense.readout[:, request.function.box.dim :])
    return network, float(max(sum(row[j] * fit.error for j, fit in fits.items()) for row in factors))


# ---------------------------------------------------------------- tolerances


def _design(request: Request, ranges: ReluRanges) -> Design:
    d, weights, n = request.function.box.dim, ranges.dense.weights, len(ranges.dense.weights)
    signs = tuple(ranges.sign(unit.argument) for unit in ranges.network.units)
    factors = _lipschitz(ranges, d, signs)
    matter = [j for j in range(n) if signs[j] == 0 and factors[j] > 0]
    signs = tuple(s or (0 if factors[j] > 0 else -1) for j, s in enumerate(signs))
    tolerances = {j: _SHARE * request.eps / (len(matter) * factors[j]) for j in matter}
    errors, fits, layers, depth = np.zeros(n), dict[int, Fit](), dict[int, int](), np.full(n, -1)
    for j in range(n):
        before = np.flatnonzero(weights[j, d:])
        shift = float(np.abs(weights[j, d:]) @ errors)
        below = int(depth[before].max(initial=-1))
        if signs[j]:
            errors[j], depth[j] = (shift, below) if signs[j] > 0 else (0.0, -1)
            continue
        low, high = float(ranges.low[j]) - shift, float(ranges.high[j]) + shift
        fits[j] = relu_fit(low, high, tolerances[j], request.dtype, request.prefer == "float32")
        errors[j], depth[j], layers[j] = shift + tolerances[j], below + 1, below + 1
    return Design(ranges, signs, fits, layers)


def _lipschitz(ranges: ReluRanges, d: int, signs: tuple[int, ...]) -> Array:
    """S_i: for each unit the sum of |weights| along all paths to an output, the largest; dead units pass nothing on."""
    alive, weights = np.array([s >= 0 for s in signs]), np.abs(ranges.dense.weights[:, d:])
    paths = np.abs(ranges.dense.readout[:, d:]) * alive
    for j in range(len(signs) - 1, -1, -1):
        paths = paths + paths[:, j : j + 1] * (weights[j] * alive)
    return np.asarray(paths.max(axis=0))


def _published(request: Request, design: Design) -> int:
    """Keys of one interpolation grid of p points per unit, the same p for all, at this tolerance."""
    factors = _lipschitz(design.ranges, request.function.box.dim, design.signs)
    reach = np.maximum(-design.ranges.low, design.ranges.high)
    total = sum(float(factors[j] * reach[j]) for j in design.fits)
    return len(design.fits) * (2 + math.ceil(INTERPOLATION * total / request.eps))


# ---------------------------------------------------------------- one unit


def relu_fit(low: float, high: float, eps: float, dtype: str, small: bool = False) -> Fit:
    """A head for relu on [low, high], low < 0 < high: that of a normalised interval, scaled by a power of two.

    One key where a line will do, else three, five, nine or 17; a search, if values are to be `small` or all of these
    need too large ones.
    """
    scale = 2.0 ** math.frexp(max(-low, high))[1]
    below, above, tolerance = -low / scale, high / scale, eps / scale
    fit = _line(below, above, tolerance, dtype)
    for flats in () if small else (2, 4, 8, 16):
        fit = fit or _few_keys(flats, below, above, tolerance, dtype)
    if fit is None:
        a, b = (math.ceil(_PARTS * end) / _PARTS for end in (below, above))
        coarse = 2.0 ** (math.floor(4 * math.log2(tolerance)) / 4)
        fit = fit_unary(RELU, -a, b, coarse, dtype=dtype, settle=dtype == "float32")
    pieces = tuple(_scaled(piece, scale) for piece in fit.pieces)
    return Fit(pieces, fit.slope, fit.offset * scale, fit.error * scale)


def _scaled(piece: Head | ReluBlock, scale: float) -> Head:
    assert isinstance(piece, Head)
    axis = replace(piece.axes[0], query=piece.axes[0].query / scale)
    return replace(piece, axes=(axis,), values=piece.values * scale)


def _few_keys(n: int, below: float, above: float, eps: float, dtype: str) -> Fit | None:
    """relu on [−below, above] by logits −Λu and ln C(n−1, j) + (2j − n + 1)s(u − m), m = above/2, n a power of two;
    None if values would be too large.

    Left of 0 the steep key has all the weight, and the head is its value. Right of 0 it has none, and the head is a
    polynomial of degree n − 1 in tanh(s(u − m)), whose distance from the best line is about
    (s·above/2)^{n+1}/((n + 1) 2^{n−1} s); at 0 the two change places within 1/Λ, which costs 0.14/Λ. Values grow like
    1/s, and with them the rounding.
    """
    steep, flat = 0.5 / eps, 25 / 96 * (n + 1) * 4.0 ** (n + 1) * eps / above ** (n + 1)
    for _ in range(n.bit_length() - 1):
        flat = math.sqrt(flat)
    if 16 * _ROUNDOFF[dtype] * (1 + 2 / flat) > 0.1 * eps:
        return None
    ways = np.log([float(math.comb(n - 1, j)) for j in range(n)])
    u = np.concatenate([-np.geomspace(below, 1e-3 * eps, 160), [0.0], np.geomspace(1e-3 * eps, above, 160)])
    u = np.sort(np.concatenate([u, above * (1 - np.cos(np.linspace(0, np.pi, 200))) / 2]))
    for _ in range(6):
        flats = flat * np.arange(1.0 - n, n, 2)
        biases = rounded(np.r_[(n - 1) * math.log(2.0), ways - flats * above / 2], dtype)
        keys = Keys(1.0, 0.0, rounded(np.r_[-steep, flats], dtype), biases)
        p, target = keys.weights(u), np.maximum(u, 0.0)
        values = np.linalg.lstsq(p, target, rcond=None)[0]
        residual = p @ values - target
        values = rounded(values - (residual.max() + residual.min()) / 2, dtype)
        error = float(np.abs(p @ values - target).max())
        if error <= eps:
            return Fit((head_of(keys, values, dtype),), error=error)
        steep, flat = 1.3 * steep, flat / 1.15
    return None


def _line(below: float, above: float, eps: float, dtype: str) -> Fit | None:
    """relu on [−below, above] as a straight line, if its error below·above/(2(below + above)) is well within eps."""
    error = below * above / (2 * (below + above))
    if not error <= 0.99 * eps:
        return None
    slope, offset = (float(rounded(np.array(v), dtype)) for v in (above / (below + above), error))
    nothing = np.zeros(1)
    return Fit((head_of(Keys(1.0, 0.0, nothing, nothing), nothing, dtype),), slope, offset, error)


RELU, _ABS = (parse(f"{op}(u)", ["u"]) for op in ("relu", "abs"))
KINKS = frozenset({RELU, _ABS})


def kink_fit(graph: Graph, low: float, high: float, eps: float, dtype: str) -> Fit:
    """A head for one of `KINKS` on [low, high], low < 0 < high: |u| = 2 relu(u) − u."""
    if graph == RELU:
        return relu_fit(low, high, eps, dtype)
    fit = relu_fit(low, high, eps / 2, dtype)
    pieces = tuple(replace(piece, values=2 * piece.values) for piece in fit.pieces)
    return Fit(pieces, 2 * fit.slope - 1, 2 * fit.offset, 2 * fit.error)


# ---------------------------------------------------------------- weights


def _build(request: Request, design: Design) -> Network:
    """Stream: inputs, then the units with a head, layer by layer; φ_i is a row over the stream, with its constant."""
    d, dense = request.function.box.dim, design.ranges.dense
    order = sorted(design.fits, key=lambda j: (design.layers[j], j))
    place = {j: d + k for k, j in enumerate(order)}
    width = d + len(order)
    counts: dict[int, int] = {}
    names: dict[int, str] = {}
    for j in order:
        counts[design.layers[j]] = counts.get(design.layers[j], 0) + 1
        names[j] = f"unit {design.layers[j] + 1}.{counts[design.layers[j]]}"
    held = np.zeros((d + len(design.signs), width + 1))  # of every input and unit: coefficients, constant last
    held[:d, :d] = np.eye(d)
    made: dict[int, list[Head | ReluBlock]] = {}
    for j, sign in enumerate(design.signs):
        argument = dense.weights[j] @ held
        argument[-1] += dense.constants[j]
        if sign:
            held[d + j] = argument if sign > 0 else 0.0
            continue
        fit, layer = design.fits[j], design.layers[j]
        before = d + sum(count for k, count in counts.items() if k < layer)
        held[d + j] = fit.slope * argument
        held[d + j, -1] += fit.offset
        held[d + j, place[j]] += 1.0
        heads = fit.written(names[j], argument[None, :before], [argument[-1]], request.dtype)
        made.setdefault(layer, []).extend(heads)
    read = dense.readout @ held
    read[:, -1] += dense.readout_constants
    units = design.ranges.network.units
    labels = tuple(
        Label(names[j], units[j].node, units[j].argument, design.fits[j].slope, design.fits[j].offset) for j in order
    )
    layers = [Layer(tuple(made[k])) for k in sorted(made)]
    return request.network(layers, read[:, :-1], read[:, -1], Labels(request.function.formula, labels).canonical())
