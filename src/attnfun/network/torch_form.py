"""The plain form as a torch.nn.Module. torch is imported when `to_torch` is called and not before."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnfun.errors import AttnfunError, require
from attnfun.network import store
from attnfun.network.plain import AnyPlain, PlainScores

if TYPE_CHECKING:
    import torch


def to_torch(plain: AnyPlain, trainable: bool = False, outside: str = "raise") -> torch.nn.Module:
    """A module with these weights, as buffers, or as parameters if `trainable`; names and shapes: `torch_modules.py`.

    A module warns, once, when it is asked for in, cast to or autocast to a coarser dtype than the one its certificate
    is for. `outside` says what becomes of a point outside the domain, where the network has one: "raise", "clamp" (cut
    to the domain) or "allow". A compiled or exported program cannot raise: there "raise" is "allow".
    """
    _check(plain, outside)
    from attnfun.network import torch_modules

    made = torch_modules.Scores if isinstance(plain, PlainScores) else torch_modules.Attention
    module = made(plain, trainable, outside)  # type: ignore[arg-type]
    structure, tensors = store.taken_apart(plain)
    module.form = structure, {path: own.tolist() for path, own in tensors.items() if "box" in path.split("/")}
    return module.telling()


def load_pretrained(
    source: str | os.PathLike[str], *, trainable: bool = False, outside: str | None = None, **options: Any
) -> torch.nn.Module:
    """The torch module of a folder that `save_pretrained` wrote, or of a name on the Hugging Face Hub.

    Nothing is proved: its certificate is a sentence that was stored. `options` are those of huggingface_hub's
    `from_pretrained` (revision, local_files_only, …); `outside` is as it was saved unless given.
    """
    needed("torch", "torch")
    needed("huggingface_hub", "huggingface_hub")
    from attnfun.network import hub

    return hub.load(source, trainable, outside, **options)


def to_hooked(plain: AnyPlain, outside: str = "raise") -> torch.nn.Module:
    """The module with hook points; names and shapes: `hooked_modules.py`."""
    _check(plain, outside)
    needed("transformer_lens", "transformer-lens")
    from attnfun.network import hooked_modules

    made = hooked_modules.HookedScores if isinstance(plain, PlainScores) else hooked_modules.HookedAttention
    return made(plain, False, outside).telling()  # type: ignore[arg-type]


def _check(plain: AnyPlain, outside: str) -> None:
    require(outside in ("raise", "clamp", "allow"), f"outside={outside!r}: write raise, clamp or allow")
    torch_dtype(plain.proved, plain.dtype)


def needed(module: str, package: str) -> None:
    """AttnfunError, which names the package, where a module is missing."""
    try:
        import_module(module)
    except ImportError as error:
        raise AttnfunError(f"{module} is not installed: pip install {package}") from error


def torch_dtype(own: str, asked: Any) -> str:
    """The name of the dtype that a module is asked for in, `own` unless given; AttnfunError where torch is missing."""
    name = own if asked is None else str(asked).removeprefix("torch.")
    require(name in ("float64", "float32"), f"torch networks are float64 or float32, not {asked}")
    needed("torch", "torch")
    return name
