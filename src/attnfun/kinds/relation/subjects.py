"""What `diagnose` looks at in a model of a relation: the heads of its towers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attnfun.diagnosis.plain import POINTS
from attnfun.diagnosis.subject import Subject
from attnfun.kinds.relation.core import core_points
from attnfun.kinds.relation.form import SIDES
from attnfun.kinds.relation.polynomials import Polynomials
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.trained import TrainedTowers
from attnfun.kinds.relation.view import RelationApproximant
from attnfun.network.head import Array

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
    features, core, names = weights.features, weights.core(relation), relation.boxes[k].names
    low, high = (weights.left_box, weights.right_box)[k]

    def values(X: Array) -> Array:
        if weights.stacked:
            X = np.clip(core_points(core, SIDES[k], X, names), low, high)
        return np.asarray(features.side(SIDES[0 if weights.one else k], X, "float64"), dtype=np.float64)

    return values
