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

A full run takes 3 minutes of CPU.

Columns.
    dim: d
    rank: r
    heads: H
    seed: of start and samples
    error: E|f − g|² of the trained layer on fresh samples
    error_se: its standard error
    layer_any: ≥ proved: no layer of this shape has less, V_h free, any weights
    softmax_any: ≥ proved: the same by the count for softmax weights; the larger of the two counts
    layer_scalar: ≥ proved for V_h = c_h I alone: a free V_h may fall below
    softmax_scalar: the same for softmax weights
    half_upper: half the error of random directions in the scalar problem, any function for a head: a yardstick
"""

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import EXCLUDED, FAINT, INK, NETWORKS, labelled, panels
from attnfun.lab.studies.separations.layers import Tensor, fresh_error, sphere_points
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed_with, decided, described

POINTS = [
    *([8, r, h] for r, h in ((1, 1), (1, 8), (1, 32), (2, 4), (2, 16), (4, 1), (4, 2), (4, 8), (7, 1), (8, 1))),
    *([16, r, h] for r, h in ((1, 1), (1, 16), (1, 32), (2, 16), (4, 2), (4, 8), (8, 1), (8, 2), (15, 1), (16, 1))),
]
BATCH, RATE = 256, 0.02
SLACK = 3.0  # standard errors
LEARNED = 0.06  # an error that counts as learned, for rank d
_CHUNK = 10_000


def samples(source: Any, count: int, dim: int, dtype: Any = None) -> tuple[Tensor, ...]:
    """(x1 − x2, x2, y, f) with `count` rows."""
    x1, x2, y = sphere_points(source, 3, count, dim, dtype=dtype)
    w = x1 - x2
    return w, x2, y, x2 + w * ((w * y).sum(-1, keepdim=True) < 0)


def output(parts: tuple[Tensor, ...], w: Tensor, x2: Tensor, y: Tensor) -> Tensor:
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

    def squares(weights: tuple[Any, ...], number: int, source: Any) -> Any:
        w, x2, y, f = samples(source, number, dim, weights[0].dtype)
        return (f - output(weights, w, x2, y)).square().sum(-1)

    with af.learn.one_torch_thread():
        start = torch.randn((heads, dim, rank), generator=af.learn.generator(seed, 0)) * dim**-0.5
        values = torch.eye(dim).repeat(heads, 1, 1) / heads
        parts = tuple(part.clone().requires_grad_() for part in (start, -start, values))
        loss = lambda step: squares(parts, BATCH, af.learn.generator(seed, 1, step)).mean()  # noqa: E731
        af.learn.descend(parts, loss, steps=steps, lr=RATE)
    exact = tuple(part.detach().double() for part in parts)
    return fresh_error(lambda number, source: squares(exact, number, source), count, _CHUNK, seed)


def units(size: Size) -> list[Unit]:
    run = {"seed": range(size["seeds"]), "steps": size["steps"], "samples": size["samples"]}
    return crossed_with(("dim", "rank", "heads"), size["points"], **run)


def run(unit: Unit) -> Row:
    shape = (unit["dim"], unit["rank"], unit["heads"])
    error, error_se = trained(*shape, unit["steps"], unit["samples"], unit["seed"])
    settings = {f"{kind}_{v}": f"{kind}-{v}-v" for v in ("any", "scalar") for kind in ("layer", "softmax")}
    bounds = {name: af.bounds.rank(*shape, setting=setting).lower for name, setting in settings.items()}
    upper = af.bounds.rank(*shape).upper
    assert upper is not None  # the scalar problem always has one
    return {"error": error, "error_se": error_se, **bounds, "half_upper": upper / 2}


def bound(row: Row) -> float:
    """The larger of the two lower bounds whose hypotheses a trained layer meets: softmax weights, any V."""
    return float(max(row["layer_any"], row["softmax_any"]))


def allowed(row: Row) -> bool:
    """Whether the measurement agrees with the bound; false for anything that is no finite number."""
    numbers = [row[key] for key in ("error", "error_se", "layer_any", "softmax_any")]
    return all(map(math.isfinite, numbers)) and row["error"] + SLACK * row["error_se"] >= bound(row)


def judge(table: Rows) -> Verdict:
    """Refuted when an error is below its proved bound, or rank d does not learn; with limits when some trained layer
    stays above half UB, so that it is not between bound and construction."""
    named, faults = "d={dim} r={rank} H={heads}", []
    wrong, excluded = table.fails(allowed), table.that(lambda row: bound(row) > 0)
    full, low = table.that(lambda row: row["rank"] == row["dim"]), table.that(lambda row: row["rank"] < row["dim"])
    above = low.fails(lambda row: row["error"] <= row["half_upper"])
    free = low.that(lambda r: r["error"] + SLACK * r["error_se"] < max(r["layer_scalar"], r["softmax_scalar"]))
    ratio = excluded.median(lambda row: row["error"] / bound(row))
    words = [
        f"{len(table)} trained layers of {len(table.by('dim', 'rank', 'heads'))} shapes; for {len(excluded)} the "
        f"proved bound for any V is above 0, and their errors are {ratio:.2f} times it (median)."
    ]
    for dim, rows in full.by("dim"):
        lacking = table.where(dim=dim, rank=dim - 1)
        other = f", rank d − 1 to {lacking.median('error'):.3f}" if lacking else ""
        words.append(f"d = {dim}: rank d comes to {rows.median('error'):.3f}{other}.")
    if above:
        words.append(
            f"{len(above)} of {len(low)} layers of lower rank are above half UB (the error of random directions in the "
            f"scalar problem, no promise for softmax heads): {', '.join(dict.fromkeys(above.say(named)))}."
        )
    words.append(f"{len(free)} are below the bound for scalar V, which free V may be.")
    if wrong or not excluded:
        row = (wrong or table)[0]
        fault = f"{named} has {{error:.4f}} ± {{error_se:.4f}} against the bound {bound(row):.4f}".format(**row)
        faults.append(f"{len(wrong)} layers are not on or above the proved bound: {fault}")
    if not full or full.fails(lambda row: row["error"] < LEARNED):
        faults.append(f"rank d is not learned to {LEARNED}")
    said = "Every layer is on or above the proved bound, and rank d is learned; "
    limit = f"{said}not all are below the construction." if above else ""
    return decided(words, faults[:1], limit, f"{said}all others lie between bound and construction.")


def draw(table: Rows) -> Any:
    """Every shape on one axis of errors: excluded by the bound, constructed for the scalar problem, trained."""
    groups = table.by("dim", "rank", "heads")
    at, first = range(len(groups)), Rows(rows[0] for *_, rows in groups)
    figure, [ax] = panels(width=max(6.0, 1.5 + 0.48 * len(groups)), height=5.2)
    ax.grid(False)
    ax.bar(at, first.of(bound), 0.8, color=EXCLUDED, label="excluded: proved lower bound, any V")
    ax.hlines(first.of(bound), [x - 0.4 for x in at], [x + 0.4 for x in at], color="#b3261e", lw=1.8)
    constructed = {"mfc": "none", "mec": NETWORKS[1], "mew": 1.6, "ms": 7, "clip_on": False}
    ax.plot(at, first.of("half_upper"), "D", label="constructed: half UB, scalar problem", **constructed)
    for x, (*_, rows) in zip(at, groups, strict=True):
        label = None if x else f"trained, each seed (± {SLACK:g} standard errors)"
        spread = rows.of(lambda row: SLACK * row["error_se"])
        style = {"fmt": "o", "color": INK, "ms": 4.5, "capsize": 3, "lw": 1.2}
        ax.errorbar([x] * len(rows), rows.of("error"), spread, label=label, **style)
    ax.axhline(0.5, color=FAINT, lw=0.9, ls="--")
    ax.annotate("the midpoint of the candidates", (len(groups) - 0.6, 0.503), ha="right", va="bottom", fontsize=8)
    for dim in first.distinct("dim"):
        x = first.of("dim").index(dim)
        ax.axvline(x - 0.5, color=FAINT, lw=0.9)
        ax.annotate(f"d = {dim}", (x - 0.38, 0.53), va="center", fontweight="bold", color=INK)
    head = "the further of two candidates: what training finds, and what no layer of that shape can do"
    legend = {"fontsize": 8.5, "loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 3}
    texts = {"x": "rank r, and below it heads H", "y": "E|f − g|²", "legend": legend}
    labelled(ax, head, xlim=(-0.5, len(groups) - 0.5), ylim=(0, 0.56), **texts)
    ax.set_xticks(at, first.say("{rank}\n{heads}"))
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    points=([[8, 8, 1], [8, 4, 2]], POINTS, POINTS),
    seeds=(1, 2, 3),
    steps=(10, 1200, 2500),
    samples=(1000, 40_000, 100_000),
)
