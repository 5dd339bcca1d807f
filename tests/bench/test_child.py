"""The process a trial runs in: what differs between its verbs."""

import gc

import pytest

from edgescope.bench import child


@pytest.mark.parametrize(("verb", "seldom"), [("prepare", True), ("run", False), ("look", False)])
def test_only_a_process_that_builds_collects_garbage_seldom(tmp_path, monkeypatch, verb, seldom):
    """A measured process collects it as a user's own would."""
    usual, seen = (700, 10, 10), []
    monkeypatch.setattr(child, "die_with_parent", lambda pid: None)
    monkeypatch.setattr(child, "_answer", lambda verb, folder: seen.append(gc.get_threshold()))
    before = gc.get_threshold()
    try:
        gc.set_threshold(*usual)
        assert child.main([verb, str(tmp_path), "1"]) == 0
    finally:
        gc.set_threshold(*before)
    assert seen == [child.SELDOM if seldom else usual]
