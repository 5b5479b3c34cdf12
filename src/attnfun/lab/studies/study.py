"""Study: one claim, what is run to test it, the table that comes out, and a verdict that is a function of that table.

A study is a module. Its docstring is the statement: a title, then paragraphs that begin with `Claim.`, `Source.`,
`A full run takes` and `Columns.`. Its functions are `units`, `run`, `judge` and `draw`, and
`STUDY = described(__name__, …)` puts it together.
Units are products of axes (`crossed`). A judge asks its table (`tables.Rows`), gathers sentences and faults, and ends
with `decided`. A picture is made of `drawing.panels`, `curve` and `labelled`.

A study is a list of *units*, each a small JSON dictionary that says all its run needs: units run in any order, in any
process, on any machine, and give the same rows for the same dictionary (seeds are in it). The table is the rows of all
units in the units' order. Times are not part of it: columns named in `timings` go to a file of their own, so that a
table can be compared bit by bit with that of another run on the same machine, and no verdict depends on the clock.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import product
from typing import Any

import attnfun as af
from attnfun.lab.studies.tables import Row as Row
from attnfun.lab.studies.tables import Rows as Rows
from attnfun.lab.studies.tables import median as median
from attnfun.lab.studies.tables import read
from attnfun.lab.studies.tables import slope as slope

HOLDS, LIMITS, REFUTED = "holds", "holds with limits", "refuted"
VERDICTS = (HOLDS, LIMITS, REFUTED)
SIZES = ("tiny", "quick", "full")
_FULL_TIME = "A full run takes "

Unit = dict[str, Any]
Size = Mapping[str, Any]  # the parameters of one size
Table = Sequence[Row]


@dataclass(frozen=True)
class Verdict:
    """`kind`: holds, holds with limits, or refuted; the finding in a sentence or two; the evidence, with figures."""

    kind: str
    finding: str
    evidence: str = ""

    @property
    def words(self) -> str:
        """Finding and evidence, one paragraph."""
        return f"{self.finding} {self.evidence}".strip()

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "finding": self.finding, "evidence": self.evidence.strip(), "words": self.words}

    def __post_init__(self) -> None:
        if self.kind not in VERDICTS or not self.finding:
            raise af.InvalidRequest(f"a verdict is one of {', '.join(VERDICTS)}, in words; not {self.kind!r}")


def decided(said: Iterable[str], refuted: Sequence[str] = (), limits: str = "", holds: str = "It holds.") -> Verdict:
    """Refuted where there are faults, of which three are named; else with limits where there is one; else it holds."""
    words = " ".join(part.strip() for part in said)
    if refuted:
        finding = "; ".join(refuted[:3])
        return Verdict(REFUTED, f"{finding[0].upper()}{finding[1:]}.", words)
    return Verdict(LIMITS, limits, words) if limits else Verdict(HOLDS, holds, words)


def lacking(table: Table, column: str, *kinds: Any) -> Verdict | None:
    """A verdict that nothing can be said, where the table has no row of one of these kinds; else None."""
    gone = [kind for kind in kinds if all(row[column] != kind for row in table)]
    if not gone:
        return None
    return Verdict(REFUTED, f"Nothing can be said: the table has no row of {', '.join(map(str, gone))}.")


@dataclass(frozen=True)
class _OnRows:
    """A function of Rows as one of any table; it speaks of rows of certain kinds, without which nothing can be said."""

    function: Callable[[Rows], Any]
    speaks_of: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def __call__(self, table: Table) -> Any:
        gone = (lacking(table, column, *kinds) for column, kinds in self.speaks_of.items())
        return next(filter(None, gone), None) or self.function(read(table))


@dataclass(frozen=True)
class Study:
    """A claim of a paper or an open question, and the experiment that answers it.

    claim     one or two sentences, as the source has it (or as a question has been answered there)
    source    author, year, where to find it; what is our own derivation says so
    columns   name → meaning of every column of the table, times included; ≤ or ≥ before the meaning: a bound
    sizes     parameters for "tiny" (a test, seconds), "quick" (a minute) and "full"
    units     parameters → units
    run       a unit → its rows, or its only row, without what they share with the unit; imports torch itself
    judge     the table → the verdict; pure, and without any figure that is not in the table or written in the claim
    draw      the table → a matplotlib Figure
    timings   columns that hold seconds or rates: not in the table
    needs     extras that `run` imports: "torch", "sklearn"
    full_time what a full run took, in words
    """

    name: str
    title: str
    claim: str
    source: str
    columns: Mapping[str, str]
    sizes: Mapping[str, Mapping[str, Any]]
    units: Callable[[Mapping[str, Any]], list[Unit]]
    run: Callable[[Unit], Row | list[Row]]
    judge: Callable[[Table], Verdict]
    draw: Callable[[Table], Any]
    timings: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    full_time: str = ""
    group: str = field(default="", compare=False)

    def parameters(self, size: str) -> Mapping[str, Any]:
        if size not in self.sizes:
            raise af.InvalidRequest(f"{self.name} has no size {size!r}: write {' or '.join(self.sizes)}")
        return self.sizes[size]

    def rows(self, unit: Unit) -> list[Row]:
        """The rows of one unit in the order of the columns, their numbers made plain.

        `run` need not repeat the unit: what it leaves out has the unit's value, and none where the unit says nothing.
        """
        rows, found = [], self.run(unit)
        for row in [found] if isinstance(found, dict) else found:
            if unknown := [name for name in row if name not in self.columns]:
                raise AssertionError(f"{self.name}: a row has the columns {unknown}, which are not described")
            rows.append({name: plain(row[name] if name in row else unit.get(name)) for name in self.columns})
        return rows

    def verdict(self, table: Table) -> Verdict:
        """What the table says; of no rows, that nothing can be said."""
        return self.judge(table) if table else Verdict(REFUTED, "Nothing can be said: the table has no rows.")

    def table(self, size: str) -> list[Row]:
        """All rows, one unit after the other, in this process: for tests and notebooks."""
        return [row for unit in self.units(self.parameters(size)) for row in self.rows(unit)]


def described(module: str, *, needs: Any = (), timings: Any = (), speaks_of: Any = None, **parameters: Any) -> Study:
    """The study that a module is: its statement from the docstring, its functions by their names.

    `speaks_of` are kinds of rows, by column, without which it gives no verdict. A parameter that is a tuple has a value
    for each of SIZES, anything else is the same for all.
    """
    home = sys.modules[module]
    if not home.__doc__:
        raise af.AttnfunError("a study is described by its docstring: run Python without -OO")
    title, parts = _statement(home.__doc__)
    lines = parts.pop("columns").replace("\n" + " " * 8, " ").split("\n")  # deeper lines go on with the one above
    columns = {name.strip(): meaning for name, _, meaning in (line.partition(": ") for line in lines)}
    each = {name: v if isinstance(v, tuple) else (v,) * len(SIZES) for name, v in parameters.items()}
    return Study(
        name=module.rpartition(".")[2].replace("_", "-"),
        title=title,
        columns=columns,
        sizes={size: {name: values[k] for name, values in each.items()} for k, size in enumerate(SIZES)},
        units=home.units,
        run=home.run,
        judge=_OnRows(home.judge, speaks_of or {}),
        draw=_OnRows(home.draw),
        timings=timings,
        needs=needs,
        **parts,
    )


def _statement(doc: str) -> tuple[str, dict[str, str]]:
    """(title, {"claim": …, "source": …, "full_time": …, "columns": lines}) of a study's docstring."""
    title, *paragraphs = doc.strip().split("\n\n")
    parts = {}
    for paragraph in paragraphs:
        label, _, text = paragraph.partition(".")
        if label in ("Claim", "Source"):
            parts[label.lower()] = " ".join(text.split())
        elif label.startswith(_FULL_TIME):
            parts["full_time"] = label.removeprefix(_FULL_TIME)
        elif label == "Columns":
            parts["columns"] = text.strip("\n")
    return title.removesuffix("."), parts


