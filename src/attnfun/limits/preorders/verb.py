"""`preorder`: is this preference a preorder, is it continuous, and which utility does attention need for it?"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.errors import Infeasible, InvalidRequest, NoUtility, require
from attnfun.kinds.relation.target import points_of
from attnfun.kinds.retrieval.prove_bounds import clopper_pearson
from attnfun.language.brief import Brief
from attnfun.language.definedness import require_defined
from attnfun.language.domain import Array, Box
from attnfun.language.numbers import whole_number
from attnfun.limits.grids import grid_limits
from attnfun.limits.preorders.finite import check_cycle, levels, read_comparisons
from attnfun.limits.preorders.jumps import lexicographic_axes, misorder_probability, probe_keys, probe_queries
from attnfun.limits.preorders.net import NetUtility, build_net
from attnfun.limits.preorders.probes import Finding, Witness, probe_order
from attnfun.limits.preorders.target import Preorder
from attnfun.limits.record import Record, plain
from attnfun.search import Say

if TYPE_CHECKING:
    from attnfun.kinds.relation.view import RelationApproximant
    from attnfun.limits.score_rank import ScoreRank

_PROPERTIES = ("reflexive", "complete", "transitive")
_BUDGET = 60_000
_FRESH = 1000
_TAU = 0.01


@dataclass(frozen=True)
class Agreement(Record):
    """How often the net's utility orders a fresh random pair as the callable does: measured, with a 95 % interval.

    `pairs` were ordered strictly by the callable, `ties` more were not and do not count; [low, high] is the
    Clopper–Pearson interval for the share among strictly ordered pairs.
    """

    also: ClassVar[tuple[str, ...]] = ("share",)

    pairs: int
    agreed: int
    ties: int
    low: float
    high: float

    @property
    def share(self) -> float:
        return self.agreed / self.pairs if self.pairs else 1.0


@dataclass(frozen=True, eq=False)
class PreorderReport(Brief):
    """What was found about a preorder, property by property, and the utility that was built.

    `status`: "proved" (a utility expression that is continuous on its box), "sampled" (no violation found in the
    probes), "undecided" (a flip of keys between neighbouring queries), "violated" (a witness says so).
    """

    preorder: Preorder
    findings: Mapping[str, Finding]
    net: NetUtility | None = None
    agreement: Agreement | None = None
    lexicographic: tuple[str, ...] | None = None
    note: str = ""
    seconds: float = 0.0

    @property
    def status(self) -> str:
        seen = {finding.status for finding in self.findings.values()}
        return next((s for s in ("violated", "undecided", "sampled") if s in seen), "proved")

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        return tuple(f.witness for f in self.findings.values() if f.witness is not None)

    def check(self) -> bool:
        """Ask all comparisons of all witnesses again: do they say the same? Of expressions they are proved in balls."""
        return all(witness.check(self.preorder) for witness in self.witnesses)

    def utility(self, *points: ArrayLike) -> NDArray[np.float64] | float:
        """utility(query, keys), or utility(keys) without queries: one query, keys (n, variables) or (variables,).

        The expression as NumPy computes it, or the net's utility, measured only. NoUtility where there is none.
        """
        query, K, single = self._points(points)
        self.require()
        if self.preorder.graph is not None:
            values = self.preorder.values(query, K)
        elif self.net is not None:
            values = self.net(query, K)
        else:
            raise InvalidRequest("no net was asked for (net=False), so this callable has no utility")
        return float(values[0]) if single else values

    def relation(self, eps: float, **options: Any) -> RelationApproximant:
        """Towers for the utility expression, queries left and keys right, within eps, proved (`af.relation`).

        Addends of the query alone are left out: they change no order and no softmax over keys. A utility of keys alone
        has rank 1, with an idle left variable. A comparator sign(u(a) − u(b)) is not needed: scores are utilities.
        """
        require(self.preorder.graph is not None, "a comparison callable has no expression; rank(eps) is about its net")
        self.require()
        from attnfun.kinds.relation.verb import relation

        asked = self.preorder.relation()
        if not set(asked.graph.variables) & set(asked.right.names):
            raise InvalidRequest(f"{self.preorder.text}: no key variable matters, all keys are indifferent")
        return relation(asked.graph, asked.left, asked.right, eps, **options)

    def rank(self, eps: float) -> ScoreRank:
        """The rank of scores within eps of the net's utility: that of its table, interpolation adds nothing to it."""
        self.require()
        if self.net is None:
            raise InvalidRequest("rank(eps) is about a net's utility; for an expression relation(eps) has the rank")
        from attnfun.limits.score_rank import rank_of

        return rank_of(self.net.table, eps)

    def require(self) -> None:
        """Raise NoUtility, with the witness and what would do instead, if a property is violated."""
        broken = [(name, f) for name, f in self.findings.items() if f.status == "violated"]
        if broken:
            name, finding = broken[0]
            assert finding.witness is not None
            about = f"{self.preorder.text} on {self.preorder.domain_text} is not {name.replace('_', '-')}"
            why = f"{about}: {finding.witness.statement}"
            raise NoUtility(why, self._nearest(finding.witness), finding.witness)

    def _nearest(self, witness: Witness) -> dict[str, Any] | None:
        """Instead of a lexicographic order of the continuum: `lexicographic(**grid)`, `lexicographic(**cascade)`, or a
        utility that misorders a share of uniform pairs (of two coordinates on unit intervals).
        """
        if witness.kind != "jump" or self.lexicographic is None or len(self.lexicographic) < 2:
            return None
        k, (first, second) = len(self.lexicographic), self.lexicographic[:2]
        limits = grid_limits("float32", k)
        grid = {"levels": limits.one_number, "coordinates": k, "method": "one head"}
        cascade = {"levels": limits.cascade, "coordinates": k, "method": "cascade"}
        other = {"utility": f"{first} + {_TAU}*({second})", "misordered": misorder_probability(_TAU)}
        return {"grid": grid, "cascade": cascade, **other}

    def _points(self, points: tuple[ArrayLike, ...]) -> tuple[Array | None, Array, bool]:
        boxes = [self.preorder.keys] if self.preorder.queries is None else [self.preorder.queries, self.preorder.keys]
        require(len(points) == len(boxes), f"utility takes {'a query and keys' if len(boxes) == 2 else 'keys'}")
        arrays = [_read_points(p, box) for p, box in zip(points, boxes, strict=True)]
        query = arrays[0][0] if len(arrays) == 2 else None
        require(query is None or len(query) == 1, "one query at a time")
        return None if query is None else query[0], *arrays[-1]

    def record(self) -> dict[str, Any]:
        """What `attnfun preorder --json` prints."""
        told: dict[str, Any] = {"status": self.status, "preorder": self.preorder.text}
        told["domain"] = self.preorder.domain_text
        told |= {name: finding.record() for name, finding in self.findings.items()}
        net = self.net and {**dict(zip(("queries", "keys"), self.net.table.shape)), "comparisons": self.net.comparisons}
        told |= {"lexicographic": plain(self.lexicographic), "net": net, "agreement": plain(self.agreement)}
        return told | {"note": self.note, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, eq=False)
