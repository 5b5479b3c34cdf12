"""How many bits a margin needs.

Claim. What a task costs in precision is its margin: log2(1/margin) bits and a constant, for embeddings of top-k sets,
lexicographic grids, pairs mod M (2 log2 M), averages over q positions (2q dimensions against q log N) and retrieval.

Source. Sanford, Hsu, Telgarsky 2023 (arXiv 2306.02896) for averages and pairs; Weller et al. 2025 (arXiv 2508.21038)
for top-k sets; the law with its constant and its proof is our own.

How many bits does a task need, given its margin?

Every task here is decided by scores ⟨q, k⟩. In b-bit arithmetic the stored coordinates of q and k and the score itself
are rounded to b significant bits. With u = 2^{−b} a score moves by at most ((1+u)³ − 1) Σ|q_i k_i|, and its sum in
float64 by d 2^{−53} Σ|q_i k_i|: together at most 3.1 u Σ|q_i k_i| for b ≥ 9 and d 2^{b−53} ≤ 0.09. Let the *margin* be
the largest relative error of scores that the task bears: half of the least gap between scores that must be told apart,
or, for averages, the tolerance divided by the inverse temperature (logits that move by e move weights by tanh(e/2) in
total variation); over the reach, the largest Σ|q_i k_i|. Then

    b ≥ log2(3.1/margin)  bits are enough.

Measured is the least b from which on all decisions are right. The claim is that it follows log2(1/margin) with a
constant for every task.

A full run takes 43 seconds of CPU.

Columns.
    task: what is decided by scores
    size: of the task
    dimension: of keys and queries
    margin: relative error of scores that the task bears: half the least gap (or tolerance/β) over the reach
    predicted: log2(1/margin)
    enough: bits that are proved to be enough: log2(3.1/margin), rounded up
    bits: significant bits from which on every decision is right, in simulated arithmetic
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, FAINT, NETWORKS, Figure, curve, labelled, panels
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, decided, described

Array = NDArray[np.float64]
Found = tuple[str, int, float, int]
TOP, GRID, PAIRS, KEYS, LOOSE = "top k on a circle", "lexicographic grid", "pairs mod M", "retrieval", "top k, embedded"
CURVE, SIGNS = "average of q, curve", "average of q, random signs"
ENOUGH, MOST = 3.1, 52
TOLERANCE = 1e-2
NEAR, FAR = 0.1, 0.25  # slopes: holds, refuted


def rounded(x: Array, bits: int) -> Array:
    """x to `bits` significant bits, to nearest, ties to even; no limit on exponents."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits))


def scores(queries: Array, keys: Array, bits: int) -> Array:
    """(queries, keys) in b-bit arithmetic: both rounded, summed in float64, and rounded again."""
    return rounded(rounded(queries, bits) @ rounded(keys, bits).T, bits)


def reach(queries: Array, keys: Array) -> float:
    return float((np.abs(queries) @ np.abs(keys).T).max())


def least_bits(right: Callable[[int], bool]) -> int:
    """The least b from which on `right` holds up to MOST; MOST + 1 if not even there."""
    bits = MOST + 1
    while bits > 1 and right(bits - 1):
        bits -= 1
    return bits


def units(size: Size) -> list[Unit]:
    return [{"task": task, "sizes": list(numbers)} for task in size for numbers in size[task]]


def run(unit: Unit) -> Row:
    tasks: dict[str, Callable[..., Found]] = {TOP: top_on_circle, LOOSE: top_embedded, GRID: lexicographic_grid}
    tasks |= {PAIRS: pairs, KEYS: retrieval}
    tasks |= {CURVE: partial(average, keys="curve"), SIGNS: partial(average, keys="random")}
    name, dimension, margin, bits = tasks[unit["task"]](*unit["sizes"])
    exact = math.log2(1 / margin)
    row = {"size": name, "dimension": dimension, "margin": margin, "predicted": exact, "bits": bits}
    return row | {"enough": max(9, math.ceil(exact + math.log2(ENOUGH)))}


