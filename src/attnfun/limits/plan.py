"""`plan`: which (rank, heads, layers) a task excludes, which are constructed, and where nobody knows.

| task | excluded by | constructed |
| --- | --- | --- |
| furthest-neighbour | the most of `bounds.rank` and | one head of full rank; 2d heads of rank 1, then one (two |
| and nearest-neighbour | `bounds.neighbours`, one layer | layers) |
| matching, order 2 | nothing is known | one head of rank 2 (`matching`) |
| matching, order 3 | `bounds.matching`, one layer, by bits | third-order attention: outside the grid of plain heads |
| sparse-averaging | the bits of the query, one layer | `sparse_average`, one head or several |
| relation | the rank of the score matrix (`rank_of`) | one head of the rank found |

A cell is "impossible" with the bound that says so, "constructed" with the construction and its size, or "unknown".
Parameters of a cell are those of W_Q and W_K: 2 · width · rank · heads · layers, where the width of a token is dim, and
for the nearest point dim + context, for it holds its position. More heads, rank or layers than a construction needs may
stand idle. Which way the pressure goes is a matter of the family of tasks, so the answer in one sentence names it; with
a budget the sentence before it names the smallest construction, and whether it fits.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from attnfun.errors import InvalidRequest, require
from attnfun.language.numbers import one_of, positive, whole_number
from attnfun.limits import plan_tasks
from attnfun.limits.plan_tasks import Family
from attnfun.limits.record import Record

TASKS = ("furthest-neighbour", "nearest-neighbour", "matching", "sparse-averaging", "relation")
VERDICTS = ("impossible", "constructed", "unknown")
_MOST_CELLS = 4000


@dataclass(frozen=True)
class Cell(Record):
    """`heads` heads of rank `rank` in each of `layers` layers; `why`: the bound or the construction."""

    rank: int
    heads: int
    layers: int
    parameters: int
    verdict: str
    why: str


@dataclass(frozen=True)
class Plan(Record):
    """The map of a task; `cells` are those within the budget.

    `nearest`: the construction with the fewest parameters, within the budget or not; None where there is none.
    """

    task: str
    dim: int
    context: int
    eps: float
    bits: int
    budget: int | None
    answer: str
    nearest: Cell | None
    family: str
    counts: Mapping[str, int]
    cells: tuple[Cell, ...]
    constructions: tuple[str, ...]
    hypotheses: tuple[str, ...]
    sources: tuple[str, ...]

    def verdict(self, rank: int, heads: int, layers: int = 1) -> Cell | None:
        """The cell of the grid, None if it is not on it or over the budget."""
        return next((c for c in self.cells if (c.rank, c.heads, c.layers) == (rank, heads, layers)), None)

    def plot(self, path: Any = None) -> Any:
        """The map of rank × heads in three colours, one panel for each number of layers."""
        from attnfun.plots.limits import draw_plan

        return draw_plan(self, path)


def plan(
    task: str,
    *,
    dim: int = 64,
    context: int = 16,
    eps: float = 0.1,
    budget: int | None = None,
    bits: int = 32,
    order: int = 3,
    q: int = 4,
    matrix: Any = None,
    setting: str = "softmax-any-v",
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """What rank, heads and layers `task` needs at error `eps`: tokens of width `dim`, `context` tokens.

    `task`: "furthest-neighbour", "nearest-neighbour", "matching" (with `order` 2 or 3), "sparse-averaging" (with `q`)
    or "relation" (with `matrix`, the scores that a head must have within eps). `budget`: the most parameters of W_Q and
    W_K. `bits`: of a number, for the bounds by bits. `setting`: of `bounds.rank`, what the heads of neighbours are.
    """
    one_of("task", task, TASKS)
    d, n = whole_number("dim", dim, 2), whole_number("context", context, 2)
    p = whole_number("bits", bits, 1)
    most = None if budget is None else whole_number("budget", budget, 1)
    eps = positive("eps", eps)
    require((matrix is None) == (task != "relation"), "a score matrix belongs to task 'relation', and that needs one")
    require(task != "matching" or order in (2, 3), f"order={order!r}: 2 for pairs, 3 for triples")
    say = progress or (lambda _: None)
    families: dict[str, Callable[[], Family]] = {
        "furthest-neighbour": lambda: plan_tasks.neighbour(d, n, eps, setting, nearest=False),
        "nearest-neighbour": lambda: plan_tasks.neighbour(d, n, eps, setting, nearest=True),
        "matching": lambda: plan_tasks.pairs(d, n) if order == 2 else plan_tasks.triples(d, n, p),
        "sparse-averaging": lambda: plan_tasks.averages(d, n, eps, p, q, say),
        "relation": lambda: plan_tasks.relation(matrix, eps, say),
    }
    family = families[task]()
    every = _cells(family)
    cells = every if most is None else tuple(cell for cell in every if cell.parameters <= most)
    if not cells:
        least = min(cell.parameters for cell in every)
        raise InvalidRequest(f"budget={most}: the thinnest head has {least:,} parameters; write budget={least} or more")
    nearest = min((c for c in every if c.verdict == "constructed"), key=lambda c: c.parameters, default=None)
    counts = {verdict: sum(c.verdict == verdict for c in cells) for verdict in VERDICTS}
    answer = _answer(family.answer, cells, nearest, most)
    texts = tuple(family.constructions), tuple(family.hypotheses), tuple(family.sources)
    asked = task, family.dim, n if family.context is None else family.context, eps, p, most
    return Plan(*asked, answer, nearest, family.family, counts, cells, *texts)


def _answer(answer: str, cells: tuple[Cell, ...], nearest: Cell | None, budget: int | None) -> str:
    """The family's sentence; before it, what the budget makes of it."""
    if budget is None:
        return answer
    within = f"Within {budget:,} parameters "
    if nearest is None:
        text = "nothing is constructed here, nor is it beyond them"
    else:
        size = f"{_count(nearest.heads, 'head')} of rank {nearest.rank} in {_count(nearest.layers, 'layer')}"
        made = f"{size}, {nearest.parameters:,} parameters ({nearest.why})"
        fits = nearest.parameters <= budget
        text = f"the smallest construction fits: {made}" if fits else f"no construction fits; the nearest is {made}"
    if all(cell.verdict == "impossible" for cell in cells):
        text += "; all that fits is proved impossible"
    return f"{within}{text}. Without the budget: {answer}"


def _count(count: int, name: str) -> str:
    return f"{count:,} {name}{'s' * (count != 1)}"


def _cells(family: Family) -> tuple[Cell, ...]:
    ranks = _steps(family.most_rank, family.ranks)
    heads = _steps(family.most_heads, family.heads)
    while len(ranks) * len(heads) * len(family.layers) > _MOST_CELLS:
        heads = heads[::2]
    out = []
    for layers, rank, count in itertools.product(family.layers, ranks, heads):
        parameters = 2 * (family.width or family.dim) * rank * count * layers
        out.append(Cell(rank, count, layers, parameters, *family.judge(rank, count, layers)))
    return tuple(out)


def _steps(most: int, special: tuple[int, ...]) -> list[int]:
    """Powers of two up to `most`, `most` itself, and the sizes where something happens."""
    powers = [1 << k for k in range(most.bit_length()) if 1 << k <= most]
    return sorted({*powers, most, *(s for s in special if 1 <= s <= most)})
