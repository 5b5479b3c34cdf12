"""Maps of n tokens to n tokens: the kind behind `sequence`."""

from attnfun.kinds import folder_kind

NETWORKS = ("attnfun.kinds.sequence.network:SequenceNetwork", "attnfun.kinds.sequence.network:TokenSequence")
KIND = folder_kind("sequence", "SequenceMap", "SequenceApproximant", NETWORKS, commands=__name__)
