"""Without continuity, positivity or compactness.

Claim. Where a relation is discontinuous, not positive definite (for one tower), or its domain not compact, the
approximation by inner products of networks is no longer guaranteed, and its error cannot be controlled.

Source. Altabaa and Lafferty 2024, arXiv 2402.08856: the assumptions of sections 2 and 3. The witnesses, the lower
bounds and the mends are our own derivations.

What the failure of each assumption does: a jump, a kernel that is not positive, no end of the domain.

For every violation a witness that is checked, a lower bound on the error of any features of the kind in question,
trained networks, which must stay above it, and the mend that is left.

Columns.
    part: the assumption that fails
    way: witness, learned, mended (a band, signs) or constructed
    case: the relation
    size: hidden units (learned, jump), band δ (mended, jump), half-width W (not compact)
    seed: of the random start
    rank: features
    error: sup error: measured on a fine grid; at a jump the limit from both sides
    proved: bound proved for the mend (for a band: outside it)
    least: proved: no continuous scores, no self inner product, or no features of this rank are nearer
    rank_lower: features that any method needs for 0.01, proved
    checked: the witness was asked again and stands; or the mend is proved
"""

from __future__ import annotations

from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, panels, title
from attnfun.lab.studies.relations.towers import above, fine_grid, sup_error, train_on
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, slope, values, where

PARTS = ("discontinuous", "not positive", "not compact")
JUMP = "sign(x - y)"
SIGNED = ("-abs(x - y)", "tanh(4*x*y - 1)", "cos(3*(x + y))")
SLIGHT = "exp(-2*(x - y)**2) - 1e-10*cos(40*(x + y))"
WIDE = "exp(-(x - y)**2)"


def units(size: Size) -> list[Unit]:
    more = {"steps": size["steps"], "rank": size["rank"]}
    seeds = range(size["seeds"])
    out: list[Unit] = [{"part": "discontinuous", "way": "witness", "case": JUMP}]
    out += [{"part": "discontinuous", "way": "mended", "case": JUMP, "size": band} for band in size["bands"]]
    out += [
        {"part": "discontinuous", "way": "learned", "case": JUMP, "size": width, "seed": seed, **more}
        for width in size["widths"]
        for seed in seeds
    ]
    for case in size["signed"]:
        out += [{"part": "not positive", "way": way, "case": case} for way in ("witness", "mended")]
        if case != SLIGHT:
            out += [{"part": "not positive", "way": "learned", "case": case, "seed": s, **more} for s in seeds]
    for half in size["halves"]:
        out.append({"part": "not compact", "way": "constructed", "case": WIDE, "size": half})
        out += [{"part": "not compact", "way": "learned", "case": WIDE, "size": half, "seed": s, **more} for s in seeds]
    return out


def run(unit: Unit) -> list[Row]:
    parts = {"discontinuous": _jump, "not positive": _not_positive, "not compact": _wide}
    return [parts[unit["part"]](unit)]


def _target(case: str, low: float = 0.0, high: float = 1.0, symmetric: bool = False) -> Any:
    return af.Relation.read(case, {"x": (low, high)}, {"y": (low, high)}, symmetric)


def half_jump(target: Any) -> float:
    """Half of what sign jumps by at (½, ½): no continuous scores are nearer, since their limits there agree."""
    import numpy as np

    near = np.array([[0.5], [0.5 + 2.0**-50]])
    values_there = target.table(near, near)
    return float(abs(values_there[1, 0] - values_there[0, 1]) / 2)


def _jump(unit: Unit) -> Row:
    import numpy as np

    target = _target(JUMP)
    if unit["way"] == "witness":
        try:
            af.relation(JUMP, {"x": (0, 1)}, {"y": (0, 1)}, 0.5)
            refused = False
        except af.Infeasible:
            refused = True
        return {"least": half_jump(target), "checked": refused}
    if unit["way"] == "mended":
        found = af.relation(JUMP, {"x": (0, 1)}, {"y": (0, 1)}, 1e-2, band=unit["size"])
        X = fine_grid(target.left)
        away = np.abs(X - X.T) >= unit["size"] * (1 + 1e-12)
        error = float(np.abs(found(X, X) - np.sign(X - X.T))[away].max())
        return {
            "rank": found.rank,
            "error": error,
            "proved": 1e-2,
            "checked": str(found.certificate.status) == "proved",
        }
    trained = train_on(target, unit["rank"], unit["size"], steps=unit["steps"], seed=unit["seed"])
    X = fine_grid(target.left)
    error = 1.0 + float(np.abs(trained.pairs(X, X)).max())  # from both sides of x = y, where the scores are continuous
    return {"rank": unit["rank"], "error": error, "least": half_jump(target)}


