"""Text to graph. The text is never run: it is scanned, parsed by `ast`, and only the nodes listed here are read.

    numbers   exact: 0.1 is 1/10, read from the text and not from the double
    names     a name of the domain is a variable, whatever it is called (e, pi, I, gamma); else pi and e are constants;
              a name followed by "(" is a function: gamma may be both
    + - * / ** // %, unary minus, brackets, and calls of CALLS
    < <= > >= == !=, also a < x < b; and, or, not, or & | ~ with brackets around comparisons; a if c else b

The scan comes first and accepts exactly the sentences of this small grammar, so Python's own parser, which may be slow
or run out of stack on hostile text, sees only short, shallow and correct input.

Failure mode: always `InvalidRequest` with one line that repeats the text and names the column (counted from 1).
"""

import ast
import difflib
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial, reduce
from itertools import pairwise
from typing import Final, NoReturn

from attnfun.errors import InvalidRequest, require
from attnfun.language.graph import MAX_NODES, MAX_OUTPUTS, OUT_OF_RANGE, Builder, Graph, is_name, shown
from attnfun.language.operations import CALLED
from attnfun.language.operations.entry import Derived
from attnfun.language.truth import (
    both,
    ceiling,
    chosen,
    compared,
    either,
    floor_divided,
    heaviside,
    negated,
    remainder,
    truncated,
)

MAX_CHARACTERS: Final = 20_000
MAX_DEPTH: Final = 200  # of brackets, of signs in a row, of powers of powers; Python's tokenizer has the same limit
MAX_TERMS: Final = 5_000  # numbers, names, operators and calls
MAX_HEIGHT: Final = 800  # of the syntax tree; a sum of n terms has height n, and Python's own parser recurses over it
MAX_DIGITS: Final = 400

_MANY: Final[Mapping[str, tuple[int, int]]] = {
    **{"max": (2, MAX_TERMS), "min": (2, MAX_TERMS), "clip": (3, 3)},
    **{"where": (3, 3), "heaviside": (2, 2), "ceil": (1, 1), "trunc": (1, 1)},
}
_MADE: Final[Mapping[str, Callable[..., int]]] = {
    "where": chosen, "heaviside": heaviside, "ceil": ceiling, "trunc": truncated,
}  # fmt: skip
CALLS: Final = tuple(dict.fromkeys((*CALLED, *_MANY)))
CONSTANTS: Final = ("pi", "e")

_TOKEN: Final = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<operator>\*\*|//|[<>=!]=|[-+*/%<>&|~])|(?P<open>\()|(?P<close>\))|(?P<comma>,)|(?P<space> +)"
)
_SPACES: Final = str.maketrans("\t\n\r\f\v", "     ")
_WORDS: Final = frozenset({"and", "or", "not", "if", "else"})
_PREFIXES: Final = frozenset({"+", "-", "~", "not"})
_OPENERS: Final = frozenset({"", "(", ",", "and", "or", "not", "if", "else"})  # a `not` stands after these alone
_OPERATORS: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
}  # fmt: skip
_COMPARISONS: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_MADE_OF_TWO: Final[Mapping[type[ast.AST], Callable[[Builder, int, int], int]]] = {
    ast.Mod: remainder, ast.FloorDiv: floor_divided,
    ast.BitAnd: both, ast.And: both, ast.BitOr: either, ast.Or: either,
}  # fmt: skip
_HINTS: Final[Mapping[str, str]] = {
    "^": "; powers are written x**2",
    ".": "; attributes are not part of an expression",
    "[": "; there is no indexing",
    "{": "; only round brackets group",
    "=": "; an expression has no = in it, and equality is written ==",
    "!": "; not is written not, or ~",
    "'": "; there are no strings",
    '"': "; there are no strings",
}


MoreCalls = Callable[[str, list[int], Builder], int | None]
"""What a target adds to the language: a call and its arguments, a node for it or None where the call is not its own."""


