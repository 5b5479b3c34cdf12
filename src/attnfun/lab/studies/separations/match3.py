"""Pairs are easy for attention, triples are not.

Claim. One attention head finds whether another token completes a token to 0 mod M; for triples one layer of H heads
of width r and p-bit numbers needs p r H of the order of N, while one head of third-order attention does.

Source. Sanford, Hsu, Telgarsky 2023, arXiv 2306.02896; the constants, the reduction's numbers and the count H (r + 2)
p ≥ (N − 1)/2 are derived in attnfun.limits.separation.

Pairs by one head, triples by third-order attention; and what one standard layer must pay for triples.

Constructions of `af.matching` on random sets and on sets that nearly match; the reduction from disjointness by brute
force, and a network for triples that decides disjointness by it; the protocol that turns a layer into bits; the heads
that follow from them; and standard layers of one and the same shape, trained on pairs and on triples. What training
does not find is not a proof that it is not there: the impossibility is the reduction and the bits.

A full run takes 3 minutes of CPU.

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
    proved: ≥ the margin that the certificate gives for all inputs
    error: largest difference between the layer and what two parties rebuild
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, FAINT, NETWORKS, curve, labelled, panels
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, crossed_with, decided, described

BUILT, REDUCED, TOLD, COUNTED, TRAINED = "constructed", "disjointness", "protocol", "heads needed", "trained"
MARGIN, SAME = 0.3, 1e-6
HEADS, RANK = 4, 2
WIDTH, HIDDEN, BATCH, RATE, SAMPLES = 16, 64, 128, 6e-3, 4000  # of training; the width is that of the embedding


def units(size: Size) -> list[Unit]:
    task, run = ("order", "tokens", "modulus"), {"seed": range(size["seeds"]), "steps": size["steps"]}
    return [
        *crossed_with(task, size["built"], what=BUILT, sets=size["sets"]),
        *crossed(what=REDUCED, elements=size["elements"], pairs=size["pairs"]),
        *crossed(what=TOLD, bits=size["bits"], draws=size["draws"]),
        *crossed_with(("tokens", "rank", "bits"), size["counted"], what=COUNTED),
        *crossed_with(task, size["trained"], what=TRAINED, **run),
    ]


def run(unit: Unit) -> Row:
    parts = {BUILT: _built, REDUCED: _reduced, TOLD: _told, COUNTED: _counted, TRAINED: _trained}
    return parts[unit["what"]](unit)


def _counted(unit: Unit) -> Row:
    return {"order": 3, "heads": af.bounds.matching(unit["tokens"], unit["rank"], unit["bits"]).heads_needed}


def _trained(unit: Unit) -> Row:
    task = (unit["order"], unit["tokens"], unit["modulus"])
    accuracy, spread, share = trained_accuracy(*task, HEADS, RANK, unit["steps"], unit["seed"])
    return {"heads": HEADS, "rank": RANK, "accuracy": accuracy, "spread": spread, "share": share}


def trained_accuracy(order: int, tokens: int, M: int, H: int, r: int, steps: int, seed: int) -> tuple[float, ...]:
    """(balanced accuracy on fresh sets, its standard error, share of tokens with a match): order 2 or 3, N tokens of
    Z_M, one layer of H heads of rank and value width r with free weights, trained to mark tokens that have a match.

    Tokens are residues mod M with a free embedding each; a token attends to all tokens and a null; an MLP reads the
    token and what the heads brought. The task is Match2 or Match3 at every token of uniform sets; with M = N/ln 2 for
    pairs and N(N+1)/(2 ln 2) for triples about half of the tokens have a match.
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