def _not_positive(unit: Unit) -> Row:
    target = _target(unit["case"], symmetric=True)
    sides = {"x": (0, 1)}, {"y": (0, 1)}
    if unit["way"] == "mended":
        found = af.relation(unit["case"], *sides, 1e-2, symmetric=True, signed=True)
        error = max(sup_error(target, found), found.certificate.error[0])
        proved, status = found.certificate.error[1], str(found.certificate.status)
        return {"rank": found.rank, "error": error, "proved": proved, "checked": status == "proved"}
    try:
        af.relation(unit["case"], *sides, 1e-2, symmetric=True)
        return {"checked": False}
    except af.NotPositive as refused:
        witness = refused.witness
    again = af.parts.checked_witness(target, witness.points, witness.vector)
    row: Row = {"least": witness.distance, "checked": again is not None and again.distance == witness.distance}
    if unit["way"] == "witness":
        return row
    trained = train_on(target, unit["rank"], 64, steps=unit["steps"], seed=unit["seed"], shared=True)
    return {"rank": unit["rank"], "error": sup_error(target, trained), "least": row["least"]}


def _wide(unit: Unit) -> Row:
    half = unit["size"]
    target = _target(WIDE, -half, half, symmetric=True)
    if unit["way"] == "constructed":
        found = af.relation(target.graph, target.left, target.right, 1e-2, symmetric=True, features_only=True)
        error, proved = found.certificate.error
        checked = str(found.certificate.status) == "proved"
        return {
            "rank": found.rank,
            "error": error,
            "proved": proved,
            "rank_lower": found.rank_lower,
            "checked": checked,
        }
    trained = train_on(target, unit["rank"], 64, steps=unit["steps"], seed=unit["seed"], shared=True)
    return {"error": sup_error(target, trained), "least": af.parts.error_lower(target, unit["rank"])}


def judge(table: Table) -> Verdict:
    """Holds where every witness is checked, nothing trained beats its lower bound, and rank grows with the domain.

    With limits where a mend is not proved. Refuted where something beats a bound or a violation does no harm.
    """
    if gone := lacking(table, "way", "witness", "learned", "mended", "constructed") or lacking(table, "part", *PARTS):
        return gone
    broken = above(table, "least", "error")
    unseen = [row for row in where(table, way="witness") if row["checked"] is not True]
    wide = sorted(where(table, part="not compact", way="constructed"), key=lambda row: float(row["size"]))
    ranks, least = values(wide, "rank"), values(wide, "rank_lower")
    grows = len(wide) < 2 or (least[-1] > least[0] and ranks[-1] > ranks[0])
    learned = where(table, way="learned")
    jumps, signed = where(learned, part="discontinuous"), where(learned, part="not positive")
    words = ""
    if jumps:
        words += (
            f"A jump: no continuous scores come nearer to {JUMP} than {jumps[0]['least']:g}, and {len(jumps)} trained "
            f"pairs of towers are {min(values(jumps, 'error')):.3g} to {max(values(jumps, 'error')):.3g} off. "
        )
    bands = where(table, part="discontinuous", way="mended")
    if bands:
        words += "Left out a band around it, ranks are " + ", ".join(f"{r['rank']} (δ = {r['size']:g})" for r in bands)
        words += ". "
    for case in distinct(signed, "case"):
        rows = where(signed, case=case)
        mend = where(table, part="not positive", way="mended", case=case)
        words += f"{case}: every self inner product is {rows[0]['least']:.3g} off or more, trained ones "
        words += f"{min(values(rows, 'error')):.3g} to {max(values(rows, 'error')):.3g}; with signs "
        words += ", ".join(f"{r['rank']} features are proved to {r['proved']:.2g}" for r in mend) + ". "
    slight = where(table, way="witness", case=SLIGHT)
    if slight and slight[0]["least"]:
        words += f"A violation of 1e-10 is seen too (distance {slight[0]['least']:.2g}). "
    if len(wide) > 1:
        words += (
            f"No end: for {WIDE} on [−W, W] to 0.01 the rank grows from {ranks[0]} (W = {wide[0]['size']:g}) to "
            f"{ranks[-1]} (W = {wide[-1]['size']:g}), at least {least[-1]} by any method, about like "
            f"W^{slope(values(wide[1:], 'size'), ranks[1:]):.2f}"
        )
        last = where(learned, part="not compact", size=wide[-1]["size"])
        if last:
            words += f"; {last[0]['rank']} trained features are {min(values(last, 'error')):.2g} off there"
            words += f" (none do better than {last[0]['least']:.2g})"
        words += ". "
    if broken or unseen or not grows:
        row = (broken or unseen or wide)[0]
        what = "beats its lower bound" if broken else "was not witnessed" if unseen else "needs no more rank when wider"
        return Verdict(REFUTED, f"Refuted: {row['part']}, {row['case']} ({row['way']}) {what}.", words)
    mends = [row for row in table if row["way"] in ("mended", "constructed")]
    if above(mends, "error", "proved") or not all(row["checked"] is True for row in mends):
        return Verdict(LIMITS, "Each assumption is needed; a mend could not be proved.", words)
    return Verdict(HOLDS, "Each assumption is needed, and each has a mend at a price.", words)


