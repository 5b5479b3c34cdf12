"""Model: a target, weights and a certificate together. Every verb that builds returns one, and so do load and train.

Whatever can be done with a model is written here, once, over the target's and the weights' own methods
(`attnfun.language.target`); the kind's folder has what only that kind can say: its proof, its words, its lessons. A
kind's view adds attributes that only it has (`.left`, `.predict`) and never overrides what is written here.
"""

from __future__ import annotations

import base64
import html
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from attnfun import fast
from attnfun.certify.certificate import Certificate
from attnfun.certify.verdict import About
from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.kinds import Kind, find, named
from attnfun.language.brief import Brief, shortened
from attnfun.language.inputs import read_call
from attnfun.language.target import Target
from attnfun.network import store
from attnfun.network.claim import MEAN_SQUARE, Claim
from attnfun.network.head import Of as Of
from attnfun.network.network import Cost
from attnfun.network.plain import AnyPlain
from attnfun.network.tokens import TokenNetwork, TokenTransformer

if TYPE_CHECKING:
    import torch


class Weights(Protocol):
    """A frozen tree of arrays (`network.store`): a Network, a TokenNetwork, or a few of them."""

    @property
    def dtype(self) -> str: ...

    @property
    def cost(self) -> Cost: ...

    @property
    def architecture(self) -> Any:
        """The shape without the weights: what `train` sets free."""
        ...

    @property
    def run(self) -> Callable[..., Any]:
        """What `Target.encode` makes of inputs → what `Target.decode` reads."""
        ...

    @property
    def plain(self) -> Callable[..., AnyPlain]:
        """Linear maps and softmax attention as matrices alone (`network.plain`): what every way out is written over."""
        ...

    @property
    def to_torch(self) -> Callable[..., Any]: ...

    @property
    def to_hooked(self) -> Callable[..., Any]: ...


T = TypeVar("T", bound=Target)
W = TypeVar("W", bound=Weights)


