"""Every construction, one line each; the conformance tests run on all of them."""

from __future__ import annotations

from attnfun.constructions.affine import Affine
from attnfun.constructions.bernstein import Bernstein
from attnfun.constructions.compose import Compose
from attnfun.constructions.interpolation import Interpolation
from attnfun.constructions.partition import Partition
from attnfun.constructions.plan import Construction
from attnfun.constructions.relu_network import ReluNetwork
from attnfun.constructions.tangent import Tangent

CONSTRUCTIONS: dict[str, Construction] = {
    c.name: c
    for c in (
        Affine(),
        ReluNetwork(),
        Tangent(),
        Compose(),
        Bernstein(),
        Interpolation(),
        Partition(),
    )
}
