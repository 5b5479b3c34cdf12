"""Tokens that find their partners mod M: the kind behind `matching`."""

from attnfun.kinds import Kind

KIND = Kind(
    "matching",
    target="attnfun.kinds.matching.target:Matches",
    weights=("attnfun.network.tokens:TokenNetwork", "attnfun.network.tokens:TokenTransformer"),
    view="attnfun.kinds.matching.view:Matching",
    prover="attnfun.kinds.matching.prove:proof",
    words="attnfun.kinds.matching.words",
    lesson="attnfun.kinds.matching.lesson:lesson",
    subjects="attnfun.diagnosis.tokens:subjects",
)
