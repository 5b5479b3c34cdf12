"""A side of `compile.py`: does what it is asked, with whichever sources it is run with.

It imports nothing of attnfun but what every commit has, and calls it by its public names and its command line. Each
line of JSON that it reads is answered with one, from a process forked for it after one formula was compiled:
everything is imported, and nothing that another request left in a cache helps.
"""

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from safetensors.numpy import save_file

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


# The requests that are named. One that returns a function asks to have that timed instead.


def mlp() -> Any:
    rng, sizes, weights = np.random.default_rng(4), (3, 7, 5, 2), {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        weights[f"{2 * layer}.weight"] = rng.normal(size=(outputs, inputs)) / np.sqrt(inputs)
        weights[f"{2 * layer}.bias"] = 0.3 * rng.normal(size=outputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlp.safetensors"
        save_file(weights, path)
        return af.compile(str(path), (-1, 1), 1e-3)


def ridge() -> Any:
    return af.in_context("ridge", dim=100, examples=1000, alpha=1.0, eps=1e-6)


def vote() -> Any:
    net = af.neighbours(64, method="majority_vote", heads=4097)
    net.measured(3_000, seed=0)  # as the command does, of 10,000 queries
    return net


def matern() -> Any:
    r = "(sqrt(5)*2*abs(x - y))"
    return af.relation(f"(1 + {r} + {r}**2/3)*exp(-{r})", "x=0:1", "y=0:1", 1e-3, symmetric=True)


def documents() -> Any:
    """Half of the pairs are relevant, which needs many dimensions and long descents: half a minute at first."""
    return af.embed_dim((np.random.default_rng(0).uniform(size=(500, 60)) < 0.5).astype(int))


def lasso() -> Any:
    """Six steps, about half a minute at first: of two, a third is imports and looks at the probe."""
    net = af.in_context("lasso", dim=8, examples=64, alpha=0.1, layers=3, accept="sampled")
    return lambda: af.train(net, steps=6, proof=False)


def commands(*lines: list[str]) -> float:
    """CPU seconds of the command line, each line in a process of its own."""
    run = "import sys; from attnfun.cli import main; sys.exit(main(sys.argv[1:]))"
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    for line in lines:
        subprocess.run([sys.executable, "-c", run, *line], check=True, stdout=subprocess.DEVNULL)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


def help_page() -> float:
    return commands(["--help"])


def verified() -> float:
    """Three files, each of this side's own."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{k}.safetensors") for k in range(3)]
        af.compile("sin(3*x) + cos(2*y)*exp(x*y)", "x=-1:1;y=-1:1", 1e-6).save(files[0])
        af.compile("sin(3*x) + cos(2*y)*exp(x*y)", "x=-1:1;y=-1:1", 1e-6, method="bernstein").save(files[1])
        af.relation("exp(x*y)", "x=0:1", "y=0:1", 1e-6).save(files[2])
        return commands(*(["verify", file] for file in files))


NAMED: dict[str, Callable[[], Any]] = {
    "MLP 3-7-5-2 at 1e-3": mlp,
    "ridge, d = 100, n = 1,000": ridge,
    "majority vote, d = 64, H = 4,097": vote,
    "Matérn 5/2 at 1e-3": matern,
    "embed-dim, 500 queries, 60 documents": documents,
    "six steps of training a lasso": lasso,
    "attnfun --help": help_page,
    "attnfun verify, three files": verified,
}


def named(name: str) -> dict[str, Any]:
    """CPU seconds of a named request, and its keys and bound, where it has them."""
    import torch  # noqa: F401  what training imports

    start = time.process_time()
    found = NAMED[name]()
    if isinstance(found, FunctionType):
        start = time.process_time()
        found = found()
    seconds = found if isinstance(found, float) else time.process_time() - start
    keys, certificate = getattr(getattr(found, "cost", None), "keys", None), getattr(found, "certificate", None)
    return {"seconds": seconds, "keys": keys, "bound": certificate.error[1] if certificate else None}


def main() -> None:
    af.compile("sin(x*y) + exp(x)/(y + 2)", "x=-1:1;y=0:1", 1e-3, relative=True)
    print(Path(af.__file__).parents[1], flush=True)
    gc.freeze()  # else a collection copies all that was imported into every fork
    for line in sys.stdin:
        child = os.fork()
        if not child:
            request = json.loads(line)
            print(json.dumps(named(request["named"]) if "named" in request else made(request)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
