"""Random rank-1 heads: near the lower bound, or on a plateau?

Claim. The lower bound for low-rank heads is nearly tight by random features, for rotations leave no direction better
than another; random heads whose key and query directions agree never fall below a floor.

Source. Slides on separations, comment after the theorem; Amsel, Yehudai, Bruna 2024, arXiv 2407.16153, and the figure
in its public repository; the floor is derived in attnfun.kinds.neighbours.build.random_heads.

How near do random rank-1 heads with the best weights come to the lower bound, and where do they stop?

Hard heads T = sign(k·z) sign(q·y) with k = q, independent, or at a uniform cosine ("compromise"); the best weights and
their error in closed form, no sampling of points: with G_ij = (4/π²) asin⟨k_i, k_j⟩ asin⟨q_i, q_j⟩ and
b_h = E[sign(⟨z, y⟩) T_h] (`constructions.neighbours.random_heads`) the heads themselves have the Gram matrix
C = (G + 11ᵀ)/2 and the products (b + 1)/2 with the target, and the error is 1 − ¼ (b+1)ᵀC⁻¹(b+1); with one more head
that averages, ½ (1 − bᵀG⁻¹b).

Columns.
    dim: d
    sampler: same (k = q), independent, or compromise (⟨k, q⟩ uniform on [−1, 1])
    seed: of the directions
    heads: H, of rank 1
    error: E|f − g|² of the heads with the best weights, closed form
    with_average: the same with one more head that averages the candidates
    uncertainty: bound of what the series left out may change
    least: proved: no such heads err less
    half_upper: half the proved error of generalised heads, any function of (k·z, y), of random directions
    floor_same: ½(1 − (ΣNλ³)²/ΣNλ⁴): the floor of k = q for any H, with an averaging head
    floor_alone: 1 − (1 + ΣNλ³)²/(2(1 + ΣNλ⁴)): its floor without that head
    floor_unsigned: the same with |λ|³: what is got when the signs of λ are forgotten
    floor_degree_one: ½(1 − e₁): all of the target's linear part learned, nothing else
    published: the mean of five draws in the published figure, read off by eye
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import FAINT, coloured, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, values, where

SAMPLERS = ("same", "independent", "compromise")
# Read off random_features.png of the public repository NoahAmsel/attention-formers: dimension → heads → error.
PUBLISHED = {
    8: {1: 0.685, 8: 0.49, 64: 0.285, 512: 0.175, 16384: 0.130},
    16: {64: 0.377, 512: 0.215, 16384: 0.172},
    32: {64: 0.432, 512: 0.267, 16384: 0.180},
    64: {1: 0.723, 8: 0.55, 64: 0.466, 512: 0.328, 4096: 0.206, 16384: 0.185},
}
NEAR = 2.0  # "nearly tight": generalised heads within this factor of the bound
_ROUNDING = 1e-9


def units(size: Size) -> list[Unit]:
    return [
        {"dim": dim, "sampler": sampler, "seed": seed, "heads": size["heads"]}
        for dim in size["dims"]
        for sampler in SAMPLERS
        for seed in range(size["seeds"])
    ]


def run(unit: Unit) -> list[Row]:
    """One draw of the most heads; fewer are the first of them, so that a draw's errors fall with H."""
    import numpy as np

    dim, sampler, most = unit["dim"], unit["sampler"], max(unit["heads"])
    keys, queries = af.parts.random_directions(
        dim, 1, most, sampler, np.random.default_rng([unit["seed"], dim, SAMPLERS.index(sampler)])
    )
    k, q = keys[:, :, 0], queries[:, :, 0]
    b, tail = af.parts.overlap(dim, np.sum(k * q, axis=1))
    together, unsigned, alone = floors(dim)
    first = float(af.bounds.energies(dim).high[0])
    rows = []
    for heads in unit["heads"]:
        error, averaged, weights = closed_form(k[:heads], q[:heads], b[:heads])
        upper = af.bounds.rank(dim, 1, heads).upper
        assert upper is not None
        rows.append(
            {
                "heads": heads,
                "error": error,
                "with_average": averaged,
                "uncertainty": tail * weights,
                "least": af.bounds.rank(dim, 1, heads, setting="softmax-scalar-v").lower,
                "half_upper": upper / 2,
                "floor_same": together,
                "floor_alone": alone,
                "floor_unsigned": unsigned,
                "floor_degree_one": 0.5 * (1 - first),
                "published": PUBLISHED.get(dim, {}).get(heads),
            }
        )
    return rows


