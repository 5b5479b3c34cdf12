"""Every construction of the registry, on its cases: see `conformance.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnfun.kinds.function.build import CONSTRUCTIONS
from constructions import conformance as c


def parameter(name: str, case: c.Case) -> Any:
    return pytest.param(name, case, id=f"{name}: {case.label}", marks=[pytest.mark.slow] if case.slow else [])


PAIRS = [parameter(name, case) for name in CONSTRUCTIONS for case in c.CASES.get(name, ())]
BAD = [parameter(name, case) for name in CONSTRUCTIONS for case in (*c.REFUSED.get(name, ()), *c.ALWAYS_REFUSED)]


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_every_construction_has_cases(name: str) -> None:
    cases, where = c.CASES.get(name, ()), "tests/constructions/conformance.py"
    assert len(cases) >= 3, f"add cases for '{name}' to {where}"
    several = [len(getattr(case.target, "outputs", ())) > 1 or isinstance(case.target, list | tuple) for case in cases]
    assert any(several), f"add a case of several outputs to {where}"
    assert any(case.options.get("dtype") == "float32" for case in cases), f"add a case in float32 to {where}"
    assert c.REFUSED.get(name), f"say in tests/constructions/conformance.py what '{name}' must refuse"


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_every_construction_says_what_it_is(name: str) -> None:
    construction = CONSTRUCTIONS[name]
    assert construction.name == name and len(construction.summary) > 20


# One test a case, so that a case is compiled by one worker only and once.
@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_conforms(name: str, case: c.Case, tmp_path: Path) -> None:
    net = c.build(name, case)
    assert net.certificate.construction == name
    c.check_bound(net, case)
    c.check_forms(net, case)
    c.check_routes(net)
    c.check_file(net, case, tmp_path)
    c.check_plan(name, net, case)
    c.check_determinism(name, net, case)
    assert net.explain()


@pytest.mark.parametrize(("name", "case"), BAD)
def test_refuses_bad_input(name: str, case: c.Case) -> None:
    why = c.refuses(name, case)
    assert why is not None, f"{name} accepted {case.label}"
    assert "\n" not in str(why) and len(str(why)) > 15
