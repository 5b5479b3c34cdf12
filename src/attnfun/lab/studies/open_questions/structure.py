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

Columns.
    family: what is known of the target; the last two have no structure
    d: variables, each in [−1, 1]
    eps: tolerance in the sup norm
    status: proved, conditional (on the Lipschitz constant), or refused: no method within 100,000 keys
    keys: keys of the network, or of the partition by its formula; none where nothing was sized
    layers: layers of the network
    heads: heads of the network
    method: construction
    proved: bound proved from the stored weights
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, slope, values, where

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


def _chain(names: Sequence[str]) -> str:
    return "sin(" + " + ".join(f"{a}*{b}" for a, b in pairwise(names)) + ")"


def _multilinear(names: Sequence[str]) -> str:
    """Σ over all non-empty sets S of variables of c_S Π S, coefficients standard normal over √(2^d)."""
    import numpy as np

    d = len(names)
    drawn = np.random.default_rng([5, d]).standard_normal(2**d) / math.sqrt(2**d)
    terms = []
    for number in range(1, 2**d):
        chosen = [x for k, x in enumerate(names) if number >> k & 1]
        terms.append(f"({drawn[number]:.4f})*" + "*".join(chosen))
    return " + ".join(terms)


def _middle(*values_: Any) -> Any:
    """The median of the variables: Lipschitz with constant 1, and no expression of the target language."""
    import numpy as np

    return np.median(np.stack([np.asarray(v, dtype=np.float64) for v in values_]), axis=0)


STRUCTURED: dict[str, Callable[[Sequence[str]], str]] = {
    "sparse": lambda names: "exp(x1*x2)",
    "single index": lambda names: f"sin(3*({_joined(names, '{k}*{x}')})/{sum(range(len(names) + 1))})",
    "additive": lambda names: _joined(names, "sin(3*{x})/{d}"),
    "radial": lambda names: f"exp(-({_joined(names, '{x}**2')}))",
    "tree": _tree,
    "product": lambda names: _joined(names, "cos({x})", "*"),
    "low rank": lambda names: _joined(names, "cos({x})", "*") + " + " + _joined(names, "(1 + {x}/3)", "*"),
    "chain of pairs": _chain,
}
GENERIC = ("all products", "Lipschitz only")


def units(size: Size) -> list[Unit]:
    eps = size["eps"]
    made = [{"family": family, "d": d, "eps": eps} for family in size["families"] for d in size["dimensions"]]
    made += [{"family": "all products", "d": d, "eps": eps} for d in size["products"]]
    return made + [{"family": "Lipschitz only", "d": d, "eps": eps} for d in size["dimensions"]]


def run(unit: Unit) -> list[Row]:
    family, d, eps = unit["family"], unit["d"], unit["eps"]
    names = [f"x{k}" for k in range(1, d + 1)]
    method, layers, heads, bound = "none", None, None, None
    box = {name: (-1.0, 1.0) for name in names}
    keys: int | None = None
    status = "refused"
    if family == "Lipschitz only":  # L = 1 on [-1, 1]^d: ⌈√d/ε⌉ cells an axis
        keys, method = math.ceil(math.sqrt(d) / eps) ** d, "partition"
        with suppress(af.Infeasible):
            status = af.compile(_middle, box, eps, lipschitz=1.0, max_keys=MANY).certificate.status.value
    else:
        text = (STRUCTURED.get(family) or _multilinear)(names)
        try:
            made = af.compile(text, box, eps, max_keys=MANY)
        except af.Infeasible:
            pass
        else:
            keys, status = made.cost.keys, made.certificate.status.value
            layers, heads, bound = made.cost.layers, made.cost.heads, made.certificate.error[1]
            method = made.certificate.construction
    return [
        {
            "status": status,
            "keys": None if keys is None else float(keys),
            "layers": layers,
            "heads": heads,
            "method": method,
            "proved": bound,
        }
    ]


def growth(rows: Table) -> float:
    """Local exponent of d at the largest sizes: the slope of log keys over the last two dimensions that have a count.

    Of d^a it is a at every d, of b^d it is about d ln b. NaN where fewer than two counts are.
    """
    known = [row for row in rows if row["keys"] is not None][-2:]
    return slope(values(known, "d"), values(known, "keys"))