def _sets(random: np.random.Generator, tokens: int, modulus: int, count: int) -> NDArray[np.int64]:
    """Half of them uniform, half of few close residues and their near negatives, whose sums are often 0 or ±1."""
    some = random.integers(0, modulus, (count - count // 2, tokens))
    base = random.integers(0, modulus, (count // 2, 2))
    near = np.stack([base[:, 0], base[:, 1], -base[:, 0] + 1, -base[:, 0] - base[:, 1] + 1, -base.sum(axis=1)], axis=1)
    picked = np.take_along_axis(near, random.integers(0, 5, (count // 2, tokens)), axis=1)
    return np.concatenate([some, (picked + random.integers(-1, 2, picked.shape)) % modulus])


def _built(unit: Unit) -> Row:
    order, tokens, modulus = unit["order"], unit["tokens"], unit["modulus"]
    net = af.matching(tokens, modulus, order)
    x = _sets(np.random.default_rng([order, tokens, modulus]), tokens, modulus, unit["sets"])
    wanted = net.exact(x)
    answers = [_in_parts(net, x, (tokens + (tokens**2 if order == 3 else 1)) ** 2)]
    answers += [_in_parts(net.third_order, x, tokens**3)] if order == 3 else []
    right = np.stack([(out > 0.5) == wanted for out in answers])
    margin = min(float(np.abs(out - 0.5).min()) for out in answers) * (1 if right.all() else -1)
    numbers = {"heads": net.cost.heads, "cases": right.size, "accuracy": float(right.mean()), "proved": net.margin}
    return {"margin": margin, "share": float(wanted.mean()), "rank": 2, **numbers}


def _in_parts(answer: Callable[[Any], Any], x: NDArray[np.int64], products: int) -> NDArray[np.float64]:
    """Some sets at a time, so that memory stays in bounds: `products` is how many scores a set has."""
    step = max(1, 2**22 // products)
    return np.concatenate([answer(x[start : start + step]) for start in range(0, len(x), step)])


def _reduced(unit: Unit) -> Row:
    """All pairs of sets where there are at most `pairs` of them, else so many random ones of few elements."""
    elements, most = unit["elements"], unit["pairs"]
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
    decided_ = _in_parts(net.third_order, x, x.shape[1] ** 3)[:, 0] > 0.5
    right = (net.exact(x)[:, 0] == meet) & (decided_ == meet)
    numbers = {"tokens": x.shape[1], "modulus": modulus, "cases": len(pairs), "accuracy": float(right.mean())}
    return {"order": 3, "share": float(meet.mean()), **numbers}


def _told(unit: Unit) -> Row:
    """A random layer of 4 heads, values of width 3, 33 tokens: the worst error of what two parties rebuild."""
    random, bits = np.random.default_rng(2), unit["bits"]
    heads, width, rank, n = 4, 6, 3, 16
    shapes = ((width, 3), (width, 3), (width, rank), (rank, width))
    drawn = [[random.normal(size=s) / math.sqrt(width) for s in shapes] for _ in range(heads)]
    layer = af.network.TokenLayer(tuple(af.network.TokenHead(f"h{h}", *parts) for h, parts in enumerate(drawn)))
    names = tuple(f"c{k}" for k in range(width))
    network = af.network.TokenNetwork(names, (layer,), np.zeros((0, width)), np.eye(width), names)
    worst = 0.0
    for _ in range(unit["draws"]):
        X = random.uniform(-1, 1, (2 * n + 1, width))
        told = af.limits.converse(network, X[0], X[1 : n + 1], X[n + 1 :], bits)
        assert told.bits == heads * (rank + 2) * bits
        worst = max(worst, told.error)
    return {"tokens": 2 * n + 1, "heads": heads, "rank": rank, "cases": unit["draws"], "error": worst}


def judge(table: Rows) -> Verdict:
    """Refuted when a construction errs or has a margin of 0.3 or less, when the reduction fails on a pair of sets, or
    when bits do not rebuild the layer (1e-6 at 24 of them). With limits when layers trained on triples do as well as on
    pairs of the same modulus: then the separation is not seen at these sizes.
    """
    built, reduced, told, counted, trained = (table.where(what=w) for w in (BUILT, REDUCED, TOLD, COUNTED, TRAINED))
    wrong = built.fails(lambda row: row["accuracy"] == 1.0 and row["margin"] > MARGIN and row["proved"] >= MARGIN)
    who = "the construction of order {order}, N = {tokens}, M = {modulus} has "
    faults = wrong.say(who + "accuracy {accuracy:.4f}, margin {margin:.3f}")
    faults += reduced.fails(lambda row: row["accuracy"] >= 1.0).say("the reduction fails at {tokens} tokens")
    if told.fails(lambda row: row["bits"] < 24 or row["error"] <= SAME):
        faults.append("24 bits do not rebuild the layer to 1e-6")
    words = [
        f"{len(built)} constructions, up to N = {max(built.of('tokens'))} and M = {max(built.of('modulus')):,}: "
        f"accuracy {min(built.of('accuracy')):.4g} on {sum(built.of('cases')):,} answers, least margin "
        f"{min(built.of('margin')):.3f} (proved {min(built.of('proved')):≥3}).",
    ]
    for row in reduced:
        said = f"{row['accuracy']:.1%} of {row['cases']:,} right."
        words.append(f"Disjointness of sets of {(row['tokens'] - 1) // 2} by triples: {said}")
    needed = counted.say("N = {tokens:,}, r = {rank}, p = {bits}: at least {heads}")
    words += [
        f"Two parties rebuild a layer to {', '.join(told.say('{error:.1e} ({bits} bits)'))}.",
        "Heads that one layer needs for triples, if its answers survive rounding what a head sums up to p bits: "
        + "; ".join(needed)
        + ".",
    ]
    gaps = []
    for n, m, here in trained.by("tokens", "modulus"):
        groups = sorted(here.where(order=(2, 3)).by("order"))
        medians = {order: rows.median("accuracy") for order, rows in groups}
        for order, rows in groups:
            accuracy = rows.middle("accuracy", ".3f")
            words.append(f"Trained, N = {n}, M = {m}, order {order}: balanced accuracy {accuracy}.")
        if len(medians) == 2:
            gaps.append(medians[2] > medians[3] + 0.02)
    seen = bool(gaps) and all(gaps)
    limit = "" if seen else "Constructions and bits hold; trained layers show no gap at these sizes."
    end = "All exact statements hold. The gap of trained layers goes the same way; it proves nothing by itself."
    return decided(words, faults, limit, end)


def draw(table: Rows) -> Any:
    figure, (left, middle, right) = panels(3, width=4.4)
    built, told, trained = (table.where(what=what) for what in (BUILT, TOLD, TRAINED))
    kinds = {2: ("pairs", NETWORKS[1]), 3: ("triples", NETWORKS[0])}
    for order, (name, colour) in kinds.items():
        rows = built.where(order=order)
        curve(left, rows, "modulus", "margin", "o", color=colour, label=f"{name}: least measured")
        curve(left, rows, "modulus", "proved", "_", color=colour, ms=14, mew=2, label=f"{name}: proved")
    left.axhline(MARGIN, color=BOUND, ls="--", lw=1)
    note = f"one head; accuracy {min(built.of('accuracy'), default=0):.4g}"
    texts, shape = ("modulus M", "distance of outputs from ½"), {"ylim": (0, 0.62), "legend": "lower right"}
    labelled(left, "Constructed", note, *texts, log="x", **shape)
    curve(middle, told, "bits", "error", "o-", color=NETWORKS[2])
    middle.axhline(SAME, color=BOUND, ls="--", lw=1)
    texts = ("bits of every number sent", "error of the rebuilt layer")
    labelled(middle, "The protocol", "H (r + 2) p bits are all that one party says", *texts, log="y")
    groups = trained.by("order", "tokens", "modulus")
    for place, (order, _, _, rows) in enumerate(groups):
        right.plot([place] * len(rows), rows.of("accuracy"), "o", color=kinds[order][1])
    right.axhline(0.5, color=FAINT, ls=":", lw=1)
    names = [f"{kinds[order][0]}\nN={n}, M={m}" for order, n, m, _ in groups]
    shape = {"y": "balanced accuracy", "ylim": (0.45, 1.02), "xlim": (-0.5, max(len(names), 1) - 0.5)}
    note = f"{HEADS} heads of rank {RANK} and an MLP; each mark a seed"
    labelled(right, "One standard layer, trained", note, xticks=names, **shape)
    return figure


SHOWN = [[8192, 1, 8], [8192, 64, 32], [131072, 1, 32], [131072, 64, 32]]
STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"what": (BUILT, REDUCED, TOLD, COUNTED, TRAINED)},
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
    counted=(SHOWN[:1], SHOWN, SHOWN),
    trained=(
        [[2, 6, 10], [3, 6, 10]],
        [[2, 8, 12], [2, 8, 52], [3, 8, 52]],
        [[2, 8, 52], [3, 8, 52], [2, 16, 196], [3, 16, 196]],
    ),
    seeds=(1, 3, 3),
    steps=(8, 600, 2000),
)
