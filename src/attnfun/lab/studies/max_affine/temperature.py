"""Trained heads and the temperature of the partition.

Claim. Trained on the function, a single head increases the norms of its keys and queries until it is as sharp as the
partition that the theorem constructs.

Source. A remark on Liu, Hu, Song, Liu 2025, arXiv 2504.19901 (experiments proposed: monitor the norms as a proxy for
R); the temperature that cells need is our derivation.

Does a trained head sharpen its keys until it is the partition?

One head of unstructured keys, all weights free, trained on sin πx + cos πy from random starts and from the partition
itself, at two temperatures and two learning rates. A key's norm is its inverse temperature: that of the partition's key
of centre v is R |v|, so the norms of the partition with as many keys are what a head that had found it would have.

A full run takes 9 minutes of CPU.

Columns.
    start: random, or the partition with as many keys at c = R h² = 5 (soft) or 40 (sharp)
    keys: unstructured keys in R², all weights free
    lr: largest rate of Adam's one-cycle
    seed: of the start and the batches
    share: part of the run at this row
    step: steps made
    error: sup error on the probe points
    rms: root mean squared error on the probe points
    norm_mean: mean norm of a key, its inverse temperature
    norm_max: largest norm of a key
    value_max: largest value
    effective_keys: exp(entropy) of the attention, averaged over points
"""

from attnfun.lab.studies.drawing import Figure, coloured, curve, labelled, panels
from attnfun.lab.studies.max_affine.heads import state, trained_head
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described, median

SHARES = (0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 0.75, 1.0)
STARTS = {"random": None, "soft partition": 5.0, "sharp partition": 40.0}


def units(size: Size) -> list[Unit]:
    """All starts for the sizes `cells`; for the sizes `fewer` the partitions are looked at, not trained."""
    made = []
    for cells in (*size["fewer"], *size["cells"]):
        for start, c in STARTS.items():
            still = cells in size["fewer"] and c is not None
            rates, seeds = size["rates"][: 1 if still else None], range(1 if still else size["seeds"])
            steps = 0 if still else size["steps"]
            made += crossed(start=start, c=c, cells=cells, lr=rates, seed=seeds, steps=steps)
    return made


def run(unit: Unit) -> list[Row]:
    options = {key: unit[key] for key in ("steps", "seed", "lr")}
    history = trained_head(unit["cells"], unit["c"], **options).history
    seen = {share: history[round(share * (len(history) - 1))] for share in SHARES}
    keys = unit["cells"] ** 2
    return [{"keys": keys, "share": share, "step": point.step, **state(point)} for share, point in seen.items()]


def judge(table: Rows) -> Verdict:
    """Of the random starts: do the mean key norms grow, and do they end at half those of the softer partition or more?

    Holds when all of them do, with limits when some do, refuted when none does, however much the norms grow.
    """
    words, near, grown, total, stay, kept = [], 0, 0, 0, 0, 0
    for keys, here in table.by("keys"):
        derived = {start: rows[0] for start, rows in here.where(share=0.0).by("start") if start != "random"}
        soft = min(derived.values(), key=lambda row: row["norm_mean"])
        norm = soft["norm_mean"]
        random = here.where(start="random")
        last = random.where(share=1.0)
        first, half = ({(r["lr"], r["seed"]): r["norm_mean"] for r in random.where(share=s)} for s in (0.0, 0.5))
        total += len(last)
        near += sum(row["norm_mean"] >= norm / 2 for row in last)
        grown += sum(row["norm_mean"] >= 1.2 * first[row["lr"], row["seed"]] for row in last)
        end, late = last.median("norm_mean"), median(r["norm_mean"] / half[r["lr"], r["seed"]] for r in last)
        words.append(
            f"With {keys} keys the mean key norm of {len(last)} random starts goes from "
            f"{median(first.values()):.2f} to {end:.2f} ({last.span('norm_mean', '.2f')}), changing by a factor "
            f"{late:.2f} in the second half of the run; the partition of as many keys has {norm:.0f} at its best "
            f"temperature, {norm / end:.0f} times that. Learned heads mix {last.median('effective_keys'):.0f} keys at "
            f"a point (the partition {soft['effective_keys']:.1f}), with values up to {max(last.of('value_max')):.0f} "
            f"for a target of size 2, and a sup error of {last.median('error'):.2g}."
        )
        for start, row in derived.items():
            ended = here.where(start=start, share=1.0).that(lambda r: bool(r["step"]))
            shares = [r["norm_mean"] / row["norm_mean"] for r in ended]
            stay, kept = stay + sum(abs(share - 1) <= 0.25 for share in shares), kept + len(shares)
            if ended:
                words.append(
                    f"From the {start} (norm {row['norm_mean']:.0f}, error {row['error']:.2g}) {len(ended)} runs end "
                    f"with {min(shares):.2f} to {max(shares):.2f} of its norm and a median error of "
                    f"{ended.median('error'):.2g}."
                )
    no = (
        f"norms grow in {grown} of {total} runs, but no random start ends at half the sharpness of the partition: "
        f"training does not find it. {stay} of {kept} heads that start there keep its norms within a quarter"
    )
    some = "" if near == total else f"{near} of {total} random starts end as sharp as a partition."
    return decided(words, [] if near else [no], some, "Every random start ends as sharp as a partition.")


def draw(table: Rows) -> Figure:
    figure, (left, right) = panels(2)
    here = table.where(keys=max(table.of("keys")))
    top, slow = max(here.of("step")), min(here.of("lr"))
    for colour, (start, rows) in coloured(here.by("start")):
        for k, (lr, _, one) in enumerate(rows.by("lr", "seed")):
            style = {"ls": "-" if lr == slow else "--", "ms": 4, "lw": 1, "color": colour}
            for ax, column in ((left, "norm_mean"), (right, "error")):
                curve(ax, one, "step", column, ".", label="" if k else f"{start} start", **style)
        if start != "random":
            level = rows.where(share=0.0)[0]["norm_mean"]
            left.axhline(level, color=colour, lw=0.8, ls=":")
            left.text(top, level * 1.1, f"norm of the {start}", ha="right", fontsize=7, color=colour)
    left.margins(y=0.12)
    note = "each line a seed; solid and dashed: two learning rates" if len(here.distinct("lr")) > 1 else ""
    head, name = f"Key norms of one head, {here[0]['keys']} keys", "mean key norm  (inverse temperature)"
    labelled(left, head, note, "step", name, log="y", legend=None)
    labelled(right, "Its error", "sin πx + cos πy", "step", "sup error on the probe", log="y")
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    fewer=([2], [4], [4]),
    cells=([3], [8], [8]),
    rates=([0.1], [0.01, 0.1], [0.01, 0.1]),
    seeds=(1, 3, 4),
    steps=(8, 1500, 12000),
)
