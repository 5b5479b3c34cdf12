"""Method *composition*: networks of any depth whose coordinates are labelled (see `network.labels`), head by head.

1. The program of the labels is proved to be the target, by exact rewrites with side conditions (`identity`). Nothing a
label says is
   believed: a label's φ must depend on its U alone, U must be affine in inputs and earlier φ's, both read off the
   program itself.
2. In stream order, for the coordinate labelled (φ, U, a, b): write U = Σ_i β_i φ_i + Σ_k γ_k x_k + const. Let φ̂_i =
z_i + a_i Û_i + b_i be
   what the stream holds for φ_i, E_i a bound of |φ̂_i − φ_i|, and û the argument the heads really see: their computed
   query, taken
   back through the nominal map q = w u + c. With the stored weights W and the exact coefficients α of U in the stream's
   coordinates s,

       |û − U| ≤ δ = Σ_i |β_i| E_i + m,    m = Σ_k |W_k/w − α_k| |s_k| + |(c_stored − c)/w − α_0| + (rounding of the
       query)/|w|,

   |s_k| ≤ the largest sum of values plus the rounding of the heads that write s_k: computed averages may pass their
   ends. Of several heads that write one coordinate û is the first one's; the others are off by at most m + m'.

3. g, the function with φ = g(U), is compared with a u + b + Σ heads(u) on the range of U, widened by δ at each end
   beyond which g is still defined, by *nodes* or *moments*: ε. At an end where it is not (a root, a logarithm), û may
   stray by δ, and there the heads are compared with g's end value, by *moments*. So

       E = ε + ω_g(δ) + |a| m + rounding of the heads,

   ω_g the modulus of continuity of g on that interval: the derivative's bound times δ, or the oscillation near points
   where there is none. Never a Lipschitz constant of the weights.
4. The outputs are affine in the φ's; their errors add.

In an MLP one block of ReLU units takes the place of the heads of a coordinate, and *pieces* proves ε.

Every node of the program is proved defined on the box (1.), so that g may be cut to the domain of its roots.
Failure modes: a target the rewrites cannot match; ranges that are not finite; heads with several axes; queries, logits
or sums that might overflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from flint import arb

from attnfun.certify.identity import same_function
from attnfun.certify.moments import prove_by_moments, range_bound
from attnfun.certify.nodes import prove_by_nodes
from attnfun.certify.outcome import Bound
from attnfun.certify.pieces import BrokenLine, beyond, prove_by_pieces
from attnfun.certify.relu_rounding import block_fits, block_rounding
from attnfun.certify.rounding import LARGEST, ROUNDOFF, TINY, gamma, line_fits, line_rounding
from attnfun.certify.view import Array, HeadView, LineAxis, Undecided, View
from attnfun.certify.witness import computed_witness
from attnfun.errors import AttnfunError
from attnfun.expressions import ArrayAlgebra, BallAlgebra, Builder, GradientAlgebra, Graph, precision, run
from attnfun.expressions.enclosures import abs_uppers, balls, lowers, upper, uppers
from attnfun.network import Head, Label, Labels, Network, ReluBlock
from attnfun.targets import Box, Function, natural_domain, require_defined
from attnfun.targets.ranges import range_of


@dataclass
class _Form:
    """An affine form with ball coefficients, twice: in the φ's (by label name; for errors) and, with its constant, in
    the
    stream's coordinates (for comparison with stored weights). Inputs are exact, so they stand in the second only.
    """

    phis: dict[str, arb] = field(default_factory=dict)
    stream: dict[str, arb] = field(default_factory=dict)
    constant: arb = field(default_factory=lambda: arb(0))

    def plus(self, other: _Form, factor: arb) -> _Form:
        out = _Form(dict(self.phis), dict(self.stream), self.constant + factor * other.constant)
        for mine, yours in ((out.phis, other.phis), (out.stream, other.stream)):
            for name, value in yours.items():
                mine[name] = mine.get(name, arb(0)) + factor * value
        return out


@dataclass(frozen=True)
class Step:
    """What is proved of one coordinate: its own error ε, the argument's error δ, ω_g(δ), rounding, and their sum E."""

    name: str
    unary: Graph
    low: float
    high: float
    own: float
    shift: float
    carried: float
    rounding: float
    total: float
    method: str


