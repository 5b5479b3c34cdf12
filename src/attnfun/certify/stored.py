"""What every file keeps beside weights and target: the claim, the request and the certificate."""

import math
from collections.abc import Mapping
from typing import Any

from attnfun.certify.certificate import Certificate
from attnfun.errors import DamagedFile
from attnfun.network.claim import Claim


def kept(request: Mapping[str, Any], certificate: Certificate | None, norm: float | str = math.inf) -> dict[str, Any]:
    """For a file's meta; the claim is in the hash, request and certificate may be deleted."""
    own = {"claim": Claim.made(request, norm).to_json(), "request": dict(request)}
    return own if certificate is None else {**own, "certificate": certificate.to_file()}


def read_back(meta: Mapping[str, Any], dtype: str, text: str, domain: str) -> tuple[Certificate, dict[str, Any], Claim]:
    """The certificate as stored, not verified; the request, in which the claim has the last word; the claim."""
    claim = Claim.of(meta)
    certificate = Certificate.stored(meta.get("certificate"), claim, dtype, text, domain)
    return certificate, claim.request(meta.get("request")), claim


def story_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What the file tells of its making; DamagedFile where that is no record."""
    story = meta.get("story") or {}
    if not (isinstance(story, dict) and isinstance(story.get("methods", {}), dict)):
        raise DamagedFile("the file's story cannot be read")
    return dict(story)
