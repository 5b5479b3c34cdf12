"""nnsight traces and patches the heads of an ordinary torch module: every head is a submodule that is called."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.mark.skipif(find_spec("nnsight") is None, reason="nnsight is large: `make test-hooks` installs it")
def test_heads_and_units_are_seen_and_patched_by_name() -> None:
    """In a process of its own: importing nnsight gives every Python object a `save`."""
    here = Path(__file__).parent
    paths = [*sys.path, str(here.parent)]
    code = f"import sys, runpy; sys.path[:0] = {paths!r}; runpy.run_path({str(here / 'traced.py')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout.endswith("traced\n"), done.stderr[-2000:]
