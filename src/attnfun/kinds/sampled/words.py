"""What is said of a model that was trained on a sampler."""

from __future__ import annotations

from attnfun.network.words import told_of_tokens as explain

__all__ = ["explain"]
