"""Fused evaluation: a whole network on block after block of points by one compiled kernel (extra `fast`: numba).

`net(X)` takes it for calls of WORTH keys × points or more, if numba is there. The environment variable ATTNFUN_FAST=0
switches it off, ATTNFUN_FAST=1 takes it for every call and asks for numba. Which calls take it depends on the call
alone, so the same call gives the same bits. Searches and proofs never take it: they compute alike with and without.
"""

import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
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

WORTH = 1 << 22
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
    """`weights.run(*arrays)`, by the kernels where this call takes them."""
    count = whole_number("threads", threads, 1)
    found = None if _OFF.get() or not isinstance(weights, Network) else _taken(weights, len(arrays[0]))
    return weights.run(*arrays) if found is None else play(weights, found, arrays[0], count)


def fused(network: Network, X: AnyArray, threads: int = 1) -> AnyArray:
    """The network at X by the kernels, whatever the size of the call; InvalidRequest where that cannot be."""
    require(find_spec("numba"), "the route fused needs numba: pip install numba")
    found = None if _kernels() is None else taped(network)
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


def _taken(network: Network, points: int) -> Any:
    """The tape for a call of so many points, or None where NumPy evaluates."""
    text = os.environ.get("ATTNFUN_FAST", "")
    require(text in ("", "0", "1"), f"ATTNFUN_FAST={text!r:.20}: write 0 (off) or 1 (for every call), or leave it out")
    if text == "0" or (text == "" and points * network.cost.keys < WORTH):
        return None
    if find_spec("numba") is None:
        require(text == "", "ATTNFUN_FAST=1 needs numba: pip install numba, or ATTNFUN_FAST=0")
        return None
    return None if _kernels() is None else taped(network)


@lru_cache(maxsize=1)
def _kernels() -> Any:
    """Kernels by dtype, or None with a note where they cannot be cached."""
    try:
        from attnfun.fast import kernels

        kernels.run("float64")
    except (OSError, RuntimeError) as why:  # numba finds no place for its cache
        text = " ".join(str(why).split())[:200]
        warnings.warn(f"the compiled kernels cannot be cached ({text}); NumPy evaluates instead", stacklevel=5)
        return None
    return kernels.run


def play(network: Network, tape: Any, X: AnyArray, threads: int = 1) -> AnyArray:
    """The network at X by its tape."""
    network.require_unchanged()
    given = np.ascontiguousarray(X, dtype=network.dtype)
    out, kernel = np.empty((len(given), len(network.outputs)), dtype=given.dtype), _kernels()(network.dtype)
    if threads == 1 or len(given) <= tape.block:
        kernel(given, out, *tape.arguments)
        return out
    blocks = -(-len(given) // tape.block)
    ends = [blocks * k // threads * tape.block for k in range(threads + 1)]
    parts = [slice(*pair) for pair in pairwise(ends)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda part: kernel(given[part], out[part], *tape.arguments), parts))
    return out
