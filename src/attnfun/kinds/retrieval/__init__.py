"""Attention over a table of keys by a utility: the kind behind `retrieve`."""

from attnfun.kinds import Kind

KIND = Kind(
    "retrieval",
    target="attnfun.kinds.retrieval.target:Lookup",
    weights=(
        "attnfun.kinds.retrieval.weights:RetrievalWeights",
        "attnfun.kinds.retrieval.weights:TrainedHead",
    ),
    view="attnfun.kinds.retrieval.view:Retrieval",
    prover="attnfun.kinds.retrieval.prove:proof",
    words="attnfun.kinds.retrieval.view",
    lesson="attnfun.kinds.retrieval.view:lesson",
    subjects="attnfun.kinds.retrieval.view:subjects",
    commands=__name__,
)