def _sets(n: int, k: int) -> list[tuple[int, ...]]:
    """All k-subsets, or where they are many those of neighbours, which are the closest, and 500 random ones."""
    if math.comb(n, k) <= 3000:
        return list(combinations(range(n), k))
    random = np.random.default_rng([n, k])
    near = [tuple(sorted((i + j) % n for j in range(k))) for i in range(n)]
    return near + [tuple(sorted(random.choice(n, k, replace=False).tolist())) for _ in range(500)]


def _ranked(queries: Array, documents: Array, sets: list[tuple[int, ...]]) -> tuple[float, int]:
    """(margin, least bits) of "every document of a query's set scores above every other"."""
    inside = np.zeros((len(sets), len(documents)), dtype=bool)
    for row, one in enumerate(sets):
        inside[row, list(one)] = True

    def gap(found: Array) -> float:
        least = np.where(inside, found, np.inf).min(axis=1)
        return float((least - np.where(inside, -np.inf, found).max(axis=1)).min())

    margin = gap(queries @ documents.T) / 2 / reach(queries, documents)
    return margin, least_bits(lambda b: gap(scores(queries, documents, b)) > 0)


def top_on_circle(k: int, n: int) -> Found:
    """2k dimensions for all k-subsets of n documents (`limits.embedding.curve`)."""
    sets = _sets(n, k)
    queries = np.array([af.parts.curve_query(n, np.array(one)) for one in sets])
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return f"k = {k}, n = {n}", 2 * k, *_ranked(queries, af.parts.curve_keys(n, k), sets)


def top_embedded(k: int, n: int, dim: int) -> Found:
    """The vectors that `embed_dim` finds at a dimension, as real numbers; all k-subsets."""
    sets = list(combinations(range(n), k))
    relation = [[int(j in one) for j in range(n)] for one in sets]
    found = af.embed_dim(relation, dim=dim, bits=30)
    queries, documents = (np.array(part, dtype=np.float64) for part in (found.queries, found.documents))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return f"k = {k}, n = {n}, {dim} dimensions", dim, *_ranked(queries, documents, sets)


def lexicographic_grid(levels: int) -> Found:
    """u = P x1 + x2 for x in {0 … P−1}²: P² numbers, one apart (`af.lexicographic`, one head)."""
    x1 = np.repeat(np.arange(levels, dtype=np.float64), 2)  # u rises: neighbours and the ends of blocks are enough
    x2 = np.tile([levels - 2.0, levels - 1.0], levels)
    pairs_ = np.stack([x1, x2], axis=1)
    edge = np.stack([np.arange(1, levels, dtype=np.float64), np.zeros(levels - 1)], axis=1)
    query = np.array([[float(levels), 1.0]])

    def right(bits: int) -> bool:
        u, v = (scores(query, part, bits)[0] for part in (pairs_, edge))
        return bool((u[1::2] > u[::2]).all() and (v > u[1:-1:2]).all())

    return f"P = {levels:,}", 1, 0.5 / (levels**2 - 1), least_bits(right)


def pairs(modulus: int) -> Found:
    """Match2: a sum of 0 above the null token, a sum of ±1 below it, for every residue."""
    x = np.arange(modulus)
    cos, sin = af.parts.circle(x, modulus, "float64")
    null = af.parts.null_logit(1.0, modulus, "float64")

    def right(bits: int) -> bool:
        c, s = rounded(cos, bits), rounded(sin, bits)
        level = float(rounded(np.array(null), bits))
        logits = [rounded(c * c[(t - x) % modulus] - s * s[(t - x) % modulus], bits) for t in (0, 1, -1)]
        return bool((logits[0] > level).all() and max(logits[1].max(), logits[2].max()) < level)

    return f"M = {modulus:,}", 2, af.parts.pair_gap(modulus) / 4, least_bits(right)


