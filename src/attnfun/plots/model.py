"""The picture of a model of any kind: where its heads look at drawn inputs, and its errors there under the bound; and
that of a comparison: every model a line, its errors and its bound on one logarithmic axis.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from attnfun.language.numbers import at_most
from attnfun.learn.probe import Measured, measured
from attnfun.network.evaluate import attention, stream
from attnfun.network.head import AnyArray, Array
from attnfun.network.network import Network
from attnfun.plots.picture import headed
from attnfun.plots.sample import thinned
from attnfun.plots.style import (
    BOUND,
    FAINT,
    LINES,
    NETWORKS,
    heading,
    legend,
    picture,
    sheet,
    title,
    token_map,
    weight_rows,
)

_HEADS, _DRAWS, _POINTS = 6, 500, 101
_KEYS = 1 << 14  # keys of a head that is still drawn


@picture
def draw_model(model: Any) -> Any:
    """Attention of at most six heads, outputs beside what is wanted, sorted errors. All of it is sampled; only the
    bound is proved."""
    target, weights = model.target, model.weights
    seen = measured(target, weights, min(_DRAWS, target.sample_size(weights)))
    arrays, _ = target.encode(weights, *seen.inputs)
    parts = (weights,) if hasattr(weights, "looks") else getattr(weights, "networks", (weights,))
    pairs = zip(parts, arrays, strict=False)
    maps = list(islice((one for network, given in pairs for one in _looks(network, given)), _HEADS))
    below: list[Callable[[Any], None]] = [
        partial(_outputs, seen=seen),
        partial(_errors, errors=seen.errors, model=model),
    ]
    panels = [*maps, *below]
    rows = [panels] if len(panels) < 5 else [maps, below]
    page = sheet(4.6 * max(map(len, rows)), 1.1 + 4.3 * len(rows))
    for own, draws in zip(page.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        for ax, draw in zip(own.subplots(1, len(draws), squeeze=False)[0], draws, strict=True):
            draw(ax)
    return headed(page, model)


def _looks(network: Any, given: Any) -> Iterator[Callable[[Any], None]]:
    """What draws the attention of a head: of the tokens of one drawn input, or of drawn points over constant keys."""
    if not isinstance(network, Network):
        for name, weights, own in network.looks(given[:1]):
            yield partial(_map, name=name, weights=weights, given=own)
        return
    points = given[np.argsort(given[:, 0], kind="stable")][:: max(1, len(given) // _POINTS)]
    final = stream(network, points)
    for layer in () if network.is_mlp else network.layers:
        for head in layer.attention:
            if head.keys <= _KEYS:
                weights = attention(head, final[:, : layer.width], network.dtype).reshape(len(points), -1)
                yield partial(_rows, name=head.name, weights=weights, x=points[:, 0], label=network.inputs[0])


def _map(ax: Any, name: str, weights: AnyArray, given: int) -> None:
    token_map(ax, weights, given)
    note = "softmax weights at a drawn input" + ("; c1, …: constant" if max(weights.shape) > given else "")
    title(ax, f"Attention: {name}", note, "token it looks at", "token that asks")


def _rows(ax: Any, name: str, weights: AnyArray, x: Array, label: str) -> None:
    weight_rows(ax, x, weights)
    title(ax, f"Attention: {name}", f"softmax weights of {weights.shape[1]:,} keys at drawn points", label)


def _outputs(ax: Any, seen: Measured) -> None:
    """Of several entries those of the draw with the largest error, of one entry all draws."""
    entries = seen.errors.shape[1]
    wanted, found = (np.reshape(one, (seen.count, -1))[:, :entries] for one in (seen.wanted, seen.outputs))
    if entries == 1:
        wanted, found = wanted.ravel(), found.ravel()
        ends = [np.nanmin(wanted), np.nanmax(wanted)]
        ax.plot(ends, ends, color=FAINT, lw=4.5, alpha=0.75)
        ax.plot(wanted, found, ".", color=NETWORKS[0], ms=4)
        title(ax, "Network against target", f"at {seen.count:,} draws; grey: equal", "target", "network")
        return
    worst = int(seen.errors.max(axis=1).argmax())
    tokens = np.shape(seen.wanted)[1] if np.ndim(seen.wanted) > 2 else entries
    wanted, found = (one[worst].reshape(tokens, -1) for one in (wanted, found))
    for k in range(min(wanted.shape[1], len(NETWORKS))):
        x = np.arange(1, len(wanted) + 1)
        ax.plot(x, wanted[:, k], "o", color=FAINT, ms=11, alpha=0.75, label="target" if k == 0 else None)
        many = f" {k + 1}" if wanted.shape[1] > 1 else ""
        ax.plot(x, found[:, k], "o-", color=NETWORKS[k], ms=4, lw=0.8, label=f"network, output{many}")
    ax.set_xticks(thinned(len(wanted), 12) + 1)
    ax.margins(y=0.25)
    legend(ax, ncols=2)
    note = f"at the drawn input with the largest error, {seen.errors.max():.3g}"
    title(ax, "Network against target", note, "token" if np.ndim(seen.wanted) > 2 else "entry")


def _errors(ax: Any, errors: Array, model: Any) -> None:
    """The largest error of every draw, largest first; those of 0 are at the lower edge."""
    certificate = model.certificate
    high, eps = float(certificate.details.get("output_error", certificate.error[1])), certificate.eps
    levels = [
        (high, f"{'error' if certificate.measured else 'bound'} {at_most(high, 3)}, {certificate.word}", BOUND, "--")
    ]
    levels += [(eps, f"ε = {eps:.3g}", FAINT, ":")] if eps is not None else []
    shown = [one for one in levels if 0 < one[0] < np.inf]
    errors = np.sort(errors.max(axis=1))[::-1]
    finite = [*errors[(errors > 0) & np.isfinite(errors)], *(one[0] for one in shown)]
    ax.plot(np.maximum(errors, min(finite, default=1.0) / 3), ".", color=NETWORKS[0], ms=4, label="seen")
    for height, label, colour, line in shown:
        ax.axhline(height, lw=1.2, color=colour, ls=line, label=label)
    ax.set_yscale("log")
    legend(ax)
    mean = "" if np.isinf(certificate.norm) else "; the bound is on a mean"
    note = f"at {len(errors):,} {model.target.draws_what}{mean}" + ("" if errors.max() > 0 else "; all are 0")
    head = "Errors under the bound" if certificate.bounds else "Errors that were seen"
    title(ax, head, note, "draws, largest error first", "error")


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
    ax.set_xlabel("error")
    return heading(figure, "Constructed and learned", about)