def crossed(**axes: Any) -> list[Unit]:
    """Units of all combinations: a tuple, list or range is an axis, the first varies slowest; anything else is fixed.

    A value that is itself a list is written as an axis of one: `heads=[[1, 2, 4]]`.
    """
    each = [value if isinstance(value, tuple | list | range) else (value,) for value in axes.values()]
    return [dict(zip(axes, values, strict=True)) for values in product(*each)]


def crossed_with(names: Sequence[str], listed: Iterable[Sequence[Any]], **axes: Any) -> list[Unit]:
    """The same for every one of the values listed, which have these names: `crossed_with(("d", "r"), [[8, 1]], …)`."""
    return [unit for values in listed for unit in crossed(**dict(zip(names, values, strict=True)), **axes)]


def plain(value: Any) -> Any:
    """NumPy scalars as Python's; anything but a scalar is a fault of the study."""
    value = value.item() if hasattr(value, "item") else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise AssertionError(f"a table holds scalars, not a {type(value).__name__}")


GROUPS: dict[str, tuple[str, ...]] = {
    "max-affine": ("partition-2d", "temperature", "noise", "learnability", "dimension", "perturbation"),
    "softmax-attention": ("interpolation-rate", "multihead-rate", "seq2seq", "in-context"),
    "relations": ("mercer", "asymmetric", "lexicographic", "neuron-bounds", "retrieval-real", "violations"),
    "separations": ("rank-heads", "two-candidates", "random-features", "majority-vote", "sets", "match3"),
    "open-questions": (
        "structure",
        "softmax-distribution",
        "beyond-three",
        "precision",
        "higher-order",
        "discrete-metric",
        "nonanalytic-sets",
        "depth-mlp",
        "ffn-or-not",
    ),
}
NAMES: tuple[str, ...] = tuple(name for names in GROUPS.values() for name in names)


def find(name: str) -> Study:
    """The study of that name; its file is studies/GROUP/NAME.py with underscores, its object STUDY."""
    for group, names in GROUPS.items():
        if name in names:
            module = import_module(f"attnfun.lab.studies.{group}.{name}".replace("-", "_"))
            found = module.STUDY
            assert isinstance(found, Study) and found.name == name
            return replace(found, group=group)
    raise af.InvalidRequest(f"there is no study {name!r:.60}; there are: {', '.join(NAMES)}")
