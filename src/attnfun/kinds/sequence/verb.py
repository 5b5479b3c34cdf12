"""`sequence`: a map of n tokens and a tolerance in, a proved network out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnfun.certify.certificate import Certificate
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.kinds.sequence.build import METHODS
from attnfun.kinds.sequence.build_stages import Stages, attempts
from attnfun.kinds.sequence.target import OfTokens, SequenceMap
from attnfun.kinds.sequence.view import SequenceApproximant
from attnfun.language.numbers import whole_number
from attnfun.language.target import Target
from attnfun.search import Goal, Proposal, Say, check_request, one_thread, search


def sequence(
    target: Any,
    tokens: int,
    domain: Any,
    eps: float,
    *,
    method: str = "auto",
    dtype: str = "float64",
    seed: int = 0,
    max_keys: int = 1_000_000,
    progress: Say | None = None,
) -> SequenceApproximant:
    """A softmax-attention network within `eps` of a sequence map, in every entry and for every sequence of the box.

    `target`: an expression or a list of them (outputs of every token), or one list a token (see `targets.SequenceMap`
    for the language: own coordinates `x`, entries `x_3`, mean, sum, max, min, softmax_mean). `method`: two-layer (at
    most two attention layers), deep (any number), one-layer-softmax (one attention layer, then one softmax over
    constant keys, which is a layer too where layers are counted), partition, or auto (two-layer where it fits, else
    deep). Infeasible with the number where a construction does not fit.
    """
    asked = SequenceMap.read(target, domain, tokens)
    request = requested(asked, METHODS, eps, method, dtype, seed)
    found, certificate = searched(asked, asked, request, method, max_keys, progress)
    return SequenceApproximant(asked, found.weights, certificate, request, found.told)


def requested(asked: OfTokens, ways: Sequence[str], eps: float, method: str, dtype: str, seed: int) -> dict[str, Any]:
    """What is asked for as a model keeps it; InvalidRequest for what has no meaning."""
    check_request(eps, dtype, seed)
    if method not in ("auto", *ways):
        raise InvalidRequest(f"method={method!r}: the methods are auto, {', '.join(ways)}")
    return {"eps": float(eps), "method": method, "dtype": dtype, "seed": int(seed), asked.members: asked.count}


def searched(
    target: Target,
    asked: SequenceMap,
    request: Mapping[str, Any],
    method: str,
    max_keys: int,
    progress: Say | None,
    dress: Callable[[Proposal], Proposal] = lambda proposal: proposal,
) -> tuple[Proposal, Certificate]:
    """The first method whose network for the map `asked` is proved, dressed as weights for `target`."""
    max_keys = whole_number("max_keys", max_keys, 1)
    reasons: list[str] = []
    nearest: Mapping[str, Any] | None = None
    say = progress or (lambda _text: None)
    with one_thread():
        for name, each in attempts(asked, method):
            proposals = Stages(asked, request, name, each, max_keys, say).proposals(dress)
            try:
                found, certificate = search(target, proposals, Goal(request["eps"]), say)
            except Infeasible as why:
                reasons.append(f"{name}: {why}")
                if method != "auto" or "method" not in (why.nearest or {}):  # auto has tried them all
                    nearest = why.nearest or nearest
                continue
            story = {"not taken": "; ".join(reasons)[:300]} if reasons else {}
            return replace(found, story=story | dict(found.story)), certificate
    raise Infeasible("; ".join(reasons), nearest)
