"""The site that `make docs` builds, in a real browser: it opens as files, its search answers, nothing is a barrier."""

from pathlib import Path

import pytest

import browser

SITE = Path(__file__).parents[2] / "build/site"
PAGES = ("index.html", "reference/metrics.html", "tutorial/first-number.html")


@pytest.fixture(autouse=True)
def built() -> None:
    if not SITE.is_dir():
        pytest.skip("build/site is not there: make docs")


@pytest.mark.page
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_an_error_or_a_barrier(name: str) -> None:
    with browser.opened(SITE / name) as (page, said):
        assert page.locator("h1").count() == 1
        assert not said
        assert not browser.barriers(page)


@pytest.mark.page
def test_the_search_answers_from_files_alone() -> None:
    with browser.opened(SITE / "index.html") as (page, _):
        page.keyboard.press("/")
        page.get_by_placeholder("Search").fill("samples per second of all workers")
        found = page.locator("text=/[1-9][0-9]* results/")
        found.wait_for(timeout=20_000)
