"""One softmax head over constant memory tokens.

    head(x) = sum_j softmax_j(l_j) V_j,    l_j = sum_a l^a_{j_a},    l^a_i = k^a_i . q^a + b^a_i,    q^a = Q^a x + c^a

| symbol | here | shape |
| --- | --- | --- |
| x | one token: the coordinates of the residual stream before the layer | (width,) |
| Q^a, c^a | `Axis.query`, `Axis.offset` | (r, width), (r,) |
| k^a_i, b^a_i | `Axis.slopes`, `Axis.biases` | (P_a, r), (P_a,) |
| V_j | `Head.values`, j = (j_1, ..., j_a) | (P_1, ..., P_a, p) |

A head with several axes has its keys on a product grid: exp(l_j) is a product over the axes, so the softmax over
prod P_a keys is the product of small softmaxes, and only sum P_a keys are stored. A head with one axis is unstructured:
any keys in R^r. Nothing but weights lives here; arrays are float64 and read-only.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property, wraps
from math import prod
from typing import Any, ClassVar, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.language.brief import Brief

Array = npt.NDArray[np.float64]
AnyArray = npt.NDArray[Any]
K = TypeVar("K")
V = TypeVar("V")

_BLOCK = 1 << 20
_ARRAY = ("Array", str(Array))  # an annotation as it is written, and as it is evaluated

DTYPES = ("float64", "float32")
DENSE_KEYS = 1 << 22
"""The most keys written out one by one, as the literal form needs them."""


def frozen(array: npt.ArrayLike) -> Array:
    """`array` as a contiguous read-only float64 array, copied if somebody could still write to it."""
    given = np.asarray(array)
    result = np.ascontiguousarray(given, dtype=np.float64)
    if result.flags.writeable:
        result = result.copy() if np.shares_memory(result, given) else result
        result.setflags(write=False)
    return result


def freeze(tree: Any) -> None:
    """For `__post_init__` of a frozen dataclass: fields annotated `Array` become read-only, `tuple` ones tuples."""
    for field in fields(tree):
        value, kind = getattr(tree, field.name), str(field.type)
        if value is None:
            continue
        if kind.startswith(_ARRAY):
            object.__setattr__(tree, field.name, frozen(value))
        elif kind.startswith("tuple"):
            parts = (frozen(part) for part in value) if kind.removeprefix("tuple[").startswith(_ARRAY) else value
            object.__setattr__(tree, field.name, tuple(parts))


def rounded(array: npt.ArrayLike, dtype: str) -> Array:
    """The nearest entries that `dtype` can hold, as float64."""
    return np.asarray(array, dtype=np.float64).astype(np.dtype(dtype)).astype(np.float64)


class Of(Generic[V]):
    """An attribute that is a part's, under the same name: `dim = Of[int]("target")`."""

    def __init__(self, part: str) -> None:
        self.part = part

    def __set_name__(self, _owner: Any, name: str) -> None:
        self.name = name

    def __get__(self, whole: Any, _owner: Any = None) -> V:
        return cast(V, self if whole is None else getattr(getattr(whole, self.part), self.name))


def softmax(logits: AnyArray) -> AnyArray:
    """The weights of the keys along the last axis."""
    terms = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(terms / terms.sum(axis=-1, keepdims=True))


def once_per_dtype(make: Callable[[K, str], V]) -> Callable[..., V]:
    """`make(what, dtype)`, made once for each dtype (float64 unless given) as long as `what` lives."""
    known: WeakKeyDictionary[K, dict[str, V]] = WeakKeyDictionary()

    @wraps(make)
    def found(what: K, dtype: str = "float64") -> V:
        own = known.setdefault(what, {})
        if dtype not in own:
            own[dtype] = make(what, dtype)
        return own[dtype]

    return found


