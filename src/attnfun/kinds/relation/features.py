"""Features of a relation: Chebyshev coefficients of the factors of two towers, and which products are taken.

| symbol | here | shape |
| --- | --- | --- |
| P_k | `Block.left`: coefficients of m functions of the left variables of factor k | (N_1, …, N_a, m) |
| Q_k | `Block.right`: the same for the right variables | (N_1, …, N_b, m) |
| S | `selection`: row i names the column of every block that feature i multiplies | (rank, blocks) |

    φ_i(x) = Π_k P_k[S_ik](x),   ψ_i(y) = Π_k Q_k[S_ik](y),   P(x) = Σ_J P_J Π_j T_{J_j}(t_j),   t = x mapped to [-1, 1]

A block may hold more columns than the selection uses: together they are an expansion of the whole factor, which the
proof compares the selected ones with. In a symmetric relation Q_k = P_k times `signs` (all 1 unless signed), so that
one tower serves both sides. Nothing but weights is here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest, require
from attnfun.language import Builder, Graph
from attnfun.language.brief import Brief
from attnfun.network.head import AnyArray, Array, freeze, frozen

Index = NDArray[np.int64]


Ends = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Block(Brief):
    """The expansion of one factor: `left_vars`, `right_vars` are the variables (by place) that it holds.

    `other` are the coefficients of the right side. A block of a symmetric relation has `signs`, one ±1 a column, in
    their place: its right side is the left one's, times signs.
    """

    left_vars: tuple[int, ...]
    right_vars: tuple[int, ...]
    left: Array
    other: Array | None = None
    signs: Array | None = None

    def __post_init__(self) -> None:
        freeze(self)
        require((self.other is None) != (self.signs is None), "a block of features has a right side, or signs for it")
        if self.signs is not None:
            fits = self.left_vars == self.right_vars and self.signs.shape == self.left.shape[-1:]
            require(fits and np.isin(self.signs, (-1.0, 1.0)).all(), "a symmetric relation has unequal towers")
        if self.left.ndim != len(self.left_vars) + 1 or self.right.ndim != len(self.right_vars) + 1:
            raise InvalidRequest("a block of features does not fit its variables")
        if self.left.shape[-1] != self.right.shape[-1] or not self.left.size or not self.right.size:
            raise InvalidRequest("a block of features has unequal or empty sides")
        require(np.isfinite(self.left).all() and np.isfinite(self.right).all(), "a feature's coefficient is not finite")

    @cached_property
    def right(self) -> Array:
        if self.signs is None:
            assert self.other is not None
            return self.other
        return frozen(self.left * self.signs)

    @property
    def columns(self) -> int:
        return int(self.left.shape[-1])


@dataclass(frozen=True, eq=False)
class Half(Brief):
    """One side of features: the coefficients and the variables of every block, their box, and the selection."""

    tables: tuple[Array, ...]
    places: tuple[tuple[int, ...], ...]
    box: Ends
    selection: Index

    @property
    def rank(self) -> int:
        return len(self.selection)

    @property
    def alive(self) -> tuple[int, ...]:
        """The blocks with a variable on this side, in order."""
        return tuple(b for b, places in enumerate(self.places) if places)

    def variables(self, blocks: Iterable[int]) -> list[int]:
        """Those of these blocks, in order."""
        return [v for b in blocks for v in self.places[b]]

    def constants(self) -> list[Array]:
        """(rank,) the factor of every block without a variable on this side."""
        return [P[self.selection[:, b]] for b, P in enumerate(self.tables) if b not in self.alive]

    def distinct(self, blocks: Sequence[int]) -> tuple[Index, Index]:
        """((n, blocks) tuples of columns that features take from these blocks, (rank,) which of them each takes)."""
        found, place = np.unique(self.selection[:, list(blocks)], axis=0, return_inverse=True)
        return found, place.reshape(-1)


@dataclass(frozen=True, eq=False)
class Features(Brief):
    """Two towers by their coefficients, on the boxes `left_box`, `right_box` = (low, high) of the core's variables."""

    blocks: tuple[Block, ...]
    selection: Index
    left_box: Ends
    right_box: Ends

    def __post_init__(self) -> None:
        chosen = np.array(self.selection, dtype=np.int64)
        chosen.setflags(write=False)
        object.__setattr__(self, "selection", chosen)
        freeze(self)
        if chosen.ndim != 2 or chosen.shape[1] != len(self.blocks) or not len(chosen):
            raise InvalidRequest(f"a selection of shape {chosen.shape} does not fit {len(self.blocks)} blocks")
        counts = [block.columns for block in self.blocks]
        require(((chosen >= 0) & (chosen < counts)).all(), "the selection names a feature that is not there")
        require(len({tuple(row) for row in chosen.tolist()}) == len(chosen), "the selection names a feature twice")
        for half in (self.half("left"), self.half("right")):
            low, high = half.box
            if sorted(half.variables(range(len(self.blocks)))) != list(range(len(low))) or low.shape != high.shape:
                raise InvalidRequest("the blocks do not hold every variable once")
            require(((-np.inf < low) & (low < high) & (high < np.inf)).all(), "the box of the features is empty")
        require(len({block.signs is None for block in self.blocks}) <= 1, "a symmetric relation has unequal towers")
        same = all(np.array_equal(a, b) for a, b in zip(self.left_box, self.right_box, strict=True))
        require(self.signs is None or same, "a symmetric relation has towers on unequal boxes")

    def half(self, side: str) -> Half:
        """What belongs to one side, "left" or "right"."""
        blocks, first = self.blocks, side == "left"
        tables = tuple(block.left if first else block.right for block in blocks)
        places = tuple(block.left_vars if first else block.right_vars for block in blocks)
        return Half(tables, places, self.left_box if first else self.right_box, self.selection)

    @property
    def signs(self) -> tuple[Array, ...] | None:
        """Of every block, not None exactly if the relation is symmetric."""
        found = tuple(block.signs for block in self.blocks if block.signs is not None)
        return found or None

    @property
    def rank(self) -> int:
        return len(self.selection)

    @property
    def product_signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones for two towers."""
        out = np.ones(self.rank)
        for k, signs in enumerate(self.signs or ()):
            out = out * signs[self.selection[:, k]]
        return out

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        """(n, variables of the core) → (n, rank): `name` is "left" or "right".

        Operations, for the rounding bound: t = ((x − low) − (high − x))/(high − low), cut to [-1, 1]; T_j by its
        recurrence; one sum per axis; one product per block.
        """
        half, kind = self.half(name), np.dtype(dtype)
        out = np.ones((len(points), self.rank), dtype=kind)
        x, a, b = (array.astype(kind) for array in (points, *half.box))
        t = np.clip(((x - a) - (b - x)) / (b - a), kind.type(-1), kind.type(1))
        for k, (coefficients, places) in enumerate(zip(half.tables, half.places, strict=True)):
            used = np.unique(self.selection[:, k])
            value = contracted(coefficients.astype(kind)[..., used], [t[:, v] for v in places])
            out = out * value[:, np.searchsorted(used, self.selection[:, k])]
        return out


def chebyshev_columns(t: AnyArray, count: int) -> AnyArray:
    """(n,) → (n, count): T_0(t), …, T_{count−1}(t) by T_{j+1} = 2 t T_j − T_{j−1}."""
    out = np.empty((len(t), count), dtype=t.dtype)
    out[:, 0] = 1
    if count > 1:
        out[:, 1] = t
    for j in range(2, count):
        out[:, j] = 2 * t * out[:, j - 1] - out[:, j - 2]
    return out


def contracted(coefficients: AnyArray, t: list[AnyArray]) -> AnyArray:
    """(N_1, …, N_a, m) and a columns (n,) → (n, m): Σ_J c_J Π_j T_{J_j}(t_j), axis after axis; blocks of rows."""
    m = coefficients.shape[-1]
    if not t:
        return coefficients.reshape(1, m)
    n = len(t[0])
    step = max(1, (1 << 24) // max(1, coefficients.size // coefficients.shape[0]))
    parts = []
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        columns = [chebyshev_columns(one[rows], size) for one, size in zip(t, coefficients.shape, strict=False)]
        value = np.tensordot(columns[0], coefficients, axes=(1, 0))
        for column in columns[1:]:
            value = np.einsum("nj,nj...->n...", column, value)
        parts.append(value)
    return np.concatenate(parts)


def along(matrices: Iterable[Array], table: Array) -> Array:
    """The table, multiplied by one matrix after the other along its axes in order."""
    for j, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, j)), 0, j)
    return table


def polynomial_graph(coefficients: Array, low: float, high: float) -> Graph:
    """Σ_j c_j T_j(t(u)) of one variable u in [low, high], by Clenshaw's recurrence with exact rational coefficients.

    Coefficients below 1e-250 cannot be written in the target language and are left out.
    """
    builder = Builder()
    u = builder.var("u")
    a, b = Fraction(low), Fraction(high)
    t = builder.apply("add", builder.apply("mul", builder.const(2 / (b - a)), u), builder.const(-(a + b) / (b - a)))
    two = builder.apply("mul", builder.const(2), t)
    after, now = builder.const(0), builder.const(0)
    rows = [Fraction(float(c)) if abs(c) > 1e-250 else Fraction(0) for c in coefficients]
    for c in reversed(rows[1:]):
        new = builder.apply("sub", builder.apply("add", builder.apply("mul", two, now), builder.const(c)), after)
        after, now = now, new
    last = builder.apply("sub", builder.apply("add", builder.apply("mul", t, now), builder.const(rows[0])), after)
    return builder.graph([last])
