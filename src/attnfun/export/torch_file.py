"""A model as a `torch.export` program (.pt2), the weights as any torch ≥ 2.6 runs them, without attnfun."""

import io
from typing import Any

import numpy as np

from attnfun.export.common import Written, probes
from attnfun.model import Model


def written(model: Model[Any, Any], dtype: str) -> Written:
    """The program as bytes, and read back. Failure mode: torch is not installed (AttnfunError)."""
    whole = model.to_torch(dtype)
    import torch

    kind = getattr(torch, dtype)

    class Program(torch.nn.Module):
        """The module, its arguments called alike whatever its kind."""

        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, *given: torch.Tensor) -> Any:
            return self.whole(*given)

    example = tuple(torch.tensor(array, dtype=kind) for array in probes(model)[2])
    dims = {0: torch.export.Dim.AUTO}
    dims |= {1: torch.export.Dim.AUTO} if any(one.ndim == 3 for one in example) else {}
    free = tuple(dims for _ in example)
    with torch.no_grad():
        program = torch.export.export(Program().eval(), example, dynamic_shapes=(free,))
    stream = io.BytesIO()
    torch.export.save(program, stream)
    again = torch.export.load(io.BytesIO(stream.getvalue())).module()

    def run(*arrays: Any) -> Any:
        with torch.no_grad():
            return again(*(torch.tensor(np.ascontiguousarray(array), dtype=kind) for array in arrays)).numpy()

    return Written(stream.getvalue(), run, {"format": "torch.export program", "torch": str(torch.__version__)})
