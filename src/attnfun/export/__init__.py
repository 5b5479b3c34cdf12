"""Networks for other places. Each file is read back and compared with the network before it is handed over.

| name | what is written |
| --- | --- |
| torch | a `torch.export` program (.pt2), which any torch ≥ 2.6 runs without attnfun |
| onnx | an ONNX graph of standard operators, for onnxruntime and other engines |
| numpy | one readable .py: the weights, and the dozen lines of NumPy that evaluate them |
| tex | the weights as LaTeX matrices, for the appendix of a paper (small networks) |
"""

from attnfun.export.common import certified_by, export

__all__ = ["certified_by", "export"]
