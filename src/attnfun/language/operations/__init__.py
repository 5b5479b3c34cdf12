"""The registry of operations: what the language can do to numbers, each operation written once (`entry`).

Arithmetic, constants, powers and `ratio` belong to the algebras themselves; all else is here. To add a function, write
its entry in a file of its family and name the file below: every algebra, the parser, tracing, definedness, proofs of
analyticity and the suite of operations × algebras (`tests/expressions/test_operations.py`) find it here.
"""

from collections.abc import Mapping
from typing import Final

from attnfun.language.operations import derived, exponentials, kinks, special, waves
from attnfun.language.operations.entry import Derived, Operation

OPERATIONS: Final[Mapping[str, Operation]] = {
    entry.name: entry for family in (waves, exponentials, kinks, *special.FAMILIES) for entry in family.OPERATIONS
}
DERIVED: Final[Mapping[str, Derived]] = {entry.name: entry for entry in derived.OPERATIONS}
_ALL: Final[tuple[Operation | Derived, ...]] = (*OPERATIONS.values(), *DERIVED.values())
CALLED: Final[Mapping[str, Operation | Derived]] = {
    name: entry for entry in _ALL for name in (entry.name, *entry.aliases)
}
"""By the names of the language: a name, then its aliases."""
TRACED: Final[Mapping[str, Operation | Derived]] = {name: entry for entry in _ALL for name in entry.ufuncs}
"""By the names of NumPy's and SciPy's ufuncs."""
