"""The same architectures, trained: free weights, a bounded number of steps, a history. Runs import torch."""

from __future__ import annotations

from attnfun.learn.descend import descend, generator, one_torch_thread, polished
from attnfun.learn.fit import Fit, Progress, fit
from attnfun.learn.probe import Row, measure, probe_points
from attnfun.learn.recipe import Recipe
from attnfun.learn.start import random_network
from attnfun.learn.token_tasks import SampledTask

__all__ = [
    "Fit",
    "Progress",
    "Recipe",
    "Row",
    "SampledTask",
    "descend",
    "fit",
    "generator",
    "measure",
    "one_torch_thread",
    "polished",
    "probe_points",
    "random_network",
]
