"""Pairs are easy for attention, triples are not.

Claim. One attention head finds whether another token completes a token to 0 mod M; for triples one layer of H heads
of width r and p-bit numbers needs p r H of the order of N, while one head of third-order attention does.

Source. Sanford, Hsu, Telgarsky 2023, arXiv 2306.02896; the constants, the reduction's numbers and the count H (r + 2)
p ≥ (N − 1)/2 are derived in attnfun.limits.separation.

Pairs by one head, triples by third-order attention; and what one standard layer must pay for triples.

Constructions of `af.matching` on random sets and on sets that nearly match; the reduction from disjointness by brute
force, and a network for triples that decides disjointness by it; the protocol that turns a layer into bits; the heads
that follow from them; and standard layers of one and the same shape, trained on pairs and on triples. What training
does not find is no proof that it is not there: the impossibility is the reduction and the bits.

Columns.
    what: constructed, disjointness (the reduction), protocol, heads needed, or trained
    order: 2: pairs, 3: triples
    tokens: N
    modulus: M
    heads: H; in rows of heads needed the fewest that the bits allow
    rank: r
    bits: p, of the numbers sent
    seed: of the training
    cases: answers checked, pairs of sets, or draws
    accuracy: share of right answers; trained: the mean over tokens with and without a match
    spread: standard error of a trained layer's accuracy on its 4,000 fresh sets
    share: share of cases whose answer is yes
    margin: least distance of an output from ½; negative if an answer is wrong
    proved: the margin that the certificate gives for all inputs
    error: largest difference between the layer and what two parties rebuild
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, values, where

BUILT, REDUCED, TOLD, COUNTED, TRAINED = "constructed", "disjointness", "protocol", "heads needed", "trained"
MARGIN, SAME = 0.3, 1e-6
HEADS, RANK = 4, 2


def units(size: Size) -> list[Unit]:
    out: list[Unit] = [
        {"what": BUILT, "order": order, "tokens": n, "modulus": m, "sets": size["sets"]}
        for order, n, m in size["built"]
    ]
    out += [{"what": REDUCED, "elements": n, "pairs": size["pairs"]} for n in size["elements"]]
    out += [{"what": TOLD, "bits": p, "draws": size["draws"]} for p in size["bits"]]
    out += [{"what": COUNTED, "tokens": n, "rank": r, "bits": p} for n, r, p in size["counted"]]
    return out + [
        {"what": TRAINED, "order": order, "tokens": n, "modulus": m, "seed": seed, "steps": size["steps"]}
        for order, n, m in size["trained"]
        for seed in range(size["seeds"])
    ]


def run(unit: Unit) -> list[Row]:
    what = unit["what"]
    if what == BUILT:
        return [_built(unit["order"], unit["tokens"], unit["modulus"], unit["sets"])]
    if what == REDUCED:
        return [_reduced(unit["elements"], unit["pairs"])]
    if what == TOLD:
        return [_told(unit["bits"], unit["draws"])]
    if what == COUNTED:
        n, r, p = unit["tokens"], unit["rank"], unit["bits"]
        return [dict(order=3, tokens=n, rank=r, bits=p, heads=af.bounds.matching(n, r, p).heads_needed)]
    from attnfun.lab.studies.separations.match_layers import Layer, trained_accuracy

    layer = Layer(unit["order"], unit["tokens"], unit["modulus"], HEADS, RANK, unit["steps"], width=16, rate=6e-3)
    accuracy, spread, share = trained_accuracy(layer, unit["seed"])
    sizes = {name: unit[name] for name in ("order", "tokens", "modulus", "seed")}
    return [dict(**sizes, heads=HEADS, rank=RANK, accuracy=accuracy, spread=spread, share=share)]


def _sets(random: np.random.Generator, tokens: int, modulus: int, count: int) -> NDArray[np.int64]:
    """Half of them uniform, half of few close residues and their near negatives, whose sums are often 0 or ±1."""
    some = random.integers(0, modulus, (count - count // 2, tokens))
    base = random.integers(0, modulus, (count // 2, 2))
    near = np.stack([base[:, 0], base[:, 1], -base[:, 0] + 1, -base[:, 0] - base[:, 1] + 1, -base.sum(axis=1)], axis=1)
    picked = np.take_along_axis(near, random.integers(0, 5, (count // 2, tokens)), axis=1)
    return np.concatenate([some, (picked + random.integers(-1, 2, picked.shape)) % modulus])


def _built(order: int, tokens: int, modulus: int, count: int) -> Row:
    net = af.matching(tokens, modulus, order)
    x = _sets(np.random.default_rng([order, tokens, modulus]), tokens, modulus, count)
    wanted = net.exact(x)
    answers = [_in_parts(net, x, (tokens + (tokens**2 if order == 3 else 1)) ** 2)]
    answers += [_in_parts(net.third_order, x, tokens**3)] if order == 3 else []
    right = np.stack([(out > 0.5) == wanted for out in answers])
    margin = min(float(np.abs(out - 0.5).min()) for out in answers) * (1 if right.all() else -1)
    numbers = {"heads": net.cost.heads, "cases": right.size, "accuracy": float(right.mean()), "proved": net.margin}
    return dict(
        order=order, tokens=tokens, modulus=modulus, margin=margin, share=float(wanted.mean()), rank=2, **numbers
    )


def _in_parts(answer: Callable[[Any], Any], x: NDArray[np.int64], products: int) -> NDArray[np.float64]:
    """Some sets at a time, so that memory stays in bounds: `products` is how many scores a set has."""
    step = max(1, 2**22 // products)
    return np.concatenate([answer(x[start : start + step]) for start in range(0, len(x), step)])


def _reduced(elements: int, most: int) -> Row:
    """All pairs of sets where there are at most `most` of them, else so many random ones of few elements."""
    if 4**elements <= most:
        pairs = [(np.array(a), np.array(b)) for a, b in product(product((0, 1), repeat=elements), repeat=2)]
    else:
        random = np.random.default_rng(elements)
        thin = 1 / math.sqrt(elements)
        pairs = [tuple((random.random((2, elements)) < thin).astype(np.int64)) for _ in range(most)]
    x = np.stack([af.limits.disjointness_to_triples(a, b)[0] for a, b in pairs])
    modulus = 20 * elements
    net = af.matching(x.shape[1], modulus, 3)
    meet = np.array([bool((a & b).any()) for a, b in pairs])
    decided = _in_parts(net.third_order, x, x.shape[1] ** 3)[:, 0] > 0.5
    counted = net.exact(x)[:, 0]
    right = (counted == meet) & (decided == meet)
    numbers = {"tokens": x.shape[1], "modulus": modulus, "cases": len(pairs), "accuracy": float(right.mean())}
    return dict(order=3, share=float(meet.mean()), **numbers)


def _told(bits: int, draws: int) -> Row:
    """A random layer of 4 heads, values of width 3, 33 tokens: the worst error of what two parties rebuild."""
    random = np.random.default_rng(2)
    heads, width, rank, n = 4, 6, 3, 16
    shapes = ((width, 3), (width, 3), (width, rank), (rank, width))
    made = [
        af.network.TokenHead(f"h{h}", *(random.normal(size=s) / math.sqrt(width) for s in shapes)) for h in range(heads)
    ]
    names = tuple(f"c{k}" for k in range(width))
    network = af.network.TokenNetwork(
        names, (af.network.TokenLayer(tuple(made)),), np.zeros((0, width)), np.eye(width), names
    )
    worst = 0.0
    for _ in range(draws):
        X = random.uniform(-1, 1, (2 * n + 1, width))
        told = af.limits.converse(network, X[0], X[1 : n + 1], X[n + 1 :], bits)
        assert told.bits == heads * (rank + 2) * bits
        worst = max(worst, told.error)
    return dict(tokens=2 * n + 1, heads=heads, rank=rank, bits=bits, cases=draws, error=worst)


def judge(table: Table) -> Verdict:
    """Refuted when a construction errs or has a margin of 0.3 or less, when the reduction fails on a pair of sets, or
    when bits do not rebuild the layer (1e-6 at 24 of them). With limits when layers trained on triples do as well as on
    pairs of the same modulus: then the separation is not seen at these sizes.
    """
    if gone := lacking(table, "what", BUILT, REDUCED, TOLD, COUNTED, TRAINED):
        return gone
    faults, words = [], ""
    built = where(table, what=BUILT)
    for row in built:
        name = f"order {row['order']}, N = {row['tokens']}, M = {row['modulus']}"
        if not (row["accuracy"] == 1.0 and row["margin"] > MARGIN and row["proved"] >= MARGIN):
            faults.append(f"the construction of {name} has accuracy {row['accuracy']:.4f}, margin {row['margin']:.3f}")
    if built:
        words += (
            f"{len(built)} constructions, up to N = {max(values(built, 'tokens'))} and M = "
            f"{max(values(built, 'modulus')):,}: accuracy {min(values(built, 'accuracy')):.4g} on "
            f"{sum(values(built, 'cases')):,} answers, least margin {min(values(built, 'margin')):.3f} "
            f"(proved {min(values(built, 'proved')):.3f}). "
        )
    reduced = where(table, what=REDUCED)
    for row in reduced:
        n = (row["tokens"] - 1) // 2
        words += f"Disjointness of sets of {n} by triples: {row['accuracy']:.1%} of {row['cases']:,} right. "
        if not row["accuracy"] >= 1.0:
            faults.append(f"the reduction fails at {n} elements")
    told = where(table, what=TOLD)
    words += (
        "Two parties rebuild a layer to " + ", ".join(f"{row['error']:.1e} ({row['bits']} bits)" for row in told) + ". "
    )
    if not all(row["error"] <= SAME for row in told if row["bits"] >= 24):
        faults.append("24 bits do not rebuild the layer to 1e-6")
    words += "Heads that one layer needs for triples, if its answers survive rounding what a head sums up to p bits: "
    counted = [
        f"N = {row['tokens']:,}, r = {row['rank']}, p = {row['bits']}: at least {row['heads']}"
        for row in where(table, what=COUNTED)
    ]
    words += "; ".join(counted) + ". "
    trained, gaps = where(table, what=TRAINED), []
    for n, m in distinct([{"k": (row["tokens"], row["modulus"])} for row in trained], "k"):
        medians = {}
        for order in (2, 3):
            found = values(where(trained, tokens=n, modulus=m, order=order), "accuracy")
            if found:
                medians[order] = median(found)
                words += (
                    f"Trained, N = {n}, M = {m}, order {order}: balanced accuracy {median(found):.3f} "
                    f"({min(found):.3f} to {max(found):.3f}). "
                )
        if len(medians) == 2:
            gaps.append(medians[2] > medians[3] + 0.02)
    if faults:
        return Verdict(REFUTED, f"Refuted: {'; '.join(faults)}.", words)
    if not gaps or not all(gaps):
        return Verdict(LIMITS, "Constructions and bits hold; trained layers show no gap at these sizes.", words)
    end = "All exact statements hold. The gap of trained layers goes the same way; it proves nothing by itself."
    return Verdict(HOLDS, end, words)


def draw(table: Table) -> Any:
    figure, axes = panels(columns=3, width=4.4)
    left, middle, right = axes[0]
    for order, colour in ((2, NETWORKS[1]), (3, NETWORKS[0])):
        rows = where(table, what=BUILT, order=order)
        label = "pairs" if order == 2 else "triples"
        at = values(rows, "modulus")
        left.plot(at, values(rows, "margin"), "o", color=colour, label=f"{label}: least measured")
        left.plot(at, values(rows, "proved"), "_", color=colour, ms=14, mew=2, label=f"{label}: proved")
    left.axhline(MARGIN, color=BOUND, ls="--", lw=1)
    left.set(xscale="log", xlabel="modulus M", ylabel="distance of outputs from ½", ylim=(0, 0.62))
    left.legend(fontsize=7, frameon=False, loc="lower right")
    title(
        left,
        "Constructed",
        "one head; accuracy " + f"{min(values(where(table, what=BUILT), 'accuracy'), default=0):.4g}",
    )
    told = where(table, what=TOLD)
    curve(middle.semilogy, told, "bits", "error", "o-", color=NETWORKS[2])
    middle.axhline(SAME, color=BOUND, ls="--", lw=1)
    middle.set(xlabel="bits of every number sent", ylabel="error of the rebuilt layer")
    title(middle, "The protocol", "H (r + 2) p bits are all that one party says")
    trained = where(table, what=TRAINED)
    names = distinct([{"k": (r["order"], r["tokens"], r["modulus"])} for r in trained], "k")
    for place, (order, n, m) in enumerate(names):
        found = values(where(trained, order=order, tokens=n, modulus=m), "accuracy")
        right.plot([place] * len(found), found, "o", color=NETWORKS[1 if order == 2 else 0])
    right.axhline(0.5, color="#9aa5b1", ls=":", lw=1)
    labels = [f"{'pairs' if order == 2 else 'triples'}\nN={n}, M={m}" for order, n, m in names]
    right.set_xticks(range(len(names)), labels, fontsize=7)
    right.set(ylabel="balanced accuracy", ylim=(0.45, 1.02), xlim=(-0.5, max(len(names), 1) - 0.5))
    title(right, "One standard layer, trained", f"{HEADS} heads of rank {RANK} and an MLP; each mark a seed")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        built=(
            [[2, 8, 17], [3, 6, 17]],
            [[2, 8, 17], [2, 32, 101], [2, 32, 1009], [2, 64, 10007], [3, 8, 17], [3, 16, 101], [3, 16, 1009]],
            [[2, 64, 10007], [2, 512, 100003], [3, 32, 101], [3, 32, 1009], [3, 32, 10007]],
        ),
        sets=(20, 200, 200),
        elements=([2], [1, 2, 3, 4, 8], [1, 2, 3, 4, 5, 6, 16, 31]),
        pairs=(300, 300, 1000),
        bits=([8, 24], [8, 16, 24], [4, 8, 12, 16, 20, 24, 32]),
        draws=(5, 20, 100),
        counted=(
            [[8192, 1, 8]],
            [[8192, 1, 8], [8192, 64, 32], [131072, 1, 32], [131072, 64, 32]],
            [[8192, 1, 8], [8192, 64, 32], [131072, 1, 32], [131072, 64, 32]],
        ),
        trained=(
            [[2, 6, 10], [3, 6, 10]],
            [[2, 8, 12], [2, 8, 52], [3, 8, 52]],
            [[2, 8, 52], [3, 8, 52], [2, 16, 196], [3, 16, 196]],
        ),
        seeds=(1, 3, 3),
        steps=(20, 600, 2000),
    ),
    needs=("torch",),
    full_time="3 minutes of CPU",
)
