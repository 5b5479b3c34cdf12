"""Function: what is asked of a network that maps a point of a box to one or several numbers.

Either an expression graph (exact: the certificate speaks of it), or a black box, a Python callable that could not be
traced, about which nothing is known but a declared Lipschitz constant (every certificate about it is conditional).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from typing import Any, ClassVar

import numpy as np

from attnfun.errors import DamagedFile, InvalidRequest, require
from attnfun.language import BallAlgebra, Builder, Graph, Untraceable, parse, precision, run
from attnfun.language.arrays import values_at
from attnfun.language.balls import values_at_point
from attnfun.language.canonical import canonical
from attnfun.language.domain import Array, Box, climbed
from attnfun.language.enclosures import abs_lowers, lower, point_balls
from attnfun.language.matrices import Matrices
from attnfun.language.mlp import read_mlp
from attnfun.language.numbers import positive
from attnfun.language.pieces import Lowered, lowered
from attnfun.language.quadrants import by_quadrant
from attnfun.language.relu_units import Dense, read_units
from attnfun.language.removable import extended
from attnfun.language.scattered import Scattered
from attnfun.language.tabulated import read_table
from attnfun.language.target import Target
from attnfun.language.trace import parts_of, traced
from attnfun.language.vertices import broken_line

_LARGE = 400  # operations
FLOOR = {"float64": 2.0**-50, "float32": 2.0**-21}
"""The least eps, relative to the size of the values, that a dtype can hold."""


@dataclass(frozen=True)
class Function(Target):
    """f : box → R^p.

    `graph` is the expression, or None for a black box; then `call` evaluates it, (n, d) → (n, p), and `lipschitz` is
    the declared constant: |f(x) − f(y)|_∞ ≤ lipschitz · |x − y|_2 on the box. Of scattered `data` f is any such
    function through them, and `call` the middle one. Where the expression that was asked for
    has removable singularities, `graph` is its continuous extension (`removable`) and `source` the expression itself,
    and so where the expression is a broken line of few vertices (`vertices`), or is made of pieces (`pieces`), jumps of
    at most `slack` left out. With a `band` δ it is asked for only where every argument of a sign is at least δ in size.
    """

    kind: ClassVar[str] = "function"
    norms: ClassVar[tuple[str, ...]] = ("sup", "lp", "relative")

    graph: Graph | None
    box: Box
    outputs: tuple[str, ...]
    call: Callable[[Array], Array] | None = None
    lipschitz: float | None = None
    source: Graph | None = None
    slack: float = 0.0
    band: float | None = None
    data: Scattered | None = None

    @classmethod
    def of(cls, graph: Graph, box: Box, outputs: tuple[str, ...], slack: float = 0.0) -> Function:
        """The function that an expression means on a box: its pieces joined, with its continuous extension, or as a
        broken line.
        """
        graph = by_quadrant(graph, box)
        base = lowered(graph, box, slack).graph
        line = broken_line(base, box)
        whole = extended(base, box) if line is None else line
        return cls(whole, box, outputs, source=None if whole == graph else graph, slack=slack)

    def loosened(self, slack: float) -> Function:
        """The same function, with `graph` off by at most `slack` at every jump that is no larger."""
        return self if self.expression is None else Function.of(self.expression, self.box, self.outputs, slack)

    @property
    def pieces(self) -> Lowered:
        """What was asked for with its pieces joined; `graph` continues that."""
        assert self.expression is not None
        return lowered(self.expression, self.box, self.slack)

    @property
    def formula(self) -> Graph:
        """`graph`, where it is known to be an expression."""
        assert self.graph is not None
        return self.graph

    def outside(self, band: Any) -> Function:
        """The same function, asked for off a band about its jumps."""
        found = None if self.graph is None else replace(self, band=positive("band", band))
        why = f"band={band!r:.30}: only an expression that jumps has one, and {self.text[:100]} does not"
        if found is None or not found.arguments:
            raise InvalidRequest(why)
        return found

    @cached_property
    def left_out(self) -> str:  # type: ignore[override]
        """The band, in words."""
        if self.band is None:
            return ""
        texts = [argument.text(argument.outputs[0], 60) for argument in self.arguments]
        if len(texts) > 4:
            return f"|u| < {self.band:g} for u = {texts[0]} and the {len(texts) - 1} other arguments at which it jumps"
        return " or ".join(f"|{text}| < {self.band:g}" for text in texts)

    @cached_property
    def arguments(self) -> tuple[Graph, ...]:
        """Where they vanish it may jump, or have a value of its own: the arguments of its signs, and others."""
        nodes = self.formula.nodes
        found = [self.formula.reachable((n.args[0],)) for n in nodes if n.op == "sign"]
        for point in self.pieces.points if self.source is not None else ():
            build = Builder()
            (w,) = (build.copy(point.coordinate.nodes)[o] for o in point.coordinate.outputs)
            found.append(build.graph([build.apply("sub", w, build.const(point.at))]))
        return tuple({_size(argument): argument for argument in reversed(found)}.values())[::-1]

    def off_band(self, X: Array) -> Array:
        """(n,) at which of the points (n, d) every argument of a sign is proved to be at least the band in size."""
        kept = np.ones(len(X), dtype=bool)
        if self.band is not None:
            env = {n: point_balls(X[:, k]) for k, n in enumerate(self.box.names)}
            for argument in self.arguments:
                value = np.asarray(run(argument, BallAlgebra(clip_sqrt=True), env)[0], dtype=object)
                kept &= np.broadcast_to(abs_lowers(value), (len(X),)) >= self.band
        return kept

    @property
    def expression(self) -> Graph | None:
        """What was asked for, as it is stored and shown."""
        return self.graph if self.source is None else self.source

    @cached_property
    def between(self) -> tuple[float, float]:
        """Of scattered data how far functions through them may be from the middle one, and the fill distance."""
        return (0.0, 0.0) if self.data is None else self.data.between(self.box)

    @classmethod
    def on(cls, target: Any, domain: Any, lipschitz: float | None = None) -> Function:
        """A Function from whatever `read` takes, on a domain in any of its forms."""
        own = read_mlp(target) or read_table(target)  # they know what their inputs are
        if own is not None:
            return cls.read(own, own.box(domain), lipschitz)
        return cls.read(target, Box.parse(domain, target), lipschitz)

    @classmethod
    def read(cls, target: Any, box: Box, lipschitz: float | None = None) -> Function:
        """A Function from text, a list of texts, a Graph, an MLP (`mlp`), a table (`tabulated`), or a Python callable
        (traced if possible).
        """
        if isinstance(target, Function):
            return target
        own = read_mlp(target) or read_table(target)
        if isinstance(own, Scattered):
            return cls(None, box, ("f",), own.middle, own.lipschitz, data=own)
        if own is not None:
            graph = own.graph(box.names)
        elif isinstance(target, Graph):
            graph = target
        elif isinstance(target, str):
            graph = parse(target, box.names)
        elif callable(target):
            return cls._from_callable(target, box, lipschitz)
        elif isinstance(target, Sequence) and target and all(isinstance(t, str) for t in target):
            graph = parse(list(target), box.names)
        else:
            raise InvalidRequest(
                f"target {target!r:.80}: give an expression, a list of expressions, a function of NumPy arrays, an"
                " MLP, or a table"
            )
        require(lipschitz is None, "lipschitz= is for black boxes only: an expression has its own, derived constant")
        return cls.of(graph, box, _output_names(len(graph.outputs)))

    @classmethod
    def _from_callable(cls, target: Callable[..., Any], box: Box, lipschitz: float | None) -> Function:
        try:
            found = traced(target, box.names)
        except Untraceable as why:
            if lipschitz is None:
                raise InvalidRequest(
                    f"the function {getattr(target, '__name__', 'given')} cannot be traced into an expression ({why}); "
                    "declare lipschitz= to have it treated as a black box with a conditional certificate"
                ) from None
            return cls._black_box(target, box, lipschitz)
        made = cls.of(found.graph, box, _output_names(len(found.graph.outputs)))
        X = box.sample(64, np.random.default_rng(0))
        with np.errstate(all="ignore"):
            seen, own = _as_columns(target, found.parts, found.rows)(X), made.values(X)
        if seen.shape != own.shape or not np.allclose(seen, own, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise InvalidRequest(
                "tracing this function gave another function than calling it (does it depend on anything else?)"
            )
        return made

    @classmethod
    def _black_box(cls, target: Callable[..., Any], box: Box, lipschitz: float) -> Function:
        lipschitz, call = positive("lipschitz", lipschitz), _as_columns(target, parts_of(target, box.names))
        _require_plausible(call, box, lipschitz)
        outputs = call(((box.low_array + box.high_array) / 2)[None]).shape[1]
        return cls(None, box, _output_names(outputs), call, lipschitz)

    @property
    def text(self) -> str:
        """The target as a person would write it (from the graph itself, never from stored text)."""
        if self.data is not None:
            return self.data.text
        if self.graph is None:
            return f"black box, Lipschitz constant {self.lipschitz:g} declared"
        texts = (self.source or self.graph).texts
        return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"

    @property
    def domain(self) -> str:
        return self.box.text

    def encode(self, _weights: Any, X: Any, outside: str = "raise") -> tuple[tuple[Array], bool]:
        """Points (`Box.points`). `outside`: "raise", "clamp" or "allow" for points outside the domain."""
        points, single = self.box.points(X)
        return (self.box.checked(points, outside),), single

    @property
    def variables(self) -> tuple[str, ...]:
        return self.box.names

    def decode(self, outputs: Any, single: bool) -> Array:
        """(n,), or (n, outputs) of several; of a single point its values."""
        values = np.asarray(outputs, dtype=np.float64)
        values = values[:, 0] if values.shape[1] == 1 else values
        return np.asarray(values[0] if single else values)

    def columns(self, weights: Any) -> tuple[list[str], list[str]]:
        return list(self.box.names), list(weights.outputs)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array]:
        """Uniform points first; of one variable a grid behind them."""
        X = self.box.probe(count, rng)
        grid = np.linspace(self.box.low[0], self.box.high[0], 7919)[:, None]
        return (X if self.box.dim > 1 else np.concatenate([X, grid]),)

    @property
    def stream(self) -> int:
        return self.box.dim

    def same(self, other: Target) -> bool:
        same = isinstance(other, Function) and other.box == self.box and other.text == self.text
        same = same and other.left_out == self.left_out
        return same and isinstance(other, Function) and len(other.outputs) == len(self.outputs)

    def exact(self, X: Array) -> Array:
        known = self.graph is not None or self.call is not None
        require(known, "the target is a Python function that is not in the file; pass it as target")
        values = self.values(X)
        return values if self.band is None else np.where(self.off_band(X)[:, None], values, np.nan)

    def against(self, given: Any) -> Function:
        if self.graph is not None:
            other = Function.read(given, self.box)
            if other.expression != self.expression:
                raise InvalidRequest(f"the file is about {self.text[:150]}, not about {other.text[:150]}")
            return self
        if self.data is not None:
            other = Function.read(given, self.box)
            if other.data is None or other.data.to_json() != self.data.to_json() or other.lipschitz != self.lipschitz:
                raise InvalidRequest(f"the file is about {self.text}, not about {other.text[:150]}")
            return self
        require(callable(given), "the file's target is a black box; pass the Python function itself")
        call = Function.read(_opaque(given), self.box, self.lipschitz).call
        return Function(None, self.box, self.outputs, call, self.lipschitz)

    def aimed(self, given: Any, domain: Any, lipschitz: float | None) -> Target:
        if isinstance(given, Function):
            return given.aimed(None, domain, lipschitz)
        require(not isinstance(given, Target), "a network of a function is trained towards functions alone")
        if given is not None:
            return Function.on(given, self.box if domain is None else domain, lipschitz)
        if domain is not None and Box.parse(domain, self.box.names) != self.box:
            raise InvalidRequest(f"the target has its own domain {self.box.text}; leave domain out")
        return self

    def absolute(self, fraction: float, dtype: str) -> tuple[float, dict[str, Any]]:
        """`fraction` of a witnessed range: never too lax, because the two witness points attain it."""
        least = FLOOR[dtype]
        low = f"eps={fraction:g} relative is below what {dtype} can hold; the least is about {least:.1g}"
        require(fraction >= least, low)
        expression = self.graph is not None
        require(expression, "relative=True needs an expression: the range of a black box cannot be witnessed")
        width, above, below = witnessed_range(self)
        if above == below:  # constant: exact up to the rounding of the constant itself
            value = float(np.abs(self.values(self.box.low_array[None])).max())
            return max(4 * least * value, 1e-300), {"fraction": fraction, "range": 0.0}
        low = f"the target varies, but by so little that {fraction:g} of its range is below all normal float64 numbers"
        require(fraction * width >= sys.float_info.min, f"relative=True: {low}; give an absolute eps")
        witness = {"fraction": fraction, "range": width, "at maximum": list(above), "at minimum": list(below)}
        return fraction * width, witness

    def fits(self, weights: Any) -> str:
        same = np.array_equal(weights.low, self.box.low_array) and np.array_equal(weights.high, self.box.high_array)
        same = same and weights.inputs == self.box.names and len(weights.outputs) == len(self.outputs)
        return "" if same else "the file's network does not fit its target or its domain"

    def values(self, X: Array) -> Array:
        """(n, d) → (n, p) in float64: the formula as NumPy computes it, with its own rounding; never evidence."""
        if self.graph is None:
            assert self.call is not None
            return self.call(X)
        if self._dense is not None:
            return self._dense.values(X)
        if self.source is not None and self.graph == self.pieces.graph:  # at a jump it has its own value
            return values_at(self.source, self.box.names, X)
        found = None if self._matrices is None else self._matrices.values(X)
        return values_at(self.graph, self.box.names, X) if found is None else found

    @cached_property
    def _matrices(self) -> Matrices | None:
        return None if self.graph is None else Matrices.of(self.graph, self.box.names)

    @cached_property
    def _dense(self) -> Dense | None:
        """A large ReLU network as matrices: thousands of operations at once."""
        if self.graph is None or len(self.graph.nodes) <= _LARGE:
            return None
        units = read_units(self.graph)
        try:
            return None if units is None else units.dense(self.box.names)
        except OverflowError:
            return None

    def to_json(self) -> dict[str, Any]:
        if self.graph is None:
            own: dict[str, Any] = {"kind": "black box", "lipschitz": self.lipschitz}
            own |= {} if self.data is None else {"data": self.data.to_json()}
        else:
            graph = self.source or self.graph
            own = {"kind": "function", "graph": graph.to_json(), "text": self.text}
        own |= {"slack": self.slack} if self.slack else {}
        own |= {"outputs": list(self.outputs), "domain": self.box.text}
        return own if self.band is None else own | {"band": self.band}

    @classmethod
    def from_json(cls, data: Any) -> Function:
        """Read back what `to_json` wrote; the text beside the graph is for people and is not read."""
        if not isinstance(data, dict) or data.get("kind") not in ("function", "black box"):
            raise DamagedFile("the file's target is not a function attnfun knows")
        box = Box.stored(data.get("domain"))
        names = data.get("outputs")
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            raise DamagedFile("the file's target has no list of outputs")
        if data["kind"] == "black box":
            lipschitz = data.get("lipschitz")
            if not isinstance(lipschitz, float) or not lipschitz > 0:
                raise DamagedFile("the file's black box has no Lipschitz constant")
            if "data" in data:
                known = Scattered.from_json(data["data"], lipschitz, box.names)
                if known is None or len(names) != 1:
                    raise DamagedFile("the file's scattered data cannot be read")
                return cls(None, box, tuple(names), known.middle, lipschitz, data=known)
            return cls(None, box, tuple(names), None, lipschitz)
        graph = Graph.from_json(data.get("graph"))
        if len(graph.outputs) != len(names) or not set(graph.variables) <= set(box.names):
            raise DamagedFile("the file's target does not fit its domain or its outputs")
        slack = data.get("slack", 0.0)
        if not isinstance(slack, float) or not 0 <= slack < math.inf:
            raise DamagedFile("the file's target has jumps left out that are not of a finite size")
        function = cls.of(graph, box, tuple(names), slack)
        return function.outside(data["band"]) if "band" in data else function


def _size(graph: Graph) -> Graph:
    """|f|, the same for f and −f."""
    build = Builder()
    at = build.copy(graph.nodes)
    return canonical(build.graph([build.apply("abs", at[o]) for o in graph.outputs]))


def _opaque(target: Any) -> Any:
    """The same function, untraceable: a stored black box is judged as one."""

    def call(*columns: Any) -> Any:
        return target(*[np.array(c) if isinstance(c, np.ndarray) else float(c) for c in columns])

    with suppress(TypeError, ValueError):
        call.__signature__ = signature(target)  # type: ignore[attr-defined]
    return call


def _require_plausible(call: Callable[[Array], Array], box: Box, lipschitz: float) -> None:
    """Refuse a declared Lipschitz constant that pairs of sampled points contradict."""
    rng = np.random.default_rng(0)
    X = box.sample(400, rng)
    width = box.high_array - box.low_array
    for step in (1.0, 1e-1, 1e-2, 1e-4):
        Y = np.clip(X + step * width * rng.uniform(-1, 1, X.shape), box.low_array, box.high_array)
        change = np.max(np.abs(call(Y) - call(X)), axis=1)
        reach = lipschitz * np.sqrt(np.sum((Y - X) ** 2, axis=1))
        wrong = change > reach * (1 + 1e-9) + 1e-12 * (1 + np.abs(change))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InvalidRequest(
                f"lipschitz={lipschitz:g} is contradicted: between {X[i].tolist()} and {Y[i].tolist()} "
                f"the function changes by {change[i]:.4g}, more than {reach[i]:.4g}"
            )


def _output_names(count: int) -> tuple[str, ...]:
    return ("f",) if count == 1 else tuple(f"f{i + 1}" for i in range(count))


def _as_columns(
    target: Callable[..., Any], parts: Sequence[int | slice], rows: bool = True
) -> Callable[[Array], Array]:
    """Wrap a user's function as (n, d) → (n, p): `parts` of a point are its arguments.

    With `rows` it is called with all points at once, and where that does not do (code that wants plain numbers) with
    one at a time.
    """

    def at_once(X: Array) -> Array:
        out = target(*(X[:, part] for part in parts))
        found = list(out) if isinstance(out, (list, tuple)) else [out]
        if len(found) == 1 and np.ndim(found[0]) == 2:
            value = np.asarray(found[0], dtype=np.float64)
            value = value.T if value.shape[-1] == len(X) != value.shape[0] else value
        else:
            columns = (np.broadcast_to(np.asarray(p, dtype=np.float64), (len(X),)) for p in found)
            value = np.stack(list(columns), axis=1)
        if value.ndim != 2 or len(value) != len(X) or not value.shape[1]:
            raise ValueError(f"values of shape {np.shape(out)}")
        return value

    def one_by_one(X: Array) -> Array:
        rows = [target(*(x[part] if isinstance(part, slice) else float(x[part]) for part in parts)) for x in X]
        shape = max((np.shape(row) for row in rows), key=len)
        if len(shape) > 1:
            raise ValueError(f"values of shape {shape} at one point")
        return np.array([np.asarray(row, dtype=np.float64).reshape(-1) for row in rows], dtype=np.float64)

    def columns(X: Array) -> Array:
        value = None
        if rows:
            with suppress(TypeError, ValueError, IndexError):
                value = at_once(X)
        try:
            value = one_by_one(X) if value is None else value
        except (TypeError, ValueError, IndexError) as why:
            raise InvalidRequest(f"the function does not give numbers at points of the domain: {why}") from None
        if value.ndim != 2 or not value.shape[1]:
            raise InvalidRequest(
                f"the function gives values of shape {value.shape} at {len(X)} points: (n,), (n, outputs) or a list "
                "of outputs is needed"
            )
        require(bool(np.isfinite(value).all()), "the black box returned NaN or infinity inside the domain")
        return value

    return columns


def witnessed_range(function: Function) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """A witnessed range, for relative tolerances: (width, x⁺, x⁻) with f(x⁺) − f(x⁻) ≥ width proved at these float64
    points; of several outputs the narrowest that varies. Of a constant the two points are one.
    """
    widths = []
    for o in range(len(function.outputs)):
        # floats may not see a variation far below the values' size: a few more points, told apart by balls alone
        points = [_extreme(function, o, 1.0), _extreme(function, o, -1.0)]
        points += [function.box.low_array, function.box.high_array, *function.box.sample(6, np.random.default_rng(0))]
        with precision(256):
            values = [values_at_point(function.formula, function.box.names, x)[o] for x in points]
            kept = [i for i, v in enumerate(values) if v.is_finite()]
            if not kept:
                continue
            order = sorted(kept, key=lambda i: float((values[i] - values[kept[0]]).mid()))
            above, below = points[order[-1]], points[order[0]]
            difference = values[order[-1]] - values[order[0]]
        if difference > 0:
            gap = 0.0 if function.source is None else function.pieces.gap  # of both values
            width = math.nextafter(lower(difference) - 2 * gap, -math.inf) if gap else lower(difference)
            width = max(width, 0.0)  # 0 where it is below every double
            widths.append((width, tuple(float(v) for v in above), tuple(float(v) for v in below)))
    if not widths:
        centre = tuple(float(v) for v in (function.box.low_array + function.box.high_array) / 2)
        return 0.0, centre, centre
    return min(widths)


def _extreme(function: Function, output: int, sign: float) -> Array:
    """A point of large sign·f_o: samples, corners and edges, then a few shrinking random steps from the best (seeded).

    Deliberately a plain search: a smaller witnessed range makes the tolerance stricter, never laxer.
    """

    def score(X: Array) -> Array:
        with np.errstate(all="ignore"):
            values = sign * function.values(X)[:, output]
        return np.where(np.isfinite(values), values, -np.inf)

    return np.asarray(climbed(function.box, score, 8000, 12, 10)[-1])
