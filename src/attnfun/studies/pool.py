"""Units in processes: here by joblib's loky, elsewhere by its dask backend. Results come as they are done.

A unit that raises is a result like any other, with the reason. A process that dies takes no other unit with it: those
that may have been its own are tried once more, each alone, and what dies again is a result too. On a cluster dask hands
the units of a lost worker to the others by itself.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.studies.store import fingerprint, unit_key
from attnfun.studies.study import Study, Unit

Result = dict[str, Any]
DIED = "its process died: killed, or out of memory"
_ANSWER = 10  # seconds for a scheduler and its first worker to say anything
_PATIENCE = 60  # seconds a cluster may be without workers while they are restarted
_GO_ON = "; --resume goes on with what was done"
_one_at_a_time = threading.Lock()  # threads of one worker would share torch's settings and the times


@dataclass(frozen=True)
class Task:
    """One unit of a study, and the key under which its result is kept.

    `imports` are the packages that any unit of the run needs. A worker imports them before its first one: joblib starts
    a worker anew that has grown much since then (a leak, it thinks), and a late import of torch would look like it.
    """

    study: Study
    unit: Unit
    key: str
    imports: tuple[str, ...] = ()


class Died(Exception):
    """Processes died; the first `suspects` tasks without a result may be why."""

    def __init__(self, suspects: int) -> None:
        super().__init__(DIED)
        self.suspects = suspects


class Pool(Protocol):
    def results(self, tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order in which they come; Died where some will not."""


def run_all(pool: Pool, tasks: Sequence[Task]) -> Iterator[Result]:
    """One result a task, whatever happens to the processes."""
    waiting = list(tasks)
    while waiting:
        done: set[str] = set()
        try:
            for result in pool.results(waiting):
                done.add(result["key"])
                yield result
            return
        except Died as death:
            waiting = [task for task in waiting if task.key not in done]
            suspects, waiting = waiting[: death.suspects], waiting[death.suspects :]
        for task in suspects:
            try:
                yield from pool.results([task])
            except Died:
                yield {"key": task.key, "error": DIED}


def run_task(task: Task, parent: int | None) -> Result:
    """In the worker: the rows and times of one unit, or why there are none. One thread, whatever the machine has."""
    if parent is not None:
        _end_with(parent)
    from threadpoolctl import threadpool_limits

    with _one_at_a_time, threadpool_limits(1):
        if task.key != unit_key(task.study, task.unit, fingerprint(task.study)):
            return {"key": task.key, "error": "the worker has another version of attnfun or of a package it stands on"}
        try:
            for name in task.imports:
                import_module(name)
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(1)
            clock, cpu = time.perf_counter(), time.process_time()
            rows = task.study.rows(task.unit)
            times = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
        except Exception as error:
            return {"key": task.key, "error": one_line(error)}
        finally:
            gc.collect()
    return {"key": task.key, "unit": task.unit, "rows": rows, **{k: round(v, 4) for k, v in times.items()}}


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, AttnfunError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


_watching: set[int] = set()


def _end_with(parent: int) -> None:
    """Let this worker end when the process that started it has: a killed run leaves no one computing for nobody."""
    if os.getppid() != parent or parent in _watching:
        return
    _watching.add(parent)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Local:
    """`jobs` processes of this machine. Even one job is a process of its own, so that it can die alone."""

    def __init__(self, jobs: int | None) -> None:
        import joblib

        self.jobs = jobs or joblib.cpu_count()

    def results(self, tasks: Sequence[Task]) -> Iterator[Result]:
        from concurrent.futures.process import BrokenProcessPool

        from joblib import Parallel, delayed, parallel_config

        jobs = min(self.jobs, len(tasks))  # joblib starts as many processes as it is told, needed or not
        ahead = "2*n_jobs" if jobs > 1 else 1  # joblib runs n_jobs=1 in this process
        options = {"n_jobs": max(2, jobs), "batch_size": 1, "pre_dispatch": ahead}
        try:
            with parallel_config(backend="loky", inner_max_num_threads=1):
                parallel = Parallel(**options, return_as="generator_unordered")
            yield from parallel(delayed(run_task)(task, os.getpid()) for task in tasks)
        except BrokenProcessPool:
            raise Died(jobs) from None  # units are handed out in order: the first without a result were under way


