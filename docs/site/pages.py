"""Write all that mkdocs reads into build/docs: the pages of docs/, the reference, gallery and tutorials as run.

python docs/site/pages.py                  # all of it
python docs/site/pages.py text reference   # some of it
"""

import re
import shutil
import sys
from base64 import b64decode
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

import attnfun as af

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "docs"
WRAPPED = "\n\n<style>.language-text code { white-space: pre-wrap; }</style>\n"  # what cells print


def text() -> None:
    """The pages that people wrote."""
    for page in sorted(ROOT.glob("*.md")):
        write("index.md" if page.name == "README.md" else page.name, typeset(linked(page.read_text(), "docs/")))
    for name in ("CITATION.cff", "LICENSE"):
        write(name, (ROOT / name).read_text())
    for page in sorted((ROOT / "docs").glob("*.md")):
        write(page.name, typeset(linked(page.read_text(), "../")))
    for page in sorted((ROOT / "benchmarks").glob("*.md")):
        write(f"benchmarks/{page.name}", page.read_text().replace("](../docs/", "](../"))
    for picture in (ROOT / "docs").glob("*.png"):
        shutil.copy(picture, OUT)
    for folder in ("vendor", "assets"):
        left_out = shutil.ignore_patterns("*.md")
        shutil.copytree(ROOT / "docs" / folder, OUT / folder, dirs_exist_ok=True, ignore=left_out)


def linked(page: str, away: str) -> str:
    """Links as the site has them: docs/ is its root, so `away` falls off; README is its index, tutorials are pages."""
    page = page.replace(f"]({away}", "](").replace("](README.md", "](index.md")
    return re.sub(r"\]\((tutorials/[\w-]+)\.py\)", r"](\1.md)", page)


def typeset(page: str) -> str:
    """k_j and e^{−c} in sentences become subscripts and superscripts; code, links and displayed formulas stay."""
    parts = re.split(r"(```.*?```|`[^`]*`|\]\([^)]*\)|\$\$.*?\$\$|^ {4}[^\n]*)", page, flags=re.S | re.M)
    for k in range(0, len(parts), 2):
        text, before = re.sub(r"\{[^{}]*\}", lambda found: found[0].replace("<", "&lt;"), parts[k]), ""
        while text != before:  # inner ones first
            before = text
            text = re.sub(r"(?<=\w)_(?:\{([^{}]*)\}|(\w{1,2})(?!\w))", r"<sub>\1\2</sub>", text)
            text = re.sub(r"(?<=[\w)\]}|>])\^(?:\{([^{}]*)\}|(\w+|\*))", r"<sup>\1\2</sup>", text)
        parts[k] = text
    return "".join(parts)


def reference() -> None:
    """A page for each group of public names, as the comments above `__all__` name them."""
    source = Path(af.__file__).read_text()
    for title, lines in re.findall(r"^# (.+)\n((?:__all__ .+\n)+)", source, re.M):
        page = [f"# {title[0].upper()}{title[1:]}"]
        for name in re.findall(r'"(\w+)"', lines):
            found = getattr(af, name)  # names load when first used; what is documented is where they really stand
            home = f"{found.__module__}.{found.__qualname__}" if hasattr(found, "__qualname__") else found.__name__
            page.append(f"::: {home}\n    options: {{ heading: af.{name}, toc_label: af.{name} }}")
        write(f"api/{re.sub(r'[^a-z]+', '-', title)}.md", "\n\n".join(page))


def notebooks() -> None:
    """The gallery and the tutorials are run from top to bottom; a cell that raises ends the build."""
    for source in [ROOT / "docs" / "gallery.py", *sorted((ROOT / "docs" / "tutorials").glob("*.py"))]:
        place = source.relative_to(ROOT / "docs").with_suffix("")
        notebook = jupytext.read(source)
        with TemporaryDirectory() as folder:  # what the cells write stays out of the site
            where = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=600, coalesce_streams=True, resources=where).execute()
        for cell in notebook.cells:  # warnings of other packages name folders of this machine
            if "outputs" in cell:
                cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
        body, made = MarkdownExporter().from_notebook_node(notebook, resources={"output_files_dir": place.name})
        pictures = dict(made["outputs"])
        for index, card in enumerate(re.findall(r"data:image/png;base64,([^\"]+)", body)):  # models as cards
            name = f"{place.name}/card-{index}.png"
            body, pictures[name] = body.replace(f"data:image/png;base64,{card}", name), b64decode(card)
        for name, picture in pictures.items():
            write(str(place.parent / name), picture)
        shown = r"[![what the cell above draws](\1){ loading=lazy }](\1)"
        write(f"{place}.md", re.sub(r"!\[png\]\((.+?)\)", shown, body) + WRAPPED)
        print(place, flush=True)


def write(name: str, content: str | bytes) -> None:
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    parts = {"text": text, "reference": reference, "notebooks": notebooks}
    if not sys.argv[1:]:
        shutil.rmtree(OUT, ignore_errors=True)
    for part in sys.argv[1:] or parts:
        parts[part]()
