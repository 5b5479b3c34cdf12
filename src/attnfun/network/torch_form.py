"""The network as a torch.nn.Module: linear maps and one F.scaled_dot_product_attention (scale=1.0) a layer.

Of an MLP: linear maps and one torch.relu a layer, and no attention at all.

torch is imported when `to_torch` is called and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnfun.errors import AttnfunError, InvalidRequest, require
from attnfun.network.literal import FORMS
from attnfun.network.network import Network
from attnfun.network.tokens import OnTokens

if TYPE_CHECKING:
    import torch


def to_torch(network: Network, dtype: Any = None, form: str = "cross", second: tuple[str, ...] = ()) -> torch.nn.Module:
    """A module with these weights as buffers: (n, d) -> (n,) for one output, else (n, outputs).

    `dtype` is torch.float64, torch.float32 or their names (the network's own unless given). A module warns, once, when
    it is asked for in, cast to or autocast to a coarser dtype than the network's own, which its certificate is for.
    Forms as in `literal.py`; the joint form's forward takes (X, Y), where `second` names the columns of Y. Cross and
    joint take any leading shape, (batch, tokens, d) too. Agrees with `evaluate` up to rounding in that dtype, on the
    box. An MLP has no forms: it is asked for as "cross", points in and values out.
    """
    require(form in FORMS, f"the form must be one of {', '.join(FORMS)}, not {form!r}")
    if network.is_mlp and (form != "cross" or second):
        raise InvalidRequest(f"this network is an MLP, not attention: it has no {form} form; leave the form out")
    name = torch_dtype(network.dtype, dtype)
    from attnfun.network import torch_modules

    if network.is_mlp:
        return torch_modules.ReluNetwork(network, name).telling()
    if form == "self":
        require(not second, f"the self form has one input sequence, not a second one of {list(second)}")
        return torch_modules.SelfAttention(network, name).telling()
    return torch_modules.CrossAttention(network, name, form, second).telling()


def tokens_to_torch(network: OnTokens, dtype: Any = None) -> torch.nn.Module:
    """A token network as a module on token matrices: (n, width) or (batch, n, width) in, read-outs of every token out.

    One F.scaled_dot_product_attention (scale=1.0) a layer, whatever the number of heads.
    """
    name = torch_dtype(network.attention.dtype, dtype)
    from attnfun.network import torch_modules

    return torch_modules.TokenAttention(network, name).telling()


def torch_dtype(own: str, asked: Any) -> str:
    """The name of the dtype that a module is asked for in, `own` unless given; AttnfunError where torch is missing."""
    name = own if asked is None else str(asked).removeprefix("torch.")
    require(name in ("float64", "float32"), f"torch networks are float64 or float32, not {asked}")
    try:
        import torch  # noqa: F401 - here to be told apart from what is wrong inside a module
    except ImportError as error:
        raise AttnfunError("torch is not installed: pip install 'attnfun[torch]'") from error
    return name
