"""Relations r(x, y) as inner products of two towers: the kind behind `relation`."""

from attnfun.kinds import Command, Kind

KIND = Kind(
    "relation",
    target="attnfun.kinds.relation.target:Relation",
    weights=(
        "attnfun.kinds.relation.form:Polynomials",
        "attnfun.kinds.relation.cells:Cells",
        "attnfun.kinds.relation.slices:Slices",
        "attnfun.kinds.relation.form:Separable",
        "attnfun.kinds.relation.form:TrainedTowers",
    ),
    view="attnfun.kinds.relation.view:RelationApproximant",
    prover="attnfun.kinds.relation.prove:proof",
    words="attnfun.kinds.relation.words",
    lesson="attnfun.kinds.relation.lesson:lesson",
    subjects="attnfun.kinds.relation.words:subjects",
    commands=(
        Command(
            "relation",
            verb="attnfun.kinds.relation.verb:relation",
            panel="Relations",
            summary="Features φ, ψ with |relation(x, y) − φ(x)·ψ(y)| ≤ eps everywhere, proved, and the least rank that "
            "could do.",
            examples=(
                "attnfun relation 'exp(-2*(x-y)**2)' --left x=0:1 --right y=0:1 --eps 1e-4 --symmetric",
                "attnfun relation 'exp(x1*y1 + x2*y2)' --left 'x1=0:1;x2=0:1' --right 'y1=0:1;y2=0:1' --eps 1e-6 -o r",
                "attnfun relation 'tanh(5*(x-y))' --left x=0:1 --right y=0:1 --eps 1e-2 --realise mlp --json",
                "attnfun relation 'exp(-2*abs(x-y))' --left x=0:1 --right y=0:1 --eps 1e-2 --method voronoi",
            ),
            helps={
                "target": "A relation of left and right variables.",
                "eps": "The sup-norm tolerance.",
                "symmetric": "One tower: left and right variables correspond in order.",
                "signed": "With --symmetric: allow signs, the inner product of φ and Jφ.",
                "method": "auto, expand, polynomial, chebyshev, tensor, cholesky, voronoi, hats or cross.",
                "realise": "attention, or mlp: towers of ReLU units.",
                "features_only": "Polynomial features without towers; the result says so.",
                "band": "For jumps: leave out where a sign's argument is smaller than this.",
                "accept": "proved, or sampled: measured is enough where nothing is proved.",
            },
        ),
    ),
)
