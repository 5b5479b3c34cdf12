"""Maps of n tokens to n tokens: the kind behind `sequence`."""

from attnfun.kinds import Kind

KIND = Kind(
    "sequence",
    target="attnfun.kinds.sequence.target:SequenceMap",
    weights=("attnfun.kinds.sequence.network:SequenceNetwork", "attnfun.kinds.sequence.network:TokenSequence"),
    view="attnfun.kinds.sequence.view:SequenceApproximant",
    prover="attnfun.kinds.sequence.prove:proof",
    words="attnfun.kinds.sequence.view",
    lesson="attnfun.kinds.sequence.lesson:lesson",
    subjects="attnfun.kinds.sequence.view:subjects",
)
