"""What `diagnose` looks at in a model of a sequence map: the networks that are applied to its tokens."""

import numpy as np

from attnfun.diagnosis.plain import POINTS
from attnfun.diagnosis.subject import Subject
from attnfun.diagnosis.tokens import subjects as on_tokens
from attnfun.kinds.sequence.network import Apply, Gather, TokenSequence
from attnfun.kinds.sequence.view import SequenceApproximant


def subjects(model: SequenceApproximant, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """Every network over constant keys at what its tokens hold; gather heads have no fixed keys."""
    network, box, n = model.weights, model.target.box, model.target.tokens
    if isinstance(network, TokenSequence):
        return on_tokens(model, eps)
    about = f"{model.target.text}  for {n} tokens in  {box.text}"
    count = max(20, POINTS // n)
    streams = network.stream(box.probe(count * n, np.random.default_rng(46))[: count * n].reshape(count, n, box.dim))
    found, gathers = [], 0
    for number, stage in enumerate(network.stages, start=1):
        if isinstance(stage, Gather):
            gathers += len(stage.heads)
        if not isinstance(stage, Apply):
            continue
        for k, own in enumerate(stage.networks):
            if own.heads:
                at = [network.coordinates.index(name) for name in own.inputs]
                X = streams[:, np.array(stage.tokens_of(k))][:, :, np.array(at)].reshape(-1, len(at))[: 2 * POINTS]
                name = f"stage {number}" + ("" if stage.shared else f", function {k + 1}")
                found.append(Subject(name, own, np.asarray(X, dtype=np.float64), eps=eps))
    remark = f"{gathers} gather head(s) attend over the tokens: their keys are data, and they are not looked at here."
    return about, found, [remark] if gathers else []
