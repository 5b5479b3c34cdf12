"""Evaluation of a network in its own dtype, by three routes that agree up to rounding.

Every operation below is done in the network's dtype (unit roundoff u), with weights that the dtype holds exactly;
inputs are rounded to it once. A head is an average, so all routes compute numerator / denominator with terms
e_j = exp(l_j - max l), e_max = 1, and differ only in how l_j and the sums are formed. "Sum of k terms" means k-1
additions in an order that is not stated (NumPy's pairwise sum or BLAS, fused multiply-add allowed): relative error
gamma_(k-1) of the sum of magnitudes, gamma_k = k u / (1 - k u). exp is libm's, within 4 ulp (a hypothesis), and
underflows by at most one least subnormal number a term.

**Counted operations.** Query, all routes, each axis and component: q = sum of (nonzeros of the row) products, then one
addition of the offset; products with zero weights are exact. A row with one entry 1 and offset 0 is exact.

*dense* (every head)
  1. axis logit: r products, sum of r terms, one addition of the bias: gamma_(r+1) (|k||q| + |b|);
  2. a axes: a-1 additions of axis logits, first axis first: gamma_(a-1) sum_a |l^a|;
  3. one subtraction of the maximum of the computed logits: u |l_j - max|;
  4. one exp;
  5. numerator: keys products, sum of `keys` terms, gamma_keys; denominator: sum of `keys` terms, gamma_(keys-1);
  6. one division.

*factorised* (every head with two or more axes): on each axis alone steps 1, 3, 4 and a denominator of P_a terms; then
the values are contracted axis by axis: on each axis one product and a sum of P_a terms, gamma_(sum_a P_a) in all; the
axis denominators are multiplied (a-1 products); one division.

*local* (heads with a plan in `key_windows.py`): only the W = `window` keys of each axis around the nearest one, found
by bisection in the stored breakpoints T. Logits are *relative to the nearest key i*, through the breakpoints:
    l_m - l_i = sum_(l=i)^(m-1) (k_(l+1) - k_l)(q - T_l)  for m > i,   and with the opposite sign below.
All its terms are negative, so nothing cancels and no maximum is subtracted; for each key
  1. per term one subtraction q - T_l and one product with the step (which carries one rounding itself), then a sum of
     at most W-1 terms: relative error gamma_(W+1) of |l_m - l_i|;
  2. the stored T_l in place of the breakpoint t_l: at most the sum over the terms of (k_(l+1) - k_l) `slack[l]`, where
     slack[l] is 4 2^-53 |t_l|, and in float32 half an ulp of t_l more. Differences of slopes q + biases would cost
     u (|k q| + |b|) instead, larger by about |q| / (2 cell widths) on a uniform grid, and so are not used;
  3. one exp; denominators of W terms; contraction axis by axis as in factorised, W in place of P_a; one division;
  4. the mass outside the windows is at most `plan.dropped` (proved for every query); it moves the head by at most
     that times max V - min V.

Then, all routes: heads that write one coordinate are added in order, starting from 0 (exact); the read-out is a sum of
(nonzeros of its row) products, then one addition of its bias.

Layers of many small heads of one shape take the dense route for all heads at once, every head's own operations: a
layer that multiplies features has a head for each, of a few keys, and a loop over thousands of them would spend its
time in Python. There their arrays stand in stacks, and the queries of all heads are one matrix product.
Blocks of ReLU units have one route, called dense too; its operations are in `relu.py`.

Failure mode: points far outside the box can overflow the logits and give NaN; NaN or infinite points are refused.
Temporaries of a head stay near BUDGET bytes whatever the number of points (one point of a huge dense head may need
more).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.network.head import DENSE_KEYS, AnyArray, Head, once_per_dtype
from attnfun.network.key_windows import LocalPlan, local_plan
from attnfun.network.network import Layer, Network
from attnfun.network.playing import played
from attnfun.network.relu import ReluBlock, evaluate_block

ROUTES = ("dense", "factorised", "local")
BUDGET = 8 << 20
"""Bytes of temporaries a head may use at a time; small enough to stay in cache."""


@dataclass(frozen=True, eq=False)
class _Axis:
    query: AnyArray
    offset: AnyArray
    slopes: AnyArray
    biases: AnyArray
    breakpoints: AnyArray | None = None
    steps: AnyArray | None = None


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A head's arrays in the dtype: `flat` (keys, p) for dense and local, `longest` (p, other axes..., P_last) else."""

    axes: tuple[_Axis, ...]
    flat: AnyArray
    order: tuple[int, ...]
    grid: tuple[int, ...]
    plan: LocalPlan | None

    @cached_property
    def longest(self) -> AnyArray:
        """Made for the route that reads it: it may be a copy."""
        values = self.flat.reshape(*self.grid, -1)
        return np.ascontiguousarray(np.transpose(values, (len(self.axes), *self.order)))


