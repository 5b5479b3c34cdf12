"""Handwritten digits as documents and queries, with a relevance that no head sees; and search quality.

scikit-learn's bundled digits (1,797 pictures of 64 pixels): 500 are queries, the others documents. Three principal
components of the documents, scaled to the unit cube, are query and key; the utility is exp(−8|q − k|²). A document is
relevant if it shows the query's digit, doubly so if it is also among the 50 nearest in all 64 pixels.
"""

from typing import Any

import numpy as np

import attnfun as af

DIM, GAMMA, TOP = 3, 8.0, 10
LEFT = {f"x{k}": (0, 1) for k in range(DIM)}
RIGHT = {f"y{k}": (0, 1) for k in range(DIM)}
UTILITY = f"exp(-{GAMMA:g}*(" + " + ".join(f"(x{k} - y{k})**2" for k in range(DIM)) + "))"


def digits(queries: int = 500, documents: int | None = None) -> dict[str, Any]:
    """queries (m, 3), keys (n, 3), values (n, 10) one-hot classes, class (m,), grade (m, n), and both in pixels."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise af.AttnfunError("this study reads scikit-learn's bundled digits: pip install scikit-learn") from error
    found = load_digits()
    pixels, classes = np.asarray(found.data, dtype=np.float64), np.asarray(found.target)
    order = np.random.default_rng(0).permutation(len(pixels))
    asked, kept = order[:queries], order[500 : None if documents is None else 500 + documents]
    mean = pixels[kept].mean(axis=0)
    axes = np.linalg.svd(pixels[kept] - mean, full_matrices=False)[2][:DIM]
    axes = axes * np.sign(axes[np.arange(DIM), np.abs(axes).argmax(axis=1)])[:, None]
    points = (pixels - mean) @ axes.T
    points = (points - points.min(axis=0)) / (points.max(axis=0) - points.min(axis=0))
    points = np.clip(points, 0.0, 1.0)
    far = ((pixels[asked][:, None] - pixels[kept][None]) ** 2).sum(axis=-1)
    near = np.argsort(np.argsort(far, axis=1, kind="stable"), axis=1) < 50
    same = classes[asked][:, None] == classes[kept][None]
    shown = {"queries": points[asked], "keys": points[kept], "values": np.eye(10)[classes[kept]]}
    judged = {"class": classes[asked], "grade": same * (1.0 + near)}
    return shown | judged | {"query_pixels": pixels[asked], "key_pixels": pixels[kept]}


def quality(scores: Any, grade: Any) -> tuple[float, float]:
    """(precision, nDCG) at 10, averaged over the queries."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    gained = np.take_along_axis(grade, order, 1)
    discount = 1 / np.log2(np.arange(2, TOP + 2))
    best = -np.sort(-grade, axis=1)[:, :TOP] @ discount
    return float((gained > 0).mean()), float(np.mean((gained @ discount) / np.maximum(best, 1e-300)))


def softmax(scores: Any, beta: float) -> Any:
    weights = np.exp(beta * (scores - scores.max(axis=1, keepdims=True)))
    return weights / weights.sum(axis=1, keepdims=True)
