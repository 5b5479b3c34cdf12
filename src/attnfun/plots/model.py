"""The picture of a model of any kind: where its heads look at drawn inputs, and its errors there under the bound."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from attnfun.learn.measure import measured
from attnfun.network.evaluate import attention, stream
from attnfun.network.head import AnyArray, Array
from attnfun.network.network import Network
from attnfun.network.tokens import attention_terms
from attnfun.plots.picture import headed
from attnfun.plots.style import BOUND, FAINT, NETWORKS, legend, picture, sheet, title, weight_rows

_HEADS, _DRAWS, _POINTS = 6, 500, 101
_KEYS = 1 << 14  # keys of a head that is still drawn


@picture
def draw_model(model: Any) -> Any:
    """Attention of at most six heads above, sorted errors below. All of it is sampled; only the bound is proved."""
    target, weights = model.target, model.weights
    seen = measured(target, weights, min(_DRAWS, target.sample_size(weights)))
    arrays, _ = target.encode(weights, *seen.inputs)
    pairs = zip(getattr(weights, "networks", (weights,)), arrays, strict=False)
    maps = list(islice((one for network, array in pairs for one in _looks(network, array)), _HEADS))
    page = sheet(max(9.0, 3.4 * len(maps)), 8.0 if maps else 5.0)
    rows = page.subfigures(2 if maps else 1, 1, squeeze=False)[:, 0]
    for ax, (name, what, own) in zip(rows[0].subplots(1, len(maps), squeeze=False)[0] if maps else (), maps):
        weight_rows(ax, np.arange(float(len(own))), own)
        title(ax, name, "softmax weights", what)
    _errors(rows[-1].subplots(), np.sort(seen.errors.max(axis=1))[::-1], model)
    return headed(page, model)


def _looks(network: Any, given: Array) -> Iterator[tuple[str, str, AnyArray]]:
    """(name of a head, what asks, (asking, keys) weights): of tokens in one drawn input, or of drawn points."""
    if not isinstance(network, Network):
        plain = network.attention
        for layer, state in zip(plain.layers, network.states(plain.joined(plain.given(given[:1]))), strict=False):
            for head in layer.heads:
                terms = attention_terms(head, state)[0]
                yield head.name, "token that asks", terms / terms.sum(axis=1, keepdims=True)
        return
    points = given[np.argsort(given[:, 0], kind="stable")][:: max(1, len(given) // _POINTS)]
    final = stream(network, points)
    for layer in () if network.is_mlp else network.layers:
        for head in layer.attention:
            if head.keys <= _KEYS:
                own = attention(head, final[:, : layer.width], network.dtype)
                yield head.name, f"drawn point, by {network.inputs[0]}", own.reshape(len(points), -1)


def _errors(ax: Any, errors: Array, model: Any) -> None:
    """The largest error of every draw, largest first; those of 0 are at the lower edge."""
    certificate = model.certificate
    high, eps = float(certificate.details.get("output_error", certificate.error[1])), certificate.eps
    levels = [(high, f"{'error' if certificate.measured else 'bound'} {high:.3g}, {certificate.word}", BOUND, "--")]
    levels += [(eps, f"ε = {eps:.3g}", FAINT, ":")] if eps is not None else []
    shown = [one for one in levels if 0 < one[0] < np.inf]
    finite = [*errors[(errors > 0) & np.isfinite(errors)], *(one[0] for one in shown)]
    ax.plot(np.maximum(errors, min(finite, default=1.0) / 3), ".", color=NETWORKS[0], ms=4, label="seen")
    for height, label, colour, line in shown:
        ax.axhline(height, lw=1.2, color=colour, ls=line, label=label)
    ax.set_yscale("log")
    legend(ax)
    note = f"at {len(errors):,} {model.target.draws_what}" + (
        "" if np.isinf(certificate.norm) else "; the bound is on a mean"
    )
    title(ax, "Errors under the bound", note, "draws, largest error first", "error")
