"""Finite relations: the dimension each needs, from below and above, and the margins of some. Prints Markdown.

    python benchmarks/finite_relations.py [--planted] [--output FILE]

--planted: instead, relations of a known dimension d: 60 documents and 100 queries, normal in R^d, and for each query
the three documents of the largest products are relevant. Twenty of each d; how often the upper end is how far from d.

Every row is computed, both certificates are checked again on the whole relation, and seconds are wall-clock seconds.
"""

import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import hadamard

import attnfun as af
from attnfun.limits.embedding import Relevance, check_embedding, check_obstruction
from bench import Row, asked, memory, table


def of_rows(rows: list[tuple[int, ...]], n: int) -> Relevance:
    queries, documents = (tuple(f"{letter}{i}" for i in range(c)) for letter, c in (("q", len(rows)), ("d", n)))
    return Relevance(queries, documents, tuple(np.array(sorted(row), np.int64) for row in rows))


def subsets(n: int, k: int) -> Relevance:
    return of_rows(list(itertools.combinations(range(n), k)), n)


def random_sets(m: int, n: int, k: int, seed: int) -> Relevance:
    rng = np.random.default_rng(seed)
    return of_rows([tuple(rng.choice(n, k, replace=False).tolist()) for _ in range(m)], n)


def intervals(m: int, n: int, seed: int) -> Relevance:
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    ends = [sorted(rng.choice(n + 1, 2, replace=False)) for _ in range(m)]
    return of_rows([tuple(order[a:b].tolist()) for a, b in ends], n)


def half_relevant(m: int, n: int, seed: int) -> Relevance:
    return Relevance.from_matrix(np.random.default_rng(seed).random((m, n)) < 0.5)


CASES: list[tuple[str, Callable[[], Relevance], list[int]]] = [
    ("all pairs of 46", lambda: subsets(46, 2), [5, 6, 8, 10, 12, 16]),
    ("all triples of 20", lambda: subsets(20, 3), [8, 12]),
    ("100 random intervals of 50", lambda: intervals(100, 50, 0), [4]),
    ("30 nested sets", lambda: Relevance.from_matrix(np.tril(np.ones((30, 30)))), []),
    ("100 random triples of 50", lambda: random_sets(100, 50, 3, 0), [8]),
    ("100 random triples of 50, another", lambda: random_sets(100, 50, 3, 1), []),
    ("Hadamard 64", lambda: Relevance.from_matrix(hadamard(64)), []),
    ("random 100 × 50, half relevant", lambda: half_relevant(100, 50, 0), []),
    ("1,000 random pairs of 50,000", lambda: random_sets(1000, 50_000, 2, 5), []),
    ("20,000 random pairs of 50,000", lambda: random_sets(20_000, 50_000, 2, 5), []),
]


def planted(dim: int, seed: int) -> Relevance:
    rng = np.random.default_rng(seed)
    documents, queries = rng.standard_normal((60, dim)), rng.standard_normal((100, dim))
    scores = queries @ documents.T
    return Relevance.from_matrix(scores >= np.sort(scores, axis=1)[:, -3, None])


def planted_rows() -> Iterator[Row]:
    for dim in range(2, 7):
        answers = [af.embed_dim(planted(dim, seed)) for seed in range(20)]
        ends = {end: Counter(getattr(answer, end) - dim for answer in answers) for end in ("upper", "lower")}
        shown = {
            f"{end} − d: how often": ", ".join(f"{far}: {count}" for far, count in sorted(seen.items()))
            for end, seen in ends.items()
        }
        seconds = [answer.seconds for answer in answers]
        yield {"d": dim, **shown, "seconds, mean": round(float(np.mean(seconds)), 1), "most": round(max(seconds), 1)}


def case_rows() -> Iterator[Row]:
    for name, make, dimensions in CASES:
        relation = make()
        start = time.perf_counter()
        answer = af.embed_dim(relation, table=dimensions)
        seconds = time.perf_counter() - start
        assert check_obstruction(relation, answer.obstruction) == answer.lower
        assert check_embedding(relation, answer.queries, answer.documents).margin == answer.margin
        margins = "; ".join(f"{row.dimension}: {row.margin:.2g} ({row.bits})" for row in answer.table)
        bounds = {"lower": answer.lower, "lower by": answer.obstruction.kind}
        bounds |= {"upper": answer.upper, "upper by": answer.method, "dimension: margin (bits)": margins}
        yield {"relation": name, **bounds, "seconds": round(seconds, 1), "GiB": round(memory(), 2)}


if __name__ == "__main__":
    options = asked(__doc__, planted={"action": "store_true"})
    sys.exit(table(options, planted_rows() if options.planted else case_rows()))
