"""Wheel and sdist as a user gets them: each is installed alone into a fresh environment of every Python that is found.

    python tests/wheels/check.py dist          # `make test-dist` builds both into dist/ before

Of the archives: every file of src/attnfun is in both, the wheel has nothing else, and what it requires is the core.
Of every environment: nothing of the extras came along, every public name and every command loads, one target goes
through compile, verify, show and eval, `suite` runs without joblib and says how to have more processes.
Python at hand is the one that runs this. Others: python3.N on PATH, and the versions that pyenv's shims stand for.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
EXTRAS_ALONE = ("torch", "matplotlib", "joblib", "jinja2", "sklearn", "distributed")
PROBE = "import ensurepip, platform, sys, venv; print(*sys.version_info[:2], platform.python_version())"

LIGHT = """
import sys, time
class Asked(set):  # what an import looks for, whether it is found or not
    def find_spec(self, name, *_):
        self.add(name.split(".")[0])
sys.meta_path.insert(0, asked := Asked())
start = time.process_time()
import attnfun
seconds = time.process_time() - start
print(round(seconds, 3), *sorted(asked - set(sys.stdlib_module_names)))
"""
EVERYTHING = f"""
import importlib.util, sys
import attnfun as af
for name in af.__all__:
    getattr(af, name)
from attnfun.cli import application
application("*")
from attnfun.kinds.function.build.unary import tables
print([name for name in {EXTRAS_ALONE!r} if importlib.util.find_spec(name) or name in sys.modules])
"""


def shipped() -> set[str]:
    """The files of the package, as they stand in a wheel."""
    files = (path.relative_to(SRC) for path in (SRC / "attnfun").rglob("*") if path.is_file())
    return {str(PurePosixPath(file)) for file in files if "__pycache__" not in file.parts}


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(about).decode()
    package = {name for name in names if not name.startswith(about.split("/")[0])}
    assert package == shipped(), package ^ shipped()
    assert "attnfun/py.typed" in package
    required = re.findall(r"^Requires-Dist: ([\w.-]+)(?!.*extra ==)", text, re.MULTILINE)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert set(required) == {re.split(r"[^\w.-]", one)[0] for one in declared}, required
    kinds = sorted({PurePosixPath(name).suffix or PurePosixPath(name).name for name in package} - {".py"})
    print(f"{wheel.name}: {len(package)} files, data {' '.join(kinds)}; requires {', '.join(required)}")


def check_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = {f"src/{name}" for name in shipped()} - names
    assert not missing, missing
    needed = {"pyproject.toml", "Makefile", "constraints.txt", "README.md", "LICENSE", "CITATION.cff", "SECURITY.md"}
    assert needed <= names, needed - names
    generated = [name for name in names if "__pycache__" in name or name.startswith((".venv", "build/", "dist/"))]
    assert not generated, generated
    print(f"{sdist.name}: {len(names)} files")


def pythons() -> Iterator[tuple[str, str]]:
    """(version, program) of every Python 3.11+ that can make environments, the one at hand first, each version once."""
    folders = [Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part]
    shims = [folder.parent / "versions" for folder in folders if folder.name == "shims"]
    at_hand = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}"
    found = [at_hand if at_hand.exists() else Path(sys.executable)]
    found += [path for folder in folders for path in sorted(folder.glob("python3*")) if _named(path)]
    found += [path for folder in shims for path in sorted(folder.glob("*/bin/python3"))]
    versions: set[str] = set()
    for path in found:
        done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, env=clean())
        major, minor, version = done.stdout.split() if done.returncode == 0 else ("0", "0", "")
        if (int(major), int(minor)) >= (3, 11) and version not in versions:
            versions.add(version)
            yield version, str(path)


def _named(path: Path) -> bool:
    return bool(re.fullmatch(r"python3(\.\d+)?", path.name)) and os.access(path, os.X_OK)


def clean() -> dict[str, str]:
    """The environment without what would show Python another attnfun than the installed one."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV", "ATTNFUN"))}


def check_install(program: str, archive: Path, room: Path) -> str:
    """The archive alone in a fresh environment, used; how light its import is."""
    subprocess.run([program, "-m", "venv", room / "env"], check=True, env=clean())
    python = room / "env" / "bin" / "python"

    def run(*words: object, code: int = 0) -> str:
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=room, env=clean())
        assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout + done.stderr

    def attnfun(*words: str, code: int = 0) -> str:
        return run(room / "env" / "bin" / "attnfun", *words, code=code)

    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", archive)
    home = run(python, "-c", "import attnfun; print(attnfun.__file__)").strip()
    assert Path(home).is_relative_to(room / "env"), home
    assert run(python, "-c", EVERYTHING).split() == ["[]"], "an extra is installed with the core, or is loaded"
    assert "compile" in attnfun("--help") and "doctor" in attnfun("--help")
    attnfun("compile", "sin(3*x)", "--domain", "x=-1:1", "--eps", "1e-4", "-o", "f.safetensors")
    assert json.loads(attnfun("verify", "f.safetensors", "--json"))["status"] == "proved"
    assert "sin(3*x)" in attnfun("show", "f.safetensors").replace(" ", "")
    assert abs(float(attnfun("eval", "f.safetensors", "--at", "x=0.3").split(",")[-1]) - 0.783326909627) <= 1e-4
    assert json.loads(attnfun("doctor", "--json"))["packages"]["torch"] is None
    (room / "targets.csv").write_text("name,formula,domain\nwave,sin(x),x=0:1\n")
    suite = ("suite", "targets.csv", "--eps", "1e-3")
    assert json.loads(attnfun(*suite, "--jobs", "1", "--json"))["summary"]["proved"] == 1
    assert "pip install joblib" in attnfun(*suite, code=2)
    assert "matplotlib" in attnfun("show", "f.safetensors", "--png", code=2)
    seconds, *asked = run(python, "-c", LIGHT).split()
    assert not set(asked) & set(EXTRAS_ALONE), asked
    return f"import attnfun takes {seconds} s of CPU and looks, beside Python's own, for {' '.join(asked)}"


def main(folder: Path) -> None:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    found = list(pythons())
    print("found Python", ", ".join(version for version, _ in found))
    for version, program in found:
        for archive in (wheel, sdist):
            with tempfile.TemporaryDirectory() as room:
                told = check_install(program, archive.resolve(), Path(room).resolve())
                print(f"Python {version}, {archive.name}: works; {told}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
