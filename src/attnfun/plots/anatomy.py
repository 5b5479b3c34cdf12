"""What every head of a composed network does: its function, what it reads, its range, and its share of the error.

Shares split the proved bound among the steps by the bound's own sum. With E_i = own + carried + rounding of step i
(from the certificate) and U = Σ_j β_j φ_j + … its argument, the carried part of E_i belongs to the steps j in
proportion to |β_j| E_j; what is left was born in step i. The output's error Σ_i |β_i| E_i is followed down to where it
was born. Where the certificate was refined locally, this is still the sum over the whole box. Shares are a reading of
the proof, no part of it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attnfun.language import ArrayAlgebra, Builder, Graph, run
from attnfun.language.ranges import range_of
from attnfun.network.head import Head
from attnfun.network.labels import Label, Labels
from attnfun.network.network import Network
from attnfun.network.relu import ReluBlock
from attnfun.plots.sample import Subject


@dataclass(frozen=True)
class Step:
    """One coordinate: φ = g(U), written by one head or by a few pieces, or in an MLP by a block of units.

    `low`, `high`: the range of U, the first argument of a tensor head.
    """

    tag: str
    layer: int
    name: str
    function: str
    heads: tuple[Head | ReluBlock, ...]
    label: Label
    low: float
    high: float
    reads: Mapping[str, float]
    rides: tuple[str, ...]
    own: float | None = None
    share: float | None = None

    @property
    def keys(self) -> int:
        return sum(head.keys for head in self.heads)

    @property
    def words(self) -> tuple[str, str]:
        """As `Network.words`."""
        return ("block", "unit") if any(isinstance(head, ReluBlock) for head in self.heads) else ("head", "key")

    @property
    def ends(self) -> tuple[str, str]:
        """The range in three digits; an end that outward rounding moved off 0 reads 0."""
        small = 1e-6 * (self.high - self.low)
        low, high = (0.0 if abs(end) <= small else end for end in (self.low, self.high))
        return f"{low:.3g}", f"{high:.3g}"


@dataclass(frozen=True)
class Anatomy:
    """The steps in stream order and, for every output, its text and what it reads (β by tag or input)."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    formulas: tuple[str, ...]
    reads: tuple[Mapping[str, float], ...] = field(default=())


def anatomy(subject: Subject) -> Anatomy | None:
    """None for a network without labels."""
    network, labels = subject.network, subject.network.labels
    if labels is None or not labels.coordinates:
        return None
    words = _Words(labels, network)
    nodes = labels.program.reachable([label.argument for label in labels.coordinates])
    ends = range_of(nodes, subject.target.box)
    ranges = {label.name: found for label, found in zip(labels.coordinates, ends, strict=True)}
    steps = []
    stream = list(network.inputs)
    by_name = {label.name: label for label in labels.coordinates}
    for depth, layer in enumerate(network.layers, start=1):
        for name in layer.writes:
            label = by_name.get(name)
            if label is None:
                return None
            heads = tuple(head for head in layer.heads if name in head.writes)
            reads = words.reads_of(label)
            seen = np.any([np.abs(axis.query).max(axis=0) > 0 for head in heads for axis in head.axes], axis=0)
            meant = {words.name_of.get(tag, tag) for tag in reads}
            rides = tuple(words.tags.get(n, n) for n, on in zip(stream, seen, strict=True) if on and n not in meant)
            tag, (low, high) = words.tags[name], ranges[name]
            steps.append(Step(tag, depth, name, words.function(label), heads, label, low, high, reads, rides))
        stream += layer.writes
    outputs = tuple(words.reads(node) for node in labels.program.outputs)
    formulas = tuple(words.text(words.inner[node]) for node in labels.program.outputs)
    whole = Anatomy(tuple(steps), network.inputs, network.outputs, formulas, outputs)
    return _shared(whole, subject.certificate)


