"""Softmax layers on points of a sphere, drawn, run, trained and measured: what the studies of rank and heads share.

| symbol | meaning |
| --- | --- |
| x | (sets, N, d) independent uniform unit vectors; every token is a query, and a key for all, itself included |
| f | (sets, N, d) for every token the furthest other one, E|f|² = 1 |
| K, Q | (H, d, r) keys and queries: logits ⟨K_hᵀx_j, Q_hᵀx_i⟩, no 1/√r |
| V | (H, d, d) values and output in one, of rank at most r where `value_rank` = r |

A layer puts out Σ_h softmax(x Q_h K_hᵀ xᵀ) x V_h. A stack of layers adds to it `skip` times its input, one number a
layer, and, where `hidden` is not 0, an MLP on each token: u + relu(u W + b) U + c, after every layer. Every layer but
the last is followed by division by the root mean square of the token's entries, times one number.
Torch is imported when a function is called. Training ends by steps; draws are by (seed, step), so a run can be
repeated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import attnfun as af
from attnfun.lab.studies.study import Row, Unit

Tensor = Any  # of torch, which is loaded when a function is called
Block = dict[str, Tensor]
BATCH, RATE, WARM, BETAS = 128, 0.01, 0.1, (0.9, 0.95)
_START, _TRAIN, _FRESH = 0, 1, 2  # streams of random numbers
_CHUNK = 2048  # sets measured at a time


@dataclass(frozen=True)
class Shape:
    """Of a stack: every layer has `heads` heads of rank `rank` on tokens of `dim` entries."""

    dim: int
    rank: int
    heads: int
    layers: int = 1
    hidden: int = 0
    value_rank: int | None = None

    @property
    def plain(self) -> bool:
        """One layer and nothing else: what the bounds speak of."""
        return self.layers == 1 and not self.hidden


def sphere_points(source: Any, *shape: int, dtype: Any = None) -> Tensor:
    """Independent uniform unit vectors."""
    drawn = af.learn.require_torch().randn(shape, generator=source, dtype=dtype)
    return drawn / drawn.norm(dim=-1, keepdim=True)


def furthest(x: Tensor) -> Tensor:
    """(sets, N, d): for every token the other one with the least inner product."""
    products = x @ x.transpose(1, 2)
    products.diagonal(dim1=1, dim2=2).fill_(math.inf)
    return x.gather(1, products.argmin(-1)[..., None].expand_as(x))


def attend(x: Tensor, K: Tensor, Q: Tensor, V: Tensor) -> Tensor:
    """Σ_h softmax(x Q_h K_hᵀ xᵀ) x V_h.

    All heads see the same x, so that each product is one of matrices with H·N rows; keys are the middle axis, for a
    softmax along the last one is slower.
    """
    sets, tokens, dim = x.shape
    heads = len(K)
    asked = x.reshape(-1, dim) @ af.learn.require_torch().einsum("hdr,her->dhe", Q, K).reshape(dim, heads * dim)
    logits = x @ asked.reshape(sets, tokens * heads, dim).transpose(1, 2)
    seen = logits.softmax(1).transpose(1, 2) @ x
    return (seen.reshape(-1, heads * dim) @ V.reshape(heads * dim, dim)).reshape(sets, tokens, dim)


def start(shape: Shape, seed: int) -> list[Block]:
    """Random weights: K, Q ~ N(0, 1/r), so large that one head of full rank is soon moved; the rest of usual size."""
    torch = af.learn.require_torch()
    source, d, H = af.learn.generator(seed, _START), shape.dim, shape.heads

    def normal(*size: int, scale: float) -> Any:
        return torch.randn(size, generator=source) * scale

    blocks = []
    for place in range(shape.layers):
        block = {name: normal(H, d, shape.rank, scale=shape.rank**-0.5) for name in ("K", "Q")}
        if shape.value_rank is None:
            block["V"] = normal(H, d, d, scale=(d * H) ** -0.5)
        else:
            block["down"] = normal(H, d, shape.value_rank, scale=d**-0.5)
            block["up"] = normal(H, shape.value_rank, d, scale=(H * shape.value_rank) ** -0.5)
        if not shape.plain:
            block["skip"] = torch.tensor(0.0 if place + 1 == shape.layers else 1.0)
            block["gain"] = torch.tensor(d**-0.5)
        if shape.hidden:
            block["W"], block["b"] = normal(d, shape.hidden, scale=(2 / d) ** 0.5), torch.zeros(shape.hidden)
            block["U"], block["c"] = normal(shape.hidden, d, scale=0.1 * shape.hidden**-0.5), torch.zeros(d)
        blocks.append({name: part.requires_grad_() for name, part in block.items()})
    return blocks


def values(block: Block) -> Tensor:
    return block["V"] if "V" in block else block["down"] @ block["up"]


def run(blocks: list[Block], x: Tensor) -> Tensor:
    """The stack's output, (sets, N, d)."""
    for place, block in enumerate(blocks):
        out = attend(x, block["K"], block["Q"], values(block))
        if "skip" in block:
            out = out + block["skip"] * x
        if "W" in block:
            out = out + (out @ block["W"] + block["b"]).relu() @ block["U"] + block["c"]
        if place + 1 < len(blocks):
            out = out * (block["gain"] / (out.square().mean(-1, keepdim=True) + 1e-6).sqrt())
        x = out
    return x


