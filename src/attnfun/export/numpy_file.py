"""A model as one .py file that needs NumPy alone: its weights, and the code that evaluates them.

    from f import network
    network([[0.3, -0.5], [0.0, 1.0]])

The code in the file is that of `read`, `attend`, `stream` and `run` below, word for word. The weights are literals:
small arrays as nested lists of numbers that read back as they were, others as their shape and the base64 of their
little-endian bytes. To be checked, a file is parsed and its literals are read; nothing in it is executed.
"""

import ast
import inspect
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import numpy as np

from attnfun.errors import feasible
from attnfun.export.common import Written, about
from attnfun.model import Model
from attnfun.network.plain import PlainScores, tree, weights_of

SMALL = 64
"""Arrays of at most so many numbers are written as numbers."""
LIMIT = 1 << 24
"""The most numbers of a file."""
_LINE = 100


def read(part: Any, dtype: str) -> Any:
    """Nested lists, and pairs of a shape and the base64 of little-endian bytes, as arrays, wherever they stand."""
    if isinstance(part, dict):
        return {name: read(one, dtype) for name, one in part.items()}
    if isinstance(part, tuple):
        return np.frombuffer(b64decode(part[1]), np.dtype(dtype).newbyteorder("<")).reshape(part[0]).astype(dtype)
    return np.array(part, dtype) if isinstance(part, list) else part


def attend(Z: Any, S: Any, head: Any) -> Any:
    """softmax( (Z W_Q + b_Q) K^T ) V W_O; K and V are constant, or linear in the tokens S."""
    K, V = (head["k"], head["v"]) if head["constant"] else (S @ head["k"], S @ head["v"])
    logits = (Z @ head["q"] + head.get("q_bias", 0)) @ np.swapaxes(K, -1, -2)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (weights @ V / weights.sum(axis=-1, keepdims=True)) @ head["o"]


def stream(net: Any, inputs: Any) -> Any:
    """The tokens of the inputs through all layers, and the read-out of the given ones."""
    Z = net.get("constant", 0)
    for term in net["embed"].values():
        X = inputs[term["source"]]
        X = X @ term["matrix"] if "matrix" in term else X
        Z = Z + (term["select"] @ X if "select" in term else X)
    n = Z.shape[-2]
    if "tokens" in net:
        Z = np.concatenate([Z, np.broadcast_to(net["tokens"], (*Z.shape[:-2], *net["tokens"].shape))], axis=-2)
    for layer in net["layers"].values():
        carried = Z @ layer["carry"] if "carry" in layer else Z
        Z = sum((attend(Z, Z, head) for head in layer["heads"].values()), carried)
        if "units" in layer:
            u = layer["units"]
            asks = Z @ u["query"] + u["query_bias"] if "query" in u else Z
            Z = Z + np.maximum(asks @ u["inner"] + u["bias"], 0) @ u["outer"]
    return Z[..., :n, :] @ net["readout"] + net.get("readout_bias", 0)


def run(net: Any, how: Any, *inputs: Any) -> Any:
    """Arrays in, an array out; `how` says what is read off: rows, one number per row, all tokens, the first token, or
    the products of towers."""
    given = [np.asarray(one, how["dtype"]) for one in inputs]
    if how["reads"] == "scores":
        first, *middle, last = (stream(net["towers"][how["towers"][k]], [one]) for k, one in enumerate(given))
        last = last * net["signs"]
        return (first * middle[0] * last).sum(axis=1) if middle else first @ last.T
    found = stream(net, given)
    return found[..., 0] if how["reads"] == "number" else found[..., 0, :] if how["reads"] == "first" else found


def written(model: Model[Any, Any], dtype: str) -> Written:
    """The file as bytes, and its literals as the code in it runs them."""
    plain = model.weights.plain(dtype)
    net = tree(plain)
    size = sum(array.size for _, array in weights_of(net))
    feasible(size <= LIMIT, f"{size:,} numbers are too many for a file of text: export to onnx or torch")
    how: dict[str, Any] = {"dtype": dtype, "reads": "scores"}
    if isinstance(plain, PlainScores):
        given = [plain.tower(k).inputs[0] for k in range(plain.sides)]
        how["towers"], shape = [min(k, len(plain.towers) - 1) for k in range(plain.sides)], "(n, columns)"
    else:
        number, points = plain.reads == "points" and len(plain.outputs) == 1, plain.reads in ("points", "rows")
        given, how["reads"] = list(plain.inputs), "number" if number else plain.reads
        shape = "(n, columns)" if points else f"(batch, {plain.length or 'n'}, columns)"
    told = [f"{name}: {text}" for name, text in about(model, dtype).items()]
    told += [f"input {k + 1}: {shape}, columns {', '.join(names)}" for k, names in enumerate(given)]
    docstring = "\n\n".join(map(_quoted, told))
    imports = "from base64 import b64decode\nfrom typing import Any\n\nimport numpy as np\n"
    weights = "\n".join(_literal("NETWORK = ", net, dtype, "", ""))
    code = "\n\n".join(inspect.getsource(one) for one in (read, attend, stream, run))
    text = f'"""{docstring}\n"""\n\n{imports}\nHOW = {how!r}\n{weights}\n\n\n{code}\n{_CALL}'
    values = {node.targets[0].id: node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    again, parts = (ast.literal_eval(values[name]) for name in ("HOW", "NETWORK"))
    own = read(parts, again["dtype"])
    return Written(text.encode(), lambda *arrays: run(own, again, *arrays), {"format": "NumPy file"})


_CALL = '''
WEIGHTS = read(NETWORK, HOW["dtype"])


def network(*inputs: Any) -> Any:
    """The network's outputs for arrays of inputs, shaped as said above."""
    return run(WEIGHTS, HOW, *inputs)
'''


def _quoted(text: str) -> str:
    """Text that may stand in a docstring: nothing in it ends the string or says anything else than itself."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def _literal(lead: str, part: Any, dtype: str, indent: str, end: str) -> Iterator[str]:
    """The lines of a literal, behind what leads to it."""
    if isinstance(part, dict):
        yield f"{indent}{lead}{{"
        for key, one in part.items():
            yield from _literal(f"{key!r}: ", one, dtype, indent + "    ", ",")
        yield f"{indent}}}{end}"
    elif not isinstance(part, np.ndarray):
        yield f"{indent}{lead}{part!r}{end}"
    elif 0 < part.size <= SMALL:
        array = part.astype(dtype)
        text = f"{indent}{lead}{array.tolist()!r}{end}"
        if len(text) <= _LINE or array.ndim < 2:
            yield text
        else:
            yield from (f"{indent}{lead}[", *(f"{indent}    {row!r}," for row in array.tolist()), f"{indent}]{end}")
    else:
        text = b64encode(part.astype(np.dtype(dtype).newbyteorder("<")).tobytes()).decode()
        yield f"{indent}{lead}({part.shape!r}, ("
        yield from (f'{indent}    "{text[k : k + _LINE]}"' for k in range(0, max(1, len(text)), _LINE))
        yield f"{indent})){end}"
