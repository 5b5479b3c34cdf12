"""What every picture needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from attnfun.errors import InvalidRequest

P = ParamSpec("P")
T = TypeVar("T")


def require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        text = "a picture needs matplotlib, which is not installed; install it with: pip install matplotlib"
        raise InvalidRequest(text) from None


def picture(draw: Callable[P, T]) -> Callable[P, T]:
    """`draw`, refused before its work where matplotlib is not installed."""

    @wraps(draw)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        require_matplotlib()
        return draw(*args, **kwargs)

    return checked
