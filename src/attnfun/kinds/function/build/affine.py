"""affine: targets that need no attention at all.

Statement. f(x) = A x + c is the read-out of the residual stream: no head, no key; exact but for the rounding of A and
c.
Source: the residual stream of Vaswani et al. 2017, through which linear maps are free.
Size: (d + 1) parameters per output.  Bound: |A − fl(A)||x| + |c − fl(c)|, proved like any other network.
A target whose whole range is within ε of its middle is that constant.
Failure mode: refuses whatever else is not affine (found by comparing gradients at random points; the proof decides).
Example: af.compile("2*x - y + 1", domain=..., eps=1e-9).
"""

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import feasible
from attnfun.kinds.function.build.plan import Construction, Plan, Request
from attnfun.language import ArrayAlgebra, GradientAlgebra, run
from attnfun.language.ranges import range_of
from attnfun.network import Network

_LARGE = 400  # operations
_REFUSAL = "affine: the target is not an affine function of its variables"


class Affine(Construction):
    name = "affine"
    summary = "the residual stream alone, for affine targets"
    realisations = ("attention", "mlp")

    def plan(self, request: Request) -> Plan:
        function = request.function
        box = function.box
        graph = request.expression("affine: a black box cannot be recognised as affine")
        X = box.probe(64, np.random.default_rng(request.seed))
        if len(graph.nodes) > _LARGE:  # a quick no: gradients of large graphs take long
            ends = function.values(X[:32]), function.values(X[32:64]), function.values((X[:32] + X[32:64]) / 2)
            apart = np.abs(ends[0] + ends[1] - 2 * ends[2])
            if np.any(apart > 1e-6 * np.abs(np.stack(ends)).max()):
                return Plan(self.name, 0, 0, 0, 0, 0.0, (np.zeros((len(function.outputs), box.dim)), _middles(request)))
        algebra = GradientAlgebra(ArrayAlgebra(), box.dim)
        env = algebra.variables(box.names, {n: X[:, k] for k, n in enumerate(box.names)})
        with np.errstate(all="ignore"):
            duals = run(graph, algebra, env)
        matrix = np.zeros((len(duals), box.dim))
        for o, dual in enumerate(duals):
            for k, partial in enumerate(dual.partials):
                if partial is not None:
                    matrix[o, k] = np.median(np.broadcast_to(partial, (len(X),)))
        middle = X[-1]
        offset = function.values(middle[None])[0] - matrix @ middle
        off = np.abs(function.values(X) - (X @ matrix.T + offset))
        size = np.abs(X) @ np.abs(matrix).T + np.abs(offset)
        if not np.all(off <= 1e-13 * size + 1e-300):
            matrix, offset = np.zeros_like(matrix), _middles(request)
        return Plan(self.name, 0, 0, 0, 0, 0.0, (matrix, offset))

    def build(self, request: Request, plan: Plan) -> Network:
        return request.network((), *plan.data)


def _middles(request: Request) -> NDArray[np.float64]:
    """The middle of every output's range, where all of it lies within eps; Infeasible where it does not."""
    function = request.function
    seen = function.values(function.box.probe(256, np.random.default_rng(0)))
    feasible(np.all(np.ptp(seen, axis=0) <= 2 * request.eps), _REFUSAL)
    ranges = np.array(range_of(function.formula, function.box))
    middle = ranges.mean(axis=1)
    feasible(np.all(ranges[:, 1] - middle <= request.eps), _REFUSAL)
    return np.asarray(middle)