def parse(source: str | Sequence[str], names: Sequence[str], calls: MoreCalls | None = None) -> Graph:
    """The graph of one expression, or of a list of expressions (the outputs), in the variables `names`.

    `calls` is asked first about every call.
    """
    known = tuple(names)
    for name in known:
        if not is_name(name):
            reason = "letters, digits and _, not beginning with a digit, and no word of Python such as lambda"
            raise InvalidRequest(f"{shown(name)} cannot be the name of a variable: {reason}")
    require(len(set(known)) == len(known), f"a variable is named twice: {', '.join(known)[:200]}")
    texts = (source,) if isinstance(source, str) else tuple(source) if isinstance(source, Sequence) else None
    if not texts or len(texts) > MAX_OUTPUTS or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(f"an expression or a list of 1 to {MAX_OUTPUTS:,} was expected, not {shown(source)}")
    builder = Builder()
    outputs, terms = [], 0
    for text in texts:
        scan = _scan(text)
        terms += scan.terms
        if terms > MAX_NODES:
            _refuse(text, 0, f"the expressions together have more than {MAX_NODES:,} terms")
        outputs.append(_build(text, scan, known, builder, calls))
    return builder.graph(outputs)


def _refuse(text: str, at: int, reason: str) -> NoReturn:
    """Raise `InvalidRequest` for position `at` (from 0), repeating the part of the text around it."""
    start = 0 if len(text) <= 64 else max(0, min(at - 30, len(text) - 60))
    part = ascii(text[start : start + 64])[1:-1][:160]
    part = ("…" if start else "") + part + ("…" if start + 64 < len(text) else "")
    raise InvalidRequest(f"cannot read '{part}' at column {at + 1}: {reason}", column=at + 1)


@dataclass(frozen=True)
class _Scan:
    """What the scan found: the text with plain spaces, the exact numbers by position, how many terms there are."""

    text: str
    numbers: Mapping[int, Fraction]
    terms: int


@dataclass
class _Bracket:
    """An open bracket: where, whether it is a call's; operators of the argument being read; the height inside."""

    at: int
    call: bool
    operators: int = 0
    prefixes: int = 0  # signs, ** and not since the last + - * /: what nests to the right
    elses: int = 0  # what nests to the right until the argument ends
    waits: int | None = None  # where an `if` stands that has no `else` yet
    inside: int = 0
    height: int = 0

    def end_argument(self) -> None:
        self.height = max(self.height, self.operators + self.inside)
        self.operators = self.prefixes = self.inside = self.elses = 0


def _scan(source: str) -> _Scan:
    if len(source) > MAX_CHARACTERS:
        _refuse(source, MAX_CHARACTERS, f"it has {len(source):,} characters; {MAX_CHARACTERS:,} are read")
    text = source.translate(_SPACES)
    numbers: dict[int, Fraction] = {}
    stack = [_Bracket(0, False)]
    depth, terms, at = 0, 0, 0
    operand = True  # whether a number, a name, a sign or an opening bracket must come next
    called = False  # whether the token before was a name, so that a bracket is a call
    before = ""  # the token before
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            _refuse(source, at, f"the character {text[at]!a} has no meaning here{_HINTS.get(text[at], '')}")
        kind, token, top = str(match.lastgroup), match.group(), stack[-1]
        kind = "operator" if token in _WORDS else kind
        terms += kind in ("number", "name", "operator")
        if kind in ("number", "name") or (kind == "open" and not called):
            if not operand:
                _refuse(source, at, f"an operator is missing before {shown(token, 30)}")
        elif kind in ("close", "comma") and operand:
            _refuse(source, at, f"something is missing before '{token}'")
        elif kind in ("close", "comma") and top.waits is not None:
            _refuse(source, top.waits, "this 'if' has no 'else'; a choice is written a if x > 0 else b")
        if kind == "number":
            numbers[at] = _number(source, at, token)
            operand = False
        elif kind == "name":
            if keyword.iskeyword(token):
                _refuse(source, at, f"'{token}' is a word of the Python language, not a name")
            operand = False
        elif kind == "operator":
            sign = operand and token in _PREFIXES and (token != "not" or before in _OPENERS)
            if operand and not sign:
                _refuse(source, at, f"something is missing before '{token}'")
            if not operand and token in ("not", "~"):
                _refuse(source, at, f"an operator is missing before '{token}'")
            if token in ("if", "else"):
                if (token == "if") != (top.waits is None):
                    why = (
                        "there is an 'if' already that has no 'else'" if token == "if" else "there is no 'if' before it"
                    )
                    _refuse(source, at, f"{why}; a choice is written a if x > 0 else b")
                top.waits = at if token == "if" else None
                top.elses += 1
                depth += 1
            prefixes = top.prefixes
            top.prefixes = top.prefixes + 1 if sign or token == "**" else 0
            depth += top.prefixes - prefixes
            top.operators += 1
            operand = True
        elif kind == "open":
            stack.append(_Bracket(at, called))
            depth += 1
            operand = True
        elif kind == "close":
            if len(stack) == 1:
                _refuse(source, at, "this bracket was never opened")
            depth -= 1 + top.prefixes + top.elses
            top.end_argument()
            stack.pop()
            stack[-1].inside = max(stack[-1].inside, top.height + 1)
        elif kind == "comma":
            if not top.call:
                _refuse(source, at, "a comma stands between arguments only; several outputs are a list of expressions")
            depth -= top.prefixes + top.elses
            top.end_argument()
            operand = True
        if depth >= MAX_DEPTH:
            _refuse(source, at, f"it is nested {MAX_DEPTH} deep or deeper")
        if terms > MAX_TERMS:
            _refuse(source, at, f"it has more than {MAX_TERMS:,} terms")
        if stack[-1].operators + stack[-1].inside > MAX_HEIGHT:
            _refuse(source, at, f"more than {MAX_HEIGHT} operators in a row; put brackets around parts of it")
        called = kind == "name" or (called and kind == "space")
        before = before if kind == "space" else token
        at = match.end()
    if len(stack) > 1:
        _refuse(source, stack[-1].at, "this bracket is never closed")
    if operand:
        _refuse(source, len(text), "the expression ends too early" if terms else "there is no expression")
    if stack[0].waits is not None:
        _refuse(source, stack[0].waits, "this 'if' has no 'else'; a choice is written a if x > 0 else b")
    return _Scan(text, numbers, terms)


