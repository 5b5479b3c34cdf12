"""Form: what the two towers of a relation are stored as. Everything that is done with them is written here, once.

| form | features |
| --- | --- |
| `Polynomials` | products of polynomials, and the towers that realise them |
| `Cells` | look-up tables over soft cells, or broken lines of ReLU units |
| `Separable` | the relation's own terms, one network per side |
| `Slices` | slices of the relation itself: no network, and never proved |
| `TrainedTowers` | those of networks that were trained, of two sides or three: never proved |

A form names its proof (`method`) and says what its networks read: the points x, or u(x) for a core g(u(x), v(y)).
"""

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.kinds.relation.core import Core, fitting_core, inner_points, plain_core
from attnfun.kinds.relation.features import Ends, Features
from attnfun.kinds.relation.target import Relation, values_of
from attnfun.kinds.relation.towers import Keys, TowerWeights, tower_network
from attnfun.language import Graph
from attnfun.network.architecture import Architecture
from attnfun.network.evaluate import evaluate
from attnfun.network.head import AnyArray, Array, Head, Of, freeze
from attnfun.network.network import Cost, Layer, Network
from attnfun.network.plain import HasPlain, PlainScores
from attnfun.network.relu import ReluBlock
from attnfun.network.stack import stacked

Towers = tuple[TowerWeights, TowerWeights]
SIDES = ("left", "right")


@dataclass(frozen=True, eq=False)
class Reading:
    """What a tower reads of points: themselves, or with `ends` u(x) cut to that box, `inner` being u (None: x)."""

    names: tuple[str, ...]
    inner: Graph | None = None
    ends: Ends | None = None

    def __post_init__(self) -> None:
        if self.ends is not None and any(e.shape != (self.width,) or not np.isfinite(e).all() for e in self.ends):
            raise InvalidRequest("a tower's box has ends that are not finite numbers")
        if self.inner is not None and (self.ends is None or not set(self.inner.variables) <= set(self.names)):
            raise InvalidRequest("a tower's inner functions do not fit its variables")

    @property
    def width(self) -> int:
        return len(self.names) if self.inner is None else len(self.inner.outputs)

    def __call__(self, X: Array) -> Array:
        if self.ends is None:
            return X
        return np.asarray(np.clip(X if self.inner is None else inner_points(self.inner, X, self.names), *self.ends))


