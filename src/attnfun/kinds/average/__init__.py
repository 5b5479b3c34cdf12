"""Averages over the positions that each token names: the kind behind `sparse_average`."""

from attnfun.kinds import Kind

KIND = Kind(
    "average",
    target="attnfun.kinds.average.target:Averages",
    weights=("attnfun.kinds.average.weights:Coded",),
    view="attnfun.kinds.average.view:SparseAverage",
    prover="attnfun.kinds.average.prove:proof",
    words="attnfun.kinds.average.words",
    lesson="attnfun.kinds.average.lesson:lesson",
    subjects="attnfun.diagnosis.tokens:subjects",
)
