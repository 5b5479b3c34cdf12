"""`make two-candidates`: trained layers against what no layer can do, on the further of two candidates.

    python benchmarks/two_candidates.py [--steps 1200] [--samples 40000] [--seed 0] [--png FILE] [--output FILE]

Two candidates x1, x2 and a query y are independent and uniform on the unit sphere of R^d; the target f is the candidate
further from y, E|f|² = 1, and the error is E|f − g|². A layer attends from y to x1 and x2 with H heads,

    g = Σ_h V_h (a_h x1 + (1 − a_h) x2),   a_h = softmax over x1, x2 of ⟨Q_hᵀy, K_hᵀx⟩,   K_h, Q_h of rank r, V_h free,

trained by Adam on fresh samples, Q starting at −K (the further candidate has the smaller product) and V_h at 1/H. The
midpoint (x1 + x2)/2 alone has the error 1/2. Training is seeded, on one thread, and ends by `--steps`, never by the
clock. The trained error is a measurement on samples that training never saw, ± its standard error.

The table's other columns, all computed by `attnfun.bounds.rank`:

any V: layer, softmax      proved: no layer of this shape has a smaller error; the larger of the two counts
scalar V: layer, softmax   proved for V_h = c_h I alone: a free V_h may fall below
half UB                    half the error of random directions in the scalar problem sign(⟨z, y⟩), where any function of
                           (K_hᵀz, y) takes the place of the softmax: a yardstick, no promise for these layers
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import attnfun as af
from attnfun.cli.render import progress_bar

POINTS = (
    *((8, r, h) for r, h in ((1, 1), (1, 8), (1, 32), (2, 4), (2, 16), (4, 1), (4, 2), (4, 8), (7, 1), (8, 1))),
    *((16, r, h) for r, h in ((1, 1), (1, 16), (1, 32), (2, 16), (4, 2), (4, 8), (8, 1), (8, 2), (15, 1), (16, 1))),
)
BATCH, RATE = 256, 0.02
SLACK = 3.0  # standard errors
LEAST_STEPS, LEAST_SAMPLES, CHUNK = 10, 1000, 10_000


@dataclass(frozen=True)
class Row:
    """One trained layer, its measured error, and the bounds for its shape; a line of the table."""

    dim: int
    rank: int
    heads: int
    error: float
    error_se: float
    layer_any: float
    softmax_any: float
    layer_scalar: float
    softmax_scalar: float
    half_upper: float
    seconds: float = field(compare=False)

    @property
    def bound(self) -> float:
        """The larger of the two lower bounds whose hypotheses this layer meets: softmax weights, any V."""
        return max(self.layer_any, self.softmax_any)

    @property
    def allowed(self) -> bool:
        """Whether the measurement agrees with the bound; false for anything that is no finite number."""
        numbers = (self.error, self.error_se, self.layer_any, self.softmax_any)
        return all(map(math.isfinite, numbers)) and self.error + SLACK * self.error_se >= self.bound


def samples(torch: Any, generator: Any, count: int, dim: int, dtype: Any) -> tuple[Any, Any, Any, Any]:
    """(x1 − x2, x2, y, f) with `count` rows."""
    drawn = torch.randn((3, count, dim), generator=generator, dtype=dtype)
    x1, x2, y = drawn / drawn.norm(dim=-1, keepdim=True)
    w = x1 - x2
    return w, x2, y, x2 + w * ((w * y).sum(-1, keepdim=True) < 0)


def output(torch: Any, K: Any, Q: Any, V: Any, w: Any, x2: Any, y: Any) -> Any:
    """Σ_h V_h (x2 + a_h w); the softmax of two logits is the sigmoid of their difference. K, Q: (H, d, r)."""
    heads, dim, _ = K.shape
    logit = (torch.einsum("nd,hdr->nhr", w, K) * torch.einsum("nd,hdr->nhr", y, Q)).sum(-1)
    averages = x2[:, None] + torch.sigmoid(logit)[..., None] * w[:, None]
    return averages.reshape(-1, heads * dim) @ V.reshape(heads * dim, dim)


def trained(
    dim: int,
    rank: int,
    heads: int,
    steps: int,
    count: int,
    seed: int = 0,
    report: Callable[[float], None] | None = None,
) -> tuple[float, float]:
    """(mean, standard error) of |f − g|² on `count` fresh samples, after `steps` steps of training.

    The same numbers give the same answer on one machine: own generators, one thread (put back afterwards).
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        source = torch.Generator().manual_seed(seed)
        start = torch.randn((heads, dim, rank), generator=source) * dim**-0.5
        values = torch.eye(dim).repeat(heads, 1, 1) / heads
        K, Q, V = (part.clone().requires_grad_() for part in (start, -start, values))
        adam = torch.optim.Adam([K, Q, V], lr=RATE)
        rate = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=steps)
        for step in range(steps):
            w, x2, y, f = samples(torch, source, BATCH, dim, torch.float32)
            loss = (f - output(torch, K, Q, V, w, x2, y)).square().sum(-1).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            rate.step()
            if report is not None and step % 20 == 0:
                report(step / steps)
        fresh, errors = torch.Generator().manual_seed(seed + 2**32), []
        with torch.no_grad():
            K, Q, V = K.double(), Q.double(), V.double()
            for done in range(0, count, CHUNK):
                w, x2, y, f = samples(torch, fresh, min(CHUNK, count - done), dim, torch.float64)
                errors.append((f - output(torch, K, Q, V, w, x2, y)).square().sum(-1))
        found = torch.cat(errors)
        return float(found.mean()), float(found.std()) / math.sqrt(count)
    finally:
        torch.set_num_threads(threads)


