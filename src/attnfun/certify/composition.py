"""Method *composition*: networks of any depth whose coordinates are labelled (see `network.labels`), head by head.

1. The program of the labels is proved to be the target, by exact rewrites with side conditions (`identity`; `extension`
   where the target has removable singularities). Nothing a label says is believed: a label's φ must depend on its U
   alone, U must be affine in inputs and earlier φ's, both read off the program itself.
2. In stream order, for the coordinate labelled (φ, U, a, b): write U = Σ_i β_i φ_i + Σ_k γ_k x_k + const. Let φ̂_i =
   z_i + a_i Û_i + b_i be what the stream holds for φ_i, E_i a bound of |φ̂_i − φ_i|, and û the argument the heads
   really see: their computed query, taken back through the nominal map q = w u + c. With the stored weights W and the
   exact coefficients α of U in the stream's coordinates s,

       |û − U| ≤ δ = Σ_i |β_i| E_i + m,    m = Σ_k |W_k/w − α_k| |s_k| + |(c_stored − c)/w − α_0| + (rounding of the
       query)/|w|,

   |s_k| ≤ the size of the heads that write s_k plus their rounding: computed averages may pass the values at their
   ends. Of several heads that write one coordinate û is the first one's; the others are off by at most m + m'.

3. g, a function with φ = g(U) on the range of U, is compared with a u + b + Σ heads(u) on that range, widened by δ at
   each end beyond which g is still defined, by *nodes* or *moments*: ε. Beyond the range g may be any function, so a
   kink that does not come up in it is left out (`branches`): where U ≥ 0, relu(u) is u, and û < 0 costs δ but once.
   At an end where g is not defined (a root, a logarithm), û may stray by δ, and there the heads are compared with g's
   end value, by *moments*. So

       E = ε + ω_g(δ) + |a| m + rounding of the heads,

   ω_g the modulus of continuity of g on that interval: the derivative's bound times δ, or the oscillation near points
   where there is none, or for roots of sums of squares what `norms` says. Never a Lipschitz constant of the weights.
4. The outputs are affine in the φ's; their errors add. Of max(a, b) = b + relu(a − b) the errors of a and b do not:
   `extremes` has the smaller bound.

A coordinate whose g jumps is proved by *staircase*: E holds off the walls of its argument, and for what reads it φ is a
variable of its own, which takes any value that head or g can take (`Reading.release`). So all this holds at every x of
the box for the program in which the steps that have x in their walls, or read one that does, are replaced by what their
heads give (*jumps* has the rest).

In an MLP one block of ReLU units takes the place of the heads of a coordinate, and *pieces* proves ε. A tensor head has
an argument for each of its axes, and `steps` says what becomes of 3.

Every node of the program is proved defined on the box (1.), so that g may be cut to the domain of its roots.
Failure modes: a target the rewrites cannot match; ranges that are not finite; queries, logits or sums that might
overflow.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from flint import arb

from attnfun.certify.aiming import aimed_points, few_aims
from attnfun.certify.branches import decide_branches
from attnfun.certify.extension import require_same
from attnfun.certify.extremes import Extremes
from attnfun.certify.norms import Component, Pinned, Square, norm_shift, prove_pinned, root_slope
from attnfun.certify.pieces import BrokenLine, beyond, block_fits, block_rounding, prove_by_pieces
from attnfun.certify.reading import Form, Reading
from attnfun.certify.refine import Errors, LocalOutput, LocalStep, Refinement
from attnfun.certify.rounding import (
    LARGEST,
    ROUNDOFF,
    TINY,
    form_rounding,
    gamma,
    line_bounds,
    product_bounds,
    product_fits,
)
from attnfun.certify.staircase import Jump, jumps, prove_staircase
from attnfun.certify.steps import gradient_shifts, modulus, prove_beyond, prove_line, prove_tensor, widened
from attnfun.certify.view import Array, Bound, HeadView, LineAxis, Undecided, View, provided
from attnfun.certify.witness import aimed_witness, climbed_witness, computed_witness, worst_points
from attnfun.language import Graph, precision
from attnfun.language.definedness import require_defined
from attnfun.language.enclosures import abs_upper, upper
from attnfun.language.function import Function
from attnfun.language.squares import is_square
from attnfun.network import Head, Label, Labels, Network, ReluBlock

_SLACK = 1.25  # bound over witness above which errors are looked at locally
_DEEP, _BROAD = 40, 150  # steps, and steps times variables, above which errors below eps already are not refined
_MANY, _WIDE = 100, 500  # steps, and steps times variables, above which they are not: halving boxes takes minutes there
_GOAL = 1.1  # the slack that the local search stops at


class Composition:
    """The proof of one labelled network, coordinate by coordinate."""

    def __init__(self, network: Network, function: Function, labels: Labels) -> None:
        self.network, self.function = network, function
        self.reading = Reading(labels, function)
        written = {name for layer in network.layers for name in layer.writes}
        if not set(self.reading.by_name) <= written:  # a label of an input would be believed: inputs have no error
            raise Undecided("composition: a label names a coordinate that no head writes")
        self.u, self.limit = ROUNDOFF[network.dtype], LARGEST[network.dtype]
        low, high = network.ranges
        self.size = {
            n: max(abs(float(a)), abs(float(b))) for n, a, b in zip(network.coordinates, low, high, strict=True)
        }
        self.errors = dict.fromkeys(network.inputs, 0.0)  # E, rounding included
        self.exact = dict.fromkeys(network.inputs, 0.0)  # the same in real arithmetic
        self.steps: list[dict[str, Any]] = []  # what is told of every coordinate (`_settle`)
        self.local: list[LocalStep] = []
        self.squares: dict[str, Square] = {}
        self.kinks: dict[str, dict[str, float]] = {"computed": {}, "exact": {}}  # what `extremes` adds for φ = relu(U)
        self.extremes = Extremes(self.reading)
        self._pinned: dict[Any, Pinned | None] = {}
        self._known: dict[Any, tuple[float, str]] = {}
        self.jumps: list[Jump] = []

    def prove(self, eps: float, witnessed: bool = True) -> tuple[Bound, float]:
        """(bound in real arithmetic with its witness, rounding): the sum bounds the computed network, off the walls of
        the `jumps` where there are any.

        Errors are carried twice, with and without rounding; the lower end holds however the network is computed.
        """
        if not all(self.size[name] < self.limit for name in self.network.inputs):
            raise Undecided(f"composition: {self.network.dtype} cannot hold all points of the domain")
        require_same(self.reading.program, self.function)
        with precision(128):
            for number, layer in enumerate(self.network.layers):
                before = self.network.inputs + tuple(n for one in self.network.layers[:number] for n in one.writes)
                for name in layer.writes:
                    provided(name in self.reading.by_name, f"composition: coordinate {name} has no label")
                    heads = [h for h in layer.heads if name in h.writes]
                    self._coordinate(self.reading.by_name[name], heads, before, eps)
            outputs = self._outputs()
        if self.jumps:  # for all values that the jumps may take
            needed = (*self.reading.relaxed.outputs, *(jump.label.argument for jump in self.jumps))
            require_defined(self.reading.relaxed.reachable(needed), self.reading.box)
        low, witness, points = 0.0, None, np.zeros((0, 0))
        if witnessed:
            points = worst_points(self.network, self.function)
            low, witness = computed_witness(self.network, self.function, points)
        details: dict[str, Any] = {"steps": self.steps}
        high, worst = (  # the errors of all φ's added up
            max(
                upper(arb(getattr(o, kind)) + arb(self._strays(node, o.form, errors)))
                for o, node in zip(outputs, self.reading.program.outputs, strict=True)
            )
            for kind, errors in (("plain", self.exact), ("computed", self.errors))
        )
        provided(math.isfinite(worst), "composition: the errors add up to more than every double")
        tables = bool(self.local) and len(self.local) == len(self.steps)  # MLPs and tensor heads have none
        wide = len(self.steps) > _MANY or len(self.steps) * self.function.box.dim > _WIDE
        broad = len(self.steps) > _DEEP or len(self.steps) * self.function.box.dim > _BROAD
        wide = wide or (worst <= eps and broad) or not witnessed
        if worst > _SLACK * low and tables and not wide:
            field = Refinement(self.local, outputs, self.function.box)
            aimed = aimed_witness(self.network, self.function, points, field.aims, low)
            low, witness = max((low, witness), aimed, key=lambda pair: pair[0])
            plain, computed, boxes = field.search(_GOAL * low)
            details["refined"] = {"plain": worst, "boxes": boxes}
            high, worst = min(high, plain), min(worst, computed)
        elif witnessed and worst > _SLACK * low and tables:
            starts = aimed_points(self.local, outputs, self.function.box)
            starts, aims = np.concatenate([points, starts]), few_aims(self.local, self.function.box)
            found = climbed_witness(self.network, self.function, starts, aims, low)
            low, witness = max((low, witness), found, key=lambda pair: pair[0])
        return Bound("composition", low, high, witness, details), math.nextafter(max(worst - high, 0.0), math.inf)

    def _query(
        self, head: Head | ReluBlock, before: tuple[str, ...], form: Form, span: tuple[float, float]
    ) -> tuple[LineAxis, float, float]:
        """`_map` of a head of one variable; Undecided where it could overflow."""
        provided(len(head.axes) == 1, f"composition: head {head.name} is no head of one variable")
        line, plain, mismatch, size = self._map(head, 0, before, form, span)
        dtype = self.network.dtype
        if isinstance(head, ReluBlock):
            fits = all(block_fits(line.slopes, line.biases, column, size, dtype) for column in head.values.T)
        else:
            fits = product_fits((line,), head.values, (size,), dtype)
        provided(fits, f"composition: head {head.name} may overflow in {self.network.dtype}")
        return line, plain, mismatch

    def _map(
        self, head: Head | ReluBlock, place: int, before: tuple[str, ...], form: Form, span: tuple[float, float]
    ) -> tuple[LineAxis, float, float, float]:
        """An axis of the head as a function of u (nominal map q = w u + c), the mismatch of that map, |q| with sums.

        The mismatch first in real arithmetic, then m itself, which bounds |û − Û|, Û the exact affine form of the
        computed stream.
        """
        axis = head.axes[place]
        provided(axis.dim == 1, f"composition: head {head.name} has an axis of several numbers")
        row = axis.query[0]
        exact = [form.stream.get(name, arb(0)) for name in before]
        known = set(form.stream) <= set(before)
        provided(known, f"composition: the argument of head {head.name} needs a coordinate that is not there yet")
        weight = [abs(float(e.mid())) * max(self.size[n], 1e-300) for e, n in zip(exact, before, strict=True)]
        best = int(np.argmax(weight))
        provided(weight[best] > 0 and row[best] != 0, f"composition: head {head.name} does not read its argument")
        w = float((arb(float(row[best])) / exact[best]).mid())
        c = float((arb(float(axis.offset[0])) - arb(w) * form.constant).mid())
        if w == 0 or not (math.isfinite(w) and math.isfinite(c)):
            raise Undecided(f"composition: head {head.name} has a degenerate query")
        off, carried = self._mismatch(row, float(axis.offset[0]), before, form, w, c)
        strays = self._incoming(form.phis, self.errors) + upper(off)
        result = max(abs(w * u + c) + 1e-12 * (abs(w * u) + abs(c)) for u in span) + abs(w) * strays * (1 + 1e-12)
        rounding = arb(self._rounding(row, float(axis.offset[0]), before, result))
        line = LineAxis(place, w, c, axis.slopes[:, 0], axis.biases)
        return line, upper(off), upper(off + rounding / abs(arb(w))), upper(carried)

    def _mismatch(
        self, row: Array, offset: float, names: tuple[str, ...], form: Form, w: float = 1.0, c: float = 0.0
    ) -> tuple[arb, arb]:
        """How far (row · stream + offset − c)/w is from the form; the size of row · stream + offset, sums included."""
        off, carried = abs((arb(offset) - arb(c)) / arb(w) - form.constant), abs(arb(offset))
        for value, name in zip(row.tolist(), names, strict=True):
            off = off + abs(arb(value) / arb(w) - form.stream.get(name, arb(0))) * arb(self.size[name])
            carried = carried + abs(arb(value)) * arb(self.size[name])
        return off, carried

    def _rounding(self, row: Array, offset: float, names: tuple[str, ...], result: float) -> float:
        """What computing an affine form of the stream costs; its value is at most `result` in size."""
        sizes = np.array([self.size[n] for n in names])
        fresh: Any = np.arange(len(names)) < len(self.network.inputs)  # the stream begins with them
        return form_rounding(row, offset, sizes, fresh, result, self.network.dtype)

    def _block(self, label: Label, blocks: list[ReluBlock], before: tuple[str, ...]) -> None:
        """A coordinate of an MLP: one block of ReLU units in place of heads, the rest as in `_coordinate`."""
        provided(len(blocks) == 1, f"composition: several blocks write {label.name}")
        form, dtype = self.reading.form(label.argument), self.network.dtype
        g, (low, high) = self._step(label)
        axis, plain, mismatch = self._query(blocks[0], before, form, (low, high))
        values = blocks[0].values[:, blocks[0].writes.index(label.name)]
        line = BrokenLine(label.slope, label.offset, axis.w, axis.c, axis.slopes, axis.biases, values)
        delta, still = self._shifts(label.argument, form, mismatch, plain)
        left, right = widened(g, low, high, delta)
        far = math.nextafter(low - delta, -math.inf), math.nextafter(high + delta, math.inf)
        rounding, size = block_rounding(line, *far, dtype)
        bound = prove_by_pieces(line, g, left, right, rounding)
        own = max(bound.high, beyond(line, g, left, far[0]), beyond(line, g, right, far[1]))
        computed = Errors.of(own, label.slope, mismatch, modulus(g, left, right, delta), rounding)
        exact = Errors.of(own, label.slope, plain, modulus(g, left, right, still), 0.0)
        self._settle(label, g, bound.method, delta, computed, exact, size)

    def _tensor(self, label: Label, written: list[Head | ReluBlock], before: tuple[str, ...], eps: float) -> None:
        """A coordinate of several arguments, written by one tensor head; see `steps`."""
        heads, dtype = [head for head in written if isinstance(head, Head)], self.network.dtype
        if len(written) != 1 or len(heads) != 1 or len(heads[0].axes) != len(label.arguments):
            raise Undecided(f"composition: {label.name} is no tensor head of its arguments")
        (head,), g, d = heads, self.reading.unary(label), len(label.arguments)
        provided(d in (2, 3, 4), f"composition: {label.name} has {d} arguments; at most 4 are supported")
        names, ranges = tuple(f"u{k}" for k in range(1, d + 1)), self.reading.argument_ranges(label)
        lines, sizes = [], []
        delta, still = np.zeros(d), np.zeros(d)
        for k, argument in enumerate(label.arguments):
            form = self.reading.form(argument)
            line, plain, mismatch, size = self._map(head, k, before, form, ranges[k])
            delta[k], still[k] = self._shifts(argument, form, mismatch, plain)
            lines.append(line)
            sizes.append(size)
        column = head.writes.index(label.name)
        values = np.ascontiguousarray(head.values[..., column : column + 1])
        view = HeadView(head.name, tuple(lines), values, np.ones((1, 1)), head)
        low, high = (np.array([ends[i] for ends in ranges]) for i in (0, 1))
        low, high = np.nextafter(low - delta, -np.inf), np.nextafter(high + delta, np.inf)
        seen = View(low, high, np.zeros((1, d)), np.array([label.offset]), (view,))
        fits = bool(np.isfinite([low, high]).all()) and product_fits(view.axes, view.values, sizes, dtype)
        provided(fits, f"composition: head {head.name} may overflow in {dtype}")
        lost, reach = product_bounds(seen, view, dtype)
        own = prove_tensor(seen, g, names, eps * 1e-3 if math.isfinite(eps) else 4 * float(lost[0]))
        carried, follows = gradient_shifts(g, names, seen, (delta, still))
        wide, rounding = int(np.argmax(delta)), float(lost[0])
        computed = Errors.of(own, 0.0, 0.0, carried, rounding)
        exact = Errors.of(own, 0.0, 0.0, min(follows, carried), 0.0)
        size = min(self.size[label.name], float(reach[0]))
        self._settle(label, g, "nodes", delta[wide], computed, exact, size)

    def _settle(
        self, label: Label, g: Graph, method: str, shift: float, computed: Errors, exact: Errors, size: float
    ) -> None:
        """Enter what is proved of a coordinate whose heads or units are at most `size` in real arithmetic: its own
        error ε, the argument's error δ (`shift`), ω_g(δ), rounding, and their sum E.
        """
        name, size = label.name, math.nextafter(size + computed.rounding, math.inf)
        if not (math.isfinite(computed.total) and size < self.limit):
            raise Undecided(f"composition: {name} could not be bounded, or may overflow in {self.network.dtype}")
        self.errors[name], self.exact[name] = computed.total, min(exact.total, computed.total)
        self.size[name] = size
        told = {"name": name, "function": g.text(g.outputs[0], 60), "method": method, "own": computed.own}
        told |= {"argument": shift, "carried": computed.carried, "rounding": computed.rounding}
        self.steps.append(told | {"total": computed.total})

    def _step(self, label: Label) -> tuple[Graph, tuple[float, float]]:
        """g and the range of U; a kink of g that does not come up there is left out, beyond the range too (3.)."""
        g = self.reading.unary(label)
        low, high = self.reading.argument_range(label, g)
        return decide_branches(g, ("u",), np.array([low]), np.array([high])), (low, high)

    def _unary(
        self, seen: View, g: Graph, reach: tuple[float, float], enough: float, true: tuple[float, float]
    ) -> tuple[float, str]:
        """`prove_line`, once for heads that are equal bit for bit, as the two squares of every product are; and
        `prove_beyond`.
        """
        key = (g, seen.bits, enough)
        if key not in self._known:
            self._known[key] = prove_line(seen, g, enough)
        own, method = self._known[key]
        return prove_beyond(seen, g, reach, true, own), method

    def _coordinate(self, label: Label, written: list[Head | ReluBlock], before: tuple[str, ...], eps: float) -> None:
        if label.further:
            return self._tensor(label, written, before, eps)
        blocks = [head for head in written if isinstance(head, ReluBlock)]
        if blocks:
            return self._block(label, blocks, before)
        heads = [head for head in written if isinstance(head, Head)]
        form = self.reading.form(label.argument)
        g, (low, high) = self._step(label)
        if jumps(g):
            return self._jump(label, g, heads, before, (low, high), eps)
        views, apart_by, mismatch, rounding, plain, sizes = [], [], 0.0, 0.0, 0.0, 0.0
        first: LineAxis | None = None
        for head in heads:
            line, nominal, off = self._query(head, before, form, (low, high))
            column = head.writes.index(label.name)
            values = np.ascontiguousarray(head.values[:, column : column + 1])
            views.append(HeadView(head.name, (line,), values, np.ones((1, 1)), head))
            shift = 0.0 if first is None else off + mismatch  # further pieces see an argument this far from the first's
            if first is None:
                first, mismatch, plain = line, off, nominal
            dq = abs(line.w) * shift
            apart_by.append(dq)
            reach = upper(arb(self._incoming(form.phis, self.errors)) + arb(max(off, mismatch)))  # of the first's û
            left, right = math.nextafter(low - reach, -math.inf), math.nextafter(high + reach, math.inf)
            lost, size = line_bounds(line, views[-1], left, right, self.network.dtype, dq)
            rounding, sizes = rounding + float(lost[0]), sizes + float(size[0] + lost[0])
        rounding += gamma(len(views) - 1, self.u) * sizes  # the pieces are added to 0
        delta, still = self._shifts(label.argument, form, mismatch, plain)
        left, right = widened(g, low, high, delta)
        low_end, high_end, slope, offset = (np.array([v]) for v in (left, right, [label.slope], label.offset))
        seen = View(low_end, high_end, slope, offset, tuple(views))
        carried, follows = modulus(g, left, right, delta), modulus(g, left, right, still)
        below = delta
        if 0 <= left <= 1e-2 * right:  # perhaps a root of a sum of squares
            query = heads[0], before, first
            carried, stray = self._norm(form, g, (left, right), query, mismatch, carried, delta, "computed")
            follows, _ = self._norm(form, g, (left, right), query, plain, follows, delta, "exact")
            below = stray if left >= low else below
        enough = eps * 1e-3 / self._read(label.name) if math.isfinite(eps) else 4 * rounding
        ends, strays = (low, high), (below, delta)
        own, method = self._unary(seen, g, strays, enough, ends)
        apart = rounding if len(views) > 1 else 0.0  # pieces whose arguments differ do so in real arithmetic too
        computed = Errors.of(own, label.slope, mismatch, carried, rounding)
        exact = Errors.of(own, label.slope, plain, min(follows, carried), apart)
        provided(sizes < self.limit, f"composition: {label.name} may overflow in {self.network.dtype}")
        self._settle(label, g, method, delta, computed, exact, min(self.size[label.name], sizes))
        if [node.op for node in g.nodes] == ["var", "relu"]:
            for kind, one in (("computed", computed), ("exact", exact)):
                self.kinks[kind][label.name] = upper(arb(one.own) + arb(one.mismatch) + arb(one.rest))
        clipped = left >= low or right <= high
        self.local.append(LocalStep(label.name, form, g, seen, ends, clipped, strays, own, exact, computed))
        if is_square(g) and not clipped:  # `norms` asks for û inside the interval of `seen`
            errors = {"computed": (delta, computed.rest), "exact": (still, exact.rest)}
            pieces = tuple(zip(views, apart_by, strict=True))
            self.squares[label.name] = Square(seen, g, pieces, not (label.slope or label.offset), errors)

    def _jump(
        self, label: Label, g: Graph, heads: list[Head], before: tuple[str, ...], ends: tuple[float, float], eps: float
    ) -> None:
        """A coordinate whose g jumps: *staircase*."""
        provided(len(heads) == 1 and label.slope == 0, f"composition: the step {label.name} jumps and has no own head")
        (head,), form = heads, self.reading.form(label.argument)
        line, plain, mismatch = self._query(head, before, form, ends)
        delta = self._shifts(label.argument, form, mismatch, plain)[0]
        column = head.writes.index(label.name)
        values = np.ascontiguousarray(head.values[:, column : column + 1])
        view = HeadView(head.name, (line,), values, np.ones((1, 1)), head)
        stairs = prove_staircase(line, view, g, label.offset, ends, delta, self.network.dtype, eps)
        computed = Errors.of(stairs.own, 0.0, 0.0, 0.0, stairs.rounding)
        size = min(self.size[label.name], float(np.abs(values).max()))
        self._settle(label, g, "staircase", delta, computed, Errors.of(stairs.own, 0.0, 0.0, 0.0, 0.0), size)
        reads = set(self.reading.relaxed.reachable((label.argument,)).variables)
        fed = [jump for jump in self.jumps if jump.variable in reads]
        reads_all = frozenset(jump.variable for jump in fed).union(*(jump.reads for jump in fed))
        variable = self.reading.release(label, stairs.ends)
        self.jumps.append(Jump(variable, label, g, stairs, reads_all))

    def _norm(
        self,
        form: Form,
        g: Graph,
        ends: tuple[float, float],
        query: tuple[Head, tuple[str, ...], LineAxis | None],
        mismatch: float,
        carried: float,
        delta: float,
        kind: str,
    ) -> tuple[float, float]:
        """(ω, how far û may stray below `left`), the smaller of what is given and of what `norms` says of norms."""
        if not (form.phis and form.meant >= 0):
            return carried, delta
        components, (left, right) = [], ends
        for name, beta in form.phis.items():
            if name not in self.squares or not beta > 0:
                return carried, delta
            square = self.squares[name]
            key = square.seen.bits, tuple(dq for _, dq in square.pieces), square.bare
            if key not in self._pinned:
                self._pinned[key] = prove_pinned(square, self.network.dtype)
            pinned = self._pinned[key]
            if pinned is None:
                return carried, delta
            shift, extra = square.errors[kind]
            components.append(Component(upper(beta), pinned, shift, 0.0 if pinned.computed else extra))
        graded = all(c.pinned.computed for c in components)
        off = self._relative_mismatch(*query, form) if graded else (mismatch, 0.0)
        moved = norm_shift(components, off, right)
        if moved is None:
            return carried, delta
        shift, below = moved
        worth = upper(arb(root_slope(g, right)) * arb(shift))
        return (worth if worth < carried else carried), min(math.nextafter(left + below, math.inf), delta)

    def _relative_mismatch(
        self, head: Head, before: tuple[str, ...], line: LineAxis | None, form: Form
    ) -> tuple[float, float]:
        """(m, θ): |û − Û| ≤ m + θ Σ_k |β_k s_k| for a sum Û = Σ_k β_k s_k + const of coordinates, rounding included.

        A sum of n products and an offset, in any order, is off by at most γ_{n+1} times the sizes of its terms, and by
        what products lose that underflow. β_k s_k with a weight W_k/w = β_k (1 + θ_k) costs |θ_k|.
        """
        assert line is not None
        axis, w = head.axes[0], arb(line.w)
        row, offset = axis.query[0], arb(float(axis.offset[0]))
        lost = arb(gamma(float(np.count_nonzero(row)) + 2, self.u))
        m, theta = abs((offset - arb(line.c)) / w - form.constant) + lost * abs(offset / w), arb(0)
        for value, name in zip(row.tolist(), before, strict=True):
            exact, stored = form.stream.get(name, arb(0)), arb(value) / w
            if name in form.phis and exact > 0:
                theta = arb(max(upper(theta), upper((abs(stored - exact) + lost * abs(stored)) / exact)))
            elif value or not exact.is_zero():
                m = m + (abs(stored - exact) + lost * abs(stored)) * arb(self.size[name])
        m = m + (2 * float(np.abs(row).sum()) + len(row) + 2) * arb(TINY[self.network.dtype]) / abs(w)
        return upper(m), upper(theta)

    def _read(self, name: str) -> float:
        """The largest weight with which an output reads the coordinate, or 1: it steers and proves nothing."""
        forms = (self.reading.form(node).phis.get(name) for node in self.reading.program.outputs)
        return max([1.0, *(abs_upper(beta) for beta in forms if beta is not None)])

    def _shifts(self, node: int, form: Form, mismatch: float, plain: float) -> tuple[float, float]:
        """δ as computed, and in real arithmetic."""
        pairs = (self.errors, mismatch), (self.exact, plain)
        computed, real = (math.nextafter(self._strays(node, form, errors) + m, math.inf) for errors, m in pairs)
        return computed, real

    def _strays(self, node: int, form: Form, errors: dict[str, float]) -> float:
        """How far the computed stream is from what this node, whose form is given, means."""
        flat = self._incoming(form.phis, errors)
        kind = "exact" if errors is self.exact else "computed"
        return min(flat, self.extremes(node, kind, errors, self.kinks[kind])) if self.kinks[kind] else flat

    def _incoming(self, weights: Mapping[str, arb], errors: dict[str, float]) -> float:
        """Σ |β_i| E_i: how far the exact affine form of the computed stream is from its meaning."""
        total = arb(0)
        for name, beta in weights.items():
            provided(name in errors, f"composition: {name} is read before it is written")
            total = total + abs(beta) * arb(errors[name])
        return upper(total)

    def _outputs(self) -> list[LocalOutput]:
        """Every output with what its read-out adds: weights that are not exact, and rounding."""
        outputs = []
        names = self.network.coordinates
        for o, node in enumerate(self.reading.program.outputs):
            form = self.reading.form(node)
            row, bias = self.network.readout[o], float(self.network.readout_bias[o])
            off, carried = self._mismatch(row, bias, names, form)
            provided(upper(carried) < self.limit, f"composition: output {o + 1} may overflow in {self.network.dtype}")
            lost = arb(self._rounding(row, bias, names, upper(carried)))
            outputs.append(LocalOutput(form, upper(off), upper(off + lost)))
        return outputs


def prove_by_composition(network: Network, function: Function, labels: Labels, eps: float) -> tuple[Bound, float]:
    """See the module's statement; Undecided with the coordinate that could not be proved."""
    try:
        made = Composition(network, function, labels)
        proved = made.prove(eps)
        provided(not made.jumps, "composition: a step jumps, so that nothing is proved near its jumps")
        return proved
    except RecursionError:
        raise Undecided("composition: the program is nested too deeply") from None