@once_per_dtype
def _prepare(head: Head, dtype: str) -> _Prepared:
    plan, axes = local_plan(head, dtype), []
    for number, axis in enumerate(head.axes):
        window = [] if plan is None else [plan.axes[number].breakpoints, plan.axes[number].steps]
        axes.append(_Axis(*(array.astype(dtype, copy=False) for array in (*axis.arrays.values(), *window))))
    values = head.values.astype(dtype, copy=False)
    longest = int(np.argmax(head.grid))
    order = (*(a for a in range(len(axes)) if a != longest), longest)
    return _Prepared(tuple(axes), values.reshape(-1, head.outputs), order, head.grid, plan)


def evaluate(network: Network, X: npt.ArrayLike, route: str = "auto") -> AnyArray:
    """The network at tokens X: (..., inputs) -> (..., outputs), usually (n, d) -> (n, p), in the network's dtype.

    `route` is "auto" (the cheapest for each head) or one of ROUTES; a head on which that route does not apply takes
    factorised if it has several axes, else dense, and a route that applies to no head is refused.
    """
    work = network.cost.keys * np.size(X) / len(network.inputs)
    if route == "auto" and (found := played("network", work, network, X)) is not None:
        return found  # type: ignore[no-any-return]
    final = stream(network, X, route)
    kind = np.dtype(network.dtype)
    result: AnyArray = final @ network.readout.astype(kind, copy=False).T
    result += network.readout_bias.astype(kind, copy=False)
    return result


def stream(network: Network, X: npt.ArrayLike, route: str = "auto") -> AnyArray:
    """The residual stream after the last layer, (..., d) -> (..., len(network.coordinates)); columns as named there."""
    if route != "auto" and route not in routes(network):
        known = ", ".join(("auto", *routes(network)))
        raise InvalidRequest(f"route {route!r} does not apply to this network; these do: {known}")
    given = np.asarray(X)
    if given.ndim == 0 or given.shape[-1] != len(network.inputs):
        raise InvalidRequest(f"points need shape (n, {len(network.inputs)}), one column per input, not {given.shape}")
    require(given.dtype.kind in "fiub" and np.isfinite(given).all(), "points must be finite real numbers")
    network.require_unchanged()
    current = given.reshape(-1, given.shape[-1]).astype(network.dtype)
    for layer in network.layers:
        if route in ("auto", "dense") and alike(layer):
            current = np.concatenate([current, evaluate_alike(layer, current, network.dtype)], axis=1)
            continue
        place = {name: index for index, name in enumerate(layer.writes)}
        new = np.zeros((len(current), len(place)), dtype=current.dtype)
        for head in layer.heads:
            new[:, [place[name] for name in head.writes]] += evaluate_head(head, current, network.dtype, route)
        current = np.concatenate([current, new], axis=1)
    return current.reshape(*given.shape[:-1], current.shape[1])


def evaluate_head(head: Head | ReluBlock, tokens: AnyArray, dtype: str = "float64", route: str = "auto") -> AnyArray:
    """One head on the stream before its layer: (n, width) -> (n, outputs)."""
    if isinstance(head, ReluBlock):
        return evaluate_block(head, tokens, dtype)
    name = _route(head, dtype, route)
    if name == "dense" and head.keys > DENSE_KEYS:
        raise Infeasible(f"the dense route over {head.keys} keys of head {head.name!r}; at most {DENSE_KEYS}")
    prepared = _prepare(head, dtype)
    tokens = np.asarray(tokens).astype(dtype, copy=False)
    step = _points(head, prepared, name, tokens.dtype.itemsize)
    result = np.empty((len(tokens), head.outputs), dtype=tokens.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, len(tokens), step):
            block = tokens[start : start + step]
            queries = [block @ axis.query.T + axis.offset for axis in prepared.axes]
            result[start : start + step] = _KERNELS[name](prepared, queries)
    return result


