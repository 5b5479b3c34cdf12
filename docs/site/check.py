"""Every link and anchor of build/site leads somewhere, and Chromium opens every page without a complaint.

    python docs/site/check.py                  # prints what is wrong; exit 1 if anything is
    python docs/site/check.py --shots build/shots index.html gallery.html    # also pictures at 380 and 1,400 px

CHROMIUM names the browser where it is not the Debian one; no browser is ever downloaded.
"""

import argparse
import os
import shutil
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urljoin, urlparse

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]


class Page(HTMLParser):
    """What a page points at, what it loads, and the anchors that it offers."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attributes}
        self.anchors |= {has[name] for name in ("id", "name") if has.get(name)}
        for name in ("href", "src"):
            if name in has:
                (self.links if tag == "a" else self.loads).append(has[name])


def broken_links() -> list[str]:
    """Links to files or anchors that are not there, and whatever a page loads from elsewhere."""
    pages = {path: Page(path) for path in sorted(SITE.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        if path.name == "404.html":  # it is served at any depth, so its links begin at the root
            continue
        for link in page.links + page.loads:
            parts = urlparse(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    wrong.append(f"{path.relative_to(SITE)} loads {link}")
                continue
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_relative_to(SITE) or not target.exists():
                wrong.append(f"{path.relative_to(SITE)}: {link} leads nowhere")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                wrong.append(f"{path.relative_to(SITE)}: {link} names no anchor of its page")
    return wrong


def errors_in_chromium(shots: Path | None, shown: list[str]) -> list[str]:
    """What consoles complain of, requests that leave the loopback, formulas that are not set, pages too wide."""
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/"
    browser_path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if browser_path is None:
        return ["there is no Chromium to open the pages: apt-get install chromium, or name one in CHROMIUM"]
    try:
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=browser_path, args=FLAGS)
            for path in sorted(SITE.rglob("*.html")):
                name = str(path.relative_to(SITE))
                said = open_page(browser, base, name, shots if name in shown else None)
                wrong += [f"{name}: {line}" for line in said]
            browser.close()
    finally:
        server.shutdown()
    return wrong


def open_page(browser, base: str, name: str, shots: Path | None) -> list[str]:  # type: ignore[no-untyped-def]
    said: list[str] = []
    page = browser.new_page(viewport={"width": 380, "height": 800})

    def guard(route) -> None:  # type: ignore[no-untyped-def]
        if route.request.url.startswith((base, "data:", "blob:")):
            route.continue_()
        else:
            said.append(f"asks for {route.request.url}")
            route.abort()

    page.route("**/*", guard)
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(f"{request.url} failed"))
    page.goto(urljoin(base, name), wait_until="load")
    page.evaluate("document.querySelectorAll('img[loading=lazy]').forEach(image => image.loading = 'eager')")
    page.wait_for_load_state("networkidle")
    if unset := page.evaluate("document.querySelectorAll('.katex-error, .arithmatex:not(:has(.katex))').length"):
        said.append(f"{unset} formulas are not set")
    if page.evaluate("[...document.images].some(image => !image.complete || !image.naturalWidth)"):
        said.append("a picture is missing")
    if (wide := page.evaluate("document.documentElement.scrollWidth")) > 380:
        said.append(f"is {wide} px wide on a telephone of 380 px")
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
        for width in (380, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=shots / f"{name.replace('/', '-')}-{width}.png", full_page=True)
    page.close()
    return said


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--shots", type=Path, help="a folder for pictures of the pages named")
    options.add_argument("pages", nargs="*")
    asked = options.parse_args()
    found = broken_links() + errors_in_chromium(asked.shots, asked.pages)
    count = len(list(SITE.rglob("*.html")))
    print("\n".join(found) or f"{count} pages: every link leads somewhere, and no console complains")
    raise SystemExit(1 if found else 0)
