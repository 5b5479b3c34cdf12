"""Text to graph. The text is never run: it is scanned, parsed by `ast`, and only the nodes listed here are read.

    numbers   exact: 0.1 is 1/10, read from the text and not from the double
    names     a name of the domain is a variable, whatever it is called (e, pi, I, gamma); else pi and e are constants;
              a name followed by "(" is a function: gamma may be both
    + - * / ** // %, unary minus, brackets, and calls of CALLS
    < <= > >= == !=, also a < x < b; and, or, not, or & | ~ with brackets around comparisons; a if c else b
    x[i]      an entry of a vector x of the domain; x[1:], x[::2] its slices
    sum(x[i]*y[i] for i in range(9))    generators, in calls of COLLECTORS; so sum(x), norm(x[1:]), max(v**2 for v in x)

Generators are written out: a loop variable is a constant or an entry of a vector, ranges and indices are whole-number
constants, and what they come to is counted before it is built. The scan comes first and accepts exactly the sentences
of this small grammar, so Python's own parser, which may be slow or run out of stack on hostile text, sees only short,
shallow and correct input.

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
from attnfun.language.vectors import groups, is_vector

MAX_CHARACTERS: Final = 20_000
MAX_DEPTH: Final = 200  # of brackets, of signs in a row, of powers of powers; Python's tokenizer has the same limit
MAX_TERMS: Final = 5_000  # numbers, names, operators and calls
MAX_HEIGHT: Final = 800  # of the syntax tree; a sum of n terms has height n, and Python's own parser recurses over it
MAX_DIGITS: Final = 400
MAX_LOOPS: Final = 8  # generators within generators, and loops within a generator, all together
MAX_WRITTEN: Final = MAX_NODES  # terms that the generators of all expressions come to

_MANY: Final[Mapping[str, tuple[int, int]]] = {
    **{"max": (2, MAX_TERMS), "min": (2, MAX_TERMS), "clip": (3, 3)},
    **{"where": (3, 3), "heaviside": (2, 2), "ceil": (1, 1), "trunc": (1, 1)},
}
_MADE: Final[Mapping[str, Callable[..., int]]] = {
    "where": chosen, "heaviside": heaviside, "ceil": ceiling, "trunc": truncated,
}  # fmt: skip
COLLECTORS: Final = ("sum", "prod", "max", "min", "norm", "logsumexp", "len")
CALLS: Final = tuple(dict.fromkeys((*CALLED, *_MANY, *COLLECTORS)))
CONSTANTS: Final = ("pi", "e")

_TOKEN: Final = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<operator>\*\*|//|[<>=!]=|[-+*/%<>&|~])|(?P<open>[(\[])|(?P<close>[)\]])|(?P<comma>,)|(?P<colon>:)"
    r"|(?P<space> +)"
)
_SPACES: Final = str.maketrans("\t\n\r\f\v", "     ")
_WORDS: Final = frozenset({"and", "or", "not", "if", "else"})
_LOOP_WORDS: Final = frozenset({"for", "in"})
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
    reader = _Reader(groups(known), calls)
    outputs, terms = [], 0
    for text in texts:
        scan = _scan(text)
        terms += scan.terms
        if terms > MAX_NODES:
            _refuse(text, 0, f"the expressions together have more than {MAX_NODES:,} terms")
        outputs.append(reader.read(text, scan))
    return reader.builder.graph(outputs)


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
    """An open bracket: where, whether it is a call's or an index's; operators of the argument being read; the height
    inside; commas or colons, and loops of a generator, and what its next token must be.
    """

    at: int
    call: bool
    index: bool = False
    parts: int = 0
    loops: int = 0
    wanted: str = ""
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
    depth, terms, loops, at = 0, 0, 0, 0
    operand = True  # whether a number, a name, a sign or an opening bracket must come next
    called = False  # whether the token before was a name, so that a bracket is a call
    before = ""  # the token before
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            _refuse(source, at, f"the character {text[at]!a} has no meaning here{_HINTS.get(text[at], '')}")
        kind, token, top = str(match.lastgroup), match.group(), stack[-1]
        word = token in _LOOP_WORDS or (token == "if" and top.loops > 0)  # of a generator
        kind = "operator" if token in _WORDS and not word else kind
        terms += kind in ("number", "name", "operator")
        if top.wanted and kind != "space" and (token != "in" if top.wanted == "in" else kind != "name" or word):
            wanted = "'in' is" if top.wanted == "in" else "the name of a loop variable is"
            _refuse(source, at, f"{wanted} missing before {shown(token, 30)}")
        ends = word or kind in ("close", "comma", "colon")  # an argument, or a part of one
        if (kind in ("number", "name") and not word) or (kind == "open" and not called):
            if not operand:
                _refuse(source, at, f"an operator is missing before {shown(token, 30)}")
        elif ends and operand:
            empty = top.index and not top.operators and (token == ":" or top.parts)  # an end of a slice
            if not empty:
                _refuse(source, at, f"something is missing before '{token}'")
        elif ends and top.waits is not None:
            _refuse(source, top.waits, "this 'if' has no 'else'; a choice is written a if x > 0 else b")
        if kind == "number":
            numbers[at] = _number(source, at, token)
            operand = False
        elif word:
            if token == "for" and top.call and not top.parts:
                top.loops, loops, top.wanted = top.loops + 1, loops + 1, "name"
            elif token == "in" and top.wanted:
                top.wanted = ""
            elif token != "if":
                calls = "; generators stand alone in calls such as sum(…)" if token == "for" else ""
                _refuse(source, at, f"'{token}' is a word of the Python language, not a name{calls}")
            depth -= top.prefixes + top.elses
            top.end_argument()
            operand = True
        elif kind == "name":
            if keyword.iskeyword(token):
                _refuse(source, at, f"'{token}' is a word of the Python language, not a name")
            top.wanted = "in" if top.wanted else ""
            operand = False
        elif kind == "operator":
            sign = operand and token in _PREFIXES and (token != "not" or before in _OPENERS)
            if operand and not sign:
                _refuse(source, at, f"something is missing before '{token}'")
            if not operand and token in ("not", "~"):
                _refuse(source, at, f"an operator is missing before '{token}'")
            if token in ("if", "else"):
                if (token == "if") != (top.waits is None):
                    there = "there is an 'if' already that has no 'else'"
                    why = there if token == "if" else "there is no 'if' before it"
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
            index = token == "["
            if index and (not called or any(bracket.index for bracket in stack)):
                _refuse(source, at, "an index follows the name of a vector, as in x[0]; there are no lists")
            stack.append(_Bracket(at, called and not index, index))
            depth += 1
            operand = True
        elif kind == "close":
            if len(stack) == 1 or top.index != (token == "]"):
                _refuse(source, at, "this bracket was never opened")
            depth -= 1 + top.prefixes + top.elses
            loops -= top.loops
            top.end_argument()
            stack.pop()
            stack[-1].inside = max(stack[-1].inside, top.height + 1)
            operand = False
        elif kind == "comma" or kind == "colon":
            top.parts += 1
            if kind == "colon" and not (top.index and top.parts <= 2):
                _refuse(source, at, "a colon stands in slices such as x[1:9:2] only")
            if kind == "comma" and (not top.call or top.loops):
                why = (
                    "a generator stands alone in its call" if top.call else "several outputs are a list of expressions"
                )
                _refuse(source, at, f"a comma stands between arguments only; {why}")
            depth -= top.prefixes + top.elses
            top.end_argument()
            operand = True
        if depth >= MAX_DEPTH:
            _refuse(source, at, f"it is nested {MAX_DEPTH} deep or deeper")
        if loops > MAX_LOOPS:
            _refuse(source, at, f"more than {MAX_LOOPS} loops within each other")
        if terms > MAX_TERMS:
            _refuse(source, at, f"it has more than {MAX_TERMS:,} terms")
        if stack[-1].operators + stack[-1].inside > MAX_HEIGHT:
            _refuse(source, at, f"more than {MAX_HEIGHT} operators in a row; put brackets around parts of it")
        called = (kind == "name" and not word) or (called and kind == "space")
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


class _Reader:
    """Expressions read into one builder; every value is a node of it, that of a loop variable too.

    A generator is written out: its element is read once for every choice of its loop variables.
    """

    def __init__(self, variables: Mapping[str, tuple[str, ...]], calls: MoreCalls | None) -> None:
        """`variables`: scalars and the entries of vectors, as `groups` has them."""
        self.builder = Builder()
        self.calls = calls
        self.scalars = tuple(n for n, members in variables.items() if not is_vector(n, members))
        self.vectors = {n: members for n, members in variables.items() if is_vector(n, members)}
        self.left = MAX_WRITTEN
        self._orders: dict[ast.expr, list[ast.expr]] = {}

    def read(self, source: str, scan: _Scan) -> int:
        """The node of one expression."""
        stripped = scan.text.strip()
        self.source, self.scan = source, scan
        self.shift = len(scan.text) - len(scan.text.lstrip())
        try:
            root = ast.parse(stripped, mode="eval").body
        except (RecursionError, MemoryError):  # only where the caller has used up the stack already
            _refuse(source, 0, "there is too little stack left to read it")
        except (SyntaxError, ValueError) as error:
            offset = error.offset if isinstance(error, SyntaxError) and error.offset else 1
            _refuse(source, self.shift + offset - 1, "it is not a correct expression")
        return self.value(root, {})

    def _refuse(self, node: ast.expr, reason: str) -> NoReturn:
        _refuse(self.source, self.shift + node.col_offset, reason)

    def value(self, root: ast.expr, env: Mapping[str, int]) -> int:
        """The node of an expression in which the names of `env` have these nodes."""
        order = self._order(root)
        self._spend(root, len(order))
        built: dict[ast.expr, int] = {}
        for node in reversed(order):  # arguments before what uses them, and from left to right
            try:
                built[node] = self._made(node, built, env)
            except InvalidRequest as error:
                if error.column is not None:
                    raise
                at = node.right if isinstance(node, ast.BinOp) and _is_arithmetic(node.op) else node
                self._refuse(at, str(error))
        return built[root]

    def _spend(self, node: ast.expr, terms: int) -> None:
        self.left -= terms
        if self.left < 0:
            self._refuse(node, f"written out, the generators have more than {MAX_WRITTEN:,} terms")

    def _order(self, root: ast.expr) -> list[ast.expr]:
        """The parts of an expression, what uses them first; collections and indices are read where they stand."""
        order = self._orders.get(root)
        if order is None:
            order = self._orders[root] = []
            stack = [root]
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
                elif isinstance(node, ast.Call) and self._collected(node) is None:
                    stack += node.args
        return order

    def _collected(self, node: ast.Call) -> ast.expr | None:
        """The collection that a call stands for a number of, if it has one."""
        if len(node.args) != 1:
            return None
        (only,) = node.args
        vector = isinstance(only, ast.Name) and only.id in self.vectors
        part = isinstance(only, ast.Subscript) and isinstance(only.slice, ast.Slice)
        return only if vector or part or isinstance(only, ast.GeneratorExp) else None

    def _made(self, node: ast.expr, built: Mapping[ast.expr, int], env: Mapping[str, int]) -> int:
        builder, at = self.builder, self.shift + node.col_offset
        if isinstance(node, ast.Constant) and at in self.scan.numbers:
            return builder.const(self.scan.numbers[at])
        if isinstance(node, ast.Name):
            return env[node.id] if node.id in env else self._name(node)
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
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if isinstance(node.slice, ast.Slice):
                self._refuse(node, f"a slice is a vector; write sum({node.value.id}[…]), max({node.value.id}[…]), …")
            entries = self._vector(node.value, env)
            k = self._whole(node.slice, env, "an index")
            if not -len(entries) <= k < len(entries):
                self._refuse(node, f"{node.value.id}[{k}] is past the {len(entries)} entries of {node.value.id}")
            return builder.var(entries[k])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            collection = self._collected(node)
            if collection is not None:
                return self._collect(node, node.func.id, collection, env)
            args = [built[arg] for arg in node.args]
            own = None if self.calls is None else self.calls(node.func.id, args, builder)
            return self._call(node, node.func.id, args) if own is None else own
        self._refuse(node, "this is not part of the language of expressions")

    def _name(self, node: ast.Name) -> int:
        name = node.id
        if name in self.scalars:
            return self.builder.var(name)
        if name in self.vectors:
            count = len(self.vectors[name])
            self._refuse(
                node, f"'{name}' is a vector of {count}; write {name}[0] to {name}[{count - 1}], or sum({name})"
            )
        if name in CONSTANTS:
            return self.builder.apply(name)
        if name in CALLS:
            self._refuse(node, f"'{name}' is a function; write {name}(…)")
        known = (*self.scalars, *self.vectors)
        self._refuse(node, f"unknown name {_unknown(name, (*known, *CONSTANTS), 'the variables are', known)}")

    def _constant(self, index: int) -> Fraction | None:
        node = self.builder.node(index)
        return node.value if node.op == "const" and isinstance(node.value, Fraction) else None

    def _whole(self, node: ast.expr, env: Mapping[str, int], what: str) -> int:
        value = self._constant(self.value(node, env))
        if value is None or value.denominator != 1:
            self._refuse(node, f"{what} is a whole number, made of loop variables and numbers")
        return int(value)

    # ------------------------------------------------------------ collections

    def _vector(self, node: ast.Name, env: Mapping[str, int]) -> tuple[str, ...]:
        if node.id not in self.vectors or node.id in env:
            known = f"the vectors are {', '.join(self.vectors)}" if self.vectors else "a domain has them as x[100]=-1:1"
            self._refuse(node, f"'{node.id[:40]}' is no vector of the domain; {known[:200]}")
        return self.vectors[node.id]

    def items(self, node: ast.expr, env: Mapping[str, int]) -> list[int]:
        """The nodes of a vector, of a slice, of a range, or of a generator's elements."""
        if isinstance(node, ast.GeneratorExp):
            loops = self._loops(node.generators, env)
            self._spend(node, len(loops) * len(self._order(node.elt)))
            self.left += len(loops) * len(self._order(node.elt))  # spent when they are read; but read none of too many
            return [self.value(node.elt, one) for one in loops]
        if isinstance(node, ast.Name):
            return [self.builder.var(name) for name in self._vector(node, env)]
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            a, b, step = (None if end is None else self._whole(end, env, "an end of a slice") for end in ends)
            if step == 0:
                self._refuse(node, "a slice has a step that is not 0")
            return [self.builder.var(name) for name in self._vector(node.value, env)[a:b:step]]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            if not 1 <= len(node.args) <= 3:
                self._refuse(node, f"range takes 1 to 3 numbers, not {len(node.args)}")
            given = [self._whole(arg, env, "an end of a range") for arg in node.args]
            if len(given) == 3 and given[2] == 0:
                self._refuse(node, "a range has a step that is not 0")
            numbers = range(*given)
            self._spend(node, 1 + abs(numbers[-1] - numbers[0]) // abs(numbers.step) if numbers else 0)
            return [self.builder.const(k) for k in numbers]
        self._refuse(node, "a generator runs over range(…), a vector or a slice of one")

    def _loops(self, generators: Sequence[ast.comprehension], env: Mapping[str, int]) -> list[Mapping[str, int]]:
        """What the loop variables are, one after the other, for every element of a generator."""
        found = [env]
        for one in generators:
            assert isinstance(one.target, ast.Name)
            longer: list[Mapping[str, int]] = []
            for known in found:
                for item in self.items(one.iter, known):
                    self._spend(one.iter, 1)
                    inner = {**known, one.target.id: item}
                    if all(self._holds(test, inner) for test in one.ifs):
                        longer.append(inner)
            found = longer
        return found

    def _holds(self, test: ast.expr, env: Mapping[str, int]) -> bool:
        value = self._constant(self.value(test, env))
        if value is None:
            self._refuse(test, "a condition of a generator is made of loop variables and numbers")
        return value != 0

    def _collect(self, node: ast.Call, name: str, collection: ast.expr, env: Mapping[str, int]) -> int:
        builder = self.builder
        if name not in COLLECTORS:
            if name in CALLS:
                self._refuse(node, f"{name} takes a number; of the entries of a vector write sum({name}(v) for v in x)")
            self._call(node, name, [])
        items = self.items(collection, env)
        if name == "len":
            return builder.const(len(items))
        if name in ("sum", "prod"):
            start = builder.const(0 if name == "sum" else 1)
            return reduce(partial(builder.apply, "add" if name == "sum" else "mul"), items, start)
        if not items:
            self._refuse(node, f"{name} of nothing at all")
        if name in ("max", "min"):
            while len(items) > 1:  # in pairs: few heads one after the other
                paired = [builder.apply(name, a, b) for a, b in zip(items[::2], items[1::2], strict=False)]
                items = paired + items[len(items) & ~1 :]
            return items[0]
        terms = [builder.apply("exp", v) if name == "logsumexp" else builder.apply("powi", v, value=2) for v in items]
        return builder.apply("log" if name == "logsumexp" else "sqrt", reduce(partial(builder.apply, "add"), terms))

    def _call(self, node: ast.expr, name: str, args: list[int]) -> int:
        if name == "range":
            self._refuse(node, "a range stands in a generator, as in sum(x[i] for i in range(3))")
        if name not in CALLS:
            if name in self.scalars or name in self.vectors:
                self._refuse(node, f"'{name}' is a variable and cannot be called; a product is written {name}*(…)")
            self._refuse(node, f"unknown function {_unknown(name, CALLS, 'the functions are', CALLS)}")
        if name in COLLECTORS and name not in _MANY:
            self._refuse(node, f"{name} takes a vector, a slice or a generator: {name}(x[i] for i in range(3))")
        least, most = _MANY.get(name) or (arity(name), arity(name))
        if not least <= len(args) <= most:
            wanted = f"{least} argument{'s' if least > 1 else ''}" if least == most else f"{least} or more arguments"
            self._refuse(node, f"{name} takes {wanted}, not {len(args)}")
        builder = self.builder
        if name in _MADE:
            return _MADE[name](builder, *args)
        if name == "clip":
            return builder.apply("min", builder.apply("max", args[0], args[1]), args[2])
        if name in _MANY:
            return reduce(partial(builder.apply, name), args)
        return written(builder, name, args)


def _is_arithmetic(op: ast.operator) -> bool:
    return type(op) in _OPERATORS or isinstance(op, ast.FloorDiv | ast.Mod)


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