class Form(HasPlain):
    """Scores ⟨φ(x), Jψ(y)⟩: the base of all forms, which are frozen dataclasses."""

    method: ClassVar[str]
    """How it is proved (`prove`)."""
    dtype: ClassVar[str] = "float64"

    signs: Any
    """Not None exactly if one tower serves both sides of a symmetric relation."""

    @property
    def rank(self) -> int:
        raise NotImplementedError

    @property
    def ends(self) -> tuple[Ends, Ends]:
        """The boxes of the features, left and right."""
        raise NotImplementedError

    @property
    def one(self) -> bool:
        """Does one tower serve both sides?"""
        return self.signs is not None

    @property
    def product_signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones for two towers."""
        return np.ones(self.rank) if self.signs is None else self.signs

    @property
    def signed(self) -> bool:
        """Does the inner product carry a minus sign somewhere?"""
        return self.signs is not None and bool((self.product_signs < 0).any())

    @property
    def realise(self) -> str | None:
        """ "attention", "mlp", or None for features without networks."""
        return None

    def core(self, relation: Relation) -> Core:
        """The core whose features these are."""
        return plain_core(relation)

    def network(self, side: str) -> Network:
        """The tower of a side."""
        raise InvalidRequest("these features were asked for without towers (features_only=True)")

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        """(n, inputs) → (n, rank) of one side without its network."""
        raise InvalidRequest("these features are those of their networks")

    @cached_property
    def networks(self) -> tuple[Network, ...]:
        """The towers, one that serves both sides once; none of features alone."""
        sides = SIDES[: 1 if self.one else 2] if self.realise else ()
        return tuple(self.network(side) for side in sides)

    @property
    def cost(self) -> Cost:
        """Of all towers together, one that serves several sides once; features without any have a rank alone."""
        costs = [tower.cost for tower in self.networks]
        if not costs:
            return Cost(0, 0, self.rank, 0, 0, 0, 0.0, 0)
        how = dict.fromkeys(("layers", "rank", "query_dim", "max_value"), max)
        return Cost(**{f.name: how.get(f.name, sum)(getattr(c, f.name) for c in costs) for f in fields(Cost)})

    @property
    def architecture(self) -> tuple[Architecture, ...]:
        """Of its towers, the one of a symmetric relation once; InvalidRequest for features without towers."""
        return tuple(network.architecture for network in self.networks or (self.network("left"),))

    def unfit(self, relation: Relation) -> str:
        """Why these cannot be features of the relation, in words; empty where they can."""
        core = self.core(relation)
        same = (core.left.dim, core.right.dim) == (len(self.ends[0][0]), len(self.ends[1][0]))
        return "" if same else "its features are those of other variables than its relation's"

    def reading(self, relation: Relation, k: int) -> Reading:
        """What the features of side k, 0 or 1, are computed from: u(x), cut to their box."""
        inner = self.core(relation).inner
        return Reading(relation.boxes[k].names, None if inner is None else inner[k], self.ends[k])

    def tower(self, relation: Relation, k: int) -> Network:
        """The network of side k, its inputs called what they are in the core."""
        own = self.networks[-k] if self.networks else self.network(SIDES[k])
        return replace(own, inputs=self.core(relation).boxes[k].names)

    def values(self, k: int, inputs: Array, dtype: str = "float64") -> AnyArray:
        """(n, inputs) → (n, rank), J on the right; `dtype` is for features without a network, which run in any."""
        if not self.networks:
            return self.side(SIDES[k], inputs, dtype)
        values = evaluate(self.networks[-k], inputs)
        return np.asarray(values * self.product_signs if k and self.signed else values)

    def run(self, left: Array, right: Array, pairs: bool = False) -> AnyArray:
        """Inputs (m, …), (n, …) → (m, n) scores; with `pairs` (n, …), (n, …) → (n,)."""
        phi, psi = self.values(0, left), self.values(1, right)
        return np.asarray(np.sum(phi * psi, axis=1) if pairs else phi @ psi.T)

    def plain(self, dtype: str | None = None) -> PlainScores:
        """Towers and the product of what they give; InvalidRequest for features without towers."""
        towers = tuple(replace(own.plain(dtype), reads="rows") for own in self.networks or (self.network("left"),))
        return PlainScores(towers, self.product_signs)


def require_signs(form: Any) -> None:
    """A form has another side, or signs ±1 in its place; freezes them."""
    require((form.other is None) != (form.signs is None), "a relation has two towers, or one and signs")
    freeze(form)
    signs = form.signs
    if signs is not None and (signs.shape != (form.rank,) or not np.isin(signs, (-1.0, 1.0)).all()):
        raise InvalidRequest("the signs of a relation are one ±1 a feature")


@dataclass(frozen=True, eq=False)
class Polynomials(Form):
    """Features that are products of polynomials, with the towers that realise them.

    `towers` are the left and the right one, one object for both in a symmetric relation; None: features only.
    """

    method: ClassVar[str] = "towers"

    features: Features
    towers: Towers | None = None

    def __post_init__(self) -> None:
        if self.towers is None:
            return
        one, other = self.towers
        if one.mlp != other.mlp or (one.inner is None) != (other.inner is None):
            raise InvalidRequest("the towers of a relation are of one kind, and both or none have a network below them")
        if any(len(tower.keys) != len(box[0]) for tower, box in zip(self.towers, self.ends, strict=True)):
            raise InvalidRequest("the weights of a tower do not fit its features")

    rank = Of[int]("features")  # type: ignore[assignment]
    signs = Of[tuple[Array, ...] | None]("features")  # type: ignore[assignment]
    product_signs = Of[Array]("features")  # type: ignore[assignment]

    @property
    def ends(self) -> tuple[Ends, Ends]:
        return self.features.left_box, self.features.right_box

    @property
    def realise(self) -> str | None:
        return None if self.towers is None else "mlp" if self.towers[0].mlp else "attention"

    def core(self, relation: Relation) -> Core:
        return fitting_core(relation, *self.ends)

    def network(self, side: str) -> Network:
        """The tower as a network from x where it has a network below it, else from u(x)."""
        if self.towers is None:
            return super().network(side)
        k = 0 if self.one else SIDES.index(side)
        tower, names = self.towers[k], tuple(f"v{i + 1}" for i in range(len(self.ends[k][0])))
        head = tower_network(self.features, SIDES[k], tower, names)
        return head if tower.inner is None else stacked(tower.inner, head)

    @property
    def stacked(self) -> bool:
        """Are there networks below the towers, which start from the points?"""
        return self.towers is not None and self.towers[0].inner is not None

    def reading(self, relation: Relation, k: int) -> Reading:
        return Reading(relation.boxes[k].names) if self.stacked else super().reading(relation, k)

    def tower(self, relation: Relation, k: int) -> Network:
        return self.networks[-k] if self.stacked else super().tower(relation, k)

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        return self.features.side(name, points, dtype)

    def at(self, relation: Relation, k: int, points: Array) -> AnyArray:
        """(n, variables) → (n, rank) of side k as polynomials, without its tower; NumPy computes u(x)."""
        return self.side(SIDES[k], Form.reading(self, relation, k)(points))


@dataclass(frozen=True, eq=False)
class Separable(Form):
    """Two networks whose outputs are the features of a relation that is a finite sum of separable terms.

    The networks of φ and ψ; `signs` (rank,) in the place of `other`: one network for both, ⟨φ, Jφ⟩.
    A feature that is affine in the variables is read off the stream, and needs no key.
    """

    method: ClassVar[str] = "separable terms"

    left: Network
    other: Network | None = None
    signs: Array | None = None

    def __post_init__(self) -> None:
        require_signs(self)
        require(len(self.left.outputs) == len(self.right.outputs), "the towers have unequal numbers of features")

    @property
    def right(self) -> Network:
        return self.left if self.other is None else self.other

    @property
    def realise(self) -> str:
        return "mlp" if self.left.is_mlp or self.right.is_mlp else "attention"

    @property
    def rank(self) -> int:
        return len(self.left.outputs)

    @property
    def ends(self) -> tuple[Ends, Ends]:
        return self.left.box, self.right.box

    def network(self, side: str) -> Network:
        return self.left if side == "left" else self.right

    def reading(self, relation: Relation, k: int) -> Reading:
        """The points themselves: the networks start from them."""
        return Reading(relation.boxes[k].names)

    def tower(self, relation: Relation, k: int) -> Network:
        return (self.left, self.right)[k]


@dataclass(frozen=True, eq=False)
class CellSide:
    """Keys of every variable, values of every key, and the box; `lines` make them ReLU units."""

    keys: tuple[Keys, ...]
    values: Array
    box: Ends
    lines: Array | None = None

    def __post_init__(self) -> None:
        freeze(self)
        if not self.keys or len(self.keys) != len(self.box[0]) or len(self.box[0]) != len(self.box[1]):
            raise InvalidRequest("the keys of soft cells do not fit their box")
        fits = self.values.shape[:-1] == tuple(len(k.slopes) for k in self.keys) and self.values.size
        require(fits and np.isfinite(self.values).all(), "the values of soft cells do not fit their keys")
        if not all(np.isfinite([k.w, k.c]).all() and np.isfinite(np.r_[k.slopes, k.biases]).all() for k in self.keys):
            raise InvalidRequest("a key of soft cells is not finite")
        if self.lines is not None:
            if self.lines.shape != (2, self.values.shape[-1]) or len(self.keys) != 1:
                raise InvalidRequest("ReLU units are those of one variable per side, with one line per feature")
            require(np.isfinite(self.lines).all(), "a line of ReLU units is not finite")


@dataclass(frozen=True, eq=False)
class Cells(Form):
    """Soft cells: two towers that are look-up tables, one softmax head a side on a product grid of centres.

    | symbol | here | shape |
    | --- | --- | --- |
    | p_i(x), q_j(y) | softmax weights of the left and of the right keys: near 1 in the cell of centre i, j | |
    | P, Q | `left.values`, `right.values`: one row per key | (keys_1, …, keys_a, rank) |
    | J | `signs`, of a symmetric relation: Q = P J and the same keys on both sides | (rank,) |

        φ(x) = Σ_i p_i(x) P_i,   ψ(y) = Σ_j q_j(y) Q_j,   ⟨φ(x), ψ(y)⟩ = Σ_ij p_i(x) q_j(y) ⟨P_i, Q_j⟩

    so the score is exactly one product head over both sides' keys with the values ⟨P_i, Q_j⟩.

    With `lines` (2, rank) on both sides it is a pair of MLPs of one variable per side: one broken line per feature,

        φ(x) = slope x + offset + Σ_i relu(k_i (w x + c) + b_i) P_i,

    whose pieces are the cells.
    """

    method: ClassVar[str] = "pairs of cells"

    left: CellSide
    other: CellSide | None = None
    signs: Array | None = None

    def __post_init__(self) -> None:
        require_signs(self)
        require((self.left.lines is None) == (self.right.lines is None), "both towers are heads, or both ReLU units")
        require(self.right.values.shape[-1] == self.rank, "the towers have unequal numbers of features")

    @cached_property
    def right(self) -> CellSide:
        own, lines, signs = self.left, self.left.lines, self.product_signs
        return self.other or CellSide(own.keys, own.values * signs, own.box, None if lines is None else lines * signs)

    @property
    def mlp(self) -> bool:
        return self.left.lines is not None

    @property
    def realise(self) -> str:
        return "mlp" if self.mlp else "attention"

    @property
    def rank(self) -> int:
        return int(self.left.values.shape[-1])

    @property
    def ends(self) -> tuple[Ends, Ends]:
        return self.left.box, self.right.box

    @property
    def counts(self) -> tuple[int, int]:
        """Cells of the left and of the right side; pieces of broken lines, one more than units."""
        if self.mlp:
            return len(self.left.values) + 1, len(self.right.values) + 1
        return math.prod(self.left.values.shape[:-1]), math.prod(self.right.values.shape[:-1])

    def core(self, relation: Relation) -> Core:
        return fitting_core(relation, *self.ends)

    def network(self, side: str, names: tuple[str, ...] | None = None) -> Network:
        """One side as a network of one head, or of one block of units, with `rank` outputs."""
        own = self.left if side == "left" else self.right
        writes = tuple(f"{'phi' if side == 'left' else 'psi'}{i + 1}" for i in range(self.rank))
        names = names or tuple(f"v{k + 1}" for k in range(len(own.keys)))
        readout = np.hstack([np.zeros((self.rank, len(own.keys))), np.eye(self.rank)])
        if own.lines is not None:
            readout[:, 0] = own.lines[0]
            units = ReluBlock("hats", own.keys[0].axis(0, 1), own.values, writes)
            return Network(names, (Layer((units,)),), readout, own.lines[1], writes, own.box)
        axes = tuple(k.axis(v, len(own.keys)) for v, k in enumerate(own.keys))
        cell = "cell " + ", ".join(f"{{{v}}} of {name}" for v, name in enumerate(names))
        head = Head("cells", axes, own.values, writes, cell)
        return Network(names, (Layer((head,)),), readout, np.zeros(self.rank), writes, own.box)

    def tower(self, relation: Relation, k: int) -> Network:
        return self.network(SIDES[0 if self.one else k], self.core(relation).boxes[k].names)


@dataclass(frozen=True, eq=False)
class Cut:
    """The features of one side: slices of the relation at the other side's `pivots`, times `core`."""

    pivots: Array
    core: Array

    def __post_init__(self) -> None:
        freeze(self)
        for name in ("pivots", "core"):
            require(np.isfinite(getattr(self, name)).all(), f"the {name} of a cross approximation are not finite")


