"""Every construction, one line each; the conformance tests run on all of them."""

from attnfun.kinds.function.build.affine import Affine
from attnfun.kinds.function.build.bernstein import Bernstein
from attnfun.kinds.function.build.compose import Compose
from attnfun.kinds.function.build.interpolation import Interpolation
from attnfun.kinds.function.build.partition import Partition
from attnfun.kinds.function.build.plan import Construction
from attnfun.kinds.function.build.relu_network import ReluNetwork
from attnfun.kinds.function.build.tangent import Tangent

_ALL: tuple[type[Construction], ...] = (Affine, ReluNetwork, Tangent, Compose, Bernstein, Interpolation, Partition)
CONSTRUCTIONS = {made.name: made() for made in _ALL}
