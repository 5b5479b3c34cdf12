"""A one-layer network as the checker sees it: affine part plus product heads whose axes each read one variable.

    out_o(x) = Σ_k affine[o,k] x_k + bias[o] + Σ_h Σ_c mix_h[o,c] head_h,c(x)
    head_h(x) = Σ_j Π_a softmax^a_{j_a}(slopes^a (w_a x_{k_a} + c_a) + biases^a) V_h[j]

All numbers are the stored doubles. What does not have this form is refused here, so that no method has to guess.
`Bound` and `Undecided` are what the methods answer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, fmpz

from attnfun.language.enclosures import upper
from attnfun.network import Axis, Head, Network
from attnfun.network.head import Array as Array


class Undecided(Exception):
    """A method cannot decide; the message says why. Never a crash, never a bound."""


def provided(condition: object, why: str) -> None:
    """A side condition of a proof: Undecided with the sentence where it does not hold. NaN never passes."""
    if not condition:
        raise Undecided(why)


@dataclass(frozen=True)
class Bound:
    """sup (or L^p norm) of f − net in real arithmetic lies in [low, high]; `witness` is the point behind `low`.

    Where the method proves it by itself, f − net as the dtype computes it is at most high + rounding (and at least
    `firm`, at some point).
    """

    method: str
    low: float
    high: float
    witness: Array | None
    details: Mapping[str, Any] = field(default_factory=dict)
    hypotheses: tuple[str, ...] = ()
    rounding: float = math.inf
    firm: float = 0.0


@dataclass(frozen=True)
class LineAxis:
    """Logits slopes_j (w x_k + c) + biases_j of one variable x_k."""

    variable: int
    w: float
    c: float
    slopes: Array
    biases: Array

    @property
    def size(self) -> int:
        return len(self.slopes)

    def weights(self, x: Array) -> Array:
        """(n, keys) the softmax at points of the variable, in plain floats."""
        terms = self.terms(x)
        return np.asarray(terms / terms.sum(axis=1, keepdims=True))

    def terms(self, x: Array) -> Array:
        """The same before it is divided by its sums: the largest of a row is 1."""
        logits = (self.w * x + self.c)[:, None] * self.slopes + self.biases
        return np.asarray(np.exp(logits - logits.max(axis=1, keepdims=True)))

    def logits(self, x: float) -> tuple[Array, Array]:
        """(keys,) the logits at one point in plain floats, and how far they may be off."""
        size = np.abs(self.slopes) * (abs(self.w * x) + abs(self.c)) + np.abs(self.biases)
        return self.slopes * (self.w * x + self.c) + self.biases, 8 * 2.0**-53 * size

    @cached_property
    def lattice_step(self) -> float | None:
        """τ if slopes_j = slopes_0 + τ j holds exactly, else None."""
        k = self.slopes
        if not 2 <= len(k) <= 4096:
            return None
        tau, first = Fraction(float(k[1])) - Fraction(float(k[0])), Fraction(float(k[0]))
        exact = tau > 0 and all(Fraction(float(v)) == first + j * tau for j, v in enumerate(k))
        return float(tau) if exact and Fraction(float(tau)) == tau else None

    @cached_property
    def binomial_deviation(self) -> float:
        """An upper bound of max_j |biases_j − ln C(m, j) − shift| (m + 1 keys), shift that of the middle key."""
        m = self.size - 1
        off = [arb(float(b)) - arb(fmpz.bin_uiui(m, j)).log() for j, b in enumerate(self.biases)]
        return max(upper(abs(v - off[m // 2])) for v in off)


@dataclass(frozen=True)
class HeadView:
    name: str
    axes: tuple[LineAxis, ...]
    values: Array  # (P_1, …, P_a, c)
    mix: Array  # (outputs, c)
    head: Head

    @cached_property
    def output_values_bound(self) -> Array:
        """(outputs,) an upper bound of max_j |Σ_c mix[o,c] (V_j,c − centre_c)|, and see `centre`; rounded up."""
        least, most = self._ends
        radius = np.maximum(most - self.centre, self.centre - least)
        return np.asarray((np.abs(self.mix) @ radius) * (1 + 1e-12))

    @cached_property
    def centre(self) -> Array:
        """(c,) mid-range of the values: softmax weights sum to 1, also at complex points, so a shift is free."""
        least, most = self._ends
        return np.asarray((most + least) / 2)

    @cached_property
    def spread(self) -> Array:
        """(outputs,) Σ_c |mix[o,c]| (max V_c − min V_c), rounded up."""
        least, most = self._ends
        return np.asarray((np.abs(self.mix) @ (most - least)) * (1 + 1e-12))

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        flat = self.values.reshape(-1, self.values.shape[-1])
        return flat.min(0), flat.max(0)


@dataclass(frozen=True)
class View:
    """The network of the module's formula, with the box (low, high) it is judged on."""

    low: Array
    high: Array
    affine: Array
    bias: Array
    heads: tuple[HeadView, ...]

    @property
    def dim(self) -> int:
        return len(self.low)

    @property
    def outputs(self) -> int:
        return len(self.bias)

    @cached_property
    def bits(self) -> tuple[bytes | float, ...]:
        """All numbers, for views that are equal bit for bit."""
        lines = [a for h in self.heads for a in h.axes]
        heads = [array.tobytes() for h in self.heads for array in (h.values, h.mix)]
        keys = [number for a in lines for number in (a.w, a.c, a.slopes.tobytes(), a.biases.tobytes())]
        return (*keys, *heads, *(array.tobytes() for array in (self.low, self.high, self.affine, self.bias)))

    def floats(self, x: Array) -> Array:
        """The first output of a view of one variable at points, in plain floats: for estimates."""
        out = self.affine[0, 0] * x + self.bias[0]
        for head in self.heads:
            terms = head.axes[0].terms(x)
            out = out + (terms @ (head.values @ head.mix[0])) / terms.sum(axis=1)
        return np.asarray(out)


def view(network: Network, low: Array, high: Array) -> View:
    """See `network` as affine part plus product heads of single variables, or raise Undecided."""
    if len(network.layers) > 1:
        raise Undecided(f"the network has {len(network.layers)} layers and no labels; only one layer is proved without")
    provided(not network.is_mlp, "the network is an MLP without labels; only labelled ones are proved")
    d = len(network.inputs)
    coordinates = list(network.coordinates)
    affine, bias = network.readout[:, :d], network.readout_bias
    heads = []
    for layer in network.layers:
        for head in layer.attention:
            axes = tuple(_line(head.name, axis) for axis in head.axes)
            if len({a.variable for a in axes}) != len(axes):
                raise Undecided(f"head '{head.name}' has two axes that read the same variable")
            columns = [coordinates.index(name) for name in head.writes]
            heads.append(HeadView(head.name, axes, head.values, network.readout[:, columns], head))
    return View(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64), affine, bias, tuple(heads))


def _line(name: str, axis: Axis) -> LineAxis:
    query = axis.query
    used = np.flatnonzero(query[0])
    if len(query) != 1 or len(used) != 1:
        raise Undecided(
            f"head '{name}' has an axis that reads {len(used)} variables in {len(query)} directions, not one in one"
        )
    return LineAxis(int(used[0]), float(query[0, used[0]]), float(axis.offset[0]), axis.slopes[:, 0], axis.biases)
