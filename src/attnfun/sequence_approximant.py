"""SequenceApproximant: a sequence map, its network and its certificate together; what `sequence` and `load` return."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.certify.stored import kept
from attnfun.errors import InvalidRequest
from attnfun.network import Cost, Gather, SequenceNetwork, Spread, TokenArchitecture, save_sequence
from attnfun.targets import SequenceMap

if TYPE_CHECKING:
    import torch

    from attnfun.network.sequence_tokens import TokenSequence


@dataclass(frozen=True, eq=False)
class SequenceApproximant:
    """A network on n tokens that approximates `target`, with what is proved of it."""

    target: SequenceMap
    network: SequenceNetwork
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)
    story: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, X: ArrayLike, outside: str = "raise") -> NDArray[np.float64]:
        """(n, d) → (n, p), or (batch, n, d) → (batch, n, p), float64."""
        sequences, single = sequences_of(self.target, X, outside)
        values = self.network.run(sequences).astype(np.float64)
        return values[0] if single else values

    @property
    def equivariant(self) -> bool:
        return self.network.equivariant

    @property
    def cost(self) -> Cost:
        return self.network.cost

    def literal(self) -> TokenSequence:
        """The same network as plain self-attention on a token matrix: W_Q, W_K, W_V, W_O, constant tokens."""
        from attnfun.network.sequence_tokens import to_tokens

        return to_tokens(self.network, self.target.box.low_array, self.target.box.high_array)

    @property
    def architecture(self) -> TokenArchitecture:
        """That of `literal()`: what `train` fills with other weights."""
        return self.literal().network.architecture

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """(batch, n, d) → (batch, n, p): a linear embedding, then one F.scaled_dot_product_attention a layer."""
        from attnfun.network.torch_form import sequence_to_torch

        return sequence_to_torch(self.literal(), dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, target, domain, request and certificate to one safetensors file."""
        meta = {"target": self.target.to_json(), "domain": self.target.box.text, "story": dict(self.story)}
        save_sequence(path, self.network, meta | kept(self.request, self.certificate))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The attention maps of the gather heads, outputs against the target, the error under its bound."""
        from attnfun.plots.sequence import draw_sequence

        return draw_sequence(self, path)

    def explain(self) -> str:
        """In words: what was built, stage by stage, and what is proved."""
        c, cost, n = self.certificate, self.cost, self.target.tokens
        lines = [f"{self.target.text}  for {n} tokens in  {self.target.box.text}"]
        kind = "positions are one-hot coordinates"
        if self.network.equivariant:
            kind = "equivariant: no positions"
        elif any(isinstance(stage, Spread) for stage in self.network.stages):
            kind = "tokens are told apart by the linear map" + (
                "; the target is equivariant, the network up to twice its error" if self.target.equivariant else ""
            )
        lines.append(
            f"Built{f' ({c.construction})' if c.verified else ''}: {cost.layers} attention layer(s), {cost.heads} "
            f"head(s), {cost.keys:,} constant keys, rank {cost.rank}, {self.network.dtype}; {kind}."
        )
        if not c.verified:
            lines.append(f"The numbers below are {c.status.meaning}:")
        if c.construction == "one-layer-softmax":
            lines.append("The last layer is one softmax over constant keys and a linear read-out of its weights.")
        errors = dict(c.details.get("coordinates", {}))
        for number, stage in enumerate(self.network.stages, start=1):
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
                lines.append(
                    f"Stage {number}, apply {whose}: {stage.depth} layer(s), {keys:,} keys, reads {reads[:80]}."
                )
        for key, value in self.story.items():
            lines.append(f"{key}: {value}")
        low, high = c.error
        if c.bounds:
            asked = "no eps was asked for" if c.eps is None else f"eps was {c.eps:.4g}"
            lines.append(f"{c.heading}: the error of any entry is at most {high:.4g}; {low:.4g} was seen; {asked}.")
            lines.append("Parts: " + ", ".join(f"{k} {v:.3g}" for k, v in c.parts.items()) + ".")
        else:
            lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
        return "\n".join(lines)


def sequences_of(target: SequenceMap, X: ArrayLike, outside: str) -> tuple[NDArray[np.float64], bool]:
    """(batch, n, d) sequences of the target's box, and whether one alone was given; InvalidRequest for others."""
    try:
        array = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidRequest(f"sequences {X!r:.60}: an array of numbers is needed") from None
    n, box = target.tokens, target.box
    shape = (n, box.dim)
    if array.shape == (n,) and box.dim == 1:
        array = array[:, None]
    single = array.ndim == 2
    array = array[None] if single else array
    if array.ndim != 3 or array.shape[1:] != shape:
        raise InvalidRequest(
            f"sequences of shape {np.shape(X)}: {shape} or (batch, {n}, {box.dim}) is needed, "
            f"{n} tokens with the coordinates {', '.join(box.names)}"
        )
    if outside not in ("raise", "clamp", "allow"):
        raise InvalidRequest(f"outside={outside!r}: write raise, clamp or allow")
    if np.isnan(array).any():
        raise InvalidRequest("an entry of a sequence is NaN")
    inside = (box.low_array <= array) & (array <= box.high_array)
    if outside == "raise" and not inside.all():
        b, i, k = (int(v) for v in np.argwhere(~inside)[0])
        raise InvalidRequest(
            f"{box.names[k]}={array[b, i, k]:g} of token {i + 1} lies outside the domain {box.text}; "
            "pass outside='clamp' or 'allow'"
        )
    if outside == "clamp":
        array = np.clip(array, box.low_array, box.high_array)
    return array, single
