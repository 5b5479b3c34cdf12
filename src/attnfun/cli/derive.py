"""Commands from verbs: arguments and options are read off the verb's signature, words off its `Command`.

What an option is called, which type it has and what it is unless given stands in the verb and nowhere else. A command
that is not the one asked for is listed by its name and summary alone, so that `--help` imports no verb.
"""

from __future__ import annotations

import inspect
import time
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from attnfun.cli.arguments import check_writable, picture_path, read_domain, read_eps, read_norm, unshield
from attnfun.cli.records import kept, model_record, print_model
from attnfun.cli.render import EXIT, progress_bar
from attnfun.kinds import Command, named

INTERVALS = ("domain", "left", "right")
HELPS = {
    "eps": "The tolerance.",
    "domain": "One interval per variable, as in x=-1:1.",
    "left": "One interval per left variable.",
    "right": "One interval per right variable.",
    "method": "How it is built; auto takes the smallest that fits.",
    "norm": "sup, or p >= 1 for the volume-normalised L^p norm.",
    "relative": "eps is a fraction of the target's range.",
    "dtype": "float64 or float32: construct for this arithmetic.",
    "seed": "Same seed, same weights.",
    "accept": "proved, or sampled: take what is only measured, too.",
    "realise": "attention, or mlp: ReLU units instead of softmax heads.",
    "max_keys": "At most so many keys.",
    "max_layers": "At most so many layers.",
    "max_heads": "At most so many heads.",
    "max_rank": "At most this rank per head.",
}
METAVARS = {"eps": "NUMBER", "domain": "x=LOW:HIGH", "left": "x=LOW:HIGH", "right": "y=LOW:HIGH"}
_READERS: Mapping[str, Callable[[Any], Any]] = {"eps": read_eps, "norm": read_norm} | dict.fromkeys(
    INTERVALS, read_domain
)
_PLAIN = (bool, int, float, str)


def derived(command: Command) -> Callable[..., int]:
    """A function that Typer takes for the command."""
    verb = named(command.verb)
    hints = get_type_hints(verb)
    asked = [
        one
        for one in inspect.signature(verb).parameters.values()
        if one.name not in ("progress", *command.leave) and one.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    shown = [_parameter(one, hints.get(one.name, Any), command) for one in asked]
    shown += [_further(name, one.type, one.default, one.help) for name, one in command.options.items()]
    shown.append(_option("output", str | None, None, "Save it here.", "-o", "--output", metavar="FILE"))
    if command.picture:
        shown.append(_option("png", str | None, None, "Draw it.", "--png", metavar="[FILE]"))
    shown.append(_option("as_json", bool, False, "One JSON object on stdout and nothing else there.", "--json"))

    def run(**given: Any) -> int:
        output, as_json = given.pop("output"), given.pop("as_json")
        picture = picture_path(given.pop("png", None), output)
        check_writable(output, picture)
        texts = [unshield(text) for text in given.get(command.arguments[0]) or ()] if command.several else []
        for name in command.arguments:
            given[name] = _typed(given[name], command.several)
        request = {name: _read(name, value) for name, value in given.items() if name not in _skipped(verb, name, value)}
        if command.prepare:
            request = named(command.prepare)(request)
        start = time.perf_counter()
        with progress_bar(command.name) as progress:
            model = verb(**request, progress=progress) if "progress" in hints else verb(**request)
        record = model_record(model, "; ".join(texts) or None, time.perf_counter() - start)
        print_model(kept(model, record, output, picture), as_json)
        return EXIT[str(record["status"])]

    order = sorted(shown, key=lambda one: one.default is not inspect.Parameter.empty)
    run.__signature__ = inspect.Signature(order)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in order} | {"return": int}
    run.__doc__ = described(command)
    return run


def described(command: Command) -> str:
    """The help text: summary, examples, further words."""
    lines = "\n".join(f"  {one}" for one in command.examples)
    return f"{command.summary}\n\n\b\n[bold]Examples[/bold]\n{lines}\n\n{command.more}".rstrip()


def listed(command: Command) -> Callable[[], int]:
    """The command as `--help` lists it."""

    def stub() -> int:
        return 0

    stub.__doc__ = command.summary
    return stub


def _skipped(verb: Callable[..., Any], name: str, value: Any) -> tuple[str, ...]:
    """An option of **kwargs that was not given is not handed on."""
    return (name,) if value is None and name not in inspect.signature(verb).parameters else ()


def _typed(value: Any, several: bool) -> Any:
    if not several:
        return unshield(value) if isinstance(value, str) else value
    texts = [unshield(text) for text in value or ()]
    return texts[0] if len(texts) == 1 else texts


def _read(name: str, value: Any) -> Any:
    if name in INTERVALS:
        return read_domain(value or ())
    return value if value is None or name not in _READERS else _READERS[name](value)


def _parameter(one: inspect.Parameter, hint: Any, command: Command) -> inspect.Parameter:
    text = command.helps.get(one.name, HELPS.get(one.name, ""))
    if one.name in command.arguments:
        kind = list[str] if command.several else _kind(one.name, hint)
        metavar = {"target": "EXPR", "utility": "EXPR"}.get(one.name, one.name.upper())
        info = typer.Argument(metavar=metavar + ("..." if command.several else ""), help=text, show_default=False)
        return inspect.Parameter(
            one.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[kind, info], default=one.default
        )
    kind, flag = _kind(one.name, hint), "--" + one.name.replace("_", "-")
    default = None if one.name in INTERVALS else one.default  # a missing interval has a sentence of its own
    if default is None:
        kind = kind | None
    names = (flag,) if one.name != "C" else ("--C",)
    return _option(one.name, kind, default, text, *names, metavar=METAVARS.get(one.name))


def _further(name: str, kind: Any, default: Any, text: str) -> inspect.Parameter:
    return _option(name, kind, default, text, "--" + name.replace("_", "-"))


def _option(
    name: str, kind: Any, default: Any, text: str, *flags: str, metavar: str | None = None
) -> inspect.Parameter:
    shown = default is not None and default is not False and default is not inspect.Parameter.empty
    info = typer.Option(*flags, help=text, metavar=metavar, show_default=shown)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info], default=default)


def _kind(name: str, hint: Any) -> Any:
    """The type as typed on a command line: intervals are lists of texts, numbers that have words of their own texts."""
    if name in INTERVALS:
        return list[str]
    if name in _READERS:
        return str
    inside = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    plain = [one for one in inside if one in _PLAIN]
    return plain[0] if plain else str
