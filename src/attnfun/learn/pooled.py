"""Networks on tokens trained on a fixed sample: for studies whose targets are dear to draw anew at every step.

`af.train` draws fresh token matrices and looks at a probe a hundred times; here the sample is given, and nothing is
looked at on the way. The networks, their units and their random starts are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.learn.descend import descend, generator, one_torch_thread, require_torch
from attnfun.learn.token_weights import Tokens, random_tokens, token_scales, token_vector, tokens_of
from attnfun.learn.weights import power_of_two
from attnfun.network import TokenArchitecture
from attnfun.network.head import Array


def fit_sample(
    architecture: TokenArchitecture,
    tokens: Array,
    values: Array,
    *,
    steps: int,
    seed: int,
    lr: float = 3e-3,
    batch: int = 64,
    shared: bool = False,
) -> Tokens:
    """Adam on the mean squared error of (samples, n, width) tokens against (samples, read, outputs) values.

    The last `read` tokens are read. `shared` gives all layers, which must have one shape, the same weights. Where
    weights stop being finite the start is returned. The same seed gives the same bits on one machine.
    """
    torch = require_torch()
    depth = len(architecture.layers)
    if shared and len(set(architecture.layers)) != 1:
        raise InvalidRequest("layers that share their weights have one shape")
    with one_torch_thread():
        from attnfun.learn.torch_tokens import run

        scales, size = token_scales(tokens), float(power_of_two(float(np.abs(values).max()) or 1.0))
        origin = random_tokens(architecture, scales, size, seed)
        kind = getattr(torch, architecture.dtype)
        Z, Y = torch.tensor(tokens / scales, dtype=kind), torch.tensor(values / size, dtype=kind)
        begin = torch.tensor(token_vector(origin, scales, size), dtype=kind)
        block = architecture.layers[0].weights(architecture.width)
        if shared:
            begin = torch.cat([begin[:block], begin[depth * block :]])
        free = begin.clone().requires_grad_(True)

        def whole() -> Any:
            return torch.cat([free[:block]] * depth + [free[block:]]) if shared else free

        def loss(step: int) -> Any:
            at = torch.randint(len(Z), (batch,), generator=generator(seed, 1, step))
            out = run(architecture, whole(), Z[at])[:, -Y.shape[1] :]
            return torch.mean((out - Y[at]) ** 2)

        descend([free], loss, steps=steps, lr=lr)
        final = whole().detach().numpy().astype(np.float64)
    return tokens_of(architecture, final, scales, size) if np.isfinite(final).all() else origin
