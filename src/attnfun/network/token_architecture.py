"""TokenArchitecture: the shape of a network on a token matrix without its weights, with or without feed-forward units.

Equal architectures can exchange their weights: the named coordinates of a token, layer by layer the query dimension r
and the value dimension p of every head, whether the stream is carried by a matrix of its own, and the ReLU units that
follow; the number of constant tokens; the outputs. Constant tokens are weights. What the given tokens hold at first
(ones, positions, the prompt) is not: it belongs to the target (`Target.token_coordinates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnfun.errors import InvalidRequest
from attnfun.language.target import Target

if TYPE_CHECKING:
    from attnfun.network.token_transformer import TokenTransformer
    from attnfun.network.tokens import TokenNetwork

_DTYPES = ("float64", "float32")
_MOST = 1 << 24
_WIDEST = 1 << 16


@dataclass(frozen=True)
class TokenLayerShape:
    """(r, p) of every head; `carry`: the stream passes a free matrix, not the identity; `ffn`: ReLU units after it."""

    heads: tuple[tuple[int, int], ...]
    carry: bool = False
    ffn: int = 0

    def weights(self, width: int) -> int:
        heads = sum(2 * width * (r + p) for r, p in self.heads)
        return heads + width * width * self.carry + self.ffn * (2 * width + 1)


@dataclass(frozen=True)
class TokenArchitecture:
    """Layers on tokens with the named `coordinates`, `constants` constant tokens, then a linear read-out.

    Refuses with InvalidRequest what no network can have.
    """

    coordinates: tuple[str, ...]
    layers: tuple[TokenLayerShape, ...]
    outputs: tuple[str, ...]
    constants: int = 0
    dtype: str = "float64"

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise InvalidRequest(f"dtype={self.dtype!r:.30}: write float64 or float32")
        for what, names in (("coordinates", self.coordinates), ("outputs", self.outputs)):
            if not names or len(set(names)) != len(names) or not all(isinstance(name, str) for name in names):
                raise InvalidRequest(f"the {what} of an architecture are distinct names, not {list(names)!r:.80}")
        if not _whole(self.constants, 0):
            raise InvalidRequest(f"constants={self.constants!r:.30}: a whole number from 0 on is needed")
        for number, layer in enumerate(self.layers):
            fits = layer.heads and all(len(head) == 2 and all(_whole(k, 1) for k in head) for head in layer.heads)
            if not fits or not _whole(layer.ffn, 0) or type(layer.carry) is not bool:
                raise InvalidRequest(f"layer {number} needs heads with ranks and values from 1 on, and 0 or more units")
        if self.free_weights > _MOST:
            raise InvalidRequest(f"{self.free_weights:,} weights are more than {_MOST:,}")

    @classmethod
    def of(cls, network: TokenNetwork | TokenTransformer) -> TokenArchitecture:
        from attnfun.network.token_transformer import TokenTransformer

        plain = network.attention if isinstance(network, TokenTransformer) else network
        units = network.units if isinstance(network, TokenTransformer) else (0,) * len(plain.layers)
        layers = tuple(
            TokenLayerShape(tuple((h.query_dim, h.outputs) for h in layer.heads), layer.carry is not None, ffn)
            for layer, ffn in zip(plain.layers, units, strict=True)
        )
        return cls(plain.coordinates, layers, plain.outputs, len(plain.constants), plain.dtype)

    @classmethod
    def plain(
        cls,
        coordinates: Sequence[str],
        outputs: Sequence[str],
        *,
        layers: int = 2,
        heads: int = 4,
        rank: int = 8,
        value: int | None = None,
        width: int | None = None,
        ffn: int = 0,
        constants: int = 0,
        dtype: str = "float64",
    ) -> TokenArchitecture:
        """The same layers over and over, with a residual stream: `heads` heads of rank `rank` and `value` values
        (as many as the rank unless given), `ffn` ReLU units a layer or none, tokens widened to `width` by free
        coordinates that start at 0, `constants` constant tokens.
        """
        whole = {"layers": layers, "heads": heads, "rank": rank, "value": rank if value is None else value}
        for name, number in whole.items():
            if not _whole(number, 1):
                raise InvalidRequest(f"{name}={number!r:.30}: a whole number from 1 on is needed")
        names = tuple(coordinates)
        total = len(names) if width is None else width
        if not _whole(total, len(names)):
            raise InvalidRequest(f"width={width!r:.30}: the given tokens have {len(names)} coordinates already")
        if not total <= _WIDEST or layers * heads * total > _MOST:  # said before they are written out
            raise InvalidRequest(
                f"{layers:,} layers of {heads:,} heads on {total:,} coordinates have more than {_MOST:,} weights"
                if total <= _WIDEST
                else f"width={total:,}: more than {_WIDEST:,} coordinates"
            )
        names += tuple(f"free {k + 1}" for k in range(total - len(names)))
        layer = TokenLayerShape(((rank, whole["value"]),) * heads, False, ffn)
        return cls(names, (layer,) * layers, tuple(outputs), constants, dtype)

    @classmethod
    def for_target(cls, target: Target, **shape: Any) -> TokenArchitecture:
        """`plain` for a target on tokens, a sequence map say: the coordinates that its tokens hold, and its outputs."""
        if not hasattr(target, "token_coordinates"):
            raise InvalidRequest(
                f"{target!r:.60}: a target on tokens is needed, as a sequence map or a task in context"
            )
        return cls.plain(target.token_coordinates(), target.token_outputs(), **shape)

    @property
    def width(self) -> int:
        return len(self.coordinates)

    @property
    def heads(self) -> int:
        return sum(len(layer.heads) for layer in self.layers)

    @property
    def has_units(self) -> bool:
        return any(layer.ffn for layer in self.layers)

    @property
    def free_weights(self) -> int:
        """How many numbers training may choose."""
        inside = sum(layer.weights(self.width) for layer in self.layers)
        return inside + self.width * (self.constants + len(self.outputs))

    def to_json(self) -> dict[str, Any]:
        layers = [{"heads": [list(h) for h in s.heads], "carry": s.carry, "ffn": s.ffn} for s in self.layers]
        own: dict[str, Any] = {"coordinates": list(self.coordinates), "outputs": list(self.outputs), "layers": layers}
        return own | {"constants": self.constants, "dtype": self.dtype}

    @classmethod
    def from_json(cls, data: Any) -> TokenArchitecture:
        """What `to_json` wrote; InvalidRequest for anything else."""
        try:
            layers = tuple(
                TokenLayerShape(tuple(tuple(h) for h in s["heads"]), s["carry"], s["ffn"]) for s in data["layers"]
            )
            names = tuple(data["coordinates"]), tuple(data["outputs"])
            return cls(names[0], layers, names[1], data["constants"], data["dtype"])
        except (KeyError, TypeError) as error:
            raise InvalidRequest(f"this is no architecture of tokens ({error})") from None


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least
