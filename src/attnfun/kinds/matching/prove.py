"""Method matching: what a network that looks for pairs or triples puts out, from its stored weights.

| symbol | meaning |
| --- | --- |
| K | keys besides the null token: N for pairs, N² for triples;  M: modulus;  u: unit roundoff |
| a, b | stored scale of the cosines, a power of two; stored logit of the null token |
| κ a | bound on how far a computed logit is from a cos(2πs/M), s the sum of the residues |

The head is recognised first: every stored matrix must be exactly that of `pairs` or `triples` (`pattern.py`) for its
a and b. Tokens are whole numbers looked up with relative error 1.01 u (hypothesis: the tokens come from the encoder).

κ: with encodings (1 + 1.01u) each, exact scaling by a, zeros exact: a product of two encodings, one addition, hence
|logit − true| ≤ a((1 + 1.01u)²(1 + u)² − 1)(|cos cos| + |sin sin|), and that sum is at most 1 (Cauchy and Schwarz). For
the trilinear form ((1 + 1.01u)³(1 + u)⁵ − 1)√2: two products, two additions and one to spare, the four terms together
at most |cos| + |sin| ≤ √2. The null's logit is exact.

Softmax: differences from the largest logit are rounded, which is monotone, and rescaled at most once for every 64 keys:
gaps shrink by at most a factor 1 − 8u, exp adds E to every logit (`rounding.kernel_move`), sums and the quotient
cost 2γ_{K+24}, relative. All terms are positive and values are 1 (null: 0), exactly. So

    a match:      out ≥ (1 − 2γ)/(1 + e^{−g}),         g = (a(1 − κ) − b)(1 − 8u) − 2E
    no match:     out ≤ (1 + 2γ) K e^{−g}/(1 + K e^{−g}),   g = (b − a(cos(2π/M) + κ))(1 − 8u) − 2E

(further keys only raise the first; the second rises in every key). With j = i excluded a second head of logits 64, 0
and 64 + ln√2 counts twins (`build_pairs`): its sums in balls, its rounding relative 2γ + 4E, its leak N e^{−60}.

Failure mode: Undecided for a network of any other pattern; bounds that say nothing where rounding eats the gaps.
"""

import math
from dataclasses import dataclass

from flint import arb, fmpq

from attnfun.certify.rounding import LARGEST, ROUNDOFF, gamma, hypotheses, kernel_move
from attnfun.certify.verdict import Proof, undecided
from attnfun.certify.view import Undecided, provided
from attnfun.kinds.matching.encoding import FLAGGED, PLAIN, TRIPLES
from attnfun.kinds.matching.pattern import pairs, triples
from attnfun.kinds.matching.target import Matches
from attnfun.language import precision
from attnfun.language.brief import Brief
from attnfun.network import TokenNetwork, TokenTransformer
from attnfun.network.tokens import same_entries
from attnfun.search import Goal, Say

_LOOKED_UP = "tokens are looked up by the encoder: cosines and sines within 1.01 unit roundoffs, relative"


@dataclass(frozen=True)
class MatchBound(Brief):
    """Every output of a token with a match is at least `match`, of one without at most `other`."""

    match: float
    other: float
    scale: float
    null: float
    logit_error: float
    hypotheses: tuple[str, ...]

    @property
    def margin(self) -> float:
        """The distance of every output from 1/2, at least; negative where nothing is proved."""
        return min(self.match - 0.5, 0.5 - self.other)


def proof(target: Matches, weights: TokenNetwork | TokenTransformer, _goal: Goal, _say: Say) -> Proof:
    """How far an output may be below 1 on a match or above 0 otherwise (above 1 on a match is right)."""
    try:
        found = bounds(target, weights)
    except Undecided as why:
        return undecided(why, "matching")
    margin = min(bound.margin for bound in found)
    if not margin > 0:
        eaten = "rounding eats the gap between a sum of 0 and one of 1"
        return Proof("matching", hypotheses=found[0].hypotheses, reason=eaten)
    high = max(max(1 - bound.match, bound.other) for bound in found)  # exact, because match is at least 1/2
    return Proof("matching", high, hypotheses=found[0].hypotheses)


def bounds(target: Matches, weights: TokenNetwork | TokenTransformer) -> tuple[MatchBound, ...]:
    """Of the network, and for triples of third-order attention with its numbers; Undecided where there is none."""
    if not isinstance(weights, TokenNetwork):
        raise Undecided("it has ReLU units between its layers, and nothing is proved of those")
    size = target.tokens, target.modulus, target.order
    own = prove_by_matching(weights, *size, self_allowed=target.self_allowed)
    return (own,) if target.order == 2 else (own, prove_by_matching(weights, *size, trilinear=True))


