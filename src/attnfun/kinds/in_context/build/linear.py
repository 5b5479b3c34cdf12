"""Least squares and ridge regression in context, from both sides: A v = q in every query, A w = Xᵀy in a solver token.

Statement. Let A = XᵀX + αI, so ridge(q) = qᵀA⁻¹Xᵀy. All tokens run the same iteration on their own system,

    s_{k+1} = s_k + β_k (s_k − s_{k−1}) + τ_k r_k,      r_k = q − α s_k − Σ_i x_i (⟨x_i, s_k⟩ − f y_i),      s_0 = 0,

where a query token has q and f = 0 (s = v → A⁻¹q) and the two solver tokens q = 0 and f = ±c (s = ±c w, w → A⁻¹Xᵀy).
The sum is softmax attention over mirrored tokens (`richardson.py`), the rest is the residual stream. At the end

    ridge(q) = ⟨q, w⟩ + ⟨v, Xᵀy − A w⟩ + (A⁻¹q − v)ᵀ A (A⁻¹Xᵀy − w):

the last term, which is left out, is a product of two residuals, so L layers reach what one side alone reaches in
2L − 3 steps, and what bias and rounding did to v and w is multiplied away too. ⟨q, w⟩ + ⟨v, r⟩ is a logit between query
and solver tokens; softmax over the pair gives its tanh. It is read twice: roughly in layer L − 1, then in layer L the
difference to the first reading, which is small and so has next to no bias and little rounding.

Source. Gradient descent in context: von Oswald et al. (arXiv 2212.07677). Chebyshev semi-iteration: Golub and Varga
(1961). Solving the adjoint system as well and correcting by the product of the residuals: Pierce and Giles (2000).

Size. L ≥ 2 layers of 1 to 8 heads (4 unless a proof needs more) and the reading ones, width 5d + 6, two constant
tokens.

Bound. p_{L−1}(λ) p_{L−2}(λ)/λ on [low, high] with residual polynomials p_k of k steps: gradient descent
((κ−1)/(κ+1))^k, Chebyshev 2ρ^k/(1 + ρ^{2k}), ρ = (√κ−1)/(√κ+1); plus a floor of bias and rounding
(`kinds/in_context/prove_linear.py` proves all three).

Failure mode. Ill-conditioned data: the depth grows like √κ (gradient descent: κ), and the floor with κ.
"""

import math

from attnfun.errors import require
from attnfun.kinds.in_context.build.richardson import Scales, choose, few_bits, richardson
from attnfun.kinds.in_context.prove_class import gain
from attnfun.kinds.in_context.target import InContextTask
from attnfun.network import TokenHead, TokenLayer, TokenNetwork, rounded
from attnfun.network.named_coordinates import GAP, Array, Stream

_UNITS = ("y", "prediction", "one", "data", "sign", "solver")
_TYPICAL = 0.125  # of the largest logits of a class are those of a typical prompt
_FIRST, _SECOND = 2.0**-4, 2.0**-6  # the largest logits of the two readings, for the largest prediction there can be


def sizes(task: InContextTask) -> tuple[float, float, float]:
    """(|q|, |y|, max √(λ − α)/λ): the largest norms of the class."""
    most = max(gain(*task.spectrum, task.shift, safe=1.0), 1e-30)
    return math.sqrt(task.dim) * task.query_range, math.sqrt(task.examples) * task.y_range, most


def steps(task: InContextTask, algorithm: str, count: int) -> list[tuple[float, float]]:
    """(τ_k, β_k) for k = 0 … count − 1."""
    low, high = task.spectrum
    theta, delta = (high + low) / 2, (high - low) / 2
    if algorithm == "gd" or delta < 1e-12 * theta:
        return [(1 / theta, 0.0)] * count
    rho, found = delta / theta, [(1 / theta, 0.0)]
    for _ in range(count - 1):
        after = 1 / (2 * theta / delta - rho)
        found.append((2 * after / delta, after * rho))
        rho = after
    return found


def residual(task: InContextTask, algorithm: str, count: int) -> float:
    """max |p_count| over the spectrum: what `count` steps leave of a residual."""
    kappa = task.condition
    if algorithm == "gd":
        return ((kappa - 1) / (kappa + 1)) ** count
    rho = (math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)
    return 2 * rho**count / (1 + rho ** (2 * count))


def depth_for(task: InContextTask, algorithm: str, eps: float) -> int:
    """The layers at which the left-out product of residuals is below eps for the whole class; a first guess."""
    q, y, largest = sizes(task)
    layers = 2
    while q * y * largest * residual(task, algorithm, layers - 1) * residual(task, algorithm, layers - 2) > eps:
        layers += 1 if layers < 64 else layers // 32
        if layers > 10**9:
            break
    return layers