def attention(head: Head, tokens: AnyArray, dtype: str = "float64") -> AnyArray:
    """The softmax weights themselves, (n, width) -> (n, P_1, ..., P_a): for pictures, few points at a time."""
    if head.keys * len(tokens) > 1 << 26:
        raise Infeasible(f"attention weights of {len(tokens)} points over {head.keys} keys do not fit in memory")
    prepared = _prepare(head, dtype)
    block = np.asarray(tokens).astype(dtype, copy=False)
    terms = _terms(prepared, [block @ axis.query.T + axis.offset for axis in prepared.axes])
    return (terms / terms.sum(axis=1, keepdims=True)).reshape(len(tokens), *head.grid)


def head_routes(head: Head | ReluBlock, dtype: str = "float64") -> tuple[str, ...]:
    """The routes that apply to one head."""
    if isinstance(head, ReluBlock):
        return ("dense",)
    dense = ("dense",) if head.keys <= DENSE_KEYS else ()
    factorised = ("factorised",) if len(head.axes) > 1 else ()
    return dense + factorised + (("local",) if local_plan(head, dtype) else ())


def routes(network: Network) -> tuple[str, ...]:
    """The routes that apply: "dense" if no head is too large for it, the others if they apply to at least one head."""
    per_head = [head_routes(head, network.dtype) for head in network.heads]
    dense = all("dense" in have for have in per_head)
    return tuple(r for r in ROUTES if (dense if r == "dense" else any(r in have for have in per_head)))


def chosen_routes(network: Network) -> tuple[tuple[str, ...], ...]:
    """What "auto" takes, by layer and head."""
    return tuple(tuple(_route(head, network.dtype, "auto") for head in layer.heads) for layer in network.layers)


def _route(head: Head | ReluBlock, dtype: str, route: str) -> str:
    have = head_routes(head, dtype)
    if isinstance(head, ReluBlock):
        return "dense"
    if route in have:
        return route
    if route == "auto" and have:
        return min(have, key=lambda name: _work(head, dtype, name))
    return "factorised" if "factorised" in have else "dense"


def _work(head: Head, dtype: str, route: str) -> float:
    """Nanoseconds a point, roughly: about 6 for an exp with its logit, 0.1 for a product in BLAS, 4 for a gather."""
    p = head.outputs
    if route == "dense":
        return head.keys * (7.0 + 0.2 * p)
    if route == "factorised":
        return 7.0 * sum(head.grid) + p * head.keys * (0.1 + 1.0 / max(head.grid))
    plan = local_plan(head, dtype)
    assert plan is not None
    return 60.0 * len(head.axes) + 14.0 * sum(axis.window for axis in plan.axes) + 5.0 * p * plan.cells


