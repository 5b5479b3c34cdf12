"""RelationApproximant: the view of a relation's model; what is said of it, its record, and what `diagnose` looks at.

How towers are trained: those of a relation with free weights, or perceptrons of given widths in their place.

A random start, in the units of `weights.py`: of ReLU units slopes normal over √(dim/2), biases normal, values normal
over √units; of softmax heads as for functions; the read-out normal over √(what it reads), no bias. No torch here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify.certificate import Certificate
from attnfun.diagnosis.plain import POINTS
from attnfun.diagnosis.subject import Subject
from attnfun.errors import InvalidRequest, require
from attnfun.kinds.relation.core import Core
from attnfun.kinds.relation.form import SIDES, Cells, Form, Polynomials, Reading, TrainedTowers
from attnfun.kinds.relation.jumps import Band
from attnfun.kinds.relation.prove_inner import gradient_bounds
from attnfun.kinds.relation.target import Relation, Sides, points_of
from attnfun.language.domain import Box
from attnfun.language.numbers import at_most
from attnfun.learn.lesson import Ask, Lesson
from attnfun.learn.weights import joined
from attnfun.model import Model
from attnfun.network import Architecture, AxisShape, HasPlain, HeadShape, Network, Plain
from attnfun.network.head import Array, Of

if TYPE_CHECKING:
    from attnfun.kinds.relation.torch_towers import TowerProblem


S = TypeVar("S", bound=Sides)


@dataclass(frozen=True, eq=False)
class Tower(HasPlain):
    """Side k of a relation: points (n, variables) → features (n, rank), J included on the right."""

    _shown = ("side", "box", "weights")

    weights: Form
    target: Relation
    k: int

    def __call__(self, X: ArrayLike, dtype: str = "float64") -> NDArray[Any]:
        """(n, variables) → (n, rank); `dtype` is for towers without a network, which run in any."""
        return self.weights.values(self.k, self.inputs(X), dtype)

    @property
    def side(self) -> str:
        return SIDES[self.k]

    @property
    def box(self) -> Box:
        return self.target.boxes[self.k]

    def inputs(self, X: ArrayLike) -> Array:
        """What the network reads: x if it computes u(x) itself, else u(x), cut to the box of the features."""
        return self.weights.reading(self.target, self.k)(points_of(X, self.box))

    @cached_property
    def network(self) -> Network:
        """The tower as a network from x, or from u(x) where that is computed outside.

        A symmetric relation has one for both sides (and J on the right if it is signed).
        """
        return self.weights.tower(self.target, self.k)

    dtype = Of[str]("weights")

    def plain(self, dtype: str | None = None) -> Plain:
        """(n, inputs of `network`) → (n, rank), rank 1 too."""
        return replace(self.network.plain(dtype), reads="rows")

    @property
    def coefficients(self) -> list[Array]:
        """Chebyshev coefficients of the factors' functions, (N_1, …, N_a, columns) each; of polynomials only."""
        blocks = self.weights.features.blocks if isinstance(self.weights, Polynomials) else ()
        return [b.right if self.k else b.left for b in blocks]


class Ranked(Model[S, Form]):
    """A sum of products of features."""

    rank = Of[int]("weights")

    @property
    def rank_lower(self) -> int:
        """A proved lower bound of the rank of any features within eps; 0 where there is none."""
        least = self.story.get("rank_lower")
        return least if type(least) is int else 0


