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
Size: (i) one head per aggregate and per token fetched; then what G_i takes as a function of F_i: d n variables at most,
in an equivariant map often two. (iii) P^{dn} keys, P = ⌈B L √(dn)/ε⌉ for a Lipschitz constant L; refused with that
number.
Bound: *sequence*, from the stored weights.
Failure mode: G_i that no single layer can hold; an inner function, an aggregate and an outer function, which are three
layers (method deep has both); partitions past memory; expressions that are not defined on the box of their features,
which are taken as independent.
Example: af.sequence("sin(x*mean(x))", tokens=6, domain={"x": (-1, 1)}, eps=1e-4).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.errors import Infeasible, InvalidRequest, feasible
from attnfun.kinds.function.build import Request, choose
from attnfun.kinds.function.verb import compile
from attnfun.kinds.sequence.network import Apply, Gather, GatherHead, SequenceNetwork, Spread
from attnfun.kinds.sequence.prove import output_name
from attnfun.kinds.sequence.target import Definition, SequenceMap, entry, meaning, source_name
from attnfun.language import Box, Graph
from attnfun.language.definedness import require_defined
from attnfun.language.function import Function
from attnfun.language.ranges import range_of
from attnfun.language.slopes import change_bound, slope_bounds
from attnfun.network import Network, rounded
from attnfun.network.literal import GAP
from attnfun.search import Proposal, Proposals, Say

METHODS = ("two-layer", "deep", "one-layer-softmax", "partition")
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
_SHARES = (0.9, 0.9, 0.5, 0.2)  # of eps, given to the parts of the network; at the first try they are not proved alone
_FEATURES = 64  # variables of a function
_REFUSE = 200.0  # how many times past the limit a published partition may be before ours is not even sized


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
            feasible(0 < beta < math.inf, f"a {d.kind} to within {error:.3g} needs logits that {dtype} cannot hold")
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
    """The published size of a partition of [−B, B]^{dn}: P cells per axis, Lipschitz constant L (Euclidean norm)."""

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


# --- stage by stage: the networks that a method proposes, with less and less of eps for their parts


