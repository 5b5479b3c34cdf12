"""Targets of a suite, each compiled in a process of its own: a crash or a time-out costs one row.

The pool hands the targets out, here or on a cluster. A worker of the pool lets a child process compile the target and
waits for its row; a child that dies, or is killed because its time is up, is a row like any other, with the reason.
"""

import contextlib
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import attnfun as af
from attnfun.lab import pool
from attnfun.lab.studies.store import surroundings

Case = dict[str, str]
Row = dict[str, Any]
# How a network, and an exception, are written into a row: both are named functions, for they go to other processes.
Record = Callable[[Any, str, float], Row]
Failure = Callable[[BaseException], Row]
_warm: set[Record] = set()


@dataclass(frozen=True)
class Target:
    """One row to be: the case, the options of `compile`, the most seconds, and how its outcome is written.

    A case that names a norm is compiled in that norm.
    """

    key: str
    case: Case
    options: Mapping[str, Any]
    timeout: float | None
    record: Record
    failure: Failure

    def run(self) -> pool.Result:
        self.warm_up()
        return {"key": self.key, "row": _alone(self)}

    def row(self) -> Row:
        """Compiled here and now; whatever goes wrong is the row's own status and reason."""
        start = time.perf_counter()
        try:
            domain = [part.strip() for part in self.case["domain"].split(";") if part.strip()]
            options = dict(self.options) | ({"norm": self.case["norm"]} if self.case.get("norm") else {})
            net = af.compile(self.case["formula"], domain=domain, **options)
            return self.record(net, self.case["name"], time.perf_counter() - start)
        except Exception as error:
            return self.failed(self.failure(error), time.perf_counter() - start)

    def failed(self, why: Row, seconds: float) -> Row:
        """A row without a network: status, reason and nearest of `why`, the sizes empty."""
        blank = dict.fromkeys(("error", "error_low", "layers", "heads", "rank", "keys", "parameters", "slack"))
        asked = {"eps": self.options["eps"], "method": self.options["method"], "seconds": round(seconds, 3)}
        said = {"target": self.case["formula"], "domain": self.case["domain"]}
        return {"name": self.case["name"], **why, **blank, **asked, **said}

    def warm_up(self) -> None:
        """Seconds are those of targets: what Python imports on the way to a first network is imported here."""
        if self.record not in _warm:
            _warm.add(self.record)
            self.record(af.compile("exp(x)", domain="x=0:1", eps=0.1), "", 0.0)
            gc.collect()
            gc.freeze()  # what is here now stays: looking through it after every row would take longer than many rows


def run_suite(
    cases: Sequence[Case],
    options: Mapping[str, Any],
    record: Record,
    failure: Failure,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    timeout: float | None = None,
    progress: Callable[[Case, Row], object] = lambda case, row: None,
) -> None:
    """`progress(case, row)` at the end of each. No row is kept here: memory does not grow with their number."""
    targets = [Target(str(k), case, options, timeout, record, failure) for k, case in enumerate(cases)]
    for result in pool.run_all(_workers(jobs, cluster), targets):
        target = targets[int(result["key"])]
        why = {"status": "error", "reason": result.get("error", "")}
        progress(target.case, result.get("row") or target.failed(why, 0.0))


def _workers(jobs: int | None, cluster: str | None) -> pool.Pool:
    if cluster is not None:
        return pool.connected(cluster, surroundings)
    if jobs == 1 and find_spec("joblib") is None:
        return pool.Here()
    pool.require_joblib("; with --jobs 1 a suite needs no joblib")
    return pool.Local(jobs)


def _alone(target: Target) -> Row:
    """The target's row from a child process; where the child is lost, why. Its start is not part of its time."""
    with warnings.catch_warnings():  # a fork beside the threads of a pool is meant: the child uses none of them
        warnings.simplefilter("ignore", DeprecationWarning)
        context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        # dask marks its workers as daemons, which may have no children; this child ends with its parent by itself
        getattr(multiprocessing.current_process(), "_config", {}).pop("daemon", None)
        ours, theirs = context.Pipe(duplex=False)
        # a daemon: if this process ends meanwhile, by Ctrl-C for instance, it does not wait for the child
        child = context.Process(target=_answer, args=(target, theirs, os.getpid()), daemon=True)
        child.start()
    theirs.close()
    start, said, late = time.perf_counter(), b"", False
    with contextlib.suppress(EOFError, OSError):
        ours.recv_bytes()  # the child is ready
        start = time.perf_counter()
        late = not ours.poll(target.timeout)
        said = b"" if late else ours.recv_bytes()
    if not said:
        child.join(0.0 if late else 0.2)
        child.kill()
    child.join()
    ours.close()
    if said:
        answer = json.loads(said)
        for name in answer["imported"]:  # so that the next child, a copy of this process, need not
            with contextlib.suppress(Exception):
                import_module(name)
        return dict(answer["row"])
    out = {"status": "infeasible", "reason": f"time-out after {target.timeout:g} s"} if late else None
    return target.failed(out or _crash(child.exitcode), time.perf_counter() - start)


def _answer(target: Target, pipe: Any, parent: int) -> None:
    """In the child: Ctrl-C is for those above to answer, and nothing that libraries print is mixed with theirs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pool.end_with(parent)
    warnings.simplefilter("ignore")
    if not os.environ.get("ATTNFUN_DEBUG"):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    target.warm_up()
    known = set(sys.modules)
    pipe.send_bytes(b"ready")
    row = target.row()
    imported = [name for name in sys.modules if name not in known and not name.startswith("_")]
    pipe.send_bytes(json.dumps({"row": row, "imported": imported}).encode())
    os._exit(0)  # at once: a thread of the parent may have held the lock of stderr when the child was copied


def _crash(code: int) -> Row:
    if code >= 0:
        how = f"exit code {code}"
    else:
        how = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        how += " (out of memory?)" if how == "SIGKILL" else ""
    return {"status": "error", "reason": f"the process of this target ended early: {how}"}
