"""Networks that the tests of this room share: small random ones, and a Gaussian partition."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attnfun import fast
from attnfun.fast.arrays import play as by_numpy
from attnfun.network import Axis, Head, Layer, Network, evaluate, rounded, routes


def random_axis(rng: np.random.Generator, width: int, dim: int, keys: int, dtype: str) -> Axis:
    return Axis(
        query=rounded(rng.normal(size=(dim, width)), dtype),
        offset=rounded(rng.normal(size=dim), dtype),
        slopes=rounded(rng.normal(size=(keys, dim)), dtype),
        biases=rounded(rng.normal(size=keys), dtype),
    )


def random_network(seed: int, dtype: str = "float64", layers: int = 3, inputs: int = 2, outputs: int = 2) -> Network:
    """Several layers, several heads of different sizes in each, one and two axes, shared and several coordinates."""
    rng = np.random.default_rng(seed)
    names = [f"x{i}" for i in range(inputs)]
    built, width = [], inputs
    for number in range(layers):
        heads = []
        for place in range(int(rng.integers(1, 4))):
            dims = [int(rng.integers(1, 3)) for _ in range(int(rng.integers(1, 3)))]
            axes = tuple(random_axis(rng, width, dim, int(rng.integers(1, 6)), dtype) for dim in dims)
            writes = (f"l{number}.shared", f"l{number}.own{place}") if place else (f"l{number}.shared",)
            values = rounded(rng.normal(size=(*(axis.keys for axis in axes), len(writes))), dtype)
            heads.append(Head(f"head {number}.{place}", axes, values, writes, "key {0}"))
        layer = Layer(tuple(heads))
        built.append(layer)
        width += len(layer.writes)
    return Network(
        inputs=tuple(names),
        layers=tuple(built),
        readout=rounded(rng.normal(size=(outputs, width)), dtype),
        readout_bias=rounded(rng.normal(size=outputs), dtype),
        outputs=tuple(f"y{i}" for i in range(outputs)),
        box=(np.full(inputs, -1.0), np.full(inputs, 2.0)),
        dtype=dtype,
    )


def grid_axis(centres: npt.NDArray[np.float64], beta: float, column: int, width: int, dtype: str = "float64") -> Axis:
    """Logits beta (2 c q - c^2), q the given coordinate: a soft Voronoi partition."""
    query = np.zeros((1, width))
    query[0, column] = 1.0
    slopes, biases = rounded(2 * beta * centres[:, None], dtype), rounded(-beta * centres**2, dtype)
    return Axis(query, np.zeros(1), slopes, biases)


def partition(cells: int, dims: int, sharpness: float = 200.0, dtype: str = "float64") -> Network:
    """sin(3 x0) + cos(2 x1) + ... on [-1, 1]^dims with `cells` cells per axis and beta h^2 = sharpness."""
    h = 2.0 / cells
    centres = rounded(-1 + h * (np.arange(cells) + 0.5), dtype)
    axes = tuple(grid_axis(centres, sharpness / h**2, k, dims, dtype) for k in range(dims))
    values = np.zeros((cells,) * dims)
    for k in range(dims):
        along = np.sin(3 * centres) if k == 0 else np.cos((k + 1) * centres)
        values = values + along.reshape([-1 if a == k else 1 for a in range(dims)])
    names = tuple("xyzw"[:dims])
    head = Head("partition", axes, rounded(values[..., None], dtype), ("f",), "cell {0}")
    readout = np.zeros((1, dims + 1))
    readout[0, -1] = 1.0
    return Network(names, (Layer((head,)),), readout, np.zeros(1), ("f",), (np.full(dims, -1.0), np.ones(dims)), dtype)


def points(network: Network, count: int, seed: int = 0) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return rng.uniform(network.low, network.high, size=(count, len(network.inputs)))


def by_every_route(network: Network, X: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """The network at X by NumPy's routes, and its tape played by the compiled kernels and by NumPy."""
    found = {route: evaluate(network, X, route) for route in ("auto", *routes(network))}
    tape = fast.taped(network)
    if tape is not None:
        found["fused"] = fast.fused(network, X)
        found["tape by NumPy"] = by_numpy(network, tape, np.asarray(X, dtype=network.dtype))
    return {route: np.asarray(values, dtype=np.float64) for route, values in found.items()}
