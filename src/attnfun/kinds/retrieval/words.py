"""What is said of a head over a table and its record, how it is trained, and what `diagnose` looks at."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from attnfun.diagnosis.plain import POINTS
from attnfun.diagnosis.subject import Subject
from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.words import Found, told, tower_features
from attnfun.kinds.retrieval.prove_margins import HYPOTHESIS
from attnfun.kinds.retrieval.target import Lookup
from attnfun.kinds.retrieval.view import Retrieval
from attnfun.kinds.retrieval.weights import RetrievalWeights, TableHead, TrainedHead
from attnfun.learn.lesson import Ask, Lesson
from attnfun.network import Network


def explain(model: Retrieval) -> str:
    """In words: what it is, and what is proved or was seen of it."""
    cost, made = model.cost, "Trained" if model.trained else "Built"
    below = "a tower and a head" if model.weights.networks else "polynomial features and a head"
    about = f"{model.target.text}  on  {model.target.domain}, {model.weights.keys:,} keys"
    built = f"{made}: {below} over the table, {cost.layers} layer(s), {cost.heads} head(s), "
    built += f"{cost.parameters:,} parameters; beta {model.beta:.4g}."
    return "\n".join(
        [about, built, told(model.certificate, "scores are within {:.4g} of the utilities, for every query")]
    )


def record(model: Retrieval) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes; of a head from a file all is as stored."""
    bound, study = model.promised(model.certificate, model.median_margin), model.study
    out: dict[str, Any] = {}
    if isinstance(model.weights, RetrievalWeights):
        out = {"rank": model.relation.rank, "rank_lower": model.relation.rank_lower}
    out |= {"keys": model.weights.keys, "duplicates": model.duplicates, "beta": model.beta}
    out |= {"features_only": not model.weights.networks}
    out["output_error"] = model.certificate.details.get("output_error")
    for name in ("tv", "regret", "softmax_regret", "winner_weight", "value_error", "margin"):
        out[name] = getattr(bound, name, None)
    if study is not None:
        out |= {"failure_probability": list(study.failure_interval), "confidence": study.confidence}
        out["study"] = {k: v for k, v in asdict(study).items() if k != "confidence"} | {"hypothesis": HYPOTHESIS}
    return out | ({"note": model.request["note"]} if "note" in model.request else {})


def subjects(model: Retrieval, eps: float | None) -> Found:
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


def lesson(given: Any, ask: Ask) -> Lesson:
    """The tower, the query map and the key vectors of a head, towards the softmax of the utilities."""
    from attnfun.kinds.retrieval.torch_lookup import LookupProblem

    ask.no_noise()
    ask.no_towers()
    target, own = ask.target, given.weights
    assert isinstance(target, Lookup)
    if not own.networks:
        raise InvalidRequest("this head stands behind features and no tower: leave features_only out to have a network")
    problem = LookupProblem(target, own, own.network)
    if ask.start == "random":
        problem = replace(problem, origin=problem.random(ask.recipe.seed))
    elif isinstance(ask.start, TableHead) and ask.start is not own:
        if not ask.start.networks or not problem.shape.holds(ask.start.network.architecture):
            raise InvalidRequest("the start is not a network of the architecture that is to be trained")
        problem = replace(problem, origin=problem.taken(ask.start.network))
    elif ask.start is not own:
        raise InvalidRequest(f"start={ask.start!r:.60}: random, constructed, or a head over the same table is needed")

    def weights(found: Network) -> TrainedHead:
        return TrainedHead(own.points, own.values, own.beta, own.ids, found, problem.shape, problem.reads)

    return Lesson(target, problem, weights)
