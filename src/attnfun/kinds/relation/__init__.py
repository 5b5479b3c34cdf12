"""Relations r(x, y) as inner products of two towers: the kind behind `relation`."""

from attnfun.kinds import folder_kind

FORMS = ("Polynomials", "Cells", "Slices", "Separable", "TrainedTowers")
KIND = folder_kind(
    "relation",
    "Relation",
    "RelationApproximant",
    tuple(f"attnfun.kinds.relation.form:{form}" for form in FORMS),
    commands=__name__,
)
