"""`diagnose`: what every attention head over fixed keys does, which failure it shows, and how to fix it.

Files and objects become `Subject`s: a network, inputs as it meets them, and what it is for.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.diagnosis import DTYPES, Figures, Subject, fixed, foreign_head, is_foreign, measure
from attnfun.diagnosis.findings import GRAVE, Finding, Fix, findings, gravest_first
from attnfun.diagnosis.plain import looked_at, of_another
from attnfun.diagnosis.subject import values_of, worst
from attnfun.errors import InvalidRequest, require
from attnfun.language.brief import Brief
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.numbers import positive_or_none
from attnfun.model import Model
from attnfun.network import Network, evaluate
from attnfun.search import one_thread
from attnfun.verbs import load

Say = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Examined(Brief):
    """One head: its figures, and what they say."""

    subject: Subject
    figures: Figures
    findings: tuple[Finding, ...]

    def fix(self, fix: Fix) -> Network:
        """The network with this head fixed; only "scale", "refit" and "drop" are done to weights."""
        return fixed(self.subject, self.figures, fix)

    def to_json(self) -> dict[str, Any]:
        return {"figures": self.figures.to_json(), "findings": [one.to_json() for one in self.findings]}


@dataclass(frozen=True, eq=False)
class Diagnosis(Brief):
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
        return gravest_first(one for head in self.heads for one in head.findings)

    @property
    def serious(self) -> bool:
        return any(one.severity == "serious" for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        names = ("about", "dtype", "points", "error", "eps", "serious")
        own: dict[str, Any] = {name: getattr(self, name) for name in names}
        return own | {"remarks": list(self.remarks), "heads": [head.to_json() for head in self.heads]}

    def __str__(self) -> str:
        lines = [self.about]
        for head in self.heads:
            lines.append(summary(head.figures))
            lines += [f"  {one}" for one in head.findings]
        return "\n".join([*lines, *self.remarks])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Of the head in most need: weights or cells, effective keys, error by temperature, norms."""
        require(self.heads, "there is no head over fixed keys to draw")
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
    eps = positive_or_none("eps", eps)
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
            measured = [(subject, figures) for subject in subjects for figures in measure(subject, dtype, progress)]
            examined = [Examined(subject, figures, findings(figures)) for subject, figures in measured]
        whole = subjects[0] if len(subjects) == 1 else None
        shown = dtype or (subjects[0].network.dtype if subjects else str(getattr(given, "dtype", "float64")))
        error = None if whole is None else _error(whole)
    points = sum(len(subject.X) for subject in subjects)
    quiet = not any(one.severity in GRAVE for head in examined for one in head.findings)
    if whole is not None and quiet and error is not None and whole.eps is not None and error > whole.eps:
        off = f"The network is off by {error:.3g} where {whole.eps:.3g} was asked"
        remarks.append(f"{off}, and no single head explains it.")
    return Diagnosis(about, shown, tuple(examined), tuple(remarks), points, error, None if whole is None else whole.eps)


def _error(subject: Subject) -> float | None:
    if subject.target is None:
        return None
    with np.errstate(all="ignore"):
        found = evaluate(subject.network, subject.X).astype(np.float64)
        return subject.size(worst(found, values_of(subject.target, subject.X)))


def _subjects(given: Any, box: Box | None, target: Any, eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """What is looked at; `target` and `box` replace those of a function's model or of a plain network."""
    network = given.weights if isinstance(given, Model) else given
    function = given.target if isinstance(given, Model) and isinstance(given.target, Function) else None
    if not isinstance(given, Model) and not isinstance(given, Network):
        raise InvalidRequest(f"{given!r:.60}: a file, or a network that attnfun made, is needed")
    if isinstance(given, Model) and target is None and box is None:
        return given.kind.loaded("subjects")(given, eps)
    if not isinstance(network, Network) or (isinstance(given, Model) and function is None):
        raise InvalidRequest("--target and --domain are for networks of functions and for plain heads; leave them out")
    if box is None:
        box = network.domain
    if function is None:
        return looked_at(network, box, eps) if target is None else looked_at(*of_another(network, target, box), eps)
    own, judge = of_another(network, function.expression if target is None else target, box)
    assert isinstance(given, Model)
    certificate = given.certificate
    asked = certificate.eps if eps is None else eps
    return looked_at(network if target is None else own, judge, asked, certificate.norm)
