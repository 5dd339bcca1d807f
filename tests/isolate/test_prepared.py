"""What spares the process that prepares: its files as it left them, and the same question of the same installation."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from edgescope import cache
from edgescope.isolate import fresh, notes
from edgescope.records import Status, Trial

TRIAL = Trial(model="null", backend="null", options={"delay_us": 5})


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(notes._ELSEWHERE, raising=False)


def noted(files):
    """Have a process note that it opened these files of the cache: a hook would stay in this one."""
    code = f"""
from edgescope.isolate import notes
from edgescope.records import Trial
opened = notes.files_opened()
for name in {[str(f) for f in files]!r}:
    open(name, "ab").close()
notes.note_prepared(Trial.from_json({TRIAL.to_json()!r}), opened)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_what_was_prepared_is_known_until_one_of_its_files_changes(tmp_path):
    file, other = cache.folder("artifacts") / "a.onnx", tmp_path / "elsewhere"
    assert not notes.is_prepared(TRIAL)
    for change in (lambda: file.write_bytes(b"longer"), lambda: os.utime(file, (1, 1)), file.unlink):
        file.write_bytes(b"made")
        noted([file, other])
        other.unlink()  # it belongs to nobody's cache
        assert notes.is_prepared(TRIAL)
        change()
        assert not notes.is_prepared(TRIAL)


@pytest.mark.slow
def test_only_what_is_whole_is_noted():
    for model, works in (("null", True), ("nosuch", False)):
        trial = Trial(model=model, backend="null")
        assert (fresh.prepare(trial) is None) is works and notes.is_prepared(trial) is works


def written(trial=TRIAL):
    cache.write_json(notes._prepared_note(trial), {})


def test_another_question_is_prepared_for_and_other_effort_is_not():
    written()
    assert notes.is_prepared(replace(TRIAL, max_s=60.0, replicate=3))
    for other in ({"metric": "top1"}, {"batch": 2}, {"options": {}}, {"precision": "int8"}, {"data": "x#1"}):
        assert not notes.is_prepared(replace(TRIAL, **other)), other


def test_another_installation_is_prepared_for(monkeypatch, tmp_path):
    (tmp_path / "site-packages").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages"), *sys.path])
    written()
    assert notes.is_prepared(TRIAL)
    monkeypatch.setattr(sys, "path", list(reversed(sys.path)))
    assert notes.is_prepared(TRIAL)
    (tmp_path / "site-packages" / "engine").mkdir()
    os.utime(tmp_path / "site-packages", (1, 1))
    assert not notes.is_prepared(TRIAL)


def test_a_board_has_a_cache_of_its_own(monkeypatch):
    written()
    assert notes.is_prepared(TRIAL)
    monkeypatch.setenv(notes._ELSEWHERE, "ssh://board")
    assert not notes.is_prepared(TRIAL)


@pytest.mark.parametrize("text", ["[]", "7", '{"/nowhere": [1, 2]}', "half"])
def test_a_note_that_says_nothing_is_no_note(text):
    written()
    notes._prepared_note(TRIAL).write_text(text)
    assert not notes.is_prepared(TRIAL)


def test_no_process_is_started_for_what_is_there(monkeypatch):
    asked = []
    monkeypatch.setattr(fresh, "_in_child", lambda verb, trial, *a: asked.append(verb) or failed)
    failed = type("R", (), {"status": Status.OK})
    assert fresh.prepare(TRIAL) is None and asked == ["prepare"]
    written()
    assert fresh.prepare(TRIAL) is None and asked == ["prepare"]
