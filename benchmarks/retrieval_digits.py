"""Retrieval on real data: handwritten digits, what is proved of the head against the quality that is measured.

    python benchmarks/retrieval_digits.py [--eps 0.3,0.1,…] [--png FILE] [--output FILE]

scikit-learn's bundled digits (1,797 pictures of 64 pixels): 500 are queries, the others documents. Three principal
components of the documents, scaled to the unit cube, are query and key; the utility is exp(-8|q - k|^2); the head hands
out the document's class as ten zeros and ones. Known relevance, which the head never sees: a document is relevant if it
shows the query's digit (precision at 10), and doubly so if it is also among the 50 nearest in all 64 pixels (nDCG at
10). The exact utility's own quality is the last row: what eps tends to.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import attnfun as af

DIM, GAMMA, BETA, TOP = 3, 8.0, 100.0, 10
EPS = (0.7, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


def data() -> dict[str, np.ndarray]:
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        sys.exit("this benchmark reads scikit-learn's bundled digits: pip install scikit-learn")
    digits = load_digits()
    pixels, classes = np.asarray(digits.data, dtype=np.float64), np.asarray(digits.target)
    order = np.random.default_rng(0).permutation(len(pixels))
    queries, documents = order[:500], order[500:]
    mean = pixels[documents].mean(axis=0)
    axes = np.linalg.svd(pixels[documents] - mean, full_matrices=False)[2][:DIM]
    axes = axes * np.sign(axes[np.arange(DIM), np.abs(axes).argmax(axis=1)])[:, None]
    points = (pixels - mean) @ axes.T
    points = (points - points.min(axis=0)) / (points.max(axis=0) - points.min(axis=0))
    points = np.clip(points, 0.0, 1.0)
    far = ((pixels[queries][:, None] - pixels[documents][None]) ** 2).sum(axis=-1)
    near = np.argsort(np.argsort(far, axis=1, kind="stable"), axis=1) < 50
    same = classes[queries][:, None] == classes[documents][None]
    return {
        "queries": points[queries],
        "keys": points[documents],
        "values": np.eye(10)[classes[documents]],
        "class": classes[queries],
        "grade": same * (1.0 + near),
    }


def quality(scores: np.ndarray, grade: np.ndarray) -> tuple[float, float]:
    """(precision, nDCG) at 10, averaged over the queries."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    gained = np.take_along_axis(grade, order, 1)
    discount = 1 / np.log2(np.arange(2, TOP + 2))
    best = -np.sort(-grade, axis=1)[:, :TOP] @ discount
    return float((gained > 0).mean()), float(np.mean((gained @ discount) / best))


def rows(eps_list: tuple[float, ...]) -> list[dict[str, Any]]:
    D = data()
    x, y = [f"x{k}" for k in range(DIM)], [f"y{k}" for k in range(DIM)]
    utility = f"exp(-{GAMMA:g}*(" + " + ".join(f"({a} - {b})**2" for a, b in zip(x, y, strict=True)) + "))"
    out: list[dict[str, Any]] = []
    for eps in eps_list:
        head = af.retrieve(
            utility,
            dict.fromkeys(x, (0, 1)),
            dict.fromkeys(y, (0, 1)),
            D["keys"],
            eps,
            values=D["values"],
            queries=D["queries"],
            beta=BETA,
            symmetric=True,
        )
        study, bound = head.study, head.bound
        assert study is not None and bound is not None
        true = head.relation.target.table(D["queries"], D["keys"])
        w = np.exp(BETA * (true - true.max(axis=1, keepdims=True)))
        exact = (w / w.sum(axis=1, keepdims=True)) @ D["values"]
        scores, output = head.scores(D["queries"]), head(D["queries"])
        precision, ndcg = quality(scores, D["grade"])
        row = {
            "eps": eps,
            "rank": head.relation.rank,
            "e": head.certificate.error[1],
            "e_seen": float(np.abs(scores - true).max()),
            "top1_proved": 1 - study.failures / study.queries,
            "top1": float(np.mean(scores.argmax(axis=1) == true.argmax(axis=1))),
            "regret": bound.regret,
            "regret_seen": study.measured["regret"],
            "tv": bound.tv,
            "tv_seen": study.measured["tv"],
            "output": head.certificate.details["output_error"],
            "output_seen": float(np.abs(output - exact).max()),
            "precision": precision,
            "ndcg": ndcg,
            "accuracy": float(np.mean(output.argmax(axis=1) == D["class"])),
            "seconds": head.seconds,
        }
        for name in ("e", "regret", "tv", "output"):
            if not row[f"{name}_seen"] <= row[name]:
                raise SystemExit(f"VIOLATION at eps={eps}: {name} {row[f'{name}_seen']} above {row[name]}")
        if not row["top1_proved"] <= row["top1"]:
            raise SystemExit(f"VIOLATION at eps={eps}: more picks proved than right")
        out.append(row)
        print(f"eps {eps:g}: rank {row['rank']}, {row['seconds']:.1f} s", file=sys.stderr, flush=True)
    precision, ndcg = quality(true, D["grade"])
    accuracy = float(np.mean(exact.argmax(axis=1) == D["class"]))
    return [*out, {"eps": 0.0, "precision": precision, "ndcg": ndcg, "accuracy": accuracy}]


