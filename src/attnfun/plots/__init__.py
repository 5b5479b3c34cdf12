"""Pictures of a network: its keys, its attention, target against network, the error under its bound."""

from attnfun.plots.picture import draw, figure
from attnfun.plots.style import BOUND, FAINT, INK, NETWORKS, title

__all__ = ["BOUND", "FAINT", "INK", "NETWORKS", "draw", "figure", "title"]