def closed_form(k: Any, q: Any, b: Any) -> tuple[float, float, float]:
    """(error of the heads alone, error with an averaging head besides, sum of the weights' sizes)."""
    import numpy as np
    from scipy import linalg

    def gram() -> Any:
        """In place: of 8192 heads one matrix takes half a gigabyte."""
        found = k @ k.T
        other = q @ q.T
        for part in (found, other):
            np.arcsin(np.clip(part, -1, 1, out=part), out=part)
        found *= other
        found *= 4 / math.pi**2
        np.fill_diagonal(found, 1.0)
        return found

    sides = np.stack([b, np.ones_like(b)], axis=1)
    try:
        factor = linalg.cho_factor(gram().T, lower=True, overwrite_a=True, check_finite=False)
        solved = linalg.cho_solve(factor, sides, check_finite=False)
    except linalg.LinAlgError:
        solved = np.linalg.lstsq(gram(), sides, rcond=1e-12)[0]
    bb, b1, one = float(b @ solved[:, 0]), float(solved[:, 0].sum()), float(solved[:, 1].sum())
    # (b + 1)ᵀ(G + 11ᵀ)⁻¹(b + 1) by Sherman and Morrison
    alone = (bb + 2 * b1 + one) - (b1 + one) ** 2 / (1 + one)
    return 1 - alone / 2, 0.5 * (1 - bb), float(np.abs(solved[:, 0]).sum())


def floors(dim: int) -> tuple[float, float, float]:
    """What k = q never gets below, however many: with an averaging head; the same without signs; without that head.

    Averaged over rotations Σ a_h head_h is A (x1 + x2)/2 − A (1/π) asin⟨z, y⟩ w, A = Σ a_h, and by convexity no worse.
    With B = ΣNλ³ and D = ΣNλ⁴: the averaging head frees the first term, ½(1 − B²/D); else one number serves for both,
    1 − (1 + B)²/(2(1 + D)). λ_ℓ changes its sign from one odd degree to the next: |λ|³ in B gives a figure too low.
    """
    import numpy as np

    lam, energy = af.parts.sign_coefficients(dim)
    B, unsigned, D = (float(np.sum(energy * part)) for part in (lam, np.abs(lam), lam * lam))
    return 0.5 * (1 - B**2 / D), 0.5 * (1 - unsigned**2 / D), 1 - (1 + B) ** 2 / (2 * (1 + D))


def mean(rows: list[Row], column: str) -> float:
    found = [float(value) for value in values(rows, column)]
    return sum(found) / len(found) if found else math.nan


def _error(table: Table, sampler: str, dim: int, heads: int) -> float:
    return mean(where(table, sampler=sampler, dim=dim, heads=heads), "error")


