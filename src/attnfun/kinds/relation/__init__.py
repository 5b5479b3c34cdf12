"""Relations r(x, y) as inner products of two towers: the kind behind `relation`."""

from attnfun.kinds import folder_kind

NAMES = ("Polynomials", "Cells", "Slices", "Separable", "TrainedTowers")
FORMS = tuple(f"attnfun.kinds.relation.form:{name}" for name in NAMES)
KIND = folder_kind("relation", "Relation", "RelationApproximant", FORMS, lesson="view", commands=__name__)
