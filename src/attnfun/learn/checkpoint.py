"""Checkpoints: the state of a run as one sealed safetensors file (`network/sealed.py`), never a pickle.

| part | what |
| --- | --- |
| run | sha256 of architecture, target, its values on the probe, domain, recipe and start: another run is refused |
| place | JSON: step, phase, best so far, history, seconds, and the optimiser's state with its tensors taken out |
| tensors | the weights, the best weights, and the tensors of the optimiser by number |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.learn.recipe import Recipe
from attnfun.network import sealed
from attnfun.network.head import AnyArray

FORMAT = "training 1"
_OWN = ("format", "dtype", "run", "place")


def run_of(problem: Mapping[str, Any], recipe: Recipe) -> str:
    """What a checkpoint must have been written for: all that decides the run."""
    return sealed.digest_of({**problem, "recipe": recipe.to_json()})


def write(path: str | os.PathLike[str], run: str, place: Any, tensors: Mapping[str, AnyArray], dtype: str) -> None:
    sealed.write(path, {"format": FORMAT, "dtype": dtype, "run": run, "place": place}, tensors, {})


def read(path: str | os.PathLike[str], run: str) -> tuple[dict[str, Any], dict[str, AnyArray]] | None:
    """(place, tensors) of the run, or None where no file is; InvalidRequest for the checkpoint of another run."""
    if not Path(path).exists():
        return None

    def build(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        return {key: own[key] for key in _OWN}, dict(tensors)

    (own, tensors), _ = sealed.load(path, (FORMAT,), _OWN, (), build, lambda built: built)
    if own["run"] != run:
        raise InvalidRequest(
            f"{os.fspath(path)} is the checkpoint of another run (other network, target, domain, options or start); "
            "name another file, or remove this one"
        )
    return own["place"], tensors
