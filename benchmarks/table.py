"""`make bench`: the table of what the project must show, measured in one run.

Sizes and ratios are the result; seconds depend on the machine and are printed for orientation only.
"""

import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import attnfun as af
from bench import Row, asked, cell, memory, table

FRANKE = (
    "0.75*exp(-(9*x-2)**2/4-(9*y-2)**2/4)+0.75*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    "+0.5*exp(-(9*x-7)**2/4-(9*y-3)**2/4)-0.2*exp(-(9*x-4)**2-(9*y-7)**2)"
)
GRAVITY = "G*m1*m2/((x2-x1)**2+(y2-y1)**2+(z2-z1)**2)"
GRAVITY_BOX = "m1=1:2;m2=1:2;G=1:2;x1=3:4;x2=1:2;y1=3:4;y2=1:2;z1=3:4;z2=1:2"
SUM = "sin(3*x)+cos(2*y)*exp(x*y)"
AS_SUM, AS_MLP = "sin 3x + cos 2y · e^{xy}", "the same as an MLP: ReLU units for keys"
AS_GRAVITY = "G m₁ m₂/((x₂ − x₁)² + (y₂ − y₁)² + (z₂ − z₁)²)"
POWERS = ("", "", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹")
SQUARE, UNIT, WIDE, LINE = "x=-1:1;y=-1:1", "x=0:1;y=0:1", "x=-3:3;y=-3:3", "x=-1:1"


@dataclass(frozen=True)
class Case:
    name: str
    shown: str  # how a page writes the target
    target: str
    domain: str
    eps: float
    options: dict[str, Any] = field(default_factory=dict)
    most_keys: int | None = None
    most_slack: float | None = None

    @property
    def on(self) -> str:
        """The domain as a page writes it, sides that are alike as a power."""
        sides = Counter(part.partition("=")[2].replace(":", ", ") for part in self.domain.split(";"))
        return " × ".join(f"[{re.sub('^-', '−', side)}]{POWERS[count]}" for side, count in sides.items())


CASES = (
    Case("sum2", AS_SUM, SUM, SQUARE, 1e-6, {"method": "bernstein"}, 250, 1.6),
    Case("sum2 auto", AS_SUM, SUM, SQUARE, 1e-6, {}, 250, 1.6),
    Case("sum2 1e-3", AS_SUM, SUM, SQUARE, 1e-3, {}, 250, 20),
    Case("sum2 1e-3 mlp", AS_MLP, SUM, SQUARE, 1e-3, {"realise": "mlp"}, None, 20),
    Case("sum2 mlp", AS_MLP, SUM, SQUARE, 1e-6, {"realise": "mlp"}, None, 20),
    Case(
        "seed2d", "sin x + cos y", "sin(x)+cos(y)", WIDE, 0.05, {"method": "partition", "variant": "uniform"}, None, 1.6
    ),
    Case("sin3x", "sin 3x", "sin(3*x)", LINE, 1e-9, {}, 20, 1.3),
    Case("franke", "Franke's function, one head", FRANKE, UNIT, 1e-6, {"max_heads": 1}, 1000, 1.6),
    Case("franke auto", "Franke's function", FRANKE, UNIT, 1e-6, {}, 1000, 1.6),
    Case("three", "sin x + y cos z", "sin(x)+y*cos(z)", "x=-1:1;y=-1:1;z=-1:1", 1e-6, {}, 1500, 2.0),
    Case(
        "million",
        "sin x + cos y, a million cells",
        "sin(x)+cos(y)",
        WIDE,
        0.0062,
        {"method": "partition", "variant": "uniform"},
    ),
    Case("spike", "the spike e^{−(10⁴(x − 0.123456))²}", "exp(-((x-0.123456)*1e4)**2)", LINE, 0.1),
    Case("I.9.18", AS_GRAVITY, GRAVITY, GRAVITY_BOX, 1e-6, {"relative": True}, 250, 20),
    Case("abs", "\\|x\\|", "abs(x)", LINE, 1e-6, {}, 12),
    Case("sqrt", "√x", "sqrt(x)", "x=0:1", 1e-6, {}, 50),
    Case("runge", "1/(1 + 25x²)", "1/(1+25*x**2)", LINE, 1e-6, {}, 16),
    Case("sin20x", "sin 20x", "sin(20*x)", LINE, 1e-6, {}, 40),
    Case("log", "ln x", "log(x)", "x=1e-6:1", 1e-6, {}, 45),
    Case("tanh50x", "tanh 50x", "tanh(50*x)", LINE, 1e-6, {}, 2),
)


def measure(case: Case) -> Row:
    """Compile, save, verify, attack with random points; a refusal is a result too."""
    row: Row = {"name": case.name, "asked": case.eps, "eps": case.eps, "relative": bool(case.options.get("relative"))}
    row |= {"keys_allowed": case.most_keys, "slack_allowed": case.most_slack, "target": case.shown, "on": case.on}
    start = time.perf_counter()
    try:
        net = af.compile(case.target, domain=case.domain, eps=case.eps, **case.options)
    except af.AttnfunError as error:
        return row | {"status": type(error).__name__, "reason": str(error), "seconds": time.perf_counter() - start}
    row["seconds"] = time.perf_counter() - start
    low, high = net.certificate.error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.safetensors"
        net.save(path)
        start = time.perf_counter()
        again = af.verify(path)
        row |= {"verify_seconds": time.perf_counter() - start, "verified": str(again.status)}
        row["file_bytes"] = path.stat().st_size
    box_low, box_high = net.network.box
    X = np.random.default_rng(1).uniform(box_low, box_high, (20_000, len(box_low)))
    start = time.perf_counter()
    values = np.asarray(net(X)).reshape(len(X), -1)
    row["points_per_second"] = len(X) / (time.perf_counter() - start)
    seen = float(np.abs(values - net.target.values(X)).max())
    made = net.certificate
    row |= {"status": str(made.status), "method": made.construction, "proof": made.method}
    row["eps"] = made.eps  # absolute, also where a fraction of the range was asked for
    row |= {name: getattr(net.cost, name) for name in ("layers", "heads", "keys", "parameters")}
    row |= {"bound": high, "low": low, "slack": made.slack if low > 0 else None}
    return row | {"sampled": seen, "sound": seen <= high}


def shown(row: Row) -> Row:
    """The row as a page has it: its ε written out, and its bound."""
    eps = cell(row["eps"]) + (f" ({row['asked']:g} of the range)" if row["relative"] else "")
    return {**row, "ε": eps, "construction": row.get("method", row["status"]), "proved bound": row.get("bound")}


def limited(row: Row) -> Row:
    """The same with what keys and slack may be beside what they are."""
    more = dict[str, str]()
    for name in ("keys", "slack"):
        value, allowed = row.get(name), row[f"{name}_allowed"]
        if value is not None and allowed is not None:
            more[name] = f"{cell(value)} {'≤' if value <= allowed else 'NOT ≤'} {allowed:g}"
    return shown(row) | more


def reasons(rows: list[Row]) -> list[str]:
    said = [f"{row['name']}: {row['reason']}" for row in rows if "reason" in row]
    return ["", *said, f"peak memory of the whole run {memory():.2f} GiB"]


COLUMNS = ("target", "on", "ε", "construction", "proof", "layers", "heads", "keys", "parameters", "proved bound")
TIMES = ("status", "seconds", "verify_seconds", "points_per_second")


def main() -> int:
    page = {"action": "store_true", "help": "the table as docs/functions.md has it"}
    options = asked(__doc__, only={"nargs": "*", "help": "names of the cases to run"}, markdown=page)
    rows = (measure(case) for case in CASES if not options.only or case.name in options.only)
    if options.markdown:
        return table(options, map(shown, rows), (*COLUMNS, "slack"))
    return table(options, map(limited, rows), ("name", *COLUMNS[2:], "slack", *TIMES), after=reasons)


if __name__ == "__main__":
    sys.exit(main())
