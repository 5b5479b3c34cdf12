"""What all formats share: what a file says of its model, and how it is compared with it.

A file takes the arrays that `Target.encode` makes of inputs, the batch free, and returns what `Weights.run` does: of a
function (batch, variables) → (batch,) or (batch, outputs), of a network on tokens (batch, n, width) → (batch, n,
outputs). It is compared with the NumPy reference at draws of the target, in several batch sizes and, where the network
takes sequences of any length, in several lengths.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.model import Model
from attnfun.network.head import AnyArray
from attnfun.network.plain import AnyPlain, Plain, PlainScores

BATCHES = (1, 2, 257)
_MOST = 1 << 24
"""Attention weights of a head at a time, where files are compared."""


@dataclass(frozen=True)
class Written:
    """A file's bytes, what came out of reading them back (arrays → array; None where they compute nothing), and what
    is told of it."""

    data: bytes
    run: Callable[..., AnyArray] | None
    record: dict[str, Any] = field(default_factory=dict)


def about(model: Model[Any, Any], dtype: str) -> dict[str, str]:
    """What a file says of itself, so that a reader can tie it to the network and its certificate."""
    claim = model.claim
    asked = "none" if claim.eps is None else f"{claim.eps!r}{' of the range of the target' * claim.relative}"
    known = {"target": model.target.text, "domain": model.target.domain, "kind": model.target.kind, "eps": asked}
    known |= {"norm": claim.norm_text.removeprefix("the "), "proved_for": model.certificate.dtype, "dtype": dtype}
    known |= {"certificate": certified_by(model, dtype), "hash": model.hash}
    return {name: text.encode("utf-8", "replace").decode() for name, text in known.items()}


def certified_by(model: Model[Any, Any], dtype: str) -> str:
    """The certificate as a sentence, and what it says of this dtype."""
    c, high = model.certificate, model.certificate.error[1]
    heading = c.heading if c.claimed is None or c.measured else f"{c.heading} ({c.claimed.value})"
    if c.bounds and math.isfinite(high):
        norm = model.claim.norm_text
        outputs = c.details.get("output_error") if math.isinf(c.norm) else None
        text = f"{heading}: the error in {norm} is at most {high!r}"
        text += "" if outputs is None else f", that of the outputs at most {outputs!r}"
        text += f", by {c.method} in {c.dtype} arithmetic."
        text += f" Hypotheses: {'; '.join(c.hypotheses)}." * bool(c.hypotheses)
    elif c.measured:
        text = f"{heading}: the error is about {high!r}, measured at finitely many inputs and not a bound."
    else:
        text = f"{heading}: {c.reason or (c.claimed or c.status).meaning}."
    coarser = np.finfo(dtype).eps > np.finfo(c.dtype).eps
    return text + f" It says nothing of arithmetic in {dtype}." * bool(coarser)


def compare(model: Model[Any, Any], run: Callable[..., AnyArray], dtype: str) -> tuple[float, float, tuple[str, str]]:
    """(largest difference between what was read back and the NumPy reference, what rounding allows, shapes in words).

    In the network's own dtype or a finer one both lie within the certificate's rounding part of the same real number;
    where rounding moves walls, within the certificate's bound of the same target (of an L^p norm that tells nothing: no
    check). Else the allowance, 2^12 ulp of the largest value, is a plausibility check only.
    """
    worst, size, shapes = 0.0, max(1.0, model.cost.max_value), []
    for arrays in probes(model):
        wanted = np.asarray(model.weights.run(*arrays), dtype=np.float64)
        found = np.asarray(run(*(array.astype(dtype) for array in arrays)))
        seen = found.astype(np.float64)
        require(seen.size == wanted.size, f"the file gives {seen.shape}, where the network gives {wanted.shape}")
        gap = np.abs(seen.reshape(wanted.shape) - wanted)
        worst, size = float(np.maximum(worst, gap.max())), max(size, float(np.abs(wanted).max()))  # keeps NaN
        shapes.append([array.shape for array in (*arrays, found)])
    parts, certificate = model.certificate.parts, model.certificate
    within = parts.get("rounding")
    if "rounding at walls" in parts:
        within = certificate.error[1] if math.isinf(certificate.norm) else math.inf
    mine, theirs = np.finfo(model.dtype).eps, np.finfo(dtype).eps
    ulp = float(max(mine, theirs)) * size
    allowed = max(2 * float(within), 16 * ulp) if within and theirs <= mine else 2.0**12 * ulp
    *given, returned = (_told(each) for each in zip(*shapes, strict=True))
    return worst, allowed, (" and ".join(given), returned)


def _told(shapes: tuple[tuple[int, ...], ...]) -> str:
    """A shape in words: what changed from the first call to the second is the batch, what changed later a length."""
    sizes = []
    for own in zip(*shapes, strict=True):
        sizes.append("batch" if own[0] != own[1] else "n" if len(set(own)) > 1 else str(own[0]))
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"


def probes(model: Model[Any, Any]) -> list[list[AnyArray]]:
    """What `Weights.run` takes of drawn inputs, in several batch sizes and, where it is free, lengths."""
    plain = model.weights.plain()
    tower: Plain = plain.towers[0] if isinstance(plain, PlainScores) else plain
    largest = drawn(model, plain, 1)
    n = largest[0].shape[-2] + tower.appended if tower.reads in ("tokens", "first") else 1
    keys = max((len(head.key) for layer in tower.layers for head in layer.heads if head.constant), default=1)
    count = int(min(BATCHES[-1], max(3, _MOST // max(n * n, keys))))
    found = [drawn(model, plain, size) for size in (*BATCHES[:2], count)]
    if tower.reads == "tokens" and tower.length is None:
        (two,) = found[1]
        found += [[two[:, :1]], [np.concatenate([two, two[:, :1]], axis=1)]]
    return found


def drawn(model: Model[Any, Any], plain: AnyPlain, count: int) -> list[AnyArray]:
    """Of draws of the target, `count` of each, flags left out; where nothing can be drawn, any numbers."""
    rng = np.random.default_rng(0)
    try:
        given, _ = model.target.encode(model.weights, *model.target.draw(rng, count))
        return [array[:count] for array in given if isinstance(array, np.ndarray)]
    except InvalidRequest:
        if isinstance(plain, PlainScores):
            raise
        return [rng.uniform(-1, 1, (count, plain.length or 5, len(names))) for names in plain.inputs]
