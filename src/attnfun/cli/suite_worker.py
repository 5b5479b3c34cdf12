"""One worker process of a suite: a target a line on stdin, its row a line on stdout, both JSON.

The worker owns nothing but its own memory: when it crashes or is killed, the row is lost and nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from typing import Any

from attnfun.cli.arguments import read_domain
from attnfun.cli.records import network_record
from attnfun.cli.render import clean, failure

Case = dict[str, str]
Row = dict[str, Any]
READY = "ready"


def run_case(build: Any, case: Case, options: dict[str, Any]) -> Row:
    """One row; whatever goes wrong is the row's own status and reason."""
    start = time.perf_counter()
    try:
        net = build(case["formula"], domain=read_domain([case["domain"]]), **options)
        return network_record(case["name"], net, time.perf_counter() - start)
    except Exception as error:
        return failed(case, options, failure(error), time.perf_counter() - start)


def failed(case: Case, options: dict[str, Any], why: dict[str, Any], seconds: float) -> Row:
    """A row without a network: status, reason and nearest of `why`, the sizes empty."""
    blank = dict.fromkeys(("error", "error_low", "layers", "heads", "rank", "keys", "parameters", "slack"))
    asked = {"eps": options["eps"], "method": options["method"], "seconds": round(seconds, 3)}
    row: Row = clean(
        {"name": case["name"], **why, **blank, **asked, "target": case["formula"], "domain": case["domain"]}
    )
    return row


def main() -> None:
    """Serve until stdin ends. Ctrl-C is for the parent to answer; prints of libraries go to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from attnfun import verbs

    # Seconds are those of the targets: what Python imports on the way to a first network is imported here.
    run_case(verbs.compile, {"name": "", "formula": "exp(x)", "domain": "x=0:1"}, {"eps": 0.1, "method": "auto"})
    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(run_case(verbs.compile, task["case"], task["options"])), file=answers, flush=True)
