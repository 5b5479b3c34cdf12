"""What the project must show, row by row: sizes, slack, refusals. Times are measured by `make bench`, not here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.network import evaluate
from attnfun.network.evaluate import chosen_routes
from certify.hunting import assert_sound, errors

FRANKE = (
    "0.75*exp(-(9*x-2)**2/4-(9*y-2)**2/4)+0.75*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    "+0.5*exp(-(9*x-7)**2/4-(9*y-3)**2/4)-0.2*exp(-(9*x-4)**2-(9*y-7)**2)"
)


@pytest.mark.parametrize(
    ("target", "domain", "eps", "method", "keys", "slack"),
    [
        ("sin(3*x)+cos(2*y)*exp(x*y)", "x=-1:1;y=-1:1", 1e-6, "bernstein", 250, 1.6),
        ("sin(3*x)", "x=-1:1", 1e-9, "auto", 20, 1.3),
        pytest.param(FRANKE, "x=0:1;y=0:1", 1e-6, "bernstein", 1000, 1.6, marks=pytest.mark.slow),
        (FRANKE, "x=0:1;y=0:1", 1e-6, "auto", 1000, 1.6),
        pytest.param("sin(x)+y*cos(z)", "x=-1:1;y=-1:1;z=-1:1", 1e-6, "bernstein", 1500, 2.0, marks=pytest.mark.slow),
        ("sin(x)+y*cos(z)", "x=-1:1;y=-1:1;z=-1:1", 1e-6, "auto", 1500, 2.0),
    ],
    ids=["sin+cos*exp", "sin(3x)", "Franke, one head", "Franke", "three variables, one head", "three variables"],
)
def test_sizes_and_slack(
    target: str, domain: str, eps: float, method: str, keys: int, slack: float, tmp_path: Path
) -> None:
    net = af.compile(target, domain, eps, method=method)
    certificate = net.certificate
    assert certificate.status is Status.PROVED and certificate.error[1] <= eps
    assert net.cost.keys <= keys
    assert method == "auto" or (net.cost.heads, net.cost.layers) == (1, 1)
    assert certificate.slack <= slack
    assert_sound(certificate, net.network, net.target)
    net.save(tmp_path / "f.safetensors")
    again = af.verify(tmp_path / "f.safetensors")
    assert (again.status, again.error, again.target) == (certificate.status, certificate.error, certificate.target)


@pytest.mark.parametrize("eps", [0.05, 0.2])
def test_the_seeds_example_as_a_partition(eps: float) -> None:
    """In the self form, at 0.05, 16,129 constant tokens and the points attend to each other."""
    torch = pytest.importorskip("torch")
    net = af.compile("sin(x)+cos(y)", "x=-3:3;y=-3:3", eps, method="partition")
    assert net.certificate.status is Status.PROVED and net.cost.heads == 1
    assert net.certificate.slack <= 1.6
    published = net.story["published worst case"]
    assert published["cells"] >= (3 * 1.41 * math.sqrt(2) / eps) ** 2  # ⌈B L √d/ε⌉ an axis
    assert "published worst case" in net.explain()
    X = np.random.default_rng(0).uniform(-3, 3, (40, 2))
    rounding = net.certificate.parts["rounding"]
    for form in ("self", "cross"):
        found = net.to_torch(torch.float64, form=form)(torch.tensor(X)).numpy()
        assert np.abs(found - net(X)).max() <= 2 * rounding
        assert np.abs(found - net.target.values(X)[:, 0]).max() <= net.certificate.error[1]
    joint = net.to_torch(torch.float64, form="joint", second=("y",))
    assert np.abs(joint(torch.tensor(X[:, :1]), torch.tensor(X[:, 1:])).numpy() - net(X)).max() <= 2 * rounding


@pytest.mark.slow
def test_a_million_cells() -> None:
    net = af.compile("sin(3*x)*cos(2*y) + x", "x=-1:1;y=-1:1", 0.0034, method="partition", temperature="sharp")
    assert net.cost.keys >= 10**6
    assert net.certificate.status is Status.PROVED and net.certificate.slack <= 1.6
    assert chosen_routes(net.network) == (("local",),)
    X = np.random.default_rng(0).uniform(-1, 1, (20_000, 2))
    assert errors(net.network, net.target, X).max() <= net.certificate.error[1]
    few = X[:50]
    assert (
        np.abs(evaluate(net.network, few, "local") - evaluate(net.network, few, "factorised")).max()
        <= 2 * (net.certificate.parts["rounding"])
    )


def test_a_narrow_spike_is_approximated_or_refused() -> None:
    target = "exp(-((x-0.123456)*1e3)**2)"
    try:
        net = af.compile(target, "x=-1:1", 0.1)
    except af.Infeasible as why:
        assert target[:10] in str(why) or "keys" in str(why)
        return
    assert net.certificate.status is Status.PROVED
    X = np.concatenate([np.linspace(-1, 1, 20001), np.linspace(0.12, 0.127, 20001), [0.123456]])[:, None]
    assert errors(net.network, net.target, X).max() <= net.certificate.error[1] <= 0.1
    assert abs(net([[0.123456]])[0] - 1) <= 0.1


@pytest.mark.parametrize(
    ("target", "domain", "eps"),
    [
        ("1/x", "x=-1:1", 1e-3),
        ("log(x)", "x=0:1", 1e-3),
        ("sqrt(x)", "x=-1:1", 1e-3),
        ("sign(x)", "x=-1:1", 1e-3),
        ("x", "x=-1:1", 0.0),
        ("x", "x=1:1", 1e-3),
        ("__import__('os')", "x=-1:1", 1e-3),
        ("(" * 60_000 + "x" + ")" * 60_000, "x=-1:1", 1e-3),
        ("(" * 10**6, "x=-1:1", 1e-3),
        ("sin(x) + zz", "x=-1:1", 1e-3),
    ],
    ids=["1/x", "log", "sqrt", "sign", "eps 0", "1:1", "import", "60,000 brackets", "10^6 brackets", "unknown name"],
)
def test_bad_requests_are_one_clear_line(target: str, domain: str, eps: float) -> None:
    with pytest.raises((af.InvalidRequest, af.Infeasible)) as caught:
        af.compile(target, domain, eps)
    text = str(caught.value)
    assert "\n" not in text and 20 < len(text) < 500


def test_sign_is_allowed_in_the_mean() -> None:
    net = af.compile("sign(x)", "x=-1:1", 0.05, norm=1)
    assert net.certificate.status is Status.PROVED and net.certificate.norm == 1.0
    count = 200_001
    X = (-1 + 2 * (np.arange(count) + 0.5) / count)[:, None]
    mean = float(np.mean(np.abs(net(X) - np.sign(X[:, 0]))))
    assert mean <= net.certificate.error[1] <= 0.05


@pytest.mark.parametrize("kind", ["value bit", "metadata", "header", "cut", "empty", "pickle"])
def test_damaged_files_are_errors(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    af.compile("sin(3*x)", "x=-1:1", 1e-6, method="bernstein").save(path)
    data = bytearray(path.read_bytes())
    if kind == "value bit":
        data[-4] ^= 4
    elif kind == "metadata":
        place = data.rindex(b"sin(3*x)")  # the one of the target; verify does not read the certificate
        data[place + 4] ^= 1
    elif kind == "header":
        data[3] ^= 1
    elif kind == "cut":
        data = data[: len(data) // 2]
    elif kind == "empty":
        data = bytearray()
    else:
        import pickle

        data = bytearray(pickle.dumps({"a": 1}))
    path.write_bytes(bytes(data))
    for verb in (af.load, af.verify):
        with pytest.raises(af.DamagedFile) as caught:
            verb(path)
        assert "\n" not in str(caught.value)


def test_the_certificate_says_what_it_is_about() -> None:
    net = af.compile("sin(3*x)", "x=-1:1", 1e-6)
    record: dict[str, Any] = net.certificate.to_json()
    assert {"status", "error", "error_low", "eps", "method", "hypotheses", "parts", "target", "domain"} <= set(record)
    assert math.isclose(sum(record["parts"].values()), record["error"], rel_tol=1e-12)