class FinitePreorder(Brief):
    """A utility for items that were compared, levels[i] > levels[j] for "i better than j", or the cycle against it."""

    status: str
    levels: NDArray[np.int64] | None
    cycle: tuple[int, ...]
    comparisons: tuple[int, NDArray[np.int64], NDArray[np.int64]]

    def check(self) -> bool:
        """Do the levels honour every comparison, or is the cycle among them?"""
        n, strict, weak = self.comparisons
        if self.levels is None:
            return check_cycle(n, strict, weak, self.cycle)
        u = self.levels
        falls, holds = u[strict[:, 0]] > u[strict[:, 1]], u[weak[:, 0]] >= u[weak[:, 1]]
        return bool(len(u) == n and falls.all() and holds.all())


def preorder(
    prefers: Callable[..., Any] | str | None = None,
    *,
    utility: Any = None,
    right: Any = None,
    left: Any = None,
    keys: Any = None,
    queries: Any = None,
    net: bool = True,
    budget: int = _BUDGET,
    trials: int = 60,
    seed: int = 0,
    progress: Say | None = None,
) -> PreorderReport:
    """What is known of a preorder of keys: by a `utility` expression, or by `prefers(query, a, b)`.

    `prefers` is true iff a is at least as good as b (true both ways for a tie); without queries it is `prefers(a, b)`.
    Boxes: `right` or `keys`, `left` or `queries` (none: keys alone). A utility expression makes completeness and
    transitivity automatic, and its continuity is proved. A callable is probed, violations come back as witnesses
    that can be asked again, and nothing about it is called proved; if none is found, ranks on a net within `budget`
    comparisons give a continuous utility, whose agreement on fresh pairs is measured (`net=False` leaves that out).
    `trials` scales the search for jumps (about 700 comparisons each).
    """
    start = time.perf_counter()
    say = progress or (lambda _text: None)
    if isinstance(prefers, str):
        prefers, utility = None, prefers if utility is None else utility
    require(prefers is None or utility is None, "give a utility or prefers, not both")
    for name, value, least in (("budget", budget, 100), ("trials", trials, 1), ("seed", seed, 0)):
        whole_number(name, value, least)
    boxes = _one_of("right", right, "keys", keys), _one_of("left", left, "queries", queries)
    asked = Preorder.read(utility, prefers, *boxes)
    note, built, measured = "", None, None
    if asked.graph is not None:
        findings, note = _of_expression(asked, trials, seed, say)
    else:
        findings = _of_callable(asked, trials, seed, say)
        if net and not any(finding.status == "violated" for finding in findings.values()):
            built = build_net(asked, budget, say)
            say("agreement on fresh pairs")
            measured = measure_agreement(asked, built, seed)
    jumps = findings["key_continuous"].status == "violated"
    found = lexicographic_axes(asked, seed) if jumps else None
    axes = tuple(f"{'' if sign > 0 else '-'}{asked.keys.names[axis]}" for axis, sign in found or ())
    return PreorderReport(asked, findings, built, measured, axes or None, note, time.perf_counter() - start)