class Stages:
    """One method's attempt at one target."""

    def __init__(
        self, target: SequenceMap, request: Mapping[str, Any], method: str, each: int | None, max_keys: int, say: Say
    ) -> None:
        self.target, self.method, self.each, self.max_keys, self.say = target, method, each, max_keys, say
        self.eps, self.dtype, self.seed = (request[name] for name in ("eps", "dtype", "seed"))
        self.story: dict[str, str] = {}  # `each`: layers that an expression may take

    def proposals(self, dress: Callable[[Proposal], Proposal]) -> Proposals:
        """Networks, dressed as other weights, with less and less of eps for the parts, as long as that may help."""
        needed = _layers_of(self.target)
        if self.method == "one-layer-softmax" and (
            any(d.graph is not None for d in self.target.definitions) or len(schedule(self.target, False)) > 1
        ):
            raise Infeasible(
                "an expression or an aggregate inside an aggregate is worked out before it is gathered: more than one "
                "attention layer and a softmax",
                {"method": "two-layer" if len(needed) <= 2 else "deep"},
            )
        if self.method == "two-layer" and len(needed) > 2:
            count = {3: "three", 4: "four", 5: "five"}.get(len(needed), str(len(needed)))
            raise Infeasible(f"needs {count}: {', '.join(needed)}", {"method": "deep"})
        spread = self.method == "partition"
        self.sources = cyclic(self.target.tokens) if spread else sources_of(self.target)
        self.gathered = () if spread else gathered(self.target)
        n = self.target.tokens
        graphs = [meaning(self.target, i, self.sources[i], self.gathered) for i in range(n)]
        self.graphs = list(dict.fromkeys(graphs))
        self.of_token = tuple(self.graphs.index(graph) for graph in graphs)
        if spread:
            self._require_size()
        for attempt, share in enumerate(_SHARES):
            self.quick = attempt == 0
            try:
                network = self._network(share)
            except InvalidRequest:
                if self.quick:
                    raise
                return
            if self.method == "two-layer" and network.layers > 2:
                raise Infeasible(f"{network.layers} attention layers were built", {"method": "deep"})
            self.say("proof of the whole")
            high = (yield dress(Proposal(network, self.method, self.story))).error[1]
            unproved = self.quick and not math.isfinite(high)  # a part may be; next it is proved alone
            if not unproved and not high < 100 * self.eps:
                return  # less of eps for the parts will not help

    def _require_size(self) -> None:
        """Refuse a partition whose published size is far past memory before anything else is done."""
        size = partition_size(self.graphs, self.target.box, self.target.tokens, self.eps)
        shown = f"{size.per_axis:,.0f}^{size.dimension} = {size.cells:.2g}"
        self.story["published size"] = (
            f"{shown} cells (Lipschitz constant {size.lipschitz:.3g}) over the {size.dimension} entries"
        )
        if not size.cells * len(self.graphs) <= _REFUSE * self.max_keys:
            fit = self.max_keys ** (1 / size.dimension)
            near = self.eps * size.per_axis / max(1.0, math.floor(fit))
            raise Infeasible(
                f"a partition of the {size.dimension} entries needs {shown} cells as published (Lipschitz constant "
                f"{size.lipschitz:.3g}); at most {self.max_keys:,} are built",
                {"eps": float(f"{near * 1.05:.2g}")} if math.isfinite(near) else {"method": "deep"},
            )

    def _network(self, share: float) -> SequenceNetwork:
        """Stages in order: expressions that can be applied, what can be gathered, and so on; then the outputs."""
        target, inputs = self.target, self.target.box.names
        errors, final = self._tolerances(share)
        self.known = features(target, len(self.sources[0]), errors, self.dtype)
        stages: list[Any] = []
        have = list(inputs)
        spread = self.method == "partition"
        if spread and self.sources[0]:
            stages.append(Spread(inputs, self.sources))
        for applied, aggregates, fetches in [] if spread else schedule(target, bool(self.sources[0])):
            if applied:
                names = tuple(d.name for d in applied)
                graph = meaning(target, 0, self.sources[0], [d for d in self.gathered if d in have], names)
                network = self._compiled(graph, min(errors[name] for name in names))
                stages.append(Apply((network,), (0,) * target.tokens, names))
                have += names
            columns = list(zip(*self.sources, strict=True)) if fetches else []
            heads = [copy_head(k, column, inputs, len(have), self.dtype) for k, column in enumerate(columns)]
            heads += [aggregate_head(d, have, target.tokens, errors[d.name], self.dtype) for d in aggregates]
            if heads:
                stages.append(Gather(tuple(heads)))
                have += [name for head in heads for name in head.writes]
        networks = tuple(self._compiled(graph, final) for graph in self.graphs)
        outputs = tuple(output_name(o) for o in range(target.outputs))
        stages.append(Apply(networks, self.of_token, outputs))
        box = target.box.low_array, target.box.high_array
        return SequenceNetwork(inputs, target.tokens, tuple(stages), outputs, box, self.dtype)

    def _tolerances(self, share: float) -> tuple[dict[str, float], float]:
        """What every definition may be off, and what is left for the outputs: equal shares, by sensitivity."""
        target = self.target
        if self.method == "partition":
            return {}, share * self.eps
        inexact = [d.name for d in target.definitions if d.graph is not None or d.kind in ("max", "min")]
        errors = dict.fromkeys((d.name for d in target.definitions), 0.0)
        if not inexact:
            return errors, share * self.eps
        known = features(target, len(self.sources[0]), {}, self.dtype)
        for graph in self.graphs:
            names = graph.variables
            if names:
                box = ideal_box(names, known)
                require_defined(Function.read(graph, box).graph or graph, box)
        weight = sensitivities(target, self.graphs, known)
        affine = all(_is_affine(graph) for graph in self.graphs)
        part = (0.98 if affine else 0.35) * share * self.eps / len(inexact)
        for name in inexact:
            if not math.isfinite(weight[name]):
                raise Infeasible(f"the outputs depend on {name} with an infinite derivative somewhere on the box")
            size = max(abs(known[name].low), abs(known[name].high), 1e-300)
            errors[name] = min(part / weight[name], size) if weight[name] > 0 else size
        return errors, (0.02 if affine else 0.6) * share * self.eps

    def _compiled(self, graph: Graph, eps: float) -> Network:
        """The network of one expression on the box of its features, by the constructions for functions."""
        names = graph.variables or self.target.box.names
        if len(names) > _FEATURES:
            raise Infeasible(f"a token would have to read {len(names)} numbers; at most {_FEATURES} are supported")
        own = set(self.target.box.names)
        n, unit = self.target.tokens, ROUNDOFF[self.dtype]
        box = Box.parse({name: self.known[name].ends(unit, n, name in own) for name in names})
        function = Function.of(graph, box, tuple(f"f{o + 1}" for o in range(len(graph.outputs))))
        eps = max(eps, 1e-290)
        one_softmax = {"partition": ("partition",), "one-layer-softmax": ("bernstein", "partition")}
        reasons: list[str] = []
        for way in one_softmax.get(self.method, ("auto",)):
            try:
                return self._by(way, function, eps)
            except Infeasible as why:
                reasons.insert(0, str(why))
        # what would do for this part is no request for the whole
        raise Infeasible("; ".join(reasons), None if self.method == "deep" else {"method": "deep"})

    def _by(self, way: str, function: Function, eps: float) -> Network:
        """A network by a construction for functions; unproved at the first try, the proof of the whole follows.

        "partition" and "bernstein": one head of constant keys, nothing beside it, so a softmax and a linear read-out.
        """
        limits: dict[str, Any] = {"max_keys": self.max_keys}
        if way == "auto" and self.each is not None:
            limits["max_layers"] = self.each
        if self.quick:
            require_defined(function.formula, function.box)
            request = Request(function, eps, math.inf, self.dtype, self.seed, **limits)
            construction, plan = choose(request, way).plans[0]
            self.say(f"building {plan.keys:,} keys ({construction.name})")
            with suppress(InvalidRequest):  # weights that the dtype cannot hold
                return construction.build(request, plan)
        options: dict[str, Any] = {"dtype": self.dtype, "seed": self.seed, "progress": self.say, **limits}
        return compile(function, function.box, eps, method=way, **options).network


