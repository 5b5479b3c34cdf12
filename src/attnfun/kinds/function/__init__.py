"""Functions of a point of a box: the kind behind `compile`."""

from dataclasses import replace

from attnfun.kinds import folder_kind

NETWORK = ("attnfun.network.network:Network",)
KIND = folder_kind("function", "", "Approximant", NETWORK, lesson="view", commands=__name__)
KIND = replace(KIND, target="attnfun.language.function:Function", mapped=True)
