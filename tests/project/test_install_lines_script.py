"""The script that tries the lines of the page install: which it finds, how its rows are kept, what is published."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import install_lines

ROOT = Path(__file__).parents[2]


def row(python, extras, **more):
    facts = {"line": "pip install .", "first": "", "packages": {"torch": "1"}, "bytes": 5e6, "seconds": 3.0}
    return (
        facts | {"python": python, "extras": extras, "commit": "0" * 40, "works": True, "checks": []} | more
    )


def test_every_install_line_is_found_and_has_a_promise_to_keep():
    section = (ROOT / "docs/how-to/install.md").read_text()
    written = [text for text in section.splitlines() if text.startswith(("pip install .", "pip install '."))]
    assert len(written) == len(install_lines.lines()) == len(install_lines.PROMISED)
    assert install_lines.lines().keys() == install_lines.PROMISED.keys()


def test_a_row_takes_the_place_of_the_earlier_one_of_its_question():
    rows = [row("3.13.0", "none"), row("3.11.7", "none"), row("3.11.7", "torch", first="torch==2")]
    for made in rows:
        kept = install_lines.merged([r for r in rows if r is not made], made)
        assert [(r["python"], r["extras"]) for r in kept] == [
            ("3.11.7", "none"),
            ("3.13.0", "none"),
            ("3.11.7", "torch"),
        ]
    again = install_lines.merged(rows, row("3.11.9", "none", works=False))
    assert [r["python"] for r in again if r["extras"] == "none"] == ["3.11.9", "3.13.0"]


def test_the_page_says_what_did_not_install_and_what_did_not_work():
    checks = [{"ok": True}, {"ok": False}]
    page = install_lines.page(
        [row("3.10.1", "none", checks=checks), row("3.11.1", "torch", first="torch==2")]
    )
    assert "| 3.10.1 | 1 of 2 | 5 MB | 3 s | torch 1 |" in page
    assert "| `pip install torch==2`, then `pip install .` | 3.11.1 | does not install |" in page


def test_every_line_works_in_a_published_row():
    figures = json.loads((ROOT / "published" / "install_lines.json").read_text())["figures"]
    works = {(r["extras"], r["python"].rsplit(".", 1)[0]) for r in figures["rows"] if r["works"]}
    assert {extras for extras, _ in works} >= install_lines.PROMISED.keys()
    assert {python for extras, python in works if extras == "none"} == {"3.10", "3.11", "3.12", "3.13"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("exit", "names", "ok"), [(3, "Try: it now", True), (3, "Try: that", False), (0, "", False)]
)
def test_a_promise_is_an_exit_status_and_words_wherever_the_lines_break(tmp_path, exit, names, ok):
    check = install_lines.Check("printf 'E-X-1: no. Try:\\nit now'; exit 3", exit, names)
    answer = install_lines.asked(check, tmp_path, {})
    assert answer["ok"] is ok and answer["exit"] == 3 and "E-X-1" in answer["said"]


@pytest.mark.process
def test_a_noisy_machine_is_no_fault_of_the_installation(tmp_path):
    noisy = install_lines.Check("echo 'E-STAT-1: latency moved by +206%'; exit 1")
    assert install_lines.asked(noisy, tmp_path, {})["ok"]
    assert not install_lines.asked(install_lines.Check("echo E-RUN-1; exit 1"), tmp_path, {})["ok"]
