"""Set functions, put together: `set_function`, from a request to a proved network and what DeepSets needs for it.

| method | tokens | what is computed |
| --- | --- | --- |
| elements | n, one an element | the target as written, if all its sums are over elements: DeepSets |
| power-sums | n | a polynomial target, rewritten exactly by its fewest sums over elements: DeepSets |
| pairs | n², one an ordered pair | the target as written: a network of pairs |

A token of a pair holds both elements; the linear layer that makes the n² tokens of n is 0-1 matrices. Sums over
tokens are heads that attend to all tokens alike; what is summed, and what is done with the sums, are heads over
constant keys (`constructions.sequence`). The certificate is that of the sequence network (method *sequence*), for the
same function: the rewriting is exact, and checked at rational points before it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.certify.sequence import probe_sequences, witnessed
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.limits.set_rank import SetAnalysis, analyse, check_exact
from attnfun.network import Cost, SequenceNetwork, TokenArchitecture
from attnfun.sequence_approximant import SequenceApproximant
from attnfun.sequences import sequence
from attnfun.targets.power_sums import PowerSums, as_sums_over_elements
from attnfun.targets.sequence import SequenceMap
from attnfun.targets.set_function import SetFunction, pair_tokens
from attnfun.verbs import check_request

if TYPE_CHECKING:
    import torch

METHODS = ("elements", "power-sums", "pairs")
_PROBES = 500
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class SetApproximant:
    """A network on sets of n points, what is proved of it, and how many features DeepSets needs for the target."""

    target: SetFunction
    analysis: SetAnalysis
    method: str
    sequence: SequenceApproximant
    certificate: Certificate
    story: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, X: ArrayLike, outside: str = "raise") -> NDArray[np.float64]:
        """(n, d) → a number, or (outputs,); (batch, n, d) → (batch,), or (batch, outputs)."""
        array, single = sets_of(self.target, X)
        tokens = pair_tokens(array) if self.method == "pairs" else array
        values = self.sequence(tokens, outside=outside)[:, 0]
        values = values[:, 0] if self.target.outputs == 1 else values
        return np.asarray(values[0] if single else values)

    @property
    def network(self) -> SequenceNetwork:
        return self.sequence.network

    @property
    def cost(self) -> Cost:
        return self.sequence.cost

    @property
    def architecture(self) -> TokenArchitecture:
        """That of its literal form: what `train` fills with other weights."""
        return self.sequence.architecture

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """(batch, n, d) → (batch, outputs): a linear layer that makes the pairs, then one attention call a layer."""
        from attnfun.network.set_torch import SetAttention

        module: Any = self.sequence.to_torch(dtype)
        return SetAttention(module, self.target.points, self.target.box.dim, self.method == "pairs")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sequence network and its target (tokens are elements, or pairs), for `af.load` and `af.verify`."""
        self.sequence.save(path)

    def explain(self) -> str:
        """In words: what DeepSets needs, what was built and what is proved."""
        a = self.analysis
        lines = [f"{self.target.text}  for sets of {self.target.points} points in  {self.target.box.text}"]
        lines.append(f"{a.verdict[0].upper()}{a.verdict[1:]} ({a.note}).")
        tokens = f"{self.target.points}² tokens, one a pair" if self.method == "pairs" else "one token an element"
        lines.append(f"Method {self.method}: {tokens}.")
        lines += [f"{key}: {value}" for key, value in self.story.items()]
        return "\n".join([*lines, self.sequence.explain()])


def sets_of(target: SetFunction, X: ArrayLike) -> tuple[NDArray[np.float64], bool]:
    """(batch, n, d) sets, and whether one alone was given; InvalidRequest for other shapes."""
    try:
        array = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidRequest(f"sets {X!r:.60}: an array of numbers is needed") from None
    n, d = target.points, target.box.dim
    if array.shape == (n,) and d == 1:
        array = array[:, None]
    single = array.ndim == 2
    array = array[None] if single else array
    if array.ndim != 3 or array.shape[1:] != (n, d):
        raise InvalidRequest(f"sets of shape {np.shape(X)}: ({n}, {d}) or (batch, {n}, {d}) is needed")
    return array, single


