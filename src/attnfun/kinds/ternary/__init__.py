"""Relations of three variables as trilinear forms: the kind behind `ternary`."""

from attnfun.kinds import folder_kind

FORMS = ("attnfun.kinds.ternary.target:Trilinear", "attnfun.kinds.relation.form:TrainedTowers")
KIND = folder_kind("ternary", "Ternary", "TrilinearForm", FORMS, lesson="view", commands=__name__)
