"""`relation`: two towers and an inner product for a relation, with a proved error; what it returns, and its file."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.certify.relation import core_points
from attnfun.certify.stored import kept, read_back
from attnfun.errors import AttnfunError, Infeasible, InvalidRequest
from attnfun.gate import Gate, require_sup
from attnfun.limits.quantisation import voronoi_cells
from attnfun.network import Architecture, Network, evaluate, to_torch
from attnfun.network.cells import Cells
from attnfun.network.claim import Claim
from attnfun.network.features import Features
from attnfun.network.head import Array
from attnfun.network.relation_file import Towers, save_relation
from attnfun.network.relation_forms import save_form
from attnfun.network.sealed import Source
from attnfun.network.separable import Separable
from attnfun.network.slices import Slices
from attnfun.network.stack import stacked
from attnfun.network.towers import TowerWeights, tower_network
from attnfun.targets import Box, require_defined
from attnfun.targets.jumps import Band, likely_band, smoothed
from attnfun.targets.relation import Relation
from attnfun.targets.relation_core import Core

if TYPE_CHECKING:
    import torch

METHODS = ("auto", "expand", "polynomial", "chebyshev", "tensor", "cholesky", "voronoi", "hats", "cross")
REALISE = ("attention", "mlp")


@dataclass(frozen=True, eq=False)
class Tower:
    """One side of a relation: points (n, variables) → features (n, rank).

    With `weights` it runs its network; without, the features are polynomials (`features_only`).
    """

    features: Features | Cells | Slices | Separable
    side: str
    box: Box
    core: Core
    weights: TowerWeights | None

    def __call__(self, X: ArrayLike, dtype: str = "float64") -> NDArray[Any]:
        """(n, variables) → (n, rank); `dtype` is for towers without a network, which run in any."""
        if self.weights is None:
            assert not isinstance(self.features, Separable)  # its networks are always there
            return self.features.side(self.side, self.inputs(X), dtype)
        values = evaluate(self.network, self.inputs(X))
        return np.asarray(values * self.features.product_signs if self._mirrored else values)

    def inputs(self, X: ArrayLike) -> Array:
        """What the network reads: x if it computes u(x) itself, else u(x), cut to the box of the features."""
        points = _points(X, self.box)
        if self.weights is not None and self.weights.inner is not None:
            return points
        low, high = self.features.left_box if self.side == "left" else self.features.right_box
        return np.clip(core_points(self.core, self.side, points, self.box.names), low, high)

    @property
    def _mirrored(self) -> bool:
        return self.side == "right" and self.features.signed

    @cached_property
    def network(self) -> Network:
        """The tower as a network from x, or from u(x) where that is computed outside.

        A symmetric relation has one for both sides (and J on the right if it is signed).
        """
        if self.weights is None:
            raise InvalidRequest("these features were asked for without towers (features_only=True)")
        one = self.features.signs is not None
        if isinstance(self.features, Separable):
            return self.features.left if self.side == "left" else self.features.right
        names = self.core.left.names if self.side == "left" else self.core.right.names
        if isinstance(self.features, Cells):
            return self.features.network("left" if one else self.side, names)
        assert isinstance(self.features, Features)
        head = tower_network(self.features, "left" if one else self.side, self.weights, names)
        return head if self.weights.inner is None else stacked(self.weights.inner, head)

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """The tower as a torch module, (n, inputs of `network`) → (n, rank), rank 1 too."""
        module: Any = to_torch(self.network, dtype)
        module.rows = True
        return module  # type: ignore[no-any-return]

    @property
    def coefficients(self) -> list[Array]:
        """Chebyshev coefficients of the factors' functions, (N_1, …, N_a, columns) each; none of cells and slices."""
        if not isinstance(self.features, Features):
            return []
        return [b.left if self.side == "left" else b.right for b in self.features.blocks]


