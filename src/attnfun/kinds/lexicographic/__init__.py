"""The lexicographically best key of a grid: the kind behind `lexicographic`."""

from attnfun.kinds import token_kind

KIND = token_kind("lexicographic", "BestKey", "LexicographicHead", commands=__name__)