@dataclass(frozen=True, eq=False)
class Slices(Form):
    """Slices of a relation as features: a cross approximation by pivot points and two small matrices.

    | symbol | here | shape |
    | --- | --- | --- |
    | X, Y | `right.pivots`, `left.pivots`: pivot points of the left and of the right side | (k, left), (k, right) |
    | A, B | `left.core`, `right.core` | (k, rank) |

        φ(x) = Aᵀ r(x, Y),   ψ(y) = Bᵀ r(X, y),   A Bᵀ near r(X, Y)⁻¹,   so ⟨φ(x), ψ(y)⟩ = r(x, y) where x ∈ X, y ∈ Y

    A symmetric relation has X = Y, B = A J (`signs`). The relation itself is evaluated, so a file stays small.
    """

    method: ClassVar[str] = "sampling"

    graph: Graph
    names: tuple[tuple[str, ...], tuple[str, ...]]
    left: Cut
    other: Cut | None
    left_box: Ends
    right_box: Ends
    signs: Array | None = None

    def __post_init__(self) -> None:
        require_signs(self)
        fits = len(self.graph.outputs) == 1 and set(self.graph.variables) <= {*self.names[0], *self.names[1]}
        for cut, names in ((self.left, self.names[1]), (self.right, self.names[0])):
            fits = fits and cut.pivots.ndim == cut.core.ndim == 2 and cut.pivots.shape[1] == len(names)
            fits = fits and cut.core.shape == (len(cut.pivots), self.rank)
        require(fits, "the pivots and cores of a cross approximation do not fit together")

    @cached_property
    def right(self) -> Cut:
        return self.other or Cut(self.left.pivots, self.left.core * self.product_signs)

    @property
    def ends(self) -> tuple[Ends, Ends]:
        return self.left_box, self.right_box

    @property
    def rank(self) -> int:
        return int(self.left.core.shape[-1])

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        """(n, variables) → (n, rank): slices of the relation at the other side's pivots, times the core."""
        mine, theirs = self.names if name == "left" else self.names[::-1]
        cut = self.left if name == "left" else self.right
        env: dict[str, AnyArray] = {v: points[:, k : k + 1] for k, v in enumerate(mine)}
        env |= {v: cut.pivots[:, k][None, :] for k, v in enumerate(theirs)}
        table = values_of(self.graph, env, len(points), len(cut.pivots))[0]
        return np.asarray((table @ cut.core).astype(dtype))


