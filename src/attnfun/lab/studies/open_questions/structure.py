"""Which structure avoids the curse of dimension.

Claim. Approximation in general needs a size exponential in the number of variables; compositional structure avoids
it. Open: which other structure does.

Source. Altabaa, Lafferty 2024, arXiv 2402.08856, discussion of the asymmetric case (for relations); the families,
networks and proofs are our own.

Which structure of a target avoids the curse of dimension?

Families of targets, one for every number of variables, are compiled to one tolerance and proved; the keys needed are
held against the number of variables. Two families have no structure to use: a multilinear polynomial with all its 2^d
coefficients drawn at random, and a function of which nothing is known but its Lipschitz constant, whose keys are those
of the partition, counted by its formula; it is asked for, and built where it has at most 100,000.

A full run takes 70 seconds of CPU.

Columns.
    family: what is known of the target; the last two have no structure
    d: variables, each in [−1, 1]
    eps: tolerance in the sup norm
    status: proved, conditional (on the Lipschitz constant), or refused: no method within 100,000 keys
    keys: keys of the network, or of the partition by its formula; none where nothing was sized
    layers: layers of the network
    heads: heads of the network
    method: construction
    proved: ≤ bound proved from the stored weights
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, curve, labelled, panels
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

MANY = 100_000  # keys above which the partition is counted and not built
STEEP = 3.0  # local exponent of d from which on growth is called exponential


def _joined(names: Sequence[str], form: str, between: str = " + ") -> str:
    return between.join(form.format(x=x, k=k + 1, d=len(names)) for k, x in enumerate(names))


def _tree(names: Sequence[str]) -> str:
    """A binary tree of functions of two variables."""
    level = list(names)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        made = [f"sin({a} + {b}/2)" if k % 2 == 0 else f"sin({a} - {b})" for k, (a, b) in enumerate(pairs)]
        level = made + ([level[-1]] if len(level) % 2 else [])
    return level[0]


def _multilinear(names: Sequence[str]) -> str:
    """Σ over all non-empty sets S of variables of c_S Π S, coefficients standard normal over √(2^d)."""
    d = len(names)
    drawn = np.random.default_rng([5, d]).standard_normal(2**d) / math.sqrt(2**d)
    terms = []
    for number in range(1, 2**d):
        chosen = [x for k, x in enumerate(names) if number >> k & 1]
        terms.append(f"({drawn[number]:.4f})*" + "*".join(chosen))
    return " + ".join(terms)


def _middle(*values: Any) -> Any:
    """The median of the variables: Lipschitz with constant 1, and no expression of the target language."""
    return np.median(np.stack([np.asarray(v, dtype=np.float64) for v in values]), axis=0)


STRUCTURED: dict[str, Callable[[Sequence[str]], str]] = {
    "sparse": lambda names: "exp(x1*x2)",
    "single index": lambda names: f"sin(3*({_joined(names, '{k}*{x}')})/{sum(range(len(names) + 1))})",
    "additive": lambda names: _joined(names, "sin(3*{x})/{d}"),
    "radial": lambda names: f"exp(-({_joined(names, '{x}**2')}))",
    "tree": _tree,
    "product": lambda names: _joined(names, "cos({x})", "*"),
    "low rank": lambda names: _joined(names, "cos({x})", "*") + " + " + _joined(names, "(1 + {x}/3)", "*"),
    "chain of pairs": lambda names: "sin(" + " + ".join(f"{a}*{b}" for a, b in pairwise(names)) + ")",
}
GENERIC = ("all products", "Lipschitz only")


def units(size: Size) -> list[Unit]:
    made = crossed(family=size["families"], d=size["dimensions"], eps=size["eps"])
    made += crossed(family="all products", d=size["products"], eps=size["eps"])
    return made + crossed(family="Lipschitz only", d=size["dimensions"], eps=size["eps"])


def run(unit: Unit) -> Row:
    family, d, eps = unit["family"], unit["d"], unit["eps"]
    names = [f"x{k}" for k in range(1, d + 1)]
    box = {name: (-1.0, 1.0) for name in names}
    row: Row = {"method": "none", "status": "refused"}
    if family == "Lipschitz only":  # L = 1 on [-1, 1]^d: ⌈√d/ε⌉ cells per axis
        row |= {"keys": float(math.ceil(math.sqrt(d) / eps) ** d), "method": "partition"}
        with suppress(af.Infeasible):
            row["status"] = af.compile(_middle, box, eps, lipschitz=1.0, max_keys=MANY).certificate.status.value
        return row
    with suppress(af.Infeasible):
        made = af.compile((STRUCTURED.get(family) or _multilinear)(names), box, eps, max_keys=MANY)
        cost, certificate = made.cost, made.certificate
        row = {"keys": float(cost.keys), "layers": cost.layers, "heads": cost.heads, "method": certificate.construction}
        row |= {"status": certificate.status.value, "proved": certificate.error[1]}
    return row


def growth(rows: Rows) -> float:
    """Local exponent of d at the largest sizes: the slope of log keys over the last two dimensions that have a count.

    Of d^a it is a at every d, of b^d it is about d ln b. NaN where fewer than two counts are.
    """
    return Rows(rows.known("keys")[-2:]).slope("d", "keys")


def judge(table: Rows) -> Verdict:
    """Holds when every structured family is proved at every d and grows like a power of d below 3 at the end, and every
    generic one grows faster; with limits when a structured family is refused somewhere or grows faster; refuted when
    most of them do, or when a generic family needs no more than a power.
    """
    good, bad, tame, parts, words = list[str](), list[str](), list[str](), [], []
    text = "{} keys at d = {}, {} at d = {}, exponent {:.1f}".format
    for family, rows in table.by("family"):
        found, steep = rows.known("keys"), growth(rows)
        form = ".3g" if family in GENERIC else ".0f"
        ends = [part for row in (*found[:1], *found[-1:]) for part in (format(row["keys"], form), row["d"])]
        said = text(*ends, steep) if found else ""
        if family in GENERIC:
            refused = len(rows.where(status="refused"))
            share = f"{said} there; {refused} of {len(rows)} refused" if found else f"all {len(rows)} refused"
            words.append(f"Without structure ({family}): {share}.")
            tame += [family] if found and not steep >= STEEP else []
            continue
        proved = rows.where(status="proved").that(lambda row: row["proved"] <= row["eps"])
        (good if len(proved) == len(rows) and steep < STEEP else bad).append(family)
        parts += [f"{family}: {said}"] if found else []
    words = [f"Keys for {table[0]['eps']:g}, proved. {'; '.join(parts)}.", *words]
    faults = [f"{', '.join(tame)} grows no faster than a power"] if tame else []
    faults += [f"{', '.join(bad)} do not avoid the curse"] if len(bad) > len(good) else []
    limit = f"{', '.join(good)} avoid the curse; {', '.join(bad)} do not, or are refused." if bad else ""
    end = (
        "In all of these what decides is the size of a formula that composes functions of few variables, not the "
        "number of variables; composition is only one kind of it."
    )
    return decided(words, faults, limit, end)


def draw(table: Rows) -> Any:
    figure, axes = panels(2)
    heads = (f"Keys for a proved error of {table[0]['eps']:g}", "The same, on the scale of the curse")
    for ax, head in zip(axes, heads, strict=True):
        structured = table.fails(lambda row: row["family"] in GENERIC)
        colours = [*NETWORKS[:7], "#829ab1", "#c99a2e"]
        curve(ax, structured, "d", "keys", "o-", by="family", colours=colours, ms=3, lw=1.1, label="{family}")
        for marker, family, how in (("s--", GENERIC[0], "built"), ("^--", GENERIC[1], "counted")):
            label = f"{family}, {how}"
            curve(ax, table.where(family=family), "d", "keys", marker, color="#102a43", ms=4, lw=1, label=label)
        small = ax is axes[0]
        legend = {"fontsize": 6.5, "loc": "upper left", "ncols": 2} if small else None
        note, limits = ("small sizes; no structure leaves the picture", {"ylim": (1, 2000)}) if small else ("", {})
        labelled(ax, head, note, "variables d", "keys", log="y", legend=legend, **limits)
    return figure


STUDY = described(
    __name__,
    eps=(1e-1, 1e-3, 1e-6),
    families=(["sparse"], list(STRUCTURED), list(STRUCTURED)),
    dimensions=([2], [2, 4, 6, 8, 10], [2, 4, 6, 8, 10, 14]),
    products=([2], [2, 3, 4, 5], [2, 3, 4, 5]),
)