class _Words:
    """The program with every labelled φ replaced by the tag of its coordinate: h1, h2, …"""

    def __init__(self, labels: Labels, network: Network) -> None:
        order = [name for layer in network.layers for name in layer.writes]
        prefix = "h"
        while any(name.startswith(prefix) and name[len(prefix) :].isdigit() for name in network.inputs):
            prefix += "h"
        self.tags = {name: f"{prefix}{k}" for k, name in enumerate(order, start=1)}
        self.name_of = {tag: name for name, tag in self.tags.items()}
        self.program, self.builder = labels.program, Builder()
        tag_of = {label.phi: self.tags[label.name] for label in labels.coordinates if label.name in self.tags}
        self.inner: list[int] = []
        for index, node in enumerate(self.program.nodes):
            if index in tag_of:
                self.inner.append(self.builder.var(tag_of[index]))
            else:
                args = (self.inner[a] for a in node.args)
                self.inner.append(self.builder.apply(node.op, *args, value=node.value))

    def text(self, index: int) -> str:
        graph = self.builder.graph([index])
        return graph.text(graph.outputs[0], 120).replace(" + -1*", " - ")

    def reads(self, node: int) -> dict[str, float]:
        """The coefficients β of an affine node, by tag or input; {} where it is not affine after all."""
        graph: Graph = self.builder.graph([self.inner[node]])
        names = graph.variables
        if not names:
            return {}
        points = np.concatenate([np.zeros((1, len(names))), np.eye(len(names))])
        with np.errstate(all="ignore"):
            values = run(graph, ArrayAlgebra(), {name: points[:, k] for k, name in enumerate(names)})[0]
        slopes = np.asarray(values, dtype=np.float64)[1:] - float(np.asarray(values)[0])
        return {name: float(slope) for name, slope in zip(names, slopes, strict=True)}

    def reads_of(self, label: Label) -> dict[str, float]:
        """The same of a step; of a tensor head the largest of its arguments' coefficients."""
        out: dict[str, float] = {}
        for argument in label.arguments:
            for name, beta in self.reads(argument).items():
                out[name] = max(beta, out.get(name, beta), key=abs)
        return out

    def function(self, label: Label) -> str:
        """φ in terms of its arguments, the arguments in terms of tags and inputs."""
        at = {argument: self.inner[argument] for argument in label.arguments}
        stack = [label.phi]
        while stack:
            index = stack[-1]
            node = self.program.nodes[index]
            waiting = [a for a in node.args if a not in at] if index not in at else []
            if waiting:
                stack.extend(waiting)
                continue
            if index not in at:
                at[index] = self.builder.apply(node.op, *(at[a] for a in node.args), value=node.value)
            stack.pop()
        return self.text(at[label.phi])


def _shared(whole: Anatomy, certificate: Any) -> Anatomy:
    """The anatomy with own errors and shares, where the certificate lists its steps."""
    details = getattr(certificate, "details", None) or {}
    listed = {str(row.get("name")): row for row in details.get("steps", ()) if isinstance(row, Mapping)}
    errors: dict[str, tuple[float, float, float, float]] = {}
    for step in whole.steps:
        row = listed.get(step.name, {})
        numbers = [row.get(key) for key in ("own", "carried", "rounding", "total")]
        if not all(isinstance(v, int | float) and math.isfinite(v) for v in numbers):
            return whole
        own, carried, rounding, total = (float(v or 0.0) for v in numbers)
        errors[step.tag] = (own, carried, rounding, total)

    def flows(reads: Mapping[str, float]) -> dict[str, float]:
        return {tag: abs(beta) * errors[tag][3] for tag, beta in reads.items() if tag in errors}

    arriving = dict.fromkeys(errors, 0.0)
    worst = max((flows(reads) for reads in whole.reads), key=lambda flow: sum(flow.values()), default={})
    for tag, amount in worst.items():
        arriving[tag] += amount
    born: dict[str, float] = {}
    for step in reversed(whole.steps):
        own, carried, rounding, _ = errors[step.tag]
        incoming = flows(step.reads)
        all_of_it, below = own + carried + rounding, sum(incoming.values())
        passed = arriving[step.tag] * carried / all_of_it if all_of_it > 0 and below > 0 else 0.0
        for tag, amount in incoming.items():
            arriving[tag] += passed * amount / below if below > 0 else 0.0
        born[step.tag] = arriving[step.tag] - passed
    everything = sum(born.values())
    if not everything > 0:
        return whole
    shares = [(step, errors[step.tag][0], born[step.tag] / everything) for step in whole.steps]
    return replace(whole, steps=tuple(replace(step, own=own, share=share) for step, own, share in shares))