def set_function(
    target: Any,
    points: int,
    domain: Any,
    eps: float,
    *,
    method: str = "auto",
    dtype: str = "float64",
    seed: int = 0,
    max_keys: int = 1_000_000,
    progress: Say | None = None,
) -> SetApproximant:
    """A softmax-attention network within `eps` of a symmetric function of `points` points, for every set of the box.

    `target`: an expression or a list of them; points occur inside sums only (`targets.SetFunction`): `sum(x**2)` over
    elements, `sum(x[i]*x[j])` over pairs. `method`: elements, power-sums, pairs, or auto (elements where there are no
    pairs, power sums where at most as many as there are points do, else pairs; then what else fits).
    """
    check_request(eps, dtype, seed)
    if method not in ("auto", *METHODS):
        raise InvalidRequest(f"method={method!r}: the methods are auto, {', '.join(METHODS)}")
    asked = SetFunction.read(target, domain, points)
    analysis, found = analyse(asked)
    reasons: dict[str, str] = {}
    nearest: Mapping[str, Any] | None = None
    for name in _order(asked, found) if method == "auto" else (method,):
        try:
            form = _form(asked, found, name)
            options: dict[str, Any] = {"dtype": dtype, "seed": seed, "max_keys": max_keys, "progress": progress}
            net = sequence(form, form.tokens, form.box, eps, **options)
        except Infeasible as why:
            reasons[name] = f"{name}: {why}"
            nearest = why.nearest or nearest
            continue
        story = {"not taken": "; ".join(reasons.values())[:300]} if reasons else {}
        return SetApproximant(asked, analysis, name, net, _certificate(asked, name, net), story)
    raise Infeasible("; ".join(reasons.values()), nearest)


def _certificate(target: SetFunction, method: str, net: SequenceApproximant) -> Certificate:
    """The sequence network's certificate, said of sets. Its upper end covers them; its witness may be tokens that are
    no pairs of any set, so the lower end is witnessed anew, at sets, as the first token has it.
    """
    count = max(20, min(_PROBES, _PROBES * 64**2 // net.network.tokens**2))
    sets = probe_sequences(target.box, target.points, count, np.random.default_rng(0))
    tokens = pair_tokens(sets) if method == "pairs" else sets
    low, at = witnessed(net.network, net.target, tokens, only=0)
    witness = None
    if at is not None:
        elements = at[:: target.points, : target.box.dim] if method == "pairs" else at
        witness = tuple(float(v) for v in elements.ravel())
    high = net.certificate.error[1]
    if not low <= high:
        raise AssertionError(f"a computed error {low} above the bound {high}: no certificate")
    domain = f"{target.box.text}, sets of {target.points} points"
    changes: dict[str, Any] = {"target": target.text, "domain": domain, "construction": method, "witness": witness}
    return replace(net.certificate, error=(low, high), **changes)


def _order(target: SetFunction, found: PowerSums | None) -> tuple[str, ...]:
    if found is None:
        return ("pairs",) if target.has_pairs else ("elements",)
    if not target.has_pairs:
        return ("elements", "power-sums")
    return ("power-sums", "pairs") if len(found.forms()[0]) <= target.points else ("pairs", "power-sums")


def _form(target: SetFunction, found: PowerSums | None, method: str) -> SequenceMap:
    if method == "pairs":
        return target.on_pairs()
    if method == "elements":
        return target.on_elements()
    if found is None:
        raise InvalidRequest(
            f"{target.text[:80]} is no polynomial with rational coefficients: method='pairs' is for it"
        )
    if not check_exact(target, found):
        raise AssertionError("power sums that do not give the target's exact values: no network")
    return as_sums_over_elements(target, found)
