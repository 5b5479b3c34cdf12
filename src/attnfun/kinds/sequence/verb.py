"""`sequence`: a map of n tokens and a tolerance in, a proved network out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from attnfun.certify.certificate import Certificate
from attnfun.errors import Infeasible, require
from attnfun.kinds.sequence.build import METHODS, Stages, attempts
from attnfun.kinds.sequence.target import OfTokens, SequenceMap
from attnfun.kinds.sequence.view import SequenceApproximant
from attnfun.language.numbers import whole_number
from attnfun.language.target import Target
from attnfun.search import Goal, Proposal, Say, check_request, search

Found = tuple[Proposal, Certificate]


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

    `target`: an expression or a list of them (outputs of every token), or one list per token (see `SequenceMap`
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
    require(method in ("auto", *ways), f"method={method!r}: the methods are auto, {', '.join(ways)}")
    return {"eps": float(eps), "method": method, "dtype": dtype, "seed": int(seed), asked.members: asked.count}


def searched(
    target: Target,
    asked: SequenceMap,
    request: Mapping[str, Any],
    method: str,
    max_keys: int,
    progress: Say | None,
    dress: Callable[[Proposal], Proposal] = lambda proposal: proposal,
) -> Found:
    """The first method whose network for the map `asked` is proved, dressed as weights for `target`."""
    most, say = whole_number("max_keys", max_keys, 1), progress or (lambda _text: None)

    def attempt(name: str, each: int | None) -> Found:
        proposals = Stages(asked, request, name, each, most, say).proposals(dress)
        return search(target, proposals, Goal(request["eps"]), say)

    ways = ((name, partial(attempt, name, each)) for name, each in attempts(asked, method))
    return first_of(ways, auto=method == "auto")


def first_of(ways: Iterable[tuple[str, Callable[[], Found]]], auto: bool = False) -> Found:
    """The first of these ways, called by their names, that leads to a proved network, and in its story why those before
    it did not; `auto` tries all methods, so none of them is a nearest request.
    """
    reasons: list[str] = []
    nearest: Mapping[str, Any] | None = None
    for name, attempt in ways:
        try:
            found, certificate = attempt()
        except Infeasible as why:
            reasons.append(f"{name}: {why}")
            if not auto or "method" not in (why.nearest or {}):
                nearest = why.nearest or nearest
            continue
        others = "; ".join([*reasons, *filter(None, [found.story.get("not taken")])])
        story = {"not taken": others[:300]} if others else {}
        return replace(found, story={**found.story, **story}), certificate
    raise Infeasible("; ".join(reasons), nearest)
