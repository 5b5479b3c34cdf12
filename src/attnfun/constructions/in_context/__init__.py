"""Regressions solved in the forward pass of a softmax-attention network; one file an algorithm."""
