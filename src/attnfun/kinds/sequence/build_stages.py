"""Sequence maps, stage by stage: the networks that a method proposes, with less and less of eps for their parts."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.kinds.function.build import Request, choose
from attnfun.kinds.function.verb import compile
from attnfun.kinds.sequence.build import (
    ROUNDOFF,
    aggregate_head,
    copy_head,
    cyclic,
    features,
    gathered,
    ideal_box,
    partition_size,
    schedule,
    sensitivities,
    sources_of,
)
from attnfun.kinds.sequence.network import Apply, Gather, SequenceNetwork, Spread
from attnfun.kinds.sequence.prove import output_name
from attnfun.kinds.sequence.target import SequenceMap, meaning
from attnfun.language import Graph
from attnfun.language.definedness import require_defined
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.network import Network
from attnfun.search import Proposal, Proposals, Say

_SHARES = (0.9, 0.9, 0.5, 0.2)  # of eps, given to the parts of the network; at the first try they are not proved alone
_FEATURES = 64  # variables of a function
_REFUSE = 200.0  # how many times past the limit a published partition may be before ours is not even sized


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
            assert function.graph is not None
            require_defined(function.graph, function.box)
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
