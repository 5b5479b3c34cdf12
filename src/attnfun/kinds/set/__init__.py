"""Functions of a set of points, whatever their order: the kind behind `set_function`."""

from attnfun.kinds import folder_kind

NETWORKS = ("attnfun.kinds.set.network:SetNetwork",)
KIND = folder_kind("set", "SetFunction", "SetApproximant", NETWORKS, lesson="view", commands=__name__)
