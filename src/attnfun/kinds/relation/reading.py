"""Reading: what a tower reads of points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.core import inner_points
from attnfun.language import Graph
from attnfun.network.head import Array


@dataclass(frozen=True, eq=False)
class Reading:
    """What a tower reads of points: themselves, or with `ends` u(x) cut to that box, `inner` being u (None: x)."""

    names: tuple[str, ...]
    inner: Graph | None = None
    ends: tuple[Array, Array] | None = None

    def __post_init__(self) -> None:
        count = len(self.names) if self.inner is None else len(self.inner.outputs)
        if self.ends is not None and any(e.shape != (count,) or not np.isfinite(e).all() for e in self.ends):
            raise InvalidRequest("a tower's box has ends that are not finite numbers")
        if self.inner is not None and (self.ends is None or not set(self.inner.variables) <= set(self.names)):
            raise InvalidRequest("a tower's inner functions do not fit its variables")

    @property
    def width(self) -> int:
        return len(self.names) if self.inner is None else len(self.inner.outputs)

    def __call__(self, X: Array) -> Array:
        if self.ends is None:
            return X
        return np.asarray(np.clip(X if self.inner is None else inner_points(self.inner, X, self.names), *self.ends))