def _number(source: str, at: int, token: str) -> Fraction:
    mantissa, _, exponent = token.lower().partition("e")
    whole, _, places = mantissa.partition(".")
    if len(mantissa) > MAX_DIGITS:
        _refuse(source, at, f"a number of more than {MAX_DIGITS} digits")
    if "." not in mantissa and not exponent and len(whole) > 1 and whole[0] == "0":
        _refuse(source, at, "a whole number does not begin with 0")
    digits = int(whole + places)
    if digits and len(exponent.lstrip("+-0")) > 3:
        _refuse(source, at, OUT_OF_RANGE)
    power = int(exponent or "0") - len(places) if digits else 0
    return Fraction(digits * 10**power if power >= 0 else Fraction(digits, 10**-power))


def _build(source: str, scan: _Scan, names: Sequence[str], builder: Builder, calls: MoreCalls | None) -> int:
    stripped = scan.text.strip()
    shift = len(scan.text) - len(scan.text.lstrip())
    try:
        root = ast.parse(stripped, mode="eval").body
    except (RecursionError, MemoryError):  # only where the caller has used up the stack already
        _refuse(source, 0, "there is too little stack left to read it")
    except (SyntaxError, ValueError) as error:
        offset = error.offset if isinstance(error, SyntaxError) and error.offset else 1
        _refuse(source, shift + offset - 1, "it is not a correct expression")
    order: list[ast.expr] = []
    stack: list[ast.expr] = [root]
    while stack:
        node = stack.pop()
        order.append(node)
        if isinstance(node, ast.BinOp):
            stack += (node.left, node.right)
        elif isinstance(node, ast.Compare):
            stack += (node.left, *node.comparators)
        elif isinstance(node, ast.BoolOp):
            stack += node.values
        elif isinstance(node, ast.IfExp):
            stack += (node.test, node.body, node.orelse)
        elif isinstance(node, ast.UnaryOp):
            stack.append(node.operand)
        elif isinstance(node, ast.Call):
            stack += node.args
    built: dict[ast.expr, int] = {}

    def made(node: ast.expr, at: int) -> int:
        if isinstance(node, ast.Constant) and at in scan.numbers:
            return builder.const(scan.numbers[at])
        if isinstance(node, ast.Name):
            if node.id in names:
                return builder.var(node.id)
            if node.id in CONSTANTS:
                return builder.apply(node.id)
            if node.id in CALLS:
                _refuse(source, at, f"'{node.id}' is a function; write {node.id}(…)")
            _refuse(source, at, f"unknown name {_unknown(node.id, (*names, *CONSTANTS), 'the variables are', names)}")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            operand = built[node.operand]
            return builder.apply("neg", operand) if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.UnaryOp):
            return negated(builder, built[node.operand])
        if isinstance(node, ast.Compare):
            sides = pairwise([built[side] for side in (node.left, *node.comparators)])
            signs = (_COMPARISONS[type(op)] for op in node.ops)
            truths = (compared(builder, sign, x, y) for sign, (x, y) in zip(signs, sides, strict=True))
            return reduce(partial(both, builder), truths)
        if isinstance(node, ast.BoolOp):
            return reduce(partial(_MADE_OF_TWO[type(node.op)], builder), [built[value] for value in node.values])
        if isinstance(node, ast.IfExp):
            return chosen(builder, built[node.test], built[node.body], built[node.orelse])
        if isinstance(node, ast.BinOp) and type(node.op) in _MADE_OF_TWO:
            return _MADE_OF_TWO[type(node.op)](builder, built[node.left], built[node.right])
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return builder.apply(_OPERATORS[type(node.op)], built[node.left], built[node.right])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            args = [built[arg] for arg in node.args]
            own = None if calls is None else calls(node.func.id, args, builder)
            return _call(node.func.id, args, at, source, names, builder) if own is None else own
        _refuse(source, at, "this is not part of the language of expressions")

    for node in reversed(order):  # arguments before what uses them, and from left to right
        at = shift + node.col_offset
        try:
            built[node] = made(node, at)
        except InvalidRequest as error:
            if error.column is not None:
                raise
            if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
                at = shift + node.right.col_offset
            _refuse(source, at, str(error))
    return built[root]


