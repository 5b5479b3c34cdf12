"""Every way out of every kind is the network: ONNX, NumPy and LaTeX files, their names, their words, their refusals."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.export import WRITERS, certified_by, export, numpy_file, onnx_file, tex_file
from attnfun.kinds import NAMES
from attnfun.network.plain import weights_of
from attnfun.network.sealed import held
from house.requests import model
from products import few

DTYPES = ("float64", "float32")
kinds = pytest.mark.parametrize("kind", NAMES)
STANDARD = {"MatMul", "Add", "Mul", "Transpose", "Softmax", "Relu", "Concat", "Slice", "Squeeze", "Shape", "Expand"}
STANDARD |= {"ReduceSum", "Identity"}


@cache
def networked(kind: str, seed: int = 0) -> Any:
    """A model of the kind that holds a network: of a trilinear form, towers that were trained for its relation."""
    one = model(kind, seed)
    return af.train(one, steps=2, widths=(4,), rank=2) if kind == "ternary" else one


def drawn(one: Any, count: int, seed: int) -> list[Any]:
    given, _ = one.target.encode(one.weights, *one.target.draw(np.random.default_rng(seed), count))
    return [array[:count] for array in given if isinstance(array, np.ndarray)]


def calls(one: Any) -> list[list[Any]]:
    """Inputs in two batch sizes, and where any number of tokens is taken, of two other lengths."""
    found = [drawn(one, 1, 11), drawn(one, 5, 12)]
    plain = one.weights.plain()
    if getattr(plain, "reads", "") == "tokens" and plain.length is None:
        (tokens,) = found[1]
        found += [[tokens[:, 1:]], [np.concatenate([tokens, tokens], axis=1)]]
    return found


def allowed(one: Any, dtype: str, wanted: Any) -> float:
    """Within the certificate's rounding part of the real network, both; where it has none, as
    `compare` allows: 2^12 units of the last place of what stands between."""
    within = one.certificate.parts.get("rounding") if dtype == one.dtype else None
    ulp = max(np.finfo(dtype).eps, np.finfo(one.dtype).eps) * max(1.0, one.cost.max_value, np.abs(wanted).max())
    return max(2 * within, 16 * ulp) if within else 2**12 * ulp


def agrees(one: Any, dtype: str, arrays: list[Any], found: Any) -> None:
    wanted = np.asarray(one.weights.run(*arrays), dtype=np.float64)
    assert found.dtype == dtype and found.size == wanted.size
    assert np.abs(found.reshape(wanted.shape) - wanted).max() <= allowed(one, dtype, wanted)


def session(path: Path) -> Any:
    return pytest.importorskip("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("seed", [0, 1])
@kinds
def test_onnxruntime_computes_the_network_for_any_batch_and_length(kind: str, seed: int, tmp_path: Path) -> None:
    one = networked(kind, seed)
    for dtype in DTYPES:
        report = one.to_onnx(tmp_path / "m.onnx", dtype)
        assert report["difference"] <= report["allowed"]
        ran = session(tmp_path / "m.onnx")
        names = [own.name for own in ran.get_inputs()]
        for arrays in calls(one):
            given = {name: array.astype(dtype) for name, array in zip(names, arrays, strict=True)}
            agrees(one, dtype, arrays, ran.run(None, given)[0])


@kinds
def test_initialisers_are_called_what_the_weights_of_the_torch_module_are(kind: str, tmp_path: Path) -> None:
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("torch")
    one = networked(kind)
    one.to_onnx(tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx").graph
    seen = {own.name: onnx.numpy_helper.to_array(own) for own in graph.initializer}
    mine = {name: array for name, array in seen.items() if not name.startswith("index.")}
    theirs = one.to_torch(outside="allow").state_dict()
    assert mine.keys() == theirs.keys()
    assert all(np.array_equal(mine[name], theirs[name].numpy()) for name in mine)
    assert {node.op_type for node in graph.node} <= STANDARD and not any(node.domain for node in graph.node)
    assert all(isinstance(own.type.tensor_type.shape.dim[0].dim_param, str) for own in graph.input)


@kinds
def test_a_graph_says_what_it_is_and_which_file_it_belongs_to(kind: str, tmp_path: Path) -> None:
    one = networked(kind)
    one.save(tmp_path / "m.safetensors")
    again = af.load(tmp_path / "m.safetensors")
    again.to_onnx(tmp_path / "m.onnx")
    said = session(tmp_path / "m.onnx").get_modelmeta().custom_metadata_map
    assert said["hash"] == held(tmp_path / "m.safetensors").record["hash"] == one.hash
    assert (said["target"], said["domain"], said["kind"]) == (one.target.text, one.target.domain, kind)
    assert said["proved_for"] == said["dtype"] == one.dtype
    assert said["certificate"].startswith("As stored, not verified")
    assert said["eps"] == ("none" if one.claim.eps is None else repr(one.claim.eps))


@kinds
def test_the_certificate_is_told_as_it_is(kind: str) -> None:
    one = model(kind, 0)
    text, c = certified_by(one, one.dtype), one.certificate
    assert text.startswith(c.heading) and ("at most" in text) == c.bounds
    if c.bounds:
        assert repr(c.error[1]) in text and c.dtype in text
    else:
        assert "not a bound" in text or (c.reason or c.status.meaning) in text
    coarser = [dtype for dtype in DTYPES if np.finfo(dtype).eps > np.finfo(one.dtype).eps]
    assert all("says nothing of arithmetic in " + dtype in certified_by(one, dtype) for dtype in coarser)
    assert "says nothing" not in text + certified_by(one, "float64")


def test_numpy_files_are_the_network_and_need_numpy_alone(tmp_path: Path) -> None:
    """All kinds and both dtypes, each file imported and called in one process in which nothing else is found."""
    jobs = []
    for kind in NAMES:
        for dtype in DTYPES:
            one, name = networked(kind), f"{kind}_{dtype}"
            report = export(one, tmp_path / f"{name}.py", "numpy", dtype)
            assert report["difference"] <= report["allowed"]
            for k, arrays in enumerate(calls(one)):
                np.savez(tmp_path / f"{name}.{k}.npz", *arrays)
                jobs.append((name, k, one, dtype, arrays))
    code = (
        "import importlib, json, sys, numpy as np\n"
        "sys.path.insert(0, '.')\n"
        "for name, k in json.loads(sys.stdin.read()):\n"
        "    given = np.load(f'{name}.{k}.npz')\n"
        "    np.save(f'{name}.{k}.npy', importlib.import_module(name).network(*(given[one] for one in given.files)))\n"
        "assert not any(one.split('.')[0] in ('attnfun', 'torch', 'scipy') for one in sys.modules)\n"
    )
    (tmp_path / "calls.py").write_text(code)
    told = json.dumps([job[:2] for job in jobs])
    command = [sys.executable, "-I", "calls.py"]
    done = subprocess.run(command, input=told, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    for name, k, one, dtype, arrays in jobs:
        agrees(one, dtype, arrays, np.load(tmp_path / f"{name}.{k}.npy"))
    first = ast.get_docstring(ast.parse((tmp_path / "function_float64.py").read_text("utf-8")), clean=False)
    assert first is not None and all(part in first for part in (networked("function").hash, "certificate: Proved"))


@pytest.mark.parametrize("seed", range(3))
def test_the_literals_of_a_file_are_the_weights_bit_for_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [(int(rng.integers(0, 5)), int(rng.integers(1, 40))) for _ in range(6)] + [(3,), (100,)]
    for dtype in DTYPES:
        arrays = {f"a{k}": rng.normal(size=s) * 10.0 ** rng.integers(-300, 300) for k, s in enumerate(shapes)}
        with np.errstate(over="ignore"):
            arrays = {name: np.nan_to_num(array.astype(dtype)) for name, array in arrays.items()}
        text = "\n".join(numpy_file._literal("X = ", {"in": arrays, "n": 3}, dtype, "", ""))
        again = numpy_file.read(ast.literal_eval(text.removeprefix("X = ")), dtype)
        assert again["n"] == 3
        for name, array in arrays.items():
            assert again["in"][name].dtype == dtype and again["in"][name].tobytes() == array.tobytes()
            assert again["in"][name].shape == array.shape


HOSTILE = [
    '"""\nimport os\nos.abort()\n"""',
    "\\",
    '\\"""+x',
    "\\end{document}\\input{/etc/passwd}",
    "100% $x_1^2$ & ~#{",
    "\ud800é",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_from_a_stranger_is_text_in_every_file(name: str, tmp_path: Path) -> None:
    one = networked("sampled")
    other = af.Model(af.learn.SampledTask(name, one.target.sampler, ("x", "y"), ("f",)), one.weights, one.certificate)
    export(other, tmp_path / "m.py", "numpy")
    tree = ast.parse((tmp_path / "m.py").read_text("utf-8"))
    plain = {type(node).__name__ for node in tree.body}
    assert plain == {"Expr", "Import", "ImportFrom", "Assign", "FunctionDef"} and isinstance(tree.body[0], ast.Expr)
    assert sum(isinstance(node, ast.Expr) for node in tree.body) == 1
    assert {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names} == {"numpy"}
    export(other, tmp_path / "m.tex", "tex")
    text = (tmp_path / "m.tex").read_text("utf-8")
    well_formed(text)
    assert text.isascii() and "\\input{" not in text.replace("\\textbackslash{}input\\{", "")
    other.to_onnx(tmp_path / "m.onnx")
    wanted = name.encode("utf-8", "replace").decode()
    assert session(tmp_path / "m.onnx").get_modelmeta().custom_metadata_map["target"] == wanted


