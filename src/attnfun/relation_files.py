"""Files of relations, whichever way they were met: read, and judged again by the checker that belongs to their form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnfun.certify import Certificate
from attnfun.certify.expansion import prove_by_expansion
from attnfun.certify.relation import core_that_fits, prove_by_relation
from attnfun.certify.relation_cells import core_of_cells, prove_by_relation_cells
from attnfun.certify.relation_sampled import sampled_certificate
from attnfun.network.cells import Cells
from attnfun.network.relation_file import FORMAT, Towers, load_relation
from attnfun.network.relation_forms import CELLS, SLICES, TERMS, load_cells, load_slices, load_terms, target_of
from attnfun.network.sealed import Source, held
from attnfun.network.separable import Separable
from attnfun.network.slices import Slices
from attnfun.relation_ways import Stored, towers_of
from attnfun.targets.relation import Relation
from attnfun.targets.relation_core import Core, plain_core

FORMATS = (FORMAT, CELLS, SLICES, TERMS)


def read_relation(path: Source) -> tuple[Relation, Stored, Towers | None, dict[str, Any]]:
    """(relation, stored form, towers, the rest of the record)."""
    file = held(path)
    if file.format == CELLS:
        target, cells, rest = load_cells(file)
        return Relation.from_json(target), cells, towers_of(cells), rest
    if file.format == TERMS:
        target, terms, rest = load_terms(file)
        return Relation.from_json(target), terms, towers_of(terms), rest
    if file.format == SLICES:
        asked = Relation.from_json(target_of(file))
        _, slices, rest = load_slices(file, asked.graph, (asked.left.names, asked.right.names))
        return asked, slices, None, rest
    target, features, towers, rest = load_relation(file)
    return Relation.from_json(target), features, towers, rest


def stored_core(asked: Relation, stored: Stored) -> Core:
    """The core whose features, cells or slices are stored."""
    if isinstance(stored, Cells):
        return core_of_cells(asked, stored)
    return plain_core(asked) if isinstance(stored, (Slices, Separable)) else core_that_fits(asked, stored)


def prove_again(
    asked: Relation,
    stored: Stored,
    towers: Towers | None,
    eps: float | None,
    how: str,
    progress: Callable[[str], None] | None,
) -> Certificate:
    """The certificate of a stored form; slices are measured again."""
    if isinstance(stored, Cells):
        return prove_by_relation_cells(asked, stored, eps, how, progress)
    if isinstance(stored, Slices):
        return sampled_certificate(asked, stored, eps, how, "", progress)
    if isinstance(stored, Separable):
        return prove_by_expansion(asked, stored, eps, how, progress)
    return prove_by_relation(asked, stored, eps, how, progress, None, towers)
