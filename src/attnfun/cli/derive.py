"""Commands from verbs: arguments and options are read off the verb's signature, words off its `Command`.

What an option is called, which type it has and what it is unless given stands in the verb and nowhere else. A command
that is not the one asked for is listed by its name and summary alone, so that `--help` imports no verb.

A verb returns a model, or what has a `record`; a front may return a pair of that and of what its record holds besides,
or an `Answer`.
"""

import inspect
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from attnfun.cli.arguments import READERS, picture_path, read_domain, unshield, whole_numbers
from attnfun.cli.records import model_page, model_record
from attnfun.cli.render import EXIT, Interrupted, Part, filled, page, print_json, progress_bar, told, viewed
from attnfun.files import require_writable
from attnfun.kinds import Command, declared, named

_KINDS: Mapping[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
_INTERVALS = ("domain", "left", "right")
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True)
class Answer:
    """What a command says: its record, and how, where that differs from what the record alone would say."""

    record: dict[str, Any]
    made: Any = None  # what -o saves and --png draws
    draw: Callable[[str], Any] | None = None
    said: dict[str, Any] = field(default_factory=dict)  # what only the sentences of the view ask for
    parts: Sequence[Part] | None = None  # the page
    text: str | None = None  # plain text in place of a page
    notes: Sequence[str] = ()  # lines for stderr
    code: int | None = None


@dataclass(frozen=True)
class Asked:
    """An argument or option: a parameter of the verb, and the words that the command line has for it."""

    name: str
    flags: tuple[str, ...]
    type: str
    default: Any
    metavar: str
    help: str

    @property
    def kind(self) -> Any:
        """The type as it is typed: numbers that have sentences of their own are texts."""
        if "list[str]" in self.type or self.name in _INTERVALS:
            return list[str]
        if self.name in READERS or "Sequence" in self.type:
            return str
        plain = re.findall(r"\b(bool|int|float|str)\b", self.type)
        return str if "str" in plain or not plain else _KINDS[plain[0]]

    @property
    def parameter(self) -> inspect.Parameter:
        optional = self.default is None or self.kind == list[str]
        kind = self.kind | None if optional else self.kind
        if not self.flags:
            info = typer.Argument(metavar=self.metavar, help=self.help, show_default=False)
        else:
            told = all(self.default is not one for one in (None, False, _EMPTY))
            info = typer.Option(*self.flags, metavar=self.metavar or None, help=self.help, show_default=told)
        default = self.default
        if self.flags and self.kind == list[str]:
            default = None  # a missing interval has a sentence of its own
        elif self.kind is str and default not in (None, _EMPTY):
            default = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        place = inspect.Parameter.KEYWORD_ONLY  # then they may stand in any order
        return inspect.Parameter(self.name, place, annotation=Annotated[kind, info], default=default)

    def read(self, value: Any) -> Any:
        """What was typed, as the verb takes it."""
        if not self.flags and isinstance(value, list):
            return [unshield(text) for text in value]
        if not self.flags:
            return unshield(value) if isinstance(value, str) else value
        if self.name in _INTERVALS:
            return None if not value and self.default is None else read_domain(value or ())
        if value is None:
            return None
        if self.name in READERS:
            return READERS[self.name](value)
        if "Sequence" in self.type:
            return whole_numbers(self.flags[-1], value)
        if self.metavar.startswith("N|") and value.strip().lstrip("+-").isdigit():
            return int(value)
        return value


def asked(command: Command) -> list[Asked]:
    """What the command takes, arguments first."""
    taken = dict(inspect.signature(named(command.front or command.verb)).parameters)
    if command.front and any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
        taken = dict(inspect.signature(named(command.verb)).parameters) | taken
    parameters = {k: v for k, v in taken.items() if v.kind is not inspect.Parameter.VAR_KEYWORD}
    types = {k: (inspect.formatannotation(v.annotation), v.default) for k, v in parameters.items()}
    types |= {name: (kind, *(default or [None])) for name, (kind, _, *default) in command.options.items()}
    types |= {"output": ("str", None)} if command.output else {}
    types |= {"png": ("str", None)} if command.picture else {}
    types["as_json"] = ("bool", False)
    first = [name for name in command.arguments if name in types]
    rest = [name for name in types if name not in (*first, "progress", *command.leave)]
    return [_asked(name, *types[name], command) for name in first + rest]