class RelationApproximant(Ranked[Relation]):
    """Two towers and their inner product: `net(X, Y)` for all scores of points (m, left), (n, right variables)."""

    @cached_property
    def left(self) -> Tower:
        return Tower(self.weights, self.target, 0)

    @cached_property
    def right(self) -> Tower:
        return Tower(self.weights, self.target, 1)

    def features(self, X: ArrayLike) -> NDArray[Any]:
        """(n, left variables) → (n, rank): φ(x)."""
        return self.left(X)

    def pairs(self, X: ArrayLike, Y: ArrayLike) -> NDArray[Any]:
        """(n, left variables), (n, right variables) → (n,) scores ⟨φ(x_i), ψ(y_i)⟩."""
        return np.asarray(self(X, Y, pairs=True))

    @property
    def signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones unless the relation was split by `signed=True`."""
        return self.weights.product_signs

    @property
    def core(self) -> Core:
        """g(u(x), v(y)) of the constructed features."""
        return self.weights.core(self.target)

    @property
    def features_only(self) -> bool:
        return self.weights.realise is None

    @property
    def method(self) -> str:
        return str(self.story.get("construction", ""))

    @property
    def band(self) -> Band | None:
        """Where jumps are left out, if the relation was asked for outside of a band around them."""
        return Band.read(self.story.get("band"))


def explain(model: RelationApproximant) -> str:
    """In words: what was built or trained, and what is proved or was seen of it."""
    cost, weights = model.cost, model.weights
    lines = [f"{model.target.text}  on  {model.target.domain}"]
    made = "Trained" if model.trained else f"Built ({model.method})"
    if model.features_only:
        lines.append(f"{made}: {model.rank} features per side, without towers.")
    else:
        units = weights.realise == "mlp"
        count = len(weights.networks)
        lines.append(
            f"{made}: {count} tower{'s' if count > 1 else ''} of {'ReLU units' if units else 'attention'}, "
            f"{model.rank} features, {cost.layers} layer(s), {cost.keys:,} {'units' if units else 'keys'}, "
            f"{cost.parameters:,} parameters, {model.dtype}."
        )
    if model.rank_lower:
        lines.append(f"Any method needs at least {model.rank_lower} features.")
    if model.band is not None:
        lines.append(f"It is about {model.band.of} where its signs see {model.band.delta:g} or more.")
    return "\n".join([*lines, told(model.certificate)])


def told(c: Certificate, proved: str = "the error is at most {}; {}") -> str:
    """What is proved, or why nothing is; `proved` is said of the bound and of what was asked for."""
    asked = "no eps was asked for" if c.eps is None else f"eps was {c.eps:.4g}"
    return c.told(f" ({c.method}): {proved.format(at_most(c.error[1]), asked)}.")[0]


def record(model: RelationApproximant) -> dict[str, Any]:
    """What its JSON has besides certificate and sizes."""
    weights, realise = model.weights, model.weights.realise
    if realise and not model.cost.layers:  # affine towers have neither units nor keys: they are what was asked for
        realise = str(model.request.get("realise", realise))
    out: dict[str, Any] = {"rank": model.rank, "rank_lower": model.rank_lower, "realise": realise}
    out |= {"features_only": model.features_only, "symmetric": model.target.symmetric, "signed": weights.signed}
    if realise == "mlp":
        out |= {"neurons": model.cost.keys, "neurons_paper": paper_neurons(model)}
    if isinstance(weights, Cells):
        out["cells"] = list(weights.counts)
    if model.band is not None:
        out["band"] = vars(model.band)
    return out | {"voronoi_cells": list(voronoi_cells(model.target, _eps(model)))}


def _eps(model: RelationApproximant) -> float:
    return float(model.request.get("eps") or 1.0)


def paper_neurons(model: RelationApproximant) -> float:
    """n (8 κ C √n/ε)² with C = 1: what published bounds for features of Barron norm C come to for n of them, (C/δ)²
    neurons for δ = ε/(8 κ √n) each. The constants are ours, no proof is meant.

    κ² is read off the features: the larger of |φ|² and |ψ|² at samples.
    """
    X, Y = (box.probe(200, np.random.default_rng(0)) for box in model.target.boxes)
    size = max(float((t**2).sum(axis=1).max()) for t in (model.left(X), model.right(Y)))
    return model.rank * (8 * math.sqrt(size * model.rank) / _eps(model)) ** 2


def voronoi_cells(relation: Relation, eps: float) -> tuple[float, float]:
    """(left, right) cells that the quantisation takes for the sup norm eps; infinite where it is not worked out.

    What quantisation by Voronoi cells would cost: the published construction of relations, counted for comparison.

    Statement (Altabaa and Lafferty, arXiv 2402.08856, section on asymmetric relations). Take one centre per cell on
    both sides and R_ij = r(v_i, w_j); the towers are one-hot in the cells, so the rank is at most the number of cells.
    On a grid of cells of sides h_k, with L_k ≥ |∂_k r|, the error is at most Σ_k L_k h_k/2 over all left and right
    variables; h_k = 2ε/(D L_k) for D variables gives Π_k ⌈(b_k − a_k)/h_k⌉ cells per side. L_k is proved by balls for
    the gradient.
    Failure mode: infinite where the gradient is not bounded, or past six variables (not worked out).
    """
    box = relation.joint
    slopes = gradient_bounds(relation.graph, box.names, box.low_array, box.high_array).tolist()
    counts = [
        max(1.0, math.ceil((b - a) * box.dim * slope / (2 * eps))) if math.isfinite(slope) else math.inf
        for a, b, slope in zip(box.low, box.high, slopes, strict=True)
    ]
    return math.prod(counts[: relation.left.dim]), math.prod(counts[relation.left.dim :])


# ---------------------------------------------------------------- diagnosis

Found = tuple[str, list[Subject], list[str]]


def subjects(model: Any, eps: float | None) -> Found:
    """The towers of two or three sides, judged by the features that they stand for where these are known."""
    weights, about = model.weights, model.target.text
    if not weights.realise:
        return about, [], ["The file holds features without towers: there is no head to look at."]
    if weights.realise == "mlp":
        return about, [], ["The towers are MLPs: nothing in them attends."]
    found: list[Subject] = []
    if isinstance(weights, TrainedTowers):
        for k, network in enumerate(weights.networks):
            X = weights.reads[k](model.target.boxes[k].probe(POINTS, np.random.default_rng(43)))
            found.append(Subject("both sides" if weights.one else f"tower {k + 1}", network, X))
        return about, found, ["The towers were trained: there are no features to judge their errors by."]
    asked = eps if eps is not None else model.certificate.eps
    towers = model.left, model.right
    for tower, other in zip(towers[: len(weights.networks)], towers[::-1], strict=False):
        X = tower.inputs(tower.box.probe(POINTS, np.random.default_rng(43)))
        meets = other(other.box.probe(POINTS, np.random.default_rng(44)))
        share = None if asked is None else asked / max(float(np.abs(meets).sum(axis=1).max()), 1e-300)
        features = tower_features(weights, model.target, tower.k)
        found.append(Subject(f"{tower.side} tower", tower.network, X, features, eps=share))
    return about, found, ["The relation has one tower for both sides."] if len(found) == 1 else []


def tower_features(weights: Any, relation: Relation, k: int) -> Callable[[Array], Array] | None:
    """The polynomials that a tower realises, from the inputs of its network; soft cells are nothing but themselves."""
    if not isinstance(weights, Polynomials):
        return None
    reads = Form.reading(weights, relation, k) if weights.stacked else Reading(relation.boxes[k].names)

    def values(X: Array) -> Array:
        return np.asarray(weights.side(SIDES[0 if weights.one else k], reads(X)), dtype=np.float64)

    return values


@dataclass(frozen=True, eq=False)
class Side:
    """One tower: its shape, the box of what it reads, and how points become that."""

    architecture: Architecture
    box: Box
    reads: Reading


def lesson(given: Any, ask: Ask[Any]) -> Lesson:
    """The towers of a model of a relation of two or three variables, or those of `widths`."""
    ask.no_noise()
    own = ask.weights_of(given)
    problem = _problem(own, ask)
    if ask.start == "random":
        origin = problem.random(ask.recipe.seed)
    elif ask.start is own and problem.origin:
        origin = problem.origin
    elif isinstance(ask.start, TrainedTowers):
        origin = ask.start.networks
    else:
        raise InvalidRequest("towers start at random, from the constructed ones (without widths), or from trained ones")
    shapes, sides = [network.architecture for network in origin], problem.sides
    if len(shapes) != len(sides) or not all(s.architecture.holds(own) for s, own in zip(sides, shapes, strict=True)):
        raise InvalidRequest("the start is not a pair of towers of the architecture that is to be trained")
    return Lesson(ask.target, replace(problem, origin=origin), problem.weights)


def _problem(weights: Any, ask: Ask[Any]) -> TowerProblem:
    """What is to be trained, with the towers that are there already as its origin."""
    from attnfun.kinds.relation.torch_towers import TowerProblem

    target = ask.target
    if ask.widths is not None:
        sides, signs = _perceptrons(weights, target, ask.widths, weights.rank if ask.rank is None else ask.rank)
        return TowerProblem(target, sides, signs)
    require(ask.rank is None, "rank belongs to widths: without them the towers are those of the relation")
    require(weights.networks, "this relation has features and no towers: give widths=(64, 64), or ask for towers")
    found = []
    for k, (network, shape) in enumerate(zip(weights.networks, weights.architecture, strict=True)):
        low, high = (tuple(float(v) for v in end) for end in (network.low, network.high))
        found.append(Side(shape, Box(network.inputs, low, high), weights.reading(target, k)))
    return TowerProblem(target, tuple(found), np.array(weights.product_signs, dtype=np.float64), weights.networks)


def _perceptrons(weights: Any, target: Any, widths: Sequence[int], features: int) -> tuple[tuple[Side, ...], Array]:
    if isinstance(widths, (str, bytes)) or not isinstance(widths, Sequence):
        raise InvalidRequest(f"widths={widths!r:.40}: the widths of the hidden layers are needed, as in (64, 64)")
    if not widths or not all(type(w) is int and w >= 1 for w in (*widths, features)):
        raise InvalidRequest(f"widths={list(widths)!r:.40}, rank={features!r:.20}: whole numbers from 1 on are needed")
    one, old = weights.one, weights.product_signs
    if one and len(old) != features and not bool(np.all(old == 1)):
        raise InvalidRequest("the towers of a relation with signs keep its rank: leave rank out")
    signs = old if len(old) == features else np.ones(features)
    sides = [Side(relu_tower(box.names, widths, features), box, Reading(box.names)) for box in target.boxes]
    return tuple(sides[:1] if one else sides), np.array(signs)


def relu_tower(inputs: Sequence[str], widths: Sequence[int], features: int) -> Architecture:
    """A ReLU multilayer perceptron as an architecture: hidden layers of these widths, each reading the one before."""
    layers, reads, seen = [], tuple(range(len(inputs))), len(inputs)
    for k, units in enumerate(widths):
        writes = features if k == len(widths) - 1 else min(units, widths[k + 1])
        layers.append((HeadShape((AxisShape(units, len(reads), reads),), tuple(range(writes))),))
        reads = tuple(range(seen, seen + writes))
        seen += writes
    outputs = tuple(f"feature {k + 1}" for k in range(features))
    return Architecture(tuple(inputs), tuple(layers), outputs, "float64", "block", reads)


def random_weights(architecture: Architecture, rng: np.random.Generator) -> Array:
    """The vector of a random start, in the units of `weights.py`."""
    block, arrays = architecture.kind == "block", dict[str, Array]()
    for name, shape in architecture.layout():
        kind = name.rsplit("/", 1)[-1]
        if kind == "query":
            square = shape[0] == shape[1]
            arrays[name] = np.eye(shape[0]) if square else rng.standard_normal(shape) / np.sqrt(max(1, shape[1]))
            continue
        spread = {
            "offset": 0.0,
            "slopes": (2 / shape[-1]) ** 0.5 if block else 1.0,
            "biases": 1.0,
            "values": shape[0] ** -0.5 if block else 1.0,
            "readout": max(1, shape[-1]) ** -0.5,
            "readout_bias": 0.0,
        }[kind]
        arrays[name] = spread * rng.standard_normal(shape)
    return joined(architecture, arrays)
