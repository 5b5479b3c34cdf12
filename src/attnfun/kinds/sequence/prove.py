"""Method *sequence*: networks on n tokens, stage by stage, every coordinate against what its name means in the target.

1. A gather head that writes the name of an aggregate is compared with that aggregate of the coordinates it names
   (`prove_gathering`); one that copies tokens is read from its weights: which token every token fetches, how exactly.
2. A network applied at token i must be G_i, the target's expression for what it writes, with every entry x_j replaced
   by the coordinate that holds token j at token i, and every aggregate by its coordinate if a stage has gathered it,
   else written out over all tokens. G_i comes from the stored target alone. The features may be anywhere in the box B
   of their proved ranges widened by their errors (they depend on each other; a box is a superset), so

       |N_i(F̂) − G_i(F)|  ≤  sup_B |N_i − G_i|  +  sup { |G_i(a) − G_i(b)| : |a_k − b_k| ≤ E_k }  +  rounding,

   the first by `prove`, rounding of the network included, the second from the target's own slopes and oscillation
   (`language/slopes`).
3. What is computed stage by stage and as plain self-attention differs by a few roundings of the read-out's terms: where
   networks differ from token to token the affine part passes through a head of its own. γ_40 of these terms is added.

The bound is the largest over outputs and tokens. The lower end is the error *as computed* by the reference evaluation
at one sequence, the target in balls.
Failure modes: Undecided where a network is given a name that the target does not have, where features are missing,
where the dtype cannot hold a coordinate, where an expression is not defined on the whole box of its features (they are
taken as independent).
"""

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from flint import arb

from attnfun.certify.rounding import LARGEST, ROUNDOFF, TINY, gamma, hypotheses
from attnfun.certify.verdict import Proof, undecided
from attnfun.certify.view import Array, Undecided, provided
from attnfun.errors import AttnfunError, present
from attnfun.kinds.function.prove import prove
from attnfun.kinds.sequence.network import Apply, Gather, SequenceNetwork, Spread, TokenSequence
from attnfun.kinds.sequence.prove_gathering import Known, aggregate, copies, widened
from attnfun.kinds.sequence.target import OfTokens, SequenceMap, meaning, run_sequence, source_name
from attnfun.language import BallAlgebra, Box, Graph, precision
from attnfun.language.enclosures import abs_lower
from attnfun.language.function import Function
from attnfun.language.numbers import at_least
from attnfun.language.ranges import range_of
from attnfun.language.slopes import change_bound, summands
from attnfun.network import Network
from attnfun.search import Goal, Say

_PROBES = 2000
_BOXES = 1500


def output_name(number: int) -> str:
    """The coordinate that holds output `number` (from 0) of every token."""
    return f"output {number + 1}"


@dataclass(frozen=True)
class Part:
    """What is proved of one network at the tokens that it serves, and of what its inputs bring with them."""

    construction: float
    carried: float
    rounding: float
    method: str
    known: tuple[Known, ...]

    @property
    def total(self) -> float:
        return math.nextafter((self.construction + self.carried + self.rounding) * (1 + 1e-12), math.inf)