def row_of(dim: int, rank: int, heads: int, *, steps: int, count: int, seed: int = 0, report: Any = None) -> Row:
    import torch  # noqa: F401 - its seconds are not the training's

    start = time.perf_counter()
    error, error_se = trained(dim, rank, heads, steps, count, seed, report)
    seconds = time.perf_counter() - start
    limits = {
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
    return Row(dim, rank, heads, error, error_se, **limits, half_upper=upper / 2, seconds=seconds)


def verdict(rows: Sequence[Row]) -> str:
    """One sentence on the table: whether a measurement contradicts a bound, and where."""
    if not rows:
        return "no point was measured"
    wrong = [row for row in rows if not row.allowed]
    if wrong:
        named = "; ".join(
            f"d={row.dim} r={row.rank} H={row.heads}: {row.error:.4f} ± {row.error_se:.4f} against {row.bound:.4f}"
            for row in wrong
        )
        return f"{len(wrong)} of {len(rows)} points are not on or above the proved bound: {named}"
    excluded = sum(row.bound > 0 for row in rows)
    return (
        f"every point is on or above the proved bound ({len(rows)} points, {excluded} of them with a bound above 0; "
        f"{SLACK:g} standard errors allowed)"
    )


def remark(rows: Sequence[Row]) -> str:
    """Where the points lie among what is no bound for them."""
    under = sum(row.error < row.half_upper for row in rows)
    free = sum(row.error + SLACK * row.error_se < max(row.layer_scalar, row.softmax_scalar) for row in rows)
    return (
        f"{under} of {len(rows)} are below half UB, what random directions do in the scalar problem; {free} are below "
        f"the bound for scalar V by more than {SLACK:g} standard errors"
    )


HEADER = ("d", "r", "H", "trained", "any V: layer ≥", "softmax ≥", "scalar V: layer ≥", "softmax ≥", "half UB",
          "seconds")  # fmt: skip


def markdown(rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(HEADER) + " |", "|" + " ---: |" * len(HEADER)]
    for row in rows:
        shape = [f"{row.dim}", f"{row.rank}", f"{row.heads}", f"{row.error:.4f} ± {row.error_se:.4f}"]
        limits = (row.layer_any, row.softmax_any, row.layer_scalar, row.softmax_scalar, row.half_upper)
        lines.append("| " + " | ".join([*shape, *(f"{x:.4f}" for x in limits), f"{row.seconds:.1f}"]) + " |")
    return "\n".join(lines)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Every point on one axis of errors: excluded by the bound, constructed for the scalar problem, trained."""
    from matplotlib.figure import Figure

    from attnfun.plots.panels import FAINT, INK, title

    figure = Figure(figsize=(max(6.0, 1.5 + 0.48 * len(rows)), 5.2), dpi=130, layout="constrained")
    ax = figure.subplots()
    at = range(len(rows))
    ax.bar(at, [row.bound for row in rows], 0.8, color="#f3c6c0", label="excluded: proved lower bound, any V")
    ax.hlines([row.bound for row in rows], [x - 0.4 for x in at], [x + 0.4 for x in at], color="#b3261e", lw=1.8)
    constructed = {"marker": "D", "ls": "none", "mfc": "none", "mec": "#2f7fbf", "mew": 1.6, "ms": 7, "clip_on": False}
    ax.plot(at, [row.half_upper for row in rows], label="constructed: half UB, scalar problem", **constructed)
    spread = [SLACK * row.error_se for row in rows]
    measured = {"fmt": "o", "color": INK, "ms": 5, "capsize": 3, "lw": 1.2}
    ax.errorbar(at, [row.error for row in rows], spread, label=f"trained (± {SLACK:g} standard errors)", **measured)
    ax.axhline(0.5, color=FAINT, lw=0.9, ls="--")
    ax.annotate("the midpoint of the candidates", (len(rows) - 0.6, 0.503), ha="right", va="bottom", fontsize=8)
    for x in at:
        if x == 0 or rows[x].dim != rows[x - 1].dim:
            ax.axvline(x - 0.5, color=FAINT, lw=0.9)
            ax.annotate(f"d = {rows[x].dim}", (x - 0.38, 0.53), va="center", fontweight="bold", color=INK)
    ax.set_xticks(at, [f"{row.rank}\n{row.heads}" for row in rows])
    ax.set(xlim=(-0.5, len(rows) - 0.5), ylim=(0, 0.56), xlabel="rank r, and below it heads H", ylabel="E|f − g|²")
    ax.legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, frameon=False)
    title(ax, "the further of two candidates: what training finds, and what no layer of that shape can do")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200, help="steps of training for each point (1200)")
    parser.add_argument("--samples", type=int, default=40_000, help="fresh samples that measure a point (40000)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and samples (0)")
    parser.add_argument("--png", type=Path, help="draw bound, constructed and trained")
    parser.add_argument("--output", type=Path, help="write the Markdown there as well")
    asked = parser.parse_args()
    if asked.steps < LEAST_STEPS or asked.samples < LEAST_SAMPLES or not 0 <= asked.seed < 2**32:
        parser.error(f"--steps from {LEAST_STEPS}, --samples from {LEAST_SAMPLES}, --seed from 0 to 2**32 - 1")
    for path in (asked.png, asked.output):
        if path is not None and not path.parent.is_dir():
            parser.error(f"{path}: there is no folder {path.parent}")
    for module, extra in (("torch", "torch"), *((("matplotlib", "plot"),) if asked.png else ())):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"this benchmark needs {module}, which is not installed: pip install 'attnfun[{extra}]'")
    rows: list[Row] = []
    start = time.perf_counter()
    with progress_bar("two candidates") as progress:
        for done, (d, r, h) in enumerate(POINTS):

            def report(share: float, done: int = done, name: str = f"d={d} r={r} H={h}") -> None:
                progress(name, (done + share) / len(POINTS))

            rows.append(row_of(d, r, h, steps=asked.steps, count=asked.samples, seed=asked.seed, report=report))
    how = f"{asked.steps:,} steps, {asked.samples:,} fresh samples, seed {asked.seed}"
    heading = f"# Trained on two candidates ({how}; {time.perf_counter() - start:.0f} s)"
    text = "\n\n".join((heading, markdown(rows), verdict(rows), remark(rows)))
    print(text)
    if asked.output:
        asked.output.write_text(text + "\n", encoding="utf-8")
    if asked.png:
        draw(rows, asked.png)
    if not all(row.allowed for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
