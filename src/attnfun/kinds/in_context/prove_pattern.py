"""What the stored matrices of an in-context network say, as a handful of numbers; nothing else may be in them.

A stream has blocks of d coordinates and units. A `Table` says what a matrix holds at (block or unit, column): a number
that must be there, or the name of a number that is read. An entry that no table names must be 0, and one that appears
for every j of a block must be the same number for all of them: comparisons are exact.

**Linear and ridge regression.** The stream has blocks x, q, v, u, r of d coordinates and the units of `UNITS`.

| part | read from it |
| --- | --- |
| constants | the solver tokens: one = solver = 1, sign = ±c |
| carry | v ← C_q q + C_v v + C_u u, u ← v, r ← K_q q + K_v v (last step); everything else stays |
| head of a step | logit κ⟨x_i, v⟩ + κ_f sign y_i on examples, value x_i, written to v (and r) with a_v (a_r) |
| reading head | logit κ⟨q, key⟩ (+ κ_v⟨v, r⟩ + κ_p prediction sign) on solvers, value sign, to prediction with a |

Heads of a layer are multiples of the one with the largest logits: `ratio` is exact, a fraction of size at most 1.

**Lasso and logistic regression** take a step of their method in two layers, over and over, and predict in a last one. A
solver token holds w and u, the w of the step before; a token "null" attends to itself alone and stays 0.
Failure mode: Undecided, with the part that has another pattern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnfun.certify.view import Undecided, provided
from attnfun.kinds.in_context.prove_sums import SHUT, Sum
from attnfun.network import TokenHead, TokenLayer, TokenNetwork
from attnfun.network.named_coordinates import Array, Stream

Table = Mapping[tuple[str, int], float | str]
Numbers = dict[str, float]

_MOST = 4000  # layers of a lasso or logistic network


class Layout(Stream):
    """The coordinates of a stream by name, and what matrices on it hold."""

    def read(self, matrix: Array, table: Table, what: str) -> Numbers:
        """The numbers that `table` names ("-gap": minus the number gap); Undecided where it is not all of `matrix`."""
        if matrix.shape != (self.width, max(column + len(self.rows[name]) for name, column in table)):
            raise Undecided(f"{what}: a matrix of another shape")
        left, found = np.array(matrix), Numbers()
        for (name, column), wanted in table.items():
            at = self.rows[name], column + np.arange(len(self.rows[name]))
            values, left[at] = left[at], 0.0
            provided((values == values[0]).all(), f"{what}: the coordinates of block {name} are not treated alike")
            value = float(values[0])
            if isinstance(wanted, str):
                value = -value if wanted.startswith("-") else value
                wanted = found.setdefault(wanted.removeprefix("-"), value)
            provided(value == wanted, f"{what}: {name} is {value!r}, not {wanted!r}")
        provided(not left.any(), f"{what}: it has entries that the method does not know")
        return found

    def carried(self, layer: TokenLayer, changed: Mapping[tuple[str, str], float | str], what: str) -> Numbers:
        """Of a carry that is the identity but for what goes from one block or unit to another."""
        every = {(name, name): 1.0 for name in self.parts} | dict(changed)
        table = {(source, self.at(goal)): value for (source, goal), value in every.items()}
        return self.read(np.eye(self.width) if layer.carry is None else layer.carry, table, f"{what}, carry")

    def heads(
        self, heads: Sequence[TokenHead], what: str, query: Table, key: Table, value: Table, output: Table
    ) -> list[Numbers]:
        """Of heads whose W_Q, W_K, W_V and W_O transposed have these tables."""
        found = []
        for head in heads:
            numbers = Numbers()
            parts = ("W_Q", head.query, query), ("W_K", head.key, key), ("W_V", head.value, value)
            for part, matrix, table in (*parts, ("W_O", head.output.T, output)):
                numbers |= self.read(matrix, table, f"{what}, head {head.name!r}, {part}")
            provided(numbers["gap"] > 0, f"{what}, head {head.name!r}: nothing is shut out")
            found.append(numbers)
        provided(bool(found), f"{what} has no head of its kind")
        return found

    def tokens(self, network: TokenNetwork, kind: str, *tables: tuple[str, Table]) -> list[Numbers]:
        """Of the constant tokens, so called; the read-out is that of the prediction, the last layer has no carry."""
        provided(network.coordinates == self.names, f"the coordinates are not those of a {kind} network")
        self.read(network.readout, {("prediction", 0): 1.0}, "the read-out")
        provided(network.layers[-1].carry is None, "the last layer has a carry")
        provided(len(network.constants) == len(tables), f"{len(tables)} constant tokens are expected")
        return [self.read(row[:, None], t, what) for row, (what, t) in zip(network.constants, tables, strict=True)]


def shut(column: int, *seen: str) -> Table:
    """By this column of W_K all tokens are put `gap` below those marked `seen`, and these at exactly 0."""
    return {("one", column): "-gap"} | {(name, column): "gap" for name in seen}


def sums_of(
    found: Sequence[Numbers], names: Sequence[str], what: str, N: int = 1, into: Sequence[str] = ("a",)
) -> tuple[tuple[float, ...], list[Sum]]:
    """The numbers `names` of the head where they are largest; how many times those each head has, exactly, and what it
    is multiplied by `into` each goal.
    """
    rows = [tuple(numbers[name] for name in names) for numbers in found]
    largest = max(rows, key=lambda row: max(abs(value) for value in row))
    lead = next((k for k, value in enumerate(largest) if value != 0), None)
    if lead is None:
        raise Undecided(f"{what}: a head without logits")
    ratios = [Fraction(row[lead]) / Fraction(largest[lead]) for row in rows]
    for ratio, row in zip(ratios, rows, strict=True):
        if any(Fraction(value) != ratio * Fraction(base) for value, base in zip(row, largest, strict=True)):
            raise Undecided(f"{what}: its heads are not multiples of each other")
    gap, heads = min(numbers["gap"] for numbers in found), list(zip(ratios, found, strict=True))
    return largest, [Sum(tuple((ratio, numbers.get(a, 0.0)) for ratio, numbers in heads), N, gap) for a in into]


@dataclass(frozen=True)
class Reading:
    """κ_q⟨q, the solution⟩ + κ_v⟨v, r⟩ + κ_p prediction·sign, of the largest head; what the heads add up."""

    kappa_q: float
    kappa_v: float
    kappa_p: float
    sum: Sum

    @classmethod
    def of(cls, found: Sequence[Numbers], what: str) -> Reading:
        names = ("kappa_q", "kappa_v", "kappa_p")
        (q, v, p), (read,) = sums_of([dict.fromkeys(names, 0.0) | one for one in found], names, what)
        return cls(q, v, p, read)


# -- linear and ridge regression ---------------------------------------------------------------------------------------

UNITS = ("y", "prediction", "one", "data", "sign", "solver")


@dataclass(frozen=True)
class Step:
    """One iteration: carry, κ and κ_f of the largest head, what its heads add to v, and to r in the last one."""

    C_q: float
    C_v: float
    C_u: float
    K_q: float
    K_v: float
    kappa: float
    kappa_f: float
    to_v: Sum
    to_r: Sum


@dataclass(frozen=True)
class Pattern:
    c: float
    steps: tuple[Step, ...]
    first: Reading | None
    last: Reading


def read_pattern(network: TokenNetwork, dim: int, examples: int) -> Pattern:
    """The numbers of a linear in-context network, or Undecided."""
    layout = Layout(dim, "xqvur", UNITS)
    provided(len(network.layers) >= 2, "fewer than two layers")
    token: Table = {("one", 0): 1.0, ("solver", 0): 1.0, ("sign", 0): "sign"}
    tokens = layout.tokens(network, "linear in-context", *2 * [("a solver token", token)])
    c, other = (numbers["sign"] for numbers in tokens)
    provided(c == -other and abs(c) > 0, "the solver tokens are not mirror images")
    steps: list[Step] = []
    first: Reading | None = None
    for number, layer in enumerate(network.layers[:-1]):
        what, final = f"layer {number}", number == len(network.layers) - 2
        stepping = [head for head in layer.heads if head.outputs == dim and head.query_dim == dim + 2]
        reading = [head for head in layer.heads if not any(head is other for other in stepping)]
        steps.append(_step(layout, layer, stepping, examples, what, final))
        provided(not reading or final, f"{what}: a head that is no step")
        if reading:
            first = _reading(layout, reading, what, last=False)
    return Pattern(abs(c), tuple(steps), first, _reading(layout, network.layers[-1].heads, "the last layer", last=True))


def _step(layout: Layout, layer: TokenLayer, heads: Sequence[TokenHead], examples: int, what: str, final: bool) -> Step:
    d = layout.d
    changed: dict[tuple[str, str], float | str] = {("q", "v"): "C_q", ("v", "v"): "C_v", ("u", "v"): "C_u"}
    changed |= {("v", "u"): 1.0, ("u", "u"): 0.0, ("r", "r"): "of r"}
    changed |= {("q", "r"): "K_q", ("v", "r"): "K_v"} if final else {}
    carry = {"K_q": 0.0, "K_v": 0.0} | layout.carried(layer, changed, what)
    del carry["of r"]  # r is 0 before the last step, and every multiple of it too
    query: Table = {("v", 0): "kappa", ("sign", d): "kappa_f", ("one", d + 1): 1.0}
    key = {("x", 0): 1.0, ("y", d): 1.0, **shut(d + 1, "data")}
    output: Table = {("v", 0): "a", ("r", 0): "to_r"} if final else {("v", 0): "a"}
    found = layout.heads(heads, what, query, key, {("x", 0): 1.0}, output)
    (kappa, kappa_f), (to_v, to_r) = sums_of(found, ("kappa", "kappa_f"), what, examples, ("a", "to_r"))
    return Step(**carry, kappa=kappa, kappa_f=kappa_f, to_v=to_v, to_r=to_r)


def _reading(layout: Layout, heads: Sequence[TokenHead], what: str, last: bool) -> Reading:
    d = layout.d
    end = 2 * d + 1 if last else d
    query: Table = {("q", 0): "kappa_q", ("one", end): 1.0}
    key = {("u" if last else "v", 0): 1.0, **shut(end, "solver")}
    if last:
        query = {**query, ("v", d): "kappa_v", ("prediction", 2 * d): "kappa_p"}
        key |= {("r", d): 1.0, ("sign", 2 * d): 1.0}
    return Reading.of(layout.heads(heads, what, query, key, {("sign", 0): 1.0}, {("prediction", 0): "a"}), what)


# -- lasso and logistic regression -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gradient:
    """w ← C_w w + C_u u + Σ a head, u ← w; `logits` of the largest head."""

    C_w: float
    C_u: float
    logits: tuple[float, ...]
    sum: Sum


@dataclass(frozen=True)
class Threshold:
    beta: float
    t: float


@dataclass(frozen=True)
class Sigmoid:
    """σ(±⟨x or q, k_w w + k_u u⟩)."""

    k_w: float
    k_u: float
    gap: float


def read_lasso(network: TokenNetwork, dim: int, examples: int) -> tuple[Gradient, Threshold, Reading, int]:
    """The numbers of a lasso network, which are the same in all its steps; or Undecided."""
    layout, (first, second, last) = _steps(network, dim, "lasso", "solver", "null")
    query: Table = {("w", 0): "of w", ("u", 0): "of u", ("solver", dim): "of y"}
    key: Table = {("x", 0): 1.0, ("y", dim): 1.0}
    gradient = _gradient(layout, first, examples, query, key)
    *of_w, of_y = gradient.logits  # κC_w, κC_u, −κ
    for logit, carried in zip(of_w, (gradient.C_w, gradient.C_u), strict=True):
        if Fraction(logit) != -Fraction(of_y) * Fraction(carried):
            raise Undecided("a gradient layer: the point where the gradient is taken is not the one it is added to")
    query, key = {("q", 0): "kappa_q", ("one", dim): 1.0}, {("w", 0): 1.0, **shut(dim, "solver", "null")}
    what, value = "the last layer", {("solver", 0): 1.0, ("null", 0): -1.0}
    reading = Reading.of(layout.heads(last.heads, what, query, key, value, {("prediction", 0): "a"}), what)
    return gradient, _threshold(layout, second), reading, len(network.layers) // 2


def read_logistic(network: TokenNetwork, dim: int, examples: int) -> tuple[Sigmoid, Gradient, Sigmoid, int]:
    """The numbers of a logistic network, which are the same in all its steps; or Undecided."""
    layout, (first, second, last) = _steps(network, dim, "logistic", "p", "solver", "null")
    layout.carried(first, {("p", "p"): 0.0}, "a probability layer")
    gradient = _gradient(layout, second, examples, {("solver", 0): "of p"}, {("p", 0): 1.0, ("y", 0): 0.5})
    probability = _sigmoid(layout, first, "a probability layer", ("x", -1.0), "p")
    prediction = _sigmoid(layout, last, "the last layer", ("q", 1.0), "prediction")
    return probability, gradient, prediction, len(network.layers) // 2


def _steps(network: TokenNetwork, dim: int, kind: str, *units: str) -> tuple[Layout, list[TokenLayer]]:
    """The coordinates and the three layers of a network of two layers per step, which are the same in all steps: first,
    second, the one that predicts.
    """
    layout, layers = Layout(dim, "xqwu", ("y", "prediction", "one", "data", *units)), network.layers
    if len(layers) < 3 or len(layers) % 2 == 0 or len(layers) > _MOST:
        raise Undecided(f"{len(layers)} layers: an odd number from 3 to {_MOST:,} is needed")
    tokens = ((f"token {unit}", {("one", 0): 1.0, (unit, 0): 1.0}) for unit in ("solver", "null"))
    layout.tokens(network, kind, *tokens)
    provided(all(len({_bytes(layer) for layer in layers[k:-1:2]}) == 1 for k in (0, 1)), "its steps differ")
    return layout, [layers[0], layers[1], layers[-1]]


def _bytes(layer: TokenLayer) -> tuple[bytes, ...]:
    """The weights of a layer, to tell layers apart."""
    arrays = [array for head in layer.heads for array in head.arrays.values()]
    carry = b"" if layer.carry is None else layer.carry.tobytes()
    return (carry, *(bytes(str(array.shape), "ascii") + array.tobytes() for array in arrays))


def _gradient(layout: Layout, layer: TokenLayer, examples: int, query: Table, key: Table) -> Gradient:
    """A layer that sums over examples: w ← C_w w + C_u u + Σ a head, u ← w.

    `query` and `key` have the columns of logits; the next two shut others out and shield the null token.
    """
    what, end = "a gradient layer", 1 + max(column for _, column in query)
    changed: Mapping[tuple[str, str], float | str] = {("w", "w"): "C_w", ("u", "w"): "C_u"}
    carry = layout.carried(layer, {**changed, ("w", "u"): 1.0, ("u", "u"): 0.0}, what)
    logits = [str(name) for name in query.values()]
    query = {**query, ("one", end): 1.0, ("null", end + 1): 1.0}
    key = {**key, **shut(end, "data"), ("null", end + 1): "shield"}
    found = layout.heads(layer.heads, what, query, key, {("x", 0): 1.0}, {("w", 0): "a"})
    for numbers in found:
        _shielded(numbers["shield"] - numbers["gap"], what)
    largest, (added,) = sums_of(found, logits, what, examples)
    return Gradient(**carry, logits=largest, sum=added)


def _shielded(above: float, what: str) -> None:
    """The null token, as a query, attends to itself alone: its own key lies that much higher for it."""
    provided(above >= SHUT, f"{what}: the null token sees others")


def _threshold(layout: Layout, layer: TokenLayer) -> Threshold:
    what = "a threshold layer"
    layout.carried(layer, {("w", "w"): 0.0}, what)
    coefficients, found = layout.rows["w"], dict[tuple[int, bool], Threshold]()
    for head in layer.heads:
        place = int(np.abs(head.output[0]).argmax())
        provided(place in coefficients, f"{what}: a head that thresholds no coefficient")
        name = layout.names[place]
        query: Table = {(name, 0): "slope", ("one", 1): 1.0, ("one", 2): 1.0, ("null", 3): 1.0}
        key = {("solver", 0): 1.0, ("solver", 1): "logit", **shut(2, "solver", "null"), ("null", 3): "shield"}
        value: Table = {(name, 0): 1.0, ("solver", 0): "value"}
        (numbers,) = layout.heads([head], what, query, key, value, {(name, 0): 1.0})
        upper, beta = numbers["slope"] > 0, abs(numbers["slope"])
        t = -numbers["value"] if upper else numbers["value"]
        provided(Fraction(numbers["logit"]) == -Fraction(beta) * Fraction(t), f"{what}: logits and values disagree")
        _shielded(numbers["shield"], what)
        provided(numbers["gap"] >= 2 * SHUT and beta > 0 and t >= 0, f"{what}: nothing is shut out")
        provided((place, upper) not in found, f"{what}: a coefficient is thresholded twice")
        found[place, upper] = Threshold(beta, t)
    provided(len(found) == 2 * layout.d and len(set(found.values())) == 1, f"{what}: not alike for all coefficients")
    return next(iter(found.values()))


def _sigmoid(layout: Layout, layer: TokenLayer, what: str, asks: tuple[str, float], goal: str) -> Sigmoid:
    provided(len(layer.heads) == 1, f"{what}: one head is needed")
    (block, sign), end = asks, layout.d
    query: Table = {(block, 0): sign, ("one", end): 1.0}
    key = {("w", 0): "k_w", ("u", 0): "k_u", **shut(end, "solver", "null")}
    (found,) = layout.heads(layer.heads, what, query, key, {("solver", 0): 1.0}, {(goal, 0): 1.0})
    return Sigmoid(**found)
