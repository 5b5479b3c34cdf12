"""A model as an ONNX graph over its plain form (`network/plain.py`), written with `onnx.helper`.

    x1 = sin(3 x):   input (batch, 1) → MatMul → Add → MatMul(Transpose(k)) → Softmax → MatMul(v) → MatMul(o) → Add → …

Only standard operators of opset 17 stand in it: MatMul, Add, Mul, Transpose, Softmax, Relu, Concat, Slice, Gather,
Squeeze, Shape, Expand, ReduceSum; onnxruntime has a kernel of each in float32 and float64. The batch, and the length
where the network takes any, are named and free. Initialisers are called what the weights of the torch module are
(`layers.0.heads.log_m1.q`), and its metadata say what the network is for and what is proved of it.

The graph does not look whether inputs are in the domain. A runtime holds the attention of a head to all its keys at
once, batch × tokens × keys numbers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnfun.errors import AttnfunError, Infeasible
from attnfun.export.common import Written, about
from attnfun.model import Model
from attnfun.network.head import AnyArray
from attnfun.network.plain import Plain, PlainScores, tree

OPSET, IR = 17, 8
LIMIT = (1 << 31) - (1 << 20)
"""The most bytes of weights: a protobuf message has less than 2 GiB."""


def written(model: Model[Any, Any], dtype: str) -> Written:
    """The graph as bytes, and as onnxruntime runs it. Failure modes: onnx or onnxruntime is missing (AttnfunError);
    more weights than the format holds (Infeasible)."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise AttnfunError(f"{error.name or 'onnx'} is not installed: pip install onnx onnxruntime") from error
    data = _graph(model.weights.plain(dtype), dtype, about(model, dtype))
    onnx.checker.check_model(data, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*arrays: AnyArray) -> AnyArray:
        found: list[AnyArray] = session.run(None, dict(zip(names, arrays, strict=True)))
        return found[0]

    return Written(data, run, {"format": f"ONNX graph, opset {OPSET}", "onnxruntime": onnxruntime.__version__})


