"""The picture of a model of any kind: where its heads look at drawn inputs, and its errors there under the bound; and
that of a comparison: every model a line, its errors and its bound on one logarithmic axis.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from attnfun.learn.probe import measured
from attnfun.network.evaluate import attention, stream
from attnfun.network.head import AnyArray, Array
from attnfun.network.network import Network
from attnfun.network.tokens import attention_terms
from attnfun.plots.picture import headed
from attnfun.plots.style import BOUND, FAINT, LINES, NETWORKS, legend, picture, sheet, title, weight_rows

_HEADS, _DRAWS, _POINTS = 6, 500, 101
_KEYS = 1 << 14  # keys of a head that is still drawn


@picture
def draw_model(model: Any) -> Any:
    """Attention of at most six heads above, sorted errors below. All of it is sampled; only the bound is proved."""
    target, weights = model.target, model.weights
    seen = measured(target, weights, min(_DRAWS, target.sample_size(weights)))
    arrays, _ = target.encode(weights, *seen.inputs)
    pairs = zip(getattr(weights, "networks", (weights,)), arrays, strict=False)
    page, below = attention_page(one for network, array in pairs for one in _looks(network, array))
    _errors(below.subplots(), np.sort(seen.errors.max(axis=1))[::-1], model)
    return headed(page, model)


def attention_page(looks: Iterable[tuple[str, str, AnyArray]], least: float = 9.0) -> tuple[Any, Any]:
    """A page with the attention of at most six heads above (name, what asks, weights), and what is free below it."""
    maps = list(islice(looks, _HEADS))
    page = sheet(max(least, 3.4 * len(maps)), 8.0 if maps else 5.0)
    rows = page.subfigures(2 if maps else 1, 1, squeeze=False)[:, 0]
    for ax, (name, asks, own) in zip(rows[0].subplots(1, len(maps), squeeze=False)[0] if maps else (), maps):
        weight_rows(ax, np.arange(float(len(own))), own)
        title(ax, name, "softmax weights", asks)
    return page, rows[-1]


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
    mean = "" if np.isinf(certificate.norm) else "; the bound is on a mean"
    note = f"at {len(errors):,} {model.target.draws_what}{mean}"
    title(ax, "Errors under the bound", note, "draws, largest error first", "error")


@picture
def draw_comparison(entries: Sequence[Any], about: str) -> Any:
    """Measured errors as circles (sup full, L2 hollow), bounds as bars; an error of 0 is at the left edge."""
    figure = sheet(9.5, 1.7 + 0.5 * len(entries))
    ax = figure.subplots()
    numbers = [v for e in entries for v in (e.sup, e.l2, e.bound) if v is not None and 0 < v < math.inf]
    least = min(numbers, default=1e-16) / 3
    marks = (("sup", "sup", NETWORKS[0], NETWORKS[0]), ("l2", "L2", "none", NETWORKS[1]))
    for y, entry in enumerate(entries):
        seen = [max(v, least) for v in (entry.sup, entry.l2, entry.bound) if v is not None and v < math.inf]
        if seen:
            ax.plot([min(seen), max(seen)], [y, y], color=FAINT, lw=1.0, zorder=1)
        for name, word, face, edge in marks:
            if getattr(entry, name) < math.inf:
                label = f"{word} error, measured" if y == 0 else None
                ax.plot(max(getattr(entry, name), least), y, "o", mfc=face, mec=edge, ms=7, label=label, zorder=3)
        if entry.bound is not None and entry.bound < math.inf:
            ax.plot(max(entry.bound, least), y, "|", color=BOUND, ms=17, mew=2.2, zorder=2)
    if any(entry.bound is not None for entry in entries):
        ax.plot([], [], "|", color=BOUND, ms=12, mew=2.2, label="bound of the certificate")
    ax.set_xscale("log")
    ax.set_yticks(range(len(entries)), [f"{entry.name}\n{entry.keys:,} keys" for entry in entries], fontsize=8)
    ax.set_ylim(len(entries) - 0.4, -0.6)
    ax.grid(True, axis="x", which="major", color=LINES, lw=0.6)
    figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    title(ax, "Constructed and learned", about, "error")
    return figure
