"""Random rank-1 heads: near the lower bound, or on a plateau?

Claim. The lower bound for low-rank heads is nearly tight by random features, for rotations leave no direction better
than another; random heads whose key and query directions agree never fall below a floor.

Source. Slides on separations, comment after the theorem; Amsel, Yehudai, Bruna 2024, arXiv 2407.16153, and the figure
in its public repository; the floor is derived in attnfun.kinds.neighbours.build.random_heads.

How near do random rank-1 heads with the best weights come to the lower bound, and where do they stop?

Hard heads T = sign(k·z) sign(q·y) with k = q, independent, or at a uniform cosine ("compromise"); the best weights and
their error in closed form, no sampling of points: with G_ij = (4/π²) asin⟨k_i, k_j⟩ asin⟨q_i, q_j⟩ and
b_h = E[sign(⟨z, y⟩) T_h] (`kinds.neighbours.build.random_heads`) the heads themselves have the Gram matrix
C = (G + 11ᵀ)/2 and the products (b + 1)/2 with the target, and the error is 1 − ¼ (b+1)ᵀC⁻¹(b+1); with one more head
that averages, ½ (1 − bᵀG⁻¹b).

A full run takes 68 seconds of CPU.

Columns.
    dim: d
    sampler: same (k = q), independent, or compromise (⟨k, q⟩ uniform on [−1, 1])
    seed: of the directions
    heads: H, of rank 1
    error: E|f − g|² of the heads with the best weights, closed form
    with_average: the same with one more head that averages the candidates
    uncertainty: ≤ bound of what the series left out may change
    least: ≥ proved: no such heads err less
    half_upper: half the proved error of generalised heads, any function of (k·z, y), of random directions
    floor_same: ½(1 − (ΣNλ³)²/ΣNλ⁴): the floor of k = q for any H, with an averaging head
    floor_alone: 1 − (1 + ΣNλ³)²/(2(1 + ΣNλ⁴)): its floor without that head
    floor_unsigned: the same with |λ|³: what is got when the signs of λ are forgotten
    floor_degree_one: ½(1 − e₁): all of the target's linear part learned, nothing else
    published: the mean of five draws in the published figure, read off by eye
"""

import math
from typing import Any

import numpy as np
from scipy import linalg

import attnfun as af
from attnfun.lab.studies.drawing import EXCLUDED, FAINT, NETWORKS, coloured, curve, labelled, panels
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

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
    return crossed(dim=size["dims"], sampler=SAMPLERS, seed=range(size["seeds"]), heads=[size["heads"]])


def run(unit: Unit) -> list[Row]:
    """One draw of the most heads; fewer are the first of them, so that a draw's errors fall with H."""
    dim, sampler = unit["dim"], unit["sampler"]
    rng = np.random.default_rng([unit["seed"], dim, SAMPLERS.index(sampler)])
    keys, queries = af.parts.random_directions(dim, 1, max(unit["heads"]), sampler, rng)
    k, q = keys[:, :, 0], queries[:, :, 0]
    b, tail = af.parts.overlap(dim, np.sum(k * q, axis=1))
    together, unsigned, alone = floors(dim)
    limits = {"floor_same": together, "floor_alone": alone, "floor_unsigned": unsigned}
    limits["floor_degree_one"] = 0.5 * (1 - float(af.bounds.energies(dim).high[0]))
    rows = []
    for heads in unit["heads"]:
        error, averaged, weights = closed_form(k[:heads], q[:heads], b[:heads])
        upper = af.bounds.rank(dim, 1, heads).upper
        assert upper is not None
        least = af.bounds.rank(dim, 1, heads, setting="softmax-scalar-v").lower
        row = {"heads": heads, "error": error, "with_average": averaged, "uncertainty": tail * weights, "least": least}
        rows.append({**row, "half_upper": upper / 2, **limits, "published": PUBLISHED.get(dim, {}).get(heads)})
    return rows


def closed_form(k: Any, q: Any, b: Any) -> tuple[float, float, float]:
    """(error of the heads alone, error with an averaging head besides, sum of the weights' sizes)."""

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
    lam, energy = af.parts.sign_coefficients(dim)
    B, unsigned, D = (float(np.sum(energy * part)) for part in (lam, np.abs(lam), lam * lam))
    return 0.5 * (1 - B**2 / D), 0.5 * (1 - unsigned**2 / D), 1 - (1 + B) ** 2 / (2 * (1 + D))


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else math.nan


