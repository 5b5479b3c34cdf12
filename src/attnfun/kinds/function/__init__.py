"""Functions of a point of a box: the kind behind `compile`."""

from attnfun.kinds import Kind

KIND = Kind(
    "function",
    target="attnfun.language.function:Function",
    weights=("attnfun.network.network:Network",),
    view="attnfun.kinds.function.view:Approximant",
    prover="attnfun.kinds.function.prove:proof",
    words="attnfun.kinds.function.words",
    lesson="attnfun.kinds.function.lesson:lesson",
    subjects="attnfun.kinds.function.subjects:subjects",
    commands=__name__,
)
