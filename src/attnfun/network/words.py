"""What is said of a model on tokens, whatever its kind."""

from typing import Any

from attnfun.language.numbers import at_most


def explain(model: Any) -> str:
    """What was asked, how large the network is, and what is known of it."""
    network, cost, c = getattr(model.weights, "network", model.weights), model.cost, model.certificate
    count = sum(getattr(network, "units", ()))
    units = f"{count:,} ReLU units, " if count else ""
    made = "Trained" if model.trained else f"Built ({model.story.get('construction', 'as stored')})"
    known = c.reason or f"the error is at most {at_most(c.error[1], 3)}"
    rests = f"\nHypotheses: {'; '.join(c.hypotheses)}." if c.hypotheses else ""
    size = f"{cost.layers} attention layer(s), {cost.heads} head(s), {cost.keys:,} constant tokens, {units}"
    lines = [f"{model.target.text}  for  {model.target.domain}"]
    lines += [f"{made}: {size}{cost.parameters:,} parameters, {model.dtype}.", f"{c.heading}: {known}.{rests}"]
    return "\n".join(lines)