def require_dtype(dtype: object) -> None:
    """InvalidRequest for anything but float64 and float32."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InvalidRequest(f"dtype={dtype!r:.30}: write {' or '.join(DTYPES)}")


def require_names(**given: tuple[str, ...]) -> None:
    """InvalidRequest unless these are names that do not repeat, one at least."""
    for what, names in given.items():
        if not names or len(set(names)) != len(names) or not all(isinstance(name, str) for name in names):
            raise InvalidRequest(f"the {what} must be there and be distinct names, not {list(names)!r:.80}")


def require_heads(heads: tuple[Any, ...]) -> None:
    """InvalidRequest unless there is a head, and all read a stream of the same width."""
    require(heads, "a layer needs at least one head")
    require(len({head.width for head in heads}) == 1, "the heads of one layer must read the same stream")


def require_weights(arrays: Iterable[tuple[str, Array]], dtype: str) -> None:
    """InvalidRequest, naming the array, for weights that are not finite or that the dtype cannot hold."""
    require_dtype(dtype)
    for what, array in arrays:
        require(everywhere(np.isfinite, array), f"{what} is not finite")
        if dtype == "float32":
            require(everywhere(held_by_float32, array), f"{what} has entries that float32 cannot hold")


def everywhere(holds: Callable[[AnyArray], AnyArray], array: AnyArray) -> bool:
    """Whether something holds of every entry, asked block by block: of a huge array no second one is made."""
    flat = array.reshape(-1)
    return all(bool(holds(flat[k : k + _BLOCK]).all()) for k in range(0, flat.size, _BLOCK))


def held_by_float32(array: AnyArray) -> AnyArray:
    with np.errstate(over="ignore"):
        return np.asarray(array == array.astype(np.float32))


def _shape(what: str, array: Array, ndim: int) -> None:
    require(array.ndim == ndim, f"{what} must have {ndim} dimensions, not shape {array.shape}")
    require(array.size > 0 or ndim == 0, f"{what} must not be empty, but has shape {array.shape}")


class Matrices(Brief):
    """The base of frozen dataclasses whose arrays are all that they are made of, but for a name."""

    @property
    def arrays(self) -> dict[str, Array]:
        """Every array by the name of its field."""
        return {field.name: getattr(self, field.name) for field in fields(self) if str(field.type) in _ARRAY}  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Axis(Matrices):
    """Keys along one factor of a head: logits l_i = slopes[i] . (query @ x + offset) + biases[i].

    Compared by identity; `identical` in `network.py` compares weights bit for bit.
    """

    query: Array
    offset: Array
    slopes: Array
    biases: Array

    def __post_init__(self) -> None:
        freeze(self)
        _shape("an axis' query map", self.query, 2)
        _shape("an axis' slopes", self.slopes, 2)
        if self.offset.shape != self.query.shape[:1]:
            raise InvalidRequest(f"an axis' offset has shape {self.offset.shape}, its query map {self.query.shape}")
        if self.slopes.shape[1] != self.query.shape[0]:
            raise InvalidRequest(f"an axis' slopes have shape {self.slopes.shape}, its query map {self.query.shape}")
        if self.biases.shape != self.slopes.shape[:1]:
            raise InvalidRequest(f"an axis has {self.slopes.shape[0]} slopes and biases of shape {self.biases.shape}")

    @property
    def keys(self) -> int:
        return int(self.slopes.shape[0])

    @property
    def dim(self) -> int:
        """r, the dimension of the query on this axis."""
        return int(self.slopes.shape[1])

    @property
    def width(self) -> int:
        return int(self.query.shape[1])


def affine_rank(axes: tuple[Axis, ...]) -> int:
    """The rank of [K | b] [[Q, c], [0, 1]], which takes (x, 1) to the logits of all keys.

    K and b are never written out: rows are additive over the axes, row_j = row_0 + sum_a (row_(0..j_a..0) - row_0), so
    the *star* of keys that leave key 0 along one axis at a time spans them all. Numerical rank (singular values above
    8 n eps of the largest, columns scaled first; the most there can be where numbers overflow), a label and no part of
    any proof.
    """
    rows, biases = _star(axes)
    matrix = np.column_stack([rows, biases])
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0.0] = 1.0
    triangle = np.linalg.qr(matrix / scale, mode="r")
    query = np.concatenate([axis.query for axis in axes])
    lift = np.zeros((len(query) + 1, query.shape[1] + 1))
    lift[:-1, :-1], lift[:-1, -1], lift[-1, -1] = query, np.concatenate([axis.offset for axis in axes]), 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        product = triangle @ (scale[:, None] * lift)
    if not np.isfinite(product).all():
        return min(len(matrix), lift.shape[1])
    norms = np.abs(product).max(axis=0)
    product = product[:, norms > 0.0] / norms[norms > 0.0]
    if product.size == 0:
        return 0
    singular = np.linalg.svd(product, compute_uv=False)
    return int(np.sum(singular > 8 * len(matrix) * np.finfo(np.float64).eps * singular[0]))


def _star(axes: tuple[Axis, ...]) -> tuple[Array, Array]:
    first = np.concatenate([axis.slopes[0] for axis in axes])
    origin = sum(float(axis.biases[0]) for axis in axes)
    rows, biases, column = [], [], 0
    for axis in axes:
        block = np.repeat(first[None, :], axis.keys, axis=0)
        block[:, column : column + axis.dim] = axis.slopes
        rows.append(block)
        biases.append(axis.biases + (origin - float(axis.biases[0])))
        column += axis.dim
    return np.concatenate(rows), np.concatenate(biases)


class Keyed(Brief):
    """What a softmax head and a block of ReLU units share: axes of keys, values, and where these are written."""

    kind: ClassVar[str]
    name: str
    axes: tuple[Axis, ...]
    values: Array
    writes: tuple[str, ...]

    def __post_init__(self) -> None:
        freeze(self)
        what = f"{self.kind} {self.name!r}"
        require(self.axes, f"{what} has no axis")
        if not self.writes or len(set(self.writes)) != len(self.writes):
            raise InvalidRequest(f"{what} must write distinct coordinates, not {list(self.writes)}")
        expected = (*self.grid, len(self.writes))
        require(self.values.shape == expected, f"{what} has values of shape {self.values.shape}, not {expected}")
        require(len({axis.width for axis in self.axes}) == 1, f"{what} has axes that read streams of different width")

    @property
    def grid(self) -> tuple[int, ...]:
        """(P_1, ..., P_a)."""
        return tuple(axis.keys for axis in self.axes)

    @property
    def keys(self) -> int:
        """Keys of a head, hidden units of a block."""
        return prod(self.grid)

    @property
    def query_dim(self) -> int:
        return sum(axis.dim for axis in self.axes)

    @property
    def width(self) -> int:
        return self.axes[0].width

    @property
    def outputs(self) -> int:
        return len(self.writes)

    @property
    def query_map(self) -> tuple[Array, Array]:
        """(Q, c) of all axes stacked: q = Q x + c with shapes (query_dim, width), (query_dim,)."""
        query = np.concatenate([axis.query for axis in self.axes])
        return query, np.concatenate([axis.offset for axis in self.axes])

    @cached_property
    def max_value(self) -> float:
        return max(abs(float(self.values.min())), abs(float(self.values.max())))

    @cached_property
    def rank(self) -> int:
        """The rank of W_Q W_K^T in the literal form, or of the map from (x, 1) to what units see: `affine_rank`."""
        return affine_rank(self.axes)


@dataclass(frozen=True, eq=False)
class Head(Keyed):
    """A softmax over the product of its axes; output c is added to the stream coordinate `writes[c]`.

    `key_names` is how a person reads a key: "{0}", "{1}", ... stand for its index on each axis, as in
    "cell {0}, degree {1}".
    """

    name: str
    axes: tuple[Axis, ...]
    values: Array
    writes: tuple[str, ...]
    key_names: str = "key {0}"

    kind = "head"

    @cached_property
    def spread(self) -> Array:
        """max_j V_j - min_j V_j of every output, in the last bit too small at most."""
        flat = self.values.reshape(-1, self.outputs)
        return flat.max(axis=0) - flat.min(axis=0)

    @property
    def arrays(self) -> dict[str, Array]:
        """Every weight by its name within the head, "axis0/slopes" style."""
        parts = {f"axis{k}/{name}": array for k, axis in enumerate(self.axes) for name, array in axis.arrays.items()}
        return {**parts, "values": self.values}

    def reach(self, low: Array, high: Array) -> tuple[Array, Array]:
        """(low, high) of every output, wherever the token is: a head is an average of its values."""
        flat = self.values.reshape(-1, self.outputs)
        return flat.min(axis=0), flat.max(axis=0)

    def dense_keys(self) -> tuple[Array, Array]:
        """Every key written out: K (keys, query_dim) and b (keys,), keys in C order of `values`.

        b is the float64 sum of the axis biases (first axis first), so in a product head it may be rounded.
        Refuses above DENSE_KEYS keys.
        """
        if self.keys > DENSE_KEYS:
            why = f"head {self.name!r} has {self.keys} keys; only up to {DENSE_KEYS} are written out one by one"
            raise Infeasible(why, {"keys": DENSE_KEYS})
        index = np.indices(self.grid).reshape(len(self.axes), -1)
        slopes = [axis.slopes[index[a]] for a, axis in enumerate(self.axes)]
        biases = self.axes[0].biases[index[0]]
        for a, axis in enumerate(self.axes[1:], start=1):
            biases = biases + axis.biases[index[a]]
        return np.concatenate(slopes, axis=1), biases
