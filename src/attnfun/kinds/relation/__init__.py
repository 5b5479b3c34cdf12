"""Relations r(x, y) as inner products of two towers: the kind behind `relation`."""

from attnfun.kinds import Kind

KIND = Kind(
    "relation",
    target="attnfun.kinds.relation.target:Relation",
    weights=(
        "attnfun.kinds.relation.form:Polynomials",
        "attnfun.kinds.relation.form:Cells",
        "attnfun.kinds.relation.form:Slices",
        "attnfun.kinds.relation.form:Separable",
        "attnfun.kinds.relation.form:TrainedTowers",
    ),
    view="attnfun.kinds.relation.view:RelationApproximant",
    prover="attnfun.kinds.relation.prove:proof",
    words="attnfun.kinds.relation.view",
    lesson="attnfun.kinds.relation.lesson:lesson",
    subjects="attnfun.kinds.relation.view:subjects",
    commands=__name__,
)
