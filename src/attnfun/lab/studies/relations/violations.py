"""Without continuity, positivity or compactness.

Claim. Where a relation is discontinuous, not positive definite (for one tower), or its domain not compact, the
approximation by inner products of networks is no longer guaranteed, and its error cannot be controlled.

Source. Altabaa and Lafferty 2024, arXiv 2402.08856: the assumptions of sections 2 and 3. The witnesses, the lower
bounds and the fixes are our own derivations.

What the failure of each assumption does: a jump, a kernel that is not positive, no end of the domain.

For every violation a witness that is checked, a lower bound on the error of any features of the kind in question,
trained networks, which must stay above it, and the fix that is left.

A full run takes two minutes of CPU.

Columns.
    part: the assumption that fails
    way: witness, learned, fixed (a band, signs) or constructed
    case: the relation
    size: hidden units (learned, jump), band δ (fixed, jump), half-width W (not compact)
    seed: of the random start
    rank: features
    error: sup error: measured on a fine grid; at a jump the limit from both sides
    proved: ≤ bound proved for the fix (for a band: outside it)
    least: ≥ proved: no continuous scores, no self inner product, or no features of this rank are nearer
    rank_lower: features that any method needs for 0.01, proved
    checked: the witness was asked again and stands; or the fix is proved
"""

from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, labelled, level, panels
from attnfun.lab.studies.relations.inner_products import built_row, fine_grid, sup_error, train_on
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

PARTS = ("discontinuous", "not positive", "not compact")
JUMP = "sign(x - y)"
SIGNED = ("-abs(x - y)", "tanh(4*x*y - 1)", "cos(3*(x + y))")
SLIGHT = "exp(-2*(x - y)**2) - 1e-10*cos(40*(x + y))"
WIDE = "exp(-(x - y)**2)"


def units(size: Size) -> list[Unit]:
    jump, signed, wide = ({"part": part} for part in PARTS)
    learned = {"way": "learned", "seed": range(size["seeds"]), "steps": size["steps"], "rank": size["rank"]}
    made = crossed(**jump, way="witness", case=JUMP) + crossed(**jump, way="fixed", case=JUMP, size=size["bands"])
    made += crossed(**jump, case=JUMP, size=size["widths"], **learned)
    for case in size["signed"]:
        made += crossed(**signed, way=("witness", "fixed"), case=case)
        made += crossed(**signed, case=case, **learned) if case != SLIGHT else []
    for half in size["halves"]:
        made += crossed(**wide, way="constructed", case=WIDE, size=half)
        made += crossed(**wide, case=WIDE, size=half, **learned)
    return made


def run(unit: Unit) -> Row:
    return {"discontinuous": _jump, "not positive": _not_positive, "not compact": _wide}[unit["part"]](unit)


def _target(case: str, low: float = 0.0, high: float = 1.0, symmetric: bool = False) -> Any:
    return af.Relation.read(case, {"x": (low, high)}, {"y": (low, high)}, symmetric)


def _trained(target: Any, unit: Unit, width: int = 64, shared: bool = True) -> Any:
    return train_on(target, unit["rank"], width, steps=unit["steps"], seed=unit["seed"], shared=shared)


def half_jump(target: Any) -> float:
    """Half of what sign jumps by at (½, ½): no continuous scores are nearer, since their limits there agree."""
    near = np.array([[0.5], [0.5 + 2.0**-50]])
    values_there = target.table(near, near)
    return float(abs(values_there[1, 0] - values_there[0, 1]) / 2)


def _proved(found: Any) -> bool:
    return str(found.certificate.status) == "proved"