class Cluster:
    """The workers of a dask scheduler.

    joblib's backend waits for ever for a unit that dask has given up after the loss of several workers, and for a
    result that was lost with its worker on the way here. So it works in a thread, and this one looks what dask does.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def results(self, tasks: Sequence[Task]) -> Iterator[Result]:
        news: queue.Queue[Result | BaseException | None] = queue.Queue()
        with _client(self.address) as client:  # a new one each time: it knows no units but these
            threading.Thread(target=_send, args=(client, tasks, news), daemon=True).start()
            idle, alone = 0, 0
            while True:
                try:
                    item = news.get(timeout=1.0)
                except queue.Empty:
                    states = {state.status for state in client.futures.values()}
                    idle = idle + 1 if states and "pending" not in states else 0
                    alone = alone + 1 if client.status != "running" or not client.nthreads() else 0
                    if idle >= 3:
                        raise Died(len(tasks)) from None
                    if alone >= _PATIENCE:
                        raise AttnfunError(f"the scheduler at {self.address} has no workers left{_GO_ON}") from None
                    continue
                idle, alone = 0, 0
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise AttnfunError(f"the cluster at {self.address} failed: {one_line(item):.200}{_GO_ON}") from item
                yield item


def _send(client: Any, tasks: Sequence[Task], news: queue.Queue[Any]) -> None:
    from joblib import Parallel, delayed, parallel_config

    try:
        with parallel_config(backend="dask", client=client, wait_for_workers_timeout=_PATIENCE):
            parallel = Parallel(batch_size=1, pre_dispatch="all", return_as="generator_unordered")
            for result in parallel(delayed(run_task)(task, None) for task in tasks):
                news.put(result)
        news.put(None)
    except BaseException as error:
        news.put(error)


def _client(address: str) -> Any:
    from distributed import Client

    for name in ("distributed", "distributed.client"):  # what becomes of lost workers is said here, once
        logging.getLogger(name).setLevel(logging.CRITICAL)
    scheme, _, place = address.rpartition("://")
    if scheme in ("", "tcp", "tls") and not re.fullmatch(r".+:\d+", place):  # a Client would wait, and not end quietly
        raise InvalidRequest(f"--cluster {address!r:.80}: a scheduler is written as tcp://HOST:PORT")
    try:
        return Client(address, timeout=_ANSWER, set_as_default=False)
    except Exception as error:
        raise InvalidRequest(f"no dask scheduler answers at {address!r} ({one_line(error):.120})") from None


def connected(address: str, studies: Sequence[Study]) -> Cluster:
    """The scheduler at the address, its workers looked at: there are some, single-threaded, with this very attnfun."""
    start = f"dask worker {address} --nthreads 1 --nworkers N"
    with _client(address) as client:
        try:
            client.wait_for_workers(1, timeout=_ANSWER)
        except Exception:
            raise InvalidRequest(f"the scheduler at {address} has no workers: start some with {start}") from None
        if max(client.nthreads().values()) > 1:
            raise InvalidRequest(f"workers at {address} have several threads: start them with {start}")
        try:
            theirs = client.run(_fingerprints, studies).values()
        except Exception as error:
            raise InvalidRequest(f"workers at {address} lack what a unit needs: {one_line(error):.200}") from None
        if any(found != _fingerprints(studies) for found in theirs):
            raise InvalidRequest(f"workers at {address} have another attnfun, Python, NumPy, SciPy or torch than this")
    return Cluster(address)


def _fingerprints(studies: Sequence[Study]) -> list[str]:
    return [fingerprint(study) for study in studies]
