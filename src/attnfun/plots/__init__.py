"""Pictures of a network: its keys, its attention, target against network, the error under its bound."""

from attnfun.plots.picture import draw, figure

__all__ = ["draw", "figure"]
