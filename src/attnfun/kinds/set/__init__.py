"""Functions of a set of points, whatever their order: the kind behind `set_function`."""

from attnfun.kinds import Command, Kind

KIND = Kind(
    "set",
    target="attnfun.kinds.set.target:SetFunction",
    weights=("attnfun.kinds.set.network:SetNetwork",),
    view="attnfun.kinds.set.view:SetApproximant",
    prover="attnfun.kinds.set.prove:proof",
    words="attnfun.kinds.set.words",
    lesson="attnfun.kinds.set.lesson:lesson",
    subjects="attnfun.kinds.set.words:subjects",
    commands=(
        Command(
            "set-function",
            verb="attnfun.kinds.set.verb:set_function",
            panel="Networks",
            summary="Build an attention network for a function of a set, prove it, and say whether DeepSets is enough.",
            examples=(
                "attnfun set-function 'sum(x**2) + sum(x_i*x_j)' --points 6 --domain x=-1:1 --eps 1e-4",
                "attnfun set-function 'sum(exp(-(x_i - x_j)**2))' --points 8 --domain x=-1:1 --eps 1e-3 --json",
            ),
            more="Points occur inside sums only: sum, mean, max, min of an expression in x (over elements) or in x_i "
            "and x_j (over all ordered pairs); pairs(e) and distinct(e) sum over pairs, the second over i different "
            "from j.",
            several=True,
            helps={
                "target": "One expression per output.",
                "points": "How many points a set has.",
                "domain": "One interval per coordinate of a point.",
                "method": "auto, elements, power-sums, pairs.",
            },
        ),
    ),
)
