"""What lies in a folder of results is looked at before it is opened: each kind of file, and one that is exchanged."""

import os
import socket
import stat
from types import SimpleNamespace

import pytest

from edgescope.errors import StoreError
from edgescope.store import files


@pytest.fixture
def things(tmp_path):
    """A folder with a file, a folder, a pipe, a socket and links to some of them."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(tmp_path)  # a socket's name is short
        made.bind("socket")
        os.chdir(here)
    for name in ("file", "folder", "none"):
        (tmp_path / f"to_{name}").symlink_to(name)
    return tmp_path


KINDS = {
    "pipe": "a named pipe",
    "socket": "a socket",
    "to_file": "a link",
    "to_folder": "a link",
    "to_none": "a link",
}


def said(look, path):
    """The answer, or the kind that the refusal names."""
    try:
        return look(path)
    except StoreError as error:
        assert error.message.code == "E-STORE-6" and path.name in error.message.what
        return error.message.evidence


def test_only_a_file_is_a_file_and_only_a_folder_a_folder(things):
    found = {name: said(files.is_file, things / name) for name in ("file", "folder", *KINDS, "gone")}
    assert found == {"file": True, "gone": False, "folder": "it is a folder"} | {
        name: f"it is {kind}" for name, kind in KINDS.items()
    }
    folders = {name: said(files.is_folder, things / name) for name in ("file", "folder", *KINDS, "gone")}
    assert folders == {"folder": True, "gone": False, "file": "it is a file, not a folder"} | {
        name: f"it is {kind}, not a folder" for name, kind in KINDS.items()
    }


def test_nothing_but_a_file_is_opened(things):
    for name, kind in (*KINDS.items(), ("folder", "a folder")):
        assert said(lambda path: files.read(path, 9), things / name) == f"it is {kind}"
    assert files.read(things / "file", 5) == b"12345"


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (stat.S_IFREG, ""),
        (stat.S_IFDIR, ""),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFBLK, "a device"),
        (stat.S_IFLNK, "a link"),
        (0, "no file"),
    ],
)
def test_each_kind_has_a_name(mode, kind):
    assert files.kind(mode | 0o644) == kind


def test_a_file_that_is_exchanged_meanwhile_is_closed_again(things, monkeypatch):
    closed, real = [], os.close
    monkeypatch.setattr(files.os, "fstat", lambda handle: SimpleNamespace(st_mode=stat.S_IFIFO, st_size=0))
    monkeypatch.setattr(files.os, "close", lambda handle: closed.append(handle) or real(handle))
    assert said(lambda path: files.read(path, 9), things / "file") == "it is a named pipe"
    assert len(closed) == 1


def test_a_file_is_opened_so_that_no_link_is_followed_and_nothing_waits(things, monkeypatch):
    flags, real = [], os.open
    monkeypatch.setattr(files.os, "open", lambda path, how: flags.append(how) or real(path, how))
    with files.opened(things / "file", 5) as handle:
        assert os.fstat(handle).st_size == 5
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(handle)
    assert flags == [os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC]


def test_folders_and_links_are_listed_by_name(things):
    assert [entry.name for entry in files.folders(things)] == [
        "folder",
        "to_file",
        "to_folder",
        "to_none",
    ]


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("a", True),
        ("A-b_c.9", True),
        ("a" * 200, True),
        ("a" * 201, False),
        (".a", False),
        ("-a", False),
        ("a b", False),
        ("a\n", False),
        ("\u00e9", False),
        ("", False),
    ],
)
def test_only_a_name_of_ours_is_removed_by_a_command(tmp_path, name, fine):
    assert bool(files.NAME.match(name)) is fine
    if name and "\n" not in name:
        command = files.removal(tmp_path / name)
        assert command == (f"rm -r -- {tmp_path / name}" if fine else "")


def test_what_a_terminal_would_obey_is_shown_escaped(tmp_path):
    assert files.shown(tmp_path / "a b") == str(tmp_path / "a b")
    assert files.shown(tmp_path / "a\x1b[2J") == ascii(str(tmp_path / "a\x1b[2J"))
