"""tanh(s x) on [-1, 1]: two keys do it exactly. A whole kind in one folder: target, proof, verb, lesson, command."""

from attnfun.kinds import Kind
from house.doubling.verb import doubling

__all__ = ["KIND", "doubling"]

KIND = Kind(
    "doubling",
    target="house.doubling.target:Doubling",
    weights=("attnfun.network.network:Network",),
    prover="house.doubling.prove:proof",
    words="house.doubling.words",
    lesson="house.doubling.lesson:lesson",
    subjects="house.doubling.words:subjects",
    commands=__name__,
)
