"""The furthest or the nearest of points on a sphere: the kind behind `neighbours`."""

from attnfun.kinds import Kind

KIND = Kind(
    "neighbours",
    target="attnfun.kinds.neighbours.target:PointsOnSphere",
    weights=("attnfun.network.tokens:TokenNetwork", "attnfun.network.tokens:TokenTransformer"),
    view="attnfun.kinds.neighbours.view:Neighbours",
    prover="attnfun.kinds.neighbours.prove:proof",
    words="attnfun.kinds.neighbours.words",
    lesson="attnfun.kinds.neighbours.lesson:lesson",
    subjects="attnfun.diagnosis.tokens:subjects",
    commands=__name__,
)
