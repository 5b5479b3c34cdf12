"""What is said of a head over a table, and its record."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from attnfun.kinds.retrieval.prove_margins import HYPOTHESIS
from attnfun.kinds.retrieval.view import Retrieval
from attnfun.kinds.retrieval.weights import RetrievalWeights


def explain(model: Retrieval) -> str:
    """In words: what it is, and what is proved or was seen of it."""
    c, cost, keys = model.certificate, model.cost, model.weights.keys
    lines = [f"{model.target.text}  on  {model.target.domain}, {keys:,} keys"]
    made = "Trained" if model.trained else "Built"
    below = "a tower and a head" if model.weights.networks else "polynomial features and a head"
    lines.append(
        f"{made}: {below} over the table, {cost.layers} layer(s), {cost.heads} head(s), "
        f"{cost.parameters:,} parameters; beta {model.beta:.4g}."
    )
    if c.bounds:
        lines.append(f"{c.heading} ({c.method}): scores are within {c.error[1]:.4g} of the utilities, for every query.")
    else:
        lines.append(f"{c.heading}: {c.reason or c.status.meaning}.")
    return "\n".join(lines)


def record(model: Retrieval) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes; of a head from a file all is as stored."""
    bound, study = model.promised(model.certificate, model.median_margin), model.study
    told: dict[str, Any] = {}
    if isinstance(model.weights, RetrievalWeights):
        told = {"rank": model.relation.rank, "rank_lower": model.relation.rank_lower}
    told |= {"keys": model.weights.keys, "duplicates": model.duplicates, "beta": model.beta}
    told |= {"features_only": not model.weights.networks}
    told["output_error"] = model.certificate.details.get("output_error")
    for name in ("tv", "regret", "softmax_regret", "winner_weight", "value_error", "margin"):
        told[name] = getattr(bound, name, None)
    if study is not None:
        told |= {"failure_probability": list(study.failure_interval), "confidence": study.confidence}
        told["study"] = {k: v for k, v in asdict(study).items() if k != "confidence"} | {"hypothesis": HYPOTHESIS}
    return told | ({"note": model.request["note"]} if "note" in model.request else {})
