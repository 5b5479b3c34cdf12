"""The plain form as a torch.nn.Module. torch is imported when `to_torch` is called and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnfun.errors import AttnfunError, require
from attnfun.network.plain import AnyPlain, PlainScores

if TYPE_CHECKING:
    import torch


def to_torch(plain: AnyPlain, trainable: bool = False, outside: str = "raise") -> torch.nn.Module:
    """A module with these weights, as buffers, or as parameters if `trainable`; names and shapes: `torch_modules.py`.

    A module warns, once, when it is asked for in, cast to or autocast to a coarser dtype than the one its certificate
    is for. `outside` says what becomes of a point outside the domain, where the network has one: "raise", "clamp" (cut
    to the domain) or "allow". A compiled or exported program cannot raise: there "raise" is "allow".
    """
    require(outside in ("raise", "clamp", "allow"), f"outside={outside!r}: write raise, clamp or allow")
    torch_dtype(plain.proved, plain.dtype)
    from attnfun.network import torch_modules

    made = torch_modules.Scores if isinstance(plain, PlainScores) else torch_modules.Attention
    return made(plain, trainable, outside).telling()  # type: ignore[arg-type]


def torch_dtype(own: str, asked: Any) -> str:
    """The name of the dtype that a module is asked for in, `own` unless given; AttnfunError where torch is missing."""
    name = own if asked is None else str(asked).removeprefix("torch.")
    require(name in ("float64", "float32"), f"torch networks are float64 or float32, not {asked}")
    try:
        import torch  # noqa: F401 - here to be told apart from what is wrong inside a module
    except ImportError as error:
        raise AttnfunError("torch is not installed: pip install torch") from error
    return name
