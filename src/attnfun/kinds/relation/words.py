"""What is said of a relation's model, and its record."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attnfun.kinds.relation.cells import Cells
from attnfun.kinds.relation.quantisation import voronoi_cells
from attnfun.kinds.relation.view import RelationApproximant


def explain(model: RelationApproximant) -> str:
    """In words: what was built or trained, and what is proved or was seen of it."""
    c, cost, weights = model.certificate, model.cost, model.weights
    lines = [f"{model.target.text}  on  {model.target.domain}"]
    made = "Trained" if model.trained else f"Built ({model.method})"
    if model.features_only:
        lines.append(f"{made}: {model.rank} features a side, without towers.")
    else:
        units = weights.realise == "mlp"
        count = len(weights.networks)
        lines.append(
            f"{made}: {count} tower{'s' if count > 1 else ''} of {'ReLU units' if units else 'attention'}, "
            f"{model.rank} features, {cost.layers} layer(s), {cost.keys:,} {'units' if units else 'keys'}, "
            f"{cost.parameters:,} parameters, {model.dtype}."
        )
    if model.rank_lower:
        lines.append(f"Any method needs at least {model.rank_lower} features.")
    if model.band is not None:
        lines.append(f"It is about {model.band.of} where its signs see {model.band.delta:g} or more.")
    if c.bounds:
        asked = "no eps was asked for" if c.eps is None else f"eps was {c.eps:.4g}"
        lines.append(f"{c.heading} ({c.method}): the error is at most {c.error[1]:.4g}; {asked}.")
    else:
        lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
    return "\n".join(lines)


def record(model: RelationApproximant) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    weights, realise = model.weights, model.weights.realise
    if realise and not model.cost.layers:  # affine towers have neither units nor keys: they are what was asked for
        realise = str(model.request.get("realise", realise))
    told = {"rank": model.rank, "rank_lower": model.rank_lower, "realise": realise}
    told |= {"features_only": model.features_only, "symmetric": model.target.symmetric, "signed": weights.signed}
    if realise == "mlp":
        told |= {"neurons": model.cost.keys, "neurons_paper": paper_neurons(model)}
    if isinstance(weights, Cells):
        told["cells"] = list(weights.counts)
    if model.band is not None:
        told["band"] = vars(model.band)
    return told | {"voronoi_cells": list(voronoi_cells(model.target, _eps(model)))}


def _eps(model: RelationApproximant) -> float:
    return float(model.request.get("eps") or 1.0)


def paper_neurons(model: RelationApproximant) -> float:
    """n (8 κ C √n/ε)² with C = 1: what published bounds for features of Barron norm C come to for n of them, (C/δ)²
    neurons for δ = ε/(8 κ √n) each. The constants are ours, no proof is meant.

    κ² is read off the features: the larger of |φ|² and |ψ|² at samples.
    """
    X, Y = (box.probe(200, np.random.default_rng(0)) for box in model.target.boxes)
    size = max(float((t**2).sum(axis=1).max()) for t in (model.left(X), model.right(Y)))
    return model.rank * (8 * math.sqrt(size * model.rank) / _eps(model)) ** 2
