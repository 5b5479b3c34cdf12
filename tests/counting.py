"""Work counted in Python calls, never timed."""

from __future__ import annotations

import sys
from collections.abc import Callable

from attnfun.errors import AttnfunError

CALLS = 4_000_000


class TooManySteps(AssertionError):
    pass


def counted(work: Callable[[], object], limit: int = CALLS) -> int:
    """How many Python calls `work` makes; TooManySteps past the limit. What attnfun refuses is an answer."""
    calls = 0

    def hook(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"
        if calls > limit:
            sys.setprofile(None)
            raise TooManySteps(f"more than {limit:,} calls")

    sys.setprofile(hook)
    try:
        work()
    except AttnfunError:
        pass
    finally:
        sys.setprofile(None)
    return calls
