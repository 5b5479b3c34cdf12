"""Sequence maps, put together: `sequence` (a request to a proved network), its file, and its proof anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from attnfun.certify import Certificate, Status
from attnfun.certify.sequence import output_name, prove_by_sequence
from attnfun.certify.stored import read_back, story_of
from attnfun.errors import DamagedFile, Infeasible, InvalidRequest
from attnfun.expressions import Graph
from attnfun.gate import Gate, require_sup
from attnfun.network import (
    Apply,
    Gather,
    Network,
    SequenceNetwork,
    Spread,
    load_sequence,
)
from attnfun.network.claim import Claim
from attnfun.network.sealed import Source
from attnfun.sequence_approximant import SequenceApproximant
from attnfun.targets import Box, Function, SequenceMap, require_defined
from attnfun.targets.sequence import meaning
from attnfun.verbs import check_request, compile, one_thread

Say = Callable[[str], None]
_SHARES = (0.9, 0.9, 0.5, 0.2)  # of eps, given to the parts of the network; at the first try they are not proved alone
_FEATURES = 64  # variables of a function
_REFUSE = 200.0  # how many times past the limit a published partition may be before ours is not even sized


def sequence(
    target: Any,
    tokens: int,
    domain: Any,
    eps: float,
    *,
    method: str = "auto",
    dtype: str = "float64",
    seed: int = 0,
    max_keys: int = 1_000_000,
    progress: Say | None = None,
) -> SequenceApproximant:
    """A softmax-attention network within `eps` of a sequence map, in every entry and for every sequence of the box.

    `target`: an expression or a list of them (outputs of every token), or one list a token (see `targets.SequenceMap`
    for the language: own coordinates `x`, entries `x_3`, mean, sum, max, min, softmax_mean). `method`: two-layer (at
    most two attention layers), deep (any number), one-layer-softmax (one attention layer, then one softmax over
    constant keys, which is a layer too where layers are counted), partition, or auto (two-layer where it fits, else
    deep). Infeasible with the number where a construction does not fit.
    """
    from attnfun.constructions.sequence import METHODS

    check_request(eps, dtype, seed)
    if method not in ("auto", *METHODS):
        raise InvalidRequest(f"method={method!r}: the methods are auto, {', '.join(METHODS)}")
    if isinstance(max_keys, bool) or not isinstance(max_keys, (int, np.integer)) or max_keys < 1:
        raise InvalidRequest(f"max_keys={max_keys!r}: a whole number is needed")
    asked = SequenceMap.read(target, domain, tokens)
    say = progress or (lambda _text: None)
    request = {"eps": float(eps), "method": method, "dtype": dtype, "seed": int(seed), "tokens": asked.tokens}
    reasons: list[str] = []
    nearest: Mapping[str, Any] | None = None
    with one_thread():
        for name, each in _attempts(asked, method):
            builder = _Build(asked, float(eps), name, each, dtype, int(seed), int(max_keys), say)
            try:
                network, certificate = builder.search()
            except Infeasible as why:
                reasons.append(f"{name}: {why}")
                if method != "auto" or "method" not in (why.nearest or {}):  # auto has tried them all
                    nearest = why.nearest or nearest
                continue
            story = {"not taken": "; ".join(reasons)[:300]} if reasons else {}
            return SequenceApproximant(asked, network, certificate, request, story | builder.story)
    raise Infeasible("; ".join(reasons), nearest)


def _attempts(target: SequenceMap, method: str) -> list[tuple[str, int | None]]:
    """Methods in order, each with the layers that an expression may take: deep has whatever two-layer would have."""
    if method == "auto":
        more = [] if len(_layers_of(target)) <= 2 else [("deep", 1)]
        return [("two-layer", 1), *more, ("deep", None)]
    return [("deep", None), ("deep", 1)] if method == "deep" else [(method, 1)]


def _layers_of(target: SequenceMap) -> list[str]:
    """What the layers are for, one attention layer each, where every expression is one: affine ones take none."""
    from attnfun.constructions.sequence import gathered, schedule, sources_of

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


class _Build:
    """One method's attempt at one target."""

    def __init__(
        self,
        target: SequenceMap,
        eps: float,
        method: str,
        each: int | None,
        dtype: str,
        seed: int,
        max_keys: int,
        say: Say,
    ):
        self.target, self.eps, self.method, self.dtype, self.seed = target, eps, method, dtype, seed
        self.each, self.max_keys, self.say = each, max_keys, say  # `each`: layers that an expression may take
        self.story: dict[str, str] = {}

    def search(self) -> tuple[SequenceNetwork, Certificate]:
        """Build and prove, with less and less of eps for the parts; refuse with what was reached."""
        from attnfun.constructions.sequence import cyclic, gathered, schedule, sources_of

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
            raise Infeasible(f"needs {_counted(len(needed))}: {', '.join(needed)}", {"method": "deep"})
        spread = self.method == "partition"
        self.sources = cyclic(self.target.tokens) if spread else sources_of(self.target)
        self.gathered = () if spread else gathered(self.target)
        n = self.target.tokens
        graphs = [meaning(self.target, i, self.sources[i], self.gathered) for i in range(n)]
        self.graphs = list(dict.fromkeys(graphs))
        self.of_token = tuple(self.graphs.index(graph) for graph in graphs)
        if spread:
            self._require_size()
        best: Certificate | None = None
        for attempt, share in enumerate(_SHARES):
            self.quick = attempt == 0
            try:
                network = self._network(share)
            except InvalidRequest as why:
                if best is None:
                    raise
                raise Infeasible(f"eps={self.eps:.3g} could not be proved: {best.reason}") from why
            if self.method == "two-layer" and network.layers > 2:
                raise Infeasible(f"{network.layers} attention layers were built", {"method": "deep"})
            self.say("proof of the whole")
            certificate = prove_by_sequence(
                network, self.target, eps=self.eps, construction=self.method, report=self.say
            )
            if certificate.status is Status.PROVED:
                return network, certificate
            best = certificate
            unproved = self.quick and not math.isfinite(certificate.error[1])  # a part may be; next it is proved alone
            if not unproved and not certificate.error[1] < 100 * self.eps:
                break  # less of eps for the parts will not help
        assert best is not None
        reached = best.error[1]
        hint = {"eps": float(f"{reached * 1.05:.2g}")} if reached < 1e3 * self.eps else None
        raise Infeasible(f"eps={self.eps:.3g} could not be proved: {best.reason}", hint)

    def _require_size(self) -> None:
        """Refuse a partition whose published size is far past memory before anything else is done."""
        from attnfun.constructions.sequence import partition_size

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
        from attnfun.constructions.sequence import aggregate_head, copy_head, features, schedule

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
            heads = []
            for k in range(len(self.sources[0]) if fetches else 0):
                column = [row[k] for row in self.sources]
                heads.append(copy_head(k, column, inputs, len(have), self.dtype))
            for d in aggregates:
                heads.append(aggregate_head(d, have, target.tokens, errors[d.name], self.dtype))
            if heads:
                stages.append(Gather(tuple(heads)))
                have += [name for head in heads for name in head.writes]
        networks = tuple(self._compiled(graph, final) for graph in self.graphs)
        outputs = tuple(output_name(o) for o in range(target.outputs))
        stages.append(Apply(networks, self.of_token, outputs))
        return SequenceNetwork(inputs, target.tokens, tuple(stages), outputs, self.dtype)

    def _tolerances(self, share: float) -> tuple[dict[str, float], float]:
        """What every definition may be off, and what is left for the outputs: equal shares, by sensitivity."""
        from attnfun.constructions.sequence import features, sensitivities

        target = self.target
        if self.method == "partition":
            return {}, share * self.eps
        inexact = [d.name for d in target.definitions if d.graph is not None or d.kind in ("max", "min")]
        if not inexact:
            return dict.fromkeys((d.name for d in target.definitions), 0.0), share * self.eps
        known = features(target, len(self.sources[0]), {}, self.dtype)
        for graph in self.graphs:
            names = graph.variables
            if names:
                box = Box(names, tuple(known[v].low for v in names), tuple(known[v].high for v in names))
                require_defined(Function.read(graph, box).graph or graph, box)
        weight = sensitivities(target, self.graphs, known)
        affine = all(_is_affine(graph) for graph in self.graphs)
        part = (0.98 if affine else 0.35) * share * self.eps / len(inexact)
        errors = dict.fromkeys((d.name for d in target.definitions), 0.0)
        for name in inexact:
            if not math.isfinite(weight[name]):
                raise Infeasible(f"the outputs depend on {name} with an infinite derivative somewhere on the box")
            size = max(abs(known[name].low), abs(known[name].high), 1e-300)
            errors[name] = min(part / weight[name], size) if weight[name] > 0 else size
        return errors, (0.02 if affine else 0.6) * share * self.eps

    def _compiled(self, graph: Graph, eps: float) -> Network:
        """The network of one expression on the box of its features, by the constructions for functions."""
        from attnfun.constructions.sequence import ROUNDOFF

        names = graph.variables or self.target.box.names
        if len(names) > _FEATURES:
            raise Infeasible(f"a token would have to read {len(names)} numbers; at most {_FEATURES} are supported")
        own = set(self.target.box.names)
        n, unit = self.target.tokens, ROUNDOFF[self.dtype]
        ends = [self.known[name].ends(unit, n, name in own) for name in names]
        box = Box(tuple(names), tuple(a for a, _ in ends), tuple(b for _, b in ends))
        function = Function.of(graph, box, tuple(f"f{o + 1}" for o in range(len(graph.outputs))))
        common: dict[str, Any] = {"dtype": self.dtype, "seed": self.seed, "progress": self.say}
        common["max_keys"] = self.max_keys
        eps = max(eps, 1e-290)
        try:
            if self.method in ("partition", "one-layer-softmax"):
                return self._one_softmax(function, eps, common)
            if self.each is not None:
                common["max_layers"] = self.each
            return self._by("auto", function, eps, common)
        except Infeasible as why:  # what would do for this part is no request for the whole
            raise Infeasible(str(why), None if self.method == "deep" else {"method": "deep"}) from why

    def _by(self, method: str, function: Function, eps: float, common: dict[str, Any]) -> Network:
        """A network by a construction for functions; unproved at the first try, the proof of the whole follows."""
        if self.quick:
            from attnfun.constructions import Request, choose

            limits = {key: common[key] for key in ("max_keys", "max_layers") if key in common}
            assert function.graph is not None
            require_defined(function.graph, function.box)
            request = Request(function, eps, math.inf, self.dtype, self.seed, **limits)
            construction, plan = choose(request, method).plans[0]
            self.say(f"building {plan.keys:,} keys ({construction.name})")
            with suppress(InvalidRequest):  # weights that the dtype cannot hold
                return construction.build(request, plan)
        return compile(function, function.box, eps, method=method, **common).network

    def _one_softmax(self, function: Function, eps: float, common: dict[str, Any]) -> Network:
        """One head of constant keys, nothing beside it: a softmax and a linear read-out."""
        reasons = []
        for method in ("partition",) if self.method == "partition" else ("bernstein", "partition"):
            try:
                return self._by(method, function, eps, common)
            except Infeasible as why:
                reasons.append(str(why))
        raise Infeasible("; ".join(reversed(reasons)))