def _jump(unit: Unit) -> Row:
    target = _target(JUMP)
    X, sides = fine_grid(target.left), ({"x": (0, 1)}, {"y": (0, 1)})
    if unit["way"] == "witness":
        try:
            af.relation(JUMP, *sides, 0.5)
            refused = False
        except af.Infeasible:
            refused = True
        return {"least": half_jump(target), "checked": refused}
    if unit["way"] == "fixed":
        found = af.relation(JUMP, *sides, 1e-2, band=unit["size"])
        away = np.abs(X - X.T) >= unit["size"] * (1 + 1e-12)
        error = float(np.abs(found(X, X) - np.sign(X - X.T))[away].max())
        return {"rank": found.rank, "error": error, "proved": 1e-2, "checked": _proved(found)}
    trained = _trained(target, unit, unit["size"], shared=False)
    error = 1.0 + float(np.abs(trained.pairs(X, X)).max())  # from both sides of x = y, where the scores are continuous
    return {"error": error, "least": half_jump(target)}


def _not_positive(unit: Unit) -> Row:
    target = _target(unit["case"], symmetric=True)
    asked = (unit["case"], {"x": (0, 1)}, {"y": (0, 1)}, 1e-2)
    if unit["way"] == "fixed":
        found = af.relation(*asked, symmetric=True, signed=True)
        return {**built_row(target, found), "checked": _proved(found)}
    try:
        af.relation(*asked, symmetric=True)
        return {"checked": False}
    except af.NotPositive as refused:
        witness = refused.witness
    if unit["way"] == "learned":
        return {"error": sup_error(target, _trained(target, unit)), "least": witness.distance}
    again = af.parts.checked_witness(target, witness.points, witness.vector)
    return {"least": witness.distance, "checked": again is not None and again.distance == witness.distance}


def _wide(unit: Unit) -> Row:
    half = unit["size"]
    target = _target(WIDE, -half, half, symmetric=True)
    if unit["way"] == "learned":
        least = af.parts.error_lower(target, unit["rank"])
        return {"error": sup_error(target, _trained(target, unit)), "least": least}
    found = af.relation(target.graph, target.left, target.right, 1e-2, symmetric=True, features_only=True)
    error, proved = found.certificate.error
    row = {"rank": found.rank, "error": error, "proved": proved, "rank_lower": found.rank_lower}
    return row | {"checked": _proved(found)}


def judge(table: Rows) -> Verdict:
    """Holds where every witness is checked, nothing trained beats its lower bound, and rank grows with the domain.

    With limits where a fix is not proved. Refuted where something beats a bound or a violation does no harm.
    """
    who, learned = "{part}, {case} ({way}) ", table.where(way="learned")
    faults = table.above("least", "error").say(who + "beats its lower bound")
    faults += table.where(way="witness").fails(lambda row: row["checked"] is True).say(who + "was not witnessed")
    wide = table.where(part="not compact", way="constructed").sorted("size")
    first, last = wide[0], wide[-1]
    if len(wide) > 1 and not (last["rank_lower"] > first["rank_lower"] and last["rank"] > first["rank"]):
        faults += wide.first().say(who + "needs no more rank when wider")
    words = []
    if jumps := learned.where(part="discontinuous"):
        words.append(
            f"A jump: no continuous scores come nearer to {JUMP} than {jumps[0]['least']:g}, and {len(jumps)} trained "
            f"pairs of towers are {jumps.span('error', '.3g')} off."
        )
    fixes = table.where(way="fixed")
    if bands := fixes.where(part="discontinuous").say("{rank} (δ = {size:g})"):
        words.append(f"Left out a band around it, ranks are {', '.join(bands)}.")
    for case, rows in learned.where(part="not positive").by("case"):
        fix = fixes.where(part="not positive", case=case).say("{rank} features are proved to {proved:≤2}")
        words.append(
            f"{case}: every self inner product is {rows[0]['least']:≥3} off or more, trained ones "
            f"{rows.span('error', '.3g')}; with signs {', '.join(fix)}."
        )
    slight = table.where(way="witness", case=SLIGHT)
    words += slight.that(lambda row: row["least"]).say("A violation of 1e-10 is seen too (distance {least:≥2}).")
    if len(wide) > 1:
        words.append(
            f"No end: for {WIDE} on [−W, W] to 0.01 the rank grows from {first['rank']} (W = {first['size']:g}) to "
            f"{last['rank']} (W = {last['size']:g}), at least {last['rank_lower']} by any method, about like "
            f"W^{Rows(wide[1:]).slope('size', 'rank'):.2f}."
        )
        if there := learned.where(part="not compact", size=last["size"]):
            off = f"{there[0]['rank']} trained features are {min(there.of('error')):.2g} off there"
            words.append(f"{off} (none do better than {there[0]['least']:≥2}).")
    fixes = table.where(way=("fixed", "constructed"))
    fine = not fixes.above("error", "proved") and all(row["checked"] is True for row in fixes)
    limit = "" if fine else "Each assumption is needed; a fix could not be proved."
    return decided(words, faults, limit, "Each assumption is needed, and each has a fix at a price.")


