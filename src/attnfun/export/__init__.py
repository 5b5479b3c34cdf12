"""Networks for other runtimes. Each file is written, loaded back and compared before it is handed over."""

from attnfun.export.torch_file import export

__all__ = ["export"]
