"""Networks for other places. Each file is read back and compared with the network before it is handed over.

| name | what is written |
| --- | --- |
| torch | a `torch.export` program (.pt2), which any torch ≥ 2.6 runs without attnfun |
| onnx | an ONNX graph of standard operators, for onnxruntime and other engines |
| numpy | one readable .py: the weights, and the lines of NumPy that evaluate them |
| tex | the weights as LaTeX matrices, for the appendix of a paper (small networks) |

A writer is a function of a model and a dtype. Failure modes: a package is not installed; weights without a plain form
are refused in their own words; matrices that are too large are refused with their size (Infeasible); a place that
cannot be written.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnfun.errors import AttnfunError, InvalidRequest, require
from attnfun.export.common import certified_by, compare
from attnfun.files import require_writable, write_whole
from attnfun.kinds import named
from attnfun.model import Model
from attnfun.network.head import require_dtype

__all__ = ["WRITERS", "certified_by", "export"]

WRITERS: Mapping[str, str] = {
    "torch": "attnfun.export.torch_file:written",
    "onnx": "attnfun.export.onnx_file:written",
    "numpy": "attnfun.export.numpy_file:written",
    "tex": "attnfun.export.tex_file:written",
}


def export(model: Model[Any, Any], path: str | Path, to: str = "torch", dtype: str | None = None) -> dict[str, Any]:
    """Write a model of any kind to `path` as a file of the format `to`; returns what was written, how far it is off."""
    require(to in WRITERS, f"export to {to!r}: known formats are {', '.join(WRITERS)}")
    if not isinstance(model, Model):
        raise InvalidRequest(f"export writes models, as `compile` and `load` return them, not {model!r:.60}")
    dtype = dtype or model.dtype
    require_dtype(dtype)
    require_writable(path)
    made = named(WRITERS[to])(model, dtype)
    record = dict(made.record)
    if made.run is not None:
        difference, allowed, shapes = compare(model, made.run, dtype)
        if not difference <= allowed:  # written so that NaN fails
            raise AttnfunError(f"the file differs from the network by {difference:.3g} (allowed {allowed:.3g})")
        given, returned = shapes
        inputs, outputs = (", ".join(getattr(model.weights, names, ())) for names in ("inputs", "outputs"))
        record["input"] = f"{given} {dtype}: {inputs}".removesuffix(": ")
        record["returns"] = f"{returned}: {outputs}" if outputs and "," in returned.rstrip(",)") else returned
        record |= {"difference": difference, "allowed": allowed}
    write_whole(path, made.data)
    return record | {"hash": model.hash, "bytes": len(made.data)}
