"""What the stored matrices of lasso and logistic networks have in common, read entry by entry.

Both take a step of their method in two layers, over and over, and predict in a last one. A solver token holds w and u,
the w of the step before; a token "null" attends to itself alone and stays 0. Comparisons are exact (`prove_pattern`).
Failure mode: Undecided, with the part that has another pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnfun.certify.view import Undecided
from attnfun.kinds.in_context.prove_pattern import Array, Entries, gap_of, names, ratios_of
from attnfun.kinds.in_context.prove_sums import SHUT, Sum
from attnfun.network import TokenHead, TokenLayer, TokenNetwork

BLOCKS = "xqwu"
_MOST = 4000


@dataclass(frozen=True)
class Gradient:
    """w ← C_w w + C_u u + Σ a head, u ← w; `logits` of the largest head."""

    C_w: float
    C_u: float
    logits: tuple[float, ...]
    sum: Sum


@dataclass(frozen=True)
class Steps:
    """A network of two layers a step, which are the same in all steps: first, second, the one that predicts."""

    network: TokenNetwork
    dim: int
    units: tuple[str, ...]
    what: str

    def __post_init__(self) -> None:
        network, layers = self.network, len(self.network.layers)
        if network.coordinates != names(self.dim, BLOCKS, self.units):
            raise Undecided(f"the coordinates are not those of a {self.what} network")
        if layers < 3 or layers % 2 == 0 or layers > _MOST:
            raise Undecided(f"{layers} layers: an odd number from 3 to {_MOST:,} is needed")
        if network.constants.shape[0] != 2 or network.readout.shape[1] != 1:
            raise Undecided("there must be two constant tokens and one output")
        for row, unit in zip(network.constants, ("solver", "null"), strict=True):
            self._ones(row[:, None], f"token {unit}", "one", unit)
        self._ones(network.readout, "the read-out", "prediction")
        if any(len({_bytes(layer) for layer in network.layers[k:-1:2]}) > 1 for k in (0, 1)):
            raise Undecided("its steps differ from each other")
        if network.layers[-1].carry is not None:
            raise Undecided("the last layer has a carry")

    @property
    def layers(self) -> tuple[TokenLayer, TokenLayer, TokenLayer]:
        return self.network.layers[0], self.network.layers[1], self.network.layers[-1]

    @property
    def count(self) -> int:
        return len(self.network.layers) // 2

    def entries(self, matrix: Array, what: str) -> Entries:
        return Entries(matrix, self.dim, what, BLOCKS, self.units)

    def _ones(self, column: Array, what: str, *units: str) -> None:
        entries = self.entries(column, what)
        for name in units:
            entries.expect(entries.unit(name, 0), 1.0, name)
        entries.done()

    def head(self, head: TokenHead, what: str, shape: tuple[int, int]) -> tuple[Entries, Entries, Entries, Entries]:
        """W_Q, W_K, W_V and W_O transposed of a head with so many columns and outputs."""
        if (head.query_dim, head.outputs) != shape:
            raise Undecided(f"{what}: a head of another shape")
        parts = (("W_Q", head.query), ("W_K", head.key), ("W_V", head.value), ("W_O", head.output.T))
        query, key, value, output = (
            self.entries(array, f"{what}, head {head.name!r}, {part}") for part, array in parts
        )
        return query, key, value, output

    def carry(self, layer: TokenLayer, what: str, w: float | None = None, rewritten: str = "") -> Entries:
        """The carry of a layer, with x, q and the units taken out: all stay as they are, `rewritten` is forgotten.

        With `w` all is taken out: w is multiplied by it, and u stays.
        """
        width = len(BLOCKS) * self.dim + len(self.units)
        carry = self.entries(np.eye(width) if layer.carry is None else layer.carry, f"{what}, carry")
        kept = {"x": 1.0, "q": 1.0} | ({} if w is None else {"w": w, "u": 1.0})
        for block, factor in kept.items():
            carry.expect(carry.block(block, BLOCKS.index(block) * self.dim), factor, f"{block} to {block}")
        for place, unit in enumerate(self.units):
            factor = carry.unit(unit, len(BLOCKS) * self.dim + place)
            carry.expect(factor, 0.0 if unit == rewritten else 1.0, f"{unit} to {unit}")
        if w is not None:
            carry.done()
        return carry

    def gradient(
        self,
        layer: TokenLayer,
        examples: int,
        columns: int,
        logits: Callable[[Entries, Entries], tuple[float, ...]],
    ) -> Gradient:
        """A layer that sums over examples: w ← C_w w + C_u u + Σ a head, u ← w.

        `logits` takes the `columns` first columns out of W_Q and W_K; the next two shut others out and shield the null
        token.
        """
        what = "a gradient layer"
        carry = self.carry(layer, what)
        w, u = (BLOCKS.index(block) * self.dim for block in "wu")
        C_w, C_u = carry.block("w", w), carry.block("u", w)
        carry.expect(carry.block("w", u), 1.0, "w to u")
        carry.expect(carry.block("u", u), 0.0, "u to u")
        carry.done()
        rows, amounts, gaps = list[tuple[float, ...]](), [], []
        for head in layer.heads:
            query, key, value, output = parts = self.head(head, what, (columns + 2, self.dim))
            rows.append(logits(query, key))
            query.expect(query.unit("one", columns), 1.0, "one")
            query.expect(query.unit("null", columns + 1), 1.0, "null")
            gaps.append(gap_of(key, columns, "data"))
            shielded(key, columns + 1, gaps[-1])
            value.expect(value.block("x", 0), 1.0, "x")
            amounts.append(output.block("w", 0))
            finished(parts)
        largest, ratios = ratios_of(rows, what)
        return Gradient(C_w, C_u, largest, Sum(pairs(ratios, amounts), examples, min(gaps)))


def pairs(ratios: Sequence[Fraction], amounts: Sequence[float]) -> tuple[tuple[Fraction, float], ...]:
    return tuple(zip(ratios, amounts, strict=True))


def finished(parts: Sequence[Entries]) -> None:
    for entries in parts:
        entries.done()


def shielded(key: Entries, column: int, gap: float) -> None:
    """The null token, as a query, attends to itself alone: its own key lies that much higher for it."""
    shield = key.unit("null", column)
    if not shield - gap >= SHUT:
        raise Undecided(f"{key.what}: the null token sees others")


def _bytes(layer: TokenLayer) -> tuple[bytes, ...]:
    """The weights of a layer, to tell layers apart."""
    arrays = [array for head in layer.heads for array in head.arrays.values()]
    carry = b"" if layer.carry is None else layer.carry.tobytes()
    return (carry, *(bytes(str(array.shape), "ascii") + array.tobytes() for array in arrays))