def judge(table: Rows) -> Verdict:
    """Refuted when an error is below the lower bound, k = q is below its floor, or generalised heads are far from
    tight.

    With limits when random softmax heads, which are not generalised ones, stay above what those attain.
    """
    same, words, stalls = table.where(sampler="same"), [], []

    def over(row: Row, column: str, floor: str) -> bool:
        return bool(row[column] >= row[floor] - (row["uncertainty"] + _ROUNDING))

    low = table.fails(lambda row: over(row, "error", "least") and over(row, "with_average", "least"))
    faults = low.say("d = {dim}, {heads} heads ({sampler}) err less than the proved bound")
    low = same.fails(lambda row: over(row, "error", "floor_alone") and over(row, "with_average", "floor_same"))
    faults += low.say("d = {dim}, {heads} heads with k = q fall below their floor")
    for dim, rows in table.by("dim"):
        most = rows.where(heads=max(rows.of("heads")))
        at = {sampler: mean(most.where(sampler=sampler).of("with_average")) for sampler in SAMPLERS}
        last = most[0]
        tight = last["half_upper"] / last["least"]
        words += Rows([last]).say(
            "d = {dim}, H = {heads}: k = q {same:.4f} (its floor {floor_same:.4f}), independent {independent:.4f}, "
            "compromise {compromise:.4f}; generalised heads of random directions {half_upper:.4f}, excluded below "
            "{least:≥4}.",
            **at,
        )
        if not tight <= NEAR:
            faults.append(f"at d = {dim} the construction is {tight:.2f} times the bound")
        if not min(at.values()) <= last["half_upper"]:
            stalls.append(str(dim))
    if known := table.known("published").by("sampler", "dim", "heads"):
        off: dict[str, float] = {}
        for sampler, _, _, rows in known:
            off[sampler] = max(off.get(sampler, 0.0), abs(mean(rows.of("error")) - rows[0]["published"]))
        met = ", ".join(f"{gap:.3f} by {name}" for name, gap in sorted(off.items(), key=lambda item: item[1]))
        points = len({(dim, heads) for _, dim, heads, _ in known})
        words.append(f"The {points} points read off the published curve are met to {met}.")
    lowest = same.best(lambda row: row["with_average"] / row["floor_same"])
    passed = table.that(lambda row: min(row["with_average"], row["published"] or 1.0) < row["floor_degree_one"])
    words += Rows([lowest]).say(
        "Which floor is right for k = q: the nearest draw is {ratio:.3f} times the floor {floor_same:.4f} (d = {dim}) "
        "and none is below it; |λ|³ for λ³ would give {floor_unsigned:.4f}, which k = q cannot reach, and ½(1 − e₁) = "
        "{floor_degree_one:.4f} is where the linear part is learned, passed by {passed} rows. Without an averaging "
        "head k = q stops at {floor_alone:.4f} already.",
        ratio=lowest["with_average"] / lowest["floor_same"],
        passed=len(passed),
    )
    limit = (
        "Nearly tight holds for generalised heads; hard softmax heads of the same random directions stay above them at "
        f"d = {', '.join(stalls)}."
    )
    end = "Random heads come as low as generalised ones, which are nearly tight."
    return decided(words, faults, limit if stalls else "", end)


def draw(table: Rows) -> Any:
    groups = table.by("dim")
    figure, axes = panels(min(2, len(groups)), -(-len(groups) // 2), width=5.6)
    for ax, (dim, rows) in zip(axes, groups, strict=False):
        for colour, sampler in coloured(SAMPLERS):
            for column, line, note in (("with_average", "o-", ""), ("error", "o:", ", heads alone")):
                label = {"same": "k = q"}.get(sampler, sampler) + note
                drawn = rows.where(sampler=sampler)
                curve(ax, drawn, "heads", column, line, each=mean, color=colour, ms=3.5, label=label)
        first = Rows(some[0] for _, some in rows.by("heads"))
        heads = first.of("heads")
        style = {"color": "k", "ms": 3.5, "lw": 1, "mfc": "none", "label": "generalised heads"}
        curve(ax, first, "heads", "half_upper", "D--", **style)
        ax.fill_between(heads, 0, first.of("least"), color=EXCLUDED, label="excluded")
        ax.axhline(first[0]["floor_same"], color=FAINT, lw=1.2, ls=":", label="floor of k = q")
        ax.axhline(first[0]["floor_alone"], color=FAINT, lw=0.8, ls=":")
        known = Rows({"h": h, "error": e} for h, e in PUBLISHED.get(dim, {}).items() if h <= max(heads))
        curve(ax, known, "h", "error", "x", color=NETWORKS[5], ms=8, mew=2, label="published, read off")
        ax.set_xscale("log", base=2)
        legend = {"fontsize": 7.5, "loc": "upper right"} if ax is axes[0] else None
        head = f"d = {dim}: random rank-1 heads, best weights"
        labelled(ax, head, "", "heads H", "E|f − g|²", ylim=(0, 0.8), legend=legend)
    return figure


STUDY = described(
    __name__,
    dims=([8], [8, 16, 32, 64], [8, 16, 32, 64]),
    heads=([1, 8, 64], [1, 8, 64, 512, 2048], [1, 8, 64, 512, 2048, 4096]),
    seeds=(1, 3, 5),
)
