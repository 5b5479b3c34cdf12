r"""A model as LaTeX, for the appendix of a paper: what is certified, then every matrix under the theorem's name.

    \[\attnfit{W_Q = \begin{bmatrix} 1 & 0 \\ 0 & 3.5 \end{bmatrix}}\]

The file is a fragment to `\input`; the packages amsmath and graphicx are needed. Numbers are written with all their
digits, so they read back as the weights. A matrix wider than the line is scaled down; a long one goes on below.
Failure mode: Infeasible for more than `LIMIT` numbers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnfun.errors import feasible
from attnfun.export.common import Written, about
from attnfun.model import Model
from attnfun.network.head import AnyArray
from attnfun.network.plain import PlainScores, tree, weights_of

LIMIT = 3000
ROWS = 40
"""The most rows of a matrix in one piece."""
_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"}
_SPECIAL |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "-"}
_SIGNS = {"≤": "le", "≥": "ge", "·": "cdot", "×": "times", "⟨": "langle", "⟩": "rangle", "…": "dots", "∞": "infty"}
_SIGNS |= {"Σ": "Sigma", "ε": "varepsilon", "σ": "sigma", "β": "beta", "π": "pi", "∈": "in", "→": "to", "λ": "lambda"}
_SPECIAL |= {c: rf"$\{name}$" for c, name in _SIGNS.items()}
_FIRST = r"""% \input this file; it needs \usepackage{amsmath,graphicx}
\begingroup
\providecommand\attnfit[1]{\sbox0{$\displaystyle#1$}\ifdim\wd0>\linewidth
  \resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi}
\setcounter{MaxMatrixCols}{WIDEST}
\begin{flushleft}
FACTS
\end{flushleft}
\begin{align*}
Z &= \Bigl[\,\textstyle\sum_k A_k X_k B_k + c\,;\ T\,\Bigr] \\
Z &\gets Z C + \textstyle\sum_h \operatorname{softmax}\bigl((Z W_Q + b_Q) K^\top\bigr) V W_O \\
Z &\gets Z + \operatorname{relu}\bigl((Z W_0 + b_0) W_1 + b_1\bigr) W_2 \\
f &= Z R + r
\end{align*}
Here $K = Z W_K$ and $V = Z W_V$, or both are constant, and $f$ is read at the given tokens.
A matrix that is not listed is the identity; $b_Q$, $c$ and $r$ are then $0$, and there are no tokens $T$.
"""
_NAMES = {"matrix": "B", "select": "A", "constant": "c", "tokens": "T", "carry": "C", "readout": "R"}
_NAMES |= {"readout_bias": "r", "q": "W_Q", "q_bias": "b_Q", "k": "W_K", "v": "W_V", "o": "W_O", "signs": "J"}
_NAMES |= {"query": "W_0", "query_bias": "b_0", "inner": "W_1", "bias": "b_1", "outer": "W_2"}


def written(model: Model[Any, Any], dtype: str) -> Written:
    """The file as bytes; it computes nothing."""
    plain = model.weights.plain(dtype)
    net, facts = tree(plain), about(model, dtype)
    arrays = [array for _, array in weights_of(net)]
    size, widest = sum(array.size for array in arrays), max(array.shape[-1] for array in arrays)
    feasible(size <= LIMIT, f"{size:,} numbers are too many for paper: tex takes {LIMIT:,} at most; export to numpy")
    towers = plain.towers if isinstance(plain, PlainScores) else (plain,)
    for k, own in enumerate(towers):
        of = f" of tower {k + 1}" * (len(towers) > 1)
        facts |= {f"columns of X{of}": "; ".join(map(", ".join, own.inputs))}
        facts |= {f"columns of Z{of}": ", ".join(own.coordinates), f"outputs{of}": ", ".join(own.outputs)}
    if isinstance(plain, PlainScores):
        facts["scores"] = "inner products of what the towers put out, each feature times its sign in J"
    told = "\\\\\n".join(rf"{escaped(name)}: \texttt{{{escaped(text)}}}" for name, text in facts.items())
    head = _FIRST.replace("WIDEST", str(widest)).replace("FACTS", told)
    text = "\n".join([head, *_parts(net, "", dtype), r"\endgroup", ""])
    return Written(text.encode(), None, {"format": "LaTeX", "numbers": size})


def escaped(text: str) -> str:
    """Text as LaTeX shows it; signs that its fonts lack by their number."""
    return "".join(_SPECIAL.get(c) or (c if " " <= c <= "~" else f"U+{ord(c):04X}") for c in text)


def _parts(part: Mapping[Any, Any], path: str, dtype: str) -> Iterator[str]:
    """Every matrix of a tree, under the name of the part that it belongs to."""
    arrays = {key: one for key, one in part.items() if isinstance(one, np.ndarray)}
    if arrays and path:
        yield rf"\paragraph{{\texttt{{{escaped(path)}}}}}"
    for key, array in arrays.items():
        name = key.upper() if key in ("k", "v") and part["constant"] is True else _NAMES[key]
        yield from _matrix(name, array.astype(dtype))
    for key, one in part.items():
        if isinstance(one, Mapping):
            yield from _parts(one, f"{path}.{key}" if path else str(key), dtype)


def _matrix(name: str, array: AnyArray) -> Iterator[str]:
    rows = np.atleast_2d(array)
    for start in range(0, max(1, len(rows)), ROWS):
        piece = rows[start : start + ROWS]
        lines = " \\\\\n".join(" & ".join(map(number, row)) for row in piece)
        lead = f"{name} =" if len(rows) <= ROWS else rf"{name}\,[{start + 1}\text{{--}}{start + len(piece)}] ="
        yield f"\\[\\attnfit{{{lead} \\begin{{bmatrix}}\n{lines}\n\\end{{bmatrix}}}}\\]"


def number(value: Any) -> str:
    """All digits of a float of its dtype."""
    digits, _, power = str(value).partition("e")
    digits = digits.removesuffix(".0")
    return rf"{digits}\cdot 10^{{{int(power)}}}" if power else digits
