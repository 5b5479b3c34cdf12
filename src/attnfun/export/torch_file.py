"""export: a model as a `torch.export` program (.pt2), the weights as any torch ≥ 2.6 runs them, without attnfun.

The program takes the arrays that `Target.encode` makes of inputs, the batch free, and returns what `Weights.run` does:
of a function (batch, variables) → (batch,) or (batch, outputs), of a network on tokens (batch, n, width) → (batch, n,
outputs). It is compared with the NumPy reference at draws of the target, in several batch sizes, before it is moved to
its name. Failure modes: torch is not installed; a kind without a torch module, or draws (a sampler that is not in the
file), is refused in its own words; a network whose literal form is too large is refused with its size (Infeasible).
"""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from attnfun.errors import AttnfunError, InvalidRequest, require
from attnfun.model import Model
from attnfun.network.head import require_dtype
from attnfun.network.network import Network

FORMATS = ("torch",)
BATCHES = (1, 2, 257)


def export(model: Model[Any, Any], path: str | Path, to: str = "torch", dtype: str | None = None) -> dict[str, Any]:
    """Write a model of any kind to `path` for the runtime `to`; returns what was written and how far it is off."""
    require(to in FORMATS, f"export to {to!r}: known formats are {', '.join(FORMATS)}")
    if not isinstance(model, Model):
        raise InvalidRequest(f"export writes models, as `compile` and `load` return them, not {model!r:.60}")
    require_dtype(dtype or model.dtype)
    require(Path(path).absolute().parent.is_dir(), f"cannot write {str(path)!r}: its folder does not exist")
    return _write_program(model, Path(path), dtype or model.dtype)


def _write_program(model: Model[Any, Any], path: Path, dtype: str) -> dict[str, Any]:
    whole = model.to_torch(dtype)
    import torch

    class Program(torch.nn.Module):
        """The module, its arguments called alike whatever its kind."""

        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, *given: torch.Tensor) -> Any:
            return self.whole(*given)

    example = tuple(torch.tensor(array, dtype=getattr(torch, dtype)) for array in _arrays(model, BATCHES[-1]))
    free = tuple({0: torch.export.Dim.AUTO} for _ in example)
    with torch.no_grad():
        program = torch.export.export(Program().eval(), example, dynamic_shapes=(free,))
    handle, name = tempfile.mkstemp(suffix=".pt2", dir=path.absolute().parent)
    os.close(handle)
    try:
        torch.export.save(program, name)
        difference, allowed = _compare(model, torch.export.load(name).module(), dtype)
        if not difference <= allowed:  # written so that NaN fails
            raise AttnfunError(f"the program differs from the network by {difference:.3g} (allowed {allowed:.3g})")
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
    with torch.no_grad():
        returned = whole(*example)
    given = " and ".join(_shape(tensor) for tensor in example)
    inputs, outputs = (", ".join(getattr(model.weights, names, ())) for names in ("inputs", "outputs"))
    taken = f"{given} {dtype}: {inputs}".removesuffix(": ")
    record: dict[str, Any] = {"format": "torch.export program", "input": taken}
    several = f": {outputs}" if outputs and returned.ndim > 1 else ""
    record |= {"returns": f"{_shape(returned)}{several}", "difference": difference, "allowed": allowed}
    return record | {"bytes": path.stat().st_size, "torch": str(torch.__version__)}


def _shape(tensor: Any) -> str:
    sizes = ", ".join("batch" if size == BATCHES[-1] else str(size) for size in tensor.shape)
    return f"({sizes}{',' * (tensor.ndim == 1)})"


def _arrays(model: Model[Any, Any], count: int) -> list[Any]:
    """What `Weights.run` takes of drawn inputs, `count` of each; flags, which say what else to tell, left out."""
    given, _ = model.target.encode(model.weights, *model.target.draw(np.random.default_rng(0), count))
    return [array[:count] for array in given if isinstance(array, np.ndarray)]


def _compare(model: Model[Any, Any], program: Any, dtype: str) -> tuple[float, float]:
    """(largest difference between program and NumPy reference, what rounding allows).

    Of a function in the network's own dtype both lie within the certificate's rounding part of the same real number;
    where rounding moves walls, within the certificate's bound of the same target (of an L^p norm that tells nothing: no
    check). Else the allowance, 2^12 ulp of the largest value, is a plausibility check only.
    """
    import torch

    worst, size = 0.0, max(1.0, model.cost.max_value)
    for count in BATCHES:
        arrays = _arrays(model, count)
        wanted = np.asarray(model.weights.run(*arrays), dtype=np.float64)
        with torch.no_grad():
            seen = program(*(torch.tensor(array, dtype=getattr(torch, dtype)) for array in arrays)).double().numpy()
        gap = np.abs(seen.reshape(wanted.shape) - wanted)
        worst, size = float(np.maximum(worst, gap.max())), max(size, float(np.abs(wanted).max()))  # keeps NaN
    parts, certificate = model.certificate.parts, model.certificate
    within = parts.get("rounding")
    if "rounding at walls" in parts:
        within = certificate.error[1] if math.isinf(certificate.norm) else math.inf
    ulp = float(np.finfo(dtype).eps) * size
    if dtype == model.dtype and within and isinstance(model.weights, Network):
        return worst, max(2 * float(within), 16 * ulp)
    return worst, 2.0**12 * ulp