def build_linear(
    task: InContextTask, layers: int, algorithm: str, dtype: str, heads: int | None, typical: bool, finer: int
) -> TokenNetwork:
    """The network of `layers` layers; algorithm "chebyshev" or "gd".

    The scale is the best for the bound of the whole class, or with `typical` for data as they come: in float32 the two
    are far apart, and only the second is accurate to 1e-6. `finer` halves every scale so many times.
    """
    require(layers >= 2, f"layers={layers}: at least 2 are needed, one to read the examples and one to predict")
    s, d, N = Stream(task.dim, "xqvur", _UNITS), task.dim, task.examples
    q, y, largest = sizes(task)
    # |⟨x_i, v⟩| ≤ |q| max √(λ − α)/λ for v = A⁻¹q; the solver's c makes its logits as large
    noise = (math.sqrt(2) if typical else N / math.sqrt(3) + 8) * math.sqrt(N * d)
    scales = choose(1.1 * q * largest, dtype, noise, heads, _TYPICAL if typical else 1.0, 8).finer(finer)
    c = few_bits(1.1 * q * largest / y, 8)

    def iterate(sigma: float, rho: float, tau: float, last: bool) -> TokenHead:
        amount = -rho * N / sigma
        query = {("v", 0): sigma, ("sign", d): -sigma, ("one", d + 1): 1.0}
        key = {("x", 0): 1.0, ("y", d): 1.0, ("one", d + 1): -GAP, ("data", d + 1): GAP}
        output = {("v", 0): tau * amount} | ({("r", 0): amount} if last else {})
        return s.head(f"Σ x(⟨x, s⟩ − f y), scale {sigma:g}", dtype, query, key, {("x", 0): 1.0}, output)

    def read(sigma: float, rho: float, last: bool) -> TokenHead:
        """tanh of scale · prediction: the key of a solver token is ±c (w, r, 1)."""
        gap = 2.0 ** math.ceil(math.log2(GAP + 4 * sigma * q * q / task.spectrum[0]))
        end = 2 * d + 1 if last else d
        query, key = {("q", 0): sigma, ("one", end): 1.0}, {("one", end): -gap, ("solver", end): gap}
        if last:
            query |= {("v", d): sigma, ("prediction", 2 * d): -sigma}
            key |= {("u", 0): 1.0, ("r", d): 1.0, ("sign", 2 * d): 1.0}
        else:
            key |= {("v", 0): 1.0}
        name = f"{'correct the prediction' if last else 'predict'}, scale {sigma:g}"
        return s.head(name, dtype, query, key, {("sign", 0): 1.0}, {("prediction", 0): rho / (sigma * c * c)})

    def carry(tau: float, beta: float, last: bool) -> Array:
        keep = 1 + beta - tau * task.shift
        blocks = {("q", "v"): tau, ("v", "v"): keep, ("u", "v"): -beta, ("v", "u"): 1.0, ("u", "u"): 0.0}
        blocks |= {("q", "r"): 1.0, ("v", "r"): -task.shift, ("r", "r"): 0.0} if last else {}
        return rounded(s.carry(blocks), dtype)

    most = q * y * largest
    first = _pair(_FIRST / (most * c)).finer(finer)
    missed = most * (1.5 * residual(task, algorithm, layers - 2) + 0.05 * _FIRST**4)
    missed += most * (1e-12 if dtype == "float64" else 1e-4 if typical else 1e-2)  # by rounding
    second = _pair(_SECOND / (missed * c)).finer(finer)
    made = []
    for number, (tau, beta) in enumerate(steps(task, algorithm, layers - 1), start=2):
        last = number == layers
        found = [iterate(*one, tau, last) for one in scales.pairs]
        found += [read(*one, False) for one in first.pairs] if last else []
        made.append(TokenLayer(tuple(found), carry(tau, beta, last)))
    made.append(TokenLayer(tuple(read(*one, True) for one in second.pairs)))
    units = {(name, k): 1.0 for name in ("one", "solver") for k in (0, 1)} | {("sign", 0): c, ("sign", 1): -c}
    solvers, readout = s.matrix(2, {}, units).T, s.matrix(1, {}, {("prediction", 0): 1.0})
    return TokenNetwork(s.names, tuple(made), solvers, readout, ("prediction",), dtype)


def _pair(sigma: float) -> Scales:
    """Two Richardson heads of about this scale."""
    power = 2.0 ** math.floor(math.log2(sigma))
    return Scales((power, power / 2), richardson(2))
