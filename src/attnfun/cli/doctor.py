"""What a report of a fault should say of the machine: versions, the default dtype, linear algebra, floating point."""

import inspect
import os
import platform
from importlib import metadata
from typing import Any

from attnfun.cli.derive import Answer
from attnfun.errors import AttnfunError

CORE = ("numpy", "scipy", "python-flint", "safetensors", "threadpoolctl", "typer", "rich")
MORE = (
    *("torch", "onnx", "onnxruntime", "numba", "huggingface-hub", "transformer-lens", "nnsight", "matplotlib"),
    *("joblib", "dask", "distributed", "scikit-learn", "jinja2", "psutil"),
)


def examined() -> Answer:
    """Nothing of it names a user or a folder. Exit code 1 where no bound can be proved on this machine."""
    import scipy.linalg  # noqa: F401  # brings NumPy's and SciPy's libraries, so that both are listed
    from threadpoolctl import threadpool_info

    import attnfun as af

    packages = {name: _version(name) for name in (*CORE, *MORE)}
    trouble = _trouble()
    shown = ("internal_api", "version", "architecture", "threading_layer", "num_threads")
    libraries = [{name: one.get(name) for name in shown} for one in threadpool_info()]
    record: dict[str, Any] = {
        "status": "unsound" if trouble else "sound",
        "attnfun": af.__version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": os.cpu_count(),
        "dtype": inspect.signature(af.compile).parameters["dtype"].default,
        "floating_point": trouble or "rounds to nearest and keeps subnormal numbers",
        "libraries": sorted(libraries, key=lambda one: str(one["version"])),
        "packages": packages,
    }
    rows = [{"name": name, "version": version or "not installed"} for name, version in packages.items()]
    return Answer(record, said={"rows": rows}, code=1 if trouble else 0)


def _version(package: str) -> str | None:
    """Of an installed package, which is not imported for it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _trouble() -> str | None:
    """Why no bound could be proved here: what every proof checks before it begins."""
    from attnfun.language.enclosures import check_rounding

    try:
        check_rounding()
    except AttnfunError as error:
        return str(error)
    return None
