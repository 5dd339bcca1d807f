"""A real browser for the tests marked `page`: Chromium without a window, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def opened(path: Path, *, width: int = 1200, height: int = 900) -> Iterator[tuple[Any, list[str]]]:
    """Open a file; yield the page when it is drawn, and what its console said. Skips where there is no browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install -e '.[page]'")
    if BROWSER is None:
        pytest.skip("no Chromium is on PATH")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri(), wait_until="networkidle")
        yield page, said
        browser.close()


def barriers(page: Any) -> list[str]:
    """Return what axe-core calls serious or critical for a reader with a handicap: rule and first element."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install -e '.[page]'")
    found = axe.Axe().run(page).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html']}" for v in found if v["impact"] in ("serious", "critical")]
