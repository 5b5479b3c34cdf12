"""What is asked: the target, its domain, and whether it is defined there."""

from attnfun.targets.definedness import natural_domain, require_defined
from attnfun.targets.domain import Box
from attnfun.targets.function import Function
from attnfun.targets.sequence import SequenceMap
from attnfun.targets.set_function import SetFunction

__all__ = ["Box", "Function", "SequenceMap", "SetFunction", "natural_domain", "require_defined"]
