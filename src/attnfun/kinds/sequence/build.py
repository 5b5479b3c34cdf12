"""Sequence maps: heads that gather over the tokens, and what must be applied afterwards.

| symbol | meaning |
| --- | --- |
| n, d | tokens, coordinates of a token |
| F_i | the features of token i: its own coordinates, tokens it has fetched, aggregates over all tokens |
| G_i | the target's expression for token i, as a function of F_i |

Statement. Let y_i = G_i(F_i(X)) be continuous on a compact box. (i) *two-layer*: one attention layer gathers F_i, one
more (heads of constant keys) applies G_i; (ii) *one-layer-softmax*: the same with one softmax over constant keys and a
linear read-out as the second layer; (iii) *partition*: a linear map of the flattened sequence brings all d n
entries to every token, and one head over a partition of [−B, B]^{dn} reads the value off. Each is within ε in the sup
norm.
Source: Hu, Liu, Chen, Wu, Liu, "Universal Approximation with Softmax Attention" (arXiv 2504.15956) for (i) and (ii);
Liu, Hu, Song, Liu, "Attention Mechanism, Max-Affine Partition, and Universal Approximation" (arXiv 2504.19901) for
(iii). The weights are derived anew.
Construction. mean: logits 0. sum: n times that. softmax_mean(s, v): logits s_j. max: logits β v_j, less half of what
the average may lack, W((n−1)/e)/β. A copy of token j: positions are one-hot coordinates of every token, and the logit
of every other token lies 800 (float32: 110) below, an exact zero by underflow. Expressions inside an aggregate are
applied before it is gathered. Where rows differ from token to token, their heads are blocks of keys of one head, and a
block is shut out at every position that is not its own. *deep* is (i) with `compose` in place of the second layer: more
layers, fewer keys.
Size: (i) a head an aggregate and a token fetched; then what G_i takes as a function of F_i: d n variables at most, in
an equivariant map often two. (iii) P^{dn} keys, P = ⌈B L √(dn)/ε⌉ for a Lipschitz constant L; refused with that number.
Bound: *sequence*, from the stored weights.
Failure mode: G_i that no single layer can hold; an inner function, an aggregate and an outer function, which are three
layers (method deep has both); partitions past memory; expressions that are not defined on the box of their features,
which are taken as independent.
Example: af.sequence("sin(x*mean(x))", tokens=6, domain={"x": (-1, 1)}, eps=1e-4).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnfun.errors import Infeasible
from attnfun.kinds.sequence.network import GatherHead
from attnfun.kinds.sequence.target import Definition, SequenceMap, entry, meaning, source_name
from attnfun.language import Graph
from attnfun.language.domain import Box
from attnfun.language.ranges import range_of
from attnfun.language.slopes import change_bound, slope_bounds
from attnfun.network import rounded
from attnfun.network.literal import GAP

METHODS = ("two-layer", "deep", "one-layer-softmax", "partition")
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}


@dataclass(frozen=True)
class Feature:
    """A coordinate: the range of its meaning, how wrong it may be, and whether it keeps its sign however computed."""

    low: float
    high: float
    error: float = 0.0
    floor: bool = False
    ceiling: bool = False

    def ends(self, unit: float, tokens: int, own: bool) -> tuple[float, float]:
        """Where it may be once computed, with room to spare."""
        if own:
            return self.low, self.high
        margin = 2 * self.error + 64 * (tokens + 32) * unit * max(abs(self.low), abs(self.high))
        low, high = self.low - margin, self.high + margin
        return (max(low, 0.0) if self.floor else low), (min(high, 0.0) if self.ceiling else high)


def sources_of(target: SequenceMap) -> tuple[tuple[int, ...], ...]:
    """Which tokens every token fetches: those whose entries its row names, in one order for all that share a row."""
    n = target.tokens
    place = {entry(c, j): j for j in range(n) for c in target.box.names}
    inside = {place[v] for d in target.definitions if d.graph is not None for v in d.graph.variables if v in place}
    used = [sorted({place[v] for v in target.row(i).variables if v in place} | inside) for i in range(n)]
    if inside or len(target.rows) == 1:
        union = tuple(sorted({j for row in used for j in row}))
        return tuple(union for _ in range(n))
    if len({len(row) for row in used}) == 1 and used[0]:
        same = {meaning(target, i, row, gathered(target)) for i, row in enumerate(used)}
        if len(same) == 1:  # one function of the fetched tokens serves all
            return tuple(tuple(row) for row in used)
    others = [[j for j in row if j != i] for i, row in enumerate(used)]
    most = max(len(row) for row in others)
    return tuple(tuple(row + [i] * (most - len(row))) for i, row in enumerate(others))


def gathered(target: SequenceMap) -> tuple[str, ...]:
    return tuple(d.name for d in target.definitions if d.graph is None)


Round = tuple[list[Definition], list[Definition], bool]


def schedule(target: SequenceMap, fetch: bool) -> list[Round]:
    """The definitions in rounds: expressions that can be applied, then aggregates that can be gathered, and whether
    tokens are fetched along with these: in the first round, for expressions that name entries come after it.
    """
    have = set(target.box.names)
    entries = {entry(c, j) for j in range(target.tokens) for c in target.box.names}
    pending, rounds = list(target.definitions), list[Round]()
    while pending or fetch:
        usable = have if fetch else have | entries
        applied = [d for d in pending if d.graph is not None and set(d.graph.variables) <= usable]
        have |= {d.name for d in applied}
        aggregates = [d for d in pending if d.graph is None and set(d.args) <= have]
        have |= {d.name for d in aggregates}
        if not (applied or aggregates or fetch):
            raise Infeasible(f"{pending[0].name} needs what nothing provides")
        rounds.append((applied, aggregates, fetch))
        pending, fetch = [d for d in pending if d not in applied and d not in aggregates], False
    return rounds


def cyclic(tokens: int) -> tuple[tuple[int, ...], ...]:
    """All other tokens, beginning after the own one: then equivariant maps are one function for all tokens."""
    return tuple(tuple((i + k) % tokens for k in range(1, tokens)) for i in range(tokens))


def features(target: SequenceMap, sources: int, errors: Mapping[str, float], dtype: str) -> dict[str, Feature]:
    """Ranges of every coordinate that may be read, with the errors granted to each and what they inherit."""
    box, n = target.box, target.tokens
    found = {c: Feature(a, b, 0.0, a >= 0, b <= 0) for c, a, b in zip(box.names, box.low, box.high, strict=True)}
    for k in range(sources):
        found |= {source_name(c, k): found[c] for c in box.names}
    entries = {entry(c, j): found[c] for j in range(n) for c in box.names}
    for d in target.definitions:
        error = errors.get(d.name, 0.0)
        if d.graph is not None:
            low, high, carried = _range(d.graph, {**entries, **found})
            found[d.name] = Feature(low, high, error + carried)
            continue
        v = found[d.args[-1]]
        scale = n if d.kind == "sum" else 1
        if d.kind == "softmax_mean":  # errors of the scores, and of computing them
            score = found[d.args[0]]
            size = max(abs(score.low), abs(score.high), 1.0)
            error += (v.high - v.low) * (score.error + 128 * ROUNDOFF[dtype] * size)
        floor, ceiling = v.floor and d.kind != "min", v.ceiling and d.kind != "max"
        found[d.name] = Feature(scale * v.low, scale * v.high, error + scale * v.error, floor, ceiling)
    return found


def ideal_box(names: Sequence[str], known: Mapping[str, Feature]) -> Box:
    """The ranges of features that are computed without error."""
    return Box.parse({name: (known[name].low, known[name].high) for name in names})


def _range(graph: Graph, every: Mapping[str, Feature]) -> tuple[float, float, float]:
    """The range of an expression where its features may be, and what their errors do to it."""
    names = graph.variables
    box = Box.parse({v: every[v].ends(0.0, 0, False) for v in names})
    low, high = range_of(graph, box)[0]
    carried = change_bound(graph, box, np.array([every[v].error for v in names]), budget=200)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise Infeasible(f"the range of {graph.text(graph.outputs[0], 60)} could not be bounded on {box.text[:120]}")
    return low, high, carried if math.isfinite(carried) else high - low


def sensitivities(target: SequenceMap, graphs: Sequence[Graph], known: Mapping[str, Feature]) -> dict[str, float]:
    """How much an error of a definition moves the outputs, at most: the chain rule, backwards, with proved slopes."""
    weight = {d.name: 0.0 for d in target.definitions}

    def spread(graph: Graph, of: float) -> list[tuple[str, float]]:
        names = graph.variables
        if of == 0 or not any(name in weight for name in names):
            return []
        slopes = slope_bounds(graph, ideal_box(names, known)).max(axis=0)
        return [(name, of * float(slope)) for name, slope in zip(names, slopes, strict=True) if name in weight]

    for graph in graphs:  # rows of different tokens: the largest counts, here and below a sum is an upper bound
        for name, slope in spread(graph, 1.0):
            weight[name] = max(weight[name], slope)
    entries = {entry(c, j): known[c] for j in range(target.tokens) for c in target.box.names}
    known = {**entries, **known}
    for d in reversed(target.definitions):
        if d.graph is not None:
            for name, slope in spread(d.graph, weight[d.name]):
                weight[name] += slope
            continue
        for place, arg in enumerate(d.args):
            if arg in weight:
                score = d.kind == "softmax_mean" and place == 0
                width = known[d.args[-1]].high - known[d.args[-1]].low
                factor = width / 2 if score else target.tokens if d.kind == "sum" else 1.0
                weight[arg] += factor * weight[d.name]
    return weight


def lack(n: int) -> float:
    """c with c e^c = (n−1)/e: what the softmax average at β = 1 lacks of the maximum, at most."""
    c = 1.0
    for _ in range(80):
        c -= (c * math.exp(c) - (n - 1) / math.e) / (math.exp(c) * (1 + c))
    return max(c, 0.0)


def aggregate_head(d: Definition, names: Sequence[str], tokens: int, error: float, dtype: str) -> GatherHead:
    """The head of an aggregate; `error` is what a maximum may be off."""
    key, value, offset = np.zeros(len(names)), np.zeros((len(names), 1)), 0.0
    place = names.index(d.args[-1])
    value[place, 0] = tokens if d.kind == "sum" else 1.0
    if d.kind == "softmax_mean":
        key[names.index(d.args[0])] = 1.0
    elif d.kind in ("max", "min"):
        key[place] = sign = 1.0 if d.kind == "max" else -1.0
        if tokens > 1:
            beta = float(rounded([lack(tokens) / (2 * error)], dtype)[0]) if error > 0 else math.inf
            if not 0 < beta < math.inf:
                raise Infeasible(f"a {d.kind} to within {error:.3g} needs logits that {dtype} cannot hold")
            key[place], offset = sign * beta, sign * lack(tokens) / (2 * beta)
    shown = f"{d.kind}({', '.join(d.args)})"
    return GatherHead(shown, (d.name,), None, rounded(key, dtype), rounded(value, dtype), rounded([offset], dtype))


def copy_head(number: int, column: Sequence[int], inputs: Sequence[str], width: int, dtype: str) -> GatherHead:
    """Token i fetches token column[i], all its input coordinates."""
    n = len(column)
    scores = np.full((n, n), -(GAP[dtype] + 100.0))
    scores[np.arange(n), list(column)] = 0.0
    value = np.zeros((width, len(inputs)))
    value[: len(inputs)] = np.eye(len(inputs))
    same = len(set(column)) == 1
    name = f"copy of token {column[0] + 1}" if same else f"fetch {number + 1}"
    writes = tuple(source_name(c, number) for c in inputs)
    return GatherHead(name, writes, scores, np.zeros(width), value, np.zeros(len(inputs)))


@dataclass(frozen=True)
class PartitionSize:
    """The published size of a partition of [−B, B]^{dn}: P cells an axis, Lipschitz constant L (Euclidean norm)."""

    lipschitz: float
    per_axis: float
    dimension: int

    @property
    def cells(self) -> float:
        return math.inf if self.dimension * math.log10(max(self.per_axis, 1)) > 300 else self.per_axis**self.dimension


def partition_size(graphs: Sequence[Graph], box: Box, tokens: int, eps: float) -> PartitionSize:
    """P = ⌈B L √(dn)/ε⌉ with a proved L, for the expressions of all tokens in all d n entries."""
    half = float(np.max(box.high_array - box.low_array)) / 2
    constant = 0.0
    for graph in graphs:
        names = graph.variables
        if names:
            ends = dict(zip(box.names, zip(box.low, box.high, strict=True), strict=True))
            whole = Box.parse({v: ends[v if v in box.names else v.rpartition("_source")[0]] for v in names})
            constant = max(constant, float(np.sqrt((slope_bounds(graph, whole, 40) ** 2).sum(axis=1)).max()))
    dimension = tokens * box.dim
    per_axis = math.ceil(half * constant * math.sqrt(dimension) / eps - 1e-9) if math.isfinite(constant) else math.inf
    return PartitionSize(constant, max(1.0, float(per_axis)), dimension)