def draw(table: Rows) -> Any:
    figure, (jump, signed, wide) = panels(3, width=4.7, height=4.3)
    parts = {(part, way): rows for part, way, rows in table.by("part", "way")}
    empty, trained = Rows(), {"color": NETWORKS[4]}
    rows = parts.get(("discontinuous", "learned"), empty)
    curve(jump, rows, "size", "error", "x", label="trained, each seed", **trained)
    level(jump, rows, "least", color=BOUND, ls="--", lw=1, label="no continuous scores below")
    note = ", ".join(parts.get(("discontinuous", "fixed"), empty).say("{size:g}: {rank}"))
    texts = (f"rank proved outside a band δ: {note}", "hidden units per tower", "sup error")
    shape = {"xticks": rows.distinct("size"), "ylim": (0, 2.2), "legend": "lower left"}
    labelled(jump, "A jump: sign(x − y)", *texts, log="x", **shape)
    rows = parts.get(("not positive", "learned"), empty)
    cases = rows.distinct("case")

    def at(row: Row) -> int:
        return cases.index(row["case"])

    curve(signed, rows, at, "error", "x", label="one tower, trained", **trained)
    seen = table.where(part="not positive", case=tuple(cases))
    least = seen.where(way="witness")
    ends = ([at(row) + far for row in least] for far in (-0.25, 0.25))
    signed.hlines(least.of("least"), *ends, ls="--", color=BOUND, label="one tower: proved least")
    curve(signed, seen.where(way="fixed"), at, "proved", "o", color=NETWORKS[0], label="with signs, proved")
    shape = {"xticks": cases, "ylim": (1e-6, 5), "xlim": (-0.6, len(cases) - 0.4), "legend": "lower left"}
    labelled(signed, "Not positive", "⟨φ(x), φ(y)⟩ cannot, ⟨φ(x), Jφ(y)⟩ can", y="sup error", log="y", **shape)
    rows = parts[("not compact", "constructed")]
    curve(wide, rows, "size", "rank", "o-", color=NETWORKS[0], ms=4, label="rank proved for 0.01")
    curve(wide, rows, "size", "rank_lower", "--", color=BOUND, label="rank that any method needs")
    texts = (f"{WIDE} on [−W, W]", "half-width W of the domain", "rank")
    shape = {"xticks": rows.of("size"), "yticks": rows.of("rank"), "legend": "upper left"}
    labelled(wide, "A domain without end", *texts, log="xy", **shape)
    twin, rows = wide.twinx(), parts.get(("not compact", "learned"), empty)
    curve(twin, rows, "size", "error", "x", label="trained, rank fixed", **trained)
    curve(twin, rows, "size", "least", "_", ms=12, label="least at that rank", **trained)
    labelled(twin, "", y="sup error (crosses and bars)", log="y", ylim=(1e-7, 3), legend="lower right")
    twin.minorticks_off()
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": ("witness", "learned", "fixed", "constructed"), "part": PARTS},
    steps=(12, 600, 1500),
    rank=(6, 8, 8),
    seeds=(1, 3, 4),
    bands=([0.4], [0.4, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1]),
    widths=([16], [16, 64, 256], [16, 64, 256]),
    signed=([SIGNED[1]], [*SIGNED, SLIGHT], [*SIGNED, SLIGHT]),
    halves=([1, 2], [1, 2, 4, 8, 16], [1, 2, 4, 8, 16, 32]),
)