def _counted(count: int) -> str:
    return {3: "three", 4: "four", 5: "five"}.get(count, f"{count}")


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


def load_sequence_approximant(path: Source) -> SequenceApproximant:
    """What `save` wrote; the certificate is the stored one, not proved anew."""
    network, meta = load_sequence(path)
    target = _target(network, meta)
    certificate, request, _ = read_back(meta, network.dtype, target.text, f"{target.box.text}, {target.tokens} tokens")
    return SequenceApproximant(target, network, certificate, request, story_of(meta))


def verify_sequence(path: Source, gate: Gate, progress: Say | None = None) -> Certificate:
    """Prove the bound again from the stored weights and the stored target alone."""
    network, meta = load_sequence(path, ignore=("certificate",))
    stored, claim = _target(network, meta), Claim.of(meta)
    require_sup(claim)
    eps = gate.tolerance(claim, network.dtype)

    def read(target: Any) -> tuple[Any, str]:
        other = SequenceMap.read(target, stored.box, stored.tokens)
        return other, other.text

    gate.compare(stored.box, stored.text, stored, read)
    name = _construction(network, str(claim.request(meta.get("request")).get("method", "")))
    return prove_by_sequence(network, stored, eps=eps, construction=name, report=progress)


def _construction(network: SequenceNetwork, asked: str) -> str:
    """The construction a stored network came from, as far as it shows: a name and no part of the proof."""
    if any(isinstance(stage, Spread) for stage in network.stages):
        return "partition"
    if network.layers > 2:
        return "deep"
    return "one-layer-softmax" if asked == "one-layer-softmax" else "two-layer"


def _target(network: SequenceNetwork, meta: Mapping[str, Any]) -> SequenceMap:
    try:
        box = Box.parse(str(meta["domain"]))
    except (KeyError, InvalidRequest):
        raise DamagedFile("the file's domain cannot be read") from None
    target = SequenceMap.from_json(meta.get("target"), box)
    if network.inputs != box.names or network.tokens != target.tokens or len(network.outputs) != target.outputs:
        raise DamagedFile("the file's network does not fit its target or its domain")
    return target
