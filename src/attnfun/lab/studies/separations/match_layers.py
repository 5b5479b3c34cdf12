"""One layer of standard softmax attention with free weights, trained to mark tokens that pairs or triples complete.

Tokens are residues mod M with a free embedding each; a token attends to all tokens and a null; an MLP reads the token
and what H heads of rank r and value width r brought. The task is Match2 or Match3 at every token of uniform sets; with
M = N/ln 2 for pairs and N(N+1)/(2 ln 2) for triples about half of the tokens have a match. Torch is imported when a
function is called.
"""

import math
from typing import Any

import attnfun as af

WIDTH, HIDDEN, BATCH, RATE, SAMPLES = 16, 64, 128, 6e-3, 4000  # the width is that of the embedding


def trained_accuracy(order: int, tokens: int, M: int, H: int, r: int, steps: int, seed: int) -> tuple[float, ...]:
    """(balanced accuracy on fresh sets, its standard error, share of tokens with a match): order 2 or 3, N tokens of
    Z_M, H heads of rank and value width r.
    """
    torch, w, hidden = af.learn.require_torch(), WIDTH, HIDDEN
    with af.learn.one_torch_thread():
        source = af.learn.generator(seed, 5)

        def drawn(*shape: int, fan: int) -> Any:
            return (torch.randn(shape, generator=source) * fan**-0.5).requires_grad_()

        embedding, null = drawn(M, w, fan=1), drawn(1, w, fan=1)
        Q, K, V = (drawn(H, w, r, fan=w) for _ in range(3))
        seen = w + H * r
        first, second = drawn(seen, hidden, fan=seen), drawn(hidden, hidden, fan=hidden)
        last = drawn(hidden, 1, fan=hidden)
        shifts = [torch.zeros(size, requires_grad=True) for size in (hidden, hidden, 1)]

        def scores(x: Any) -> Any:
            own = embedding[x]
            keys = torch.cat([own, null.expand(len(x), 1, w)], dim=1)
            q, k, v = (torch.einsum("bnw,hwr->bhnr", t, m) for t, m in ((own, Q), (keys, K), (keys, V)))
            heads = torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v
            both = torch.cat([own, heads.transpose(1, 2).flatten(2)], dim=-1)
            inner = torch.nn.functional.gelu(both @ first + shifts[0])
            inner = torch.nn.functional.gelu(inner @ second + shifts[1])
            return (inner @ last + shifts[2])[..., 0]

        def loss(step: int) -> Any:
            x = torch.randint(M, (BATCH, tokens), generator=af.learn.generator(seed, 6, step))
            wanted = _matches(torch, x, M, order).float()
            return torch.nn.functional.binary_cross_entropy_with_logits(scores(x), wanted)

        weights = [embedding, null, Q, K, V, first, second, last, *shifts]
        losses = af.learn.descend(weights, loss, steps=steps, lr=RATE)
        if not math.isfinite(losses[-1]):
            return math.nan, math.nan, math.nan
        x = torch.randint(M, (SAMPLES, tokens), generator=af.learn.generator(seed, 7))
        wanted = _matches(torch, x, M, order)
        with torch.no_grad():
            right = ((scores(x) > 0) == wanted).double()
        yes, no = right[wanted], right[~wanted]
        balanced = float((yes.mean() + no.mean()) / 2)
        spread = math.sqrt(sum(float(p.var()) / len(p) for p in (yes, no))) / 2
        return balanced, spread, float(wanted.double().mean())


def _matches(torch: Any, x: Any, modulus: int, order: int) -> Any:
    """(batch, N) residues → whether some x_j (and x_k), not necessarily different, complete x_i to 0 mod M."""
    sums = (x[:, :, None] + x[:, None]) % modulus
    if order == 2:
        return (sums == 0).any(dim=-1)
    there = torch.zeros((len(x), modulus), dtype=torch.bool)
    there.scatter_(1, sums.flatten(1), torch.ones(sums.flatten(1).shape, dtype=torch.bool))
    return there.gather(1, (modulus - x) % modulus)
