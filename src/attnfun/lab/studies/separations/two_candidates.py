"""The further of two candidates: trained layers between bound and construction.

Claim. With two candidates one head of full rank suffices, and H heads of rank r keep an error that falls only when H
is a power of d/r; random directions nearly attain that lower bound, so trained layers lie between the two.

Source. Amsel, Yehudai, Bruna 2024, arXiv 2407.16153, theorem for N = 3 and the slides' remark on random features; the
bounds with their constants are those of af.bounds.rank.

Where do trained layers lie between what is excluded and what random directions would do?

Two candidates x1, x2 and a query y are independent and uniform on the unit sphere of R^d; the target f is the candidate
further from y, E|f|² = 1, and the error is E|f − g|². A layer attends from y to x1 and x2 with H heads,

    g = Σ_h V_h (a_h x1 + (1 − a_h) x2),   a_h = softmax over x1, x2 of ⟨Q_hᵀy, K_hᵀx⟩,   K_h, Q_h of rank r, V_h free,

trained by Adam on fresh samples, Q starting at −K (the further candidate has the smaller product) and V_h at 1/H. The
midpoint (x1 + x2)/2 alone has the error 1/2.

Columns.
    dim: d
    rank: r
    heads: H
    seed: of start and samples
    error: E|f − g|² of the trained layer on fresh samples
    error_se: its standard error
    layer_any: proved: no layer of this shape has less, V_h free, any weights
    softmax_any: proved: the same by the count for softmax weights; the larger of the two counts
    layer_scalar: proved for V_h = c_h I alone: a free V_h may fall below
    softmax_scalar: the same for softmax weights
    half_upper: half the error of random directions in the scalar problem, any function for a head: a yardstick
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attnfun as af
from attnfun.lab.studies.drawing import FAINT, INK, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, values, where

if TYPE_CHECKING:
    import torch

POINTS = (
    *((8, r, h) for r, h in ((1, 1), (1, 8), (1, 32), (2, 4), (2, 16), (4, 1), (4, 2), (4, 8), (7, 1), (8, 1))),
    *((16, r, h) for r, h in ((1, 1), (1, 16), (1, 32), (2, 16), (4, 2), (4, 8), (8, 1), (8, 2), (15, 1), (16, 1))),
)
BATCH, RATE = 256, 0.02
SLACK = 3.0  # standard errors
LEARNED = 0.06  # an error that counts as learned, for rank d
_CHUNK = 10_000


def samples(source: torch.Generator, count: int, dim: int, dtype: Any = None) -> tuple[torch.Tensor, ...]:
    """(x1 − x2, x2, y, f) with `count` rows."""
    from attnfun.lab.studies.separations.layers import sphere_points

    x1, x2, y = sphere_points(source, 3, count, dim, dtype=dtype)
    w = x1 - x2
    return w, x2, y, x2 + w * ((w * y).sum(-1, keepdim=True) < 0)


def output(parts: tuple[torch.Tensor, ...], w: torch.Tensor, x2: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Σ_h V_h (x2 + a_h w); the softmax of two logits is the sigmoid of their difference. K, Q: (H, d, r)."""
    K, Q, V = parts
    heads, dim, rank = K.shape
    asked, shown = (side @ part.transpose(0, 1).reshape(dim, -1) for side, part in ((y, Q), (w, K)))
    share = (asked * shown).reshape(-1, heads, rank).sum(-1).sigmoid()
    averages = x2[:, None] + share[..., None] * w[:, None]
    return averages.reshape(-1, heads * dim) @ V.reshape(heads * dim, dim)