@dataclass(frozen=True, eq=False, repr=False)
class Model(Brief, Generic[T, W]):
    """Weights for `target`, with what is proved of them.

    `request` is what was asked (eps, norm, method, …); `story` is what the construction has to tell (temperatures,
    degrees, the methods that were not taken and why); `fit` (`learn.Fit`) is the training that the weights come from.
    """

    target: T
    weights: W
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)
    story: Mapping[str, Any] = field(default_factory=dict)
    fit: Any = None

    dtype = Of[str]("weights")
    cost = Of[Cost]("weights")
    architecture = Of[Any]("weights")
    """The shape of the weights: what `train` sets free."""

    def __call__(self, *inputs: Any, threads: int = 1, **options: Any) -> Any:
        """The target's inputs → its outputs, float64: `net(X)`, or variables by name, `net(x=0.3, y=[0, 1])`.

        Large calls take compiled kernels if numba is there (`attnfun.fast`), on so many `threads`.
        """
        target = self.target
        named, rest = read_call(target.encode, target.variables, inputs, options)
        inputs, shape = target.of_names(named) if named else (inputs, None)
        arrays, how = target.encode(self.weights, *inputs, **rest)
        found = target.decode(fast.run(self.weights, arrays, threads), how)
        return found if shape is None else found.reshape(shape + found.shape[1:])

    @property
    def kind(self) -> Kind:
        return find(self.target.kind)

    @property
    def trained(self) -> bool:
        return self.request.get("method") == "train"

    @property
    def history(self) -> tuple[Any, ...]:
        """The rows of its training; empty for what was constructed or read from a file."""
        return () if self.fit is None else tuple(self.fit.history)

    @property
    def sampled(self) -> Certificate | None:
        """What was seen of it when it was trained, at fresh points; not a bound."""
        return None if self.fit is None else self.fit.sampled

    def to_torch(
        self, dtype: Any = None, *, trainable: bool = False, outside: str = "raise", **form: Any
    ) -> torch.nn.Module:
        """A torch module: linear maps and F.scaled_dot_product_attention(scale=1.0) with these weights and no more.

        The weights are buffers, or parameters if `trainable`, under names that say what they are
        (`layers.0.heads.log_m1.q`). `outside` is "raise", "clamp" or "allow", as in calls.
        """
        made = self.weights.to_torch(dtype, trainable=trainable, outside=outside, **form)
        c = self.certificate
        proof = f"{c.sentence} It is about {c.dtype} arithmetic. Hypotheses: {'; '.join(c.hypotheses) or 'none'}."
        about = {"kind": self.target.kind, "target": self.target.text, "domain": self.target.domain}
        return made.described({**about, "certificate": proof})

    def to_hooked(self, dtype: Any = None, *, outside: str = "raise", **form: Any) -> Any:
        """A TransformerLens HookedRootModule: `blocks.0.attn.hook_pattern` and its like, labels in its `cfg`."""
        return self.weights.to_hooked(dtype, outside=outside, **form)

    def to_onnx(self, path: str | os.PathLike[str], dtype: str | None = None) -> dict[str, Any]:
        """Write an ONNX graph, its batch free, checked by onnxruntime; returns what was written."""
        return self.export(path, "onnx", dtype)

    def export(self, path: str | os.PathLike[str], to: str, dtype: str | None = None) -> dict[str, Any]:
        """Write a file for another place: torch, onnx, numpy or tex (`attnfun.export`); returns what was written."""
        record: dict[str, Any] = named("attnfun.export:export")(self, path, to, dtype)
        return record

    @property
    def claim(self) -> Claim:
        """What was asked for: the part of the request that a file's hash covers."""
        norm = MEAN_SQUARE if MEAN_SQUARE in self.target.norms else self.certificate.norm
        return Claim.made(self.request, norm)

    @property
    def hash(self) -> str:
        """The sha256 of weights, target and claim, with which a file of it is sealed."""
        return store.hash_of(self.target.kind, self.weights, self._sealed())

    def _sealed(self) -> dict[str, Any]:
        return {"target": self.target.to_json(), "claim": self.claim.to_json()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Weights, target, request, story and certificate in one safetensors file."""
        meta = self._sealed()
        meta |= {"request": dict(self.request), "story": dict(self.story), "certificate": self.certificate.to_file()}
        store.write(path, self.target.kind, self.weights, meta)

    def explain(self) -> str:
        """In words: what was built, why this method, what each head does, what is proved."""
        own = getattr(self.kind.module, "explain", None)
        if own is None:
            raise InvalidRequest(f"there is no explain of a model of the kind {self.kind.name}")
        return str(own(self))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """A picture of the weights at work, and the error under its bound."""
        return self.kind.picture(self, path)

    def record(self) -> dict[str, Any]:
        """What its kind tells as JSON, besides the certificate and the sizes."""
        own = getattr(self.kind.module, "record", None)
        return {} if own is None else own(self)

    @property
    def _card(self) -> tuple[str, str, str, str]:
        """Target, domain, size and certificate, a sentence each."""
        size = ", ".join([*sizes(self.weights), self.dtype])
        target, domain = (shortened(text, 150) for text in (self.target.text, self.target.domain))
        return target, domain, size, shortened(self.certificate.sentence, 200)

    def __repr__(self) -> str:
        target, domain, size, proof = self._card
        return f"{type(self).__name__}: {target}\n  on {domain}\n  {size}\n  {proof}"

    def _repr_html_(self) -> str:
        """The card that a notebook shows: the same sentences and a small picture, if one can be drawn."""
        target, domain, size, proof = (html.escape(text) for text in self._card)
        try:
            drawn = base64.b64encode(self.plot()._repr_png_()).decode()
            drawn = f'<img alt="its picture" style="width:640px;max-width:100%" src="data:image/png;base64,{drawn}">'
        except AttnfunError:  # no matplotlib, or a target whose truth nobody knows
            drawn = ""
        return f"<div><b>{target}</b><br>on {domain}<br>{size}<br>{proof}<br>{drawn}</div>"


class TokenModel(Model[T, TokenNetwork | TokenTransformer]):
    """A model whose weights are a network on tokens."""

    @property
    def network(self) -> TokenNetwork | TokenTransformer:
        return self.weights


def sizes(weights: Any) -> list[str]:
    """How many layers, heads, keys and parameters weights have, in words; what they have none of is left out."""
    cost, (head, key) = weights.cost, getattr(weights, "words", ("head", "key"))
    counts = ((cost.layers, "layer"), (cost.heads, head), (cost.keys, key), (cost.parameters, "parameter"))
    return [f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts if count]


def about(
    target: Target,
    weights: Any,
    construction: str = "",
    norm: float = math.inf,
    relative: Mapping[str, Any] | None = None,
) -> About:
    """What a certificate of these weights is about."""
    return About(target.text, target.domain, weights.dtype, norm, construction, relative, target.left_out)