class Composition:
    """The proof of one labelled network, coordinate by coordinate."""

    def __init__(self, network: Network, function: Function, labels: Labels) -> None:
        if function.graph is None:
            raise Undecided("composition: a black box has no expression to compare labels with")
        self.network, self.function, self.labels = network, function, labels
        self.program = labels.program
        self.by_phi = {label.phi: label for label in labels.coordinates}
        self.by_name = {label.name: label for label in labels.coordinates}
        if len(self.by_phi) != len(labels.coordinates) or len(self.by_name) != len(labels.coordinates):
            raise Undecided("composition: two labels for one coordinate or one node")
        self.u, self.tiny, self.limit = ROUNDOFF[network.dtype], TINY[network.dtype], LARGEST[network.dtype]
        low, high = network.ranges
        self.size = {
            n: max(abs(float(a)), abs(float(b))) for n, a, b in zip(network.coordinates, low, high, strict=True)
        }
        self.errors: dict[str, float] = {}  # E, rounding included
        self.exact: dict[str, float] = {}  # the same in real arithmetic
        self.steps: list[Step] = []
        self._forms: dict[int, _Form] = {}
        self._constant: list[bool] = []
        for node in self.program.nodes:
            self._constant.append(node.op != "var" and all(self._constant[a] for a in node.args))

    # ------------------------------------------------------------ reading the program

    def form(self, node: int) -> _Form:
        """The affine form of a program node; Undecided if it is not affine in inputs and labelled φ's."""
        if node not in self._forms:
            self._forms[node] = self._form(node)
        return self._forms[node]

    def _form(self, index: int) -> _Form:
        node = self.program.nodes[index]
        label = self.by_phi.get(index)
        if label is not None:
            if label.argument >= index:
                raise Undecided(f"composition: the label of {label.name} refers forward")
            inner = self.form(label.argument)
            slope = arb(label.slope)
            stream = {name: slope * value for name, value in inner.stream.items()}
            stream[label.name] = stream.get(label.name, arb(0)) + 1
            return _Form({label.name: arb(1)}, stream, slope * inner.constant + arb(label.offset))
        if node.op == "var":
            name = str(node.value)
            return _Form({}, {name: arb(1)}, arb(0))
        if self._constant[index]:
            return _Form(constant=self._value(index))
        args = node.args
        if node.op in ("add", "sub"):
            return self.form(args[0]).plus(self.form(args[1]), arb(1 if node.op == "add" else -1))
        if node.op == "neg":
            return _Form().plus(self.form(args[0]), arb(-1))
        if node.op == "mul" and self._constant[args[0]]:
            return _Form().plus(self.form(args[1]), self._value(args[0]))
        if node.op == "mul" and self._constant[args[1]]:
            return _Form().plus(self.form(args[0]), self._value(args[1]))
        if node.op == "div" and self._constant[args[1]]:
            return _Form().plus(self.form(args[0]), 1 / self._value(args[1]))
        raise Undecided(f"composition: {self.program.text(index, 80)} is no affine form of the labelled coordinates")

    def _value(self, index: int) -> arb:
        value = run(self.program.reachable((index,)), BallAlgebra(), {})[0]
        if not value.is_finite():
            raise Undecided("composition: a constant of the program is not finite")
        return value

    def unary(self, label: Label) -> Graph:
        """g with φ = g(U), variable "u"; Undecided if φ reaches an input by another way than U."""
        out = Builder()
        at: dict[int, int] = {label.argument: out.var("u")}
        stack = [label.phi]
        while stack:
            index = stack[-1]
            if index in at:
                stack.pop()
                continue
            node = self.program.nodes[index]
            if node.op == "var":
                raise Undecided(f"composition: the label of {label.name} depends on {node.value} past its argument")
            waiting = [a for a in node.args if a not in at]
            if waiting:
                stack.extend(waiting)
                continue
            at[index] = out.apply(node.op, *(at[a] for a in node.args), value=node.value)
            stack.pop()
        return out.graph([at[label.phi]])

    def argument_range(self, label: Label, g: Graph) -> tuple[float, float]:
        """The range of U over the box, rigorous; g(U) was proved defined, so U never leaves g's natural domain."""
        ((low, high),) = range_of(self.program.reachable((label.argument,)), self.function.box)
        least, most = natural_domain(g)
        low, high = max(low, least), min(high, most)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise Undecided(f"composition: the argument of {label.name} could not be bounded")
        return low, high

    # ------------------------------------------------------------ the proof

    def prove(self, eps: float) -> tuple[Bound, float]:
        """(bound in real arithmetic with its witness, rounding): the sum bounds the computed network.

        Errors are carried twice, with and without rounding; the lower end holds however the network is computed.
        """
        assert self.function.graph is not None
        if not all(self.size[name] < self.limit for name in self.network.inputs):
            raise Undecided(f"composition: {self.network.dtype} cannot hold all points of the domain")
        same_function(self.program, self.function.graph, self.function.box)
        with precision(128):
            for number, layer in enumerate(self.network.layers):
                before = self.network.inputs + tuple(n for one in self.network.layers[:number] for n in one.writes)
                for name in layer.writes:
                    if name not in self.by_name:
                        raise Undecided(f"composition: coordinate {name} has no label")
                    heads = [h for h in layer.heads if name in h.writes]
                    self._coordinate(self.by_name[name], heads, before, eps)
            high, rounding = self._outputs()
        low, witness = computed_witness(self.network, self.function)
        details = {
            "steps": [
                {"name": s.name, "function": s.unary.text(s.unary.outputs[0], 60), "method": s.method, "own": s.own}
                | {"argument": s.shift, "carried": s.carried, "rounding": s.rounding, "total": s.total}
                for s in self.steps
            ]
        }
        return Bound("composition", low, high, witness, details), rounding

    def _query(
        self, head: Head | ReluBlock, label: Label, before: tuple[str, ...], form: _Form
    ) -> tuple[LineAxis, float, float]:
        """The head's axis as a function of u (nominal map q = w u + c), and the mismatch of that map.

        First in real arithmetic, then m itself, which bounds |û − Û|, Û the exact affine form of the computed stream.
        """
        if len(head.axes) != 1 or head.axes[0].dim != 1:
            raise Undecided(f"composition: head {head.name} is no head of one variable")
        axis = head.axes[0]
        row = axis.query[0]
        exact = [form.stream.get(name, arb(0)) for name in before]
        if set(form.stream) - set(before):
            raise Undecided(f"composition: the argument of {label.name} needs a coordinate that is not there yet")
        weight = [abs(float(e.mid())) * max(self.size[n], 1e-300) for e, n in zip(exact, before, strict=True)]
        best = int(np.argmax(weight))
        if not weight[best] > 0 or row[best] == 0:
            raise Undecided(f"composition: head {head.name} does not read its argument")
        w = float((arb(float(row[best])) / exact[best]).mid())
        c = float((arb(float(axis.offset[0])) - arb(w) * form.constant).mid())
        if w == 0 or not (math.isfinite(w) and math.isfinite(c)):
            raise Undecided(f"composition: head {head.name} has a degenerate query")
        wide = arb(w)
        off = abs((arb(float(axis.offset[0])) - arb(c)) / wide - form.constant)
        carried = abs(arb(float(axis.offset[0])))
        for value, e, name in zip(row, exact, before, strict=True):
            off = off + abs(arb(float(value)) / wide - e) * arb(self.size[name])
            carried = carried + abs(arb(float(value))) * arb(self.size[name])
        terms = int(np.count_nonzero(row)) + 2
        rounding = arb(gamma(terms, self.u)) * carried
        underflow = (2 * arb(float(np.abs(row).sum())) + terms) * arb(self.tiny)  # of the inputs too
        line = LineAxis(0, w, c, axis.slopes[:, 0], axis.biases)
        size, dtype = upper(carried), self.network.dtype
        if isinstance(head, ReluBlock):
            fits = all(block_fits(line.slopes, line.biases, column, size, dtype) for column in head.values.T)
        else:
            fits = line_fits(line, head.values, size, dtype)
        if not fits:
            raise Undecided(f"composition: head {head.name} may overflow in {self.network.dtype}")
        return line, upper(off), upper(off + (rounding + underflow) / abs(wide))

    def _block(self, label: Label, blocks: list[ReluBlock], before: tuple[str, ...]) -> None:
        """A coordinate of an MLP: one block of ReLU units in place of heads, the rest as in `_coordinate`."""
        if len(blocks) != 1:
            raise Undecided(f"composition: several blocks write {label.name}")
        form, g, dtype = self.form(label.argument), self.unary(label), self.network.dtype
        low, high = self.argument_range(label, g)
        axis, plain, mismatch = self._query(blocks[0], label, before, form)
        values = blocks[0].values[:, blocks[0].writes.index(label.name)]
        line = BrokenLine(label.slope, label.offset, axis.w, axis.c, axis.slopes, axis.biases, values)
        delta = math.nextafter(self._incoming(form, self.errors) + mismatch, math.inf)
        still = math.nextafter(self._incoming(form, self.exact) + plain, math.inf)  # δ in real arithmetic
        left, right = widened(g, low, high, delta)
        far = math.nextafter(low - delta, -math.inf), math.nextafter(high + delta, math.inf)
        rounding, size = block_rounding(line, *far, dtype)
        bound = prove_by_pieces(line, g, left, right, rounding)
        own = max(bound.high, beyond(line, g, left, far[0]), beyond(line, g, right, far[1]))
        carried = modulus(g, left, right, delta)
        total = (own + carried + abs(label.slope) * mismatch + rounding) * (1 + 1e-12)
        unrounded = own + modulus(g, left, right, still) + abs(label.slope) * plain
        size = math.nextafter(size + rounding, math.inf)
        if not (math.isfinite(total) and size < self.limit):
            raise Undecided(f"composition: {label.name} could not be bounded")
        self.errors[label.name], self.exact[label.name] = total, min(unrounded * (1 + 1e-12), total)
        self.size[label.name] = size
        self.steps.append(Step(label.name, g, low, high, own, delta, carried, rounding, total, bound.method))

    def _coordinate(
        self, label: Label, written: list[Head | ReluBlock], before: tuple[str, ...], eps: float
    ) -> None:
        blocks = [head for head in written if isinstance(head, ReluBlock)]
        if blocks:
            return self._block(label, blocks, before)
        heads = [head for head in written if isinstance(head, Head)]
        form = self.form(label.argument)
        g = self.unary(label)
        low, high = self.argument_range(label, g)
        views, mismatch, rounding, plain = [], 0.0, 0.0, 0.0
        first: LineAxis | None = None
        for head in heads:
            line, nominal, off = self._query(head, label, before, form)
            column = head.writes.index(label.name)
            values = np.ascontiguousarray(head.values[:, column : column + 1])
            views.append(HeadView(head.name, (line,), values, np.ones((1, 1)), head))
            shift = 0.0 if first is None else off + mismatch  # further pieces see an argument this far from the first's
            if first is None:
                first, mismatch, plain = line, off, nominal
            reach = upper(
                arb(self._incoming(form, self.errors)) + arb(max(off, mismatch))
            )  # where the first's û may be
            dq = abs(line.w) * shift
            left, right = math.nextafter(low - reach, -math.inf), math.nextafter(high + reach, math.inf)
            rounding += float(line_rounding(line, views[-1], left, right, self.network.dtype, dq).max())
        sizes = sum(float(np.abs(v.values).max()) for v in views)
        rounding += gamma(len(views) + 1, self.u) * sizes
        delta = math.nextafter(self._incoming(form, self.errors) + mismatch, math.inf)
        still = math.nextafter(self._incoming(form, self.exact) + plain, math.inf)  # δ in real arithmetic
        left, right = widened(g, low, high, delta)
        seen = View(
            np.array([left]), np.array([right]), np.array([[label.slope]]), np.array([label.offset]), tuple(views)
        )
        own, method = prove_unary(seen, g, delta, eps * 1e-3 if math.isfinite(eps) else 4 * rounding, (low, high))
        carried = modulus(g, left, right, delta)
        total = (own + carried + abs(label.slope) * mismatch + rounding) * (1 + 1e-12)
        if not math.isfinite(total):
            raise Undecided(f"composition: {label.name} could not be bounded")
        self.errors[label.name] = total
        apart = rounding if len(views) > 1 else 0.0  # pieces whose arguments differ do so in real arithmetic too
        unrounded = own + modulus(g, left, right, still) + abs(label.slope) * plain + apart
        self.exact[label.name] = min(unrounded * (1 + 1e-12), total)
        self.size[label.name] = math.nextafter(self.size[label.name] + rounding, math.inf)
        if not sizes < self.limit:
            raise Undecided(f"composition: {label.name} may overflow in {self.network.dtype}")
        self.steps.append(Step(label.name, g, low, high, own, delta, carried, rounding, total, method))

    def _incoming(self, form: _Form, errors: dict[str, float]) -> float:
        """Σ |β_i| E_i: how far the exact affine form of the computed stream is from its meaning."""
        total = arb(0)
        for name, beta in form.phis.items():
            if name not in errors:
                raise Undecided(f"composition: {name} is read before it is written")
            total = total + abs(beta) * arb(errors[name])
        return upper(total)

    def _outputs(self) -> tuple[float, float]:
        """(error of the outputs in real arithmetic, what rounding adds)."""
        worst, still = 0.0, 0.0
        names = self.network.coordinates
        for o, node in enumerate(self.program.outputs):
            form = self.form(node)
            row = self.network.readout[o]
            off = abs(arb(float(self.network.readout_bias[o])) - form.constant)
            carried = abs(arb(float(self.network.readout_bias[o])))
            for value, name in zip(row, names, strict=True):
                off = off + abs(arb(float(value)) - form.stream.get(name, arb(0))) * arb(self.size[name])
                carried = carried + abs(arb(float(value))) * arb(self.size[name])
            if not upper(carried) < self.limit:
                raise Undecided(f"composition: output {o + 1} may overflow in {self.network.dtype}")
            terms = int(np.count_nonzero(row)) + 2
            lost = arb(gamma(terms, self.u)) * carried + (2 * arb(float(np.abs(row).sum())) + terms) * arb(self.tiny)
            still = max(still, upper(off + arb(self._incoming(form, self.exact))))
            worst = max(worst, upper(off + lost + arb(self._incoming(form, self.errors))))
        return still, math.nextafter(max(worst - still, 0.0), math.inf)


