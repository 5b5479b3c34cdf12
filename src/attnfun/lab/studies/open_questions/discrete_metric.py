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
    bound: proved for H heads that read r coordinates
    candidates: proved for the same heads on two candidates x1, x2 and sign(⟨x1 − x2, y⟩), 0 for ties
    reached: some choice of coordinates is proved to do no worse
    bound by values: proved for any H heads that tell so many values of z apart
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, coloured, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, values, where

COORDINATES, NUMBER, POWERS = "coordinates", "number, p bits", "number, powers of two"
SOFTMAX, TRAINED = "softmax, full rank", "softmax, trained"
EXACT = 1e-9


def units(size: Size) -> list[Unit]:
    d, seeds = size["dim"], range(size["seeds"])
    out: list[Unit] = [
        {"way": COORDINATES, "dim": dim, "rank": r, "heads": size["heads"], "draws": size["draws"]}
        for dim, r in size["coordinates"]
    ]
    out += [{"way": NUMBER, "dim": d, "bits": p, "seed": s} for p in size["bits"] for s in seeds]
    out += [{"way": POWERS, "dim": d}, {"way": SOFTMAX, "dim": d}]
    return out + [
        {"way": TRAINED, "dim": size["trained_dim"], "rank": r, "heads": h, "seed": s, "steps": size["steps"]}
        for r, h in size["trained"]
        for s in seeds
    ]


def run(unit: Unit) -> list[Row]:
    d = unit["dim"]
    if unit["way"] == COORDINATES:
        rows = []
        for heads in unit["heads"]:
            for seed in range(unit["draws"]):
                random = np.random.default_rng([d, unit["rank"], heads, seed])
                sets = [[int(i) for i in random.permutation(d)[: unit["rank"]]] for _ in range(heads)]
                rows.append(
                    _row(
                        COORDINATES,
                        d,
                        unit["rank"],
                        heads,
                        seed,
                        float(af.limits.uncovered(d, sets)),
                        2 ** unit["rank"],
                    )
                )
        return rows
    if unit["way"] == NUMBER:
        random = np.random.default_rng([d, unit["bits"], unit["seed"]])
        top = 2 ** unit["bits"] - 1
        weights = random.integers(1, top + 1, size=d)
        error, seen = known_by_number(weights)
        return [_row(NUMBER, d, 1, 1, unit["seed"], error, seen, bits=unit["bits"])]
    if unit["way"] == POWERS:
        error, seen = known_by_number(2 ** np.arange(d))
        return [_row(POWERS, d, 1, 1, None, error, seen, bits=d)]
    if unit["way"] == SOFTMAX:
        return [_row(SOFTMAX, d, d, 1, None, full_rank_error(d, 16.0), None)]
    error, spread = trained_error(d, unit["rank"], unit["heads"], unit["seed"], unit["steps"])
    return [_row(TRAINED, d, unit["rank"], unit["heads"], unit["seed"], error, None, spread=spread)]


def _row(
    way: str,
    d: int,
    rank: int,
    heads: int,
    seed: int | None,
    error: float,
    seen: int | None,
    bits: int | None = None,
    spread: float = 0.0,
) -> Row:
    return {
        "way": way,
        "dim": d,
        "rank": rank,
        "heads": heads,
        "bits": bits,
        "seed": seed,
        "error": error,
        "standard error": spread,
        "values": seen,
        "bound": float(af.limits.coordinates_lower(d, rank, heads)),
        "candidates": float(af.limits.candidates_lower(d, rank, heads)),
        "reached": float(af.limits.coordinates_upper(d, rank, heads)),
        "bound by values": None if seen is None else float(af.limits.values_lower(d, min(seen, 2**d), heads)),
    }


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


