"""Relations of three variables as trilinear forms: the kind behind `ternary`."""

from attnfun.kinds import Command, Kind

KIND = Kind(
    "ternary",
    target="attnfun.kinds.ternary.target:Ternary",
    weights=(
        "attnfun.kinds.ternary.weights:Trilinear",
        "attnfun.kinds.relation.form:TrainedTowers",
    ),
    view="attnfun.kinds.ternary.view:TrilinearForm",
    prover="attnfun.kinds.ternary.prove:proof",
    words="attnfun.kinds.ternary.words",
    lesson="attnfun.kinds.ternary.words:lesson",
    subjects="attnfun.kinds.ternary.words:subjects",
    commands=(
        Command(
            "ternary",
            verb="attnfun.kinds.ternary.verb:ternary",
            panel="Relations",
            summary="Functions a, b, c with |relation(x, y, z) − Σ a(x) b(y) c(z)| ≤ eps everywhere, proved.",
            examples=(
                "attnfun ternary 'x*y + y*z + x*z' --domain 'x=0:1;y=0:1;z=0:1' --eps 1e-6",
                "attnfun ternary 'exp(-x*y*z)' --domain 'x=0:1;y=0:1;z=0:2' --eps 1e-8 -o t.safetensors --json",
            ),
            helps={"target": "A relation of three variables.", "eps": "The sup-norm tolerance."},
        ),
    ),
)
