"""LexicographicHead: the view of a model that picks the best key of a grid; and its words."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.errors import require
from attnfun.kinds.lexicographic.pattern import BETA
from attnfun.kinds.lexicographic.prove import is_single, proof, winner_weight
from attnfun.kinds.lexicographic.target import MOST_KEYS, BestKey
from attnfun.language.numbers import whole_number
from attnfun.learn.lesson import Ask, Held, Lesson, token_lesson
from attnfun.limits.grids import GridLimits, grid_limits
from attnfun.model import Of, TokenModel
from attnfun.network.words import explain as explain


class LexicographicHead(TokenModel[BestKey]):
    """(n, coordinates) whole numbers from 0 to levels − 1 → the best of them, by attention over n tokens."""

    levels = Of[int]("target")

    @property
    def limits(self) -> GridLimits:
        """Which grids this dtype holds."""
        return grid_limits(self.dtype, self.target.coordinates, self.target.levels)

    @property
    def method(self) -> str:
        """What made it: "one head", "cascade", or "train"."""
        return "train" if self.trained else str(self.story.get("construction", ""))

    def tokens(self, keys: ArrayLike) -> NDArray[np.float64]:
        """(n, width): the keys as the network, here and in torch, reads them."""
        return self.target.encode(self.weights, keys)[0][0]

    def exact(self, keys: ArrayLike) -> NDArray[np.float64]:
        """The best key itself."""
        return self.target.exact(keys)

    @property
    def most_keys(self) -> int:
        return MOST_KEYS[self.dtype]

    def winner_weight(self, n: int) -> float:
        """A lower bound of the weight that the best of n keys gets, in real arithmetic."""
        whole_number("n", n, 1, self.most_keys)
        found = proof(self.target, self.weights)
        require(found.reason is None, f"nothing is proved of these weights: {found.reason}")
        single = is_single(self.weights)
        return winner_weight(self.levels, self.target.coordinates, BETA[self.dtype][not single], int(n), single)


def record(model: LexicographicHead) -> dict[str, Any]:
    """Which grid, how large the network is, which grids the dtype holds, what the proof rests on."""
    sizes = {name: getattr(model.cost, name) for name in ("layers", "heads", "rank", "parameters")}
    told = {"status": model.certificate.status.value, "method": model.method, **sizes, **model.limits.record()}
    return told | {"hypotheses": list(model.certificate.hypotheses)}


def lesson(given: Any, ask: Ask[BestKey]) -> Lesson:
    """All weights but a cascade's constant token; the best network is that of least loss, as something is decided."""

    def wanted(best: Any) -> Any:
        return np.repeat(best[:, None], ask.target.keys_drawn, axis=1)

    return token_lesson(given, ask, held=_held, wanted=wanted, chosen_by="loss")


def _held(model: Any) -> Held:
    constants = model.weights.constants
    return {"constants": (constants, np.zeros(constants.shape, dtype=bool))} if len(constants) else {}
