"""Ridge, lasso and logistic regression in context, by depth.

Claim. Layers of softmax attention alone carry out gradient descent, and so ridge, lasso and logistic regression, on
the examples of their prompt; the error falls with the depth.

Source. Hu, Liu, Chen, Wu, Liu 2025, arXiv 2504.15956 (its first version names the statistical models, its second
gradient descent); stacks, budgets and proofs are our own.

Ridge, lasso and logistic regression in the forward pass, by depth: constructed against trained.

Prompts of one class for both: normal examples whose eigenvalues fill the declared spectrum, mirrored as the stacks read
them, one query each. Constructed stacks at every depth with what is predicted, what is proved (ridge) and what is
measured; stacks of plain attention of the same depth with a residual stream, all weights free, trained on exact
solutions, with weights of their own in every layer or the same in all.

Columns.
    task: ridge, lasso or logistic
    way: constructed, learned, or learned with the same weights in all layers
    layers: attention layers
    seed: of the random start
    steps: of training
    rms: root mean square error of 300 predictions on fresh prompts
    rms_se: its standard error
    error: the largest of them
    predicted: sup error predicted from example prompts before the run
    proved: bound for every prompt of the class (ridge)
    trivial: rms of the exact answers about their mean
"""

from __future__ import annotations

from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, values, where

TASKS = ("ridge", "lasso", "logistic")
WITHIN = 10.0  # a prediction made before the run is right within this factor
TEST = 300


def units(size: Size) -> list[Unit]:
    base = {"dim": size["dim"], "examples": size["examples"], "spectrum": size["spectrum"], "seeds": [], "steps": 0}
    made: list[Unit] = []
    for task in TASKS:
        made.append({**base, "way": "constructed", "task": task, "depths": size["depths"][task], "samples": 0})
        run = {"task": task, "steps": size["steps"], "samples": size["samples"]}
        shapes = [("learned", depth) for depth in size["trained_depths"][task]]
        shapes += [("learned, shared", depth) for depth in size["shared_depths"][task]]
        made += [
            {**base, **run, "way": way, "depths": [depth], "seeds": [seed]}
            for way, depth in shapes
            for seed in range(size["seeds"])
        ]
    return made


def run(unit: Unit) -> list[Row]:
    import numpy as np

    class_ = {"dim": unit["dim"], "examples": unit["examples"], "spectrum": unit["spectrum"]}
    task = af.InContextTask.make(unit["task"], **class_)
    rows: list[Row] = []

    def measure(network: Any, depth: int, seed: int | None, predicted: float | None, proved: float | None) -> None:
        inputs = task.draw(np.random.default_rng([7, 1]), TEST)
        (tokens,), how = task.encode(network, *inputs)
        wanted = task.exact(*inputs)
        error = np.abs(task.decode(network.run(tokens), how) - wanted)
        squares = error**2
        rows.append(
            {
                "task": task.task,
                "layers": depth,
                "seed": seed,
                "rms": np.sqrt(squares.mean()),
                "rms_se": squares.std() / np.sqrt(len(squares)) / 2 / max(np.sqrt(squares.mean()), 1e-300),
                "error": error.max(),
                "predicted": predicted,
                "proved": proved,
                "trivial": np.sqrt(((wanted - wanted.mean()) ** 2).mean()),
            }
        )

    for depth in unit["depths"]:
        if unit["way"] == "constructed":
            net = af.in_context(
                unit["task"], layers=depth, accept=None if task.task == "ridge" else "sampled", **class_
            )
            bound = net.certificate.error[1] if net.certificate.status == "bounded" else None
            measure(net.network, depth, None, net.budget.total, bound)
            continue
        architecture, tokens, wanted = _sample(task, depth, unit["samples"])

        shared = unit["way"] == "learned, shared"
        for seed in unit["seeds"]:
            options = {"steps": unit["steps"], "seed": seed, "lr": 1e-2, "shared": shared}
            measure(af.learn.fit_sample(architecture, tokens, wanted, **options), depth, seed, None, None)
    return rows


def _sample(task: Any, depth: int, samples: int) -> tuple[Any, Any, Any]:
    import numpy as np

    width = 3 * task.dim + 4  # what a prompt holds, and room for a vector and a number
    shape = {"layers": depth, "heads": 2, "rank": task.dim + 1, "width": width, "dtype": "float32"}
    architecture = af.TokenArchitecture.for_target(task, **shape)
    inputs = task.draw(np.random.default_rng([7, 2]), samples)
    return architecture, task.encode(architecture, *inputs)[0][0], task.exact(*inputs)[:, None, None]


