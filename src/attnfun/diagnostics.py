"""`diagnose`: what every attention head over fixed keys does, which failure it shows, and the mend.

Files and objects become `Subject`s: a network, inputs as it meets them, and what it is for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnfun.approximant import Approximant
from attnfun.certify.relation import core_points
from attnfun.diagnosis import (
    DTYPES,
    Figures,
    Finding,
    Mend,
    Subject,
    findings,
    foreign_head,
    is_foreign,
    measure,
    mended,
)
from attnfun.diagnosis.findings import GRAVE
from attnfun.diagnosis.judge import worst
from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.network import Apply, Gather, Network, SequenceNetwork, evaluate
from attnfun.network.features import Features
from attnfun.network.head import Array
from attnfun.network.token_transformer import TokenTransformer
from attnfun.network.tokens import TokenNetwork
from attnfun.relations import RelationApproximant, Tower
from attnfun.retrieval import Retrieval
from attnfun.sequence_approximant import SequenceApproximant
from attnfun.set_functions import SetApproximant
from attnfun.targets import Box, Function
from attnfun.targets.slopes import slope_bounds
from attnfun.training.models.retrieval import RetrievalModel
from attnfun.training.models.tower import TowerModel
from attnfun.training.train import Learned
from attnfun.trilinear import TrilinearForm
from attnfun.verbs import load, one_thread

POINTS, GRID, FEWER, LARGE = 1500, 2001, 600, 200_000
_SLOPES = 300  # boxes spent on the Lipschitz constant
Say = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Examined:
    """One head: its figures, and what they say."""

    subject: Subject
    figures: Figures
    findings: tuple[Finding, ...]

    def mend(self, mend: Mend) -> Network:
        """The network with this head mended; only "scale", "refit" and "drop" are done to weights."""
        return mended(self.subject, self.figures, mend)

    def to_json(self) -> dict[str, Any]:
        return {"figures": self.figures.to_json(), "findings": [one.to_json() for one in self.findings]}


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Every head of a file, in order; `remarks` are sentences about what could not be looked at, and why.

    `error`: the largest error of the whole network in its own dtype at the sampled inputs, where its target is known.
    """

    about: str
    dtype: str
    heads: tuple[Examined, ...]
    remarks: tuple[str, ...]
    points: int
    error: float | None = None
    eps: float | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, the gravest first."""
        order = ("serious", "warning", "healthy", "note")
        every = [one for head in self.heads for one in head.findings]
        return tuple(sorted(every, key=lambda one: order.index(one.severity)))

    @property
    def serious(self) -> bool:
        return any(one.severity == "serious" for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        own: dict[str, Any] = {"about": self.about, "dtype": self.dtype, "points": self.points, "error": self.error}
        own |= {"eps": self.eps, "serious": self.serious, "remarks": list(self.remarks)}
        return own | {"heads": [head.to_json() for head in self.heads]}

    def __str__(self) -> str:
        lines = [self.about]
        for head in self.heads:
            lines.append(summary(head.figures))
            lines += [f"  {one}" for one in head.findings]
        return "\n".join([*lines, *self.remarks])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Of the head in most need: weights or cells, effective keys, error by temperature, norms."""
        if not self.heads:
            raise InvalidRequest("there is no head over fixed keys to draw")
        from attnfun.plots.diagnose import draw_diagnosis

        worst = self.findings[0].head
        head = next(one for one in self.heads if one.figures.name == worst)
        return draw_diagnosis(head.subject, head.figures, str(head.findings[0]), f"{worst}: {self.about}", path)


def summary(f: Figures) -> str:
    """One line of the figures that tell most."""
    parts = [f"{f.keys:,} keys, {f.effective_mean:.3g} effective ({f.effective_min:.3g} to {f.effective_max:.3g})"]
    if f.sharpness is not None and f.sharpness_needed is not None:
        parts.append(f"c = R·h² {f.sharpness:.3g}, {f.sharpness_needed:.3g} for a hard look-up")
    if f.staircase is not None and (f.sharpness or 0.0) >= 1:
        parts.append(f"cells cost L·h/2 = {f.staircase:.3g} as a staircase (L {f.lipschitz_how})")
    parts.append(f"key norms {f.key_norm_mean:.3g}, at most {f.key_norm_max:.3g}")
    parts.append(f"values up to {f.value_max:.3g} for numbers up to {f.size:.3g}")
    return f"Layer {f.layer + 1}, {f.name}: " + "; ".join(parts) + "."


