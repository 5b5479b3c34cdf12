"""`ternary`: a relation of three variables as a trilinear form Σ_i a_i(x) b_i(y) c_i(z), with a proved error.

The rank of every unfolding bounds the number of terms from below.
"""

from collections.abc import Callable, Mapping, Sequence

from attnfun.errors import require
from attnfun.kinds.relation.rank import rank_lower
from attnfun.kinds.relation.target import Relation, joined
from attnfun.kinds.ternary.build import forms
from attnfun.kinds.ternary.target import Ternary
from attnfun.kinds.ternary.view import TrilinearForm
from attnfun.language import Box, parse
from attnfun.language.definedness import require_defined
from attnfun.language.pieces import exactly_joined
from attnfun.search import Goal, check_request, one_thread, search


def ternary(
    target: str,
    domain: Mapping[str, Sequence[float]] | str | Sequence[str],
    eps: float,
    *,
    progress: Callable[[str], None] | None = None,
) -> TrilinearForm:
    """The trilinear form of few terms with |target − form| ≤ eps on the box of three variables, called in float64.

    Proved for the stored coefficients, rounding included; `rank_lower` terms at least are needed by any such form.
    """
    say = progress or (lambda _text: None)
    check_request(eps, "float64", 0)
    box = Box.parse(domain, target)
    require(box.dim == 3, f"a ternary relation has three variables, not {box.dim}")
    graph = exactly_joined(parse(target, box.names), box)
    require_defined(graph, box)
    asked = Ternary(graph, box)
    with one_thread():
        found, certificate = search(asked, forms(asked, float(eps), say), Goal(float(eps)), say)
        least = 0
        for k in range(3):
            say("a lower bound on the terms")
            others = [asked.boxes[j] for j in range(3) if j != k]
            least = max(least, rank_lower(Relation(graph, asked.boxes[k], joined(*others)), float(eps)))
    if not least <= found.weights.rank:
        raise AssertionError(f"a lower bound {least} above a proved rank {found.weights.rank} must never be issued")
    story = {**found.told, "rank_lower": least}
    return TrilinearForm(asked, found.weights, certificate, {"eps": float(eps)}, story)
