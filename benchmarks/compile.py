"""CPU time here against an older commit, in one run: every formula of the shipped suites compiled, proof included, and
requests of other kinds, the help page and `verify`.

    make bench-compile BASE=<commit>
    python benchmarks/compile.py --base HEAD --only 12 --repeats 1 --json

Each side is one process (`compile_side.py`) that forks for every request. The two sides take turns at each, and the
least of their CPU times counts, so that other work on the machine weighs on neither. A named request runs once: some
take a minute there. Equal is: the bits of all weights, and of all that the certificate says. It fails where something
is refused that was not, or has more keys.
"""

import json
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain, starmap
from pathlib import Path
from typing import Any

from attnfun.cli.suite import read_suite, select
from bench import Row, asked, table
from compile_side import NAMED

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "goldens"))
from goldens import sides

SUITES = ("classic", "feynman", "genz")


class Side:
    """A process that compiles with one source."""

    def __init__(self, source: Path, env: dict[str, str]) -> None:
        command = [sys.executable, str(Path(__file__).with_name("compile_side.py"))]
        self.run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        if Path(self._line().strip()).resolve() != source.resolve():
            raise SystemExit(f"compile: the side of {source} ran other sources")

    def _line(self) -> str:
        assert self.run.stdout
        line = self.run.stdout.readline()
        if not line:
            raise SystemExit("compile: a side ended early")
        return line

    def ask(self, request: Row) -> Row:
        assert self.run.stdin
        self.run.stdin.write(json.dumps(request) + "\n")
        self.run.stdin.flush()
        return dict(json.loads(self._line()))

    def close(self) -> None:
        assert self.run.stdin
        self.run.stdin.close()
        self.run.wait()


def formulas(options: Any, pair: list[Side]) -> Iterator[Row]:
    for case in select([case for suite in SUITES for case in read_suite(suite)], options.only):
        request = {**case, "eps": options.eps, "relative": not options.absolute}
        old, new = zip(*([side.ask(request) for side in pair] for _ in range(options.repeats)), strict=True)
        before, after = (min(each["seconds"] for each in answers) for answers in (old, new))
        same = "equal" if all(each["gave"] == old[0]["gave"] for each in (*old, *new)) else "DIFFER"
        refused = isinstance(new[0]["gave"], str) and not isinstance(old[0]["gave"], str)
        row = {"name": case["name"], "base": before, "here": after, "ratio": before / after, "bits": same}
        yield row | {"sound": not refused}


def requests(pair: list[Side]) -> Iterator[Row]:
    for name in NAMED:
        old, new = (side.ask({"named": name}) for side in pair)
        row = {
            "request": name,
            "base": old["seconds"],
            "here": new["seconds"],
            "ratio": old["seconds"] / new["seconds"],
        }
        more = {"keys there": old["keys"], "keys": new["keys"], "bound there": old["bound"], "bound": new["bound"]}
        yield row | more | {"sound": (new["keys"] or 0) <= (old["keys"] or 0)}


def summary(done: list[Row]) -> list[str]:
    base, here = ([row[side] for row in done] for side in ("base", "here"))
    ratios = [row["ratio"] for row in done]
    middle, worst = statistics.median(base) / statistics.median(here), max(base) / max(here)
    return [
        "",
        f"{len(done)} formulas, CPU seconds there and here: median {statistics.median(base):.3g} and "
        f"{statistics.median(here):.3g} (ratio {middle:.3g}), longest {max(base):.3g} and {max(here):.3g} "
        f"(ratio {worst:.3g}), sum {sum(base):.4g} and {sum(here):.4g} (ratio {sum(base) / sum(here):.3g}).",
        f"Ratio of a formula: median {statistics.median(ratios):.3g}, least {min(ratios):.3g}, "
        f"most {max(ratios):.3g}. {sum(row['bits'] == 'equal' for row in done)} of {len(done)} have equal bits.",
    ]


def main() -> int:
    options = asked(
        __doc__,
        base={"default": "HEAD", "help": "the commit to compare with"},
        only={"help": "names with * and ?, joined by commas, or a count of rows spread evenly"},
        eps={"type": float, "default": 1e-6},
        absolute={"action": "store_true", "help": "eps itself, not a fraction of each target's range"},
        repeats={"type": int, "default": 3, "help": "turns of both sides at each formula; the least time counts"},
    )
    done: list[Row] = []
    with sides(options.base) as both, ExitStack() as stack:
        pair = list(starmap(Side, both.values()))
        for side in pair:
            stack.callback(side.close)
        every = formulas(options, pair)
        if options.json:
            done = list(every)
        else:
            shown = Namespace(json=False, output=None)
            columns = ("name", "base", "here", "ratio", "bits")
            table(shown, map(partial(kept, done), every), columns, after=summary)
        columns = ("request", "base", "here", "ratio", "keys there", "keys")
        rows = chain(done if options.json else [], requests(pair))
        status = table(options, rows, columns, after=lambda _: summary(done))
    return status or int(not all(row["sound"] for row in done))


def kept(done: list[Row], row: Row) -> Row:
    done.append(row)
    return row


if __name__ == "__main__":
    sys.exit(main())
