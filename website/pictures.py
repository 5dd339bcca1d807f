"""Draw the README's two pictures from one stored run: what the terminal shows, and the first screen of the page.

python website/pictures.py STORE     # copies the run into website/run, then draws; without STORE it draws again

Needs the extra `page` and Chromium. A picture is fresh as long as the run and the text drawn from it are those of
website/pictures/made.json: pixels differ from one browser to the next.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

from edgescope.records import Result
from edgescope.report import result as card
from edgescope.report import terminal, write
from edgescope.store.results import Store

HERE = Path(__file__).parent
RUN, PICTURES = HERE / "run", HERE / "pictures"
COMMAND = "edgescope bench efficientnet_lite0 --backend onnxruntime"
PAGE = "edgescope report -o r.html"
STYLES = {
    "bold": "font-weight:bold",
    "dim": "opacity:.65",
    "strike": "text-decoration:line-through",
    "red": "color:#ff7b72",
    "green": "color:#56d364",
    "yellow": "color:#e3b341",
    "cyan": "color:#76e3ea",
    "magenta": "color:#d2a8ff",
}
SCREEN = (
    "margin:0;padding:18px 22px;background:#0d1117;color:#e6edf3;font:15px/1.45 monospace;width:max-content"
)


def run() -> Result:
    """Return the stored run."""
    store = Store(RUN)
    (result,) = store.fulls(store.results())
    return result


def answer() -> list[terminal.Words]:
    """Return the lines that `bench` printed of the stored run."""
    return terminal.lines(card.document(run()))


def text() -> str:
    """Return those lines without colours."""
    return "\n".join("".join(words for words, _ in line).rstrip() for line in answer()).strip("\n")


def page(path: Path) -> Path:
    """Write the page of the stored run."""
    return write([run()], path, command=PAGE)


def made() -> dict[str, str]:
    """Return the hashes of the run, of the terminal's text and of the page's words: what a picture depends on."""
    stored = hashlib.sha256()
    for path in sorted(p for p in RUN.rglob("*") if p.is_file()):
        stored.update(str(path.relative_to(RUN)).encode() + path.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        body = page(Path(folder) / "r.html").read_text().partition("<main>")[2].partition("<script")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", body).split())
    texts = {"terminal": text(), "page": words}
    return {"run": stored.hexdigest()} | {k: hashlib.sha256(v.encode()).hexdigest() for k, v in texts.items()}


def _screen() -> str:
    spans = [[("$ ", "dim"), (COMMAND, "bold")], *answer()]
    rows = ("".join(_span(words, style) for words, style in line) for line in spans)
    return f'<meta charset="utf-8"><pre style="{SCREEN}">' + "\n".join(rows) + "</pre>"


def _span(words: str, style: str) -> str:
    css = ";".join(STYLES[name] for name in style.split() if name in STYLES)
    return f'<span style="{css}">{html.escape(words)}</span>'


def draw() -> None:
    """Draw both pictures and note what they were drawn from."""
    from playwright.sync_api import sync_playwright

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        window = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        opened = window.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light")
        opened.set_content(_screen())
        opened.locator("pre").screenshot(path=PICTURES / "terminal.png")
        opened.goto(page(Path(folder) / "r.html").as_uri(), wait_until="networkidle")
        opened.screenshot(path=PICTURES / "page.png")
        window.close()
    (PICTURES / "made.json").write_text(json.dumps(made(), indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        shutil.rmtree(RUN, ignore_errors=True)
        shutil.copytree(sys.argv[1], RUN, ignore=shutil.ignore_patterns("*.lock"))
    draw()