def judge(table: Table) -> Verdict:
    """Refuted when an error passes its bound, or depth does not lower the constructed error by a factor of ten.

    With limits where nothing is proved, a prediction is off by more than a factor of ten, or trained stacks do not gain
    by depth or stay far above constructed ones.
    """
    if gone := lacking(table, "way", "constructed", "learned"):
        return gone
    words, faults, limits = "", [], []
    for task in distinct(table, "task"):
        built = where(table, task=task, way="constructed")
        for row in built:
            if row["proved"] is not None and not row["error"] <= row["proved"]:
                faults.append(f"{task} at {row['layers']} layers is {row['error']:.3g} off, proved {row['proved']:.3g}")
        if task == "ridge" and any(row["proved"] is None for row in built):
            faults.append("a ridge stack is not proved")
        elif any(row["proved"] is None for row in built):
            limits.append(f"{task} is measured, not proved")
        first, last = built[0], built[-1]
        if not last["error"] <= first["error"] / 10:
            faults.append(f"{task} does not gain by depth")
        ratios = [row["error"] / row["predicted"] for row in built]
        if not all(1 / WITHIN <= ratio <= WITHIN for ratio in ratios):
            limits.append(f"a predicted error of {task} is off by more than {WITHIN:g}")
        words += f"{task.capitalize()}: constructed sup error {first['error']:.2g} at {first['layers']} layers, "
        words += f"{last['error']:.2g} at {last['layers']}"
        words += f" (proved {last['proved']:.2g})" if last["proved"] is not None else " (no proof is offered)"
        words += f", measured over predicted {min(ratios):.2g} to {max(ratios):.2g}. "
        for way in ("learned", "learned, shared"):
            trained = where(table, task=task, way=way)
            middle = {L: median(values(where(trained, layers=L), "rms")) for L in distinct(trained, "layers")}
            parts = []
            for L, m in middle.items():
                spread = values(where(trained, layers=L), "rms")
                beside = [row["rms"] for row in where(built, layers=L)]
                other = f" layers against {beside[0]:.2g} constructed" if beside else ""
                if beside and not m <= 2 * beside[0]:
                    limits.append(f"trained {task} stacks of {L} layers ({way}) are far above the constructed one")
                parts.append(f"{m:.2g} ({min(spread):.2g}–{max(spread):.2g}) at {L}{other}")
            if parts:
                name = "Trained" if way == "learned" else "Trained with one set of weights"
                words += (
                    f"{name} for {trained[0]['steps']:,} steps, median rms (range over seeds): {', '.join(parts)}. "
                )
            depths = sorted(middle)
            if len(depths) > 1 and not middle[depths[-1]] <= 0.8 * middle[depths[0]]:
                limits.append(f"trained {task} stacks ({way}) hardly gain by depth")
    if faults:
        return Verdict(REFUTED, f"Refuted: {'; '.join(faults)}.", words)
    if limits:
        return Verdict(LIMITS, f"The constructions do what is claimed; limits: {'; '.join(limits)}.", words)
    return Verdict(HOLDS, "The constructions do what is claimed, and no limit was met.", words)


def draw(table: Table) -> Any:
    tasks = distinct(table, "task")
    figure, axes = panels(columns=len(tasks), width=4.4)
    for ax, task in zip(axes[0], tasks, strict=True):
        built = where(table, task=task, way="constructed")
        depth = values(built, "layers")
        ax.loglog(depth, values(built, "error"), "o-", ms=4, color=NETWORKS[1], label="constructed: sup")
        ax.loglog(depth, values(built, "rms"), "o:", ms=3, color=NETWORKS[1], label="constructed: rms")
        ax.loglog(depth, values(built, "predicted"), "+", ms=9, color=NETWORKS[2], label="predicted sup")
        proved = [row for row in built if row["proved"] is not None]
        if proved:
            curve(ax.loglog, proved, "layers", "proved", "_", ms=14, mew=2, color="k", label="proved")
        for colour, mark, way in ((NETWORKS[4], "x", "learned"), (NETWORKS[3], "s", "learned, shared")):
            rows = where(table, task=task, way=way)
            style = {"color": colour, "ms": 5, "mfc": "none", "label": f"{way}: rms"}
            if rows:
                curve(ax.loglog, rows, "layers", "rms", mark, **style)
        ax.axhline(built[0]["trivial"], ls="--", lw=1, color="#52606d", label="mean of the answers: rms")
        ax.set(xlabel="attention layers", ylabel="error of predictions", xticks=depth)
        ax.set_xticks([], minor=True)
        ax.set_xticklabels([str(L) for L in depth])
        ax.legend(fontsize=6.5, frameon=False, loc="lower left")
        title(ax, task, "one query a prompt, fresh prompts of the class")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        dim=(2, 3, 3),
        examples=(8, 16, 16),
        spectrum=([3.0, 18.0], [6.0, 36.0], [6.0, 36.0]),
        seeds=(1, 3, 3),
        steps=(3, 1200, 1800),
        samples=(64, 10000, 20000),
        depths=(
            {"ridge": [2, 8], "lasso": [3, 17], "logistic": [3, 17]},
            {"ridge": [2, 4, 6, 8, 12], "lasso": [3, 5, 9, 17, 33, 65], "logistic": [3, 5, 9, 17, 33, 65]},
            {"ridge": [2, 4, 6, 8, 12, 16], "lasso": [3, 5, 9, 17, 33, 65], "logistic": [3, 5, 9, 17, 33, 65]},
        ),
        trained_depths=(
            {"ridge": [2], "lasso": [3], "logistic": [3]},
            {"ridge": [2, 4], "lasso": [3], "logistic": [3]},
            {"ridge": [2, 4, 6], "lasso": [3], "logistic": [3]},
        ),
        shared_depths=(
            {"ridge": [2], "lasso": [], "logistic": []},
            {"ridge": [], "lasso": [], "logistic": []},
            {"ridge": [2], "lasso": [], "logistic": []},
        ),
    ),
    needs=("torch",),
    full_time="6 minutes of CPU",
)
