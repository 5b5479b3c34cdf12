"""What is said and told of a sequence map's model; `picture.py` draws it."""

from __future__ import annotations

from typing import Any

from attnfun.kinds.sequence.network import Gather, Spread
from attnfun.kinds.sequence.picture import picture
from attnfun.kinds.sequence.token_sequence import TokenSequence
from attnfun.kinds.sequence.view import SequenceApproximant
from attnfun.network.words import explain as told_of_tokens

__all__ = ["explain", "picture", "record"]


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
                lines.append(f"Stage {number}, gather: {head.name}, within {off:.2g}.")
        else:
            whose = "at every token" if stage.shared else f"{len(stage.networks)} functions, by position"
            keys = sum(network.cost.keys for network in stage.networks)
            reads = ", ".join(stage.networks[0].inputs)
            lines.append(f"Stage {number}, apply {whose}: {stage.depth} layer(s), {keys:,} keys, reads {reads[:80]}.")
    lines += [f"{key}: {value}" for key, value in model.story.items() if key != "construction"]
    low, high = c.error
    if c.bounds:
        asked = "no eps was asked for" if c.eps is None else f"eps was {c.eps:.4g}"
        lines.append(f"{c.heading}: the error of any entry is at most {high:.4g}; {low:.4g} was seen; {asked}.")
        lines.append("Parts: " + ", ".join(f"{k} {v:.3g}" for k, v in c.parts.items()) + ".")
    else:
        lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
    return "\n".join(lines)


def record(model: SequenceApproximant) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    names = {"inputs": list(model.target.box.names), "coordinates": list(model.network.coordinates)}
    return {"tokens": model.target.tokens, "equivariant": model.equivariant, **names}