def well_formed(text: str) -> None:
    """Braces and environments close in the order in which they open."""
    open_ones: list[str] = []
    for brace, begin, end in re.findall(r"(?<!\\)([{}])|\\begin\{(\w+\*?)\}|\\end\{(\w+\*?)\}", text):
        if brace == "{" or begin:
            open_ones.append(brace or begin)
        else:
            assert open_ones.pop() == (end or "{")
    assert not open_ones


def matrices(text: str) -> list[Any]:
    """Every matrix in order, its numbers read as they are printed."""
    found = []
    for inside in re.findall(r"\\begin\{bmatrix\}\n(.*?)\n\\end\{bmatrix\}", text, re.S):
        plain = re.sub(r"\\cdot 10\^\{(-?\d+)\}", r"e\1", inside)
        found.append(np.array([[float(cell) for cell in row.split(" & ")] for row in plain.split(" \\\\\n")]))
    return found


@kinds
def test_latex_holds_all_digits_of_all_weights_or_is_refused_with_their_number(kind: str, tmp_path: Path) -> None:
    one = networked(kind)
    arrays = [np.atleast_2d(array) for _, array in weights_of(tex_file.tree(one.weights.plain()))]
    size = sum(array.size for array in arrays)
    if size > tex_file.LIMIT:
        with pytest.raises(af.Infeasible, match=f"{size:,} numbers"):
            export(one, tmp_path / "m.tex", "tex")
        assert not list(tmp_path.iterdir())
        return
    assert export(one, tmp_path / "m.tex", "tex")["numbers"] == size
    text = (tmp_path / "m.tex").read_text("ascii")
    well_formed(text)
    seen = matrices(text)
    assert sum(array.size for array in seen) == size
    mine, theirs = (np.sort(np.concatenate([a.astype(one.dtype).ravel() for a in every])) for every in (arrays, seen))
    assert np.array_equal(mine, theirs) and one.hash in text


