"""Files taken apart and written again with fitting hash and seals: what a forger can do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from attnfun.kinds import find
from attnfun.network import store
from attnfun.network.sealed import held


def load(path: Path | str, ignore: Collection[str] = (), kind: str = "") -> tuple[Any, dict[str, Any]]:
    """(weights, meta) of a file of any kind."""
    file = held(path)
    found = find(kind or file.record.get("kind"))
    return store.read(file, found.weight_classes, ignore)


def save(path: Path | str, weights: Any, meta: Mapping[str, Any], kind: str = "function") -> None:
    """The weights with any meta."""
    store.write(path, kind, weights, meta)


def content_hash(weights: Any, meta: Mapping[str, Any], kind: str = "function") -> str:
    """What a file of these weights and this meta is sealed with."""
    return store.hash_of(kind, weights, meta)
