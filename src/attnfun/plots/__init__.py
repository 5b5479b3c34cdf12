"""Pictures of a network: its keys, its attention, target against network, the error under its bound."""

from attnfun.plots.panels import BOUND, FAINT, INK, NETWORKS, title
from attnfun.plots.picture import draw, figure

__all__ = ["BOUND", "FAINT", "INK", "NETWORKS", "draw", "figure", "title"]
