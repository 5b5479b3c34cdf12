"""Is the graph a certificate speaks of the continuous extension of the expression that was asked for?

Let f be the expression, undefined where a denominator vanishes, F the graph that `removable` derived from it;
g_i the arguments of the conditions of f (denominators not 0, arguments of log positive, no jump, ...), and G_i what was
derived for them along with F. A set is *thin* if it is closed, nowhere dense and of measure 0, such as the zeros of a
real-analytic function on a box that does not vanish everywhere. Proved are

1. F = f at every point at which f is defined, and G_i = g_i where g_i is, but for a thin set: the zeros of the
   denominators of the ratios in F and in G_i (`identity`, one by one);
2. F and all G_i are defined and continuous on the whole box (`language/definedness.py`);
3. G_i keeps the condition on g_i on the whole box, unless that is a denominator which vanishes on a thin set only
   (`removable.require_dense`).

Let Z be the union of these thin sets. Off Z, f is defined: suppose not, and take the first of its conditions, in the
order of its operations, that fails at a point x off Z. Those before it hold at x, so g_i is defined there, and by 1
equal to G_i(x), which by 3 keeps the condition. So f is defined off Z and equal to F there; where it is defined on Z,
it is continuous by its own conditions, and equal to F as well, since Z is nowhere dense. F is the only continuous
function that agrees with f wherever f is defined.

An f that is made of pieces is first joined (`language/pieces.py`), which is derived anew from the source, and what that
leaves out is added to the bound. A broken line (`vertices`) is defined everywhere and equal to its graph by exact
arithmetic.
"""

import math

from attnfun.certify.identity import same_function
from attnfun.certify.normal_form import MAX_STEPS
from attnfun.certify.view import Undecided
from attnfun.errors import feasible
from attnfun.language import BallAlgebra, Box, Builder, Graph, precision, run
from attnfun.language.definedness import require_defined
from attnfun.language.enclosures import abs_upper, exact
from attnfun.language.function import Function
from attnfun.language.pieces import Point, at_rational
from attnfun.language.ratio import with_divisors
from attnfun.language.removable import extension_of, require_dense, require_thin
from attnfun.language.vertices import broken_line

_STEPS = 40_000  # of `identity`, for all comparisons together: there are as many as conditions


def require_extension(function: Function) -> None:
    """Return if function.graph is proved to be the continuous extension of function.source; raise otherwise."""
    if function.source is None or _is_joined(function) or _is_line(function):
        return
    box, extension = function.box, extension_of(function.pieces.graph, function.box)
    if extension.graph != function.graph:
        raise Undecided("the target's graph is not the extension of its expression that can be derived")
    require_defined(extension.whole, box)
    require_dense(extension, box)
    spent = MAX_STEPS - _STEPS
    for given, derived in zip(extension.source.outputs, extension.whole.outputs, strict=True):
        whole, source = extension.whole.reachable([derived]), extension.source.reachable([given])
        spent = _require_agreement(whole, source, box, spent)


def joined_gap(function: Function, norm: float) -> float:
    """An upper bound of |f − function.graph| for the f that was asked for, on the box; in an L^p norm off a set of
    measure 0. Infeasible where it is not found.
    """
    off = [_off_at(function, point) for point in _open_points(function, norm)]
    return 0.0 if function.source is None else max([function.pieces.gap, *off])


def require_joined(function: Function, norm: float, eps: float) -> None:
    """Raise Infeasible where the target has other values at single points, which no continuous network follows."""
    for point in _open_points(function, norm):
        off = _off_at(function, point)
        why = f"where {_place(point)} the target has a value of its own, {off:.3g} from those beside it"
        feasible(off < eps, f"{why}: no continuous network follows it in the sup norm", {"norm": 2})


def _open_points(function: Function, norm: float) -> tuple[Point, ...]:
    open_ = function.source is not None and math.isinf(norm) and function.band is None  # a band has them all
    return function.pieces.points if open_ else ()


def _place(point: Point) -> str:
    return f"{point.coordinate.texts[0][:80]} = {float(point.at):.6g}"


def _off_at(function: Function, point: Point) -> float:
    """|f − graph| at an open point of one variable: f by exact arithmetic at that rational number, both by balls."""
    box, coordinate = function.box, point.coordinate
    off = math.inf
    if function.source is not None and box.dim == 1 and coordinate.nodes[coordinate.outputs[0]].op == "var":
        with precision(128):
            given = run(at_rational(function.source, point.at), BallAlgebra(clip_sqrt=True), {})
            joined = run(function.formula, BallAlgebra(clip_sqrt=True), {box.names[0]: exact(point.at)})
            off = max(abs_upper(a - b) for a, b in zip(given, joined, strict=True))
    feasible(off < math.inf, f"could not prove that the target is continuous where {_place(point)}", {"norm": 2})
    return off


def require_same(program: Graph, function: Function) -> None:
    """Return if `program` is proved to be function.graph on the whole box; raise otherwise.

    With a source: the program is defined and continuous, and equal to the source wherever that is defined but for a
    thin set; so is function.graph.
    """
    if function.source is None or _is_joined(function) or _is_line(function):
        same_function(program, function.formula, function.box)
        return
    require_defined(program, function.box)
    _require_agreement(program, function.pieces.graph, function.box)


def _is_joined(function: Function) -> bool:
    """Is the graph what the pieces of the source are joined to, derived anew, with nothing to be continued?"""
    return function.source != function.pieces.graph == function.graph


def _is_line(function: Function) -> bool:
    """Is the graph the broken line that the source is on the box, derived anew in rational arithmetic?"""
    return function.source is not None and broken_line(function.pieces.graph, function.box) == function.graph


def _require_agreement(derived: Graph, given: Graph, box: Box, spent: int = 0) -> int:
    """Return if both are equal where `given` is defined, but for a thin set; else raise. `spent` as in `identity`."""
    n = len(derived.outputs)
    whole = with_divisors(derived)
    require_thin(whole, whole.outputs[n:], box)
    plain, _ = whole.plain()
    left, right = Builder(), Builder()
    at, again, other = left.copy(plain.nodes), right.copy(plain.nodes), right.copy(given.nodes)
    one, two = [at[o] for o in plain.outputs[:n]], [other[o] for o in given.outputs]
    for d in plain.outputs[n:]:  # both with 1/D as further outputs: defined, and compared, only where no D vanishes
        one.append(left.apply("div", left.const(1), at[d]))
        two.append(right.apply("div", right.const(1), again[d]))
    return same_function(left.graph(one), right.graph(two), box, spent)