def prove_by_matching(
    network: TokenNetwork, tokens: int, modulus: int, order: int, *, self_allowed: bool = True, trilinear: bool = False
) -> MatchBound:
    """The bound for `tokens` tokens; `trilinear`: of third-order attention with the network's a and b."""
    if order not in (2, 3) or (order == 3 and not self_allowed) or (order == 2 and trilinear):
        raise Undecided("pairs, with or without self, and triples are proved")
    a, b, twins = _pattern(network, order, self_allowed)
    u = ROUNDOFF[network.dtype]
    K = tokens if order == 2 else tokens * tokens
    provided(K < 2**40 and 2 <= modulus < 2**62 and 4 * a + 256 < LARGEST[network.dtype], "sizes or logits too large")
    with precision(256):
        one, U = arb(1), arb(u)
        look = one + arb("1.01") * U
        kappa = (look**3 * (one + U) ** 5 - 1) * arb(2).sqrt() if trilinear else look**2 * (one + U) ** 2 - 1
        E = arb(kernel_move(K + tokens, network.dtype, spare=6))
        lost = 2 * arb(gamma(K + tokens + 24, u))
        top = arb.cos_pi_fmpq(fmpq(2, modulus))
        above = (arb(a) * (one - kappa) - arb(b)) * (one - 8 * U) - 2 * E
        below = (arb(b) - arb(a) * (top + kappa)) * (one - 8 * U) - 2 * E
        told = a, b, float((arb(a) * kappa).upper()), (_LOOKED_UP, *hypotheses(network.dtype))
        if not (above > 0 and below > 0 and lost < arb(0.01)):  # NaN must not pass
            return MatchBound(0.0, 1.0, *told)
        leak = arb(K) * (-below).exp()
        match, other = (one - lost) / (one + (-above).exp()), (one + lost) * leak / (one + leak)
        if not self_allowed:
            match, other = _without_self(arb(tokens), U, match, other, lost, E, arb(a), arb(b), *map(arb, twins))
        return MatchBound(_down(match), _up(other), *told)


def _without_self(
    N: arb, u: arb, match: arb, other: arb, lost: arb, E: arb, a: arb, b: arb, *twins: arb
) -> tuple[arb, arb]:
    """(least output with a match, greatest without) of both heads and the read-out, flagged tokens or not."""
    lift, high, odds, stretch, shift = twins
    rest = N * (-high + 4).exp()
    # a flagged token's first head, from above; lift ≥ 2a, so 32u of the gap is more than all rounding of its logits
    first = N * (-((b + lift - a) * (1 - 32 * u) - 8)).exp()
    near = 1 + lost + 8 * E + 64 * high * u
    wide = near**2
    alone = stretch * wide * (1 + rest) / (1 + rest + odds.exp())
    both = stretch / wide * 2 / (2 + rest + odds.exp())
    slack = 16 * u * (stretch + shift + 1)
    no_match = [other + stretch * rest * near + slack, alone - shift + first + slack]
    matched = [match - slack, both - shift - slack]
    return min(matched, key=_down), max(no_match, key=_up)


def _pattern(network: TokenNetwork, order: int, self_allowed: bool) -> tuple[float, float, tuple[float, ...]]:
    """(a, b, the numbers of the head that counts twins) of a network whose every entry is that of `pattern` for its
    numbers; Undecided otherwise."""
    names, heads = {(2, True): PLAIN, (2, False): FLAGGED, (3, True): TRIPLES}[order, self_allowed], network.heads
    provided(network.coordinates == names and len(network.layers) == 1, "its coordinates or layers are of another kind")
    if len(heads) != (1 if self_allowed else 2) or any(head.query_dim != (3 if self_allowed else 4) for head in heads):
        raise Undecided("the network has another number of heads, or of another size, than one that matches")
    at = {name: place for place, name in enumerate(names)}
    a, b = float(heads[0].key[at["cos" if order == 2 else "pair cos"], 0]), float(heads[0].key[at["null"], 2])
    if not (a > 0 and math.frexp(a)[0] == 0.5 and math.isfinite(b) and b >= 0):
        raise Undecided("the scale of the cosines is no power of two, or the null token's logit is negative")
    twins: tuple[float, ...] = ()
    if order == 3:
        shut = float(heads[0].key[at["pair"], 2])
        if not {"float64": 800.0, "float32": 110.0}[network.dtype] <= shut <= LARGEST[network.dtype]:
            raise Undecided("single tokens are not shut out")
        wanted = triples(a, b, network.dtype, shut)
    elif not self_allowed:
        lift, (high, odds) = float(heads[0].key[at["null"], 3]), heads[1].key[at["null"], 2:].tolist()
        stretch, shift = float(heads[1].output[0, at["found"]]), -float(network.readout[at["zero"], 0])
        lifted = 2 * a <= lift <= LARGEST[network.dtype]  # a logit b + lift that overflows is no logit
        if not (lifted and 32 <= high <= 512 and 0 < odds < 1 and 0 < stretch < 16 and 0 < shift < 16):
            raise Undecided("the second head does not count twins")
        twins = lift, high, odds, stretch, shift
    if not same_entries(network, wanted if order == 3 else pairs(a, b, network.dtype, twins)):
        raise Undecided("an entry of the network is not that of one that matches")
    return a, b, twins


def _up(ball: arb) -> float:
    value = float(ball.upper())
    return math.nextafter(value, math.inf) if math.isfinite(value) else math.inf


def _down(ball: arb) -> float:
    return -_up(-ball)
