"""What is known of each task of the planner: a rule that judges (rank, heads, layers), and its words.

Every rule is a function (rank, heads, layers) -> (verdict, why). "impossible" only by a bound of `limits/` with the
hypotheses listed, "constructed" only by a construction of this package; anything else is "unknown".
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from attnfun.errors import Infeasible, require
from attnfun.kinds.neighbours.build import full_rank, scores
from attnfun.language.numbers import one_of, whole_number
from attnfun.limits.record import texts
from attnfun.limits.separation.candidate_energies import MOST_CANDIDATES, MOST_DIM
from attnfun.limits.separation.candidates import neighbours as neighbour_bound
from attnfun.limits.separation.matching import average_bits
from attnfun.limits.separation.matching import matching as matching_bound
from attnfun.limits.separation.rank import rank as rank_bound

Judge = Callable[[int, int, int], tuple[str, str]]
_TRIALS = 64
_MOST_TRIED = 4096
UNKNOWN = "no bound excludes it, no construction is known here"


@dataclass(frozen=True)
class Family:
    """A task with its sizes filled in: what is said of it, and how a cell is judged.

    `ranks`, `heads`: where something changes.
    """

    family: str
    answer: str
    constructions: Sequence[str]
    hypotheses: Sequence[str]
    sources: Sequence[str]
    judge: Judge
    dim: int
    most_rank: int
    most_heads: int
    layers: tuple[int, ...] = (1,)
    ranks: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    context: int | None = None  # where the task has its own
    width: int | None = None  # of a token, where it is more than `dim`


_WITHIN = {  # heads of a setting are heads of these as well: what excludes one of them excludes it
    "softmax-any-v": ("softmax-any-v", "layer-any-v"),
    "softmax-scalar-v": ("softmax-scalar-v", "softmax-any-v", "layer-scalar-v", "layer-any-v"),
    "layer-any-v": ("layer-any-v",),
    "layer-scalar-v": ("layer-scalar-v", "layer-any-v"),
}


def _neighbour_bounds(dim: int, candidates: int | None, eps: float, setting: str) -> Callable[[int], tuple[int, str]]:
    """rank -> the fewest heads of one layer that no bound excludes for the furthest or nearest point, and which bound.

    It is the most of all bounds that hold for them: `bounds.rank` has two candidates, `bounds.neighbours` any number;
    the same heads serve every length up to the context, so the first holds for them, and the second with as many
    candidates as it computes. The nearest point is the furthest from −y, and −y is as uniform as y.
    """
    settings = [s for s in _WITHIN[setting] if dim >= 3 or not s.startswith("layer")]

    @cache
    def needed(rank: int) -> tuple[int, str]:
        some = [(rank_bound(dim, rank, 1, eps, s).heads_needed or 0, f"bounds.rank, {s}") for s in settings]
        if candidates is not None:
            many = neighbour_bound(dim, candidates, rank, 1, eps).heads_needed or 0
            some.append((many, f"bounds.neighbours, {candidates} candidates"))
        return max(some)

    return needed


def neighbour(dim: int, context: int, eps: float, setting: str, nearest: bool) -> Family:
    one_of("setting", setting, _WITHIN)
    require(context >= 3, f"context={context}: a query and two candidates are 3 tokens")
    candidates = min(context - 1, MOST_CANDIDATES) if dim <= MOST_DIM else None
    needed = _neighbour_bounds(dim, candidates, eps, setting)
    width = dim + context * nearest  # the nearest: a token holds its position too, which shuts itself out
    # the error of these heads is proved from dimension 3 on
    beta = _temperature(full_rank.beta_for, dim, context, eps, nearest) if dim >= 3 else None
    later = _temperature(scores.beta_for, dim, context, eps) if dim >= 3 else None
    sign = "" if nearest else "-"

    def judge(rank: int, heads: int, layers: int) -> tuple[str, str]:
        if rank >= width and beta is not None:
            shut = ", positions shut a token out from itself" * nearest
            return "constructed", f"full_rank: one head, W_Q W_K^T = {sign}β I, β = {beta:.3g}{shut}"
        if layers == 1 and heads < needed(rank)[0]:
            return "impossible", f"rank {rank} needs {_many(needed(rank)[0])} heads ({needed(rank)[1]})"
        if layers == 2 and later is not None and heads >= 2 * dim:
            return "constructed", f"scores: {2 * dim} heads of rank 1 at small β, then one by the score"
        return "unknown", UNKNOWN

    thin, half = needed(1)[0], needed(max(1, dim // 2))[0]
    fat = f"one head of rank {width} does it (β = {beta:.3g})" if beta is not None else "no head is proved to do it"
    answer = f"Few fat heads: {fat}, while heads of rank 1 in one layer must be at least {_many(thin)}"
    if thin <= 1:
        answer = f"At eps={eps:g} no bound tells thin heads from fat ones; {fat}"
    elif half > 1 and dim >= 4:
        answer += f", and heads of rank {dim // 2} at least {_many(half)}"
    if later is not None and thin > 1:
        answer += f"; with a second layer {2 * dim} thin heads do for one query"
    answer += ". (Family: the further or nearest point, a task of full rank.)"
    two = rank_bound(dim, 1, 1, eps, setting)
    hypotheses, sources = [*two.hypotheses], [two.source]
    if candidates is not None:
        many = neighbour_bound(dim, candidates, 1, 1, eps)
        hypotheses += [text.replace("K_h of rank at most 1", "K_h of the rank") for text in many.hypotheses]
        sources.append(many.source)
    hypotheses.append("eps is a mean square error, E|f|^2 = 1; bounds: one layer")
    if nearest:
        hypotheses.append("the nearest point to y is the furthest from -y, which is as uniform: the same bounds")
    if context > 3:
        taken = "2" if candidates is None else f"2 and of {candidates:,}"
        hypotheses.append(
            f"prompts of 3 up to {context} tokens: the same heads must serve every length; a cell is impossible by the "
            f"larger of the bounds of {taken} candidates, constructed for {context} tokens"
        )
    which = "nearest" if nearest else "furthest"
    built = []
    if beta is not None:
        made = f"neighbours({dim}, {context}, method='full_rank', which='{which}')"
        built.append(f"{made}: one head of rank {width}, every point a query")
    if later is not None:
        thin_heads = f"2 layers, {2 * dim} + 1 heads of rank 1, one query"
        built.append(f"neighbours({dim}, {context}, method='scores', which='{which}'): {thin_heads}")
    told = ("nearest and furthest points: full rank", answer, built, hypotheses, sources)
    ranks = (dim // 2, 3 * dim // 4, dim - 1, dim)
    return Family(*told, judge, dim, width, 4 * dim, (1, 2), ranks, (2 * dim,), width=width)


def _temperature(find: Callable[..., float], *sizes: Any) -> float | None:
    """The inverse temperature with a mean error proved to be within eps; None where there is none."""
    try:
        beta = find(*sizes)
    except Infeasible:
        return None
    return beta if math.isfinite(beta) else None


def pairs(dim: int, context: int) -> Family:
    def judge(rank: int, heads: int, layers: int) -> tuple[str, str]:
        if rank >= 2:
            return "constructed", "one head of rank 2 and a null token"
        return "unknown", UNKNOWN

    say = texts("plan pairs")
    built = [say["built"].format(context=context)]
    told = ("pairs that sum to 0: rank 2", say["answer"], built, [say["counted"]], [say["source"]])
    return Family(*told, judge, dim, dim, 4 * dim, ranks=(2,))


def triples(dim: int, context: int, bits: int) -> Family:
    def judge(rank: int, heads: int, layers: int) -> tuple[str, str]:
        found = matching_bound(context, rank, bits, heads)
        if layers == 1 and found.excluded:
            return "impossible", f"{found.bits_needed:,} bits must pass, H (r+2) p = {heads * (rank + 2) * bits:,}"
        return "unknown", UNKNOWN

    one, say = matching_bound(context, 1, bits), texts("plan triples")
    thin, fat = (_many(found.heads_needed) for found in (one, matching_bound(context, dim, bits)))
    answer = say["answer"].format(bits=one.bits_needed, thin=thin, fat=fat, dim=dim)
    built = [say["built"].format(context=context, pairs=context**2)]
    told = ("triples that sum to 0: bits", answer, built, [*one.hypotheses, say["more"]], [one.source])
    return Family(*told, judge, dim, dim, max(4 * dim, 2 * one.heads_needed))


def averages(dim: int, context: int, eps: float, bits: int, q: int, say: Callable[[str], None]) -> Family:
    from attnfun.kinds.average.target import rule_of_thumb
    from attnfun.kinds.average.verb import sparse_average

    whole_number("q", q, 1, context - 1)
    lowest = average_bits(context, q)
    small = eps < 1 / (2 * q)  # w/(4q) with z in [-1, 1]
    found: dict[int, tuple[int, str, int]] = {}  # heads -> least rank constructed, how, and its bits
    most = 2 * rule_of_thumb(context, q)
    sets = _trials(context, q)
    tries = [h for h in range(1, q + 1) if q % h == 0] if context <= _MOST_TRIED else []
    for heads in tries:
        widths = [("curve", 2 * q // heads)]
        widths += [("random", w) for w in _doubling(max(2, q // heads + 1), 2 * rule_of_thumb(context, q // heads))]
        for keys, width in sorted(widths, key=lambda pair: pair[1]):
            say(f"{heads} heads of rank {width}")
            try:
                # half of eps for the heads, half for queries of so few bits (`SparseAverage.bits`)
                made = sparse_average(context, q, subsets=sets, width=width, keys=keys, heads=heads, eps=eps / 2)
            except Infeasible:
                continue
            if made.bits <= bits:
                how = f"{heads} head{'s' * (heads > 1)} of rank {width}, {keys} keys, {made.bits} bits"
                found[heads] = (width, f"{how} (proved on {_TRIALS} sets)", made.bits)
                break

    def judge(rank: int, heads: int, layers: int) -> tuple[str, str]:
        for count, (width, how, _) in found.items():
            if heads >= count and rank >= width:
                return "constructed", how
        if small and heads * rank * bits < lowest:
            return "impossible", f"queries need {lowest:,} bits, H r p = {heads * rank * bits:,}"
        return "unknown", UNKNOWN

    answer = f"No heads are constructed at {bits} bits for averages over {q} of {context:,}, thin or fat"
    if found:
        ends = fewest, last = min(found), max(found)
        options = [f"{h} head{'s' * (h > 1)} of rank {found[h][0]} ({found[h][2]} bits)" for h in sorted({*ends})]
        answer = f"Averages over {q} of {context:,} take {' or '.join(options)}"
        if last != fewest:
            sizes = [h * found[h][0] for h in (last, fewest)]
            better = "many thin heads are smaller" if sizes[0] < sizes[1] else "few fat heads are no larger"
            answer += f": {better}, rank × heads {sizes[0]} against {sizes[1]}"
    answer += ". (Family: averages over named tokens; H r p counts.)"
    words = texts("plan averages")
    hypotheses = [words["sets"].format(q=q, context=context, bits=bits), words["proved"].format(trials=_TRIALS)]
    if not tries:
        hypotheses.append(f"no construction was tried: the context is longer than {_MOST_TRIED:,} tokens")
    hypotheses.append(words["impossible"] if small else f"no bound at eps >= 1/(2q) = {1 / (2 * q):g}")
    built = [one[1] for one in found.values()]
    told = ("averages over named tokens: bits of the query", answer, built, hypotheses, [words["source"]])
    ranks = (2, 2 * q, rule_of_thumb(context, q), *(one[0] for one in found.values()))
    return Family(*told, judge, dim, max(dim, most), max(64, 4 * q), ranks=ranks, heads=(q, *found))


def _trials(context: int, q: int) -> list[list[int]]:
    """Neighbours, positions spread evenly, and random sets."""
    random = np.random.default_rng(0)
    fixed = [list(range(q)), [k * context // q for k in range(q)]]
    return fixed + [random.choice(context, q, replace=False).tolist() for _ in range(_TRIALS - len(fixed))]


def _doubling(low: int, high: int) -> list[int]:
    out = [low]
    while out[-1] < high:
        out.append(min(high, max(out[-1] + 1, math.ceil(out[-1] * 1.4))))
    return out


def relation(matrix: Any, eps: float, say: Callable[[str], None]) -> Family:
    from attnfun.limits.score_rank import rank_of

    found = rank_of(matrix, eps, progress=say)
    lower, upper = max(found.lower, 1), max(found.rank, 1)
    rows, columns = found.shape

    def judge(rank: int, heads: int, layers: int) -> tuple[str, str]:
        if rank >= upper:
            return "constructed", f"one head of rank {upper} scores within {found.error:.3g} (truncated SVD)"
        if rank < lower:
            return "impossible", f"no matrix of rank below {lower} is within {eps:g} of the scores"
        return "unknown", UNKNOWN

    need = f"rank {upper}" if lower == upper else f"rank {lower} at least, {upper} does"
    words = texts("plan relation")
    width = max(2, min(rows, columns))
    built = f"one head of rank {upper}, scores within {found.error:.3g} of the matrix ({rows} × {columns})"
    answer, hypotheses, sources = words["answer"].format(need=need), [words["one"]], [words["source"]]
    told = ("one relation: the rank of its scores", answer, [built], hypotheses, sources)
    ranks = (lower, upper, max(1, lower - 1))
    return Family(*told, judge, width, max(upper, min(width, 2 * upper)), 16, ranks=ranks, context=columns)


def _many(count: int) -> str:
    if count < 10**9:
        return f"{count:,}"
    log10 = math.log10(count)
    return f"{10 ** (log10 % 1):.2f}e{int(log10)}"