def _call(name: str, args: list[int], at: int, source: str, names: Sequence[str], builder: Builder) -> int:
    if name not in CALLS:
        if name in names:
            _refuse(source, at, f"'{name}' is a variable and cannot be called; a product is written {name}*(…)")
        _refuse(source, at, f"unknown function {_unknown(name, CALLS, 'the functions are', CALLS)}")
    least, most = _MANY.get(name) or (arity(name), arity(name))
    if not least <= len(args) <= most:
        wanted = f"{least} argument{'s' if least > 1 else ''}" if least == most else f"{least} or more arguments"
        _refuse(source, at, f"{name} takes {wanted}, not {len(args)}")
    if name in _MADE:
        return _MADE[name](builder, *args)
    if name == "clip":
        return builder.apply("min", builder.apply("max", args[0], args[1]), args[2])
    if name in _MANY:
        result = args[0]
        for arg in args[1:]:
            result = builder.apply(name, result, arg)
        return result
    return written(builder, name, args)


def arity(name: str) -> int:
    """How many arguments a call has at least."""
    if name in _MANY:
        return _MANY[name][0]
    entry = CALLED[name]
    return len(entry.arguments) if isinstance(entry, Derived) else entry.arity + entry.whole


def written(builder: Builder, name: str, args: Sequence[int]) -> int:
    """The node of a call, or of an operation of `builder` that no call writes (add, pow, …)."""
    entry = CALLED.get(name)
    if entry is None:
        return builder.apply(name, *args)
    if isinstance(entry, Derived):
        formula = _formula(entry)
        at = builder.copy(
            formula.nodes,
            lambda node, _: args[entry.arguments.index(str(node.value))] if node.op == "var" else None,
        )
        return at[formula.outputs[0]]
    if not entry.whole:
        return builder.apply(entry.name, *args)
    first = builder.node(args[0])
    if first.op != "const" or not isinstance(first.value, Fraction) or first.value.denominator != 1:
        raise InvalidRequest(f"the first argument of {name} is a whole number, such as 0 or 2")
    return builder.apply(entry.name, *args[1:], value=first.value.numerator)


@lru_cache(maxsize=256)
def _formula(entry: Derived) -> Graph:
    return parse(entry.formula, entry.arguments)


def _unknown(name: str, candidates: Sequence[str], intro: str, listed: Sequence[str]) -> str:
    """`'Sin'; did you mean 'sin'?`, or the list of what is known where nothing is near."""
    short = name if len(name) <= 40 else name[:40] + "…"
    folded = {candidate.lower(): candidate for candidate in reversed(candidates)}
    near = difflib.get_close_matches(name[:100].lower(), folded, n=1)
    if near:
        return f"'{short}'; did you mean '{folded[near[0]]}'?"
    listing = ", ".join(listed)
    return f"'{short}'; {intro} {listing if len(listing) <= 240 else listing[:240] + '…'}" if listed else f"'{short}'"