# ---------------------------------------------------------------- one variable


def widened(g: Graph, low: float, high: float, delta: float) -> tuple[float, float]:
    """[low, high] widened by δ at each end beyond which g is still defined."""
    ends = []
    for left, right, wide in (
        (math.nextafter(low - delta, -math.inf), high, 0),
        (low, math.nextafter(high + delta, math.inf), 1),
    ):
        try:
            require_defined(g, Box(("u",), (left,), (right,)))
            ends.append((left, right)[wide])
        except AttnfunError:
            ends.append((low, high)[wide])
    return ends[0], ends[1]


def prove_unary(seen: View, g: Graph, delta: float, enough: float, true: tuple[float, float]) -> tuple[float, str]:
    """A bound of |g(clip(u)) − seen(u)|, clip to seen's interval, for u within δ of the `true` range; and its method.

    `enough`: a bound that small needs no sharpening; it steers and proves nothing.
    """
    low, high = float(seen.low[0]), float(seen.high[0])
    own, method = _prove_line(seen, g, enough)
    if delta > 0 and low >= true[0]:
        own = max(own, _beyond(seen, g, low, -delta))
    if delta > 0 and high <= true[1]:
        own = max(own, _beyond(seen, g, high, delta))
    return own, method


def _prove_line(seen: View, g: Graph, enough: float) -> tuple[float, str]:
    low, high = float(seen.low[0]), float(seen.high[0])
    if not high > low:
        raise Undecided("composition: an argument that does not vary")
    estimate, starts = _sampled(seen, g)
    reasons = []
    for method in (prove_by_nodes, prove_by_moments):
        try:
            if method is prove_by_nodes:
                bound = prove_by_nodes(seen, g, ("u",), estimate, max(2 * estimate, enough))
            else:
                bound = prove_by_moments(seen, g, ("u",), estimate, max(2 * estimate, enough), starts)
        except Undecided as why:
            reasons.append(str(why))
            continue
        return bound.high, bound.method
    raise Undecided(f"composition: {g.text(g.outputs[0], 60)} on [{low:.6g}, {high:.6g}]: " + "; ".join(reasons))


