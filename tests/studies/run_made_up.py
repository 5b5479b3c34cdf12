"""`attnfun reproduce` with made-up studies: python run_made_up.py NAME UNITS SLEEP ARGUMENT..."""

from __future__ import annotations

import sys
from pathlib import Path

from attnfun.cli import main
from attnfun.lab.studies import study as registry

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from studies import made_up

    name, count, sleep, *arguments = sys.argv[1:]
    registry.find = lambda asked: made_up.study(asked, int(count), sleep=float(sleep))
    raise SystemExit(main(["reproduce", name, *arguments]))
