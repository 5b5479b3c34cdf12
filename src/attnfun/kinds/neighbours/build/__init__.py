"""The furthest or the nearest of points on a sphere, by softmax attention: one construction a file, each with the
accuracy that is predicted of it."""

from attnfun.kinds.neighbours.build import biased, full_rank, majority_vote, random_heads, scores, tally

METHODS = ("full_rank", "random_heads", "majority_vote", "tally", "scores", "biased")

__all__ = ["METHODS", "biased", "full_rank", "majority_vote", "random_heads", "scores", "tally"]