def diagnose(
    given: Any,
    *,
    domain: Any = None,
    target: Any = None,
    dtype: str | None = None,
    eps: float | None = None,
    progress: Say | None = None,
) -> Diagnosis:
    """Effective keys, sharpness, resolution, norms and rounding of every head, and what is wrong with it, in words.

    `given`: a file (of attnfun, or a plain safetensors file with tensors K, V, … as `diagnosis/foreign.py` says; that
    needs `domain`), or what `compile`, `train`, `load` and the other verbs return, or a Network. `target` and `domain`
    replace what the file says; `dtype` asks how the weights would do in float64, float32, float16 or bfloat16; `eps` is
    the tolerance to judge by (else the file's, else 1 % of the range). Errors are seen at sampled inputs: no bounds.
    """
    if dtype is not None and not (isinstance(dtype, str) and dtype in DTYPES):
        raise InvalidRequest(f"dtype={dtype!r:.40}: write {', '.join(DTYPES)}")
    number = isinstance(eps, (int, float)) and not isinstance(eps, bool)
    if eps is not None and not (number and math.isfinite(eps) and eps > 0):
        raise InvalidRequest(f"eps={eps!r:.40}: a positive number is needed")
    box = None if domain is None else Box.parse(domain)
    with one_thread():
        if isinstance(given, (str, os.PathLike)):
            if is_foreign(given):
                if box is None:
                    raise InvalidRequest(f"{given} says nothing of its inputs: give --domain, as in x=-1:1;y=0:2")
                given = foreign_head(given, box)
            else:
                given = load(given)
        with np.errstate(all="ignore"):  # what overflows is a finding, not a warning
            about, subjects, remarks = _subjects(given, box, target, eps)
            examined = [
                Examined(subject, figures, findings(figures))
                for subject in subjects
                for figures in measure(subject, dtype, progress)
            ]
        whole = subjects[0] if len(subjects) == 1 else None
        shown = dtype or (subjects[0].network.dtype if subjects else str(getattr(given, "dtype", "float64")))
        error = None if whole is None else _error(whole)
    points = sum(len(subject.X) for subject in subjects)
    quiet = not any(one.severity in GRAVE for head in examined for one in head.findings)
    if whole is not None and quiet and error is not None and whole.eps is not None and error > whole.eps:
        off = f"The network is off by {error:.3g} where {whole.eps:.3g} was asked"
        remarks.append(f"{off}, and no single head explains it.")
    return Diagnosis(
        about, shown, tuple(examined), tuple(remarks), points, error, None if whole is None else whole.eps
    )


def _error(subject: Subject) -> float | None:
    if subject.target is None:
        return None
    with np.errstate(all="ignore"):
        truth = np.asarray(subject.target(subject.X), dtype=np.float64).reshape(len(subject.X), -1)
        return subject.size(worst(evaluate(subject.network, subject.X).astype(np.float64), truth))


# ---------------------------------------------------------------- what becomes of each kind of file