class _Nodes:
    """Nodes and initialisers in the order in which they come up; what a node puts out may have a `name`."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.arrays: dict[str, AnyArray] = {}
        self.names: set[str] = set()

    def __call__(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = name if name and name not in self.names else f"{name or op.lower()}_{len(self.nodes)}"
        self.names.add(name)
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def whole(self, *numbers: int) -> str:
        """A list of whole numbers."""
        name = f"index.{'_'.join(map(str, numbers))}"
        self.arrays[name] = np.array(numbers, dtype=np.int64)
        return name

    def held(self, part: Any, path: str = "") -> Any:
        """A tree of weights with the names of initialisers in the place of its arrays."""
        if isinstance(part, dict):
            return {key: self.held(one, f"{path}.{key}" if path else str(key)) for key, one in part.items()}
        if isinstance(part, np.ndarray):
            self.arrays[path] = np.ascontiguousarray(part, dtype=self.dtype)
            return path
        return part

    def cut(self, Z: str, start: int, end: int) -> str:
        """Tokens start … end."""
        return self("Slice", Z, self.whole(start), self.whole(end), self.whole(1))


def _graph(plain: Plain | PlainScores, dtype: str, facts: dict[str, str]) -> bytes:
    from onnx import helper, numpy_helper

    g = _Nodes(dtype)
    net = g.held(tree(plain))
    if sum(array.nbytes for array in g.arrays.values()) > LIMIT:
        raise Infeasible(f"these weights have more than {LIMIT:,} bytes, the most that an ONNX file holds")
    if isinstance(plain, PlainScores):
        given = [(f"input{k + 1}", plain.tower(k).inputs[0]) for k in range(plain.sides)]
        pairs = len(given) == 2
        shapes: list[list[Any]] = [[f"batch{k + 1}" if pairs else "batch", len(n)] for k, (_, n) in enumerate(given)]
        last = _scores(g, plain, net, [name for name, _ in given])
        returned: list[Any] = ["batch1", "batch2"] if pairs else ["batch"]
    else:
        given = [("input" if len(plain.inputs) == 1 else f"input{k + 1}", n) for k, n in enumerate(plain.inputs)]
        tokens = [] if plain.reads in ("points", "rows") else [plain.length or "tokens"]
        shapes = [["batch", *tokens, len(names)] for _, names in given]
        last = _tower(g, plain, net, [name for name, _ in given])
        one = plain.reads == "points" and len(plain.outputs) == 1
        returned = ["batch", *tokens[: plain.reads == "tokens"], *[len(plain.outputs)] * (not one)]
    g("Identity", last, name="output")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [
        helper.make_tensor_value_info(name, kind, shape, ", ".join(names)[:1000])
        for (name, names), shape in zip(given, shapes, strict=True)
    ]
    output = helper.make_tensor_value_info("output", kind, returned)
    weights = [numpy_helper.from_array(array, name) for name, array in g.arrays.items()]
    graph = helper.make_graph(g.nodes, "attnfun", inputs, [output], weights, facts["certificate"])
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="attnfun")
    helper.set_model_props(model, facts)
    return bytes(model.SerializeToString())


def _scores(g: _Nodes, plain: PlainScores, net: Any, given: Sequence[str]) -> str:
    towers = net["towers"]
    sides = [_tower(g, plain.tower(k), towers[min(k, len(towers) - 1)], [name]) for k, name in enumerate(given)]
    last = g("Mul", sides.pop(), net["signs"])
    if len(sides) == 1:
        return g("MatMul", sides[0], g("Transpose", last, perm=[1, 0]))
    return g("ReduceSum", g("Mul", g("Mul", *sides), last), g.whole(1), keepdims=0)


def _tower(g: _Nodes, plain: Plain, net: Any, given: Sequence[str]) -> str:
    """What a network puts out: the formulas of `plain.py`, line by line."""
    Z, deep = net.get("constant", ""), plain.reads in ("tokens", "first")
    for term in net["embed"].values():
        one = given[term["source"]]
        one = g("MatMul", one, term["matrix"]) if "matrix" in term else one
        one = g("MatMul", term["select"], one) if "select" in term else one
        Z = g("Add", one, Z) if Z else one
    m = plain.appended if plain.layers else 0
    if m:
        batch = g("Slice", g("Shape", Z), g.whole(0), g.whole(1))
        shape = g("Concat", batch, g.whole(m, plain.width), axis=0)
        Z = g("Concat", Z, g("Expand", net["tokens"], shape), axis=1)
    for number, layer in net["layers"].items():
        asks = g.cut(Z, 0, -m) if m and number == len(plain.layers) - 1 else Z
        out = g("MatMul", asks, layer["carry"]) if "carry" in layer else asks
        for head in layer["heads"].values():
            out = g("Add", out, _head(g, head, asks, Z, deep))
        if "units" in layer:
            u = layer["units"]
            read = g("Add", g("MatMul", out, u["query"]), u["query_bias"]) if "query" in u else out
            inner = g("Relu", g("Add", g("MatMul", read, u["inner"]), u["bias"]))
            out = g("Add", out, g("MatMul", inner, u["outer"]))
        Z = out
    Z = g("MatMul", Z, net["readout"])
    Z = g("Add", Z, net["readout_bias"]) if "readout_bias" in net else Z
    if plain.reads == "first":
        return g("Squeeze", g.cut(Z, 0, 1), g.whole(1))
    return g("Squeeze", Z, g.whole(-1)) if plain.reads == "points" and len(plain.outputs) == 1 else Z


def _head(g: _Nodes, head: Any, asks: str, Z: str, deep: bool) -> str:
    path = head["q"].removesuffix(".q")
    query = g("MatMul", asks, head["q"], name=f"{path}.query")
    query = g("Add", query, head["q_bias"]) if "q_bias" in head else query
    if head["constant"]:
        keys, values = g("Transpose", head["k"], perm=[1, 0]), head["v"]
    else:
        keys, values = g("Transpose", g("MatMul", Z, head["k"]), perm=[0, 2, 1]), g("MatMul", Z, head["v"])
    pattern = g("Softmax", g("MatMul", query, keys), axis=-1, name=f"{path}.pattern")
    return g("MatMul", g("MatMul", pattern, values, name=f"{path}.z"), head["o"])
