"""SequenceApproximant: the view of a sequence map's model, what `sequence`, `train` and `load` return.

What is said, told and drawn of it: the attention maps of the gather heads, target against network, the error under its
bound; and what `diagnose` looks at: the networks that are applied to its tokens.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from attnfun.diagnosis.plain import POINTS, of_tokens
from attnfun.diagnosis.subject import Subject
from attnfun.kinds.sequence.network import Apply, Gather, SequenceNetwork, Spread, TokenSequence
from attnfun.kinds.sequence.target import SequenceMap
from attnfun.language.numbers import at_least, at_most
from attnfun.model import Model, Of
from attnfun.network.words import explain as told_of_tokens


class SequenceApproximant(Model[SequenceMap, SequenceNetwork | TokenSequence]):  # type: ignore[type-var]  # mypy sees no `Of`
    """A network on n tokens: `net(X)` for a sequence (n, d), or for (batch, n, d).

    `equivariant`: whether nothing in it knows a position. `literal()`: the same network as plain self-attention on a
    token matrix: W_Q, W_K, W_V, W_O, constant tokens.
    """

    equivariant, literal = Of[bool]("weights"), Of[Callable[[], TokenSequence]]("weights")

    @property
    def network(self) -> Any:
        """A `SequenceNetwork`; what was trained is a `TokenNetwork` or a `TokenTransformer` behind an embedding."""
        return self.weights.network if isinstance(self.weights, TokenSequence) else self.weights


def explain(model: SequenceApproximant) -> str:
    """In words: what was built, stage by stage, and what is proved."""
    network = model.weights
    if isinstance(network, TokenSequence):
        return told_of_tokens(model)
    c, cost, n = model.certificate, model.cost, model.target.tokens
    lines = [f"{model.target.text}  for {n} tokens in  {model.target.box.text}"]
    kind = "positions are one-hot coordinates"
    if network.equivariant:
        kind = "equivariant: no positions"
    elif any(isinstance(stage, Spread) for stage in network.stages):
        kind = "tokens are told apart by the linear map" + (
            "; the target is equivariant, the network up to twice its error" if model.target.equivariant else ""
        )
    lines.append(
        f"Built{f' ({c.construction})' if c.verified else ''}: {cost.layers} attention layer(s), {cost.heads} "
        f"head(s), {cost.keys:,} constant keys, rank {cost.rank}, {network.dtype}; {kind}."
    )
    if not c.verified:
        lines.append(f"The numbers below are {c.status.meaning}:")
    if c.construction == "one-layer-softmax":
        lines.append("The last layer is one softmax over constant keys and a linear read-out of its weights.")
    errors = dict(c.details.get("coordinates", {}))
    for number, stage in enumerate(network.stages, start=1):
        if isinstance(stage, Spread):
            lines.append(f"Stage {number}, linear: every token gets the entries of {len(stage.sources[0])} others.")
        elif isinstance(stage, Gather):
            for head in stage.heads:
                off = max((errors.get(name, 0.0) for name in head.writes), default=0.0)
                lines.append(f"Stage {number}, gather: {head.name}, within {at_most(off, 2)}.")
        else:
            whose = "at every token" if stage.shared else f"{len(stage.networks)} functions, by position"
            keys = sum(network.cost.keys for network in stage.networks)
            reads = ", ".join(stage.networks[0].inputs)
            lines.append(f"Stage {number}, apply {whose}: {stage.depth} layer(s), {keys:,} keys, reads {reads[:80]}.")
    lines += [f"{key}: {value}" for key, value in model.story.items() if key != "construction"]
    low, high = c.error
    asked = "no eps was asked for" if c.eps is None else f"eps was {c.eps:.4g}"
    bound = f": the error of any entry is at most {at_most(high)}; {at_least(low)} was seen; {asked}."
    lines += c.told(bound, f"Parts: {c.parts_told}.")
    return "\n".join(lines)


def record(model: SequenceApproximant) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    names = {"inputs": list(model.target.box.names), "coordinates": list(model.network.coordinates)}
    return {"tokens": model.target.tokens, "equivariant": model.equivariant, **names}


def subjects(model: SequenceApproximant, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """Every network over constant keys at what its tokens hold; gather heads have no fixed keys."""
    network, box, n = model.weights, model.target.box, model.target.tokens
    if isinstance(network, TokenSequence):
        return of_tokens(model, eps)
    about = f"{model.target.text}  for {n} tokens in  {box.text}"
    count = max(20, POINTS // n)
    streams = network.stream(box.probe(count * n, np.random.default_rng(46))[: count * n].reshape(count, n, box.dim))
    found, gathers = [], 0
    for number, stage in enumerate(network.stages, start=1):
        if isinstance(stage, Gather):
            gathers += len(stage.heads)
        if not isinstance(stage, Apply):
            continue
        for k, own in enumerate(stage.networks):
            if own.heads:
                at = [network.coordinates.index(name) for name in own.inputs]
                X = streams[:, np.array(stage.tokens_of(k))][:, :, np.array(at)].reshape(-1, len(at))[: 2 * POINTS]
                name = f"stage {number}" + ("" if stage.shared else f", function {k + 1}")
                found.append(Subject(name, own, np.asarray(X, dtype=np.float64), eps=eps))
    remark = f"{gathers} gather head(s) attend over the tokens: their keys are data, and they are not looked at here."
    return about, found, [remark] if gathers else []
