"""What every picture needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

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


def saved(make: Callable[[T], Any]) -> Callable[..., Any]:
    """`make`, from a model to a Figure, as a function of the model and a path into which the Figure is drawn, if one is
    given: .png, .pdf or .svg; another suffix is an InvalidRequest.
    """

    @wraps(make)
    def draw(model: T, path: str | os.PathLike[str] | None = None) -> Any:
        require_matplotlib()
        import matplotlib

        from attnfun.plots.picture import FORMATS, RC

        if path is not None and Path(path).suffix.lower() not in FORMATS:
            raise InvalidRequest(f"cannot draw {str(path)!r}: the name must end in {', '.join(FORMATS)}")
        with matplotlib.rc_context(RC):
            figure = make(model)
            if path is not None:
                figure.savefig(path, dpi=150)
        return figure

    return draw


def blank(width: float, height: float) -> Any:
    """A Figure of this size that belongs to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
