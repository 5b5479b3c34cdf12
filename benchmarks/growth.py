"""Growth, for `make bench-rivals`: keys, time to build and time a point against ε, dimension, size, tokens, table.

A line is a family of requests that differ in one number alone. Each is built with its proof and evaluated at random
points of its domain. Seconds are those of the processor, of one thread.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import curve, labelled, panels
from attnfun.lab.studies.study import HOLDS, Row, Rows, Size, Study, Unit, Verdict
from contest import spent, timed, warmed_up

GRAVITY = "G*m1*m2/((x2-x1)**2+(y2-y1)**2+(z2-z1)**2)"
GRAVITY_BOX = "m1=1:2;m2=1:2;G=1:2;x1=3:4;x2=1:2;y1=3:4;y2=1:2;z1=3:4;z2=1:2"
SUM, SQUARE = "sin(3*x)+cos(2*y)*exp(x*y)", "x=-1:1;y=-1:1"
UTILITY = "exp(-2*((x1 - y1)**2 + (x2 - y2)**2))"


def bell(n: int) -> dict[str, str]:
    names = [f"x{k}" for k in range(1, n + 1)]
    squares = " + ".join(f"({name} - 0.3)**2" for name in names)
    return {"target": f"exp(-({squares}))", "domain": ";".join(f"{name}=0:1" for name in names)}


def terms(n: int) -> dict[str, str]:
    return {"target": " + ".join(f"sin({k}*x + y)/{k}" for k in range(1, n + 1)), "domain": "x=0:1;y=0:1"}


def retrieved(n: int) -> Any:
    left, right = ({f"{side}{k}": (0, 1) for k in (1, 2)} for side in "xy")
    keys = np.random.default_rng(0).random((n, 2))
    return af.retrieve(UTILITY, left, right, keys, 1e-3, symmetric=True, beta=100.0)


AXES: dict[str, tuple[str, str, dict[str, tuple[Callable[[Any], Any], list[float]]]]] = {
    "eps": (
        "ε",
        "a point",
        {
            "sin 3x + cos 2y · exp(xy)": (lambda eps: af.compile(SUM, SQUARE, eps), [10.0**-k for k in range(1, 11)]),
            "the same in one head": (
                lambda eps: af.compile(SUM, SQUARE, eps, method="bernstein"),
                [10.0**-k for k in range(1, 10)],
            ),
            "sin 20x": (lambda eps: af.compile("sin(20*x)", "x=-1:1", eps), [10.0**-k for k in range(1, 11)]),
            "I.9.18": (lambda eps: af.compile(GRAVITY, GRAVITY_BOX, eps), [10.0**-k for k in range(1, 11)]),
        },
    ),
    "dimension": (
        "variables",
        "a point",
        {
            "a bell": (lambda n: af.compile(**bell(n), eps=1e-4), [1, 2, 3, 4, 6, 8, 10, 16, 32]),
            "the same in one head": (lambda n: af.compile(**bell(n), eps=1e-4, method="bernstein"), [1, 2, 3, 4]),
        },
    ),
    "size": (
        "terms",
        "a point",
        {
            "Σ sin(kx + y)/k, ε = 1e-4": (lambda n: af.compile(**terms(n), eps=1e-4), [1, 2, 4, 8, 16, 32, 64]),
            "Σ sin(kx + y)/k, ε = 1e-8": (lambda n: af.compile(**terms(n), eps=1e-8), [1, 2, 4, 8, 16, 32]),
        },
    ),
    "tokens": (
        "tokens",
        "a token",
        {
            "sin(x · mean x)": (
                lambda n: af.sequence("sin(x*mean(x))", n, "x=-1:1", 1e-3),
                [2, 4, 8, 16, 32, 64, 128],
            ),
            "x − max x": (lambda n: af.sequence("x - max(x)", n, "x=-1:1", 1e-3), [2, 4, 8, 16, 32, 64]),
        },
    ),
    "table": (
        "cells or keys",
        "a point",
        {
            "sin x + cos y in cells": (
                lambda n: af.compile(
                    "sin(x)+cos(y)", "x=-3:3;y=-3:3", 6.4 / n**0.5, method="partition", variant="uniform"
                ),
                [10**2, 10**3, 10**4, 10**5, 10**6, 10**7],
            ),
            "retrieval": (retrieved, [10**k for k in range(1, 6)]),
        },
    ),
}


def run(unit: Unit) -> Row:
    """Build it, and evaluate it at ten thousand points, of large tables at fewer."""
    make, _ = AXES[unit["axis"]][2][unit["family"]]
    warmed_up()
    start = spent()
    try:
        net = make(unit["at"])
    except af.AttnfunError as error:
        return {"note": str(error)}
    seconds, keys = spent() - start, net.cost.keys
    points = net.target.draw(np.random.default_rng(0), 10_000)[0]
    each = points.shape[1] if points.ndim == 3 else 1
    count = min(10_000, max(100, 10**9 // max(keys, 1))) // each
    return {"keys": keys, "build": seconds, "time": timed(net, points[:count]) / each}


def units(size: Size) -> Iterator[Unit]:
    for family, (_, values) in AXES[size["axis"]][2].items():
        for value in values[: size["most"]]:
            yield {"axis": size["axis"], "family": family, "at": value}


def draw(rows: Rows) -> Any:
    figure, axes = panels(3, width=4.6, height=3.6)
    if not rows:
        return figure
    along, each, _ = AXES[rows[0]["axis"]]
    shown = (("keys", "keys"), ("build", "seconds to build and prove"), ("time", f"nanoseconds {each}"))
    for ax, (column, label) in zip(axes, shown):
        curve(ax, rows, "at", column, "o-", by="family", label="{family}", ms=4)
        labelled(ax, label, "", along, label, log="xy", legend="best" if ax is axes[0] else None)
        if along == "ε":
            ax.invert_xaxis()
    return figure


def study(axis: str) -> Study:
    return Study(
        name=f"growth-{axis}",
        title=f"Growth with {AXES[axis][0]}",
        claim="What a request costs as one number of it grows.",
        source="This project.",
        columns={
            **{"axis": "what grows", "family": "what is asked", "at": "how far it has grown", "keys": "of the network"},
            **{"build": "seconds to build and prove", "time": "nanoseconds a point, or a token"},
            "note": "why there is none",
        },
        sizes={size: {"axis": axis, "most": most} for size, most in (("tiny", 1), ("quick", 3), ("full", None))},
        units=lambda size: list(units(size)),
        run=run,
        judge=lambda table: Verdict(HOLDS, f"{len(table)} requests were measured."),
        draw=lambda table: draw(Rows(table)),
    )