def markdown(found: list[dict[str, Any]]) -> str:
    heads = ["eps", "rank", "score error ≤", "seen", "regret ≤", "seen", "TV ≤", "seen", "pick proved", "pick right",
             "precision@10", "nDCG@10", "accuracy"]  # fmt: skip
    names = ["eps", "rank", "e", "e_seen", "regret", "regret_seen", "tv", "tv_seen", "top1_proved", "top1", "precision",
             "ndcg", "accuracy"]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for row in found:
        cells = [f"{row[n]:.3g}" if n in row else "" for n in names]
        if row["eps"] == 0:
            cells[0] = "exact utility"
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Measured against proved, by the proved error of the scores."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    heads, exact = found[:-1], found[-1]
    e = [row["e"] for row in heads]
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    titles = {"regret": "utility lost by the pick", "tv": "distance from the exact softmax"}
    for axis, (name, title) in zip(axes, titles.items(), strict=False):
        seen = [max(row[f"{name}_seen"], 1e-16) for row in heads]
        axis.plot(e, [row[name] for row in heads], "o-", color="tab:blue", label="proved, every query")
        axis.plot(e, seen, "s--", color="tab:orange", label="largest of 500 queries")
        axis.set_yscale("log")
        axis.set_title(title)
    lost = [row["regret_seen"] for row in heads if row["regret_seen"] > 0]
    axes[0].set_ylim(min(lost) / 5, 2)
    axes[0].set_ylabel("regret")
    axes[1].set_ylabel(f"total variation, β = {BETA:g}")
    share = axes[2]
    share.plot(e, [row["top1_proved"] for row in heads], "o-", color="tab:blue", label="pick proved to be the best key")
    share.plot(e, [row["top1"] for row in heads], "s--", color="tab:orange", label="pick is the best key")
    share.plot(e, [row["precision"] for row in heads], "^:", color="tab:green", label="precision at 10, by class")
    share.plot(e, [row["ndcg"] for row in heads], "v:", color="tab:red", label="nDCG at 10, class and distance")
    share.axhline(exact["precision"], color="tab:green", lw=0.7)
    share.axhline(exact["ndcg"], color="tab:red", lw=0.7)
    share.set_ylim(0, 1.03)
    share.set_title("quality (thin lines: the exact utility)")
    share.set_ylabel("share of queries, or score")
    for axis in axes:
        axis.set_xscale("log")
        axis.invert_xaxis()
        axis.set_xlabel("proved error of the scores; rank below")
        axis.set_xticks(e, [f"{row['e']:.1g}\n{row['rank']}" for row in heads])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc=(0.02, 0.07) if axis is share else "best")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--eps", default=",".join(f"{e:g}" for e in EPS))
    parser.add_argument("--png", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    found = rows(tuple(float(part) for part in options.eps.split(",")))
    text = "# Retrieval of handwritten digits: proved and measured\n\n" + markdown(found)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")
    if options.png:
        draw(found, options.png)


if __name__ == "__main__":
    main()
