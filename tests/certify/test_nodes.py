"""Method nodes: its pieces against what they claim, and analyticity on ellipses."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from flint import acb, arb

import attnfun as af
from attnfun.certify import Status, ellipse
from attnfun.certify import nodes as nodes_module
from attnfun.certify.exact import exponentials, network_at, network_in_doubles
from attnfun.certify.nodes import _leading, _tail, chebyshev_nodes, interpolation_matrix, prove_by_nodes
from attnfun.certify.view import Undecided, view
from attnfun.kinds.function.prove import prove
from attnfun.language import precision
from attnfun.language.enclosures import abs_upper
from attnfun.network import Network
from certify.hunting import assert_sound, function, line_network, worst_error, zero_network


@pytest.mark.parametrize(("n", "fine"), [(1, 5), (2, 12), (7, 42), (30, 180), (61, 305), (200, 1200)])
def test_the_interpolation_matrix_is_as_exact_as_it_says(n: int, fine: int) -> None:
    with precision(128):
        matrix = interpolation_matrix(n, fine)
        rng = np.random.default_rng(0)
        for i in rng.integers(0, fine, 12):
            for j in rng.integers(0, n, 6):
                total = arb(1) / n
                for k in range(1, n):
                    angle_i = arb((2 * int(i) + 1) * k) * arb.pi() / (2 * fine)
                    angle_j = arb((2 * int(j) + 1) * k) * arb.pi() / (2 * n)
                    total = total + 2 * angle_i.cos() * angle_j.cos() / n
                assert abs_upper(total - float(matrix[i, j])) <= 4 * (n + 6) * 2.0**-53


def test_nodes_are_chebyshev_points_of_the_box() -> None:
    with precision(128):
        found = [float(v.mid()) for v in chebyshev_nodes(5, 1.0, 4.0)]
    assert found == pytest.approx([2.5 + 1.5 * math.cos((2 * i + 1) * math.pi / 10) for i in range(5)])


@pytest.mark.parametrize("shape", [(4,), (3, 6), (5, 2, 3)])
def test_the_tail_is_the_sum_of_all_coefficients_left_out(shape: tuple[int, ...]) -> None:
    """T = 2 Σ over multi-indices outside the box of 2^{nonzero} M ρ^−j, here summed one by one."""
    rho = np.array([1.7, 2.3, 1.9][: len(shape)])
    with precision(128):
        claimed = float(_tail(arb(3), rho, np.array(shape)).mid())
    total = 0.0
    for index in product(range(60), repeat=len(shape)):
        if any(j >= n for j, n in zip(index, shape, strict=True)):
            total += math.prod((2.0 if j else 1.0) * r**-j for j, r in zip(index, rho, strict=True))
    assert total * 6 <= claimed * (1 + 1e-9)
    assert claimed <= total * 6 * 1.01


@pytest.mark.parametrize(
    ("target", "domain", "rho"),
    [
        ("exp(x)*sin(y)", "x=-1:1;y=0:2", (1.5, 2.0)),
        ("1/(2 + x)", "x=-1:1", (2.0,)),
        ("log(3 + x*y)", "x=-1:1;y=-1:1", (1.3, 1.4)),
        ("sqrt(x + 2)*atan(y/4)", "x=-1:1;y=-1:1", (1.8, 1.8)),
        ("tan(x/2) + asin(y/3)", "x=-1:1;y=-1:1", (1.5, 1.5)),
        ("sigmoid(x) + softplus(x) + erf(x) + tanh(x)", "x=-1:1", (1.5,)),
        ("(x + 3)**y", "x=-1:1;y=0:2", (1.5, 1.5)),
        ("log1p(x/2) + acos(x/3) + cosh(x)**-2", "x=-1:1", (1.4,)),
    ],
)
def test_bounds_on_ellipses_hold_at_points_of_the_whole_filled_ellipse(
    target: str, domain: str, rho: tuple[float, ...]
) -> None:
    f = function(target, domain)
    low, high, r = f.box.low_array, f.box.high_array, np.array(rho)
    with precision(128):
        assert ellipse.prove_analytic(f.graph, f.box.names, low, high, r)
        rough = ellipse.sampled_maximum(f.graph, f.box.names, low, high, r)
        bound = ellipse.bound_on_boundary(f.graph, f.box.names, low, high, r, rough)
    assert bound <= 20 * rough
    rng = np.random.default_rng(0)
    from attnfun.language import ArrayAlgebra, run

    for _ in range(10):
        size = r ** rng.random((500, 1)) if rng.random() < 0.5 else np.ones((500, 1)) * r
        t = np.cos(rng.uniform(0, 2 * np.pi, (500, len(rho))) + 1j * np.log(size))
        z = (low + high) / 2 + (high - low) / 2 * t
        values = run(f.graph, ArrayAlgebra(), {n: z[:, k] for k, n in enumerate(f.box.names)})[0]
        assert np.abs(values).max() <= bound * (1 + 1e-9)


@pytest.mark.parametrize(
    ("target", "domain", "rho"),
    [
        ("1/(2 + x)", "x=-1:1", (4.0,)),  # the pole at -2 is on the ellipse of rho 3.73
        ("1/(2.2 + x + y)", "x=-1:1;y=-1:1", (1.6, 1.6)),
        ("1/(x**2 + 0.01)", "x=-1:1", (1.2,)),
        ("1e-8/((x - 0.1)**2 + 1e-8)", "x=-1:1", (1.1,)),
        ("1e-8/((x - 0.1)**2 + 1e-8)", "x=-1:1", (3.0,)),
        ("log(x + 1.05)", "x=-1:1", (1.5,)),
        ("sqrt(x**2)", "x=-1:1", (1.001,)),
        ("sqrt(x**2 + y**2)", "x=-1:1;y=-1:1", (1.01, 1.01)),
        ("tanh(20*x)", "x=-1:1", (1.2,)),
        ("softplus(20*x)", "x=-1:1", (1.3,)),
        ("atan(5*x)", "x=-1:1", (1.3,)),
        ("asin(x)", "x=-1:1", (1.01,)),
        ("exp(x)**0.5 + (x**2)**0.5", "x=-1:1", (1.05,)),
    ],
)
def test_no_ellipse_with_a_singularity_in_it_is_called_analytic(
    target: str, domain: str, rho: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ellipse, "_FAMILY_BOXES", 3000)
    f = function(target, domain)
    with precision(128):
        assert not ellipse.prove_analytic(f.expression, f.box.names, f.box.low_array, f.box.high_array, np.array(rho))


def test_heads_obey_their_bound_at_complex_points() -> None:
    rng = np.random.default_rng(4)
    for trial in range(12):
        m = int(rng.integers(1, 9))
        tau = float(rng.choice([0.5, 1.0, 2.0, 4.0]))
        slopes = tau * np.arange(m + 1) if trial % 2 else np.sort(rng.normal(size=m + 1)) * 3
        biases = np.array([math.log(math.comb(m, j)) for j in range(m + 1)]) if trial % 2 else rng.normal(size=m + 1)
        network = line_network(slopes, biases + 3.0, rng.normal(size=m + 1), w=1.3, c=0.1)
        seen = view(network, network.low, network.high)
        with precision(128):
            for rho in (1.05, 1.3, 2.0, 3.0):
                bound = ellipse.bound_of_network(seen, np.array([rho]))
                if bound is None:
                    continue
                z = np.cos(rng.uniform(0, 2 * np.pi, 400) + 1j * np.log(rho) * np.sqrt(rng.random(400)))
                logits = np.multiply.outer(1.3 * z + 0.1, slopes) + biases
                e = np.exp(logits)
                values = (e @ network.heads[0].values[:, 0]) / e.sum(axis=1)
                assert np.abs(values).max() <= bound[0] * (1 + 1e-9)


def test_the_closed_form_of_the_lattice_is_used() -> None:
    """17 keys of slope step 1: the spread alone would allow |Im q| < π/16 only."""
    net = af.compile("sin(3*x)", "x=-1:1", 1e-9, method="bernstein")
    assert net.certificate.method == "nodes"
    assert net.certificate.details["rho"][0] > 1.5
    assert net.certificate.slack < 1.3


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30, 1e200])
def test_bounds_scale(scale: float) -> None:
    f = function(f"{scale}*sin(3*x)")
    certificate = prove(zero_network(f), f, eps=2 * scale)
    assert certificate.status is Status.PROVED
    assert scale * (1 - 1e-9) <= certificate.error[1] <= 1.1 * scale


@pytest.mark.parametrize(
    ("target", "domain", "sup"),
    [
        ("cos(8*acos(x*0.999))", "x=-1:1", 1.0),
        ("sin(x)*sin(y)*sin(z)", "x=0:3;y=0:3;z=0:3", 1.0),
        ("x*y - z", "x=-1:1;y=-1:1;z=-1:1", 2.0),
        ("(x + y + z + w)/4", "x=-1:1;y=-1:1;z=-1:1;w=-1:1", 1.0),
        ("x**16", "x=-1:1", 1.0),
    ],
)
def test_known_suprema(target: str, domain: str, sup: float) -> None:
    f = function(target, domain)
    seen = view(zero_network(f), f.box.low_array, f.box.high_array)
    bound = prove_by_nodes(seen, f.graph, f.box.names, sup, sup)
    assert bound.method == "nodes"
    assert sup * (1 - 1e-9) <= bound.high <= sup * 1.7
    assert bound.low <= sup * (1 + 1e-9)


def test_exact_values_of_heads_are_exact() -> None:
    """Balls at a point against the closed form: two keys are a sigmoid."""
    network = line_network([0.0, 2.0], [0.0, 1.0], [3.0, 5.0])
    seen = view(network, network.low, network.high)
    with precision(128):
        for x in (-1.0, -0.3, 0.0, 0.77, 1.0):
            value = network_at(seen, np.array([x]))[0]
            exact = 3 + 2 / (1 + (-(2 * arb(x) + 1)).exp())
            assert value.overlaps(exact) and value.rel_accuracy_bits() > 100
            assert acb(value).is_finite()


@pytest.mark.parametrize("seed", range(6))
def test_the_network_in_doubles_is_off_by_no_more_than_it_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slopes, biases, values = rng.normal(size=(3, 40)) * np.array([[30.0], [200.0 * seed], [10.0**seed]])
    network = line_network(np.sort(slopes).tolist(), biases.tolist(), values.tolist())
    seen = view(network, network.low, network.high)
    x = rng.uniform(network.low[0], network.high[0], 200)
    found, doubt = network_in_doubles(seen, x)
    assert np.all(doubt <= 1e-9 * np.abs(values).max())
    with precision(128):
        off = [abs_upper(network_at(seen, np.array([t]))[0] - float(y)) for t, y in zip(x, found[0], strict=True)]
    assert np.all(np.array(off) <= doubt[0])


def test_exponentials_by_arithmetic_alone_are_within_eight_units() -> None:
    rng = np.random.default_rng(0)
    d = np.concatenate(
        [-600 * rng.random(3000), -rng.random(2000), [0.0, -600.0], -np.log(2) * np.arange(1.0, 800) / 2]
    )
    with precision(128):
        for t, y in zip(d.tolist(), exponentials(d).tolist(), strict=True):
            assert abs_upper(arb(y) / arb(t).exp() - 1) <= 4 * 2.0**-53


def test_leading_nodes_hold_the_two_largest_residuals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The further off the doubles are, the more nodes lead; all do where they say nothing."""
    f = function("sin(3*x) + x")
    seen = view(zero_network(f), f.box.low_array, f.box.high_array)
    with precision(128):
        nodes = chebyshev_nodes(64, -1.0, 1.0)
        assert f.graph is not None
        rough, leading = _leading(seen, f.graph, f.box.names, nodes)
        assert 2 <= len(leading) < 10 and set(np.argsort(np.abs(rough[0]))[-2:]) <= set(leading)
        counts = []
        for off in (1e-9, 0.3, math.inf, math.nan):
            monkeypatch.setattr(
                nodes_module,
                "network_in_doubles",
                lambda view, x, off=off: (np.zeros((1, len(x))), np.full((1, 1), off)),
            )
            lead = _leading(seen, f.graph, f.box.names, nodes)[1]
            assert set(np.argsort(np.abs(rough[0]))[-2:]) <= set(lead)
            counts.append(len(lead))
        assert len(leading) == counts[0] < counts[1] < counts[2] == counts[3] == 64