@dataclass(frozen=True, eq=False)
class RelationApproximant:
    """Two towers and their inner product, with what is proved of them."""

    target: Relation
    stored: Features | Cells | Slices | Separable
    towers: Towers | None
    core: Core
    certificate: Certificate
    rank_lower: int
    method: str
    request: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    band: Band | None = None

    @property
    def rank(self) -> int:
        return self.stored.rank

    @property
    def features_only(self) -> bool:
        return self.towers is None

    @property
    def architecture(self) -> tuple[Architecture, ...]:
        """Of its towers, the one of a symmetric relation once; InvalidRequest for features without towers."""
        towers = (self.left,) if self.stored.signs is not None else (self.left, self.right)
        return tuple(tower.network.architecture for tower in towers)

    @cached_property
    def left(self) -> Tower:
        weights = None if self.towers is None else self.towers[0]
        return Tower(self.stored, "left", self.target.left, self.core, weights)

    @cached_property
    def right(self) -> Tower:
        weights = None if self.towers is None else self.towers[1]
        return Tower(self.stored, "right", self.target.right, self.core, weights)

    @property
    def signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones unless the relation was split by `signed=True`."""
        return self.stored.product_signs

    def features(self, X: ArrayLike) -> NDArray[Any]:
        """(n, left variables) → (n, rank): φ(x)."""
        return self.left(X)

    def __call__(self, X: ArrayLike, Y: ArrayLike) -> NDArray[Any]:
        """(m, left variables), (n, right variables) → (m, n) scores ⟨φ(x_i), ψ(y_j)⟩."""
        return np.asarray(self.left(X) @ self.right(Y).T)

    def pairs(self, X: ArrayLike, Y: ArrayLike) -> NDArray[Any]:
        """(n, left variables), (n, right variables) → (n,) scores ⟨φ(x_i), ψ(y_i)⟩."""
        return np.asarray(np.sum(self.left(X) * self.right(Y), axis=1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Features, towers, relation, request and certificate in one safetensors file."""
        meta = {"method": self.method, "rank_lower": self.rank_lower, **kept(self.request, self.certificate)}
        if isinstance(self.stored, Features):
            save_relation(path, self.target.to_json(), self.stored, self.towers, meta)
        else:
            save_form(path, self.target.to_json(), self.stored, meta)

    def record(self) -> dict[str, Any]:
        """What `attnfun relation --json` prints."""
        certificate = self.certificate.to_json()
        certificate["proof"] = certificate.pop("method")
        certificate.pop("construction")
        sizes: dict[str, Any] = {}
        if self.towers is not None:
            word = "neurons" if self.towers[0].mlp else "keys"
            one = self.stored.signs is not None
            sizes = {"layers": max(self.left.network.cost.layers, self.right.network.cost.layers)}
            sizes[word] = self.left.network.cost.keys + (0 if one else self.right.network.cost.keys)
            sizes["max_value"] = max(self.left.network.cost.max_value, self.right.network.cost.max_value)
            if self.towers[0].mlp:
                sizes["neurons_paper"] = paper_neurons(self)
        if isinstance(self.stored, Cells):
            sizes["cells"] = list(self.stored.counts)
        return {
            "status": certificate.pop("status"),
            "error": certificate.pop("error"),
            "rank": self.rank,
            "rank_lower": self.rank_lower,
            "method": self.method,
            "realise": None if self.towers is None else "mlp" if self.towers[0].mlp else "attention",
            "features_only": self.features_only,
            **sizes,
            "symmetric": self.target.symmetric,
            "signed": self.stored.signed,
            **({"band": vars(self.band)} if self.band is not None else {}),
            **certificate,
            "voronoi_cells": list(voronoi_cells(self.target, float(self.request.get("eps", 1.0)))),
            "seconds": round(self.seconds, 3),
        }


def paper_neurons(found: RelationApproximant) -> float:
    """n (8 κ C √n/ε)² with C = 1: what published bounds for features of Barron norm C come to for n of them, (C/δ)²
    neurons for δ = ε/(8 κ √n) each. The constants are ours, no proof is meant.

    κ² is read off the features: the larger of |φ|² and |ψ|² at samples.
    """
    X, Y = (box.probe(200, np.random.default_rng(0)) for box in (found.target.left, found.target.right))
    size = max(float((t**2).sum(axis=1).max()) for t in (found.left(X), found.right(Y)))
    n, eps = found.rank, float(found.request.get("eps", 1.0))
    return n * (8 * math.sqrt(size * n) / eps) ** 2


