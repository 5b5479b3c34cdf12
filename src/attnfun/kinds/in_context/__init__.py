"""Regressions that a network solves in its forward pass: the kind behind `in_context`."""

from attnfun.kinds import Kind

KIND = Kind(
    "in_context",
    target="attnfun.kinds.in_context.target:InContextTask",
    weights=("attnfun.network.tokens:TokenNetwork", "attnfun.network.tokens:TokenTransformer"),
    view="attnfun.kinds.in_context.view:InContextSolver",
    prover="attnfun.kinds.in_context.prove:proof",
    words="attnfun.kinds.in_context.words",
    lesson="attnfun.kinds.in_context.lesson:lesson",
    subjects="attnfun.diagnosis.tokens:subjects",
)
