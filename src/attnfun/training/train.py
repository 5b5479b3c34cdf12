"""`train`: the weights that gradient descent finds in a given architecture, with a history and a certificate."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnfun.approximant import Approximant
from attnfun.certify import Certificate, Status, prove
from attnfun.errors import InvalidRequest
from attnfun.learn import Fit, Progress, Recipe, Row, fit, random_network
from attnfun.learn.probe import errors
from attnfun.network import Architecture, Cost, Network
from attnfun.targets import Box, Function, require_defined
from attnfun.targets.mlp import read_mlp
from attnfun.verbs import one_thread

if TYPE_CHECKING:
    import torch

MEASURED = 20_000
"""Points of a sampled certificate and of a comparison; their seeds are not those of any probe."""


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained network, how it was trained, and what is known of it.

    `approximant` is what the trained network is: an `Approximant`, an `InContextSolver`, a `Neighbours`, a
    `TrilinearForm`, or a model (`SequenceModel`, `SetModel`, `TowerModel`, `HeadModel`, `RetrievalModel`,
    `TokenModel`), and is called as one. `certificate` is `bounded` where the checker could prove a bound for these
    weights (no eps was asked of them, so none is met), else it is `sampled`: the error at the points that were looked
    at, which is no bound.
    `fit.history` has a `Row` for about every hundredth of the run.
    """

    approximant: Any
    fit: Fit
    recipe: Recipe
    start: str
    sampled: Certificate

    @property
    def network(self) -> Any:
        """A Network; on tokens a TokenNetwork (or TokenTransformer); of towers a tuple; of a form its coefficients."""
        found = self.approximant
        return found.network if hasattr(found, "network") else found.coefficients

    @property
    def target(self) -> Any:
        found = self.approximant
        return found.task if hasattr(found, "predict") else found.target

    @property
    def certificate(self) -> Certificate:
        return getattr(self.approximant, "certificate", self.sampled)

    @property
    def history(self) -> tuple[Row, ...]:
        return self.fit.history

    @property
    def cost(self) -> Cost:
        return self.approximant.cost

    @property
    def architecture(self) -> Any:
        """Its shape; of towers a tuple."""
        found = self.approximant
        return found.architecture if hasattr(found, "architecture") else found.network.architecture

    def __call__(self, *inputs: Any, **options: Any) -> NDArray[np.float64]:
        """What the network says: `X` of a function or sequences, (X, y, X_query) of prompts, (X, Y) of a relation."""
        found = self.approximant
        return found.predict(*inputs) if hasattr(found, "predict") else found(*inputs, **options)

    def to_torch(self, *options: Any, **more: Any) -> torch.nn.Module:
        """As of any network of its kind; of towers a tuple of modules. A trilinear form has none: InvalidRequest."""
        if not hasattr(self.approximant, "to_torch"):
            raise InvalidRequest("a trilinear form is coefficients and no network: there is no torch module of it")
        return self.approximant.to_torch(*options, **more)

    def save(self, path: str | os.PathLike[str]) -> None:
        """The same file as that of any network of its kind: `load` takes it, and for functions all other commands."""
        self.approximant.save(path)


