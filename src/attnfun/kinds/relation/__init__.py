"""Relations r(x, y) as inner products of two towers: the kind behind `relation`."""

from attnfun.kinds import Kind

KIND = Kind(
    "relation",
    target="attnfun.kinds.relation.target:Relation",
    weights=(
        "attnfun.kinds.relation.polynomials:Polynomials",
        "attnfun.kinds.relation.cells:Cells",
        "attnfun.kinds.relation.slices:Slices",
        "attnfun.kinds.relation.separable:Separable",
        "attnfun.kinds.relation.trained:TrainedTowers",
    ),
    view="attnfun.kinds.relation.view:RelationApproximant",
    prover="attnfun.kinds.relation.prove:proof",
    words="attnfun.kinds.relation.words",
    lesson="attnfun.kinds.relation.lesson:lesson",
    subjects="attnfun.kinds.relation.subjects:subjects",
    commands=__name__,
)
