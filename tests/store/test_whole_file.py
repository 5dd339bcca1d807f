"""Files that a command writes: whole, or what was there before; and files that are read whole, or refused."""

import os
import re
from contextlib import contextmanager

import pytest

from edgescope.errors import StoreError
from edgescope.store import files


def test_a_file_takes_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), files.written(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["page.html"]
    files.write_text(path, "new\n")
    assert path.read_bytes() == b"new\n" and [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_a_link_goes_on_leading_to_the_file(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    files.write_text(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "x"


def test_what_is_no_file_is_written_into(tmp_path):
    reader, writer = os.pipe()
    with os.fdopen(reader) as file:
        files.write_text(tmp_path.__class__(f"/dev/fd/{writer}"), "through a pipe")
        os.close(writer)
        assert file.read() == "through a pipe"


def test_asking_whether_a_file_can_be_written_leaves_none(tmp_path):
    files.writable(tmp_path / "new" / "page.html")
    assert list((tmp_path / "new").iterdir()) == []
    with pytest.raises(OSError, match="is a folder"):
        files.writable(tmp_path)


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_takes_no_file_is_noticed_whether_or_not_the_file_is_there(
    tmp_path, monkeypatch, there
):
    def refused(dir):
        asked.append(dir)
        raise OSError("read-only")

    asked = []
    if there:
        (tmp_path / "out").touch()
    monkeypatch.setattr(files.tempfile, "TemporaryFile", refused)
    with pytest.raises(OSError, match="read-only"):
        files.writable(tmp_path / "out")
    assert asked == [str(tmp_path)]


def test_a_pipe_needs_no_room_beside_it(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files.tempfile, "TemporaryFile", None)
    files.writable(tmp_path / "pipe")


def test_a_file_that_is_too_large_is_told_with_its_size_and_the_most_in_megabytes(tmp_path, monkeypatch):
    path, most = tmp_path / "large", 2_000_000
    path.touch()
    os.truncate(path, most)
    assert len(files.read(path, most)) == most
    os.truncate(path, 5_000_000)  # a hole: it takes no room
    with pytest.raises(StoreError) as caught:
        files.read(path, most)
    assert caught.value.code == "E-STORE-6"
    assert caught.value.message.evidence == "it holds 5 MB; 2 MB are read at most"

    @contextmanager
    def grows(path, most):  # it was small enough when it was opened
        handle = os.open(path, os.O_RDONLY)
        yield handle
        os.close(handle)

    monkeypatch.setattr(files, "opened", grows)
    with pytest.raises(StoreError) as caught:
        files.read(path, most)
    assert re.search(r"more than .* 2 MB ", caught.value.message.evidence)
