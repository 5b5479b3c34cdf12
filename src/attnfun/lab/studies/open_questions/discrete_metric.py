"""Nearest neighbour on the Hamming cube: is there a rank bound?

Claim. The lower bound on heads of low rank for nearest neighbours on the sphere should carry over to a discrete
metric space (asked as an open question): on the Hamming cube, with Krawtchouk for Gegenbauer polynomials, H heads
that see r of its dimensions err by at least Σ e_ℓ (1 − H C(r, ℓ)/C(d, ℓ))₊, and one of full rank does not.

Source. Bruna, slides on Amsel, Yehudai, Bruna 2024 (arXiv 2407.16153): future work; the bounds and their proofs are
our own, attnfun.limits.separation.krawtchouk.

Does the rank bound of the sphere carry over to the Hamming cube?

Nearest neighbour among two is sign(⟨z, y⟩), z the difference of the candidates, taken from the cube itself or from the
difference of two of its points (column `candidates`); the harmonics are characters, Gegenbauer polynomials become
Krawtchouk polynomials, and everything is an exact fraction (`limits.separation.krawtchouk`, statements and proofs).
Heads that read r coordinates: the bound, what random choices of coordinates leave (exact), what some choice is proved
to reach. Heads of rank one that know ⟨K, z⟩ for real weights K: the least error of any function of that number and y,
worked out on the whole cube, for whole-number weights of p bits and for powers of two. Softmax heads, trained.

A full run takes two minutes of CPU.

Columns.
    way: what a head knows of z: r coordinates; one number ⟨K, z⟩; or softmax heads of rank r
    dim: d; z and y are uniform on {−1, 1}^d
    rank: r
    heads: H
    bits: of the whole-number weights K
    seed: of the choice of coordinates, of K, or of the training
    error: E|sign(⟨z, y⟩) − f|²: the least for what the heads know, exact; trained: on 20,000 pairs
    standard error: of a trained head's error; 0 where it is exact
    values: different values of what one head knows
    bound: ≥ proved for H heads that read r coordinates
    candidates: ≥ proved for the same heads on two candidates x1, x2 and sign(⟨x1 − x2, y⟩), 0 for ties
    reached: ≤ some choice of coordinates is proved to do no worse
    bound by values: ≥ proved for any H heads that tell so many values of z apart
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, labelled, panels
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, crossed_with, decided, described
from attnfun.lab.studies.tables import Told

COORDINATES, NUMBER, POWERS = "coordinates", "number, p bits", "number, powers of two"
SOFTMAX, TRAINED = "softmax, full rank", "softmax, trained"
EXACT = 1e-9


def units(size: Size) -> list[Unit]:
    d, run = size["dim"], {"heads": [size["heads"]], "draws": size["draws"]}
    made = crossed_with(("dim", "rank"), size["coordinates"], way=COORDINATES, **run)
    run = {"dim": d, "seed": range(size["seeds"])}
    made += crossed(way=NUMBER, bits=size["bits"], **run) + crossed(way=(POWERS, SOFTMAX), dim=d)
    return made + crossed_with(("rank", "heads"), size["trained"], way=TRAINED, steps=size["steps"], **run)


def run(unit: Unit) -> Row | list[Row]:
    d, seed = unit["dim"], unit.get("seed")
    if unit["way"] == COORDINATES:
        rank, rows = unit["rank"], []
        for heads, draw_ in [(heads, draw_) for heads in unit["heads"] for draw_ in range(unit["draws"])]:
            random = np.random.default_rng([d, rank, heads, draw_])
            sets = [[int(i) for i in random.permutation(d)[:rank]] for _ in range(heads)]
            error = float(af.limits.uncovered(d, sets))
            rows.append(_row(d, rank, heads, error, 2**rank) | {"seed": draw_})
        return rows
    if unit["way"] == NUMBER:
        weights = np.random.default_rng([d, unit["bits"], seed]).integers(1, 2 ** unit["bits"], size=d)
        return _row(d, 1, 1, *known_by_number(weights))
    if unit["way"] == POWERS:
        return _row(d, 1, 1, *known_by_number(2 ** np.arange(d))) | {"bits": d}
    if unit["way"] == SOFTMAX:
        return _row(d, d, 1, full_rank_error(d, 16.0))
    error, spread = trained_error(d, unit["rank"], unit["heads"], unit["seed"], unit["steps"])
    return _row(d, unit["rank"], unit["heads"], error) | {"standard error": spread}


def _row(d: int, rank: int, heads: int, error: float, seen: int | None = None) -> Row:
    """The error beside what is proved of so many heads, and of the `seen` values that one tells apart."""
    row: Row = {"rank": rank, "heads": heads, "error": error, "standard error": 0.0, "values": seen}
    proved = {"bound": "coordinates_lower", "candidates": "candidates_lower", "reached": "coordinates_upper"}
    row |= {name: float(getattr(af.limits, bound)(d, rank, heads)) for name, bound in proved.items()}
    least = None if seen is None else float(af.limits.values_lower(d, min(seen, 2**d), heads))
    return row | {"bound by values": least}


def known_by_number(weights: NDArray[np.int64]) -> tuple[float, int]:
    """(least error of any φ(⟨K, z⟩, y), number of different ⟨K, z⟩), exact but for rounding, over the whole cube.

    The best φ is the mean of the target over the z of one number; its error is E f² − E φ².
    """
    d = len(weights)
    places = np.arange(2**d)
    ones = ((places[:, None] >> np.arange(d)) & 1).astype(np.int64)
    _, labels, counts = np.unique((2 * ones - 1) @ weights, return_inverse=True, return_counts=True)
    order = np.argsort(labels, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    z = (2 * ones - 1).astype(np.float64)
    total, squares = 0.0, 0.0
    for block in np.array_split(z, max(1, 2**d // 256)):  # some y at a time
        f = np.sign(z[order] @ block.T)
        sums = np.add.reduceat(f, starts, axis=0)
        total += float((f**2).sum())
        squares += float((sums**2 / counts[:, None]).sum())
    return max(0.0, (total - squares) / 4.0**d), len(counts)


def full_rank_error(d: int, beta: float) -> float:
    """E|sign(t) − tanh(βt)|², t = ⟨z, y⟩: two candidates x1, x2, logits β⟨x, y⟩, weights apart by tanh(βt)."""
    t = [d - 2 * k for k in range(d + 1)]
    shares = [math.comb(d, k) / 2**d for k in range(d + 1)]
    return sum(p * (float(np.sign(u)) - math.tanh(beta * u)) ** 2 for p, u in zip(shares, t, strict=True))


def trained_error(d: int, rank: int, heads: int, seed: int, steps: int) -> tuple[float, float]:
    """(mean, standard error) of |sign(⟨z, y⟩) − Σ_h c_h tanh(zᵀ K_h Q_hᵀ y)|² on 20,000 fresh pairs, after descent."""
    torch = af.learn.require_torch()
    with af.learn.one_torch_thread():
        start = torch.randn((heads, d, rank), generator=af.learn.generator(seed, 1)) * d**-0.5
        K, Q = (start.clone().requires_grad_() for _ in range(2))
        c = torch.full((heads,), 1.0 / heads, requires_grad=True)

        def squares(count: int, source: Any) -> Any:
            z, y = torch.randint(2, (2, count, d), generator=source).float() * 2 - 1
            logits = (torch.einsum("nd,hdr->nhr", z, K) * torch.einsum("nd,hdr->nhr", y, Q)).sum(-1)
            return (torch.sign((z * y).sum(-1)) - torch.tanh(logits) @ c).square()

        loss = lambda step: squares(256, af.learn.generator(seed, 2, step)).mean()  # noqa: E731
        losses = af.learn.descend([K, Q, c], loss, steps=steps, lr=0.03)
        if not math.isfinite(losses[-1]):
            return math.nan, math.nan
        with torch.no_grad():
            found = squares(20_000, af.learn.generator(seed, 3)).double()
        return float(found.mean()), float(found.std()) / math.sqrt(len(found))


def judge(table: Rows) -> Verdict:
    """Refuted when heads that read coordinates, or any heads by what they know, fall below their proved bounds.

    Holds when, besides, no number of rank one beats the bound of its rank; with limits when one does: then the bound
    is about coordinates and bits, and not about rank.
    """
    read, numbers, powers, full, trained = (table.where(way=w) for w in (COORDINATES, NUMBER, POWERS, SOFTMAX, TRAINED))
    wrong = read.fails(lambda row: row["error"] >= row["bound"] - EXACT)
    below, tight, groups = len(wrong), 0, read.by("dim", "rank", "heads")
    wrong += table.known("values").fails(lambda row: row["error"] >= row["bound by values"] - EXACT)
    for *_, rows in groups:
        tight += min(rows.of("error")) <= rows[0]["bound"] + EXACT
        wrong += [] if min(rows.of("error")) <= rows[0]["reached"] * 1.25 + EXACT else rows[:1]
    wrong += full.fails(lambda row: row["error"] <= 1e-6)
    *_, last = groups[-1]
    text = "{way}, d = {dim}, r = {rank}, H = {heads}: the error {error:.4g} breaks what is proved"
    faults = wrong.say(text)
    words = [
        f"Heads that read r of the d coordinates: {len(read)} random choices, {below} below the exact "
        f"bound Σ e_ℓ(1 − H C(r,ℓ)/C(d,ℓ))₊, which is met exactly in {tight} of {len(groups)} sizes.",
        *last.first().say(
            "At d = {dim}, r = {rank}, H = {heads} it is {bound:≥3}, the best draw {best:.3f}, and on the difference "
            "of two candidates the bound is {candidates:≥3}.",
            best=min(last.of("error")),
        ),
        *full.say("One softmax head of full rank: {error:.1e}."),
    ]
    parts = []
    for bits, rows in numbers.by("bits"):
        error, seen, least = (rows.median(name) for name in ("error", "values", "bound by values"))
        parts.append(f"p = {bits} {error:.3g} ({seen:.0f} values, {Told(least):≥3})")
    words += [
        "One number ⟨K, z⟩ with whole-number weights of p bits, least error (what so many values allow): "
        f"{', '.join(parts)}; the bound of one coordinate is {numbers[0]['bound']:≥3}.",
        *powers.say("With weights 1, 2, 4, … it knows all of z: error {error:.1g}."),
    ]
    low = trained.fails(lambda row: row["error"] + 3 * row["standard error"] >= row["bound"])
    say, groups = "r = {}, H = {} {:.3f} ({:.3f})".format, trained.by("rank", "heads")
    parts = [say(r, h, rows.median("error"), rows[0]["bound"]) for r, h, rows in groups]
    if parts:
        words.append(
            f"Trained softmax heads, d = {trained[0]['dim']}, median (bound of coordinates): {', '.join(parts)}; "
            f"{len(low)} of {len(trained)} below it, which does not cover them."
        )
    beaten = Rows(numbers + powers).fails(lambda row: row["error"] >= row["bound"] - EXACT)
    limit = (
        "The bound carries over for coordinates read and for values told apart, and fails for rank: one real "
        "projection is one-to-one."
    )
    end = "No head of rank one, of whatever weights, beats the bound of its rank."
    return decided(words, faults, limit if beaten else "", end)


def draw(table: Rows) -> Any:
    figure, (left, right) = panels(2)
    read, shape = table.where(way=COORDINATES), lambda row: (row["dim"], row["rank"])
    curve(left, read, "heads", "bound", "-", by=shape, each=min, lw=1.5, label="d = {dim}, r = {rank}")
    curve(left, read, "heads", "error", "o", by=shape, each=min, ms=4)
    note = "lines: exact bound; marks: the best of random choices, exact"
    texts, limits = ("heads H", "least error"), {"ylim": (0, 1.02), "legend": "upper right"}
    labelled(left, "Heads that read r coordinates", note, *texts, log="x", **limits)
    numbers = table.where(way=(NUMBER, POWERS)).sorted("values")
    curve(right, numbers, "values", "bound by values", "-", color=BOUND, label="proved, by values")
    curve(right, numbers, "values", "error", "D", color=NETWORKS[1], ms=4, label="any function of ⟨K, z⟩")
    right.axhline(numbers[0]["bound"], color=NETWORKS[0], ls="--", lw=1.2, label="bound of one coordinate")
    head, note = f"One head of rank one, d = {numbers[0]['dim']}", "weights of p bits; last, powers of two"
    texts, limits = ("values that ⟨K, z⟩ takes", "least error"), {"ylim": (-0.02, 1.02), "legend": "lower left"}
    labelled(right, head, note, *texts, log="x", **limits)
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": (COORDINATES, NUMBER, POWERS, SOFTMAX)},
    dim=(7, 11, 13),
    coordinates=([[7, 2]], [[11, 1], [11, 3], [11, 6], [15, 5]], [[13, 1], [13, 3], [13, 6], [13, 9], [21, 7]]),
    heads=([1, 3], [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64, 128]),
    draws=(4, 10, 20),
    bits=([1, 2], [1, 2, 3, 4, 6, 8, 10], [1, 2, 3, 4, 5, 6, 8, 10, 12]),
    seeds=(1, 3, 5),
    trained=(
        [[2, 1], [7, 1]],
        [[1, 1], [1, 11], [3, 1], [3, 4], [6, 1], [6, 2], [10, 1], [11, 1]],
        [[r, h] for r in (1, 3, 6, 12, 13) for h in (1, 2, 4)],
    ),
    steps=(20, 500, 1500),
)
