"""Is the graph a certificate speaks of the continuous extension of the expression that was asked for?

Let f be the expression, undefined where a denominator vanishes, F the graph that `targets.removable` derived from it.
Proved are, with g_i the arguments of the conditions of f (denominators not 0, arguments of log positive, ...) and G_i
what was derived for them along with F:

1. F = f and G_i = g_i at every point of the box at which f, and g_i, is defined (`identity`, one by one);
2. F and all G_i are defined on the whole box (`targets.definedness`);
3. G_i keeps the condition on g_i on the whole box, unless that is a denominator which may vanish; then G_i is
   real-analytic on the box and not everywhere 0 (`targets.removable.require_dense`).

Let Z be the union of the zero sets of the denominators of 3: closed, and nowhere dense, because an analytic function on
a connected set that vanishes near a point vanishes everywhere. Off Z, f is defined: suppose not, and take the first of
its conditions, in the order of its operations, that fails at a point x off Z. Those before it hold at x, so g_i is
defined there, and by 1 equal to G_i(x), which by 3 keeps the condition. So F = f off Z, on a dense set. In the sup
norm F is moreover proved to be continuous, and is then the only continuous function that agrees with f wherever f is
defined; in L^p the set Z, of measure 0, does not matter.
"""

from __future__ import annotations

from attnfun.certify.identity import same_function
from attnfun.certify.view import Undecided
from attnfun.expressions import Graph
from attnfun.targets import Function, require_defined
from attnfun.targets.removable import extension_of, require_dense


def require_extension(function: Function) -> None:
    """Return if function.graph is proved to be the continuous extension of function.source; raise otherwise."""
    if function.source is None:
        return
    box, extension = function.box, extension_of(function.source, function.box)
    if extension.graph != function.graph:
        raise Undecided("the target's graph is not the extension of its expression that can be derived")
    require_defined(extension.whole, box, continuous=False)
    require_dense(extension, box)
    for given, derived in zip(extension.source.outputs, extension.whole.outputs, strict=True):
        plain, _ = extension.whole.reachable([derived]).plain()
        same_function(plain, extension.source.reachable([given]), box)


def require_continued(program: Graph, function: Function) -> None:
    """Return if `program` is proved to be function.graph on the whole box; raise otherwise.

    With a source: the program equals it wherever it is defined (a dense set), and is itself defined and continuous.
    """
    assert function.graph is not None
    if function.source is None:
        same_function(program, function.graph, function.box)
        return
    same_function(program.plain()[0], function.source, function.box)
    require_defined(program, function.box)
