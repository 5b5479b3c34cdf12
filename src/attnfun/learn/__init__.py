"""The same architectures, trained: free weights, a bounded number of steps, a history. Runs import torch."""

from attnfun.learn.descend import Recipe, descend, generator, one_torch_thread, polished, require_torch
from attnfun.learn.probe import Measured, Row, effective_keys, errors, key_norms, measure, measured, probe_points
from attnfun.learn.sampled import SampledTask
from attnfun.learn.train import Fit, Progress
from attnfun.learn.weights import fit_sample, random_network

__all__ = ["Fit", "Measured", "Progress", "Recipe", "Row", "SampledTask", "measure", "measured", "errors"]
__all__ += ["effective_keys", "descend", "polished", "fit_sample", "generator", "one_torch_thread"]
__all__ += ["require_torch", "random_network", "key_norms", "probe_points"]
