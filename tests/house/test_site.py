"""What can be said of the site without building it; `make test-docs` builds it and opens every page."""

import ast
import re
from pathlib import Path

import pytest

import attnfun as af

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "docs" / "tutorials").glob("*.py")) + [ROOT / "docs" / "gallery.py"]
NAV = (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_tutorials_and_gallery_use_public_names_alone(source: Path) -> None:
    tree = ast.parse(source.read_text())
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "af"}
    assert used and used <= set(af.__all__)
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(str(module).startswith("attnfun") for module in imported)


def test_a_tutorial_ends_with_an_exercise() -> None:
    cells = [re.split(r"^# %%", source.read_text(), flags=re.M)[-1] for source in SOURCES[:-1]]
    assert len(cells) == 4 and all("# ## Exercise" in cell for cell in cells)


def test_the_site_leads_to_every_page_and_to_every_group_of_public_names() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    pages |= {f"tutorials/{path.stem}.md" for path in SOURCES[:-1]}
    pages |= {f"benchmarks/{path.name}" for path in (ROOT / "benchmarks").glob("*.md")}
    pages |= {"gallery.md"}
    groups = re.findall(r"^# (.+)\n__all__ ", Path(af.__file__).read_text(), re.M)
    pages |= {f"api/{re.sub(r'[^a-z]+', '-', group)}.md" for group in groups}
    assert groups and not {page for page in pages if f": {page}\n" not in NAV}


def test_published_files_are_as_their_list_says() -> None:
    from hashlib import sha256

    folder = ROOT / "docs" / "vendor" / "katex"
    listed = dict(re.findall(r"^\| `(.+)` \| ([0-9a-f]{64}) \|$", (folder / "README.md").read_text(), re.M))
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    found.pop("README.md")
    assert {name: sha256(path.read_bytes()).hexdigest() for name, path in found.items()} == listed


def test_the_gallery_has_thirty_targets_of_three_lines() -> None:
    calls = [
        node for node in ast.parse(SOURCES[-1].read_text()).body if not isinstance(node, ast.ImportFrom | ast.Import)
    ]
    assert len(calls) == 90 and SOURCES[-1].read_text().count("# ### ") == 30