def average(q: int, n: int, keys: str) -> Found:
    """Averages over q of n positions to a tolerance: weights of equal scores must stay equal (`af.sparse_average`)."""
    random, curved = np.random.default_rng([n, q]), keys == "curve"
    sets = {tuple(sorted((i + j) % n for j in range(q))) for i in range(n)}
    sets |= {tuple(sorted(random.choice(n, q, replace=False).tolist())) for _ in range(200)}
    width = None if curved else math.ceil(8 * q * math.log(n))
    net = af.sparse_average(n, q, keys=keys, subsets=sorted(sets), width=width, eps=TOLERANCE)
    chosen = [np.array(one) for one in net.subsets]
    query = partial(af.parts.curve_query, n) if curved else partial(af.parts.least_norm_query, net.codes)
    queries = np.array([query(one) for one in chosen])
    wanted = np.zeros((len(chosen), n))
    for row, one in enumerate(chosen):
        wanted[row, one] = 1 / q

    def right(bits: int) -> bool:
        logits = net.bound.beta * scores(queries, net.codes, bits)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        worst = np.abs(weights - wanted).sum(axis=1).max()  # z = ±1, the worst: half of it, times the range 2
        return bool(worst <= 2 * TOLERANCE)

    margin = TOLERANCE / (net.bound.beta * reach(queries, net.codes))
    return f"q = {q}, N = {n}", net.codes.shape[1], margin, least_bits(right)


def retrieval(exponent: int) -> Found:
    """64 unit keys in 16 dimensions; up to 400 queries whose best key leads the second by 2^−e."""
    random = np.random.default_rng(exponent)
    count, n, d = 400, 64, 16
    keys = random.normal(size=(n, d))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    first = random.integers(n, size=count)
    a, b = keys[first], keys[(first + random.integers(1, n, size=count)) % n]
    away = a - b
    queries = 4 * (a + b) + away * (2.0**-exponent / (away**2).sum(axis=1, keepdims=True))  # ⟨q, a − b⟩ = 2^−e
    plain = queries @ keys.T
    kept = plain.argmax(axis=1) == first
    ordered = np.sort(plain[kept], axis=1)
    queries, first = queries[kept], first[kept]
    margin = float((ordered[:, -1] - ordered[:, -2]).min()) / 2 / reach(queries, keys)
    bits = least_bits(lambda b_: bool((scores(queries, keys, b_).argmax(axis=1) == first).all()))
    return f"lead 2^-{exponent}", d, margin, bits


def judge(table: Rows) -> Verdict:
    """Refuted when more bits are needed than are proved to be enough, or when bits do not follow log2(1/margin).

    The slope of bits against log2(1/margin), task by task where the margins differ by three bits at least: within a
    tenth of 1 the claim holds, further than a quarter it is refuted.
    """
    faults = table.above("bits", "enough").say("{task}, {size}: {bits} bits needed, {enough} proved to be enough")
    parts, slopes, flat = [], [], []
    for task, rows in table.by("task"):
        slope = _slope(rows.of("predicted"), rows.of("bits"))
        (flat.append(task) if slope is None else slopes.append(slope))
        said = "" if slope is None else f"slope {slope:.2f}, "
        excess = f"{said}bits − log2(1/margin) from {rows.span(_excess, '.1f')}"
        parts.append(f"{task}: {rows.span('bits', 'd')} bits, {excess}")
    words = ["; ".join(parts) + "."]
    curved = table.where(task=CURVE, size=tuple(table.where(task=SIGNS).of("size")))
    for a in curved[-1:]:
        b = table.where(task=SIGNS, size=a["size"])[-1]
        words.append(
            f"The same averages ({a['size']}) take {a['dimension']} dimensions of {a['bits']} bits on the curve and "
            f"{b['dimension']} of {b['bits']} with random signs."
        )
    if not slopes or not all(abs(slope - 1) <= FAR for slope in slopes):
        faults.append("bits do not follow log2(1/margin)")
    near = all(abs(slope - 1) <= NEAR for slope in slopes)
    limit = "" if near else "Bits follow log2(1/margin), but a slope is off by more than a tenth."
    end = f"Over all tasks bits − log2(1/margin) goes from {table.span(_excess, '.1f')}"
    end += f"; no slope, for margins too alike or too few: {', '.join(flat)}." if flat else "."
    return decided(words, faults, limit, end)