def draw(table: Table) -> Any:
    figure, axes = panels(columns=3, width=4.7, height=4.3)
    jump, signed, wide = axes[0]
    rows = where(table, part="discontinuous", way="learned")
    curve(jump.semilogx, rows, "size", "error", "x", color=NETWORKS[4], label="trained, each seed")
    if rows:
        jump.axhline(rows[0]["least"], color=BOUND, ls="--", lw=1, label="no continuous scores below")
    jump.set(xlabel="hidden units a tower", ylabel="sup error", ylim=(0, 2.2))
    widths = distinct(rows, "size")
    jump.set_xticks(widths, [str(w) for w in widths])
    jump.minorticks_off()
    bands = where(table, part="discontinuous", way="mended")
    note = ", ".join(f"{r['size']:g}: {r['rank']}" for r in bands)
    jump.legend(fontsize=7, frameon=False, loc="lower left")
    title(jump, "A jump: sign(x − y)", f"rank proved outside a band δ: {note}")
    cases = distinct(where(table, part="not positive", way="learned"), "case")
    for k, case in enumerate(cases):
        rows = where(table, part="not positive", case=case)
        errors = values([r for r in rows if r["way"] == "learned"], "error")
        bound = next(r["least"] for r in rows if r["way"] == "witness")
        mend = next((r["proved"] for r in rows if r["way"] == "mended"), None)
        signed.plot([k] * len(errors), errors, "x", color=NETWORKS[4], label=None if k else "one tower, trained")
        signed.plot(
            [k - 0.25, k + 0.25], [bound] * 2, "--", color=BOUND, label=None if k else "one tower: proved least"
        )
        if mend is not None:
            signed.plot([k], [mend], "o", color=NETWORKS[0], label=None if k else "with signs, proved")
    signed.set_xticks(range(len(cases)), cases, fontsize=7)
    signed.set(yscale="log", ylabel="sup error", ylim=(1e-6, 5), xlim=(-0.6, len(cases) - 0.4))
    signed.legend(fontsize=7, frameon=False, loc="lower left")
    title(signed, "Not positive", "⟨φ(x), φ(y)⟩ cannot, ⟨φ(x), Jφ(y)⟩ can")
    rows = where(table, part="not compact", way="constructed")
    curve(wide.loglog, rows, "size", "rank", "o-", color=NETWORKS[0], ms=4, label="rank proved for 0.01")
    curve(wide.loglog, rows, "size", "rank_lower", "--", color=BOUND, label="rank that any method needs")
    wide.set(xlabel="half-width W of the domain", ylabel="rank")
    wide.set_xticks(values(rows, "size"), [f"{w:g}" for w in values(rows, "size")])
    wide.set_yticks(values(rows, "rank"), [str(r) for r in values(rows, "rank")])
    wide.minorticks_off()
    wide.legend(fontsize=7, frameon=False, loc="upper left")
    twin = wide.twinx()
    rows = where(table, part="not compact", way="learned")
    curve(twin.semilogy, rows, "size", "error", "x", color=NETWORKS[4], label="trained, rank fixed")
    curve(twin.semilogy, rows, "size", "least", "_", color=NETWORKS[4], ms=12, label="least at that rank")
    twin.set(ylabel="sup error (crosses and bars)", ylim=(1e-7, 3))
    twin.minorticks_off()
    twin.legend(fontsize=7, frameon=False, loc="lower right")
    title(wide, "A domain without end", f"{WIDE} on [−W, W]")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        steps=(40, 600, 1500),
        rank=(6, 8, 8),
        seeds=(1, 3, 4),
        bands=([0.4], [0.4, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1]),
        widths=([16], [16, 64, 256], [16, 64, 256]),
        signed=([SIGNED[1]], [*SIGNED, SLIGHT], [*SIGNED, SLIGHT]),
        halves=([1, 2], [1, 2, 4, 8, 16], [1, 2, 4, 8, 16, 32]),
    ),
    needs=("torch",),
    full_time="two minutes of CPU",
)
