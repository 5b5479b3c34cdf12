"""Page: a matplotlib Figure that belongs to no window, and that a notebook shows as it is."""

from io import BytesIO

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Page(Figure):
    """Width and height in inches. It needs neither pyplot nor one of its backends."""

    def __init__(self, width: float, height: float, layout: str | None) -> None:
        super().__init__(figsize=(width, height), layout=layout)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        """What a notebook asks for."""
        held = BytesIO()
        self.savefig(held, format="png", dpi=100)
        return held.getvalue()
