"""ReLU networks from torch and from safetensors: exact weights, named inputs, one-line refusals."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import attnfun as af
from attnfun.errors import AttnfunError, DamagedFile, InvalidRequest
from attnfun.language.mlp import read_mlp

nn = torch.nn


def small(*sizes: int, seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    layers: list[torch.nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def weights_of(graph: Any) -> set[Fraction]:
    return {node.value for node in graph.nodes if node.op == "const"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_weights_are_taken_exactly(dtype: torch.dtype, tmp_path: Path) -> None:
    module = small(3, 5, 2).to(dtype)
    path = tmp_path / "m.safetensors"
    save_file(module.state_dict(), path)
    true = {Fraction(float(v)) for p in module.parameters() for v in p.detach().double().flatten()}
    for target in (module, path, str(path)):
        mlp = read_mlp(target)
        assert mlp is not None
        assert weights_of(mlp.graph(("a", "b", "c"))) == true
        X = np.random.default_rng(0).uniform(-1, 1, (20, 3))
        expected = module.double()(torch.tensor(X)).detach().numpy()
        assert np.abs(mlp.values(X) - expected).max() < 1e-12
        module = module.to(dtype)


def test_names_are_sorted_as_numbers_and_may_have_prefixes(tmp_path: Path) -> None:
    module = small(2, 3, 3, 3, 3, 3, 3, 1)  # layers 0, 2, …, 12
    path = tmp_path / "m.safetensors"
    save_file({f"model.net.{k}": v for k, v in module.state_dict().items()}, path)
    mlp = read_mlp(path)
    assert mlp is not None
    X = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    assert np.allclose(mlp.values(X), module.double()(torch.tensor(X)).detach().numpy(), atol=1e-12)


def test_missing_biases_are_zero_and_nested_modules_are_flattened(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Sequential(nn.Linear(2, 4, bias=False), nn.ReLU()), nn.Identity(), nn.Linear(4, 1))
    path = tmp_path / "m.safetensors"
    save_file(module.state_dict(), path)
    one, other = read_mlp(module), read_mlp(path)
    assert one is not None
    assert other is not None
    assert one.graph(("x", "y")) == other.graph(("x", "y"))


def test_linear_maps_in_a_row_and_relu_at_either_end() -> None:
    module = nn.Sequential(nn.ReLU(), nn.Linear(2, 3), nn.Linear(3, 3), nn.ReLU())
    mlp = read_mlp(module)
    assert mlp is not None
    X = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    assert np.allclose(mlp.values(X), module.double()(torch.tensor(X)).detach().numpy(), atol=1e-12)
    net = af.compile(module, (-1, 1), 1e-4)
    assert net.certificate.status is af.Status.PROVED


def with_nan() -> torch.nn.Module:
    module = small(2, 3, 1)
    with torch.no_grad():
        module[0].weight[0, 0] = float("nan")
    return module


def with_hook() -> torch.nn.Module:
    module = small(2, 3, 1)
    module[0].register_forward_hook(lambda _m, _i, out: 2 * out)
    return module


def with_forward() -> torch.nn.Module:
    """relu6 in place of relu: the same numbers at small points."""
    module = small(2, 3, 1)
    module[1].forward = nn.functional.relu6  # type: ignore[method-assign]
    return module


class Other(torch.nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), "Tanh"),
        (lambda: nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(4, 1)), "takes 4 numbers"),
        (lambda: nn.Sequential(nn.ReLU()), "no linear layer"),
        (lambda: nn.Conv1d(1, 1, 1), "Conv1d"),
        (lambda: Other(nn.Linear(2, 1)), "Other"),
        (lambda: torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 1)), "ParametrizedLinear"),
        (with_nan, "NaN"),
        (with_hook, "hooks"),
        (with_forward, "forward of its own"),
        (lambda: nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1).double()), "cannot be called"),
        (lambda: small(2, 3, 1).to("meta"), "meta"),
        (lambda: nn.Linear(300, 300), "weights"),
    ],
)
def test_other_modules_are_refused_in_one_line(make: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as why:
        af.compile(make(), (-1, 1), 1e-3)
    assert "\n" not in str(why.value)


def test_hooks_of_all_modules_are_refused() -> None:
    module = small(2, 3, 1)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda _m, _i, out: out.clamp(max=50))
    try:
        with pytest.raises(InvalidRequest, match="global hooks"):
            read_mlp(module)
    finally:
        handle.remove()
    assert read_mlp(module) is not None


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    good = small(2, 3, 1).state_dict()
    made: dict[str, Any] = {
        "convolution": {"0.weight": torch.zeros(2, 2, 2)},
        "meet": {"0.weight": torch.zeros(3, 2), "2.weight": torch.zeros(1, 4)},
        "odd name": {**good, "running_mean": torch.zeros(3)},
        "bias alone": {"0.bias": torch.zeros(3)},
        "bias too long": {"0.weight": torch.zeros(3, 2), "0.bias": torch.zeros(4)},
        "whole numbers": {"0.weight": torch.zeros(3, 2, dtype=torch.int64)},
        "infinite": {"0.weight": torch.full((3, 2), float("inf"))},
        "two first layers": {"1.weight": torch.zeros(2, 2), "01.weight": torch.ones(2, 2)},
        "empty": {},
    }
    for name, tensors in made.items():
        path = tmp_path / f"{name}.safetensors"
        save_file(tensors, path)
        with pytest.raises(InvalidRequest) as why:
            af.compile(path, (-1, 1), 1e-3)
        assert "\n" not in str(why.value)
    save_file(good, tmp_path / "good.safetensors")
    data = (tmp_path / "good.safetensors").read_bytes()
    for cut in (0, 5, 40, len(data) - 1):
        (tmp_path / "cut.safetensors").write_bytes(data[:cut])
        with pytest.raises(DamagedFile):
            af.compile(tmp_path / "cut.safetensors", (-1, 1), 1e-3)
    with pytest.raises(InvalidRequest, match="cannot read"):
        af.compile("nowhere.safetensors", (-1, 1), 1e-3)
    af.compile("relu(x)", "x=-1:1", 1e-2).save(tmp_path / "own.safetensors")
    with pytest.raises(InvalidRequest, match="attnfun made"):
        af.compile(tmp_path / "own.safetensors", (-1, 1), 1e-3)


def test_domains() -> None:
    mlp = read_mlp(small(3, 2, 1))
    assert mlp is not None
    assert mlp.box((-1, 2)).text == "x1=-1:2;x2=-1:2;x3=-1:2"
    assert mlp.box([(-1, 2), (0, 1), (3, 4)]).text == "x1=-1:2;x2=0:1;x3=3:4"
    assert mlp.box(np.array([[-1, 2], [0, 1], [3, 4]])).text == "x1=-1:2;x2=0:1;x3=3:4"
    assert mlp.box("-1:2").text == "x1=-1:2;x2=-1:2;x3=-1:2"
    assert mlp.box(["-1:2", "x2=0:1"]).text == "x1=-1:2;x2=0:1;x3=-1:2"
    assert mlp.box({"a": (0, 1), "b": (0, 2), "c": (0, 3)}).names == ("a", "b", "c")
    for mixed in ("x3=3:4;x1=-1:2;x2=0:1", {"x2": (0, 1), "x3": (3, 4), "x1": (-1, 2)}):  # x2 is the second input
        assert mlp.box(mixed).text == "x1=-1:2;x2=0:1;x3=3:4"
    for bad in ((1, -1), [(0, 1), (0, 1)], "x1=0:1", {"a": (0, 1)}, ["0:1", "1:2"], ["0:1", "y=0:1"], 3, "0", (0, "x")):
        with pytest.raises(AttnfunError):
            mlp.box(bad)


def test_reading_a_file_loads_no_torch(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file(small(2, 3, 1).state_dict(), path)
    code = (
        "import sys, attnfun as af\n"
        f"net = af.compile({str(path)!r}, (-1, 1), 1e-3)\n"
        "assert net.certificate.status == 'proved' and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