def judge(table: Table) -> Verdict:
    """Refuted when an error is below the lower bound, k = q is below its floor, or generalised heads are far from
    tight.

    With limits when random softmax heads, which are not generalised ones, stay above what those attain.
    """
    faults, stalls, words = [], [], ""
    for row in table:
        spare = row["uncertainty"] + _ROUNDING
        if not min(row["error"], row["with_average"]) >= row["least"] - spare:
            faults.append(f"d = {row['dim']}, {row['heads']} heads ({row['sampler']}) err less than the proved bound")
        above = row["error"] >= row["floor_alone"] - spare and row["with_average"] >= row["floor_same"] - spare
        if row["sampler"] == "same" and not above:
            faults.append(f"d = {row['dim']}, {row['heads']} heads with k = q fall below their floor")
    for dim in distinct(table, "dim"):
        rows = where(table, dim=dim)
        most = max(values(rows, "heads"))
        at = {sampler: mean(where(rows, sampler=sampler, heads=most), "with_average") for sampler in SAMPLERS}
        last = where(rows, heads=most)[0]
        tight = last["half_upper"] / last["least"]
        words += (
            f"d = {dim}, H = {most}: k = q {at['same']:.4f} (its floor {last['floor_same']:.4f}), independent "
            f"{at['independent']:.4f}, compromise {at['compromise']:.4f}; generalised heads of random directions "
            f"{last['half_upper']:.4f}, excluded below {last['least']:.4f}. "
        )
        if not tight <= NEAR:
            faults.append(f"at d = {dim} the construction is {tight:.2f} times the bound")
        if not min(at.values()) <= last["half_upper"]:
            stalls.append(dim)
    known = {(row["dim"], row["heads"]): row["published"] for row in table if row["published"] is not None}
    if known:
        off = {sampler: max(abs(_error(table, sampler, *at) - known[at]) for at in known) for sampler in SAMPLERS}
        words += f"The {len(known)} points read off the published curve are met to "
        words += ", ".join(f"{gap:.3f} by {name}" for name, gap in sorted(off.items(), key=lambda item: item[1])) + ". "
    lowest = min(where(table, sampler="same"), key=lambda row: row["with_average"] / row["floor_same"])
    passed = [row for row in table if min(row["with_average"], row["published"] or 1.0) < row["floor_degree_one"]]
    words += (
        f"Which floor is right for k = q: the nearest draw is {lowest['with_average'] / lowest['floor_same']:.3f} "
        f"times the floor {lowest['floor_same']:.4f} (d = {lowest['dim']}) and none is below it; |λ|³ for λ³ would "
        f"give {lowest['floor_unsigned']:.4f}, which k = q cannot reach, and ½(1 − e₁) = "
        f"{lowest['floor_degree_one']:.4f} is where the linear part is learned, passed by {len(passed)} rows. Without "
        f"an averaging head k = q stops at {lowest['floor_alone']:.4f} already. "
    )
    if faults:
        return Verdict(REFUTED, f"Refuted: {faults[0]}.", words)
    if stalls:
        words += (
            "Nearly tight holds for generalised heads; hard softmax heads of the same random directions stay above "
        )
        return Verdict(LIMITS, f"them at d = {', '.join(map(str, stalls))}.", words)
    return Verdict(HOLDS, "Random heads come as low as generalised ones, which are nearly tight.", words)


def draw(table: Table) -> Any:
    dims = distinct(table, "dim")
    figure, axes = panels(min(2, len(dims)), -(-len(dims) // 2), width=5.6)
    for ax, dim in zip(axes.flat, dims, strict=False):
        rows = where(table, dim=dim)
        heads = distinct(rows, "heads")
        for colour, sampler in coloured(SAMPLERS):
            for column, line in (("with_average", "o-"), ("error", "o:")):
                seen = [mean(where(rows, sampler=sampler, heads=h), column) for h in heads]
                label = {"same": "k = q"}.get(sampler, sampler) + (", heads alone" if column == "error" else "")
                ax.plot(heads, seen, line, color=colour, ms=3.5, label=label)
        first = [where(rows, heads=h)[0] for h in heads]
        ax.plot(
            heads, values(first, "half_upper"), "D--", color="k", ms=3.5, lw=1, mfc="none", label="generalised heads"
        )
        ax.fill_between(heads, 0, values(first, "least"), color="#f3c6c0", label="excluded")
        ax.axhline(first[0]["floor_same"], color=FAINT, lw=1.2, ls=":", label="floor of k = q")
        ax.axhline(first[0]["floor_alone"], color=FAINT, lw=0.8, ls=":")
        known = sorted(PUBLISHED.get(dim, {}).items())
        known = [(h, value) for h, value in known if h <= max(heads)]
        if known:
            ax.plot(*zip(*known, strict=True), "x", color="#0e8a8a", ms=8, mew=2, label="published, read off")
        ax.set_xscale("log", base=2)
        ax.set(xlabel="heads H", ylabel="E|f − g|²", ylim=(0, 0.8))
        title(ax, f"d = {dim}: random rank-1 heads, best weights")
    axes.flat[0].legend(fontsize=7.5, frameon=False, loc="upper right")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        dims=([8], [8, 16, 32, 64], [8, 16, 32, 64]),
        heads=([1, 8, 64], [1, 8, 64, 512, 2048], [1, 8, 64, 512, 2048, 4096]),
        seeds=(1, 3, 5),
    ),
    full_time="68 seconds of CPU",
)
