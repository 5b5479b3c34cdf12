"""Functions of a point of a box: the kind behind `compile`."""

from attnfun.kinds import Command, Kind, Option

KIND = Kind(
    "function",
    target="attnfun.language.function:Function",
    weights=("attnfun.network.network:Network",),
    view="attnfun.kinds.function.view:Approximant",
    prover="attnfun.kinds.function.prove:proof",
    words="attnfun.kinds.function.words",
    lesson="attnfun.kinds.function.lesson:lesson",
    subjects="attnfun.kinds.function.subjects:subjects",
    commands=(
        Command(
            "compile",
            verb="attnfun.kinds.function.verb:compile",
            panel="Networks",
            summary="Build an attention network that meets eps, and prove that it does.",
            examples=(
                "attnfun compile 'sin(3*x)' --domain x=-1:1 --eps 1e-9",
                "attnfun compile 'cos(2*y)*exp(x*y)' --domain 'x=-1:1;y=-1:1' --eps 1e-6 -o f.safetensors --png",
                "attnfun compile '-x**2' 'x*y' --domain x=-1:1 --domain y=0:2 --eps 1e-6 --json",
                "attnfun compile 'sign(x)' --domain x=-1:1 --norm 2 --eps 0.05 --method partition",
                "attnfun compile 'x*y' --domain 'x=-1:1;y=-1:1' --eps 1e-3 --realise mlp",
                "attnfun compile model.safetensors --domain -1:1 --domain x3=0:5 --eps 1e-3 -o net.safetensors",
            ),
            more="Weights of an MLP (0.weight, 0.bias, 2.weight, ..., as torch names them) are taken exactly, with a "
            "ReLU between all linear layers and none after the last.",
            several=True,
            helps={
                "target": "One expression per output, or one .safetensors of MLP weights.",
                "eps": "The tolerance: absolute, or see --relative.",
                "domain": "One interval per variable; for an MLP LOW:HIGH is for every input x1, x2, ... not named.",
                "method": "auto, tangent, compose, relu_network, bernstein, interpolation, partition, affine.",
            },
            options={
                "max_keys": Option(int | None, None, "At most so many keys."),
                "max_layers": Option(int | None, None, "At most so many layers."),
                "max_heads": Option(int | None, None, "At most so many heads."),
                "max_rank": Option(int | None, None, "At most this rank per head."),
                "prefer": Option(str, "keys", "keys, layers, or float32 (small values)."),
            },
            leave=("lipschitz",),
            picture=True,
        ),
    ),
)