def relation(
    target: Any,
    left: Any,
    right: Any,
    eps: float,
    *,
    symmetric: bool = False,
    method: str = "auto",
    realise: str = "attention",
    features_only: bool = False,
    signed: bool = False,
    band: float | None = None,
    accept: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> RelationApproximant:
    """Towers with |target(x, y) − ⟨φ(x), ψ(y)⟩| ≤ eps for all x in `left`, y in `right`, proved.

    A relation g(u(x), v(y)) has towers in which networks compute u and v, proved from x on. Where u or v do not
    compile to what that takes, and with `realise="mlp"`, they are taken as computed exactly: `conditional`.

    `symmetric`: left and right variables correspond in order and one tower serves both; a relation that is not
    positive semidefinite is then refused with a witness (`NotPositive`) unless `signed=True` allows ⟨φ, Jφ⟩ with a
    diagonal J of signs. `method`: "auto" (the least rank), "expand" (the relation's own terms Σ a_i(x) b_i(y),
    multiplied out, in any number of variables), "polynomial" (the least rank of the next three), "chebyshev", "tensor"
    (products of the factors' features), "cholesky", "voronoi" (two look-up tables over soft cells: kinks too), "hats"
    (broken lines as ReLU units, one variable a side: kinks too) or "cross" (slices of the relation, measured and never
    proved: status `sampled`). `accept`: "proved", or "sampled" to let auto fall back to "cross" wherever nothing was
    proved; by default it does so where no tolerance of interest can be (see `relation_ways`). `realise`: "attention"
    (one head a tower; two layers past three variables, for relations that separate) or "mlp" (ReLU units; several
    variables where they separate). `band`: for relations that jump (sums of sign() and continuous terms), which are
    refused otherwise: the error is then within eps wherever the arguments of all signs are at least `band` in size;
    `.band` has the measure of the rest, `.target` is the smooth relation that was met at eps/2, and no lower bound on
    the rank is given.
    `features_only=True` leaves the towers out: the certificate is then about the features as polynomials.
    """
    from attnfun.relation_ways import ACCEPT, find
    from attnfun.verbs import check_request, one_thread

    start = time.perf_counter()
    say = progress or (lambda _text: None)
    check_request(eps, "float64", 0)
    if method not in METHODS:
        raise InvalidRequest(f"method={method!r}: write {', '.join(METHODS)}")
    if realise not in REALISE:
        raise InvalidRequest(f"realise={realise!r}: write attention or mlp")
    if accept not in ACCEPT:
        raise InvalidRequest(f"accept={accept!r}: write proved or sampled")
    if signed and not symmetric:
        raise InvalidRequest("signed=True belongs to symmetric=True: two towers need no signs")
    asked = Relation.read(target, left, right, symmetric)
    edge, goal = None, float(eps)
    if band is not None:
        asked, edge = smoothed(asked, band, goal)
        goal = goal / 2
    say("is the relation defined on the domain?")
    _require_continuous(asked)
    with one_thread():
        kind = None if features_only else realise
        features, towers, core, certificate, how = find(asked, goal, method, kind, signed, accept, say)
        say("a lower bound on the rank")
        from attnfun.limits.relation_rank import rank_lower

        least = rank_lower(asked, goal) if edge is None else 0  # a bound for the smooth relation is none for the jump
        if not least <= features.rank:
            raise AssertionError(f"a lower bound {least} above a proved rank {features.rank} must never be issued")
    request = {"eps": goal, "method": method, "symmetric": symmetric, "signed": signed}
    request |= {"realise": realise, "features_only": features_only}
    seconds = time.perf_counter() - start
    return RelationApproximant(asked, features, towers, core, certificate, least, how, request, seconds, edge)


def _require_continuous(asked: Relation) -> None:
    """Refuse what is not defined, and what jumps: no continuous scores are near a jump in the sup norm."""
    require_defined(asked.graph, asked.joint, continuous=False)
    if not any(node.op == "sign" for node in asked.graph.nodes):
        return
    try:
        require_defined(asked.graph, asked.joint)
    except AttnfunError as jump:
        width = likely_band(asked)
        what = str(jump).split(": a jump")[0]
        text = f"{asked.text[:120]}: {what}: a jump, which no continuous scores follow in the sup norm"
        more = "; band=δ asks for eps where its signs see δ or more" if width is not None else ""
        raise Infeasible(text + more, None if width is None else {"band": width}) from None


def load_towers(path: Source) -> RelationApproximant:
    """The relation of a file; its certificate and its least rank are the stored ones, not proved anew."""
    from attnfun.relation_files import read_relation, stored_core

    asked, features, towers, rest = read_relation(path)
    certificate, request, _ = read_back(rest, "float64", asked.text, asked.domain_text)
    least, how = rest.get("rank_lower"), rest.get("method")
    return RelationApproximant(
        asked,
        features,
        towers,
        stored_core(asked, features),
        certificate,
        least if type(least) is int else 0,
        how if isinstance(how, str) else "",
        {key: value for key, value in request.items() if value is not None},
    )


def verify_towers(path: Source, gate: Gate, progress: Callable[[str], None] | None = None) -> Certificate:
    """Prove the bound again from the stored features, towers and relation; no number of the certificate is read."""
    from attnfun.relation_files import prove_again, read_relation

    asked, features, towers, rest = read_relation(path)
    eps, how = stored_goal(asked, rest, gate), rest.get("method")
    return prove_again(asked, features, towers, eps, how if isinstance(how, str) else "", progress)


def stored_goal(asked: Relation, rest: Mapping[str, Any], gate: Gate) -> float | None:
    """The eps that a verdict on a file of a relation is about; what is expected of the file is compared first."""
    claim = Claim.of(rest)
    require_sup(claim)
    eps = gate.tolerance(claim, "float64")

    def read(target: Any) -> tuple[Any, str]:
        other = Relation.read(target, asked.left, asked.right, asked.symmetric)
        return other.graph, other.text

    gate.compare(asked.joint, asked.text, asked.graph, read)
    require_defined(asked.graph, asked.joint)
    return eps


def _points(X: ArrayLike, box: Box) -> Array:
    try:
        points = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidRequest(f"points {X!r:.60}: an array of numbers is needed") from None
    if box.dim == 1 and points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] != box.dim:
        raise InvalidRequest(f"points of shape {np.shape(X)}: (n, {box.dim}) is needed, columns {', '.join(box.names)}")
    if not box.contains(points).all():
        raise InvalidRequest(f"a point lies outside the domain {box.text}")
    return points
