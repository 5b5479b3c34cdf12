"""The same architectures, trained: free weights, a bounded number of steps, a history. Only `fit` imports torch."""

from __future__ import annotations

from attnfun.learn.fit import Fit, Progress, fit
from attnfun.learn.probe import Row, measure, probe_points
from attnfun.learn.recipe import Recipe
from attnfun.learn.start import random_network

__all__ = ["Fit", "Progress", "Recipe", "Row", "fit", "measure", "probe_points", "random_network"]
