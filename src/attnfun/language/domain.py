"""The domain: a named box of float64 end points, closed, finite, with no empty side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import DamagedFile, InvalidRequest, require
from attnfun.language.brief import Brief
from attnfun.language.graph import is_name
from attnfun.language.inputs import numbers
from attnfun.language.names import names_of
from attnfun.language.numbers import one_of
from attnfun.language.vectors import entries, entry, groups, is_vector

_ROWS = 64
_TOLD = 12  # coordinates of a point that a message names
Array = NDArray[np.float64]

_MAX_VARIABLES = 1_000
_LARGEST = 1e150  # end points past this would overflow as soon as they are squared


@dataclass(frozen=True)
class Box(Brief):
    """Π_k [low_k, high_k] with a name for each variable; the end points are exactly these doubles."""

    _shown = ("text",)

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    most: ClassVar[int] = _MAX_VARIABLES

    def __post_init__(self) -> None:
        require(len(self.names) > 0, "domain: no variables; write for instance x=-1:1")
        require(len(self.names) <= self.most, f"domain: {len(self.names)} variables; at most {self.most} are supported")
        if len(set(self.names)) != len(self.names):
            raise InvalidRequest(f"domain: a variable is named twice in {', '.join(self.names)}")
        both = [base for base in groups(self.names) if entry(base) is None and f"{base}[0]" in self.names]
        both = [base for base in both if base in self.names]
        require(not both, f"domain: {', '.join(both)[:80]} is a variable and a vector")
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            require(is_name(name), f"domain: '{name[:80]}' is not a variable name")
            side, far = f"domain {name}={low:g}:{high:g}", max(abs(low), abs(high))
            require(math.isfinite(low) and math.isfinite(high), f"{side}: both ends must be finite numbers")
            require(far <= _LARGEST, f"{side}: ends beyond {_LARGEST:g} are not supported")
            require(low < high, f"{side} is empty: the lower end must be below the upper end")
            require(high - low > 1e-12 * far, f"domain {name}={low!r}:{high!r} is too narrow for float64 arithmetic")

    @classmethod
    def parse(cls, domain: Any, target: Any = None) -> Box:
        """A Box from a mapping {"x": (-1, 1)}, a string "x=-1:1;y=0:2", or a list of such strings; for a target
        (`names_of`) also from (-1, 1) or [(-1, 1), (0, 2)]. "x[3]=-1:1" is a vector of three variables, of ends
        that differ "x[3]=-1:1,0:2,0:1".
        """
        if isinstance(domain, Box):
            return domain
        if target is not None and intervals(domain) is not None:
            return read_boxes(target, domain)[0]
        if isinstance(domain, Mapping):
            return cls._from_pairs([(str(name), ends) for name, ends in domain.items()])
        texts = [domain] if isinstance(domain, str) else domain
        if not isinstance(texts, Sequence) or not all(isinstance(t, str) for t in texts):
            ways = "(-1, 1) for one variable, a mapping such as {'x': (-1, 1)}, or text such as 'x=-1:1'"
            raise InvalidRequest(f"domain {domain!r:.80}: give {ways}")
        pairs: list[tuple[str, Any]] = []
        for part in (p.strip() for text in texts for p in text.split(";")):
            if not part:
                continue
            name, equals, ends = part.partition("=")
            require(bool(equals) and ":" in ends, f"domain '{part[:80]}': write name=low:high, for instance x=-1:1")
            sides = [side.split(":") for side in ends.split(",")]
            pairs.append((name.strip(), sides[0] if len(sides) == 1 else sides))
        return cls._from_pairs(pairs)

    @classmethod
    def _from_pairs(cls, pairs: list[tuple[str, Any]]) -> Box:
        rows = []
        for name, ends in pairs:
            vector = entry(name.replace(" ", ""))
            sides: Any = [ends]
            if vector is not None:
                name, count = vector
                least = f"domain: {name}[{count}]: a vector has 1 to {cls.most:,} entries"
                require(1 <= count <= cls.most, least)
                sides = [ends] * count if _is_pair(ends) else ends
                if len(sides) != count:
                    raise InvalidRequest(f"domain of '{name}[{count}]': {len(sides)} intervals for {count} entries")
            for one, side in zip(entries(name, len(sides)) if vector else (name,), sides, strict=True):
                try:
                    low, high = (float(v) for v in side)
                except (TypeError, ValueError, OverflowError):
                    why = f"domain of '{one[:80]}': {side!r:.80} is no pair of numbers low:high"
                    raise InvalidRequest(why) from None
                rows.append((one, low, high))
        return cls(*zip(*rows, strict=True)) if rows else cls((), (), ())

    @classmethod
    def stored(cls, text: Any) -> Box:
        """The box of a file; DamagedFile for what is none."""
        try:
            return cls.parse(str(text))
        except InvalidRequest:
            raise DamagedFile("the file's domain cannot be read") from None

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def low_array(self) -> Array:
        return np.array(self.low)

    @property
    def high_array(self) -> Array:
        return np.array(self.high)

    @property
    def text(self) -> str:
        """The form that `Box.parse` reads back, e.g. "x=-1:1;y=0:2"."""
        pairs = zip(self.low, self.high, strict=True)
        sides = dict(zip(self.names, (f"{_short(a)}:{_short(b)}" for a, b in pairs), strict=True))
        parts = []
        for base, members in groups(self.names).items():
            own = [sides[name] for name in members]
            own = own[:1] if len(set(own)) == 1 else own
            parts.append(f"{base}{f'[{len(members)}]' if is_vector(base, members) else ''}={','.join(own)}")
        return ";".join(parts)

    def part(self, names: Sequence[str]) -> Box:
        """The sides of these names, in their order."""
        at = [self.names.index(name) for name in names]
        return Box(tuple(names), *(tuple(ends[k] for k in at) for ends in (self.low, self.high)))

    def points(self, given: Any) -> tuple[Array, bool]:
        """A user's points as (n, dim), and whether it is one alone: a number of one variable, (dim,) of several.

        Columns are in the order of the domain; those of a data frame are found by name. Of one variable (n,) will do.
        """
        found, d = numbers(given, "points", self.names), self.dim
        single = found.ndim == 0 if d == 1 else found.shape == (d,)
        if single or (d == 1 and found.ndim == 1):
            found = found.reshape(-1, d)
        if found.ndim != 2 or found.shape[1] != d:
            names = ", ".join(self.names)
            names = names if len(names) <= 200 else names[:199] + "…"
            raise InvalidRequest(f"points of shape {found.shape}: (n, {d}) is needed, columns {names}")
        return found, single

    def contains(self, X: Array) -> NDArray[np.bool_]:
        """True where a point (..., dim) lies in the closed box; NaN lies nowhere."""
        low, high = self._ends
        inside: NDArray[np.bool_] = np.logical_and.reduce((low <= X) & (high >= X), axis=-1)
        return inside

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        return self.low_array, self.high_array

    def _holds(self, X: Array) -> bool:
        """Does every point (n, dim) lie in the closed box? Many rows at a time, as one long row."""
        whole = len(X) - len(X) % _ROWS
        low, high = np.tile(self.low, _ROWS), np.tile(self.high, _ROWS)
        long = X[:whole].reshape(-1, _ROWS * self.dim)
        inside = bool(np.all((long.min(axis=0) >= low) & (long.max(axis=0) <= high)))
        return inside and bool(self.contains(X[whole:]).all())

    def checked(self, X: Array, outside: str = "raise", where: Callable[..., str] = lambda *_: "") -> Array:
        """Points (..., dim) of a user: `outside` says what becomes of those outside the box (raise, clamp or allow),
        `where` of an index says where a point stood.
        """
        one_of("outside", outside, ("raise", "clamp", "allow"))
        if X.ndim == 2 and len(X) >= _ROWS and self._holds(X):
            return X
        inside = self.contains(X)
        if inside.all():
            return X
        require(not np.isnan(X).any(), "a point is NaN")
        if outside == "raise":
            first = tuple(int(k) for k in np.argwhere(~inside)[0])
            named = zip(self.names, X[first], (self.low_array <= X[first]) & (self.high_array >= X[first]), strict=True)
            kept = [f"{n}={_told(float(v))}" for n, v, good in named if self.dim <= _TOLD or not good]
            at = ", ".join(kept if len(kept) <= _TOLD else [*kept[:_TOLD], "…"])
            raise InvalidRequest(
                f"the point {at}{where(*first)} lies outside the domain {self.text}; pass outside='clamp' or 'allow'"
            )
        return np.clip(X, self.low_array, self.high_array) if outside == "clamp" else X

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, dim) uniform points, always inside the closed box."""
        t = rng.random((n, self.dim))
        return np.clip(self.low_array + (self.high_array - self.low_array) * t, self.low_array, self.high_array)

    def probe(self, n: int, rng: np.random.Generator) -> Array:
        """Points for attacking a claim: uniform ones, up to 4096 corners, edge points, and the centre."""
        inner = self.sample(n, rng)
        if self.dim <= 12:
            bits = (np.arange(2**self.dim)[:, None] >> np.arange(self.dim)) & 1
        else:
            bits = rng.integers(0, 2, (4096, self.dim))
        corners = np.where(bits == 1, self.high_array, self.low_array)
        edge = self.sample(max(1, n // 4), rng)
        rows = np.arange(len(edge))
        axis = rng.integers(0, self.dim, len(edge))
        edge[rows, axis] = np.where(rng.random(len(edge)) < 0.5, self.low_array[axis], self.high_array[axis])
        centre = ((self.low_array + self.high_array) / 2)[None]
        return np.concatenate([inner, corners, edge, centre])


def _is_pair(ends: Any) -> bool:
    """Is this one interval, and not a list of them?"""
    try:
        return len(ends) == 2 and all(isinstance(end, str) or np.ndim(end) == 0 for end in ends)
    except TypeError:
        return True  # no list at all: told where it is read


def _told(value: float) -> str:
    """A coordinate, in few digits where they are the number: of a point just outside all of them are shown."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def read_boxes(target: Any, *domains: Any) -> list[Box]:
    """The domains of a target's sides; intervals without a name belong to its variables that no domain names."""
    pairs = [intervals(domain) for domain in domains]
    named = [None if own else Box.parse(domain) for own, domain in zip(pairs, domains, strict=True)]
    taken = {name for box in named if box is not None for name in box.names}
    count = sum(len(own) for own in pairs if own)
    free = [name for name in names_of(target, count) if name not in taken] if count else []
    if len(free) != count:
        shown = ", ".join(free)[:80] or "none"
        raise InvalidRequest(
            f"domain: {count} interval(s) without a name, and the variables are {shown}; name them, as in x=-1:1"
        )
    left, found = iter(free), []
    for own, box in zip(pairs, named, strict=True):
        found.append(box or Box._from_pairs([(next(left), ends) for ends in own or ()]))
    return found


def intervals(domain: Any) -> list[tuple[float, float]] | None:
    """(-1, 1) or [(-1, 1), (0, 2)] as a list of pairs; None for text and mappings."""
    if isinstance(domain, (str, Mapping, Box)) or not isinstance(domain, (Sequence, np.ndarray)) or not len(domain):
        return None
    items = list(domain)
    if len(items) == 2 and all(isinstance(v, (int, float, np.number)) and not isinstance(v, bool) for v in items):
        return [(float(items[0]), float(items[1]))]
    if all(isinstance(v, (Sequence, np.ndarray)) and not isinstance(v, str) and len(v) == 2 for v in items):
        try:
            return [(float(a), float(b)) for a, b in items]
        except (TypeError, ValueError):
            return None
    return None


def climbed(box: Box, score: Callable[[Array], Array], probes: int, rounds: int, copies: int) -> Array:
    """Points of large score, the largest last: samples, corners and edges, then shrinking random steps from the best
    (seeded).
    """
    rng, step = np.random.default_rng(0), 0.05
    X = box.probe(probes, rng)
    X = X[np.argsort(score(X))[-24:]]
    for _ in range(rounds):
        moves = step * (box.high_array - box.low_array) * rng.standard_normal((copies * len(X), box.dim))
        Y = np.concatenate([X, np.clip(np.repeat(X, copies, axis=0) + moves, box.low_array, box.high_array)])
        X = Y[np.argsort(score(Y))[-24:]]
        step *= 0.75
    return X


def halved(low: Array, high: Array, weight: Array) -> tuple[Array, Array]:
    """Boxes (n, d) → (2n, d): each cut in two along its longest side, lengths multiplied by `weight` (d,)."""
    return cut(low, high, np.argmax((high - low) * weight, axis=1))


def cut(low: Array, high: Array, axis: NDArray[np.intp]) -> tuple[Array, Array]:
    """Boxes (n, d) → (2n, d): each cut in two along its own axis."""
    rows = np.arange(len(low))
    middle = low[rows, axis] + (high[rows, axis] - low[rows, axis]) / 2
    left_high, right_low = high.copy(), low.copy()
    left_high[rows, axis] = middle
    right_low[rows, axis] = middle
    return np.concatenate([low, right_low]), np.concatenate([left_high, high])


def exchanged(bad: NDArray[np.intp], old: Sequence[Array], new: Sequence[Array]) -> list[Array]:
    """Arrays of one row per box without the rows `bad`, and `new` rows behind the others."""
    keep = np.setdiff1d(np.arange(len(old[0])), bad)
    return [np.concatenate([before[keep], after]) for before, after in zip(old, new, strict=True)]


def sub_boxes(edges: Sequence[Array]) -> tuple[Array, Array]:
    """(n, d) lower and upper corners of the boxes between the edges of every axis."""
    low, high = (np.meshgrid(*ends, indexing="ij") for ends in ([e[:-1] for e in edges], [e[1:] for e in edges]))
    return np.stack([g.ravel() for g in low], axis=1), np.stack([g.ravel() for g in high], axis=1)


def _short(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