@dataclass(frozen=True, eq=False)
class TrainedTowers(Form):
    """Σ_i s_i φ_i(x) ψ_i(y) (…) with `towers`, one that serves all sides or one a side, of two sides or three.

    They were trained; `shapes` are the architectures that were, which hold those of the networks; `signs` are the s_i.
    No proof is known for them.
    """

    method: ClassVar[str] = "none"

    towers: tuple[Network, ...]
    shapes: tuple[Architecture, ...]
    reads: tuple[Reading, ...]
    signs: Array

    def __post_init__(self) -> None:
        require(self.signs.ndim == 1 and np.isin(self.signs, (-1.0, 1.0)).all(), "the signs are one ±1 a feature")
        require(0 < len(self.towers) == len(self.shapes) == len(self.reads), "trained towers have shapes and readings")
        for network, shape, reads in zip(self.towers, self.shapes, self.reads, strict=True):
            fits = shape.holds(network.architecture) and reads.width == len(network.inputs)
            require(fits and len(network.outputs) == len(self.signs), "a tower that does not fit its side")

    @property
    def networks(self) -> tuple[Network, ...]:  # type: ignore[override]
        return self.towers

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.towers[0].dtype

    @property
    def realise(self) -> str:
        return "mlp" if self.towers[0].is_mlp else "attention"

    @property
    def rank(self) -> int:
        return len(self.signs)

    @property
    def one(self) -> bool:
        return len(self.towers) == 1

    @property
    def architecture(self) -> tuple[Architecture, ...]:
        return self.shapes

    def place(self, k: int) -> int:
        """The number of the tower of side k."""
        return min(k, len(self.towers) - 1)

    def unfit(self, target: Any) -> str:
        """Why these cannot be towers of a target with these sides, in words; empty where they can."""
        boxes = target.boxes
        fits = len(self.towers) in (1, len(boxes))
        fits = fits and all(len(self.reads[self.place(k)].names) == box.dim for k, box in enumerate(boxes))
        return "" if fits else "its towers are those of other variables than its relation's"

    def reading(self, relation: Any, k: int) -> Reading:
        """What the tower of side k reads of points."""
        return self.reads[self.place(k)]

    def tower(self, relation: Any, k: int) -> Network:
        return self.towers[self.place(k)]

    def values(self, k: int, inputs: Array, dtype: str = "float64") -> Array:
        """(n, inputs) → (n, rank) of side k, J in the second."""
        found = np.asarray(evaluate(self.towers[self.place(k)], inputs), dtype=np.float64)
        return np.asarray(found * self.signs) if k == 1 else found

    def run(self, left: Array, right: Array, third: Array | bool = False) -> Array:
        """Inputs of two sides → (m, n) scores, or if the third is True (n,) of pairs; of three sides → (n,)."""
        if isinstance(third, bool):
            return super().run(left, right, third)
        return np.asarray(np.sum(self.values(0, left) * self.values(1, right) * self.values(2, third), axis=1))
