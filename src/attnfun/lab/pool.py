"""Units in processes: here by joblib's loky, elsewhere by its dask backend. Results come as they are done.

A unit that raises is a result like any other, with the reason. A process that dies takes no other unit with it: those
that may have been its own are tried once more, each alone, and what dies again is a result too. On a cluster dask hands
the units of a lost worker to the others by itself.
"""

import gc
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import attnfun as af

Result = dict[str, Any]
DIED = "its process died: killed, or out of memory"
_ANSWER = 10  # seconds for a scheduler and its first worker to say anything
_PATIENCE = 60  # seconds a cluster may be without workers while they are restarted
_AHEAD = 1_000  # units that a scheduler holds at a time; so many workers may join in
_GO_ON = "; --resume goes on with what was done"
_one_at_a_time = threading.Lock()  # threads of one worker would share torch's settings and the times


class Task(Protocol):
    """What a worker runs, sent to it whole: `run` gives a result with the same key."""

    @property
    def key(self) -> str: ...

    def run(self) -> Result: ...


class Died(Exception):
    """Processes died; the first `suspects` tasks without a result may be why."""

    def __init__(self, suspects: int) -> None:
        super().__init__(DIED)
        self.suspects = suspects


class Pool(Protocol):
    def results(self, tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order in which they come; Died where some will not."""


def run_all(pool: Pool, tasks: Sequence[Task]) -> Iterator[Result]:
    """One result per task, whatever happens to the processes."""
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


def run_task(task: Task) -> Result:
    """In the worker: the task's result, or why there is none. One thread, whatever the machine has."""
    from threadpoolctl import threadpool_limits

    with _one_at_a_time, threadpool_limits(1):
        try:
            return task.run()
        except Exception as error:
            return {"key": task.key, "error": one_line(error)}
        finally:
            gc.collect()


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, af.AttnfunError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


_watching: set[int] = set()


def end_with(parent: int) -> None:
    """Let this worker end when the process that started it has: a killed run leaves no one computing for nobody."""
    if os.getppid() != parent or parent in _watching:
        return
    _watching.add(parent)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def require_joblib(way_out: str = "") -> None:
    """joblib is not part of the core: where it is missing, one sentence with the command that installs it."""
    if find_spec("joblib") is None:
        raise af.AttnfunError(f"joblib is not installed: pip install joblib{way_out}")


class Here:
    """One task after the other in this process, without joblib; for tasks that have a process of their own anyway."""

    def results(self, tasks: Sequence[Task]) -> Iterator[Result]:
        return map(run_task, tasks)


class Local:
    """`jobs` processes of this machine. Even one job is a process of its own, so that it can die alone."""

    def __init__(self, jobs: int | None) -> None:
        require_joblib()
        import joblib

        self.jobs = jobs or joblib.cpu_count()

    def results(self, tasks: Sequence[Task]) -> Iterator[Result]:
        from concurrent.futures.process import BrokenProcessPool

        from joblib import Parallel, delayed, parallel_config

        jobs = min(self.jobs, len(tasks))  # joblib starts as many processes as it is told, needed or not
        ahead = "2*n_jobs" if jobs > 1 else 1  # joblib runs n_jobs=1 in this process
        options = {"n_jobs": max(2, jobs), "batch_size": 1, "pre_dispatch": ahead}
        try:
            watch = {"initializer": end_with, "initargs": (os.getpid(),)}  # also those that never get a task
            with parallel_config(backend="loky", inner_max_num_threads=1, **watch):
                parallel = Parallel(**options, return_as="generator_unordered")
            yield from parallel(delayed(run_task)(task) for task in tasks)
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
                        raise af.AttnfunError(f"the scheduler at {self.address} has no workers left{_GO_ON}") from None
                    continue
                idle, alone = 0, 0
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise af.AttnfunError(f"cluster {self.address} failed: {one_line(item):.200}{_GO_ON}") from item
                yield item


def _send(client: Any, tasks: Sequence[Task], news: queue.Queue[Any]) -> None:
    from joblib import Parallel, delayed, parallel_config

    try:
        with parallel_config(backend="dask", client=client, wait_for_workers_timeout=_PATIENCE):
            parallel = Parallel(batch_size=1, pre_dispatch=_AHEAD, return_as="generator_unordered")
            for result in parallel(delayed(run_task)(task) for task in tasks):
                news.put(result)
        news.put(None)
    except BaseException as error:
        news.put(error)


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        what = "--cluster needs dask.distributed, which is not installed"
        raise af.AttnfunError(f"{what}: {af.parts.how_to_install('distributed')}") from None
    for name in ("distributed", "distributed.client"):  # what becomes of lost workers is said here, once
        logging.getLogger(name).setLevel(logging.CRITICAL)
    scheme, _, place = address.rpartition("://")
    if scheme in ("", "tcp", "tls") and not re.fullmatch(r".+:\d+", place):  # a Client would wait, and not end quietly
        raise af.InvalidRequest(f"--cluster {address!r:.80}: a scheduler is written as tcp://HOST:PORT")
    try:
        return Client(address, timeout=_ANSWER, set_as_default=False)
    except Exception as error:
        raise af.InvalidRequest(f"no dask scheduler answers at {address!r} ({one_line(error):.120})") from None


def connected(address: str, surroundings: Callable[..., Any], *about: Any) -> Cluster:
    """The scheduler at the address, its workers looked at: there are some, single-threaded, and `surroundings(*about)`,
    what a result depends on, is the same there as here.
    """
    require_joblib()
    start = f"dask worker {address} --nthreads 1 --nworkers N"
    with _client(address) as client:
        try:
            client.wait_for_workers(1, timeout=_ANSWER)
        except Exception:
            raise af.InvalidRequest(f"the scheduler at {address} has no workers: start some with {start}") from None
        if max(client.nthreads().values()) > 1:
            raise af.InvalidRequest(f"workers at {address} have several threads: start them with {start}")
        try:
            theirs = client.run(surroundings, *about).values()
        except Exception as error:
            raise af.InvalidRequest(f"workers at {address} lack what a unit needs: {one_line(error):.200}") from None
        if any(found != surroundings(*about) for found in theirs):
            raise af.InvalidRequest(f"workers at {address} have another attnfun, Python or numerical package than this")
    return Cluster(address)
