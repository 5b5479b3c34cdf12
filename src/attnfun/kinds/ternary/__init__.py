"""Relations of three variables as trilinear forms: the kind behind `ternary`."""

from attnfun.kinds import Kind

KIND = Kind(
    "ternary",
    target="attnfun.kinds.ternary.target:Ternary",
    weights=(
        "attnfun.kinds.ternary.weights:Trilinear",
        "attnfun.kinds.relation.form:TrainedTowers",
    ),
    view="attnfun.kinds.ternary.view:TrilinearForm",
    prover="attnfun.kinds.ternary.prove:proof",
    words="attnfun.kinds.ternary.view",
    lesson="attnfun.kinds.ternary.view:lesson",
    subjects="attnfun.kinds.ternary.view:subjects",
    commands=__name__,
)
