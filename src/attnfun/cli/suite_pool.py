"""Rows of a suite in parallel worker processes; a crash or a time-out costs one row.

A thread a worker sends one target at a time and waits for its row. A worker that dies, or is killed because its time is
up, is replaced by a new one before the next target.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import Any

from attnfun.cli.suite_worker import READY, Case, Row, failed

# The worker sees the parent's modules, and never a module that happens to lie in the working directory (-P).
BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from attnfun.cli.suite_worker import main; main()"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Lost(Exception):
    """The worker ended without an answer; the failure record says why, after so many seconds."""

    def __init__(self, why: dict[str, Any], seconds: float = 0.0) -> None:
        super().__init__(why["reason"])
        self.why, self.seconds = why, seconds


class Worker:
    """One process, started when it is first needed and again after each loss."""

    def __init__(self, alone: bool) -> None:
        self._alone = alone
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        self._lock = threading.Lock()  # no process is started once the worker is closed

    def ask(self, task: dict[str, Any], timeout: float | None) -> Row:
        """The worker's answer; Lost if it crashed or took longer than `timeout` (its start does not count)."""
        process = self._running()
        start = time.perf_counter()
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout, stop) if timeout is not None else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        line = _exchange(process, json.dumps(task) + "\n")
        if timer is not None:
            timer.cancel()
            timer.join()  # after this, `late` is decided
        if late.is_set() or not line.endswith("\n"):
            code = self._end()
            if not line.endswith("\n"):
                why = _time_out(timeout) if late.is_set() else _crash(code)
                raise Lost(why, time.perf_counter() - start)
        row: Row = json.loads(line)
        return row

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._end()

    def _running(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise Lost({"status": "error", "reason": "interrupted"})
            if self._process is not None and self._process.poll() is None:
                return self._process
            process = self._process = _start(self._alone)
        if _exchange(process, "").strip() != READY:
            raise Lost(_crash(self._end()))
        return process

    def _end(self) -> int:
        """Kill the process if it still runs; its exit code."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return 0
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # a pipe whose reader is gone still holds our last line
                    pipe.close()
        return code


def _start(alone: bool) -> subprocess.Popen[str]:
    environment = dict(os.environ)
    if not alone:
        environment = dict.fromkeys(ONE_THREAD, "1") | environment
    return subprocess.Popen(
        [sys.executable, "-P", "-c", BOOT, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if environment.get("ATTNFUN_DEBUG") else subprocess.DEVNULL,
        encoding="utf-8",
        env=environment,
    )


def _exchange(process: subprocess.Popen[str], text: str) -> str:
    """Send a line, wait for a line; what there is of it if the process ends first."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(text)
        process.stdin.flush()
        return process.stdout.readline()
    except (BrokenPipeError, ValueError):  # died, or was closed by another thread
        return ""


def _time_out(timeout: float | None) -> dict[str, Any]:
    return {"status": "infeasible", "reason": f"time-out after {timeout:g} s"}


def _crash(code: int) -> dict[str, Any]:
    if code >= 0:
        how = f"exit code {code}"
    else:
        how = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        how += " (out of memory?)" if how == "SIGKILL" else ""
    return {"status": "error", "reason": f"the process of this target ended early: {how}"}


def run_cases(
    cases: Sequence[Case],
    options: dict[str, Any],
    jobs: int,
    timeout: float | None,
    news: Callable[[str, bool], None],
) -> list[Row]:
    """A row a case, in the order of `cases`; `news(name, done)` at the start and at the end of each."""
    count = max(1, min(jobs, len(cases)))
    workers = [Worker(alone=count == 1) for _ in range(count)]
    idle: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def one(case: Case) -> Row:
        worker = idle.get()
        news(case["name"], False)
        try:
            return worker.ask({"case": case, "options": options}, timeout)
        except Lost as loss:
            return failed(case, options, loss.why, loss.seconds)
        finally:
            news(case["name"], True)
            idle.put(worker)

    with ThreadPoolExecutor(count) as threads:
        try:
            futures = [threads.submit(one, case) for case in cases]
            for future in as_completed(futures):
                future.result()
            return [future.result() for future in futures]
        finally:  # also on Ctrl-C: nothing is left running
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.close()
