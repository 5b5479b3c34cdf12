"""tanh(s x) on [-1, 1], by two keys exactly. A whole kind in one folder: target, build, prove, verb, view, lesson."""

from attnfun.kinds import folder_kind

NETWORK = ("attnfun.network.network:Network",)
KIND = folder_kind("doubling", "Doubling", "Doubled", NETWORK, package=__name__, commands=__name__)
