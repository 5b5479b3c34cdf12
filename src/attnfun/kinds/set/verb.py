"""`set_function`: a symmetric function of n points and a tolerance in, a proved network out.

Methods are forms (`network.py`): the target as a sequence map of elements or pairs. The linear layer that makes n²
tokens of n points is 0-1 matrices. Sums over tokens are heads that attend to all tokens alike; what is summed, and what
is done with the sums, are heads over constant keys (`kinds/sequence/build.py`).
"""

from functools import partial
from typing import Any

from attnfun.kinds.sequence.verb import first_of, requested
from attnfun.kinds.set.build import by_form, order
from attnfun.kinds.set.pattern import FORMS
from attnfun.kinds.set.target import SetFunction
from attnfun.kinds.set.view import SetApproximant
from attnfun.search import Say


def set_function(
    target: Any,
    points: int,
    domain: Any,
    eps: float,
    *,
    method: str = "auto",
    dtype: str = "float64",
    seed: int = 0,
    max_keys: int = 1_000_000,
    progress: Say | None = None,
) -> SetApproximant:
    """A softmax-attention network within `eps` of a symmetric function of `points` points, for every set of the box.

    `target`: an expression or a list of them; points occur inside sums only (`SetFunction`): `sum(x**2)` over
    elements, `sum(x[i]*x[j])` over pairs. `method`: elements, power-sums, pairs, or auto (elements where there are no
    pairs, power sums where at most as many as there are points do, else pairs; then what else fits).
    """
    asked = SetFunction.read(target, domain, points)
    request = requested(asked, FORMS, eps, method, dtype, seed)
    forms = order(asked) if method == "auto" else (method,)
    ways = ((form, partial(by_form, form, asked, request, max_keys, progress)) for form in forms)
    found, certificate = first_of(ways)
    return SetApproximant(asked, found.weights, certificate, request, found.told)
