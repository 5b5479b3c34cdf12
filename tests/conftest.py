"""Property tests draw the same examples in every run: a failure is a change of the code, not of the dice.

Linear algebra has one thread: the workers of a run share the cores, and idle threads of a pool spin. The variables are
read when NumPy and torch are first imported, so they come before any other import.
"""

from __future__ import annotations

import os

for _pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_pool, "1")

from hypothesis import settings  # noqa: E402

settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