def _points(head: Head, prepared: _Prepared, route: str, itemsize: int) -> int:
    """How many points at a time."""
    if route == "dense":
        numbers = 2 * head.keys + sum(head.grid)
    elif route == "factorised":
        numbers = 2 * sum(head.grid) + 2 * head.outputs * head.keys // max(head.grid)
    else:
        assert prepared.plan is not None
        numbers = 4 * sum(axis.window for axis in prepared.plan.axes) + 4 * head.outputs * len(head.axes) + 8
    return max(1, BUDGET // (itemsize * numbers))


def _terms(head: _Prepared, queries: Sequence[AnyArray]) -> AnyArray:
    """exp(l_j - max l) over all keys, (n, keys)."""
    logits: AnyArray | None = None
    for axis, query in zip(head.axes, queries, strict=True):
        own = query @ axis.slopes.T
        own += axis.biases
        logits = own if logits is None else (logits[:, :, None] + own[:, None, :]).reshape(len(own), -1)
    assert logits is not None
    logits -= logits.max(axis=1, keepdims=True)
    return np.exp(logits, out=logits)


def _dense(head: _Prepared, queries: Sequence[AnyArray]) -> AnyArray:
    terms = _terms(head, queries)
    return (terms @ head.flat) / terms.sum(axis=1, keepdims=True)


def _factorised(head: _Prepared, queries: Sequence[AnyArray]) -> AnyArray:
    """Points along the last dimension; the longest axis is contracted first, by one matrix product."""
    terms = []
    for a in head.order:
        own = head.axes[a].slopes @ queries[a].T
        own += head.axes[a].biases[:, None]
        own -= own.max(axis=0)
        terms.append(np.exp(own, out=own))
    denominator = math.prod((own.sum(axis=0) for own in terms[1:]), start=terms[0].sum(axis=0))
    kept = head.longest.reshape(-1, head.longest.shape[-1]) @ terms[-1]
    for own in reversed(terms[:-1]):
        kept = np.einsum("rjn,jn->rn", kept.reshape(-1, len(own), own.shape[1]), own)
    return (kept / denominator).T


def _local(head: _Prepared, queries: Sequence[AnyArray]) -> AnyArray:
    plan = head.plan
    assert plan is not None
    terms, starts = [], []
    for axis, window, query in zip(head.axes, plan.axes, queries, strict=True):
        assert axis.breakpoints is not None and axis.steps is not None
        q, size = query[:, 0], window.window
        nearest = np.searchsorted(axis.breakpoints, q)
        start = np.clip(nearest - window.radius, 0, len(axis.slopes) - size)
        # Rises are positive left of the nearest key and negative right of it: each side sums its own sign, so no
        # maximum has to be subtracted and the other side adds exact zeros.
        rises = [axis.steps[start + o] * (q - axis.breakpoints[start + o]) for o in range(size - 1)]
        right = [np.zeros_like(q)]
        left = [np.zeros_like(q)]
        for rise in rises:
            right.append(right[-1] + np.minimum(rise, 0))
        for rise in reversed(rises):
            left.append(left[-1] + np.maximum(rise, 0))
        terms.append([np.exp(r - s) for r, s in zip(right, reversed(left), strict=True)])
        starts.append(start)
    sizes = [len(axis.slopes) for axis in head.axes]
    flat = head.flat[:, 0] if head.flat.shape[1] == 1 else head.flat
    strides = [math.prod(sizes[a + 1 :]) for a in range(len(sizes))]
    corner = sum((start * stride for start, stride in zip(starts, strides, strict=True)), start=np.zeros((), np.int64))

    def contract(a: int, index: AnyArray) -> AnyArray:
        if a == len(sizes):
            return flat[index]
        total: AnyArray | None = None
        for offset, term in enumerate(terms[a]):
            inner = contract(a + 1, index + offset * strides[a])
            part = term * inner if inner.ndim == 1 else term[:, None] * inner
            total = part if total is None else total + part
        assert total is not None
        return total

    numerator = contract(0, corner)
    sums = [sum(own[1:], start=own[0]) for own in terms]
    denominator = math.prod(sums[1:], start=sums[0])
    return numerator.reshape(len(denominator), -1) / denominator[:, None]


_KERNELS: dict[str, Callable[..., AnyArray]] = {"dense": _dense, "factorised": _factorised, "local": _local}


FEWEST = 32
"""Heads that are worth a stack."""
_BUDGET = 32 << 20


def alike(layer: Layer) -> bool:
    """Does the layer have many heads, each of one axis with a query of several dimensions, one output, one shape?

    With two query dimensions or more no other route than the dense one applies.
    """
    heads = layer.heads
    if len(heads) < FEWEST or not all(isinstance(h, Head) and len(h.axes) == 1 for h in heads):
        return False
    shapes = {(h.axes[0].slopes.shape, h.outputs) for h in heads}
    if len(shapes) != 1 or len(layer.writes) != len(heads):
        return False
    (shape, outputs) = shapes.pop()
    return outputs == 1 and shape[1] >= 2 and shape[0] <= 4096


@once_per_dtype
def _stack(layer: Layer, dtype: str) -> list[AnyArray]:
    """query (width, H r), offset (H r), slopes (H, r, keys), biases, values (H, keys)."""
    axes = [head.axes[0] for head in layer.heads]
    parts = (
        np.ascontiguousarray(np.concatenate([a.query for a in axes]).T),
        np.concatenate([a.offset for a in axes]),
        np.stack([a.slopes.T for a in axes]),
        np.stack([a.biases for a in axes]),
        np.stack([head.values[:, 0] for head in layer.heads]),
    )
    return [part.astype(dtype) for part in parts]


def evaluate_alike(layer: Layer, tokens: AnyArray, dtype: str) -> AnyArray:
    """The layer on the stream before it, (n, width) -> (n, heads), for layers that are `alike`."""
    W_Q, offset, slopes, biases, values = _stack(layer, dtype)
    H, r, keys = slopes.shape
    result = np.empty((len(tokens), H), dtype=tokens.dtype)
    step = max(1, _BUDGET // (tokens.dtype.itemsize * H * (keys + r)))
    with np.errstate(all="ignore"):
        for start in range(0, len(tokens), step):
            block = tokens[start : start + step]
            query = (block @ W_Q + offset).reshape(len(block), H, r).transpose(1, 0, 2)
            terms = query @ slopes
            terms += biases[:, None, :]
            terms -= terms.max(axis=2, keepdims=True)
            np.exp(terms, out=terms)
            summed = (terms @ values[:, :, None])[:, :, 0] / terms.sum(axis=2)
            result[start : start + step] = summed.T
    return result
