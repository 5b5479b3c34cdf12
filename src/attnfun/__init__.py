"""attnfun: a target and a tolerance in, softmax-attention weights and a proof out."""

from attnfun.approximant import Approximant
from attnfun.certify import Certificate, Status
from attnfun.errors import AttnfunError, DamagedFile, Infeasible, InvalidRequest, Refuted
from attnfun.targets import Box
from attnfun.verbs import compile, load, verify

__version__ = "0.1.0"

__all__ = [
    "Approximant",
    "AttnfunError",
    "Box",
    "Certificate",
    "DamagedFile",
    "Infeasible",
    "InvalidRequest",
    "Refuted",
    "Status",
    "compile",
    "load",
    "verify",
]
