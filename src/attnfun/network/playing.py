"""The one seam for compiled kernels: what NumPy would evaluate may be played by somebody else.

`attnfun.fast` sets the player for the time of one call of a model. Nobody else does, so constructions and proofs
evaluate by NumPy. What is played has a name, whatever kind of network it stands in:

| name | arguments | result |
| --- | --- | --- |
| network | a `Network`, points (..., inputs) | (..., outputs) |
| tokens | a network on tokens, tokens (batch, n, width) | (batch, n, outputs) |
| gather | S (n, n) or None, tokens Z (batch, n, w), k (w,), V (w, p) | (batch, n, p): softmax_j(S_ij + k·z_j) z_j V |
| table | an object with `vectors` (n, r) and `values` (n, p), queries (m, r) or what makes them | (m, p) |
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Player = Callable[[str, float, tuple[Any, ...]], Any]
_PLAYER: ContextVar[Player | None] = ContextVar("who evaluates in the place of NumPy", default=None)


class playing:
    """`with playing(player): ...`; a class, for a generator takes as long as a small network."""

    def __init__(self, player: Player | None) -> None:
        self.player = player

    def __enter__(self) -> None:
        self.token = _PLAYER.set(self.player)

    def __exit__(self, *_: object) -> None:
        _PLAYER.reset(self.token)


def played(name: str, work: float, *arguments: Any) -> Any:
    """What the player makes of them, or None: NumPy evaluates. `work`: how many exps NumPy could take in that time."""
    player = _PLAYER.get()
    return None if player is None else player(name, work, arguments)