def _sampled(seen: View, g: Graph) -> tuple[float, Array]:
    """Float estimate of sup|g − seen| and points behind it, on a grid graded to both ends."""
    low, high = float(seen.low[0]), float(seen.high[0])
    s = np.concatenate([np.linspace(0, 1, 1201), np.geomspace(1e-14, 0.5, 300), 1 - np.geomspace(1e-14, 0.5, 300)])
    u = np.clip(low + (high - low) * np.sort(s), low, high)
    with np.errstate(all="ignore"):
        f = np.broadcast_to(np.asarray(run(g, ArrayAlgebra(), {"u": u})[0], dtype=np.float64), u.shape)
        net = seen.affine[0, 0] * u + seen.bias[0]
        for head in seen.heads:
            axis = head.axes[0]
            logits = (axis.w * u + axis.c)[:, None] * axis.slopes + axis.biases
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            net = net + (weights @ head.values[:, 0]) / weights.sum(axis=1)
        error = np.abs(f - net)
    error = np.where(np.isfinite(error), error, 0.0)
    top = np.argsort(error)[-3:]
    return float(error[top[-1]]), u[top][:, None]


def _beyond(seen: View, g: Graph, end: float, reach: float) -> float:
    """A bound of |g(end) − seen(u)| for u between `end` and end + reach: Taylor forms of the heads against a
    constant.
    """
    value = run(g, BallAlgebra(clip_sqrt=True), {"u": arb(end)})[0]
    a, b = (end, end + reach) if reach > 0 else (end + reach, end)
    return range_bound(seen, [value], math.nextafter(a, -math.inf), math.nextafter(b, math.inf))