def trained(dim: int, rank: int, heads: int, steps: int, count: int, seed: int = 0) -> tuple[float, float]:
    """(mean, standard error) of |f − g|² on `count` fresh samples, after `steps` steps of training."""
    torch = af.learn.require_torch()
    with af.learn.one_torch_thread():
        start = torch.randn((heads, dim, rank), generator=af.learn.generator(seed, 0)) * dim**-0.5
        values_ = torch.eye(dim).repeat(heads, 1, 1) / heads
        parts = tuple(part.clone().requires_grad_() for part in (start, -start, values_))

        def loss(step: int) -> Any:
            w, x2, y, f = samples(af.learn.generator(seed, 1, step), BATCH, dim)
            return (f - output(parts, w, x2, y)).square().sum(-1).mean()

        af.learn.descend(parts, loss, steps=steps, lr=RATE)
        with torch.no_grad():
            exact, errors = tuple(part.detach().double() for part in parts), []
            for done in range(0, count, _CHUNK):
                source = af.learn.generator(seed, 2, done)
                w, x2, y, f = samples(source, min(_CHUNK, count - done), dim, torch.float64)
                errors.append((f - output(exact, w, x2, y)).square().sum(-1))
            found = torch.cat(errors)
        return float(found.mean()), float(found.std()) / math.sqrt(count)


def units(size: Size) -> list[Unit]:
    return [
        {"dim": d, "rank": r, "heads": h, "seed": seed, "steps": size["steps"], "samples": size["samples"]}
        for d, r, h in size["points"]
        for seed in range(size["seeds"])
    ]


def run(unit: Unit) -> list[Row]:
    dim, rank, heads = unit["dim"], unit["rank"], unit["heads"]
    error, error_se = trained(dim, rank, heads, unit["steps"], unit["samples"], unit["seed"])
    bounds = {
        name: af.bounds.rank(dim, rank, heads, setting=setting).lower
        for name, setting in (
            ("layer_any", "layer-any-v"),
            ("softmax_any", "softmax-any-v"),
            ("layer_scalar", "layer-scalar-v"),
            ("softmax_scalar", "softmax-scalar-v"),
        )
    }
    upper = af.bounds.rank(dim, rank, heads).upper
    assert upper is not None  # the scalar problem always has one
    shape = {"dim": dim, "rank": rank, "heads": heads, "seed": unit["seed"]}
    return [{**shape, "error": error, "error_se": error_se, **bounds, "half_upper": upper / 2}]


def bound(row: Row) -> float:
    """The larger of the two lower bounds whose hypotheses a trained layer meets: softmax weights, any V."""
    return float(max(row["layer_any"], row["softmax_any"]))


def allowed(row: Row) -> bool:
    """Whether the measurement agrees with the bound; false for anything that is no finite number."""
    numbers = [row[key] for key in ("error", "error_se", "layer_any", "softmax_any")]
    return all(map(math.isfinite, numbers)) and row["error"] + SLACK * row["error_se"] >= bound(row)


def judge(table: Table) -> Verdict:
    """Refuted when an error is below its proved bound, or rank d does not learn; with limits when some trained layer
    stays above half UB, so that it is not between bound and construction."""
    named = "d={dim} r={rank} H={heads}".format
    wrong = [row for row in table if not allowed(row)]
    full = [row for row in table if row["rank"] == row["dim"]]
    lazy = [row for row in full if not row["error"] < LEARNED]
    low = [row for row in table if row["rank"] < row["dim"]]
    above = [row for row in low if not row["error"] <= row["half_upper"]]
    free = [
        row for row in low if row["error"] + SLACK * row["error_se"] < max(row["layer_scalar"], row["softmax_scalar"])
    ]
    excluded = [row for row in table if bound(row) > 0]
    ratio = median(row["error"] / bound(row) for row in excluded)
    words = (
        f"{len(table)} trained layers of {len({(r['dim'], r['rank'], r['heads']) for r in table})} shapes; for "
        f"{len(excluded)} the proved bound for any V is above 0, and their errors are {ratio:.2f} times it (median). "
    )
    for dim in distinct(full, "dim"):
        lacking = where(table, dim=dim, rank=dim - 1)
        words += f"d = {dim}: rank d comes to {median(values(where(full, dim=dim), 'error')):.3f}"
        words += f", rank d − 1 to {median(values(lacking, 'error')):.3f}. " if lacking else ". "
    if above:
        shapes = ", ".join(dict.fromkeys(named(**row) for row in above))
        words += (
            f"{len(above)} of {len(low)} layers of lower rank are above half UB (the error of random directions in the "
            f"scalar problem, no promise for softmax heads): {shapes}. "
        )
    words += f"{len(free)} are below the bound for scalar V, which free V may be. "
    if wrong or not excluded:
        row = (wrong or [*table])[0]
        fault = f"{named(**row)} has {row['error']:.4f} ± {row['error_se']:.4f} against the bound {bound(row):.4f}"
        return Verdict(REFUTED, f"Refuted: {len(wrong)} layers are not on or above the proved bound: {fault}.", words)
    if lazy or not full:
        return Verdict(REFUTED, f"Refuted: rank d is not learned to {LEARNED}.", words)
    said = "Every layer is on or above the proved bound, and rank d is learned"
    if above:
        return Verdict(LIMITS, f"{said}; not all are below the construction.", words)
    return Verdict(HOLDS, f"{said}; all others lie between bound and construction.", words)


