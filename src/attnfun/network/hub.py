"""A torch module as a folder of the Hugging Face Hub; importing this file imports huggingface_hub.

    net.to_torch().save_pretrained("folder")              # config.json, model.safetensors, README.md
    module = af.load_pretrained("folder")                 # the same module; nothing is proved again

| in config.json | what |
| --- | --- |
| `plain` | the plain form without its weights, as `store` writes a tree; shapes are those of the tensors |
| `numbers` | its arrays that are no weights: the ends of the domain |
| `outside` | what becomes of a point outside the domain, unless `load_pretrained` is told otherwise |
| `hash` | a sha256 of `plain`, `numbers` and the weights; others beside it are refused |
| `about` | kind, target, domain, and the certificate as a sentence: a claim that nobody checked again |

model.safetensors has the tensors under the names of the module's `state_dict()`. Nothing is ever read by pickle.
"""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelCardData, PyTorchModelHubMixin
from safetensors import SafetensorError
from safetensors.torch import load_file

from attnfun.errors import AttnfunError, DamagedFile, InvalidRequest, require
from attnfun.network import store
from attnfun.network.plain import AnyPlain
from attnfun.network.torch_form import to_torch
from attnfun.network.torch_modules import head_names

FORMAT = "attnfun torch 1"
STORED = "As stored, not verified"
_SHORT = {"query": "q", "query_bias": "q_bias", "key": "k", "value": "v", "output": "o"}
"""The fields of a head → its weights."""
_PARTS = {"Plain": {"terms": "embed"}, "Term": {"embed": "matrix"}, "PlainHead": _SHORT}


class Pretrained(PyTorchModelHubMixin, library_name="attnfun", tags=["attention", "verified-numerics"]):  # type: ignore[call-arg]
    """What huggingface_hub's mixin saves and loads: `module`."""

    module: Any

    def __init__(self, config: Any = None, trainable: bool = False, outside: str | None = None) -> None:
        require(isinstance(config, dict) and config.get("format") == FORMAT, "it has no config.json of attnfun")
        self.config, self.options = config, (trainable, outside)

    @classmethod
    def _load_as_safetensor(cls, model: Any, model_file: str, map_location: str, strict: bool) -> Any:
        model.module = _made(model.config, load_file(model_file), *model.options).to(map_location).eval()
        return model

    @classmethod
    def _load_as_pickle(cls, model: Any, model_file: str, map_location: str, strict: bool) -> Any:
        raise InvalidRequest("its weights are pickled, and nothing is read by pickle")

    def generate_model_card(self, *_: Any, **__: Any) -> ModelCard:
        about, data = (
            self.config["about"],
            ModelCardData(library_name="attnfun", tags=self._hub_mixin_info.model_card_data.tags),
        )
        lines = ["---", data.to_yaml(), "---", "", "# Softmax attention that approximates a target", ""]
        lines += [f"- {name}: `{about[name]}`" for name in ("kind", "target", "domain") if name in about]
        lines += ["", about["certificate"], "", "```python", "import attnfun as af", ""]
        lines += ['module = af.load_pretrained("this folder, or its name on the Hub")', "```", ""]
        return ModelCard("\n".join([*lines, f"Weights: sha256 {self.config['hash']}", ""]))


def save(module: Any, folder: str | os.PathLike[str], **options: Any) -> Any:
    """Through the mixin: `options` are those of its `save_pretrained` (push_to_hub, repo_id, …)."""
    require(module.form is not None, "to_torch() makes the modules that are saved")
    structure, numbers = module.form
    own = module.fingerprint()
    about = {name: module.about[name] for name in ("kind", "target", "domain") if name in module.about}
    config = {"format": FORMAT, "plain": structure, "numbers": numbers, "outside": _outside(module), "hash": own}
    config["about"] = {**about, "certificate": _claim(module, own)}
    holder, card = Pretrained(config), Path(folder) / "README.md"
    holder.module = module
    try:
        if card.is_file() and "library_name: attnfun" in (said := card.read_text()) and own not in said:
            card.unlink()  # the mixin keeps a card that is there; this one speaks of other weights
        return holder.save_pretrained(folder, config=config, **options)
    except OSError as error:
        raise AttnfunError(f"cannot write {os.fspath(folder)!r}: {_line(error)}") from error


def load(source: str | os.PathLike[str], trainable: bool, outside: str | None, **options: Any) -> Any:
    """The module; AttnfunError in one sentence where there is none."""
    name = os.fspath(source)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the mixin prints where it reads from
            return Pretrained.from_pretrained(name, trainable=trainable, outside=outside, **options).module
    except (InvalidRequest, DamagedFile) as error:
        raise type(error)(f"{name!r}: {error}") from error
    except (OSError, ValueError, SafetensorError) as error:
        raise InvalidRequest(f"{name!r} cannot be loaded: {_line(error)}") from error


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _outside(module: Any) -> str:
    return str(getattr(module, "outside", None) or module.towers[0].outside)


def _claim(module: Any, own: str) -> str:
    """What may be said of weights with this hash: the certificate, unless it is about others."""
    if "certificate" not in module.about:
        return "Nothing is known of the error of these weights."
    if own != module.about["hash"]:
        return "These weights were changed after the network was certified: no certificate is about them."
    if torch.finfo(module.own.dtype).eps > torch.finfo(module.proved).eps:
        return f"Its certificate is for {module.proved} arithmetic, and says nothing of weights in {module.own.dtype}."
    return str(module.about["certificate"])


def _made(config: Any, state: dict[str, Any], trainable: bool, outside: str | None) -> Any:
    """The module of a config and its weights, which must be those that it was written with."""
    dtypes = {tensor.dtype for tensor in state.values()}
    try:
        arrays = {path: np.array(own, dtype=np.float64) for path, own in config["numbers"].items()}
        for path, name, dtype in _named(config["plain"], "", ""):
            if path not in arrays:
                arrays[path] = state.pop(name).double().numpy().astype(dtype)
        if state:
            raise DamagedFile(f"tensor {next(iter(state))} belongs to nothing")
        plain = store.put_together(AnyPlain, config["plain"], arrays)
        module = to_torch(plain, trainable, outside or config["outside"])
        module = module if len(dtypes) != 1 else module.to(dtypes.pop())
        about, said = dict(config["about"]), str(config["about"]["certificate"])
        about["certificate"] = said if said.startswith(STORED) else f"{STORED}: {said}"
        same = module.described(about).about["hash"] == config["hash"]
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise DamagedFile(f"config.json and model.safetensors do not fit each other ({_line(error)})") from error
    if not same:
        raise DamagedFile("config.json and model.safetensors are not what was written together")
    return module


def _named(tree: Any, path: str, name: str) -> Iterator[tuple[str, str, str]]:
    """(path in the stored tree, name in the module's `state_dict`, dtype) of every array."""
    if isinstance(tree, list):
        heads = all(isinstance(one, dict) and one.get("is") == "PlainHead" for one in tree)
        own = head_names(one["name"] for one in tree) if heads else range(len(tree))
        for k, (part, one) in enumerate(zip(own, tree, strict=True)):
            yield from _named(one, f"{path}/{k}", f"{name}.{part}")
    elif isinstance(tree, dict) and "tensor" in tree:
        yield path[1:], name[1:], tree["tensor"]
    elif isinstance(tree, dict):
        short = _PARTS.get(tree.get("is", ""), {})
        for part, one in tree.items():
            yield from _named(one, f"{path}/{part}", f"{name}.{short.get(part, part)}")
