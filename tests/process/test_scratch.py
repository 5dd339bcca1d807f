"""Temporary folders: inside the one that a parent removes, where there is one."""

import os
import tempfile
from pathlib import Path

from edgescope.process import scratch


def test_a_folder_is_made_in_the_one_that_the_parent_removes(tmp_path, monkeypatch):
    for name, value in scratch.within(str(tmp_path)).items():
        monkeypatch.setenv(name, value)
    with scratch.folder("readings") as name:
        assert Path(name).parent == tmp_path and Path(name).name.startswith("edgescope-readings-")
    assert not os.path.exists(name)


def test_without_such_a_parent_it_is_where_temporary_folders_are(tmp_path, monkeypatch):
    for parent in ("", str(tmp_path / "gone")):
        monkeypatch.setenv(scratch.VARIABLE, parent)
        with scratch.folder("workers") as name:
            assert Path(name).parent == Path(tempfile.gettempdir())
