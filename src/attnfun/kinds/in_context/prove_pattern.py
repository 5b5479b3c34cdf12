"""What the stored matrices of a linear in-context network say, as a handful of numbers; nothing else may be in them.

The stream has blocks x, q, v, u, r of d coordinates and the units of `UNITS`. A matrix entry that is not named here
must be 0, and one that appears for every j of a block must be the same number for all of them: comparisons are exact.

| part | read from it |
| --- | --- |
| constants | the solver tokens: one = solver = 1, sign = ±c |
| carry | v ← C_q q + C_v v + C_u u, u ← v, r ← K_q q + K_v v (last step); everything else stays |
| head of a step | logit κ⟨x_i, v⟩ + κ_f sign y_i on examples, value x_i, written to v (and r) with a_v (a_r) |
| reading head | logit κ⟨q, key⟩ (+ κ_v⟨v, r⟩ + κ_p prediction sign) on solvers, value sign, to prediction with a |

Heads of a layer are multiples of the one with the largest logits: `ratio` is exact, a fraction of size at most 1.
Failure mode: Undecided, with the part that has another pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from attnfun.certify.view import Undecided
from attnfun.network import TokenHead, TokenNetwork

Array = NDArray[np.float64]

BLOCKS = "xqvur"
UNITS = ("y", "prediction", "one", "data", "sign", "solver")


@dataclass(frozen=True)
class StepHead:
    ratio: Fraction
    to_v: float
    to_r: float


@dataclass(frozen=True)
class Step:
    """One iteration: carry, heads, κ and κ_f of the largest head, and how far below the others foreign keys lie."""

    C_q: float
    C_v: float
    C_u: float
    K_q: float
    K_v: float
    kappa: float
    kappa_f: float
    heads: tuple[StepHead, ...]
    gap: float


@dataclass(frozen=True)
class Reading:
    """κ_q⟨q, v or u⟩ + κ_v⟨v, r⟩ + κ_p prediction·sign; (ratio, a) of each head."""

    kappa_q: float
    kappa_v: float
    kappa_p: float
    heads: tuple[tuple[Fraction, float], ...]
    gap: float


@dataclass(frozen=True)
class Pattern:
    c: float
    steps: tuple[Step, ...]
    first: Reading | None
    last: Reading


class Entries:
    """A matrix whose entries are taken out one by one; what is left must be 0. Rows are named by blocks and units."""

    def __init__(
        self, matrix: Array, dim: int, what: str, blocks: str = BLOCKS, units: tuple[str, ...] = UNITS
    ) -> None:
        self.left, self.dim, self.what, self.blocks, self.units = np.array(matrix), dim, what, blocks, units

    def _refuse(self, why: str) -> Undecided:
        return Undecided(f"{self.what}: {why}")

    def block(self, name: str, column: int) -> float:
        """The number on the diagonal of the block of rows `name` at the columns from `column` on."""
        rows = self.blocks.index(name) * self.dim + np.arange(self.dim)
        columns = column + np.arange(self.dim)
        values = self.left[rows, columns]
        if not (values == values[0]).all():
            raise self._refuse(f"the coordinates of block {name} are not treated alike")
        self.left[rows, columns] = 0.0
        return float(values[0])

    def unit(self, name: str, column: int) -> float:
        return self.entry(len(self.blocks) * self.dim + self.units.index(name), column)

    def entry(self, row: int, column: int) -> float:
        value = float(self.left[row, column])
        self.left[row, column] = 0.0
        return value

    def expect(self, value: float, wanted: float, what: str) -> None:
        if not value == wanted:
            raise self._refuse(f"{what} is {value!r}, not {wanted!r}")

    def done(self) -> None:
        if self.left.any():
            raise self._refuse("it has entries that the method does not know")


def names(dim: int, blocks: str = BLOCKS, units: tuple[str, ...] = UNITS) -> tuple[str, ...]:
    return (*(f"{block}{j + 1}" for block in blocks for j in range(dim)), *units)


def read_pattern(network: TokenNetwork, dim: int) -> Pattern:
    """The numbers of a linear in-context network, or Undecided."""
    if network.coordinates != names(dim):
        raise Undecided("the coordinates are not those of a linear in-context network")
    if len(network.layers) < 2:
        raise Undecided("fewer than two layers")
    readout = Entries(network.readout, dim, "the read-out")
    if network.readout.shape[1] != 1:
        raise Undecided("the read-out has several columns")
    readout.expect(readout.unit("prediction", 0), 1.0, "prediction")
    readout.done()
    steps: list[Step] = []
    first: Reading | None = None
    for number, layer in enumerate(network.layers[:-1]):
        what, final = f"layer {number}", number == len(network.layers) - 2
        carry = Entries(np.eye(network.width) if layer.carry is None else layer.carry, dim, f"{what}, carry")
        width = network.width
        at = {block: BLOCKS.index(block) * dim for block in BLOCKS}
        for block in ("x", "q"):
            carry.expect(carry.block(block, at[block]), 1.0, f"{block} to {block}")
        for unit in UNITS:
            carry.expect(carry.unit(unit, width - len(UNITS) + UNITS.index(unit)), 1.0, f"{unit} to {unit}")
        C_q, C_v, C_u = (carry.block(block, at["v"]) for block in "qvu")
        carry.expect(carry.block("v", at["u"]), 1.0, "v to u")
        K_q, K_v, K_r = (carry.block(block, at["r"]) for block in "qvr")
        if not final:
            carry.expect(K_q, 0.0, "q to r")
            carry.expect(K_v, 0.0, "v to r")
        del K_r  # r is 0 before the last step, and every multiple of it too
        carry.done()
        stepping = [head for head in layer.heads if head.outputs == dim and head.query_dim == dim + 2]
        reading = [head for head in layer.heads if not any(head is other for other in stepping)]
        steps.append(_step(stepping, dim, what, final, (C_q, C_v, C_u, K_q, K_v)))
        if reading and not final:
            raise Undecided(f"{what}: a head that is no step")
        if reading:
            first = _reading(reading, dim, what, last=False)
    if network.layers[-1].carry is not None:
        raise Undecided("the last layer has a carry")
    last = _reading(list(network.layers[-1].heads), dim, "the last layer", last=True)
    return Pattern(_solvers(network, dim), tuple(steps), first, last)


def _solvers(network: TokenNetwork, dim: int) -> float:
    if len(network.constants) != 2:
        raise Undecided("two constant tokens are expected, the solver tokens")
    signs = []
    for row in network.constants:
        entries = Entries(row[:, None], dim, "a solver token")
        for unit in ("one", "solver"):
            entries.expect(entries.unit(unit, 0), 1.0, unit)
        signs.append(entries.unit("sign", 0))
        entries.done()
    if not (signs[0] == -signs[1] and abs(signs[0]) > 0):
        raise Undecided("the solver tokens are not mirror images")
    return abs(signs[0])


def _step(
    heads: list[TokenHead], dim: int, what: str, final: bool, carry: tuple[float, float, float, float, float]
) -> Step:
    found: list[tuple[float, float, float, float]] = []
    gaps = []
    for head in heads:
        name = f"{what}, head {head.name!r}"
        query = Entries(head.query, dim, f"{name}, W_Q")
        kappa, kappa_f = query.block("v", 0), query.unit("sign", dim)
        query.expect(query.unit("one", dim + 1), 1.0, "one")
        key = Entries(head.key, dim, f"{name}, W_K")
        key.expect(key.block("x", 0), 1.0, "x")
        key.expect(key.unit("y", dim), 1.0, "y")
        gaps.append(gap_of(key, dim + 1, "data"))
        value = Entries(head.value, dim, f"{name}, W_V")
        value.expect(value.block("x", 0), 1.0, "x")
        output = Entries(head.output.T, dim, f"{name}, W_O")
        to_v, to_r = output.block("v", 0), output.block("r", 0)
        if not final:
            output.expect(to_r, 0.0, "to r")
        for entries in (query, key, value, output):
            entries.done()
        found.append((kappa, kappa_f, to_v, to_r))
    if not found:
        raise Undecided(f"{what} has no head of a step")
    (kappa, kappa_f), ratios = ratios_of([(kappa, kappa_f) for kappa, kappa_f, _, _ in found], what)
    made = tuple(StepHead(ratio, v, r) for ratio, (_, _, v, r) in zip(ratios, found, strict=True))
    return Step(*carry, kappa, kappa_f, made, min(gaps))


def _reading(heads: list[TokenHead], dim: int, what: str, last: bool) -> Reading:
    found: list[tuple[float, float, float, float]] = []
    gaps = []
    columns = 2 * dim + 2 if last else dim + 1
    for head in heads:
        name = f"{what}, head {head.name!r}"
        if head.query_dim != columns or head.outputs != 1:
            raise Undecided(f"{name} is neither a step nor a reading")
        query, key = Entries(head.query, dim, f"{name}, W_Q"), Entries(head.key, dim, f"{name}, W_K")
        kappa_q, kappa_v, kappa_p = query.block("q", 0), 0.0, 0.0
        key.expect(key.block("u" if last else "v", 0), 1.0, "the solution")
        if last:
            kappa_v, kappa_p = query.block("v", dim), query.unit("prediction", 2 * dim)
            key.expect(key.block("r", dim), 1.0, "r")
            key.expect(key.unit("sign", 2 * dim), 1.0, "sign")
        query.expect(query.unit("one", columns - 1), 1.0, "one")
        gaps.append(gap_of(key, columns - 1, "solver"))
        value = Entries(head.value, dim, f"{name}, W_V")
        value.expect(value.unit("sign", 0), 1.0, "sign")
        output = Entries(head.output.T, dim, f"{name}, W_O")
        found.append((kappa_q, kappa_v, kappa_p, output.unit("prediction", 0)))
        for entries in (query, key, value, output):
            entries.done()
    (kappa_q, kappa_v, kappa_p), ratios = ratios_of([one[:3] for one in found], what)
    pairs = tuple((ratio, one[3]) for ratio, one in zip(ratios, found, strict=True))
    return Reading(kappa_q, kappa_v, kappa_p, pairs, min(gaps))


def gap_of(key: Entries, column: int, *seen: str) -> float:
    """How far below the tokens marked `seen` all others are put; the marked ones at exactly 0."""
    gap = -key.unit("one", column)
    for name in seen:
        key.expect(key.unit(name, column), gap, f"one and {name}")
    if not gap > 0:
        raise Undecided(f"{key.what}: nothing is shut out")
    return gap


def ratios_of(rows: Sequence[tuple[float, ...]], what: str) -> tuple[tuple[float, ...], list[Fraction]]:
    """The largest row, and how many times that one each row is, exactly."""
    largest = max(rows, key=lambda row: max(abs(value) for value in row))
    lead = next((k for k, value in enumerate(largest) if value != 0), None)
    if lead is None:
        raise Undecided(f"{what}: a head without logits")
    found = []
    for row in rows:
        ratio = Fraction(row[lead]) / Fraction(largest[lead])
        if any(Fraction(value) != ratio * Fraction(base) for value, base in zip(row, largest, strict=True)):
            raise Undecided(f"{what}: its heads are not multiples of each other")
        found.append(ratio)
    return largest, found
