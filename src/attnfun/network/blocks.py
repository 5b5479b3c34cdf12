"""The coordinates of a token matrix by name, and matrices by blocks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from attnfun.network import TokenHead, rounded

Array = NDArray[np.float64]

GAP = 1024.0  # below every other logit: e^-1024 is an exact zero in float64 and float32


class Stream:
    """Coordinates by name, and matrices by blocks of them."""

    def __init__(self, dim: int, blocks: str, units: Sequence[str]) -> None:
        self.d = dim
        vectors = [f"{block}{j + 1}" for block in blocks for j in range(dim)]
        self.names = (*vectors, *units)
        self.width = len(self.names)

    def at(self, name: str) -> int:
        return self.names.index(name)

    def matrix(
        self, columns: int, blocks: Mapping[tuple[str, int], float], units: Mapping[tuple[str, int], float]
    ) -> Array:
        """(width, columns): value · identity at (block, first column), single entries at (name, column)."""
        M = np.zeros((self.width, columns))
        for (block, column), value in blocks.items():
            for j in range(self.d):
                M[self.at(f"{block}{j + 1}"), column + j] = value
        for (name, column), value in units.items():
            M[self.at(name), column] = value
        return M

    def carry(
        self, blocks: Mapping[tuple[str, str], float], units: Mapping[tuple[str, str], float] | None = None
    ) -> Array:
        """The identity, but for value · identity from block to block and single entries from unit to unit."""
        C = np.eye(self.width)
        for (source, goal), value in blocks.items():
            for j in range(self.d):
                C[self.at(f"{source}{j + 1}"), self.at(f"{goal}{j + 1}")] = value
        for (source, goal), value in (units or {}).items():
            C[self.at(source), self.at(goal)] = value
        return C

    @staticmethod
    def rounded(arrays: Sequence[Array], dtype: str) -> list[Array]:
        return [rounded(array, dtype) for array in arrays]

    def head(self, name: str, dtype: str, *tables: Mapping[tuple[str, int], float]) -> TokenHead:
        """A head by tables of W_Q, W_K, W_V and W_O transposed: value · identity at (block, first column), single
        entries at (name, column); as many columns as a table has.
        """
        matrices = []
        for table in tables:
            units = {at: value for at, value in table.items() if at[0] in self.names}
            blocks = {at: value for at, value in table.items() if at[0] not in self.names}
            columns = max([column + 1 for _, column in units] + [column + self.d for _, column in blocks])
            matrices.append(rounded(self.matrix(columns, blocks, units), dtype))
        query, key, value, output = matrices
        return TokenHead(name, query, key, value, output.T)
