"""`make float32`: the shipped suites built for float32: how many are proved, how many measure well in torch.

Two figures. *proved*: the target compiled with dtype="float32" at 1e-4 of its range, with its certificate. *measured*:
the best of the networks asked for at 1e-4, 3e-5 and 1e-5 of the range, whether proved or not, run by torch in float32
at random points of the box that are float32 numbers, and compared with the expression at those points in float64. The
second is a measurement and not a bound; it stops at the first network that is within 1e-5.
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

import attnfun as af
from attnfun.cli.suite import read_suite, select
from attnfun.kinds.function.view import Approximant
from bench import Row, asked, table

COLUMNS = ("suite", "target", "status", "proved bound", "keys", "measured", "measured at")
PROVED_AT = 1e-4
MEASURED_WITHIN = 1e-5
ASKED = (1e-4, 3e-5, 1e-5)
SUITES = ("classic", "feynman", "genz")


def measured(net: Approximant, points: int) -> float:
    """The largest error of `to_torch()` in float32 at random float32 points of the box."""
    import torch

    torch.set_num_threads(1)
    box = net.target.box
    X = np.random.default_rng(1).uniform(box.low_array, box.high_array, (points, box.dim)).astype(np.float32)
    low, high = box.low_array.astype(np.float32), box.high_array.astype(np.float32)
    low = np.where(low < box.low_array, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high > box.high_array, np.nextafter(high, np.float32(-np.inf)), high)
    X = np.clip(X, low, high)
    with torch.no_grad():
        found = net.to_torch("float32")(torch.tensor(X)).numpy().astype(np.float64).reshape(points, -1)
    truth = np.asarray(net.target.values(X.astype(np.float64))).reshape(points, -1)
    return float(np.abs(found - truth).max())


def row_of(case: dict[str, str], points: int) -> Row:
    row: Row = {"suite": case["suite"], "target": case["name"], "status": "", "proved bound": None, "measured": None}
    start = time.perf_counter()
    for eps in ASKED:
        try:
            ask = {"eps": eps, "relative": True, "dtype": "float32", "accept": "sampled"}
            net = af.compile(case["formula"], domain=case["domain"], **ask)
        except af.AttnfunError as error:
            row["status"] = row["status"] or type(error).__name__
            row.setdefault("reason", str(error))
            continue
        record = net.certificate
        assert record.eps is not None
        whole = record.eps / eps
        error = measured(net, points) / whole
        if record.status is af.Status.PROVED and error * whole > record.error[1]:
            row["sound"] = False
        if eps == PROVED_AT:
            row |= {"status": str(record.status), "keys": net.cost.keys, "seconds": time.perf_counter() - start}
            row["proved bound"] = record.error[1] / whole if record.status is af.Status.PROVED else None
            if record.reason:
                row["reason"] = record.reason
        if row["measured"] is None or error < row["measured"]:
            row |= {"measured": error, "measured at": eps}
        if error <= MEASURED_WITHIN:
            break
    return row


def figures(rows: list[Row]) -> list[str]:
    proved = sum(row["proved bound"] is not None for row in rows)
    within = sum(row["measured"] is not None and row["measured"] <= MEASURED_WITHIN for row in rows)
    return [
        f"{proved} of {len(rows)} proved at {PROVED_AT:g} of the range in float32",
        f"{within} of {len(rows)} within {MEASURED_WITHIN:g} of the range as measured in torch float32",
    ]


def head(rows: list[Row]) -> list[str]:
    note = "Bounds and errors are fractions of the range; *measured at* is the ε asked for of the one measured."
    return ["# The suites in float32", "", *(f"* {line}." for line in figures(rows)), "", note, ""]


def missed(rows: list[Row]) -> list[str]:
    reasons = [f"* {row['target']}: {row.get('reason', '')[:400]}" for row in rows if row["proved bound"] is None]
    return ["", "Not proved:", "", *reasons] if reasons else []


def main() -> int:
    options = asked(
        __doc__,
        only={"help": "names or patterns joined by commas, or a count of rows spread evenly"},
        jobs={"type": int, "default": 2, "help": "worker processes"},
        points={"type": int, "default": 20_000, "help": "random points per target"},
    )
    cases = select([case for name in SUITES for case in read_suite(name)], options.only)
    with ProcessPoolExecutor(options.jobs) as pool:
        return table(options, pool.map(partial(row_of, points=options.points), cases), COLUMNS, head, missed)


if __name__ == "__main__":
    sys.exit(main())
