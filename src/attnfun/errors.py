"""The one family of exceptions. Every message repeats the request it answers, so it can be read on its own."""

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class AttnfunError(Exception):
    """Anything attnfun refuses or cannot do; the command line prints its message on one line."""


class InvalidRequest(AttnfunError):
    """The request itself is wrong: a syntax error, an unknown name, an empty domain, a tolerance of zero."""

    def __init__(self, message: str, column: int | None = None) -> None:
        super().__init__(message)
        self.column = column


class Infeasible(AttnfunError):
    """The request is well formed but cannot be met; `nearest` holds a request that would succeed, if one is known."""

    def __init__(self, message: str, nearest: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.nearest = dict(nearest) if nearest else None


class Witnessed(Infeasible):
    """A refusal whose reason can be checked: `witness` holds it."""

    def __init__(self, message: str, nearest: Mapping[str, Any] | None = None, witness: Any = None) -> None:
        super().__init__(message, nearest)
        self.witness = witness


class NotPositive(Witnessed):
    """A symmetric relation is not positive semidefinite; `witness` holds points and a vector that show it."""


class NoUtility(Witnessed):
    """A preorder has no (continuous) utility; `witness` holds comparisons that show it and can be asked again."""


class Refuted(AttnfunError):
    """A claim was shown false at a point that can be evaluated."""


class DamagedFile(AttnfunError):
    """The file is not an attnfun network, or not the one that was written."""


def require(condition: object, why: str) -> None:
    """What a request needs: InvalidRequest with the sentence where the condition does not hold. NaN never passes."""
    if not condition:
        raise InvalidRequest(why)


def feasible(condition: object, why: str, nearest: Mapping[str, Any] | None = None) -> None:
    """What a construction needs: Infeasible, with the nearest request if one is known, where it does not hold."""
    if not condition:
        raise Infeasible(why, nearest)


def intact(condition: object, why: str) -> None:
    """What a file needs: DamagedFile with the sentence where the condition does not hold."""
    if not condition:
        raise DamagedFile(why)


def present(value: T | None, otherwise: Exception) -> T:
    """The value; where there is none, what is raised."""
    if value is None:
        raise otherwise
    return value


def how_to_install(module: str) -> str:
    """The command that installs the package of a module."""
    return f"pip install {_PACKAGES.get(module, module)}"


_PACKAGES = {"sklearn": "scikit-learn", "distributed": '"dask[distributed]"'}
