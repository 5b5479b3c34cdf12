"""The lexicographically best key of a grid: the kind behind `lexicographic`."""

from attnfun.kinds import Kind

KIND = Kind(
    "lexicographic",
    target="attnfun.kinds.lexicographic.target:BestKey",
    weights=("attnfun.network.tokens:TokenNetwork", "attnfun.network.tokens:TokenTransformer"),
    view="attnfun.kinds.lexicographic.view:LexicographicHead",
    prover="attnfun.kinds.lexicographic.prove:proof",
    words="attnfun.kinds.lexicographic.words",
    lesson="attnfun.kinds.lexicographic.lesson:lesson",
    subjects="attnfun.diagnosis.tokens:subjects",
)
