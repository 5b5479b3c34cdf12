"""A side of `compile.py`: compiles what it is asked, with whichever sources it is run with.

It imports nothing of attnfun but what every commit has. Each line of JSON that it reads is answered with one, from a
process forked for it after one formula was compiled: everything is imported, and nothing that another formula left in
a cache helps.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import attnfun as af

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "goldens"))
from goldens import CERTIFICATE, arrays_of, plain


def made(request: dict[str, Any]) -> dict[str, Any]:
    """CPU seconds of one compilation, and what it gave."""
    start = time.process_time()
    try:
        net = af.compile(request["formula"], request["domain"], request["eps"], relative=request["relative"])
    except af.AttnfunError as why:
        return {"seconds": time.process_time() - start, "gave": f"{type(why).__name__}: {why}"}
    seconds = time.process_time() - start
    return {"seconds": seconds, "gave": [arrays_of(net), *(plain(getattr(net.certificate, p)) for p in CERTIFICATE)]}


def main() -> None:
    af.compile("sin(x*y) + exp(x)/(y + 2)", "x=-1:1;y=0:1", 1e-3, relative=True)
    print(Path(af.__file__).parents[1], flush=True)
    gc.freeze()  # else a collection copies all that was imported into every fork
    for line in sys.stdin:
        child = os.fork()
        if not child:
            print(json.dumps(made(json.loads(line))), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


main()