def finite_preorder(comparisons: Any) -> FinitePreorder:
    """Levels for a table R[i, j] = "i at least as good as j", or a list of (better, worse); or the cycle among them.

    Both answers are exact, and `check()` goes through all comparisons again.
    """
    given = read_comparisons(comparisons)
    u, cycle = levels(*given)
    return FinitePreorder("proved" if u is not None else "violated", u, tuple(cycle), given)


def measure_agreement(preorder: Preorder, net: NetUtility, seed: int, pairs: int = _FRESH) -> Agreement:
    """Independent random (query, a, b): does the sign of u(a) − u(b) agree where the callable prefers strictly?"""
    rng = np.random.default_rng([seed, 4])
    agreed = strict = 0
    for _ in range(pairs):
        query = None if preorder.queries is None else preorder.queries.sample(1, rng)[0]
        K = preorder.keys.sample(2, rng)
        order, u = preorder.compare(query, K[0], K[1]), net(query, K)
        strict += order != 0
        agreed += order != 0 and bool(np.sign(u[0] - u[1]) == order)
    low, high = clopper_pearson(agreed, strict, 0.95) if strict else (0.0, 1.0)
    return Agreement(strict, agreed, pairs - strict, low, high)


def _of_expression(asked: Preorder, trials: int, seed: int, say: Say) -> tuple[dict[str, Finding], str]:
    """Everything is proved of a continuous utility; one that jumps is probed."""
    assert asked.graph is not None
    say("is the utility defined on the box?")
    require_defined(asked.graph, asked.joint, continuous=False)
    by_utility = Finding("proved", 0, reason="a utility represents it")
    findings = dict.fromkeys(_PROPERTIES, by_utility)
    note = ""
    if not asked.query_matters:
        note = "the preorder is the same for every query: scores of rank 1 do, the utility of the keys times 1"
        if asked.queries is not None:
            note += "; addends of the query alone change no order and no softmax over keys"
    try:
        require_defined(asked.graph, asked.joint)
    except (InvalidRequest, Infeasible) as why:
        say("the utility may jump: continuity in keys")
        jumps = "the utility jumps" if isinstance(why, InvalidRequest) else "its continuity is open"
        note = f"{jumps} ({str(why).split(':')[0]})" + (f"; {note}" if note else "")
        findings["key_continuous"] = probe_keys(asked, seed, min(trials, 20))
        findings["query_continuous"] = probe_queries(asked, seed, 10)
        return findings, note
    continuous = Finding("proved", 0, reason="the utility is continuous on the whole box")
    return findings | {"key_continuous": continuous, "query_continuous": continuous}, note


def _of_callable(asked: Preorder, trials: int, seed: int, say: Say) -> dict[str, Finding]:
    say("completeness and transitivity")
    findings = probe_order(asked, seed)
    if any(finding.status == "violated" for finding in findings.values()):
        broken = Finding("not probed", 0, reason="it is no complete preorder")
        return findings | {"key_continuous": broken, "query_continuous": broken}
    say("continuity in keys")
    findings["key_continuous"] = probe_keys(asked, seed, trials)
    say("continuity in queries")
    return findings | {"query_continuous": probe_queries(asked, seed)}


def _one_of(first: str, a: Any, second: str, b: Any) -> Any:
    require(a is None or b is None, f"{first}= and {second}= are two names of one box: give one of them")
    return a if b is None else b


def _read_points(points: ArrayLike, box: Box) -> tuple[Array, bool]:
    """(n, variables), and whether one point was given by itself."""
    X = np.asarray(points, dtype=object)
    single = X.ndim == 0 or (X.ndim == 1 and box.dim == len(X))
    return points_of(X.reshape(1, -1) if single else X, box), single
