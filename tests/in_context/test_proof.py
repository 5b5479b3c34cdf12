"""The bound of linear in-context networks: nearly attained, never exceeded, and only for what it has read."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible
from attnfun.kinds.in_context.build import build
from attnfun.kinds.in_context.prove_class import gain, seen
from attnfun.kinds.in_context.prove_linear import partial_sums, prove_by_in_context
from attnfun.kinds.in_context.prove_spectrum import Pieces, Poly
from attnfun.kinds.in_context.target import InContextTask
from attnfun.kinds.in_context.verb import in_context
from attnfun.network import TokenHead, TokenLayer, TokenNetwork
from in_context.prompts import aligned, changed, exact_ridge, hostile, judge, ridge_error, with_layers
from products import few

RIDGE = InContextTask.make("ridge", 8, 64, alpha=1.0, spectrum=(20, 150))


@pytest.mark.parametrize("algorithm", ["chebyshev", "gd"])
@pytest.mark.parametrize("layers", few([2, 3, 5, 9, 14], 3))
def test_aligned_prompts_come_close_to_the_bound_and_stay_below(algorithm: str, layers: int) -> None:
    network = build(RIDGE, layers, algorithm)
    bound = prove_by_in_context(network, RIDGE).total
    low, high = RIDGE.spectrum
    worst = 0.0
    for lam in np.concatenate(
        [np.linspace(low, high, 25), low + (high - low) * (1 - np.cos(np.linspace(0, 3.14, 15))) / 2]
    ):
        values = np.linspace(low, high, 8)
        values[0] = lam
        worst = max(worst, ridge_error(network, RIDGE, aligned(RIDGE, values)))
    assert worst <= bound
    assert worst >= 0.6 * bound  # the pieces of the spectrum are 1.3 wide: not much is given away


@pytest.mark.parametrize(("seed", "trials"), [(0, 24), (1, 60), pytest.param(2, 1500, marks=pytest.mark.slow)])
def test_no_prompt_of_a_random_class_is_above_the_bound(seed: int, trials: int) -> None:
    """Any sizes, spectra, scales (also far too coarse ones, where bias rules), dtypes, and changed weights."""
    rng = np.random.default_rng(seed)
    proved, near = 0, 0.0
    for _ in range(trials):
        n, d, alpha = int(rng.choice([1, 2, 3, 5, 8, 16])), int(rng.integers(1, 5)), float(rng.choice([0, 0.5, 2]))
        if n < d and alpha == 0:
            continue
        low = alpha if n < d else alpha + float(np.exp(rng.uniform(-1, 3)))
        task = InContextTask.make(
            "ridge" if alpha else "linear",
            d,
            n,
            alpha=alpha,
            spectrum=(low, low * float(np.exp(rng.uniform(0.01, 2.5)))),
            x_range=1e3,
            y_range=float(rng.choice([0.1, 3, 50])),
            query_range=float(rng.choice([0.1, 2.5, 30])),
        )
        dtype = "float32" if rng.random() < 0.2 else "float64"
        algorithm, layers = str(rng.choice(["chebyshev", "gd"])), int(rng.choice([2, 3, 4, 6, 9, 14]))
        network = build(task, layers, algorithm, dtype, int(rng.integers(1, 4)), finer=int(rng.integers(-4, 3)))
        if dtype == "float64" and rng.random() < 0.5:
            network = changed(network, rng, 10.0 ** rng.uniform(-8, -1))
        try:
            bound = prove_by_in_context(network, task).total
        except Undecided:
            continue
        if not math.isfinite(bound):
            continue
        proved += 1
        for _ in range(8):
            one = hostile(task, rng)
            if one is not None:
                error = ridge_error(network, task, one)
                assert error <= bound, (task, dtype, algorithm, layers, error, bound)
                near = max(near, error / bound)
    assert proved > trials // 2 and near > 0.3  # the hunt found something


def test_partial_sums_of_mirrored_terms_stay_within_their_bound_in_any_order() -> None:
    """Any tree of additions, also all positive terms first; that one comes close."""
    rng = np.random.default_rng(8)

    def total(terms: list[float], mix: float) -> float:
        """Σ |partial sum|: two sums are joined, the newest one and the next (mix 0) or any two (mix 1)."""
        heap, seen = list(terms), 0.0
        while len(heap) > 1:
            i, j = (int(k) for k in rng.choice(len(heap), 2, replace=False)) if rng.random() < mix else (0, 1)
            one = heap[i] + heap[j]
            heap = [one, *(v for k, v in enumerate(heap) if k not in (i, j))]
            seen += abs(one)
        return seen

    near = 0.0
    for _ in range(150):
        N = int(rng.integers(1, 40))
        x = np.abs(rng.normal(size=N)) ** float(rng.choice([0.0, 1.0, 3.0])) / (2 * N)
        off = 1 + 0.1 * rng.random(2 * N)  # weights are not quite the same on a pair
        terms = np.r_[np.sort(x)[::-1], -np.sort(x)] * off
        if rng.random() < 0.5:
            terms = rng.permutation(terms)
        whole = abs(float(terms.sum()))
        bound = 1.1 * partial_sums(N) * math.sqrt(4 * N * float(x @ x)) + N * whole
        seen = total(list(terms), float(rng.choice([0.0, 0.0, 0.3, 1.0])))
        assert seen <= bound
        near = max(near, seen / bound)
    assert near > 0.7


@pytest.mark.parametrize("seed", range(3))
def test_ridge_of_condition_five_is_proved_to_nine_digits(seed: int) -> None:
    """64 examples in 8 dimensions, any scale of the data; and examples in an order that is bad for sums."""
    rng = np.random.default_rng(seed)
    low = float(np.exp(rng.uniform(math.log(5), math.log(60))))
    made = in_context("ridge", 8, 64, alpha=1.0, spectrum=(low, 5.2 * low), x_range=20.0, eps=1e-9)
    high = made.certificate.error[1]
    assert made.certificate.status == "proved" and high <= 1e-9
    assert isinstance(made.network, TokenNetwork)
    for _ in range(4):
        one = hostile(made.task, rng)
        assert one is not None
        X, y, queries = one
        order = np.argsort(X[:, 0])
        assert ridge_error(made.network, made.task, (X[order], y[order], queries)) <= high


def test_more_heads_than_four_are_taken_where_only_they_prove_eps() -> None:
    asked = {"alpha": 1.0, "spectrum": (6.0, 30.0), "x_range": 20.0, "y_range": 4.0}
    with pytest.raises(Infeasible):
        in_context("ridge", 8, 64, **asked, eps=1e-9, heads=4)
    made = in_context("ridge", 8, 64, **asked, eps=1e-9)
    assert made.certificate.status == "proved" and made.heads == len(made.network.layers[0].heads) > 4
    with pytest.raises(Infeasible) as short:
        in_context("ridge", 8, 64, **asked, eps=1e-9, layers=made.cost.layers)
    assert short.value.nearest == {"layers": made.cost.layers, "heads": made.heads}
    again = in_context("ridge", 8, 64, **asked, eps=1e-9, **short.value.nearest)
    assert again.certificate.error == made.certificate.error


def test_rounding_to_float32_costs_no_more_than_its_part() -> None:
    """The given data are float64; the network sees them rounded."""
    rng = np.random.default_rng(3)
    task = InContextTask.make("ridge", 8, 64, alpha=1.0, spectrum=(20, 150), x_range=30)
    part = seen(task, "float32").input
    worst = 0.0
    for _ in range(50):
        one = hostile(task, rng)
        assert one is not None
        rounded = [a.astype(np.float32).astype(np.float64) for a in one]
        worst = max(worst, float(np.abs(exact_ridge(*one, 1.0) - exact_ridge(*rounded, 1.0)).max()))
    assert 0 < worst <= part


def test_gain_is_the_largest_root_over_eigenvalue() -> None:
    for low, high, alpha in ((1.0, 9.0, 1.0), (3.0, 9.0, 1.0), (0.5, 2.0, 0.0), (5.0, 5.0, 2.0)):
        lam = np.linspace(low, high, 10_001)
        true = float((np.sqrt(lam - alpha) / lam).max())
        assert true <= gain(low, high, alpha) <= true * (1 + 1e-6)


def test_suprema_of_polynomials_hold_between_the_nodes() -> None:
    rng = np.random.default_rng(4)
    for _ in range(40):
        degree = int(rng.integers(1, 30))
        low = float(np.exp(rng.uniform(-2, 3)))
        grid = Pieces(
            low, low * float(np.exp(rng.uniform(0.01, 4))), 0.1 * low, degree, over=float(rng.uniform(1.1, 4))
        )
        fine = np.linspace(*grid.bounds, 20_001)
        centre, half = fine.mean(), np.ptp(fine) / 2
        coefficients = rng.normal(size=degree + 1)
        values = np.polynomial.chebyshev.chebval((grid.mu + grid.alpha - centre) / half, coefficients)
        sup = grid.sup(Poly(values, np.zeros_like(values), degree))
        true = np.abs(np.polynomial.chebyshev.chebval((fine - centre) / half, coefficients))
        for k, (a, b) in enumerate(zip(grid.ends, grid.ends[1:], strict=False)):
            inside = true[(fine >= a) & (fine <= b)]
            assert inside.size == 0 or inside.max() <= sup[k]


def broken(network: TokenNetwork, what: str) -> TokenNetwork:
    """One entry somewhere that the pattern does not have."""
    layers = list(network.layers)
    head = layers[1].heads[0]
    arrays = {name: np.array(array) for name, array in head.arrays.items()}
    carry = np.array(layers[1].carry)
    if what == "carry":
        carry[0, -1] = 1e-9
    elif what == "one coordinate of a block":
        carry[2 * 8 + 3, 2 * 8 + 3] *= 1 + 1e-15
    elif what == "ratio":
        arrays["query"] *= 1 + 2.0**-50
        arrays["query"][network.coordinates.index("one"), -1] = 1.0
        arrays["query"][network.coordinates.index("sign"), 8] *= 1 + 2.0**-40
    else:
        arrays[what][0, 0] += 1e-12
    changed_head = TokenHead(head.name, *arrays.values())
    layers[1] = TokenLayer((changed_head, *layers[1].heads[1:]), carry)
    return with_layers(network, layers)


@pytest.mark.parametrize("what", ["carry", "one coordinate of a block", "ratio", "query", "key", "value", "output"])
def test_an_entry_outside_the_pattern_is_never_proved(what: str) -> None:
    network = build(RIDGE, 6, "chebyshev")
    prove_by_in_context(network, RIDGE)
    with pytest.raises(Undecided):
        prove_by_in_context(broken(network, what), RIDGE)


def test_solver_tokens_and_read_out_are_checked() -> None:
    network = build(RIDGE, 4, "gd")
    constants = np.array(network.constants)
    constants[0, 0] = 1e-3
    forged = TokenNetwork(network.coordinates, network.layers, constants, network.readout, network.outputs)
    with pytest.raises(Undecided, match="solver token"):
        prove_by_in_context(forged, RIDGE)
    forged = TokenNetwork(network.coordinates, network.layers, network.constants, 2 * network.readout, network.outputs)
    with pytest.raises(Undecided, match="read-out"):
        prove_by_in_context(forged, RIDGE)


def test_heads_that_see_other_tokens_are_not_proved() -> None:
    """A gap of 1 in a step leaks other tokens into its denominators; a small gap of a reading is refused."""
    network = build(RIDGE, 12, "chebyshev")
    good = prove_by_in_context(network, RIDGE).total

    def narrowed(layer: TokenLayer, gap: float) -> TokenLayer:
        heads = []
        for head in layer.heads:
            key = np.array(head.key)
            key[:, -1] = np.sign(key[:, -1]) * gap
            heads.append(TokenHead(head.name, head.query, key, head.value, head.output))
        return TokenLayer(tuple(heads), layer.carry)

    layers = list(network.layers)
    leaky = prove_by_in_context(with_layers(network, [narrowed(layers[0], 30.0), *layers[1:]]), RIDGE).total
    assert leaky > 2 * good
    with pytest.raises(Undecided, match="shut out"):
        prove_by_in_context(with_layers(network, [*layers[:-1], narrowed(layers[-1], 30.0)]), RIDGE)


def test_a_network_that_misses_eps_is_refuted_and_a_better_one_proved() -> None:
    network = build(RIDGE, 14, "chebyshev")
    assert judge(network, RIDGE, 1e-6).status == "proved"
    wrong = changed(network, np.random.default_rng(0), 1e-3)
    verdict = judge(wrong, RIDGE, 1e-6)
    assert verdict.status == "refuted" and verdict.error[0] > 1e-6 and "example prompt" in str(verdict.reason)
    assert judge(wrong, RIDGE, 10.0).status == "proved"


def test_parts_are_those_of_the_total_and_float32_adds_its_input() -> None:
    for dtype, keys in (("float64", 3), ("float32", 4)):
        certificate = judge(build(RIDGE, 14, "chebyshev", dtype), RIDGE, None)
        assert certificate.status == "bounded" and len(certificate.parts) == keys
        assert sum(certificate.parts.values()) <= certificate.error[1] <= 1.001 * sum(certificate.parts.values())


def test_a_method_proves_no_other_task() -> None:
    network = build(InContextTask.make("ridge", 3, 8, alpha=1.0, spectrum=(4, 20)), 14, "chebyshev")
    for task in ("lasso", "logistic"):
        other = InContextTask.make(task, 3, 8, spectrum=(4, 20))
        assert judge(network, other, 10.0).status != "proved"
        with pytest.raises(Undecided, match=task):
            prove_by_in_context(network, other)


def test_another_task_than_the_one_it_was_built_for_is_bounded_for_what_it_is() -> None:
    """The same weights judged for another alpha or a wider spectrum: a true, larger bound."""
    network = build(RIDGE, 14, "chebyshev")
    other = InContextTask.make("ridge", 8, 64, alpha=2.0, spectrum=(21, 151))
    bound = prove_by_in_context(network, other).total
    one = aligned(other, np.linspace(21, 151, 8))
    assert 1e-3 < ridge_error(network, other, one) <= bound