def _subjects(given: Any, box: Box | None, target: Any, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    if isinstance(given, Learned):
        given = given.approximant
    if isinstance(given, Approximant):
        function = given.target
        if target is not None or box is not None:
            function = _function(target if target is not None else function.expression, box or function.box)
        asked = given.certificate.eps if eps is None else eps
        about = f"{function.text[:120]}  on  {function.box.text}"
        network = given.network if target is None else replace(given.network, labels=None)  # labels of another target
        return about, *_plain(network, function, asked, given.certificate.norm)
    if isinstance(given, Network):
        ends = zip(given.low.tolist(), given.high.tolist(), strict=True)
        box = box or Box.parse(dict(zip(given.inputs, ends, strict=True)))
        function_ = None if target is None else _function(target, box)
        about = f"a network on {box.text}" if function_ is None else f"{function_.text[:120]}  on  {box.text}"
        own = given if target is None else replace(given, labels=None)
        return about, *_plain(own, function_ or box, eps, math.inf)
    if target is not None or box is not None:
        raise InvalidRequest("--target and --domain are for networks of functions and for plain heads; leave them out")
    if isinstance(given, Retrieval):
        return _retrieval(given, eps)
    if isinstance(given, RelationApproximant):
        return _relation(given, eps)
    if isinstance(given, SetApproximant):
        given = given.sequence
    if isinstance(given, SequenceApproximant):
        return _sequence(given, eps)
    if isinstance(given, TowerModel):
        return _towers(given)
    if isinstance(given, RetrievalModel):
        X = given.reads(given.target.left.probe(POINTS, np.random.default_rng(45)))
        about = f"{given.target.text}, a trained head over {len(given.table.points):,} stored keys"
        return about, [Subject("", given.network, X, eps=eps)], []
    tokens = getattr(given, "network", None)
    if isinstance(tokens, TokenTransformer):
        units = f"{sum(tokens.units):,} ReLU units stand between its layers, and are not looked at."
        return f"a network on tokens ({type(given).__name__})", [], [_tokens(tokens.attention), units]
    if isinstance(tokens, TokenNetwork):
        return f"a network on tokens ({type(given).__name__})", [], [_tokens(tokens)]
    if isinstance(given, TrilinearForm):
        return "a trilinear form", [], ["It holds features of three sides: there is no head to look at."]
    raise InvalidRequest(f"{given!r:.60}: a file, or a network that attnfun made, is needed")


def _function(target: Any, box: Box) -> Function:
    if target is None:
        raise InvalidRequest("the target is a Python function that is not in the file; pass it as target")
    if callable(target) and not isinstance(target, Function):
        try:
            return Function.read(target, box)
        except InvalidRequest:  # untraceable: nothing is proved here, so no declared constant is needed
            return Function.read(target, box, lipschitz=math.sqrt(np.finfo(np.float64).max))
    return Function.read(target, box)


def _inputs(box: Box, network: Network, norm: float = math.inf) -> Array:
    count = POINTS if network.cost.keys <= LARGE else FEWER
    rng = np.random.default_rng([41, box.dim])
    if not math.isinf(norm):
        return box.sample(2 * count, rng)
    X = box.probe(count, rng)
    return X if box.dim > 1 else np.concatenate([X, np.linspace(box.low[0], box.high[0], GRID)[:, None]])


def _plain(
    network: Network, what: Function | Box, eps: float | None, norm: float
) -> tuple[list[Subject], list[str]]:
    box = what.box if isinstance(what, Function) else what
    if network.inputs != box.names:
        raise InvalidRequest(f"the network reads {', '.join(network.inputs)}, the domain has {', '.join(box.names)}")
    if network.is_mlp:
        return [], ["It is an MLP: its nonlinearities are ReLU units, and nothing in it attends."]
    if not network.heads:
        return [], ["The target is affine: the residual stream carries it, and there is no head to look at."]
    X = _inputs(box, network, norm)
    if isinstance(what, Box):
        return [Subject("", network, X, eps=eps, norm=norm)], []
    if len(what.outputs) != len(network.outputs):
        raise InvalidRequest(f"the target has {len(what.outputs)} outputs, the network {len(network.outputs)}")
    known = what.graph is not None or what.call is not None
    slopes, how = _slopes(what)
    subject = Subject("", network, X, what.values if known else None, slopes, how, eps, norm)
    return [subject], [] if known else ["The target is a Python function that is not in the file: give it as target."]


def _slopes(function: Function) -> tuple[Array | None, str]:
    """Proved bounds of the partial derivatives, or what was declared."""
    if function.graph is None:
        if function.lipschitz is None or function.lipschitz > 1e100:
            return None, ""
        d = function.box.dim
        return np.full((len(function.outputs), d), function.lipschitz / math.sqrt(d)), "declared"
    try:
        return slope_bounds(function.graph, function.box, budget=_SLOPES), "proved"
    except AttnfunError:
        return None, ""


def _relation(found: RelationApproximant, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    if found.features_only:
        return found.target.text, [], ["The file holds features without towers: there is no head to look at."]
    asked = eps if eps is not None else found.certificate.eps
    subjects, remarks = [], []
    one = found.stored.signs is not None
    for side, tower, other in (("left", found.left, found.right), ("right", found.right, found.left)):
        if side == "right" and one:
            remarks.append("The relation has one tower for both sides.")
            break
        if tower.network.is_mlp:
            return found.target.text, [], ["The towers are MLPs: nothing in them attends."]
        X = tower.inputs(tower.box.probe(POINTS, np.random.default_rng(43)))
        meets = other(other.box.probe(POINTS, np.random.default_rng(44)))
        share = None if asked is None else asked / max(float(np.abs(meets).sum(axis=1).max()), 1e-300)
        subjects.append(Subject(f"{side} tower", tower.network, X, _features(tower), eps=share))
    return found.target.text, subjects, remarks


def _towers(found: TowerModel) -> tuple[str, list[Subject], list[str]]:
    """Trained towers: their heads as they are; no features are known that they stand for."""
    if found.towers[0].is_mlp:
        return found.target.text, [], ["The towers are MLPs: nothing in them attends."]
    subjects = []
    for k, (tower, side) in enumerate(zip(found.towers, found.task.sides, strict=True)):
        X = side.reads(found.task.target.boxes[k].probe(POINTS, np.random.default_rng(43)))
        subjects.append(Subject("both sides" if len(found.towers) == 1 else f"tower {k + 1}", tower, X))
    return found.target.text, subjects, ["The towers were trained: there are no features to judge their errors by."]


def _features(tower: Tower) -> Callable[[Array], Array] | None:
    """The polynomials that a tower realises, from the inputs of its network; soft cells are nothing but themselves."""
    stored = tower.features
    if not isinstance(stored, Features):
        return None
    side = "left" if stored.signs is not None else tower.side
    low, high = stored.left_box if side == "left" else stored.right_box

    def values(X: Array) -> Array:
        if tower.weights is not None and tower.weights.inner is not None:
            X = np.clip(core_points(tower.core, tower.side, X, tower.box.names), low, high)
        return np.asarray(stored.side(side, X, "float64"), dtype=np.float64)

    return values


def _retrieval(found: Retrieval, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    about = f"{found.relation.target.text}, a head over {found.weights.keys:,} stored keys"
    if found.relation.features_only:
        return about, [], ["The head stands behind polynomials, not behind a tower: it is no network to look at."]
    tower = found.relation.left
    X = tower.inputs(tower.box.probe(POINTS, np.random.default_rng(45)))
    asked = eps if eps is not None else found.relation.certificate.eps
    meets = float(np.abs(found.weights.vectors / found.beta).sum(axis=1).max())
    share = None if asked is None else asked / max(meets, 1e-300)
    below = Subject("tower", tower.network, X, _features(tower), eps=share)
    return about, [below, Subject("", found.network, X, picks=frozenset({"retrieve"}))], []


def _sequence(found: SequenceApproximant, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    network, box, n = found.network, found.target.box, found.target.tokens
    about = f"{found.target.text}  for {n} tokens in  {box.text}"
    count = max(20, POINTS // n)
    streams = network.stream(box.probe(count * n, np.random.default_rng(46))[: count * n].reshape(count, n, box.dim))
    subjects = [
        Subject(name, own, np.asarray(X, dtype=np.float64), eps=eps) for name, own, X in _stages(network, streams)
    ]
    gathers = sum(len(stage.heads) for stage in network.stages if isinstance(stage, Gather))
    remark = f"{gathers} gather head(s) attend over the tokens: their keys are data, and they are not looked at here."
    return about, subjects, [remark] if gathers else []


def _stages(network: SequenceNetwork, streams: Array) -> Iterator[tuple[str, Network, Array]]:
    """(name, network, its inputs as they come) of every network that is applied to tokens."""
    for number, stage in enumerate(network.stages, start=1):
        if not isinstance(stage, Apply):
            continue
        which = np.array(stage.of_token)
        for k, own in enumerate(stage.networks):
            if own.heads:
                at = [network.coordinates.index(name) for name in own.inputs]
                X = streams[:, np.flatnonzero(which == k)][:, :, at].reshape(-1, len(at))
                yield f"stage {number}" + ("" if stage.shared else f", function {k + 1}"), own, X[: 2 * POINTS]


def _tokens(network: TokenNetwork) -> str:
    """What can be said of a network whose keys are tokens."""
    arrays = [array for layer in network.layers for head in layer.heads for array in head.arrays.values()]
    largest = max((float(np.abs(array).max()) for array in arrays), default=0.0)
    u = DTYPES[network.dtype].roundoff
    return (
        f"Its heads attend over the tokens of the prompt: keys are data, there are no fixed ones to diagnose; "
        f"layers: {len(network.layers)}, weights up to {largest:.3g}, kept by {network.dtype} within {u * largest:.1g}."
    )


