"""Tokens that find their partners mod M: the kind behind `matching`."""

from attnfun.kinds import token_kind

KIND = token_kind("matching", "Matches", "Matching")