def _excess(row: Row) -> float:
    return float(row["bits"] - row["predicted"])


def _slope(xs: list[float], ys: list[float]) -> float | None:
    """Least-squares slope, None where there are fewer than three margins or they differ by less than three bits."""
    if len(xs) < 3 or not max(xs) - min(xs) >= 3:
        return None
    x, y = np.array(xs) - np.mean(xs), np.array(ys) - np.mean(ys)
    return float((x * y).sum() / (x * x).sum())


def draw(table: Rows) -> Figure:
    figure, [ax] = panels(width=6.0, height=4.6)
    ends = np.array([min(table.of("predicted")) - 0.5, max(table.of("predicted")) + 1])
    ax.plot(ends, ends + math.log2(ENOUGH), "-", color=BOUND, lw=1.3, label="proved to be enough: log2(3.1/margin)")
    ax.plot(ends, ends, ":", color=FAINT, label="log2(1/margin)")
    for colour, marker, (_, rows) in zip(NETWORKS, "osD^vP*", table.by("task"), strict=False):
        curve(ax, rows, "predicted", "bits", marker, color=colour, ms=5, label="{task}")
    for bits, name in ((8, "bfloat16"), (11, "float16"), (24, "float32")):
        ax.axhline(bits, color="#cbd2d9", lw=0.8, zorder=0)
        ax.annotate(name, (ends[1], bits), ha="right", va="bottom", fontsize=7, color="#7b8794")
    texts = ("significant bits from which on every decision is right", "log2(1/margin)", "bits needed")
    labelled(ax, "Bits against margin", *texts, legend="upper left")
    return figure


STUDY = described(
    __name__,
    **{
        TOP: (
            [[1, 8], [2, 8]],
            [[1, 8], [1, 32], [1, 128], [2, 8], [2, 16], [2, 32], [2, 64], [3, 12], [3, 24], [3, 46]],
            [[k, n] for k in (1, 2, 3, 4) for n in (16, 32, 64, 128, 256) if n ** (2 * k) < 2**44],
        ),
        LOOSE: (
            [],
            [[2, 12, 4], [2, 12, 6], [2, 16, 4], [2, 16, 6], [2, 16, 8]],
            [[2, n, d] for n in (16, 24, 46) for d in (4, 6, 8, 12)],
        ),
        GRID: (
            [[4], [16], [45]],
            [[4], [16], [45], [46], [256], [4096], [65536]],
            [[p] for p in (4, 16, 17, 45, 46, 256, 1024, 4096, 4097, 65536, 10**6)],
        ),
        PAIRS: (
            [[17], [101]],
            [[17], [101], [1009], [4001], [10007]],
            [[m] for m in (17, 101, 1009, 10007, 50021, 100003)],
        ),
        CURVE: (
            [],
            [[2, 16], [2, 32], [2, 64], [2, 128], [3, 16], [3, 32], [4, 16], [4, 32]],
            [[q, n] for q in (2, 3, 4) for n in (16, 32, 64, 128) if n ** (2 * q) < 2**36],
        ),
        SIGNS: (
            [],
            [[2, 64], [4, 32], [4, 64], [4, 256], [8, 256]],
            [[q, n] for q in (2, 4, 8) for n in (64, 256, 1024)],
        ),
        KEYS: ([[6]], [[e] for e in range(2, 31, 4)], [[e] for e in range(2, 33, 2)]),
    },
)
