"""What the README's pictures are drawn from: a stored run's own text, and a hash that notices a change of either."""

import shutil
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STORED = Path(__file__).parents[1] / "store/schema_1/results"


@pytest.fixture
def pictures(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "website")
    sys.modules.pop("pictures", None)
    import pictures

    monkeypatch.setattr(pictures, "RUN", Path(shutil.copytree(STORED, tmp_path / "run")))
    return pictures


def test_the_screen_holds_the_answer_of_the_run(pictures):
    said = pictures.text()
    assert "null fp32 b1" in said and max(map(len, said.splitlines())) <= 80
    assert all(word in pictures._screen() for word in ("null", "$ ", pictures.COMMAND))


def test_another_text_or_another_run_is_noticed(pictures, monkeypatch):
    before = pictures.made()
    assert pictures.made() == before
    (pictures.RUN / "more.txt").write_text("x")
    assert {k for k, v in pictures.made().items() if v != before[k]} == {"run"}
    monkeypatch.setattr(pictures, "text", lambda: "another answer")
    assert pictures.made()["terminal"] != before["terminal"]