def judge(table: Table) -> Verdict:
    """Refuted when heads that read coordinates, or any heads by what they know, fall below their proved bounds.

    Holds when, besides, no number of rank one beats the bound of its rank; with limits when one does: then the bound
    is about coordinates and bits, and not about rank.
    """
    if gone := lacking(table, "way", COORDINATES, NUMBER, POWERS, SOFTMAX):
        return gone
    read = where(table, way=COORDINATES)
    faults = [row for row in read if not row["error"] >= row["bound"] - EXACT]
    below = len(faults)
    known = [row for row in table if row["values"] is not None]
    faults += [row for row in known if not row["error"] >= row["bound by values"] - EXACT]
    keys = distinct([{"k": (r["dim"], r["rank"], r["heads"])} for r in read], "k")
    tight = 0
    for d, r, h in keys:
        rows = where(read, dim=d, rank=r, heads=h)
        tight += min(values(rows, "error")) <= rows[0]["bound"] + EXACT
        if not min(values(rows, "error")) <= rows[0]["reached"] * 1.25 + EXACT:
            faults.append(rows[0])
    words = (
        f"Heads that read r of the d coordinates: {len(read)} random choices, {below} below the exact "
        f"bound Σ e_ℓ(1 − H C(r,ℓ)/C(d,ℓ))₊, which is met exactly in {tight} of {len(keys)} sizes. "
    )
    if keys:
        d, r, h = keys[-1]
        best = min(values(where(read, dim=d, rank=r, heads=h), "error"))
        words += f"At d = {d}, r = {r}, H = {h} it is {_bound(read, d, r, h):.3f}, the best draw {best:.3f}, and "
        words += f"on the difference of two candidates the bound is {where(read, dim=d)[-1]['candidates']:.3f}. "
    full = where(table, way=SOFTMAX)
    for row in full:
        words += f"One softmax head of full rank: {row['error']:.1e}. "
        if not row["error"] <= 1e-6:
            faults.append(row)
    numbers, parts = where(table, way=NUMBER), []
    for bits in distinct(numbers, "bits"):
        rows = where(numbers, bits=bits)
        error, seen, least = (median(values(rows, name)) for name in ("error", "values", "bound by values"))
        parts.append(f"p = {bits} {error:.3g} ({seen:.0f} values, {least:.3g})")
    if parts:
        words += "One number ⟨K, z⟩ with whole-number weights of p bits, least error (what so many values allow): "
        words += f"{', '.join(parts)}; the bound of one coordinate is {numbers[0]['bound']:.3g}. "
    beaten = [row for row in table if row["way"] in (NUMBER, POWERS) and not row["error"] >= row["bound"] - EXACT]
    for row in where(table, way=POWERS):
        words += f"With weights 1, 2, 4, … it knows all of z: error {row['error']:.1g}. "
    trained = where(table, way=TRAINED)
    parts, low = list[str](), 0
    for r, h in distinct([{"k": (row["rank"], row["heads"])} for row in trained], "k"):
        rows = where(trained, rank=r, heads=h)
        low += sum(not row["error"] + 3 * row["standard error"] >= row["bound"] for row in rows)
        parts.append(f"r = {r}, H = {h} {median(values(rows, 'error')):.3f} ({rows[0]['bound']:.3f})")
    if parts:
        words += f"Trained softmax heads, d = {trained[0]['dim']}, median (bound of coordinates): {', '.join(parts)}; "
        words += f"{low} of {len(trained)} below it, which does not cover them. "
    if faults:
        row = faults[0]
        where_ = f"{row['way']}, d = {row['dim']}, r = {row['rank']}, H = {row['heads']}"
        return Verdict(REFUTED, f"Refuted: {where_}: the error {row['error']:.4g} breaks what is proved.", words)
    if beaten:
        end = (
            "So the bound carries over for coordinates read and for values told apart, and fails for "
            "rank: one real projection is one-to-one."
        )
        return Verdict(LIMITS, end, words)
    return Verdict(HOLDS, "No head of rank one, of whatever weights, beats the bound of its rank.", words)


def _bound(rows: Table, d: int, r: int, h: int) -> float:
    return float(where(rows, dim=d, rank=r, heads=h)[0]["bound"])


def draw(table: Table) -> Any:
    figure, axes = panels(columns=2)
    left, right = axes[0]
    read = where(table, way=COORDINATES)
    for colour, (d, r) in coloured(distinct([{"k": (x["dim"], x["rank"])} for x in read], "k")):
        rows = where(read, dim=d, rank=r)
        heads = distinct(rows, "heads")
        bound = [_bound(rows, d, r, h) for h in heads]
        best = [min(values(where(rows, heads=h), "error")) for h in heads]
        left.plot(heads, bound, "-", color=colour, lw=1.5, label=f"d = {d}, r = {r}")
        left.plot(heads, best, "o", color=colour, ms=4)
    left.set(xscale="log", xlabel="heads H", ylabel="least error", ylim=(0, 1.02))
    left.legend(fontsize=7, frameon=False, loc="upper right")
    title(left, "Heads that read r coordinates", "lines: exact bound; marks: the best of random choices, exact")
    numbers = [row for row in table if row["way"] in (NUMBER, POWERS)]
    ordered = sorted(numbers, key=lambda row: row["values"])
    seen = values(ordered, "values")
    right.plot(seen, values(ordered, "bound by values"), "-", color=BOUND, label="proved, by values")
    right.plot(seen, values(ordered, "error"), "D", color=NETWORKS[1], ms=4, label="any function of ⟨K, z⟩")
    if numbers:
        right.axhline(numbers[0]["bound"], color=NETWORKS[0], ls="--", lw=1.2, label="bound of one coordinate")
        right.set(xscale="log", xlabel="values that ⟨K, z⟩ takes", ylabel="least error", ylim=(-0.02, 1.02))
        title(right, f"One head of rank one, d = {numbers[0]['dim']}", "weights of p bits; last, powers of two")
    right.legend(fontsize=7, frameon=False, loc="lower left")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        dim=(7, 11, 13),
        coordinates=([[7, 2]], [[11, 1], [11, 3], [11, 6], [15, 5]], [[13, 1], [13, 3], [13, 6], [13, 9], [21, 7]]),
        heads=([1, 3], [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64, 128]),
        draws=(4, 10, 20),
        bits=([1, 2], [1, 2, 3, 4, 6, 8, 10], [1, 2, 3, 4, 5, 6, 8, 10, 12]),
        seeds=(1, 3, 5),
        trained_dim=(7, 11, 13),
        trained=(
            [[2, 1], [7, 1]],
            [[1, 1], [1, 11], [3, 1], [3, 4], [6, 1], [6, 2], [10, 1], [11, 1]],
            [[r, h] for r in (1, 3, 6, 12, 13) for h in (1, 2, 4)],
        ),
        steps=(20, 500, 1500),
    ),
    needs=("torch",),
    full_time="two minutes of CPU",
)
