"""Time to compile, proof included, here against an older commit: every formula of the shipped suites, in one run.

    make bench-compile BASE=<commit>
    python benchmarks/compile.py --base HEAD --only 12 --repeats 1 --json

Each side is one process (`compile_side.py`) that forks for every formula. The two sides take turns at each formula, and
the least of their CPU times counts, so that other work on the machine weighs on neither. Equal is: the bits of all
weights, and of all that the certificate says.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import starmap
from pathlib import Path
from typing import Any

from attnfun.cli.suite import read_suite, select
from bench import Row, asked, table

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


def rows(options: Any) -> Iterator[Row]:
    cases = select([case for suite in SUITES for case in read_suite(suite)], options.only)
    with sides(options.base) as both, ExitStack() as stack:
        pair = list(starmap(Side, both.values()))
        for side in pair:
            stack.callback(side.close)
        for case in cases:
            request = {**case, "eps": options.eps, "relative": not options.absolute}
            old, new = zip(*([side.ask(request) for side in pair] for _ in range(options.repeats)), strict=True)
            before, after = (min(each["seconds"] for each in answers) for answers in (old, new))
            sound = all(each["gave"] == old[0]["gave"] for each in (*old, *new))
            same = "equal" if sound else "DIFFER"
            yield {"name": case["name"], "base": before, "here": after, "ratio": before / after, "bits": same} | {
                "sound": sound
            }


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
        f"most {max(ratios):.3g}. {sum(row['sound'] for row in done)} of {len(done)} have equal bits.",
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
    return table(options, rows(options), ("name", "base", "here", "ratio", "bits"), after=summary)


if __name__ == "__main__":
    sys.exit(main())
