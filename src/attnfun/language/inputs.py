"""What a user hands in, as arrays.

    0.3    [0.1, 0.2]    numpy.array(…)    torch.tensor(…)    pandas.DataFrame(…)

Neither torch nor pandas is imported: a tensor is what can be detached, a data frame what has columns.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest
from attnfun.language.vectors import groups, is_vector

Array = NDArray[np.float64]


def plain(given: Any, names: Sequence[str] = ()) -> NDArray[Any]:
    """An array of whatever it holds; of a data frame the columns of these names, whatever their order there."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.double() if given.is_floating_point() else given  # NumPy has no bfloat16
    columns = getattr(given, "columns", None)
    if columns is not None and names:
        lost = [name for name in names if name not in columns]
        if lost:
            there = ", ".join(map(str, columns))[:80]
            raise InvalidRequest(f"the table has no column {', '.join(lost)}; its columns are {there}")
        return np.stack([np.asarray(given[name]) for name in names], axis=-1)
    return np.asarray(given)


def numbers(given: Any, what: str, names: Sequence[str] = ()) -> Array:
    """The same as float64, itself if it is that; InvalidRequest, which says what was given, for any other thing."""
    try:
        found = plain(given, names)
        if np.iscomplexobj(found):
            raise TypeError("complex")
        return found.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        shown = " ".join(repr(given).split())
        raise InvalidRequest(f"{what} {shown:.60}: an array of numbers is needed") from None


def together(given: Mapping[str, Any]) -> Array:
    """(…, names): arrays by name, broadcast against each other."""
    found = {name: numbers(value, name) for name, value in given.items()}
    try:
        return np.stack(np.broadcast_arrays(*found.values()), axis=-1)
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in found.items())
        raise InvalidRequest(f"arrays of shapes that do not fit together: {shapes:.120}") from None


def _entries(base: str, members: Sequence[str], value: Any) -> dict[str, Array]:
    """The entries of a vector by name: its last axis holds them."""
    array = numbers(value, base)
    if array.shape[-1:] != (len(members),):
        raise InvalidRequest(f"{base} of shape {array.shape}: (…, {len(members)}) is needed, its entries last")
    return {name: array[..., k] for k, name in enumerate(members)}


def read_call(
    takes: Any, variables: Sequence[str], inputs: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The variables that a call names, and its other keywords; `takes` is the method `encode` of a target.

    InvalidRequest where one is missing or unknown, or where the call does not fit the parameters of `takes`.
    """
    given = dict(options)
    for base, members in {} if inputs or not options else _vectors(takes.__func__, tuple(variables)).items():
        if base in given:
            given |= _entries(base, members, given.pop(base))
    named = _named(takes.__func__, tuple(variables), len(inputs), tuple(given))
    return {name: given[name] for name in named}, {n: value for n, value in given.items() if n not in named}


@lru_cache(maxsize=256)
def _vectors(takes: Any, variables: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The vectors among the variables whose names no parameter has, and their entries."""
    own = signature(takes).parameters
    return {base: m for base, m in groups(variables).items() if is_vector(base, m) and base not in own}


@lru_cache(maxsize=1024)  # matching a call to a signature takes longer than a small network
def _named(takes: Any, variables: tuple[str, ...], count: int, options: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the `options` that are variables, in a call of `count` inputs."""
    form = signature(takes)
    own = dict(list(form.parameters.items())[2:])
    named = tuple(name for name in variables if name in options and not count)
    rest = [name for name in options if name not in named]
    wrong, lost = [n for n in rest if n not in own], [n for n in variables if n not in named]
    names = f"the names are {', '.join(groups(variables))}" if variables else f"the inputs are {', '.join(own)}"
    if wrong:
        raise InvalidRequest(f"there is no input {', '.join(wrong)[:80]}; {names}")
    if named and lost:
        raise InvalidRequest(f"{', '.join(lost)[:80]} is missing; {names}")
    if not named:
        try:
            form.bind(None, None, *(None,) * count, **dict.fromkeys(rest))
        except TypeError:
            needed = [name for name, one in own.items() if one.default is one.empty]
            raise InvalidRequest(f"inputs: {count + len(rest)} given; needed: {', '.join(needed)}") from None
    return named