def attempts(target: SequenceMap, method: str) -> list[tuple[str, int | None]]:
    """Methods in order, each with the layers that an expression may take: deep has whatever two-layer would have."""
    if method == "auto":
        more = [] if len(_layers_of(target)) <= 2 else [("deep", 1)]
        return [("two-layer", 1), *more, ("deep", None)]
    return [("deep", None), ("deep", 1)] if method == "deep" else [(method, 1)]


def _layers_of(target: SequenceMap) -> list[str]:
    """What the layers are for, one attention layer each, where every expression is one: affine ones take none."""
    sources = sources_of(target)
    out = []
    for applied, aggregates, fetches in schedule(target, bool(sources[0])):
        if any(not _is_affine(d.graph) for d in applied if d.graph is not None):
            out.append("inner function")
        if aggregates or fetches:
            out.append("aggregate" if aggregates else "copies of tokens")
    rows = {meaning(target, i, sources[i], gathered(target)) for i in range(target.tokens)}
    if not all(_is_affine(row) for row in rows) or (len(rows) > 1 and any(row.variables for row in rows)):
        out.append("outer function")
    return out


def _is_affine(graph: Graph) -> bool:
    """Built from sums and products with constants alone."""
    constant = [False] * len(graph.nodes)
    for i, node in enumerate(graph.nodes):
        parts = [constant[a] for a in node.args]
        constant[i] = node.op in ("const", "pi", "e") or (bool(parts) and all(parts))
        if constant[i] or node.op in ("var", "neg", "add", "sub"):
            continue
        if not (node.op == "mul" and any(parts)) and not (node.op == "div" and parts[1]):
            return False
    return True
