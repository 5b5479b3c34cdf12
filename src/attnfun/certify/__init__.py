"""From weights and target to a proved bound; never from a construction."""

from attnfun.certify.certificate import Certificate, Status

__all__ = ["Certificate", "Status"]
