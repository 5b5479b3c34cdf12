"""What is done with files of any kind: `load` (what it was, as stored) and `verify` (prove it again).

A file says its kind; the registry (`attnfun.kinds`) knows what a kind is made of. No kind is named here.
"""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from attnfun.certify.certificate import Certificate, read_back, story_of
from attnfun.errors import AttnfunError, DamagedFile, InvalidRequest, intact, require
from attnfun.kinds import Kind, find
from attnfun.language.domain import Box
from attnfun.language.enclosures import check_rounding
from attnfun.language.mlp import input_box
from attnfun.language.target import Target
from attnfun.network import store
from attnfun.network.claim import MEAN_SQUARE, Claim
from attnfun.network.sealed import Held, Source, held
from attnfun.search import Goal, certified, check_request, one_thread, read_norm


def load(path: str | os.PathLike[str]) -> Any:
    """The model of a file, as what it was; damaged or foreign files raise DamagedFile.

    Nothing is proved: its certificate is the stored one, and says so: its status is `stored`. Tensors of 64 MiB or more
    of a network for a function are not read but stay in the file (`attnfun.files.Mapped`).
    """
    kind, target, weights, meta = _read(path, (), mapped=True)
    certificate, request, _ = read_back(meta, weights.dtype, target.text, target.domain, target.left_out)
    return kind.loaded("view")(target, weights, certificate, request, story_of(meta))


def verify(
    path: str | os.PathLike[str],
    target: Any = None,
    *,
    eps: float | None = None,
    domain: Any = None,
    norm: float | str | None = None,
    dtype: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Certificate:
    """Prove the bound again from the stored weights and the stored target alone; the stored certificate, request and
    story are not read.

    `target` (an expression, or the Python function of a black box), `domain`, `norm` and `dtype` are what you expect:
    they are compared with what the file says, and a difference is an InvalidRequest. The verdict is about `eps`, which
    is absolute; if it is not given, about the eps for which the file says it was made (its absolute value, recomputed
    for relative requests). Without either a finite bound is `bounded`, never `proved`: trained networks have no eps.
    """
    check_request(1.0 if eps is None else eps, "float64" if dtype is None else dtype, 0)
    check_rounding()  # numbers of a file would be read otherwise too
    _, asked, weights, meta = _read(path, ("certificate", "request", "story"))
    claim = Claim.of(meta)
    asked.accepts(claim.norm, claim.relative)
    expected = norm if norm in (None, MEAN_SQUARE) else read_norm(norm)
    if expected is not None and expected != claim.norm:
        raise InvalidRequest(f"the file is about {claim.norm_text}, not about {Claim(None, expected).norm_text}")
    require(dtype is None or dtype == weights.dtype, f"the file's network runs in {weights.dtype}, not in {dtype}")
    if domain is not None:
        _compare_domain(domain, getattr(asked, "box", None))
    if target is not None:
        asked = asked.against(target)
    wanted, relative = claim.absolute if eps is None else float(eps), None
    with one_thread():
        if eps is None and claim.relative and claim.eps is not None:
            wanted, relative = asked.absolute(claim.eps, weights.dtype)
        name = "learned" if claim.trained else ""
        return certified(asked, weights, Goal(wanted, claim.order, relative), name, progress)


def _compare_domain(domain: Any, box: Box | None) -> None:
    """Refuse another domain than `box`, variables in any order."""
    if box is None:
        raise InvalidRequest("the file is not about an expression on a box: leave domain out")
    try:
        given = Box.parse(domain)
    except InvalidRequest:
        given = input_box(domain, box.dim)  # intervals without names, as an MLP takes them
    mine, yours = (set(zip(one.names, one.low, one.high, strict=True)) for one in (given, box))
    require(mine == yours, f"the file is about the domain {box.text}, not about {given.text}")


def _read(source: Source, ignore: Collection[str], mapped: bool = False) -> tuple[Kind, Target, Any, Mapping[str, Any]]:
    file = held(source, mapped)
    if file.format != store.FORMAT:
        raise DamagedFile(f"{file} is a file of another format than {store.FORMAT!r}, which is what is read here")
    kind = find(file.record.get("kind"))
    if not (mapped and kind.mapped):
        file = file.in_memory()
    weights, meta = store.read(file, kind.weight_classes, ignore)
    target = _target(kind, file, meta.get("target"))
    why = target.fits(weights)
    intact(not why, why)
    return kind, target.completed(weights), weights, meta


def _target(kind: Kind, file: Held, data: Any) -> Target:
    try:
        target: Target = kind.loaded("target").from_json(data)
    except AttnfunError as error:
        raise DamagedFile(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise DamagedFile(f"{file}: its target cannot be read ({type(error).__name__})") from error
    return target