def train(
    network: Any,
    target: Any = None,
    domain: Any = None,
    *,
    steps: int,
    seed: int = 0,
    start: Any = "random",
    optimiser: str = "adam",
    lr: float = 1e-2,
    schedule: str = "one-cycle",
    batch: int = 512,
    polish: int = 0,
    patience: int | None = None,
    noise: float = 0.0,
    weight_decay: float = 1e-2,
    lipschitz: float | None = None,
    proof: bool = True,
    widths: Sequence[int] | None = None,
    rank: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Learned:
    """Train all weights of an architecture towards `target` on `domain`; the best network on the probe is returned.

    `network` gives the architecture: one, or a network whose architecture is taken: of `compile`, and of any other verb
    that returns a network, which brings its target along; a `TokenArchitecture` needs a target, a SequenceMap, an
    InContextTask or a SampledTask. `widths` and `rank` put ReLU towers in the place of a relation's own or of a form.
    `target` and `domain` are those of `compile`, and may be left out where the network or the target has its own.
    `start`: "random" (by `seed`), "constructed" (the weights of `network`) or a network whose weights the architecture
    holds. `steps` of "adam" or "adamw" on fresh batches, then `polish` steps of LBFGS; other options as in
    `learn.Recipe`. Bounded by steps, never by seconds; the same request gives the same bits on one machine. With
    `checkpoint` an interrupted run goes on where it was. `proof=False` leaves the proof out. `progress` is called about
    a hundred times with a `Progress`, one line as text.
    """
    recipe = Recipe(steps, seed, optimiser, lr, schedule, batch, polish, patience, noise, weight_decay)
    if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
        raise InvalidRequest(f"checkpoint={checkpoint!r:.40}: the path of a file is needed")
    kind = network.approximant if isinstance(network, Learned) else network
    if not isinstance(kind, (Approximant, Network, Architecture)):
        from attnfun.training.kinds import KINDS, train_model

        if isinstance(kind, KINDS):
            if domain is not None or lipschitz is not None:
                raise InvalidRequest("domain and lipschitz are for functions; leave them out")
            return train_model(network, target, recipe, start, proof, checkpoint, progress, widths, rank)
    if widths is not None or rank is not None:
        raise InvalidRequest("widths and rank are those of the towers of a relation")
    architecture = network if isinstance(network, Architecture) else _weights(network, "the network").architecture
    function = _function(network, target, domain, lipschitz)
    require_callable(function)
    if function.graph is not None:
        require_defined(function.graph, function.box, continuous=False)
    with one_thread():
        if isinstance(start, str):
            if start not in ("random", "constructed"):
                raise InvalidRequest(f"start={start!r:.40}: write random or constructed, or give a network")
            if start == "constructed" and isinstance(network, Architecture):
                raise InvalidRequest("start='constructed' needs a network with weights, not an architecture alone")
            name = start
            begun = random_network(architecture, function, recipe.seed) if start == "random" else _weights(network, "")
        else:
            name, begun = "given", _weights(start, "start")
        found = fit(architecture, function, recipe, begun, checkpoint, progress)
        measured = _sampled(found.network, function)
        certificate = _proved(found.network, function, measured) if proof else measured
    request: dict[str, Any] = {"norm": "sup", "method": "train", "dtype": architecture.dtype, "start": name}
    request |= {"recipe": recipe.to_json()}
    story = {"training": {"steps": found.steps, "best step": found.best_step, "stopped": found.stopped}}
    approximant = Approximant(function, found.network, certificate, request, story)
    return Learned(approximant, found, recipe, name, measured)


def _weights(given: Any, what: str) -> Network:
    given = given.approximant if isinstance(given, Learned) else given
    if isinstance(given, Approximant):
        return given.network
    if isinstance(given, Network):
        return given
    text = f"{what or 'the network'} is a {type(given).__name__}" if what != "start" else f"start={given!r:.60}"
    raise InvalidRequest(f"{text}: nothing in it can be trained; a network of `compile`, `train` or the like is needed")


def _function(network: Any, target: Any, domain: Any, lipschitz: float | None) -> Function:
    """The target on its box: what was given, else what the network or the target brings along."""
    own = network.target if isinstance(network, (Approximant, Learned)) else None
    if target is None:
        if own is None:
            raise InvalidRequest("train needs a target: an architecture has none of its own")
        target = own
    if isinstance(target, Function):
        if domain is not None and Box.parse(domain) != target.box:
            raise InvalidRequest(f"the target has its own domain {target.box.text}; leave domain out")
        return target
    if domain is None:
        if own is None and not isinstance(network, Network):
            raise InvalidRequest("train needs a domain, for instance domain='x=-1:1': an architecture has none")
        plain = _weights(network, "the network")
        ends = [(float(a), float(b)) for a, b in zip(plain.low, plain.high, strict=True)]
        domain = dict(zip(plain.inputs, ends, strict=True))
    mlp = read_mlp(target)
    box = Box.parse(domain) if mlp is None else mlp.box(domain)
    return Function.read(target if mlp is None else mlp, box, lipschitz)


def require_callable(function: Function) -> None:
    """Refuse a black box that was read from a file, which holds no Python function."""
    if function.graph is None and function.call is None:
        raise InvalidRequest("the target is a Python function that is not in the file; pass it as target")


def measuring_points(box: Box) -> NDArray[np.float64]:
    """Points on which errors are reported, MEASURED uniform ones first; drawn for neither training nor choosing."""
    X = box.probe(MEASURED, np.random.default_rng([77, box.dim]))
    return X if box.dim > 1 else np.concatenate([X, np.linspace(box.low[0], box.high[0], 7919)[:, None]])


def _sampled(network: Network, function: Function) -> Certificate:
    """The largest error found, called by its name."""
    X = measuring_points(function.box)
    error = errors(network, function, X).max(axis=1)
    top = int(np.argmax(error))
    high = float(error[top])
    return Certificate(
        Status.SAMPLED,
        (high, high),
        None,
        math.inf,
        network.dtype,
        "sampling",
        function.text,
        function.box.text,
        "learned",
        witness=tuple(float(v) for v in X[top]),
        reason=f"the largest error at {len(X):,} points",
    )


def _proved(network: Network, function: Function, measured: Certificate) -> Certificate:
    """A bound of these weights, or the sampled certificate with the reason why there is none."""
    found = prove(network, function, construction="learned")
    if found.status is Status.BOUNDED:
        return found
    fields = {name: getattr(measured, name) for name in measured.__dataclass_fields__}
    return Certificate(**{**fields, "reason": f"{measured.reason}; not proved: {found.reason}"})
