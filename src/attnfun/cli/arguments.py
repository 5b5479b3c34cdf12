"""Reading what was typed: tokens that begin with '-', domains, points, norms, CSV files."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnfun.errors import InvalidRequest, require

# `--png` may stand alone; the picture then takes the network's name.
OPTIONAL_VALUE = "--png"


def shield(group: Any, tokens: Sequence[str]) -> list[str]:
    """argv with a space before each positional token that begins with '-': '-o*x' is an expression, not an option.

    A token is left alone if it is exactly an option of the command (`-o`, `--eps`, `--eps=1`), the value of the option
    before it, `-`, or a misspelt long option (which deserves its own message).
    """
    tokens = list(tokens)
    at = next((i for i, token in enumerate(tokens) if not token.startswith("-")), None)
    command = getattr(group, "commands", {}).get(tokens[at]) if at is not None else None
    if at is None or command is None:
        return tokens
    if hasattr(command, "commands"):  # a group of commands, as `bounds`
        return tokens[: at + 1] + shield(command, tokens[at + 1 :])
    takes_value = {"--help": False, "-h": False}
    for parameter in command.params:
        if parameter.param_type_name == "option":
            for name in (*parameter.opts, *parameter.secondary_opts):
                takes_value[name] = not parameter.is_flag
    out, rest = tokens[: at + 1], tokens[at + 1 :]
    while rest:
        token = rest.pop(0)
        name = token.partition("=")[0] if token.startswith("--") else token
        if token == "--":
            out += ["--", *rest]
            break
        if name in takes_value:
            out.append(token)
            if token == OPTIONAL_VALUE and (not rest or rest[0] in takes_value or rest[0].endswith(".safetensors")):
                out.append("")
            elif takes_value[name] and token == name and rest:
                out.append(rest.pop(0))
        elif token.startswith("-") and token != "-" and not _misspelt(token, takes_value):
            out.append(" " + token)
        else:
            out.append(token)
    return out


def _misspelt(token: str, known: dict[str, bool]) -> bool:
    name = token.partition("=")[0]
    if not re.fullmatch(r"--[a-z]{2,}(-[a-z]+)*", name):
        return False
    return bool(difflib.get_close_matches(name, [k for k in known if k.startswith("--")], cutoff=0.75))


def unshield(text: str) -> str:
    """The positional argument as it was typed."""
    return text[1:] if text.startswith(" -") else text


def read_domain(items: Sequence[str]) -> list[str]:
    """["x=-1:1;y=0:2", "z=0:1"] → ["x=-1:1", "y=0:2", "z=0:1"]; what they mean is for the target to say."""
    parts = [part.strip() for item in items for part in item.split(";") if part.strip()]
    require(parts, "no domain: give every variable its interval, as in --domain x=-1:1 --domain y=0:2")
    return parts


def read_eps(text: str) -> float:
    """The tolerance as a number; whether it can be met is for the construction to say."""
    return _number(text, f"--eps {text!r}")


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(f"{what} is not a number") from None


def read_point(text: str, names: Sequence[str]) -> list[float]:
    """'x=0.3,y=1' → [0.3, 1.0] in the order of `names`; every variable once. Of a vector x[3]=0.5 is one entry, and
    x=0.3 all that are not given so.
    """
    found: dict[str, float] = {}
    from attnfun.language.vectors import groups, is_vector  # here, for `--help` loads no algebra

    vectors = {base: members for base, members in groups(names).items() if is_vector(base, members)}
    for part in re.split(r"[,;]", text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        require(equals, f"--at {text!r}: {part.strip()!r} is not of the form name=number")
        known = name in names or name in vectors
        require(known, f"--at {text!r}: no variable {name!r}; the network takes {', '.join(groups(names))}")
        require(name not in found, f"--at {text!r}: {name!r} is given twice")
        found[name] = _number(value, f"--at {text!r}: {value!r}")
    for base in vectors.keys() & found.keys():
        found = dict.fromkeys(vectors[base], found[base]) | found
    missing = [name for name in names if name not in found]
    require(not missing, f"--at {text!r}: no value for {', '.join(missing)[:200]}")
    return [found[name] for name in names]


def read_points(path: str, names: Sequence[str]) -> list[list[float]]:
    """Rows of a CSV file whose header holds every variable; other columns are ignored."""
    from attnfun.files import Table

    return numbers(Table.read(path), names)


def numbers(table: Any, names: Sequence[str]) -> list[list[float]]:
    """These columns of a table."""
    rows = []
    for place, row in table.picked(names):
        rows.append([_number(cell, f"{place}: {cell!r} in column {name!r}") for cell, name in zip(row, names)])
    return rows


def picture_path(png: str | None, beside: str | None) -> str | None:
    """Where `--png` draws: the path given, or the network's own name with .png; refused where nothing can draw."""
    if png is not None:
        from attnfun.plots.style import require_matplotlib

        require_matplotlib()
    return str(Path(beside or "attnfun").with_suffix(".png")) if png == "" else png


def read_spectrum(text: str) -> tuple[float, float]:
    """“20:150” as two numbers."""
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        raise InvalidRequest(f"--spectrum {text!r}: write LOW:HIGH, as in 20:150") from None
    return low, high


def whole_numbers(option: str, text: str) -> list[int]:
    """“8,16,32” as whole numbers from 1 on."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    require(found and min(found) >= 1, f"{option} {text!r}: give whole numbers from 1 on, as in {option} 8,16,32")
    return found


READERS: Mapping[str, Callable[[str], Any]] = {"eps": read_eps, "spectrum": read_spectrum}
"""Options whose texts have sentences of their own for what cannot be read."""