def test_caps_and_kinks_are_undecided() -> None:
    f = function("abs(x)")
    seen = view(zero_network(f), f.box.low_array, f.box.high_array)
    with pytest.raises(Undecided, match="kink"):
        prove_by_nodes(seen, f.graph, f.box.names, 1.0, 1.0)
    network = line_network([0.0, 1e6], [0.0, 0.0], [0.0, 1.0])
    g = function("sin(x)")
    with pytest.raises(Undecided):
        prove_by_nodes(view(network, network.low, network.high), g.graph, g.box.names, 1.0, 1e-3)
    wide = function("a*b*c*d*g", "a=0:1;b=0:1;c=0:1;d=0:1;g=0:1")
    with pytest.raises(Undecided, match="5 variables"):
        prove_by_nodes(
            view(zero_network(wide), wide.box.low_array, wide.box.high_array), wide.graph, wide.box.names, 1, 1
        )


@pytest.mark.parametrize("seed", range(6))
def test_random_heads_of_two_variables_are_bounded_closely(seed: int) -> None:
    rng = np.random.default_rng([seed, 8])
    net = af.compile("sin(x + 2*y)", "x=-1:1;y=0:1", 1e-2, method="bernstein")
    values = net.network.heads[0].values + rng.normal(size=net.network.heads[0].values.shape) * 10 ** rng.uniform(-4, 0)
    from certify.hunting import with_arrays

    network: Network = with_arrays(net.network, {"layer0/head0/values": values})
    certificate = prove(network, net.target)
    seen = assert_sound(certificate, network, net.target)
    assert certificate.method == "nodes" and certificate.error[1] <= 1.25 * seen
    assert worst_error(network, net.target, seed=seed)[0] <= certificate.error[1]
