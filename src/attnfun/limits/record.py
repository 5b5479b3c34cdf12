"""Record: an answer whose fields are its JSON; and `texts`, what answers say in words."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from attnfun.language.brief import Brief


class Record(Brief):
    """Base of answers, frozen dataclasses: the fields that `repr` shows, in order, then the names in `also`; or the
    names in `told` alone."""

    also: ClassVar[tuple[str, ...]] = ()
    told: ClassVar[tuple[str, ...]] = ()

    def record(self) -> dict[str, Any]:
        """As JSON: fractions as text, numbers that are not finite as null."""
        own = self.told or [field.name for field in fields(self) if field.repr]  # type: ignore[arg-type]
        return {name: plain(getattr(self, name)) for name in (*own, *self.also)}


def plain(value: Any) -> Any:
    """Records, tuples, mappings, fractions and floats as JSON has them."""
    if isinstance(value, Record):
        return value.record()
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Fraction) else value


@cache
def texts(name: str) -> Mapping[str, Any]:
    """The hypotheses, sources and statements of an answer, from `texts.toml`; lists as tuples."""
    found = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))[name]
    return {key: tuple(text) if isinstance(text, list) else text for key, text in found.items()}
