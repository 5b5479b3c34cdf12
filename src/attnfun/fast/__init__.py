"""Fused evaluation: a whole network on block after block of points by one compiled kernel (extra `fast`: numba).

A model's call takes it, for those of its parts (`network/playing.py`) that are work for WORTH exps or more: keys ×
points. Without numba `arrays.py` plays networks by NumPy. The environment variable ATTNFUN_FAST=0 switches all of it
off, ATTNFUN_FAST=1 takes it for every part and asks for numba. Which parts take it depends on the call alone, so the
same call gives the same bits. Searches and proofs never take it: they compute alike with and without.
"""

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.language.numbers import whole_number
from attnfun.network.evaluate import routes
from attnfun.network.head import AnyArray
from attnfun.network.network import Network
from attnfun.network.playing import playing

WORTH = 1 << 22
PLAYERS = {
    "network": "attnfun.fast:network",
    **{name: f"attnfun.fast.tokens:{name}" for name in ("tokens", "gather", "table")},
}
"""What is played (`network/playing.py`) by which function."""
_OFF: ContextVar[bool] = ContextVar("NumPy routes alone", default=False)
_TAPES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


@contextmanager
def off() -> Iterator[None]:
    """NumPy routes alone."""
    token = _OFF.set(True)
    try:
        yield
    finally:
        _OFF.reset(token)


def run(weights: Any, arrays: tuple[Any, ...], threads: int = 1) -> AnyArray:
    """`weights.run(*arrays)`, by the kernels where this call, or a part of it, takes them."""
    count = whole_number("threads", threads, 1)

    def player(name: str, work: float, arguments: tuple[Any, ...]) -> AnyArray | None:
        if name not in PLAYERS or _OFF.get() or not _large(work) or (name != "network" and _kernels() is None):
            return None
        module, _, function = PLAYERS[name].partition(":")
        with playing(None):  # whatever it evaluates itself, it evaluates by NumPy
            found: AnyArray | None = getattr(import_module(module), function)(*arguments, count)
        return found

    with playing(player):
        return weights.run(*arrays)  # type: ignore[no-any-return]


def network(network: Network, X: AnyArray, threads: int) -> AnyArray | None:
    """The network at points (..., inputs) by its tape; None where it has none, or where these are no such points."""
    given, tape = np.asarray(X), taped(network)
    if tape is None or given.ndim == 0 or given.shape[-1] != len(network.inputs) or given.dtype.kind not in "fiub":
        return None
    points = np.ascontiguousarray(given.reshape(-1, given.shape[-1]), dtype=network.dtype)
    if not np.isfinite(points.sum()):  # one quick pass; a sum of finite numbers may overflow
        require(np.isfinite(points).all(), "points must be finite real numbers")
    if _kernels() is None:
        from attnfun.fast.arrays import play as by_numpy

        found = by_numpy(network, tape, points)
    else:
        found = play(network, tape, points, threads)
    return found.reshape(*given.shape[:-1], found.shape[1])


def fused(network: Network, X: AnyArray, threads: int = 1) -> AnyArray:
    """The network at X by the kernels, whatever the size of the call; InvalidRequest where that cannot be."""
    require(_kernels() is not None, "the route fused needs numba, and a place for its cache: pip install numba")
    found = taped(network)
    if found is None:
        raise InvalidRequest(
            f"the route fused does not apply to this network; these do: auto, {', '.join(routes(network))}"
        )
    return play(network, found, X, threads)


def taped(network: Network) -> Any:
    """The tape of a network, made once; None where it has none."""
    if network not in _TAPES:
        from attnfun.fast.tape import tape_of

        _TAPES[network] = tape_of(network)
    return _TAPES[network]


def _large(work: float) -> bool:
    """Is a call of so much work evaluated by tapes and kernels?"""
    text = os.environ.get("ATTNFUN_FAST", "")
    require(text in ("", "0", "1"), f"ATTNFUN_FAST={text!r:.20}: write 0 (off) or 1 (for every call), or leave it out")
    if text == "0" or (text == "" and work < WORTH):
        return False
    if text == "1":
        require(find_spec("numba"), "ATTNFUN_FAST=1 needs numba: pip install numba, or ATTNFUN_FAST=0")
    return True


@lru_cache(maxsize=1)
def _kernels() -> Any:
    """Kernels by dtype; None without numba, or with a note where they cannot be cached."""
    if find_spec("numba") is None:
        return None
    slow = threading.Timer(2.0, lambda: print("attnfun: compiling its kernels, once on this machine", file=sys.stderr))
    slow.daemon = True
    slow.start()
    try:
        from attnfun.fast import kernels

        kernels.run("float64")
    except (OSError, RuntimeError) as why:  # numba finds no place for its cache
        text = " ".join(str(why).split())[:200]
        warnings.warn(f"the compiled kernels cannot be cached ({text}); NumPy evaluates instead", stacklevel=5)
        return None
    finally:
        slow.cancel()
    return kernels.run


def play(network: Network, tape: Any, X: AnyArray, threads: int = 1) -> AnyArray:
    """The network at X by its tape."""
    network.require_unchanged()
    given = np.ascontiguousarray(X, dtype=network.dtype)
    out, kernel = np.empty((len(given), len(network.outputs)), dtype=given.dtype), _kernels()(network.dtype)

    def part(first: int, last: int) -> None:
        own = slice(first * tape.block, last * tape.block)
        kernel(given[own], out[own], *tape.arguments)

    split(threads, -(-len(given) // tape.block), part)
    return out


def split(threads: int, count: int, part: Callable[[int, int], Any]) -> list[Any]:
    """part(first, last) of `count` pieces of work, on so many threads."""
    if threads == 1 and count > 0:
        return [part(0, count)]
    ends = [count * k // threads for k in range(threads + 1)]
    spans = [(a, b) for a, b in pairwise(ends) if a < b]
    if len(spans) <= 1:
        return [part(*span) for span in spans]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(part, *zip(*spans, strict=True)))
