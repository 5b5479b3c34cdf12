"""The coordinates of a token matrix by name, and matrices by blocks of them."""

from collections.abc import Mapping, Sequence

import numpy as np

from attnfun.network import TokenHead, rounded
from attnfun.network.head import Array as Array

Entries = Mapping[tuple[str, int], float]

GAP = 1024.0  # below every other logit: e^-1024 is an exact zero in float64 and float32


class Stream:
    """Coordinates by name, and matrices by blocks of them."""

    def __init__(self, dim: int, blocks: str, units: Sequence[str]) -> None:
        self.d, self.parts = dim, (*blocks, *units)
        vectors = [f"{block}{j + 1}" for block in blocks for j in range(dim)]
        self.names = (*vectors, *units)
        self.width = len(self.names)
        self.rows = {name: np.array([at]) for at, name in enumerate(self.names)}
        self.rows |= {block: np.arange(dim) + k * dim for k, block in enumerate(blocks)}

    def at(self, name: str) -> int:
        return int(self.rows[name][0])

    def matrix(self, columns: int, *parts: Entries) -> Array:
        """(width, columns): value · identity at (block, first column), single entries at (name, column)."""
        M = np.zeros((self.width, columns))
        for (name, column), value in (entry for part in parts for entry in part.items()):
            rows = self.rows[name]
            M[rows, column + np.arange(len(rows))] = value
        return M

    def carry(self, changed: Mapping[tuple[str, str], float]) -> Array:
        """The identity, but for value · identity from block to block and single entries from unit to unit."""
        C = np.eye(self.width)
        for (source, goal), value in changed.items():
            C[self.rows[source], self.rows[goal]] = value
        return C

    def head(self, name: str, dtype: str, *tables: Entries) -> TokenHead:
        """A head by tables of W_Q, W_K, W_V and W_O transposed: value · identity at (block, first column), single
        entries at (name, column); as many columns as a table has.
        """
        matrices = []
        for table in tables:
            columns = max(column + len(self.rows[what]) for what, column in table)
            matrices.append(rounded(self.matrix(columns, table), dtype))
        query, key, value, output = matrices
        return TokenHead(name, query, key, value, output.T)
