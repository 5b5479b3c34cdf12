"""`retrieve`: attention that picks the best key of a table by a utility, with what is proved of it."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.kinds.relation.form import Polynomials
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.verb import relation
from attnfun.kinds.retrieval.build import eps_of, heads, too_coarse
from attnfun.kinds.retrieval.prove_bounds import places_of, query_margins, retrieval_certificate
from attnfun.kinds.retrieval.target import Columns, Lookup, columns
from attnfun.kinds.retrieval.view import Retrieval, quantile, studied
from attnfun.kinds.retrieval.weights import require_size
from attnfun.language.numbers import whole_number
from attnfun.network.head import Array
from attnfun.search import Goal, check_request, jsonable, one_thread, search


def retrieve(
    utility: Any,
    left: Any = None,
    right: Any = None,
    keys: Any = None,
    eps: float | None = None,
    *,
    values: Any = None,
    queries: Any = None,
    beta: float | None = None,
    delta: float = 1e-3,
    confidence: float = 0.95,
    symmetric: bool = False,
    signed: bool = False,
    method: str = "auto",
    features_only: bool = False,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Retrieval:
    """An attention head over `keys` whose scores are within `eps` of utility(x, key) for every query x, proved.

    `utility`: an expression of left (query) and right (key) variables, or what `relation` gave (then `left`, `right`,
    `eps` and the options of `relation` are left out). `keys`: an array (n, right variables) or the path of a CSV file
    whose header names the right variables; a column "id" names the keys, other columns are not read. `values`: what
    the head hands out, an array (n, p) or a CSV file (its columns but "id" and the right variables, so that one file
    may hold both); the keys' own coordinates unless given. `queries`: a number of uniform ones, an array or a CSV
    file, on which margins are enclosed: they serve the choice of beta and the failure probability, at `confidence`.
    `beta`, the inverse temperature: unless given the one that gives the best key the weight 1 − `delta` at the median
    margin; where that margin is not above twice the error there is none, and the request is refused with the eps that
    would do.
    """
    say = progress or (lambda _text: None)
    require(keys is not None, "no keys: give an array (n, right variables) or the path of a CSV file")
    cold = 1.0 if beta is None else beta
    retrieval_certificate(2, 1.0, 0.0, cold, delta=delta, failures=0, queries=1, confidence=confidence)  # or refuse
    given = isinstance(getattr(utility, "target", None), Relation)
    check_request(1.0 if given else math.nan if eps is None else eps, "float64", seed)
    if given:
        if (left, right, eps, method) != (None, None, None, "auto") or symmetric or signed or features_only:
            raise InvalidRequest("a built relation has its boxes, eps and options: leave them out")
        asked = utility.target
    else:
        asked = Relation.read(utility, left, right, symmetric)
    table, out = _tables(asked, keys, values)
    sample, drawn = _queries(asked, queries, len(table.values), seed)
    if given:
        found = utility
    else:
        options: dict[str, Any] = {"symmetric": symmetric, "signed": signed}
        options["method"] = "polynomial" if method == "auto" else method  # a head is proved from polynomial features
        options |= {"features_only": features_only, "progress": progress, "accept": "proved"}
        found = relation(utility, left, right, float(eps or 0), **options)
    require(found.band is None and found.weights.realise != "mlp", "a head needs attention towers and no band")
    if not isinstance(found.weights, Polynomials):
        raise Infeasible(f"method={found.method}: a head needs polynomial features", {"method": "polynomial"})
    require_size(len(table.values), found.rank)
    goal = eps_of(found)
    with one_thread():
        say(f"margins at {len(sample):,} queries")
        margins = query_margins(asked, sample, table.values, places_of(table.values, out.values))
        seen = quantile(margins.low, 0.5)
        proposals = heads(found, table, out, seen, beta, float(delta), say)
        head, certificate = search(Lookup(asked), proposals, Goal(goal), say)
    request: dict[str, Any] = {"eps": goal, "delta": float(delta), "confidence": float(confidence), "seed": int(seed)}
    built = Retrieval(Lookup(asked, head.weights), head.weights, certificate, request)
    say("the sample of queries")
    study = studied(built, sample, drawn, margins)
    if study.failures > len(sample) / 2:
        request["note"] = too_coarse(seen, built.error)
    return replace(built, request=request, story=jsonable({**found.story, "study": asdict(study)}))


def _tables(asked: Relation, keys: Any, values: Any) -> tuple[Columns, Columns]:
    """Keys inside the right box, and values as many as keys."""
    table = columns(keys, "keys", asked.right.names)
    table.require_inside(asked.right)
    if values is None:
        return table, table
    out = columns(values, "values", None, asked.right.names)
    if len(out.values) != len(table.values):
        raise InvalidRequest(f"{len(out.values):,} values for {len(table.values):,} keys: one row per key is needed")
    return table, out


def _queries(asked: Relation, queries: Any, keys: int, seed: int) -> tuple[Array, str]:
    """(m, left variables) queries and where they come from."""
    if queries is None:
        queries = max(100, min(2000, 8_000_000 // keys))
    if isinstance(queries, (int, np.integer)):
        count = whole_number("queries", queries, 1, 2**53)
        return asked.left.sample(count, np.random.default_rng(seed)), f"uniform in {asked.left.text}"
    table = columns(queries, "queries", asked.left.names)
    table.require_inside(asked.left)
    return table.values, "as given; the interval holds if they were drawn independently"