def trained(shape: Shape, points: int, *, steps: int, seed: int, batch: int = BATCH, lr: float = RATE) -> list[Block]:
    """A stack trained on the furthest of `points` tokens: Adam on fresh sets, one-cycle with a tenth of warm-up."""
    with af.learn.one_torch_thread():
        blocks = start(shape, seed)

        def loss(step: int) -> Tensor:
            x = sphere_points(af.learn.generator(seed, _TRAIN, step), batch, points, shape.dim)
            return (run(blocks, x) - furthest(x)).square().sum(-1).mean()

        weights = [part for block in blocks for part in block.values()]
        af.learn.descend(weights, loss, steps=steps, lr=lr, betas=BETAS, warm=WARM)
    return blocks


def measured(blocks: list[Block], points: int, *, sets: int, seed: int) -> tuple[float, float]:
    """(mean, standard error over sets) of |f − output|² on `sets` sets that training never saw; in float64."""
    exact = [{name: part.detach().double() for name, part in block.items()} for block in blocks]

    def squares(count: int, source: Any) -> Tensor:
        x = sphere_points(source, count, points, blocks[0]["K"].shape[1], dtype=exact[0]["K"].dtype)
        return (run(exact, x) - furthest(x)).square().sum(-1).mean(-1)

    return fresh_error(squares, sets, _CHUNK, seed)


def trained_row(shape: Shape, unit: Unit, **options: Any) -> Row:
    """The error of a trained stack on fresh sets, and for one layer what no layer of its shape has less than."""
    points, seed = unit["points"], unit["seed"]
    blocks = trained(shape, points, steps=unit["steps"], seed=seed, **options)
    error, error_se = measured(blocks, points, sets=unit["sets"], seed=seed)
    wide = {"value_rank": shape.value_rank or shape.dim}
    bound = af.bounds.neighbours(shape.dim, points - 1, shape.rank, shape.heads, **wide) if shape.plain else None
    return {"error": error, "error_se": error_se, "least": bound and bound.lower}


def built_row(dim: int, points: int, way: str, sets: int, eps: float) -> Row:
    """The error of a constructed network beside what is proved of it; every token is a query where it has full rank."""
    net = af.neighbours(dim, points, way.replace("-", "_"), eps=eps)
    seen = net.measured(sets * (1 if way == "scores" else points), seed=1)
    return {"error": seen.error, "error_se": seen.error_se, "proved": net.predicted.proved}


def error_row(squares: Any) -> Row:
    """The mean of independent squared errors, and its standard error."""
    return {"error": float(squares.mean()), "error_se": float(squares.std(ddof=1) / math.sqrt(len(squares)))}


def fresh_error(squares: Callable[[int, Any], Tensor], samples: int, chunk: int, seed: int) -> tuple[float, float]:
    """(mean, standard error) of `squares(count, source)` over samples that training never saw, a chunk at a time."""
    torch = af.learn.require_torch()
    with af.learn.one_torch_thread(), torch.no_grad():
        counts = {begin: min(chunk, samples - begin) for begin in range(0, samples, chunk)}
        found = [squares(count, af.learn.generator(seed, _FRESH, begin)).double() for begin, count in counts.items()]
        errors = torch.cat(found)
        return float(errors.mean()), float(errors.std()) / math.sqrt(samples)
