"""Documents on a torus: equispaced in an order, on several frequencies at once.

Statement. Document number p of n is (cos 2πfp/n, sin 2πfp/n) for f in a set F of d/2 frequencies (in an odd dimension
also (−1)^p, for even n). All documents have the same length, and a relation that is invariant under the cyclic shift of
the documents need be looked at in one row of each orbit only: rotating the documents rotates the best query.

Source. Group codes; for retrieval this file's search. The margins for all pairs of 46 documents are those of the table
in docs/finite-relations.md.

Construction. Random sets F, then exchanges of one frequency, the best kept. A set is given up at the first row whose
margin is not above the best so far, the rows that failed last being asked first.

Failure mode. For relations without the symmetry a sample of rows stands for all; the margin is measured later.
"""

import numpy as np

from attnfun.limits.embedding.relevance import Array, Core, Indices, places
from attnfun.limits.embedding.separate import best_query


def torus(n: int, frequencies: tuple[int, ...], order: Indices, alternating: bool) -> Array:
    """Unit documents, by index."""
    angle = 2 * np.pi * np.arange(n)[:, None] * np.array(frequencies) / n
    parts = [np.cos(angle), np.sin(angle)]
    if alternating:
        parts.append(((-1.0) ** np.arange(n))[:, None] / np.sqrt(2.0))
    on_curve = np.concatenate(parts, axis=1)
    out = np.empty_like(on_curve)
    out[order] = on_curve
    return out / np.linalg.norm(out, axis=1, keepdims=True)


def representatives(core: Core, order: Indices, sample: int = 48) -> list[Indices]:
    """A row of each orbit of the cyclic shift if the relation is invariant under it, else some rows."""
    place = places(order)
    shown = {tuple(np.sort(place[row]).tolist()) for row in core.rows}
    left, chosen = set(shown), []
    while left:
        row = min(left)
        orbit = {tuple(sorted((p + shift) % core.n for p in row)) for shift in range(core.n)}
        if not orbit <= shown:
            pick = np.linspace(0, core.m - 1, min(sample, core.m)).astype(np.int64)
            return [core.rows[i] for i in pick]
        left -= orbit
        chosen.append(np.sort(order[np.array(row)]))
    return chosen


def frequency_search(core: Core, order: Indices, dim: int, tries: int, seed: int = 0) -> tuple[Array, float] | None:
    """The documents with the largest margin on the representatives, and that margin; None if none separates them."""
    n, count = core.n, dim // 2
    available = np.arange(1, (n - 1) // 2 + 1)
    alternating = dim % 2 == 1
    if count < 1 or count > len(available) or (alternating and n % 2):
        return None
    rows = representatives(core, order)
    rng = np.random.default_rng(seed)
    best: tuple[Array, float] | None = None
    chosen: tuple[int, ...] = ()
    seen: set[tuple[int, ...]] = set()
    for attempt in range(tries):
        if best is None or attempt < tries // 2:
            pick = rng.choice(available, count, replace=False)
        else:
            pick = np.array(chosen)
            free = np.setdiff1d(available, pick)
            if not len(free):
                break
            pick[rng.integers(count)] = rng.choice(free)
        frequencies = tuple(sorted(int(f) for f in pick))
        if frequencies in seen:
            continue
        seen.add(frequencies)
        documents = torus(n, frequencies, order, alternating)
        floor = best[1] if best else 0.0
        least = np.inf
        for at, row in enumerate(rows):
            start = documents[row].mean(axis=0)
            length = np.linalg.norm(start)
            start = start / length if length > 1e-9 else documents[row[0]]
            least = min(least, best_query(documents, row, start)[1])
            if least <= floor + 1e-12:
                rows.insert(0, rows.pop(at))
                break
        else:
            best, chosen = (documents, float(least)), frequencies
    return best
