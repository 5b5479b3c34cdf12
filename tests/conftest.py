"""Property tests draw the same examples in every run: a failure is a change of the code, not of the dice."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