def judge(table: Table) -> Verdict:
    """Holds when every structured family is proved at every d and grows like a power of d below 3 at the end, and every
    generic one grows faster; with limits when a structured family is refused somewhere or grows faster; refuted when
    most of them do, or when a generic family needs no more than a power.
    """
    good: list[str] = []
    bad: list[str] = []
    words = ""
    for family in distinct(table, "family"):
        rows = where(table, family=family)
        found, steep = [row for row in rows if row["keys"] is not None], growth(rows)
        if family in GENERIC:
            continue
        fine = all(row["status"] == "proved" and row["proved"] <= row["eps"] for row in rows) and steep < STEEP
        (good if fine else bad).append(family)
        if found:
            words += (
                f"{family}: {found[0]['keys']:.0f} keys at d = {found[0]['d']}, {found[-1]['keys']:.0f} at "
                f"d = {found[-1]['d']}, exponent {steep:.1f}; "
            )
    words = f"Keys for {table[0]['eps']:g}, proved. {words}".rstrip("; ") + ". "
    generic = {f: where(table, family=f) for f in GENERIC if where(table, family=f)}
    tame = [
        family
        for family, rows in generic.items()
        if any(row["keys"] is not None for row in rows) and not growth(rows) >= STEEP
    ]
    for family, rows in generic.items():
        found = [row for row in rows if row["keys"] is not None]
        refused = sum(row["status"] == "refused" for row in rows)
        words += (
            f"Without structure ({family}): {found[0]['keys']:.3g} keys at d = {found[0]['d']}, "
            f"{found[-1]['keys']:.3g} at d = {found[-1]['d']}, exponent {growth(rows):.1f} there; "
            f"{refused} of {len(rows)} refused. "
            if found
            else f"Without structure ({family}): all {len(rows)} refused. "
        )
    if len(bad) > len(good) or tame:
        why = f"{', '.join(tame)} grows no faster than a power" if tame else f"{', '.join(bad)} do not avoid the curse"
        return Verdict(REFUTED, f"Refuted: {why}.", words)
    if bad:
        return Verdict(LIMITS, f"{', '.join(good)} avoid the curse; {', '.join(bad)} do not, or are refused.", words)
    return Verdict(
        HOLDS,
        "In all of these what decides is the size of a formula that composes functions of few variables, not the "
        "number of variables; composition is only one kind of it.",
        words,
    )


def draw(table: Table) -> Any:
    figure, axes = panels(2)
    colours = [*NETWORKS, "#829ab1", "#c99a2e"]
    for colour, family in zip(colours, [f for f in distinct(table, "family") if f not in GENERIC], strict=False):
        rows = [row for row in where(table, family=family) if row["keys"] is not None]
        for ax in axes[0]:
            curve(ax.semilogy, rows, "d", "keys", "o-", color=colour, ms=3, lw=1.1, label=family)
    for marker, family in zip(("s", "^"), GENERIC, strict=True):
        rows = [row for row in where(table, family=family) if row["keys"] is not None]
        for ax in axes[0]:
            built = family != "Lipschitz only"
            label = f"{family}, {'built' if built else 'counted'}"
            curve(ax.semilogy, rows, "d", "keys", f"{marker}--", color="#102a43", ms=4, lw=1, label=label)
    axes[0, 0].set_ylim(1, 2000)
    axes[0, 0].set(xlabel="variables d", ylabel="keys")
    axes[0, 1].set(xlabel="variables d", ylabel="keys")
    axes[0, 0].legend(fontsize=6.5, frameon=False, loc="upper left", ncols=2)
    title(axes[0, 0], f"Keys for a proved error of {table[0]['eps']:g}", "small sizes; no structure leaves the picture")
    title(axes[0, 1], "The same, on the scale of the curse")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        eps=(1e-1, 1e-3, 1e-6),
        families=(["sparse"], list(STRUCTURED), list(STRUCTURED)),
        dimensions=([2, 3], [2, 4, 6, 8, 10], [2, 4, 6, 8, 10, 14]),
        products=([2, 3], [2, 3, 4, 5], [2, 3, 4, 5]),
    ),
    full_time="70 seconds of CPU",
)
