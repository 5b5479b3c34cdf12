"""What is said of a relation's model, its record, and what `diagnose` looks at: the heads of its towers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from attnfun.certify.certificate import Certificate
from attnfun.diagnosis.plain import POINTS
from attnfun.diagnosis.subject import Subject
from attnfun.kinds.relation.form import SIDES, Cells, Form, Polynomials, Reading, TrainedTowers
from attnfun.kinds.relation.quantisation import voronoi_cells
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.view import RelationApproximant
from attnfun.network.head import Array


def explain(model: RelationApproximant) -> str:
    """In words: what was built or trained, and what is proved or was seen of it."""
    cost, weights = model.cost, model.weights
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
    return "\n".join([*lines, told(model.certificate)])


def told(c: Certificate, proved: str = "the error is at most {:.4g}; {}") -> str:
    """What is proved, or why nothing is; `proved` is said of the bound and of what was asked for."""
    if not c.bounds:
        return f"{c.heading}: {c.reason or c.status.meaning}."
    asked = "no eps was asked for" if c.eps is None else f"eps was {c.eps:.4g}"
    return f"{c.heading} ({c.method}): {proved.format(c.error[1], asked)}."


def record(model: RelationApproximant) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    weights, realise = model.weights, model.weights.realise
    if realise and not model.cost.layers:  # affine towers have neither units nor keys: they are what was asked for
        realise = str(model.request.get("realise", realise))
    out: dict[str, Any] = {"rank": model.rank, "rank_lower": model.rank_lower, "realise": realise}
    out |= {"features_only": model.features_only, "symmetric": model.target.symmetric, "signed": weights.signed}
    if realise == "mlp":
        out |= {"neurons": model.cost.keys, "neurons_paper": paper_neurons(model)}
    if isinstance(weights, Cells):
        out["cells"] = list(weights.counts)
    if model.band is not None:
        out["band"] = vars(model.band)
    return out | {"voronoi_cells": list(voronoi_cells(model.target, _eps(model)))}


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


# ---------------------------------------------------------------- diagnosis

Found = tuple[str, list[Subject], list[str]]


def subjects(model: RelationApproximant, eps: float | None) -> Found:
    """The towers, judged by the features that they stand for where these are known."""
    weights, about = model.weights, model.target.text
    if isinstance(weights, TrainedTowers):
        return tower_subjects(model)
    if model.features_only:
        return about, [], ["The file holds features without towers: there is no head to look at."]
    if weights.realise == "mlp":
        return about, [], ["The towers are MLPs: nothing in them attends."]
    asked = eps if eps is not None else model.certificate.eps
    found, towers = [], (model.left, model.right)
    for tower, other in zip(towers[: len(weights.networks)], towers[::-1], strict=False):
        X = tower.inputs(tower.box.probe(POINTS, np.random.default_rng(43)))
        meets = other(other.box.probe(POINTS, np.random.default_rng(44)))
        share = None if asked is None else asked / max(float(np.abs(meets).sum(axis=1).max()), 1e-300)
        features = tower_features(weights, model.target, tower.k)
        found.append(Subject(f"{tower.side} tower", tower.network, X, features, eps=share))
    return about, found, ["The relation has one tower for both sides."] if len(found) == 1 else []


def tower_subjects(model: Any) -> Found:
    """Trained towers: their heads as they are; no features are known that they stand for."""
    weights, target = model.weights, model.target
    if weights.realise == "mlp":
        return target.text, [], ["The towers are MLPs: nothing in them attends."]
    found = []
    for k, network in enumerate(weights.networks):
        X = weights.reads[k](target.boxes[k].probe(POINTS, np.random.default_rng(43)))
        found.append(Subject("both sides" if weights.one else f"tower {k + 1}", network, X))
    return target.text, found, ["The towers were trained: there are no features to judge their errors by."]


def tower_features(weights: Any, relation: Relation, k: int) -> Callable[[Array], Array] | None:
    """The polynomials that a tower realises, from the inputs of its network; soft cells are nothing but themselves."""
    if not isinstance(weights, Polynomials):
        return None
    reads = Form.reading(weights, relation, k) if weights.stacked else Reading(relation.boxes[k].names)

    def values(X: Array) -> Array:
        return np.asarray(weights.side(SIDES[0 if weights.one else k], reads(X)), dtype=np.float64)

    return values