def _asked(name: str, kind: str, default: Any, command: Command) -> Asked:
    own = {"output": command.output, "png": command.picture} | {k: v[1] for k, v in command.options.items()}
    common = declared("attnfun.cli")["words"].get(name, "")
    words = command.words.get(name) or own.get(name) or common
    shared = "" if isinstance(common, str) else common[0]
    metavar, told = (shared, words) if isinstance(words, str) else words
    told = re.sub(r"\{([\w.]+:\w+)\}", lambda names: ", ".join(named(names[1])), told)
    default = _EMPTY if name in command.required else command.defaults.get(name, default)
    default = None if default == "" else default
    if name in command.arguments:
        several = command.several and name == command.arguments[0]
        return Asked(name, (), "list[str]" if several else kind, default, metavar or name.upper(), told)
    flag = "--" + command.names.get(name, name.replace("_", "-"))
    short = {"output": ("-o", "--output"), "out": ("-o", "--out"), "jobs": ("-j", "--jobs"), "as_json": ("--json",)}
    return Asked(name, short.get(name, (flag,)), kind, default, metavar, told)


def derived(command: Command) -> Callable[..., int]:
    """A function that Typer takes for the command."""
    every = {one.name: one for one in asked(command)}

    def run(**given: Any) -> int:
        try:
            return _run(command, every, dict(given))
        except KeyboardInterrupt as error:
            raise Interrupted(error.args[0] if error.args else filled(command.goes_on, given)) from None

    order = [one.parameter for one in every.values()]
    run.__signature__ = inspect.Signature(order)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in order} | {"return": int}
    run.__doc__ = described(command)
    return run


def _run(command: Command, every: Mapping[str, Asked], given: dict[str, Any]) -> int:
    """Read what was typed, call the verb, save, draw and say what came of it."""
    as_json, output = given.pop("as_json"), given.pop("output", None) if command.output else None
    beside = command.beside.format_map(given) if command.beside else output
    picture = picture_path(given.pop("png", None), beside)
    files = [one for one in ("out", "output", "markdown", "checkpoint") if one in every and every[one].metavar != "DIR"]
    for path in filter(None, (output, picture, *map(given.get, files))):
        require_writable(path)
    request = {name: every[name].read(value) for name, value in given.items()}
    request = {k: v for k, v in request.items() if v is not None or k not in command.options}
    texts: list[str] = request[command.arguments[0]] if command.several and not command.front else []
    if texts:
        request[command.arguments[0]] = texts[0] if len(texts) == 1 else texts
    call = named(command.front or command.verb)
    start = time.perf_counter()
    with progress_bar(command.name) as progress:
        if "progress" in inspect.signature(call).parameters:
            request["progress"] = progress
        found = call(**request)
    answer = _answer(found, "; ".join(texts), time.perf_counter() - start)
    record = answer.record
    if output:
        answer.made.save(output)
        record["output" if "file" in record else "file"] = output
    if picture:
        with progress_bar(f"draw {picture}"):
            (answer.draw or answer.made.plot)(picture)
        record["png"] = picture
    if as_json:
        print_json(record)
    elif answer.text is not None:
        sys.stdout.write(answer.text)
    else:
        page(_parts(command, answer))
    for note in answer.notes:
        print(note, file=sys.stderr)
    return EXIT.get(str(record.get("status")), 0) if answer.code is None else answer.code


def _answer(found: Any, name: str, seconds: float) -> Answer:
    from attnfun.model import Model

    if isinstance(found, Answer):
        return found
    made, more = found if isinstance(found, tuple) else (found, {})
    own = model_record(made, name or None, seconds) if isinstance(made, Model) else made.record()
    return Answer(own | more, made)


def _parts(command: Command, answer: Answer) -> Iterator[Part]:
    if answer.parts is not None:
        yield from answer.parts
    elif isinstance(command.view, str):
        yield from named(command.view)(answer.record | answer.said)
    elif command.view:
        yield from viewed(answer.record | answer.said, command.view, command.items)
    elif "proof" in answer.record:
        yield from model_page(answer.record)
    else:
        yield from ((key.replace("_", " "), told(value) or None) for key, value in answer.record.items())


def described(command: Command) -> str:
    """The help text: summary, further words, examples."""
    lines = "\n".join("  " + example.replace("[", "\\[") for example in command.examples)
    return f"{command.summary}\n\n{command.more}\n\n\b\n[bold]Examples[/bold]\n{lines}".replace("\n\n\n\n", "\n\n")


def listed(command: Command) -> Callable[[], int]:
    """The command as `--help` lists it."""

    def stub() -> int:
        return 0

    stub.__doc__ = command.summary
    return stub
