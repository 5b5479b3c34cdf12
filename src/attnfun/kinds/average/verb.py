"""`sparse_average`: heads that average over the positions each token names."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from attnfun.errors import Infeasible, require
from attnfun.kinds.average.build import proposals
from attnfun.kinds.average.target import Averages, rule_of_thumb
from attnfun.kinds.average.view import SparseAverage
from attnfun.kinds.average.weights import Sets, check_subsets
from attnfun.language.numbers import positive, whole_number
from attnfun.search import Goal, search

_MOST_SUBSETS = 20_000
_MOST_SCORES = 1 << 26  # sets × heads × tokens


def sparse_average(
    tokens: int,
    q: int,
    *,
    subsets: Any = None,
    width: int | None = None,
    keys: str = "random",
    heads: int = 1,
    eps: float = 1e-3,
    dim: int = 1,
    z_range: Sequence[float] = (-1.0, 1.0),
    seed: int = 0,
) -> SparseAverage:
    """Heads that average z over q positions of `tokens`, within `eps` for z in `z_range`.

    `subsets`: the sets to prove it for, or how many random ones; all of them if not given and at most 20,000. `keys`:
    "random" (signs in `width` dimensions, 4 q ln N if not given) or "curve" (2q dimensions, tiny margins). `heads`, a
    divisor of q, share the positions: q stands for q/heads in both.
    """
    N, q, heads = whole_number("tokens", tokens, 2), whole_number("q", q, 1), whole_number("heads", heads, 1)
    if width is None:
        width = max(1, 2 * q // heads) if keys == "curve" else rule_of_thumb(N, q // heads)
    eps, first = positive("eps", eps), tuple(range(q))
    low, high = z_range
    target = Averages(N, q, dim, keys, heads, width, (low, high), seed, (first,), eps)
    named = _sets(subsets, N, q, target.seed)
    if len(named) * heads * N > _MOST_SCORES:
        most = _MOST_SCORES // (heads * N)
        raise Infeasible(f"{len(named):,} sets of {N:,} tokens are too many scores to prove", {"subsets": most})
    target = replace(target, subsets=named)
    found, certificate = search(target, proposals(target), Goal(eps), lambda _text: None)
    return SparseAverage(target, found.weights, certificate, {"eps": eps, "seed": seed}, found.told)


def _sets(subsets: Any, N: int, q: int, seed: int) -> Sets:
    if subsets is None:
        require(math.comb(N, q) <= _MOST_SUBSETS, f"{math.comb(N, q):,} sets of {q} of {N}: give subsets, or how many")
        return tuple(combinations(range(N), q))
    if isinstance(subsets, (int, np.integer)) and not isinstance(subsets, bool):
        whole_number("subsets", subsets, 1, _MOST_SUBSETS)
        random = np.random.default_rng([seed, 1])
        return tuple(tuple(sorted(random.choice(N, q, replace=False).tolist())) for _ in range(subsets))
    return check_subsets(subsets, N, q)
