"""What stands in for a row in the tests of suites: a network is compiled, then done with as the target's name says."""

from __future__ import annotations

import os
import time
from typing import Any


def record(net: Any, name: str, seconds: float) -> dict[str, Any]:
    began = time.time()
    verb, _, value = name.partition(" ")
    if verb == "exit":
        os._exit(int(value))
    if verb == "die":
        os.kill(os.getpid(), int(value))
    if verb == "sleep":
        time.sleep(float(value))
    if verb == "odd":
        return {"name": name, "status": object()}
    who = {"pid": os.getpid(), "worker": os.getppid(), "began": began, "ended": time.time()}
    return {"name": name, "status": "proved", "seconds": seconds, **who}


def failure(error: BaseException) -> dict[str, Any]:
    return {"status": "invalid", "reason": str(error)}
