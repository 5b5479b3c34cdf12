"""What `diagnose` looks at in a head over a table: the tower below it, and the head itself."""

from __future__ import annotations

import numpy as np

from attnfun.diagnosis.plain import POINTS
from attnfun.diagnosis.subject import Subject
from attnfun.kinds.relation.subjects import tower_features
from attnfun.kinds.retrieval.view import Retrieval
from attnfun.kinds.retrieval.weights import RetrievalWeights


def subjects(model: Retrieval, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """The tower, judged by the features that it stands for, and the head, which picks."""
    weights, utility = model.weights, model.target.utility
    built = isinstance(weights, RetrievalWeights)
    about = f"{utility.text}, a {'' if built else 'trained '}head over {weights.keys:,} stored keys"
    if not weights.networks:
        return about, [], ["The head stands behind polynomials, not behind a tower: it is no network to look at."]
    X = weights.reading(utility)(utility.left.probe(POINTS, np.random.default_rng(45)))
    if not built:
        return about, [Subject("", model.network, X, eps=eps)], []
    asked = eps if eps is not None else model.certificate.eps
    meets = float(np.abs(weights.vectors / model.beta).sum(axis=1).max())
    share = None if asked is None else asked / max(meets, 1e-300)
    features = tower_features(weights.relation, utility, 0)
    below = Subject("tower", model.relation.left.network, X, features, eps=share)
    return about, [below, Subject("", model.network, X, picks=frozenset({"retrieve"}))], []
