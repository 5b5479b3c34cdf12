"""Averages over the positions that each token names: the kind behind `sparse_average`."""

from attnfun.kinds import token_kind

WEIGHTS = ("attnfun.kinds.average.weights:Coded",)
KIND = token_kind("average", "Averages", "SparseAverage", WEIGHTS, lesson="lesson")
