"""Attention over a table of keys by a utility: the kind behind `retrieve`."""

from attnfun.kinds import folder_kind

HEADS = ("attnfun.kinds.retrieval.weights:RetrievalWeights", "attnfun.kinds.retrieval.weights:TrainedHead")
KIND = folder_kind("retrieval", "Lookup", "Retrieval", HEADS, lesson="view", commands=__name__)
