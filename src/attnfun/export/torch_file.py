"""export: a network as a `torch.export` program (.pt2), the literal form that any torch ≥ 2.6 runs without attnfun.

An MLP has no literal form; its program is linear maps and relu.

The program maps (batch, variables) → (batch,) or (batch, outputs), batch free. It is compared with the NumPy reference
at corners and random points of the box, in several batch sizes, before it is moved to its name. Failure modes: torch
is not installed; a network whose literal form is too large is refused with its size (Infeasible).
"""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.network.evaluate import evaluate
from attnfun.network.network import DTYPES, Network

FORMATS = ("torch", "onnx")
BATCHES = (1, 2, 257)


def export(approximant: Any, path: str | Path, to: str = "torch", dtype: str | None = None) -> dict[str, Any]:
    """Write `approximant` to `path` for the runtime `to`; returns what was written and how far it is off.

    It is anything with a `network` and its `certificate`.
    """
    if to not in FORMATS:
        raise InvalidRequest(f"export to {to!r}: known formats are {', '.join(FORMATS)}")
    if to == "onnx":
        raise InvalidRequest("export to 'onnx' is not available in this version; 'torch' is")
    if dtype is not None and dtype not in DTYPES:
        raise InvalidRequest(f"export with dtype {dtype!r}: known are {', '.join(DTYPES)}")
    if not isinstance(getattr(approximant, "network", None), Network):
        raise InvalidRequest("export writes networks of functions; other models give a torch module by .to_torch()")
    if not Path(path).absolute().parent.is_dir():
        raise InvalidRequest(f"cannot write {str(path)!r}: its folder does not exist")
    return _write_program(approximant, Path(path), dtype or approximant.network.dtype)


def _write_program(approximant: Any, path: Path, dtype: str) -> dict[str, Any]:
    import torch

    from attnfun.network.torch_form import to_torch

    network = approximant.network
    kind = getattr(torch, dtype)
    module = _unblocked(to_torch(network, dtype=kind))
    example = torch.tensor(_points(network, 3), dtype=kind)
    with torch.no_grad():
        program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    handle, name = tempfile.mkstemp(suffix=".pt2", dir=path.absolute().parent)
    os.close(handle)
    try:
        torch.export.save(program, name)
        difference, allowed = _compare(approximant, torch.export.load(name).module(), dtype)
        if not difference <= allowed:  # written so that NaN fails
            raise AttnfunError(
                f"the exported program differs from the network by {difference:.3g} (allowed {allowed:.3g})"
            )
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
    outputs = len(network.outputs)
    given = f"(batch, {len(network.inputs)}) {dtype}: {', '.join(network.inputs)}"
    returns = "(batch,)" if outputs == 1 else f"(batch, {outputs}): {', '.join(network.outputs)}"
    record: dict[str, Any] = {"format": "torch.export program", "input": given, "returns": returns}
    record |= {"difference": difference, "allowed": allowed}
    return record | {"bytes": path.stat().st_size, "torch": str(torch.__version__)}


def _unblocked(whole: Any) -> Any:
    """The module's forward with the whole batch at once: taking points in blocks, as it does itself, would fix the
    batch size in the program."""
    import torch

    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            result = self.whole.block(self.whole.embedded(points))
            return result.squeeze(-1) if result.shape[-1] == 1 else result

    return Program().eval()


def _points(network: Network, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Random points of the box, the first two its lowest and its highest corner."""
    low, high = network.box
    X = low + (high - low) * np.random.default_rng(0).random((count, len(low)))
    X = np.clip(X, low, high)
    X[:2] = np.stack([low, high])[: len(X)]
    return X


def _compare(approximant: Any, program: Any, dtype: str) -> tuple[float, float]:
    """(largest difference between program and NumPy reference, what rounding allows).

    In the network's own dtype both lie within the certificate's rounding part of the same real number; where rounding
    moves walls, within the certificate's bound of the same target (of an L^p norm that tells nothing: no check). In
    another dtype there is no certificate, and the allowance, 2^12 ulp of the largest value, a plausibility check only.
    """
    import torch

    network = approximant.network
    worst = 0.0
    for count in BATCHES:
        X = _points(network, count)
        with torch.no_grad():
            seen = program(torch.tensor(X, dtype=getattr(torch, dtype))).double().numpy().reshape(count, -1)
        gap = np.abs(seen - np.asarray(evaluate(network, X), dtype=np.float64).reshape(count, -1))
        worst = float(np.maximum(worst, gap.max()))  # NumPy's maximum keeps NaN
    certificate = approximant.certificate
    within = None if certificate is None else certificate.parts.get("rounding")
    if certificate is not None and "rounding at walls" in certificate.parts:
        within = certificate.error[1] if math.isinf(certificate.norm) else math.inf
    ulp = float(np.finfo(dtype).eps) * max(1.0, network.cost.max_value)
    if dtype == network.dtype and within:
        return worst, max(2 * float(within), 16 * ulp)
    return worst, 2.0**12 * ulp