def test_a_long_matrix_goes_on_below(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(2 * tex_file.ROWS + 3, 2))
    seen = matrices("\n".join(tex_file._matrix("K", array)))
    assert len(seen) == 3 and np.array_equal(np.concatenate(seen), array)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    export(networked("function"), tmp_path / "m.tex", "tex")
    begin = "\\documentclass{article}\\usepackage{amsmath,graphicx}\\begin{document}\\input{m.tex}\\end{document}"
    (tmp_path / "p.tex").write_text(begin)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "p.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0 and (tmp_path / "p.pdf").stat().st_size > 10_000


@pytest.mark.parametrize("module, to", [(onnx_file, "onnx"), (numpy_file, "numpy")])
@kinds
def test_a_file_with_a_changed_weight_is_not_left_behind(
    kind: str, module: Any, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, real = networked(kind), module.tree
    rng = np.random.default_rng(NAMES.index(kind))

    def changed(plain: Any) -> Any:
        net = real(plain)
        own = net["towers"][0] if "towers" in net else net
        at = rng.choice(np.flatnonzero(own["readout"]))
        own["readout"] = own["readout"].copy()
        own["readout"].flat[at] *= 1.5
        return net

    monkeypatch.setattr(module, "tree", changed)
    (tmp_path / "m").write_text("before")
    with pytest.raises(af.AttnfunError, match="differs from the network by"):
        export(one, tmp_path / "m", to)
    assert [path.name for path in tmp_path.iterdir()] == ["m"] and (tmp_path / "m").read_text() == "before"


def test_a_trilinear_form_says_what_can_be_exported_instead(tmp_path: Path) -> None:
    for to in WRITERS:
        with pytest.raises(af.InvalidRequest, match=r"nothing to export; af\.train\(model, widths"):
            export(model("ternary", 0), tmp_path / "m", to)
    assert not list(tmp_path.iterdir())


def test_a_sampled_task_from_a_file_is_compared_without_its_sampler(tmp_path: Path) -> None:
    networked("sampled").save(tmp_path / "m.safetensors")
    assert af.load(tmp_path / "m.safetensors").to_onnx(tmp_path / "m.onnx")["difference"] < 1e-12


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_one_sentence(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(af.AttnfunError, match=f"^{package} is not installed: pip install onnx onnxruntime$"):
        networked("function").to_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize("place, why", [("none/m.onnx", "there is no folder"), (".", "is a folder")])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    place: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["attnfun.export"], "named", lambda _: pytest.fail("the work was begun"))
    with pytest.raises(af.InvalidRequest, match=why):
        networked("function").to_onnx(tmp_path / place)


def test_the_command_exports_every_format_and_its_help_lists_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["export", "--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"{name}:" in told for name in WRITERS)
    file = str(tmp_path / "m.safetensors")
    networked("relation").save(file)
    for to in ("onnx", "numpy", "tex"):
        assert main(["export", file, "--to", to, "-o", str(tmp_path / to), "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["bytes"] == (tmp_path / to).stat().st_size and record["hash"] == networked("relation").hash
    assert main(["show", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hash"] == record["hash"]


@pytest.mark.parametrize("suffix, begins", few([("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")], 1))
def test_a_picture_has_the_format_of_its_name(
    suffix: str, begins: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    file, path = str(tmp_path / "m.safetensors"), tmp_path / f"m.{suffix}"
    networked("matching").save(file)
    assert main(["show", file, "--png", str(path)]) == 0
    assert path.read_bytes().startswith(begins)
