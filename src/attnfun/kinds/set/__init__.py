"""Functions of a set of points, whatever their order: the kind behind `set_function`."""

from attnfun.kinds import Kind

KIND = Kind(
    "set",
    target="attnfun.kinds.set.target:SetFunction",
    weights=("attnfun.kinds.set.network:SetNetwork",),
    view="attnfun.kinds.set.view:SetApproximant",
    prover="attnfun.kinds.set.prove:proof",
    words="attnfun.kinds.set.view",
    lesson="attnfun.kinds.set.view:lesson",
    subjects="attnfun.kinds.set.view:subjects",
    commands=__name__,
)