def modulus(g: Graph, low: float, high: float, delta: float) -> float:
    """ω_g(δ) on [low, high]: over pieces that overlap by δ, the smaller of the oscillation and δ times the slope."""
    if delta == 0:
        return 0.0
    width = high - low
    fine = np.concatenate([np.linspace(0, 1, 33), 2.0 ** -np.arange(6.0, 60.0), 1 - 2.0 ** -np.arange(6.0, 50.0)])
    edges = np.unique(np.clip(low + width * fine, low, high))
    edges[0], edges[-1] = low, high
    left, right = edges[:-1], np.minimum(np.nextafter(edges[1:] + delta, np.inf), high)
    boxes = balls(left, right)
    algebra = GradientAlgebra(BallAlgebra(clip_sqrt=True, sharp=True), 1)
    dual = run(g, algebra, algebra.variables(["u"], {"u": boxes}))[0]
    value = np.broadcast_to(np.asarray(dual.value, dtype=object), left.shape)
    swing = uppers(value) - lowers(value)
    swing = np.where(np.isnan(swing), np.inf, swing) * (1 + 1e-12)
    slope = np.zeros(len(left))
    if dual.partials and dual.partials[0] is not None:
        slope = np.broadcast_to(abs_uppers(np.asarray(dual.partials[0], dtype=object)), left.shape)
    slope = np.where(np.isnan(slope), np.inf, slope)
    return float(np.max(np.minimum(swing, slope * delta))) * (1 + 1e-12)


def prove_by_composition(network: Network, function: Function, labels: Labels, eps: float) -> tuple[Bound, float]:
    """See the module's statement; Undecided with the coordinate that could not be proved."""
    try:
        return Composition(network, function, labels).prove(eps)
    except RecursionError:
        raise Undecided("composition: the program is nested too deeply") from None
