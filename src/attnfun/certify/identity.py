"""Are two expression graphs the same function on a box? The guard against a forged label.

`same_function(p, f, box)` returns only if p(x) = f(x) was proved for every point of the box at which f is defined, p
being defined there too. Both graphs are brought to one normal form by the exact rewrites of `rewrites`, whose side
conditions (positive, not zero, in [-1, 1]) follow from f being defined or are proved in balls; p - f must then vanish
as a sum over monomials, denominators cleared. Of a target with kinks, signs that bisection leaves open are then put to
proved ranges, by which programs decide branches. Before all that, and independently, both are evaluated in balls at
random points: disjoint values end the matter at once. A graph of several outputs is defined where all of them are.

Failure mode: functions that are equal for another reason than these rewrites, or past the caps of `normal_form`, are
Undecided. A wrong rewrite would have to agree with f at all the sampled points as well to do harm.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from attnfun.certify.branches import has_kinks
from attnfun.certify.normal_form import OutOfSteps, TooLarge, scale
from attnfun.certify.rewrites import Rewrites
from attnfun.certify.signs import BITS
from attnfun.certify.view import Undecided, provided
from attnfun.errors import InvalidRequest
from attnfun.language import ArrayAlgebra, BallAlgebra, Box, Builder, Graph, precision, run, run_all
from attnfun.language.enclosures import point_balls

POINTS: Final = 64
POINT_BITS: Final = 192
PASSES: Final = 4
RANGES: Final = 32  # signs asked of ranges, where bisection was not enough
MAX_CASES: Final = 6  # signs supposed at one time
MAX_QUESTIONS: Final = 8  # comparisons for one `in_terms_of`
_LEAVES: Final = frozenset({"var", "const", "pi", "e"})


def same_function(p: Graph, f: Graph, box: Box, spent: int = 0) -> int:
    """Return if p = f is proved at every point of the box at which f is defined; raise Undecided otherwise.

    `spent`: steps that other comparisons took of the same budget; returned with those of this one.
    """
    provided(len(p.outputs) == len(f.outputs), f"{len(p.outputs)} outputs cannot be {len(f.outputs)} outputs")
    foreign = {*p.variables, *f.variables} - set(box.names)
    provided(not foreign, f"the domain has no variable {', '.join(sorted(foreign))}")
    if p == f:
        return spent
    f = f.reachable(f.outputs)  # what an output does not need tells nothing about where f is defined
    try:
        _compare_at_points(p, f, box)
        return _compare_forms(p, f, box, spent)
    except (TooLarge, OutOfSteps) as error:
        raise Undecided(f"the comparison was given up: {error} grew too large") from None
    except InvalidRequest as error:
        raise Undecided(f"the comparison was given up: {error}") from None
    except RecursionError:
        raise Undecided("the comparison was given up: the expressions are nested too deeply") from None


def in_terms_of(p: Graph, node: int, f: Graph, box: Box) -> Graph | None:
    """The function of p's `node` with parts of it, the largest first, replaced by nodes of f that are proved equal.

    Equal values at a few points propose a pair, `same_function` decides. None if nothing could be replaced.
    """
    theirs: dict[tuple[float, ...], int] = {}
    for j, key in enumerate(_fingerprints(f, box)):
        if f.nodes[j].op not in _LEAVES:
            theirs.setdefault(key, j)
    mine = _fingerprints(p, box)
    build = Builder()
    copied: dict[int, int] = {}
    asked = replaced = 0

    def copy(i: int) -> int:
        nonlocal asked, replaced
        if i not in copied:
            j = theirs.get(mine[i])
            if j is not None and p.nodes[i].op not in _LEAVES and asked < MAX_QUESTIONS:
                one, other = p.reachable((i,)), f.reachable((j,))
                try:
                    asked += one != other
                    same_function(one, other, box)
                    replaced += one != other
                    copied[i] = build.copy(other.nodes)[other.outputs[0]]
                    return copied[i]
                except Undecided:
                    pass
            args = [copy(a) for a in p.nodes[i].args]
            copied[i] = build.apply(p.nodes[i].op, *args, value=p.nodes[i].value)
        return copied[i]

    try:
        top = copy(node)
    except (InvalidRequest, RecursionError):
        return None
    return build.graph([top]) if replaced else None


@lru_cache(maxsize=4)  # every argument of a program is looked for in the same target
def _fingerprints(graph: Graph, box: Box) -> list[tuple[float, ...]]:
    """Values of every node at three points, to ten digits; undefined ones differ from everything."""
    X = box.sample(3, np.random.default_rng(5))
    rows = []
    with np.errstate(all="ignore"):
        for value in run_all(graph, ArrayAlgebra(), {n: X[:, k] for k, n in enumerate(box.names)}):
            column = np.broadcast_to(np.asarray(value, dtype=np.float64), (3,))
            rows.append(tuple(float(f"{v:.10g}") for v in column))
    return rows


def _compare_at_points(p: Graph, f: Graph, box: Box) -> None:
    X = box.sample(POINTS, np.random.default_rng(11))
    with precision(POINT_BITS):
        env = {name: point_balls(X[:, k]) for k, name in enumerate(box.names)}
        algebra = BallAlgebra(clip_sqrt=True)
        pairs = zip(run(p, algebra, env), run(f, algebra, env), strict=True)
        for o, (a, b) in enumerate(pairs):
            difference = np.broadcast_to(np.asarray(a - b, dtype=object), (POINTS,))
            for x, d in zip(X, difference, strict=True):
                if d > 0 or d < 0:
                    at = ", ".join(f"{n}={float(v)!r}" for n, v in zip(box.names, x, strict=True))
                    raise Undecided(
                        f"output {o}: {p.text(p.outputs[o], 80)} is not {f.text(f.outputs[o], 80)}: at {at} they"
                        f" differ by {float(d.mid()):.3g}"
                    )


def _compare_forms(p: Graph, f: Graph, box: Box, spent: int) -> int:
    ways = [(0, False), *([(RANGES, False)] if has_kinks(f) else [])]  # a program may decide branches left open before
    for ranges, addition in ways:
        rewrites = Rewrites(box, addition)
        rewrites.forms.steps = spent
        rewrites.forms.admit(len(f.nodes))
        rewrites.about.signs.ranges = ranges
        with precision(BITS):
            try:
                failure: Undecided | TooLarge | None = _prove(rewrites, p, f)
            except TooLarge as error:
                failure = error
        if failure is None:
            return rewrites.forms.steps
        if rewrites.sums and not addition and (ranges, True) not in ways:
            ways.append((ranges, True))
    assert failure is not None
    raise failure


def _prove(rewrites: Rewrites, p: Graph, f: Graph) -> Undecided | None:
    """None if every output is proved equal wherever f is defined and the suppositions hold; else why not."""
    for _ in range(PASSES):
        rewrites.about.learnt = False
        failure, kink = _one_pass(rewrites, p, f)
        if failure is None:
            return None
        rewrites.begin_again()
        if not rewrites.about.learnt:
            break
    if kink is None or len(rewrites.about.supposed) == MAX_CASES:
        return failure
    for positive in (True, False):
        with rewrites.supposing(kink, positive):
            if not rewrites.about.impossible() and _prove(rewrites, p, f) is not None:
                return failure
    return None


def _one_pass(rewrites: Rewrites, p: Graph, f: Graph) -> tuple[Undecided | None, int | None]:
    """Why the graphs are not proved equal, if they are not, and an atom whose sign may decide it."""
    try:
        right = rewrites.read(f, trusting=True)
        left = rewrites.read(p, trusting=False)
    except Undecided as failure:
        return failure, None
    forms = rewrites.forms
    for o, (a, b) in enumerate(zip(left, right, strict=True)):
        difference = forms.add(a, scale(b, -1))
        try:
            zero = forms.is_zero(difference)
        except TooLarge:  # another pass may still find equal forms without multiplying everything out
            zero = False
        if not zero:
            shown = f"{rewrites.about.text(a)}  and  {rewrites.about.text(b)}"
            why = Undecided(f"output {o}: could not derive the one expression from the other: {shown}")
            return why, rewrites.about.open_kink(difference)
    return None, None