class SequenceProof:
    """The walk over the stages of one network."""

    def __init__(self, network: SequenceNetwork, target: SequenceMap, eps: float | None, say: Say):
        self.network, self.target, self.eps, self.say = network, target, eps, say
        self.n, self.memory, self.dtype = target.tokens, network.cost.keys, network.dtype
        self.definitions = {d.name: d for d in target.definitions}
        self.known: dict[str, Known] = {}
        u = ROUNDOFF[self.dtype] if self.dtype == "float32" else 0.0  # float32 rounds the inputs first
        for name, low, high in zip(target.box.names, target.box.low, target.box.high, strict=True):
            error = u * max(abs(low), abs(high)) * (1 + 1e-9)
            self.known[name] = widened(low, high, error, low >= 0, high <= 0)
        self.sources: list[list[int]] = [[] for _ in range(self.n)]
        self.parts: list[tuple[str, Part]] = []

    def prove(self) -> Part:
        """The worst part of the outputs; Undecided where something cannot be proved."""
        outputs = tuple(output_name(o) for o in range(self.target.outputs))
        if self.network.inputs != self.target.box.names or self.network.tokens != self.n:
            raise Undecided("the network's tokens are not those of the target")
        low, high = self.network.box  # for inputs outside of it the literal form may shut out too little
        if not (np.all(low <= self.target.box.low_array) and np.all(high >= self.target.box.high_array)):
            raise Undecided("the network was made for a smaller box than the target's")
        provided(self.network.outputs == outputs, "the network's outputs are not those of the target")
        self._require_held()
        worst: Part | None = None
        for stage in self.network.stages:
            if isinstance(stage, Spread):
                for i, row in enumerate(stage.sources):
                    self.sources[i].extend(row)
                for name in stage.writes:
                    self.known[name] = self.known[self._input_of(name)]
            elif isinstance(stage, Gather):
                self._gather(stage)
            elif stage.writes == outputs:
                worst = max(self._parts(stage, final=True), key=lambda part: part.total)
            else:
                self._inner(stage)
            self._require_held()
        return present(worst, Undecided("no stage writes the outputs"))

    def _require_held(self) -> None:
        """No coordinate may overflow, read or not: 0 times infinity is no 0."""
        for name, known in self.known.items():
            # NaN must not pass
            provided(known.size < LARGEST[self.dtype], f"{self.dtype} cannot hold all values of {name}")

    def _input_of(self, name: str) -> str:
        found = [c for c in self.target.box.names for k in range(self.n) if source_name(c, k) == name]
        if len(found) != 1 or name in self.definitions or name in self.known:
            raise Undecided(f"{name} is no coordinate of a token that is fetched")
        return found[0]

    def _gather(self, stage: Gather) -> None:
        names = list(self.known)
        before = list(self.known.values())
        provided(names == list(self.network.coordinates[: len(names)]), "the stream does not hold what its names say")
        new: dict[str, Known] = {}
        fetched = len(self.sources[0])
        for head in stage.heads:
            definition = self.definitions.get(head.writes[0])
            if definition is not None and definition.graph is None:
                provided(set(definition.args) <= set(names), f"{definition.name} is gathered before its argument")
                places = tuple(names.index(a) for a in definition.args)
                new[definition.name] = aggregate(head, definition.kind, places, before, self.dtype, self.n, self.memory)
                continue
            wanted = tuple(source_name(c, fetched) for c in self.target.box.names)
            if head.writes != wanted or set(wanted) & (set(self.definitions) | set(self.known)):
                raise Undecided(f"gather head {head.name} writes {', '.join(head.writes)[:80]}, which the target lacks")
            row, found = copies(head, before, self.target.box.dim, self.dtype, self.n, self.memory)
            for i, j in enumerate(row):
                self.sources[i].append(j)
            fetched += 1
            new |= dict(zip(wanted, found, strict=True))
        self.known |= new

    def _parts(self, stage: Apply, final: bool) -> list[Part]:
        """One part for every different pair of network and meaning."""
        seen: dict[tuple[int, Graph], Part] = {}
        gathered = [d for d, what in self.definitions.items() if d in self.known and what.graph is None]
        for token, number in enumerate(stage.of_token):
            graph = meaning(self.target, token, self.sources[token], gathered, () if final else stage.writes)
            if (number, graph) not in seen:
                self.say(f"proof of {', '.join(stage.writes)[:40]}, token {token + 1}")
                seen[number, graph] = self._applied(stage.networks[number], graph, final)
        self.parts += [("output" if final else ", ".join(stage.writes), part) for part in seen.values()]
        return list(seen.values())

    def _inner(self, stage: Apply) -> None:
        for name in stage.writes:
            if name not in self.definitions or self.definitions[name].graph is None:
                raise Undecided(f"a network writes {name}, which is not an expression of the target")
        parts = self._parts(stage, final=False)
        worst = max(part.total for part in parts)
        for o, name in enumerate(stage.writes):
            low, high = min(p.known[o].low for p in parts), max(p.known[o].high for p in parts)
            provided(all(map(math.isfinite, (low, high, worst))), f"{name} could not be bounded")
            self.known[name] = widened(low, high, worst, False, False)

    def _applied(self, network: Network, graph: Graph, final: bool) -> Part:
        names = network.inputs
        provided(set(names) <= set(self.known), "a network reads coordinates that nothing has written")
        if not set(graph.variables) <= set(names):
            missing = sorted(set(graph.variables) - set(names))
            raise Undecided(f"a network does not read {', '.join(missing)[:80]}, which its meaning depends on")
        own = set(self.target.box.names)  # their rounding is the network's own, see `rounding`
        read = {c: self.known[c] for c in names}
        ends = {c: (k.low, k.high) if c in own else (k.least, k.most) for c, k in read.items()}
        errors = np.array([0.0 if c in own else k.error for c, k in read.items()])
        function = Function.of(graph, Box.parse(ends), network.outputs)
        carried = _carried(function.formula, function.box, errors, 1e-3 * (self.eps or 0.0))
        provided(math.isfinite(carried), "what the errors of the features do to the target could not be bounded")
        allowance = _regrouping(network, self.n + self.memory)
        rest = None if self.eps is None or not final else self.eps - carried - allowance
        goal = rest if rest is not None and rest > 0 else None
        certificate = prove(network, function, eps=goal, report=self.say)
        provided(math.isfinite(certificate.error[1]), certificate.reason or "a network could not be proved")
        rounding = float(certificate.parts.get("rounding", 0.0))
        construction = math.nextafter(max(certificate.error[1] - rounding, 0.0), math.inf)
        spans = [] if final else range_of(function.formula, function.box)
        ranges = tuple(widened(a, b, 0.0, False, False) for a, b in spans)
        return Part(construction, carried, rounding + allowance, certificate.method, ranges)


