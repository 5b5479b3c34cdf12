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

A full run takes 6 minutes of CPU.

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
    proved: ≤ bound for every prompt of the class (ridge)
    trivial: rms of the exact answers about their mean
"""

from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, SLATE, curve, labelled, level, panels_by
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

TASKS = ("ridge", "lasso", "logistic")
WAYS = {"learned": "Trained", "learned, shared": "Trained with one set of weights"}
WITHIN = 10.0  # a prediction made before the run is right within this factor
TEST = 300


def units(size: Size) -> list[Unit]:
    base = {"dim": size["dim"], "examples": size["examples"], "spectrum": [size["spectrum"]]}
    run = {"steps": size["steps"], "samples": size["samples"], "seeds": [[seed] for seed in range(size["seeds"])]}
    made = []
    for task in TASKS:
        depths = [size["depths"][task]]
        made += crossed(way="constructed", task=task, depths=depths, samples=0, seeds=[[]], steps=0, **base)
        for way, kind in (("learned", "trained_depths"), ("learned, shared", "shared_depths")):
            made += crossed(way=way, task=task, depths=[[depth] for depth in size[kind][task]], **run, **base)
    return made


def run(unit: Unit) -> list[Row]:
    class_ = {"dim": unit["dim"], "examples": unit["examples"], "spectrum": unit["spectrum"]}
    task = af.InContextTask.make(unit["task"], **class_)
    inputs = task.draw(np.random.default_rng([7, 1]), TEST)
    wanted, rows = task.exact(*inputs), list[Row]()

    def measure(network: Any, depth: int, **more: Any) -> None:
        (tokens,), how = task.encode(network, *inputs)
        error = np.abs(task.decode(network.run(tokens), how) - wanted)
        squares = error**2
        rms = np.sqrt(squares.mean())
        row = {"rms": rms, "rms_se": squares.std() / np.sqrt(len(squares)) / 2 / max(rms, 1e-300)}
        row |= {"error": error.max(), "trivial": np.sqrt(((wanted - wanted.mean()) ** 2).mean())}
        rows.append({"layers": depth, **row, **more})

    for depth in unit["depths"]:
        if unit["way"] == "constructed":
            accept = None if task.task == "ridge" else "sampled"
            net = af.in_context(unit["task"], layers=depth, accept=accept, **class_)
            bound = net.certificate.error[1] if net.certificate.status == "bounded" else None
            measure(net.network, depth, predicted=net.budget.total, proved=bound)
            continue
        sample = _sample(task, depth, unit["samples"])
        for seed in unit["seeds"]:
            options = {"steps": unit["steps"], "seed": seed, "lr": 1e-2, "shared": unit["way"] == "learned, shared"}
            measure(af.learn.fit_sample(*sample, **options), depth, seed=seed)
    return rows


def _sample(task: Any, depth: int, samples: int) -> tuple[Any, Any, Any]:
    width = 3 * task.dim + 4  # what a prompt holds, and room for a vector and a number
    shape = {"layers": depth, "heads": 2, "rank": task.dim + 1, "width": width, "dtype": "float32"}
    architecture = af.TokenArchitecture.for_target(task, **shape)
    inputs = task.draw(np.random.default_rng([7, 2]), samples)
    return architecture, task.encode(architecture, *inputs)[0][0], task.exact(*inputs)[:, None, None]


def judge(table: Rows) -> Verdict:
    """Refuted when an error passes its bound, or depth does not lower the constructed error by a factor of ten.

    With limits where nothing is proved, a prediction is off by more than a factor of ten, or trained stacks do not gain
    by depth or stay far above constructed ones.
    """
    words, faults, limits = [], list[str](), list[str]()
    for task, here in table.by("task"):
        built = here.where(way="constructed")
        text = "{task} at {layers} layers is {error:.3g} off, proved {proved:≤3}"
        faults += built.above("error", "proved").say(text)
        if len(built.known("proved")) < len(built):
            (faults if task == "ridge" else limits).append(f"{task} is measured, not proved")
        first, last = built[0], built[-1]
        if not last["error"] <= first["error"] / 10:
            faults.append(f"{task} does not gain by depth")
        ratios = [row["error"] / row["predicted"] for row in built]
        if not all(1 / WITHIN <= ratio <= WITHIN for ratio in ratios):
            limits.append(f"a predicted error of {task} is off by more than {WITHIN:g}")
        proof = "no proof is offered" if last["proved"] is None else f"proved {last['proved']:≤2}"
        words.append(
            f"{task.capitalize()}: constructed sup error {first['error']:.2g} at {first['layers']} layers, "
            f"{last['error']:.2g} at {last['layers']} ({proof}), measured over predicted {min(ratios):.2g} to "
            f"{max(ratios):.2g}."
        )
        for way, name in WAYS.items():
            trained, parts = here.where(way=way), []
            middle = {L: rows.median("rms") for L, rows in trained.by("layers")}
            for L, rows in trained.by("layers"):
                beside = built.where(layers=L).of("rms")
                other = f" layers against {beside[0]:.2g} constructed" if beside else ""
                if beside and not middle[L] <= 2 * beside[0]:
                    limits.append(f"trained {task} stacks of {L} layers ({way}) are far above the constructed one")
                parts.append(f"{rows.middle('rms', to='–')} at {L}{other}")
            if parts:
                steps = f"{name} for {trained[0]['steps']:,} steps, median rms (range over seeds)"
                words.append(f"{steps}: {', '.join(parts)}.")
            if len(middle) > 1 and not middle[max(middle)] <= 0.8 * middle[min(middle)]:
                limits.append(f"trained {task} stacks ({way}) hardly gain by depth")
    limit = f"The constructions do what is claimed; limits: {'; '.join(limits)}." if limits else ""
    return decided(words, faults, limit, "The constructions do what is claimed, without a limit.")


def draw(table: Rows) -> Any:
    figure, parts = panels_by(table, "task", width=4.4)
    for ax, task, here in parts:
        built = here.where(way="constructed")
        curve(ax, built, "layers", "error", "o-", ms=4, color=NETWORKS[1], label="constructed: sup")
        curve(ax, built, "layers", "rms", "o:", ms=3, color=NETWORKS[1], label="constructed: rms")
        curve(ax, built, "layers", "predicted", "+", ms=9, color=NETWORKS[2], label="predicted sup")
        curve(ax, built, "layers", "proved", "_", ms=14, mew=2, color="k", label="proved")
        for colour, mark, way in ((NETWORKS[4], "x", "learned"), (NETWORKS[3], "s", "learned, shared")):
            rows = here.where(way=way)
            curve(ax, rows, "layers", "rms", mark, color=colour, ms=5, mfc="none", label="{way}: rms")
        level(ax, built, "trivial", ls="--", lw=1, color=SLATE, label="mean of the answers: rms")
        texts = ("one query per prompt, fresh prompts of the class", "attention layers", "error of predictions")
        legend = {"loc": "lower left", "fontsize": 6.5}
        labelled(ax, task, *texts, log="xy", xticks=built.of("layers"), legend=legend)
    return figure


LONG = [3, 5, 9, 17, 33, 65]
STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": ("constructed", "learned")},
    dim=(2, 3, 3),
    examples=(8, 16, 16),
    spectrum=([3.0, 18.0], [6.0, 36.0], [6.0, 36.0]),
    seeds=(1, 3, 3),
    steps=(3, 1200, 1800),
    samples=(64, 10000, 20000),
    depths=(
        {"ridge": [2, 8], "lasso": [3, 17], "logistic": [3, 9]},
        {"ridge": [2, 4, 6, 8, 12], "lasso": LONG, "logistic": LONG},
        {"ridge": [2, 4, 6, 8, 12, 16], "lasso": LONG, "logistic": LONG},
    ),
    trained_depths=tuple({"ridge": depths, "lasso": [3], "logistic": [3]} for depths in ([2], [2, 4], [2, 4, 6])),
    shared_depths=tuple({"ridge": depths, "lasso": [], "logistic": []} for depths in ([2], [], [2])),
)
