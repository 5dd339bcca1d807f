import builtins
import errno
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from edgescope import cache
from edgescope.errors import StoreError


def test_the_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "here"))
    assert cache.folder("onnx") == tmp_path / "here" / "onnx"
    assert cache.folder("onnx").is_dir()
    monkeypatch.delenv("EDGESCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.root() == tmp_path / "xdg" / "edgescope"


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "x.json"
    with pytest.raises(KeyError), cache.writing(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert list(path.parent.iterdir()) == []
    cache.write_json(path, {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(path.parent) == ["x.json"]


def test_damaged_json_is_as_good_as_none(tmp_path):
    assert cache.read_json(tmp_path / "no.json") is None
    (tmp_path / "half.json").write_text('{"a": ')
    assert cache.read_json(tmp_path / "half.json") is None


def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EDGESCOPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="EDGESCOPE_CACHE="):
        cache.folder("onnx")


def test_content_follows_the_file(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"one")
    first = cache.content(path)
    path.write_bytes(b"other")
    assert cache.content(path) != first
    assert len(first) == 64


MAKES = """
import sys
from pathlib import Path
from edgescope import cache
with cache.workbench(Path(sys.argv[1]) / "net.onnx") as bench:
    (bench / "net.onnx.data").write_bytes(bytes(1000))
    print("making", flush=True)
    sys.stdin.read()
"""


def maker(folder):
    command = [sys.executable, "-c", MAKES, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "making\n"
    return process


@pytest.mark.slow
def test_what_a_killed_process_was_making_is_removed_after_a_day(tmp_path):
    (tmp_path / ".edgescope-making-by-hand").mkdir()
    (tmp_path / "mine").mkdir()
    known = {p.name for p in tmp_path.iterdir()}
    killed = maker(tmp_path)
    killed.kill()
    killed.communicate()
    (old,) = {p for p in tmp_path.iterdir() if p.name not in known}
    living = maker(tmp_path)
    (held,) = {p for p in tmp_path.iterdir() if p.name not in known} - {old}
    aged = time.time() - cache.STALE_S - 60
    with cache.workbench(tmp_path / "net.onnx") as bench:
        assert {p.name for p in tmp_path.iterdir()} == known | {
            old.name,
            held.name,
            bench.name,
        }  # not a day old
    for path in (old, held, *(tmp_path / name for name in known)):
        os.utime(path, (aged, aged))
    with cache.workbench(tmp_path / "net.onnx") as bench:
        assert {p.name for p in tmp_path.iterdir()} == known | {held.name, bench.name}
    living.communicate("")
    assert living.returncode == 0 and {p.name for p in tmp_path.iterdir()} == known


def test_a_disk_without_room_for_a_workbench_is_told_as_such(tmp_path, monkeypatch):
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    for place, name in (
        (cache, "TemporaryDirectory"),
        (builtins, "open"),
    ):  # no folder; a folder and no file in it
        with monkeypatch.context() as patch:
            patch.setattr(place, name, full)
            with pytest.raises(StoreError, match=r"E-CACHE-2.*No space left"):
                cache.workbench(tmp_path / "net.onnx").__enter__()
        assert list(tmp_path.iterdir()) == []


def test_what_is_made_once_is_made_again_only_where_it_is_not_whole(tmp_path):
    made = []

    def make(path):
        made.append(path)
        path.write_bytes(b"network")
        cache.external_data(path).write_bytes(b"weights")
        return {"how": len(made)}

    path = cache.named(tmp_path / "new", "a/model name", "fp32", "0a1b", ".onnx")
    assert path == tmp_path / "new" / "a_model_name-fp32-0a1b.onnx"
    assert cache.made_once(path, make) == cache.made_once(path, make) == path
    assert len(made) == 1 and made[0].name == path.name and not made[0].exists()
    assert cache.notes(path) == {"how": 1, "bytes": 14}
    cache.external_data(path).write_bytes(b"half")
    assert cache.made_once(path, make).read_bytes() == b"network"
    assert cache.notes(path) == {"how": 2, "bytes": 14} and cache.whole(path)


def test_what_another_makes_already_is_waited_for_and_not_made_twice(tmp_path):
    path, begun, made = tmp_path / "net.onnx", threading.Event(), []

    def make(new):
        made.append(new)
        begun.set()
        time.sleep(0.1)
        new.write_bytes(b"network")
        return {}

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.made_once, path, make)
        assert begun.wait(10)
        assert pool.submit(cache.made_once, path, make).result(10) == first.result(10) == path
    assert len(made) == 1 and not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_one_that_dies_or_fails_while_it_makes_something_keeps_nobody_waiting(tmp_path):
    path = tmp_path / "net.onnx"
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom edgescope import cache\n"
        f"with cache.alone(Path({str(path)!r})):\n  print('in', flush=True)\n  time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"in\n"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(cache.made_once, path, lambda new: {"why": "nothing to make"})
            time.sleep(0.2)
            assert not waiting.done()
            other.kill()
            assert waiting.result(10) == path
    with pytest.raises(ValueError, match="no"), cache.alone(path):
        raise ValueError("no")
    with cache.alone(path):
        pass


def test_where_nothing_can_be_locked_it_is_made_all_the_same(tmp_path, monkeypatch):
    def refuse(handle, how):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(cache.fcntl, "flock", refuse)
    path = cache.made_once(tmp_path / "net.onnx", lambda new: new.write_bytes(b"network") and {})
    assert path.read_bytes() == b"network" and not list(tmp_path.glob(".*.lock"))


def test_what_cannot_be_made_leaves_nothing_and_what_says_why_is_remembered(tmp_path):
    path = cache.named(tmp_path, "m", "mixed", "0", ".onnx")

    def fail(path):
        path.write_bytes(b"half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.made_once(path, fail)
    assert not list(tmp_path.iterdir())
    cache.made_once(path, lambda new: {"passed": False})
    assert not path.exists() and cache.notes(path) == {"passed": False, "bytes": 0}

    def full(path):
        raise OSError("no space left")

    with pytest.raises(StoreError, match="E-CACHE-2"):
        cache.made_once(path, full)