def _carried(graph: Graph, box: Box, errors: Array, enough: float) -> float:
    """What errors of the features do to the outputs: as a whole, or summand by summand where that is smaller (the
    oscillation of one summand is not that of all variables).
    """
    whole = change_bound(graph, box, errors, enough, _BOXES)
    if whole <= max(enough, 1e-12):
        return whole
    worst = 0.0
    for output in graph.outputs:
        total = 0.0
        found = Counter(summands(graph, output))
        budget = min(_BOXES, 4 * _BOXES // len(found))  # of all summands together, four of which may be hard
        for node, times in found.items():
            alone = graph.reachable([node])
            used = [k for k, name in enumerate(box.names) if name in set(alone.variables)]
            if used:
                part = Box.parse({box.names[k]: (box.low[k], box.high[k]) for k in used})
                total += times * change_bound(alone, part, errors[used], enough, budget)
        worst = max(worst, total * (1 + 1e-12))
    return min(whole, worst)


def _regrouping(network: Network, tokens: int) -> float:
    """γ of the terms of the read-out: what differs between evaluation by stages and as plain self-attention, where a
    kernel may rescale its sums once for every further 64 of all tokens.
    """
    u = ROUNDOFF[network.dtype]
    low, high = network.ranges
    size = np.maximum(np.abs(low), np.abs(high))
    terms = np.abs(network.readout) @ size + np.abs(network.readout_bias)
    count = network.readout.shape[1] + 40 + 10 * (tokens // 64)
    return float(terms.max()) * gamma(count, u) * (1 + 1e-9) + count * TINY[network.dtype]


def proof(target: SequenceMap, weights: SequenceNetwork | TokenSequence, goal: Goal, say: Say) -> Proof:
    """What is proved of weights as an approximation of `target` on all sequences of its box: sup norm over all
    entries.
    """
    if isinstance(weights, TokenSequence):
        return undecided("no method for trained networks of this kind")
    low, at = witnessed(weights, target)
    witness = None if at is None else tuple(float(v) for v in at.ravel())
    return seen(bounded(target, weights, goal.eps, say), low, witness, "a sequence")


def bounded(target: SequenceMap, network: SequenceNetwork, eps: float | None, say: Say) -> Proof:
    """The upper end; nothing is looked for that refutes it."""
    walk = SequenceProof(network, target, eps, say)
    part, reason = None, None
    try:
        network.validate()
        part = walk.prove()
    except (Undecided, AttnfunError) as why:
        reason = str(why)
    parts = {} if part is None else {"apply": part.construction, "gather": part.carried, "rounding": part.rounding}
    mixed = any(isinstance(stage, Spread) for stage in network.stages)
    details = {
        "layers": network.layers,
        "linear map of tokens": f"before the layers, for {network.tokens} tokens alone" if mixed else None,
        "coordinates": {name: known.error for name, known in walk.known.items() if name not in target.box.names},
        "networks": [{"of": name, "method": p.method, "error": p.total} for name, p in walk.parts],
    }
    high = math.inf if part is None else part.total
    return Proof("sequence", high, parts=parts, hypotheses=hypotheses(network.dtype), details=details, reason=reason)


def seen(found: Proof, low: float, witness: tuple[float, ...] | None, what: str) -> Proof:
    """A bound with an error as computed below it; where that is above the bound there is no certificate."""
    if not low <= found.high:
        raise AssertionError(f"sequence: a computed error {low} above the bound {found.high}: no certificate")
    refuted = f"{what} was found where the error is at least {at_least(low, 6)}"
    return replace(found, low=low, witness=witness, refuted=refuted)


def witnessed(
    network: SequenceNetwork, target: SequenceMap, X: Array | None = None, only: int | None = None
) -> tuple[float, Array | None]:
    """A lower bound of the error as computed by the reference, and the sequence behind it (the target in balls): of
    the sequences X if given, at `only` one token if given.
    """
    if X is None:  # fewer for more tokens: attention takes their square
        count = max(40, min(_PROBES, _PROBES * 64**2 // target.tokens**2))
        X = probes(target, count, np.random.default_rng(0))
    shown = slice(None) if only is None else slice(only, only + 1)
    try:
        with np.errstate(all="ignore"):
            Y = network.run(X).astype(np.float64)[:, shown]
            error = np.abs(Y - target.values(X)[:, shown]).reshape(len(X), -1)
    except AttnfunError:
        return 0.0, None
    error = np.where(np.isfinite(error), error, 0.0).max(axis=1)
    best, at = 0.0, None
    for k in np.argsort(error)[-3:][::-1]:
        with precision(128):
            tokens = [{c: arb(float(v)) for c, v in zip(target.box.names, x, strict=True)} for x in X[k]]
            rows = run_sequence(target, BallAlgebra(clip_sqrt=True), tokens, only=only)
            for i, row in enumerate(rows):
                for o, value in enumerate(row):
                    found = abs_lower(value - arb(float(Y[k, i, o]))) if math.isfinite(Y[k, i, o]) else 0.0
                    if found > best:
                        best, at = found, X[k]
    return best, at


def probes(target: OfTokens, count: int, rng: np.random.Generator) -> Array:
    """(m, n, d) sequences for attacking a claim: random ones, corners, tokens that are equal or nearly so."""
    box, n = target.box, target.count
    width = box.high_array - box.low_array
    inner = box.sample(count * n, rng).reshape(count, n, box.dim)
    corners = np.where(rng.random((count // 2, n, box.dim)) < 0.5, box.low_array, box.high_array)
    same = np.repeat(box.sample(count // 4, rng)[:, None, :], n, axis=1)
    scale = 10.0 ** rng.uniform(-9, 0, (len(same), 1, 1))
    near = np.clip(same + scale * width * rng.uniform(-1, 1, (len(same), n, box.dim)), box.low_array, box.high_array)
    lead = near.copy()  # one token ahead of the others by one step: where a soft maximum errs most
    lead[:, 1:] = np.clip(lead[:, :1] - scale * width, box.low_array, box.high_array)
    return np.concatenate([inner, corners, same, near, lead])