def draw(table: Table) -> Any:
    """Every shape on one axis of errors: excluded by the bound, constructed for the scalar problem, trained."""
    shapes = list(dict.fromkeys((row["dim"], row["rank"], row["heads"]) for row in table))
    rows = [where(table, dim=d, rank=r, heads=h) for d, r, h in shapes]
    at = range(len(shapes))
    figure, axes = panels(width=max(6.0, 1.5 + 0.48 * len(shapes)), height=5.2)
    ax = axes[0, 0]
    ax.grid(False)
    low = [bound(group[0]) for group in rows]
    ax.bar(at, low, 0.8, color="#f3c6c0", label="excluded: proved lower bound, any V")
    ax.hlines(low, [x - 0.4 for x in at], [x + 0.4 for x in at], color="#b3261e", lw=1.8)
    constructed = {"marker": "D", "ls": "none", "mfc": "none", "mec": "#2f7fbf", "mew": 1.6, "ms": 7, "clip_on": False}
    ax.plot(at, [g[0]["half_upper"] for g in rows], label="constructed: half UB, scalar problem", **constructed)
    xs = [x for x, group in zip(at, rows, strict=True) for _ in group]
    seen = [row for group in rows for row in group]
    spread = [SLACK * row["error_se"] for row in seen]
    label = f"trained, each seed (± {SLACK:g} standard errors)"
    ax.errorbar(xs, values(seen, "error"), spread, fmt="o", color=INK, ms=4.5, capsize=3, lw=1.2, label=label)
    ax.axhline(0.5, color=FAINT, lw=0.9, ls="--")
    ax.annotate("the midpoint of the candidates", (len(shapes) - 0.6, 0.503), ha="right", va="bottom", fontsize=8)
    for x in at:
        if x == 0 or shapes[x][0] != shapes[x - 1][0]:
            ax.axvline(x - 0.5, color=FAINT, lw=0.9)
            ax.annotate(f"d = {shapes[x][0]}", (x - 0.38, 0.53), va="center", fontweight="bold", color=INK)
    ax.set_xticks(at, [f"{r}\n{h}" for _, r, h in shapes])
    ax.set(xlim=(-0.5, len(shapes) - 0.5), ylim=(0, 0.56), xlabel="rank r, and below it heads H", ylabel="E|f − g|²")
    ax.legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, frameon=False)
    title(ax, "the further of two candidates: what training finds, and what no layer of that shape can do")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        points=([[8, 8, 1], [8, 4, 2]], [list(point) for point in POINTS], [list(point) for point in POINTS]),
        seeds=(1, 2, 3),
        steps=(60, 1200, 2500),
        samples=(4000, 40_000, 100_000),
    ),
    needs=("torch",),
    full_time="3 minutes of CPU",
)
